"""A process that commits and says so, to be killed at any moment; and the check of what it left behind.

Batch n puts ROWS rows of its own, removes those of batch n - KEPT and writes n into one counter row, all in one
commit. So at every moment the counter says exactly which rows must be there, and a torn batch cannot hide.
"""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import subprocess
import sys
from random import Random

from polybus.errors import StoreError
from polybus.store.base import Batch, Store
from polybus.store.open import open_store

ROWS = 40
KEPT = 20
COUNTER = b"counter"


def row_key(n: int, row: int) -> bytes:
    return b"row" + n.to_bytes(8, "big") + row.to_bytes(2, "big")


def row_value(n: int, row: int) -> bytes:
    return hashlib.sha256(row_key(n, row)).digest() * 64


def counter_of(store: Store) -> int:
    value = store.get([COUNTER])[0]
    return 0 if value is None else int.from_bytes(value, "big")


def commit_batch(store: Store, n: int) -> None:
    batch = Batch()
    for row in range(ROWS):
        batch.put(row_key(n, row), row_value(n, row))
        if n > KEPT:
            batch.delete(row_key(n - KEPT, row))
    batch.put(COUNTER, n.to_bytes(8, "big"))
    if n % 2 and store.begin(batch):
        store.finish(batch)
    else:
        store.commit(batch)


def check(store: Store, acknowledged: int) -> None:
    """Everything acknowledged is there, at most one batch more, and no batch in part."""
    n = counter_of(store)
    assert acknowledged <= n <= acknowledged + 1, (acknowledged, n)
    expected = [
        (row_key(each, row), row_value(each, row))
        for each in range(max(1, n - KEPT + 1), n + 1)
        for row in range(ROWS)
    ]
    assert store.scan(b"row", b"rox", 1 << 30) == expected


class Child:
    """The committing process. `read` waits for its next acknowledgement."""

    def __init__(self, url: str, environment: dict[str, str] | None = None) -> None:
        command = [sys.executable, __file__, url]
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.acknowledged = 0

    def read(self, lines: int) -> None:
        assert self._process.stdout is not None
        for _ in range(lines):
            line = self._process.stdout.readline()
            assert line, self._errors()
            self.acknowledged = int(line)

    def limit_files(self, size_bytes: int) -> None:
        """From now on the system refuses to let a file of this process grow past this size."""
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (size_bytes, size_bytes))

    def kill(self) -> None:
        """Ends it without a word, then hears out what it had said."""
        self._process.send_signal(signal.SIGKILL)
        self.finish()

    def finish(self) -> str:
        """Waits for its end; gives what it complained about."""
        assert self._process.stdout is not None
        # Not `communicate`: it would pass over the lines that reading the ones before has buffered.
        with self._process.stdout as out:
            for line in out:
                # The last line may be cut off by the kill.
                if line.endswith("\n"):
                    self.acknowledged = int(line)
        errors = self._errors()
        self._process.wait(timeout=60)
        return errors

    def _errors(self) -> str:
        assert self._process.stderr is not None
        with self._process.stderr as errors:
            return errors.read()


def moments(seed: int, cycles: int) -> list[int]:
    """How many acknowledgements to wait for before each kill."""
    random = Random(seed)
    return [random.randint(1, 60) for _ in range(cycles)]


def main(url: str) -> None:
    store = open_store(url)
    n = counter_of(store)
    try:
        while True:
            n += 1
            commit_batch(store, n)
            print(n, flush=True)
    except StoreError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    try:
        commit_batch(store, n)
    except StoreError as error:
        print(f"then {type(error).__name__}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1])
