"""A topic's rule set: which copies a message makes, in which order, and how the rules are kept."""

from __future__ import annotations

import pytest
from rules_kit import Ids, Message

from polybus.errors import EntityAlreadyExists, EntityNotFound, QuotaExceeded
from polybus.limits import SQL_RULES_PER_TOPIC
from polybus.rules import (
    Copy,
    CorrelationFilter,
    FalseFilter,
    Filter,
    PropertyChange,
    Rule,
    SqlAction,
    SqlFilter,
    TopicRules,
    TrueFilter,
)
from polybus.rules import ruleset as ruleset_module


def rule(name: str, asked: Filter | str, action: str | None = None) -> Rule:
    made = SqlFilter(asked) if isinstance(asked, str) else asked
    return Rule(name, made, None if action is None else SqlAction(action), 0)


def shown(copies: list[Copy]) -> list[tuple[object, ...]]:
    return [(copy.subscription, copy.rule_name, copy.changes, copy.error and copy.error.reason) for copy in copies]


def matched(topic: TopicRules, message: Message) -> list[tuple[object, ...]]:
    return shown(topic.match(message, Ids()))


BLUE = Message({"color": "blue"}, label="order")


def test_no_rule_no_copy() -> None:
    assert TopicRules().match(BLUE) == []
    assert matched(TopicRules.with_rules({1: []}), BLUE) == []


def test_the_default_rule_takes_every_message() -> None:
    topic = TopicRules.with_rules({2: [rule("$Default", TrueFilter())], 1: [rule("$Default", "1=1")]})
    assert matched(topic, BLUE) == [(1, None, [], None), (2, None, [], None)]


def test_a_false_filter_takes_none() -> None:
    topic = TopicRules.with_rules({1: [rule("no", FalseFilter())], 2: [rule("never", "1=0")]})
    assert matched(topic, BLUE) == []


def test_all_matching_rules_without_an_action_make_one_copy() -> None:
    rules = [
        rule("$Default", TrueFilter()),
        rule("sql", "color = 'blue'"),
        rule("correlation", CorrelationFilter(label="order")),
        rule("other", "color = 'red'"),
    ]
    assert matched(TopicRules.with_rules({1: rules}), BLUE) == [(1, None, [], None)]
    assert matched(TopicRules.with_rules({1: rules[1:]}), BLUE) == [(1, None, [], None)]


def test_each_matching_rule_with_an_action_makes_its_own_copy() -> None:
    topic = TopicRules.with_rules(
        {
            1: [
                rule("second", "color = 'blue'", "SET n = 2"),
                rule("plain", "color = 'blue'"),
                rule("first", TrueFilter(), "SET n = 1"),
                rule("third", CorrelationFilter(label="order"), "SET n = 3"),
                rule("no", "color = 'red'", "SET n = 4"),
            ]
        }
    )
    assert matched(topic, BLUE) == [
        (1, None, [], None),
        (1, "second", [PropertyChange("user", "n", 2)], None),
        (1, "first", [PropertyChange("user", "n", 1)], None),
        (1, "third", [PropertyChange("user", "n", 3)], None),
    ]


def test_actions_see_the_original_message() -> None:
    action = "SET n = n + 1; SET color = 'red'"
    rules = [rule("a", "color = 'blue'", action), rule("b", "color = 'blue'", action)]
    topic = TopicRules.with_rules({1: rules, 2: rules})
    copies = topic.match(Message({"color": "blue", "n": 1}))
    assert [copy.changes[0] for copy in copies] == [PropertyChange("user", "n", 2)] * 4


def test_subscriptions_come_in_the_order_of_their_ids() -> None:
    kinds: list[Filter] = [TrueFilter(), SqlFilter("color = 'blue'"), CorrelationFilter(label="order")]
    topic = TopicRules()
    for subscription in (30, 7, 300, 1, 22, 9):
        topic.add(subscription, rule("r", kinds[subscription % 3]))
        topic.add(subscription, rule("acts", kinds[(subscription + 1) % 3], "SET a = 1"))
    found = [(copy.subscription, copy.rule_name) for copy in topic.match(BLUE)]
    assert found == [(number, name) for number in (1, 7, 9, 22, 30, 300) for name in (None, "acts")]


def test_a_failing_rule_is_no_match_and_the_others_count() -> None:
    topic = TopicRules.with_rules(
        {
            1: [rule("bad", "1 / 0 = 1"), rule("good", "color = 'blue'"), rule("acts", "1=1", "SET a = 1")],
            2: [rule("bad", "1 / 0 = 1")],
            3: [rule("good", TrueFilter())],
        }
    )
    assert matched(topic, BLUE) == [
        (1, None, [], None),
        (1, "acts", [PropertyChange("user", "a", 1)], None),
        (1, "bad", [], "DivideByZeroException"),
        (2, "bad", [], "DivideByZeroException"),
        (3, None, [], None),
    ]


def test_a_failing_action_makes_no_copy_but_an_error() -> None:
    topic = TopicRules.with_rules({1: [rule("bad", TrueFilter(), "SET a = 1 / 0")]})
    assert matched(topic, BLUE) == [(1, "bad", [], "DivideByZeroException")]


def test_a_subscription_has_one_error_that_of_its_first_rule() -> None:
    overflow = "9223372036854775807 + 1 = 1"
    topic = TopicRules.with_rules(
        {
            1: [
                rule("action", TrueFilter(), "SET a = 1 / 0"),
                rule("one", overflow),
                rule("two", "1 / 0 = 1"),
            ],
            2: [rule("one", overflow), rule("two", "1 / 0 = 1")],
        }
    )
    assert matched(topic, BLUE) == [
        (1, "action", [], "DivideByZeroException"),
        (2, "one", [], "OverflowException"),
    ]


def test_new_ids_reach_filters_and_actions() -> None:
    topic = TopicRules.with_rules({1: [rule("r", "newid() = newid() OR TRUE", "SET a = newid()")]})
    ids = Ids()
    (copy,) = topic.match(BLUE, ids)
    assert ids.taken == 3
    assert copy.changes == [PropertyChange("user", "a", Ids()().__class__(int=3))]


def test_rules_are_added_replaced_and_removed() -> None:
    topic = TopicRules()
    first, second = rule("first", "color = 'blue'"), rule("second", CorrelationFilter(label="other"))
    topic.add(1, first)
    topic.add(1, second)
    assert topic.rules_of(1) == [first, second]
    assert topic.rules_of(2) == []
    assert matched(topic, BLUE) == [(1, None, [], None)]

    changed = rule("first", CorrelationFilter(label="order"), "SET a = 1")
    topic.replace(1, changed)
    assert topic.rules_of(1) == [changed, second]
    assert matched(topic, BLUE) == [(1, "first", [PropertyChange("user", "a", 1)], None)]

    topic.replace(1, rule("second", TrueFilter()))
    assert matched(topic, BLUE) == [(1, None, [], None), (1, "first", [PropertyChange("user", "a", 1)], None)]

    topic.remove(1, "first")
    assert matched(topic, BLUE) == [(1, None, [], None)]
    topic.remove(1, "second")
    assert matched(topic, BLUE) == []
    assert topic.rules_of(1) == []


def test_a_subscription_is_removed_with_all_its_rules() -> None:
    rules = [rule("a", TrueFilter()), rule("b", "color = 'blue'"), rule("c", CorrelationFilter(label="order"))]
    topic = TopicRules.with_rules({1: rules, 2: rules})
    topic.remove_subscription(1)
    topic.remove_subscription(3)
    assert topic.rules_of(1) == []
    assert matched(topic, BLUE) == [(2, None, [], None)]


def test_names_are_unique_within_a_subscription() -> None:
    topic = TopicRules.with_rules({1: [rule("r", TrueFilter())]})
    with pytest.raises(EntityAlreadyExists, match="already has a rule named 'r'"):
        topic.add(1, rule("r", FalseFilter()))
    topic.add(2, rule("r", FalseFilter()))
    assert matched(topic, BLUE) == [(1, None, [], None)]


def test_what_is_not_there_cannot_be_changed() -> None:
    topic = TopicRules.with_rules({1: [rule("r", TrueFilter())]})
    for subscription, name in ((1, "x"), (2, "r")):
        with pytest.raises(EntityNotFound, match=f"no rule named '{name}'"):
            topic.remove(subscription, name)
        with pytest.raises(EntityNotFound):
            topic.replace(subscription, rule(name, TrueFilter()))


def test_sql_filters_are_bounded_for_each_topic() -> None:
    topic = TopicRules()
    asked = SqlFilter("color = 'blue'")
    for number in range(SQL_RULES_PER_TOPIC):
        topic.add(number % 50, rule(f"r{number}", asked))
    with pytest.raises(QuotaExceeded, match="2000 SQL filters"):
        topic.add(51, rule("more", asked))
    assert topic.rules_of(51) == []
    topic.add(51, rule("other kind", CorrelationFilter(label="x")))
    with pytest.raises(QuotaExceeded):
        topic.replace(51, rule("other kind", asked))
    assert topic.rules_of(51) == [rule("other kind", CorrelationFilter(label="x"))]
    topic.replace(0, rule("r0", "color = 'green'"))
    topic.remove(1, "r1")
    topic.add(51, rule("more", asked))


def test_correlation_filters_are_bounded_for_each_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ruleset_module, "CORRELATION_RULES_PER_TOPIC", 3)
    topic = TopicRules()
    for number in range(3):
        topic.add(number, rule("r", CorrelationFilter(label="x")))
    with pytest.raises(QuotaExceeded, match="3 correlation filters"):
        topic.add(4, rule("r", CorrelationFilter(label="x")))
    topic.remove_subscription(0)
    topic.add(4, rule("r", CorrelationFilter(label="x")))


class CountedMessage(Message):
    """Counts the looks at its user properties."""

    looks = 0

    def user(self) -> dict[str, object]:  # type: ignore[override]
        self.looks += 1
        return super().user()


def test_the_default_rule_does_not_look_at_the_message() -> None:
    message = CountedMessage({"a": 1})
    TopicRules.with_rules({1: [rule("$Default", TrueFilter())], 2: [rule("no", FalseFilter())]}).match(message)
    assert (message.looks, message.asked) == (0, [])


def test_removed_rules_leave_nothing_to_look_at() -> None:
    topic = TopicRules.with_rules({1: [rule("$Default", TrueFilter())]})
    for name, asked in (
        ("sql", SqlFilter("a = 1")),
        ("label", CorrelationFilter(label="x")),
        ("property", CorrelationFilter(to="x", properties={"a": 1})),
    ):
        topic.add(2, rule(name, asked))
        topic.remove(2, name)
    message = CountedMessage({"a": 1})
    assert matched(topic, message) == [(1, None, [], None)]
    assert (message.looks, message.asked) == (0, [])


def test_many_filters_look_up_a_property_once() -> None:
    message = CountedMessage({"a": 1}, label="x")
    rules = [rule(f"s{n}", f"sys.Label = 'l{n}'") for n in range(100)]
    rules += [rule(f"c{n}", CorrelationFilter(label=f"l{n}")) for n in range(100)]
    TopicRules.with_rules({1: rules}).match(message)
    assert (message.looks, message.asked) == (1, ["label"])


def test_rules_are_equal_by_what_they_say() -> None:
    assert Rule("r", TrueFilter(), None, 5) == Rule("r", TrueFilter(), None, 5)
    assert Rule("r", TrueFilter(), None, 5) != Rule("r", TrueFilter(), None, 6)
    assert Rule("r", TrueFilter(), None, 5) != Rule("r", TrueFilter(), SqlAction("SET a=1"), 5)
    assert Rule("r", TrueFilter(), None, 5) != Rule("s", TrueFilter(), None, 5)
    assert Rule("r", TrueFilter(), None, 5) != Rule("r", FalseFilter(), None, 5)
    assert hash(Rule("r", TrueFilter(), None, 5)) == hash(Rule("r", TrueFilter(), None, 5))
    assert repr(Rule("r", TrueFilter(), None, 5)) == "Rule('r', TrueFilter('1=1'), None, 5)"
    assert repr(Copy(1, None, [], None)) == "Copy(1, None, [], None)"
