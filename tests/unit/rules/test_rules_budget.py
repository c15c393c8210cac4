"""What a topic's rules may cost for one message: bounded work, and nothing is lost that was not judged."""

from __future__ import annotations

import gc
import time

import pytest
from tests.unit.rules.rules_kit import Ids, Message

from polybus.limits import RULE_BUDGET, SQL_RULES_PER_TOPIC
from polybus.rules import CorrelationFilter, Rule, SqlAction, SqlFilter, TopicRules
from polybus.rules.evaluation import RuleBudget
from polybus.rules.failure import RuleEvaluationError

LONG = "a" * 31_000
BOUND_S = 0.05
"""Generous: this machine may be slow. Without a budget each of these takes seconds to minutes."""
FILTERS = {
    "LIKE with _": "p LIKE '%_b_c_d_e%'",
    "LIKE with %": "p LIKE '%b%c%d%'",
    "LIKE of a property": "p LIKE q",
    "LIKE without case": "p LIKE '%b%'",
    "strings that grow": "p + p + p + p = q",
    "comparisons": " OR ".join(["p = q"] * 100),
    "choices": f"p IN ({', '.join(['q'] * 100)})",
    "named properties": " OR ".join(["property(q) = 1"] * 50),
}


def topic_of(expression: str, ignore_case: bool = False, rules: int = SQL_RULES_PER_TOPIC) -> TopicRules:
    topic = TopicRules()
    asked = SqlFilter(expression, ignore_case=ignore_case)
    for number in range(rules):
        topic.add(1, Rule(f"r{number}", asked, None, 0))
    return topic


def cpu_s(topic: TopicRules, message: Message) -> float:
    """The least of three times: whatever the collector or the machine does besides is not the rules'."""
    return min(_once(topic, message) for _ in range(3))


def _once(topic: TopicRules, message: Message) -> float:
    gc.collect()
    gc.disable()
    try:
        before = time.thread_time()
        topic.match(message, Ids())
        return time.thread_time() - before
    finally:
        gc.enable()


@pytest.mark.parametrize("name", FILTERS)
def test_one_message_costs_no_more_than_its_budget(name: str) -> None:
    topic = topic_of(FILTERS[name], "without case" in name)
    took = cpu_s(topic, Message({"p": LONG, "q": "a" * 900 + "_"}))
    assert took < BOUND_S


def test_actions_share_the_budget() -> None:
    topic = TopicRules()
    action = SqlAction("; ".join(f"SET x{n} = p + p" for n in range(32)))
    for number in range(SQL_RULES_PER_TOPIC):
        topic.add(1, Rule(f"r{number}", SqlFilter("1=1"), action, 0))
    assert cpu_s(topic, Message({"p": LONG} | {f"u{n}": n for n in range(1_000)})) < BOUND_S


def test_correlation_filters_share_the_budget() -> None:
    topic = TopicRules()
    for number in range(25_000):
        topic.add(1, Rule(f"r{number}", CorrelationFilter(properties={"p": 1, f"u{number}": 1}), None, 0))
    assert cpu_s(topic, Message({"p": 1})) < BOUND_S


def test_who_was_not_judged_gets_a_dead_letter_whatever_its_settings_are() -> None:
    topic = topic_of("p LIKE '%_b_c_d_e%'", rules=1_000)
    topic.add(2, Rule("late", SqlFilter("p = 'x'"), None, 0))
    topic.add(3, Rule("all", SqlFilter("1=1"), None, 0))
    copies = topic.match(Message({"p": LONG}), Ids())
    assert [(copy.subscription, copy.error is not None) for copy in copies] == [(1, True), (2, True), (3, False)]
    assert all(copy.error.kept for copy in copies if copy.error is not None)


def test_a_topic_full_of_ordinary_rules_is_judged_to_the_end() -> None:
    topic = TopicRules()
    for number in range(SQL_RULES_PER_TOPIC):
        text = f"colour = 'c{number}' AND size > {number} AND country IN ('de', 'fr') OR sys.label LIKE 'l{number}%'"
        topic.add(number, Rule("r", SqlFilter(text), None, 0))
    copies = topic.match(Message({"colour": "c1999", "size": 5_000, "country": "fr"}, label="other"), Ids())
    assert [copy.subscription for copy in copies] == [1_999]


def test_a_single_filter_has_the_budget_too() -> None:
    budget = RuleBudget()
    budget.spend(RULE_BUDGET)
    with pytest.raises(RuleEvaluationError, match="too long"):
        budget.spend(1)
