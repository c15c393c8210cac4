"""What of a transfer is done, in a file of its own: whoever goes on after a crash sends nothing twice.

Each line is one fact, synced before the next deed: these numbers are about to be sent, these are sent, these are settled
at the source. A number that was about to be sent when everything ended is looked for at the target.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from polybus.cli.output import USAGE, CommandFailure

SENDING, SENT, SETTLED = "sending", "sent", "settled"


class TransferJournal:
    def __init__(self, path: Path, source: str, target: str) -> None:
        self._path = path
        self._numbers: dict[str, dict[int, str]] = {}
        """By place: the source's numbers to the last that is known of them."""
        head = {"source": source, "target": target}
        if path.exists():
            self._load(head)
        self._file = path.open("a", encoding="utf-8")
        if not path.stat().st_size:
            self._write(head)

    def _load(self, head: dict[str, str]) -> None:
        lines = self._path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines):
            try:
                fact: dict[str, Any] = json.loads(line)
            except ValueError:
                if number == len(lines) - 1:
                    break  # it was being written when everything ended
                raise CommandFailure(
                    f"{self._path} is not a journal of a transfer: line {number + 1}", USAGE
                ) from None
            if number == 0 and fact != head:
                raise CommandFailure(
                    f"{self._path} is of a transfer from {fact.get('source')} to {fact.get('target')}", USAGE
                )
            if "place" in fact:
                self._take(fact["place"], fact["fact"], fact["numbers"])

    def _take(self, place: str, fact: str, numbers: list[int]) -> None:
        known = self._numbers.setdefault(place, {})
        for number in numbers:
            if fact == SETTLED:
                known.pop(number, None)
            else:
                known[number] = fact

    def _write(self, fact: dict[str, Any]) -> None:
        self._file.write(json.dumps(fact) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def note(self, place: str, fact: str, numbers: list[int]) -> None:
        """Synced when it returns."""
        if numbers:
            self._take(place, fact, numbers)
            self._write({"place": place, "fact": fact, "numbers": numbers})

    def state(self, place: str, number: int) -> str | None:
        """What is known of a message that the source still has; None where it was never touched."""
        return self._numbers.get(place, {}).get(number)

    def close(self) -> None:
        self._file.close()
