"""Filters and actions of subscriptions: the SQL subset, correlation filters, and a topic's whole rule set.

Knows messages only through `MessageView`, and nothing of brokers, stores or protocols.
"""

from __future__ import annotations

from polybus.rules.actions import REMOVED, PropertyChange, RemovedValue, SqlAction
from polybus.rules.evaluation import IdSource
from polybus.rules.failure import RuleEvaluationError
from polybus.rules.filters import CorrelationFilter, FalseFilter, Filter, SqlFilter, TrueFilter
from polybus.rules.rule import Copy, Rule
from polybus.rules.ruleset import TopicRules
from polybus.rules.values import Value
from polybus.rules.view import MessageView

__all__ = [
    "REMOVED",
    "Copy",
    "CorrelationFilter",
    "FalseFilter",
    "Filter",
    "IdSource",
    "MessageView",
    "PropertyChange",
    "RemovedValue",
    "Rule",
    "RuleEvaluationError",
    "SqlAction",
    "SqlFilter",
    "TopicRules",
    "TrueFilter",
    "Value",
]
