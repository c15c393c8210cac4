"""The state machines of a connection, a session and a link, as tables.

A table maps (state, input) to (action, next state). What is missing is an error of whoever gave the input:
a frame's name is an input of the peer, a word with `we` in front is one of ours. The server's side only.
The documentation's diagrams are drawn from these tables. AMQP 1.0 §2.4.6, §2.5.5, §2.6.3.
"""

from __future__ import annotations

from typing import Final

from polybus.errors import BugError, ProtocolError

Table = dict[tuple[str, str], tuple[str, str]]

START: Final = "start"
LOGIN: Final = "login"
JUDGING: Final = "judging"
LOGGED_IN: Final = "logged in"
GREETED: Final = "greeted"
OPENED: Final = "opened"
CLOSING: Final = "closing"
CLOSED: Final = "closed"

CONNECTION: Final[Table] = {
    (START, "sasl header"): ("offer mechanisms", LOGIN),
    (START, "amqp header"): ("greet anonymous", GREETED),
    (START, "other header"): ("name our header", CLOSED),
    (LOGIN, "sasl-init"): ("ask the caller", JUDGING),
    (JUDGING, "we welcome"): ("send outcome", LOGGED_IN),
    (JUDGING, "we refuse"): ("send outcome", CLOSED),
    (LOGGED_IN, "amqp header"): ("greet", GREETED),
    (LOGGED_IN, "other header"): ("name our header", CLOSED),
    (LOGGED_IN, "sasl header"): ("name our header", CLOSED),
    (GREETED, "open"): ("open", OPENED),
    (GREETED, "heartbeat"): ("nothing", GREETED),
    (OPENED, "heartbeat"): ("nothing", OPENED),
    (OPENED, "begin"): ("begin", OPENED),
    (OPENED, "attach"): ("to the session", OPENED),
    (OPENED, "flow"): ("to the session", OPENED),
    (OPENED, "transfer"): ("to the session", OPENED),
    (OPENED, "disposition"): ("to the session", OPENED),
    (OPENED, "detach"): ("to the session", OPENED),
    (OPENED, "end"): ("to the session", OPENED),
    (OPENED, "close"): ("answer close", CLOSED),
    (OPENED, "we close"): ("send close", CLOSING),
    (CLOSING, "heartbeat"): ("nothing", CLOSING),
    (CLOSING, "begin"): ("nothing", CLOSING),
    (CLOSING, "attach"): ("nothing", CLOSING),
    (CLOSING, "flow"): ("nothing", CLOSING),
    (CLOSING, "transfer"): ("nothing", CLOSING),
    (CLOSING, "disposition"): ("nothing", CLOSING),
    (CLOSING, "detach"): ("nothing", CLOSING),
    (CLOSING, "end"): ("nothing", CLOSING),
    (CLOSING, "close"): ("finish", CLOSED),
}

UNMAPPED: Final = "unmapped"
MAPPED: Final = "mapped"
ENDING: Final = "ending"
ENDED: Final = "ended"

SESSION: Final[Table] = {
    (UNMAPPED, "begin"): ("answer begin", MAPPED),
    (MAPPED, "attach"): ("attach", MAPPED),
    (MAPPED, "flow"): ("flow", MAPPED),
    (MAPPED, "transfer"): ("transfer", MAPPED),
    (MAPPED, "disposition"): ("dispose", MAPPED),
    (MAPPED, "detach"): ("detach", MAPPED),
    (MAPPED, "end"): ("answer end", ENDED),
    (MAPPED, "we end"): ("send end", ENDING),
    (ENDING, "attach"): ("nothing", ENDING),
    (ENDING, "flow"): ("nothing", ENDING),
    (ENDING, "transfer"): ("nothing", ENDING),
    (ENDING, "disposition"): ("nothing", ENDING),
    (ENDING, "detach"): ("nothing", ENDING),
    (ENDING, "end"): ("forget", ENDED),
}

DETACHED: Final = "detached"
PENDING: Final = "pending"
ATTACHED: Final = "attached"
DETACHING: Final = "detaching"

LINK: Final[Table] = {
    (DETACHED, "attach"): ("ask the caller", PENDING),
    (PENDING, "we accept"): ("answer attach", ATTACHED),
    (PENDING, "we refuse"): ("answer attach and detach", DETACHING),
    (PENDING, "transfer"): ("hold", PENDING),
    (PENDING, "flow"): ("note credit", PENDING),
    (PENDING, "detach"): ("answer attach and detach", DETACHED),
    (ATTACHED, "transfer"): ("receive", ATTACHED),
    (ATTACHED, "flow"): ("note credit", ATTACHED),
    (ATTACHED, "detach"): ("answer detach", DETACHED),
    (ATTACHED, "we detach"): ("send detach", DETACHING),
    (DETACHING, "transfer"): ("nothing", DETACHING),
    (DETACHING, "flow"): ("nothing", DETACHING),
    (DETACHING, "detach"): ("forget", DETACHED),
}


def step(table: Table, state: str, given: str) -> tuple[str, str]:
    """Action and next state; what the table does not have is the peer's error, or ours."""
    found = table.get((state, given))
    if found is not None:
        return found
    if given.startswith("we "):
        raise BugError(f"{given!r} is impossible while {state}")
    raise ProtocolError("amqp:illegal-state", f"{given} is not expected while {state}")


def mermaid(table: Table) -> str:
    """The table as a state diagram."""
    names = {state: state.replace(" ", "_") for key, (_, after) in table.items() for state in (key[0], after)}
    lines = ["stateDiagram-v2"]
    lines += [f'    state "{state}" as {name}' for state, name in names.items() if state != name]
    for (state, given), (action, after) in table.items():
        lines.append(f"    {names[state]} --> {names[after]}: {given} / {action}")
    return "\n".join(lines) + "\n"


def diagrams() -> dict[str, str]:
    """The three state diagrams by name, for the documentation."""
    return {"connection": mermaid(CONNECTION), "session": mermaid(SESSION), "link": mermaid(LINK)}
