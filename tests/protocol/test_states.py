"""The tables: closed, reachable, and what is missing in them is an error."""

from __future__ import annotations

import pytest

from polybus.amqp.states import (
    CLOSED,
    CONNECTION,
    DETACHED,
    ENDED,
    LINK,
    SESSION,
    START,
    UNMAPPED,
    diagrams,
    mermaid,
    step,
)
from polybus.errors import BugError, ProtocolError

TABLES = [(CONNECTION, START, CLOSED), (SESSION, UNMAPPED, ENDED), (LINK, DETACHED, DETACHED)]


@pytest.mark.parametrize(("table", "first", "last"), TABLES)
def test_every_state_can_be_reached_and_left(table, first, last) -> None:
    states = {state for state, _ in table} | {after for _, after in table.values()}
    reached = {first}
    for _ in states:
        reached |= {after for (state, _), (_, after) in table.items() if state in reached}
    assert reached == states
    ends = {last}
    for _ in states:
        ends |= {state for (state, _), (_, after) in table.items() if after in ends}
    assert ends == states


@pytest.mark.parametrize(("table", "first", "last"), TABLES)
def test_missing_moves_are_errors(table, first, last) -> None:
    with pytest.raises(ProtocolError) as caught:
        step(table, last, "nonsense")
    assert caught.value.condition == "amqp:illegal-state"
    with pytest.raises(BugError):
        step(table, last, "we do nonsense")


@pytest.mark.parametrize(("table", "first", "last"), TABLES)
def test_diagrams_show_every_move(table, first, last) -> None:
    lines = mermaid(table).splitlines()
    assert lines[0] == "stateDiagram-v2"
    assert len([line for line in lines if "-->" in line]) == len(table)
    names = {line.split(" as ")[1] for line in lines if " as " in line}
    assert all(" " not in name for name in names)


def test_there_is_a_diagram_for_each_machine() -> None:
    assert diagrams() == {"connection": mermaid(CONNECTION), "session": mermaid(SESSION), "link": mermaid(LINK)}
