"""Rules tried without consequences: what a message would match and become, what a rule would have matched.

Nothing is stored, sent or counted. The rules are evaluated by the very code that decides about real messages.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import uuid4

from starlette.responses import Response

from polybus import limits
from polybus.asyncio_bridge import run
from polybus.errors import ArgumentError, ConfigError, InvalidOperation
from polybus.gateway.bulk.call import BulkCall, answer, number_in
from polybus.gateway.bulk.choices import CHOOSING, check_words, chosen
from polybus.gateway.bulk.rows import WRITE_COLUMNS, check_columns, json_value, message_of
from polybus.gateway.config.jsonc import read_jsonc
from polybus.gateway.config.rules import read_rule
from polybus.gateway.config.value import ConfigValue
from polybus.message.columns import READ_COLUMNS, Row
from polybus.message.message import Message
from polybus.message.overlay import RULE_NAME, Overlay
from polybus.message.peeked import Peeked
from polybus.message.rendering import STATE_ACTIVE, Marks
from polybus.message.view import View
from polybus.namespace.entities.entity import Entity, Subscription
from polybus.namespace.entities.rule import (
    TRUE_FILTER,
    RuleDescription,
    SqlActionDescription,
    SqlFilterDescription,
)
from polybus.namespace.entities.rule_compiler import compile_rule, lay_over
from polybus.namespace.jobs.walk import Walk
from polybus.numbering import partition_of
from polybus.rules import Copy, PropertyChange, Rule, RuleEvaluationError

_SHOWN = [name for name in READ_COLUMNS if name not in ("partition", "position", "state", "body")]


async def post_dry_run(request: BulkCall) -> Response:
    """With a message, at a topic: who would get it. With a rule, anywhere: whom it would have taken."""
    body = await request.json()
    if "message" in body:
        check_words(body, ("message",))
        return answer(_of_message(request, body["message"]))
    check_words(body, ("rule", "filter", "action", "limit", "first", "look_at", "state", "from", "before"))
    return answer(await _of_rule(request, body))


# A message


def _of_message(request: BulkCall, row: object) -> dict[str, object]:
    entity = request.entity
    if not entity.is_topic or request.address.subscription is not None:
        raise InvalidOperation("A message is tried on a topic: its subscriptions have the rules.")
    if not isinstance(row, dict):
        raise ArgumentError("'message' must be a JSON object with the columns of a row.")
    row = {"body": "", **row}
    check_columns([name for name in row if name in WRITE_COLUMNS] or list(row), False)
    message = message_of(row, 0)
    now_ms = request.bus.clock.now().wall_ms
    view = View(message, Marks(0, now_ms, 0, 0, STATE_ACTIVE, 0, None))
    copies = entity.settings.rules.match(view, uuid4)
    return {
        "subscriptions": [
            _subscription(entity, subscription, message, view, copies, now_ms)
            for _, subscription in sorted(entity.subscriptions.items())
        ]
    }


def _subscription(
    entity: Entity, subscription: Subscription, message: Message, view: View, copies: list[Copy], now_ms: int
) -> dict[str, object]:
    own = [copy for copy in copies if copy.subscription == subscription.number]
    return {
        "subscription": subscription.description.name,
        "matched": any(copy.error is None for copy in own),
        "rules": [_verdict(rule, view) for rule in entity.settings.rules.rules_of(subscription.number)],
        "copies": [_copy(message, copy, subscription, now_ms) for copy in own],
    }


def _verdict(rule: Rule, view: View) -> dict[str, object]:
    try:
        return {"rule": rule.name, "matched": rule.filter.matches(view, uuid4), "error": None}
    except RuleEvaluationError as error:
        return {"rule": rule.name, "matched": False, "error": str(error)}


def _copy(message: Message, copy: Copy, subscription: Subscription, now_ms: int) -> dict[str, object]:
    marks = Marks(0, now_ms, 0, 0, STATE_ACTIVE, 0, None)
    shown: dict[str, object] = {"rule": copy.rule_name, "error": None}
    if copy.error is not None:
        shown["error"] = str(copy.error)
        dies = subscription.settings.dead_letter_filter_errors
        return {**shown, "goes": "dead-letter queue" if dies else "nowhere", "becomes": None}
    return {**shown, "goes": "subscription", "becomes": became(message, marks, copy.rule_name, copy.changes)}


def became(message: Message, marks: Marks, rule_name: str | None, changes: list[PropertyChange]) -> dict[str, object]:
    """The message as a receiver would see it after a rule's action, but for its body, which no rule changes."""
    overlay = Overlay() if marks.overlay is None else marks.overlay.copy()
    if rule_name is not None:
        overlay.application[RULE_NAME] = rule_name
    lay_over(overlay, changes)
    changed = Marks(
        marks.sequence, marks.enqueued_ms, marks.original_sequence, marks.delivery_count, marks.state, 0, overlay
    )
    row = Row(0, None, message, changed, 0, "active")
    values = {name: json_value(READ_COLUMNS[name][0], READ_COLUMNS[name][1]([row])[0]) for name in _SHOWN}
    return {name: value for name, value in values.items() if value is not None}


# A rule


async def _of_rule(request: BulkCall, body: dict[str, Any]) -> dict[str, object]:
    rule = compile_rule(_rule(body))
    given = {name: body[name] for name in CHOOSING if name in body and name != "filter"}
    default = "active" if request.address.sub_queue is None else "active,deferred"
    address, choice = chosen(request, given, default)
    limit = number_in(body, "limit", 100, limits.DRY_RUN_MATCHES)
    look_at = number_in(body, "look_at", limits.DRY_RUN_MESSAGES, limits.DRY_RUN_MESSAGES)
    first = number_in(body, "first", 1)
    entity = request.entity
    indexes = list(range(partition_of(first), len(entity.partitions)))
    walk = Walk(request.namespace, entity, entity.log_id(address), choice, indexes, first)
    found = _RuleFindings(rule, limit)
    while not walk.done and walk.looked < look_at:
        _, page = await run(walk.page())
        for peeked in page:
            found.judge(peeked)
        await asyncio.sleep(0)
    return {
        "looked_at": walk.looked,
        "matched": found.matched,
        "failed": found.failed,
        "matches": found.shown,
        "unreachable": walk.unreachable,
        "next": None if walk.done else walk.next,
    }


def _rule(body: dict[str, Any]) -> RuleDescription:
    """As a configuration file writes it, or just its two texts."""
    given = body.get("rule")
    if given is not None:
        if not isinstance(given, dict):
            raise ArgumentError("'rule' must be a JSON object, as a configuration file has it.")
        named = {"Name": "dry-run", **given}
        try:
            return read_rule(ConfigValue("the request", "rule", read_jsonc(json.dumps(named), "the request"), []))
        except ConfigError as error:
            raise ArgumentError(str(error)) from None
    text, action = body.get("filter"), body.get("action")
    if not isinstance(text, str | None) or not isinstance(action, str | None) or (text is None and action is None):
        raise ArgumentError("Give a 'rule', or the text of a 'filter' and perhaps of an 'action'.")
    return RuleDescription(
        name="dry-run",
        filter=TRUE_FILTER if text is None else SqlFilterDescription(expression=text),
        action=None if action is None else SqlActionDescription(expression=action),
    )


class _RuleFindings:
    """What a rule has made of the messages so far."""

    def __init__(self, rule: Rule, limit: int) -> None:
        self._rule = rule
        self._limit = limit
        self.matched = 0
        self.failed = 0
        self.shown: list[dict[str, object]] = []

    def judge(self, peeked: Peeked) -> None:
        view = View(peeked.message, peeked.marks)
        try:
            if not self._rule.filter.matches(view, uuid4):
                return
            action = self._rule.action
            changes = [] if action is None else action.apply(view, uuid4)
        except RuleEvaluationError as error:
            self.failed += 1
            self._show({"sequence_number": peeked.marks.sequence, "error": str(error), "becomes": None})
            return
        self.matched += 1
        name = None if self._rule.action is None else self._rule.name
        becomes = became(peeked.message, peeked.marks, name, changes)
        self._show({"sequence_number": peeked.marks.sequence, "error": None, "becomes": becomes})

    def _show(self, one: dict[str, object]) -> None:
        if len(self.shown) < self._limit:
            self.shown.append(one)
