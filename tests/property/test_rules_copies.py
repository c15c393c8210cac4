"""A topic's rule set against the plainest one: ask every filter of every subscription, in order."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from polybus.rules import (
    CorrelationFilter,
    FalseFilter,
    Rule,
    RuleEvaluationError,
    SqlAction,
    SqlFilter,
    TopicRules,
    TrueFilter,
)

FIELDS = {"label": "label", "to": "to", "session_id": "sessionid"}
scalars = st.sampled_from(["x", "y", "1", 1, 1.0, Decimal(1), True, False, 0, 2, b"x", float("nan")])
field_sets = st.dictionaries(st.sampled_from(list(FIELDS)), st.sampled_from(["x", "y"]), max_size=3)
property_sets = st.dictionaries(st.sampled_from(["p", "q", "P"]), scalars, max_size=2)


class Message:
    def __init__(self, fields: dict[str, str], user: dict[str, Any]) -> None:
        self.fields = {FIELDS[name]: value for name, value in fields.items()}
        self._user = user

    def system(self, name: str) -> str | None:
        return self.fields.get(name)

    def user(self) -> dict[str, Any]:
        return self._user


messages = st.builds(Message, field_sets, st.dictionaries(st.sampled_from(["p", "q", "P"]), scalars, max_size=3))


class Correlation:
    """The model of a correlation filter: the definition, word by word."""

    def __init__(self, fields: dict[str, str], properties: dict[str, Any]) -> None:
        self.fields = fields
        self.properties = properties

    def built(self) -> CorrelationFilter:
        return CorrelationFilter(**self.fields, properties=self.properties)

    def matches(self, message: Message) -> bool:
        same_fields = all(message.system(FIELDS[name]) == value for name, value in self.fields.items())
        user = message.user()
        return same_fields and all(
            name in user and equal(value, user[name]) for name, value in self.properties.items()
        )


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    numbers = (int, float, Decimal)
    if isinstance(one, numbers) and isinstance(other, numbers):
        return bool(one == other)
    return type(one) is type(other) and one == other


correlations = st.tuples(field_sets, property_sets).filter(any).map(lambda pair: Correlation(pair[0], pair[1]))


@settings(max_examples=300, deadline=None)
@given(st.lists(correlations, max_size=12), st.lists(st.integers(0, 11), max_size=6), st.lists(messages, max_size=4))
def test_the_index_finds_what_asking_each_filter_finds(
    filters: list[Correlation], removed: list[int], sent: list[Message]
) -> None:
    topic = TopicRules()
    for number, correlation in enumerate(filters):
        topic.add(number, Rule("r", correlation.built(), None, 0))
    left = dict(enumerate(filters))
    for number in removed:
        if left.pop(number, None) is not None:
            topic.remove(number, "r")
    for message in sent:
        expected = [number for number, correlation in left.items() if correlation.matches(message)]
        assert [copy.subscription for copy in topic.match(message)] == expected
        assert expected == [number for number in left if left[number].built().matches(message)]


kinds = st.one_of(
    st.just(TrueFilter()),
    st.just(FalseFilter()),
    correlations.map(Correlation.built),
    st.sampled_from(
        ["1=1", "p = 'x'", "p > 0 AND q = 1", "sys.Label = 'x'", "p / 0 = 1", "p + 9223372036854775807 > 0"]
    ).map(SqlFilter),
)
actions = st.sampled_from([None, None, SqlAction("SET n = 1"), SqlAction("SET n = p / 0"), SqlAction("REMOVE p")])
steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "replace", "remove", "drop", "match"]),
        st.integers(1, 4),
        st.sampled_from(["r", "s", "t"]),
        kinds,
        actions,
    ),
    max_size=25,
)


def expected_copies(rules: dict[int, dict[str, Rule]], message: Message) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for subscription in sorted(rules):
        plain: list[tuple[Any, ...]] = []
        acting: list[tuple[Any, ...]] = []
        failed: list[tuple[Any, ...]] = []
        for rule in rules[subscription].values():
            try:
                if not rule.filter.matches(message):
                    continue
                if rule.action is None:
                    plain = [(subscription, None, [], None)]
                else:
                    acting.append((subscription, rule.name, rule.action.apply(message), None))
            except RuleEvaluationError as error:
                failed.append((subscription, rule.name, [], error.reason))
        found += plain + acting + failed[:1]
    return found


@settings(max_examples=300, deadline=None)
@given(steps, messages)
def test_copies_are_those_of_asking_every_rule(taken: list[tuple[Any, ...]], message: Message) -> None:
    topic = TopicRules()
    rules: dict[int, dict[str, Rule]] = {}
    for step, subscription, name, asked, action in taken:
        known = name in rules.get(subscription, {})
        rule = Rule(name, asked, action, 0)
        if step == "add" and not known:
            topic.add(subscription, rule)
            rules.setdefault(subscription, {})[name] = rule
        elif step == "replace" and known:
            topic.replace(subscription, rule)
            rules[subscription][name] = rule
        elif step == "remove" and known:
            topic.remove(subscription, name)
            del rules[subscription][name]
        elif step == "drop":
            topic.remove_subscription(subscription)
            rules.pop(subscription, None)
        check(topic, rules, message)


def check(topic: TopicRules, rules: dict[int, dict[str, Rule]], message: Message) -> None:
    copies = topic.match(message)
    found = [(copy.subscription, copy.rule_name, copy.changes, copy.error and copy.error.reason) for copy in copies]
    assert found == expected_copies(rules, message)
    for subscription, of_subscription in rules.items():
        assert topic.rules_of(subscription) == list(of_subscription.values())
