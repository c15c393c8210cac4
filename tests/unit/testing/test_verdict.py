"""The verdict: counters, what people read, what machines read, and histories that cannot be judged."""

from __future__ import annotations

import json

import pytest

from polybus.testing.history import Op
from polybus.testing.verifier import Finding, FindingKind, Verdict
from polybus.testing.verifier.contents import DEAD_LETTER

from .history_kit import WALL, final, judge, kinds, receive, send, settle, stored


@pytest.mark.parametrize(
    ("counters", "found"),
    [
        ({"active": 1, "dead_letter": 1, "total": 2, "scheduled": 0}, set()),
        ({"active": 2}, {FindingKind.COUNTERS}),
        ({"total": 1}, {FindingKind.COUNTERS}),
        ({"deferred": 1}, {FindingKind.COUNTERS}),
        ({}, set()),
    ],
)
def test_counters_equal_the_contents(counters: dict[str, int], found: set[str]) -> None:
    state = final(stored("m", 1), stored("n", 2, DEAD_LETTER), counters=counters)
    assert kinds([send("m"), send("n", 1)], state) == found


def test_the_report_says_what_the_run_did() -> None:
    first = receive("m", 1, 10)
    second = receive("m", 1, 2_000)
    events = [send("m"), send("n", 5), first, second, settle(Op.COMPLETE, second, 2_100)]
    report = judge(events, final(stored("n", 2))).report
    assert {name: report[name] for name in ("events", "sends", "deliveries", "redeliveries", "consumed")} == {
        "events": 5,
        "sends": 2,
        "deliveries": 2,
        "redeliveries": 1,
        "consumed": 1,
    }


def test_the_summary_names_kinds_and_shows_the_first_of_many() -> None:
    text = judge([send(f"m{n}", n) for n in range(8)]).summary()
    assert text.startswith("NOT CLEAN: 8 findings\nlost: 8\n  q, message m0: acknowledged")
    assert "and 3 more" in text
    assert judge([]).summary().startswith("clean")


def test_a_finding_reads_with_its_partition() -> None:
    finding = Finding(FindingKind.ORDER, "q", "what happened", "m", (3 << 48) + 7, "a", 12)
    assert str(finding) == "q, message m, number 3:7, client a, at 12 ms: what happened"


def test_the_dictionary_is_ready_for_json() -> None:
    verdict = judge([send("m")])
    read = json.loads(json.dumps(verdict.as_dict()))
    assert read["clean"] is False
    assert read["findings"]["lost"][0]["message_id"] == "m"
    assert read["report"]["acknowledged"] == 1


def test_an_empty_verdict_is_clean() -> None:
    assert Verdict().clean
    assert Verdict().kinds() == set()


def test_an_entity_that_the_final_state_does_not_hold_is_an_error() -> None:
    with pytest.raises(ValueError, match="other"):
        judge([send("m", entity="other")], final(wall_ms=WALL))
