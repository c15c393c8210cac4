"""SIGKILL of the whole server under the load of the official SDK, and of transactions by raw AMQP.

Nothing acknowledged is lost, nothing is invented, no transaction is done in part. `scripts/soak server --kills N` goes
on where this stops.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from polybus.testing.history import OK, UNKNOWN, Event, Op
from polybus.testing.verifier import FinalState, FindingKind, Verdict, verify
from tests.support import server_soak

KILLS = 4


def without_one_message(histories: Sequence[Iterable[Event]]) -> list[list[Event]]:
    """The same histories, had one message that was acknowledged and completed never been delivered."""
    events = [list(history) for history in histories]
    gone = next(e for each in events for e in each if e.op == Op.COMPLETE and e.outcome == OK and e.entity == "wide")
    ops = (Op.RECEIVE, Op.COMPLETE, Op.ABANDON)
    return [[e for e in each if e.op not in ops or e.message_id != gone.message_id] for each in events]


def with_a_torn_transaction(histories: Sequence[Iterable[Event]]) -> list[list[Event]]:
    """The same histories, had nobody heard of one commit, and one of its messages never been delivered."""
    events = [list(history) for history in histories]
    sends: dict[str, list[Event]] = {}
    for event in (e for each in events for e in each if e.op == Op.SEND and e.transaction and e.outcome == OK):
        sends.setdefault(str(event.transaction), []).append(event)
    committed = [e for each in events for e in each if e.op == Op.COMMIT and e.outcome == OK]
    torn = next(e for e in committed if len(sends.get(str(e.transaction), [])) > 1)
    gone = sends[str(torn.transaction)][0].message_id
    ops = (Op.RECEIVE, Op.COMPLETE, Op.ABANDON)
    kept = [[e for e in each if e.op not in ops or e.message_id != gone] for each in events]
    return [[replace(e, outcome=UNKNOWN) if e is torn else e for e in each] for each in kept]


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.filterwarnings("ignore:Exception ignored in. <socket")
def test_a_killed_bus_keeps_its_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict is clean, and the same run with a message missing, or half a transaction, is not."""
    spoilt: list[Verdict] = []
    torn: list[Verdict] = []

    def judge(histories: Sequence[Iterable[Event]], final: FinalState, *, slack_ms: int) -> Verdict:
        spoilt.append(verify(without_one_message(histories), final, slack_ms=slack_ms))
        torn.append(verify(with_a_torn_transaction(histories), final, slack_ms=slack_ms))
        return verify(histories, final, slack_ms=slack_ms)

    monkeypatch.setattr(server_soak, "verify", judge)
    verdict, figures = server_soak.play(tmp_path, KILLS, seed=1)
    # The SDK leaves the sockets of a killed bus to the garbage collector, which complains of them: here and not later.
    gc.collect()
    assert verdict.clean, verdict.summary()
    assert FindingKind.LOST in spoilt[0].kinds()
    assert FindingKind.TORN in torn[0].kinds()
    assert figures["kills"] == figures["outages"] == KILLS
    assert figures["acknowledged"] > 5 * KILLS
    assert figures["committed"] > KILLS
