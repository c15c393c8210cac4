"""A receiver that wants some of a log's messages only: those that its selector lets through.

It looks at what is in the window, so that a message behind more than a window of others is found when these have gone.
What it has looked at and does not want it does not look at again; messages that come back it judges anew, for their
properties may have changed. docs/protocol/rules.md#selectors.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify

from polybus.message.view import View
from polybus.partition.entry import Entry
from polybus.partition.log import Log
from polybus.rules.selectors import Selector


def pop_selected(log: Log, index: int, life: bytes, wall_ms: int, selector: Selector, count: int) -> list[Entry]:
    """Takes up to so many messages out of the window that the selector wants, in order."""
    found = _among_returned(log, wall_ms, selector, count)
    place = selector.looked_to(index, life)
    for entry in _not_looked_at(log, place):
        if len(found) >= count:
            break
        place = entry.rank
        if _is_free(entry, wall_ms) and selector.wants(View(entry.loaded(), entry.marks())):
            found.append(entry)
    selector.looked(index, life, place)
    if found:
        _take_out(log, found)
    return sorted(found, key=_rank)


def _rank(entry: Entry) -> int:
    return entry.rank


def _is_free(entry: Entry, wall_ms: int) -> bool:
    return not (entry.gone or entry.lock or (entry.expires_ms and entry.expires_ms <= wall_ms))


def _among_returned(log: Log, wall_ms: int, selector: Selector, count: int) -> list[Entry]:
    found: list[Entry] = []
    for _, entry in sorted(log.returned, key=_first):
        if len(found) >= count:
            break
        if _is_free(entry, wall_ms) and selector.wants(View(entry.loaded(), entry.marks())):
            found.append(entry)
    return found


def _first(pair: tuple[int, Entry]) -> int:
    return pair[0]


def _not_looked_at(log: Log, place: int) -> list[Entry]:
    """The window's entries behind a rank; it is in order, so that what was looked at is not walked over again."""
    found: list[Entry] = []
    for entry in reversed(log.ready):
        if entry.rank <= place:
            break
        found.append(entry)
    found.reverse()
    return found


def _take_out(log: Log, taken: list[Entry]) -> None:
    ranks = {entry.rank for entry in taken}
    kept: deque[Entry] = deque()
    for entry in log.ready:
        if entry.rank not in ranks:
            kept.append(entry)
    log.ready = kept
    log.returned = [pair for pair in log.returned if pair[0] not in ranks]
    heapify(log.returned)
    for entry in taken:
        log.ready_bytes -= entry.size
