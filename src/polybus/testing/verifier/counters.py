"""The counters of an entity equal its contents."""

from __future__ import annotations

from collections import Counter

from polybus.testing.verifier.check import Check
from polybus.testing.verifier.contents import TOTAL, EntityContents
from polybus.testing.verifier.verdict import FindingKind


class Counters(Check):
    """Compares each counter that the entity reports; those it does not report are not asked for."""

    def finish(self) -> None:
        for name, contents in self.ledger.final.entities.items():
            self._judge(name, contents)

    def _judge(self, name: str, contents: EntityContents) -> None:
        found = Counter(message.state for message in contents.messages)
        for state, says in contents.counters.items():
            there = len(contents.messages) if state == TOTAL else found[state]
            if says != there:
                self.found_in(FindingKind.COUNTERS, name, f"counter {state} says {says}, there are {there}")
