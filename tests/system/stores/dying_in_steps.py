"""A process that is killed at every step of a segment's life, one after the other, and the check of what each leaves.

It forks before any store is open: each child works with segments of a few pages, so that they are soon full, and dies at
its n-th step, before or after it. Another child then opens the store and checks it. Arguments: a folder, and how many steps
are left out between two deaths, once every step of opening was one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from polybus import limits

limits.JOURNAL_SEGMENT_BYTES = 16 * 4_096
limits.JOURNAL_PAUSE_SECONDS = 0.0

from polybus.rows import Batch  # noqa: E402
from polybus.store.rocks import RocksStore  # noqa: E402
from polybus.store.rocks_database import RocksDatabase  # noqa: E402
from polybus.store.segments import Segments  # noqa: E402

STEPS = [
    (RocksDatabase, ("try_to_write", "sync", "write_mark", "flush", "close")),
    (Segments, ("make", "take", "take_over", "give_back", "write", "close")),
    (RocksStore, ("drop", "_turn_over")),
]
BATCHES = 90
COUNTER = b"counter"
DIED = 77


def dying_at(step: int) -> None:
    """From now on the process ends without a word at this step."""
    done = 0

    def watched(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            nonlocal done
            for moment in ("before", "after"):
                done += 1
                if done == step:
                    os._exit(DIED)
                if moment == "before":
                    result = method(*args, **named)
            return result

        return call

    for owner, names in STEPS:
        for name in names:
            setattr(owner, name, watched(getattr(owner, name)))


def batch_of(number: int) -> Batch:
    """Counts, keeps one row in five for ever, the others for three batches, and now and then deletes a range."""
    batch = Batch()
    if number % 30 == 0:
        batch.delete_range(b"range", b"rangf")
    batch.put(COUNTER, b"%d" % number)
    batch.put(b"row%06d" % number, b"%d" % number * 300)
    batch.put(b"range%06d" % number, b"v")
    if number > 3 and number % 5:
        batch.delete(b"row%06d" % (number - 3))
    return batch


def expected(number: int) -> dict[bytes, bytes]:
    rows: dict[bytes, bytes] = {}
    for each in range(1, number + 1):
        batch = batch_of(each)
        for start, end in batch.ranges:
            rows = {key: value for key, value in rows.items() if not start <= key < end}
        for key, value in batch.ops:
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value
    return rows


def commit_and_note(folder: Path, step: int) -> None:
    """Goes on from where the last one died; notes each commit that was acknowledged."""
    dying_at(step)
    store = RocksStore(folder / "store")
    first = int(store.get([COUNTER])[0] or b"0") + 1
    with (folder / "noted").open("a", buffering=1) as noted:
        for number in range(first, first + BATCHES):
            store.commit(batch_of(number))
            noted.write(f"{number}\n")
    store.close()


def check(folder: Path) -> None:
    store = RocksStore(folder / "store")
    number = int(store.get([COUNTER])[0] or b"0")
    noted = (folder / "noted").read_text().split() if (folder / "noted").exists() else []
    last = int(noted[-1]) if noted else 0
    assert last <= number <= last + 1, (last, number)
    assert dict(store.scan(b"", b"\xff", 1 << 30)) == expected(number)
    assert store.scan(b"", b"\xff", 1 << 30) == sorted(expected(number).items())
    os._exit(0)  # not closed: the next one replays what this one found


def forked(work: Callable[[], None]) -> int:
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", flush=True)
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(folder: Path, stride: int) -> None:
    os.umask(0o077)
    step = deaths = 0
    while True:
        step += 1 + (step > 40) * stride
        ended = forked(partial(commit_and_note, folder, step))
        if ended not in (0, DIED):
            raise SystemExit(f"step {step}: ended with {ended}")
        if forked(partial(check, folder)) != 0:
            raise SystemExit(f"after dying at step {step}: not as it must be")
        if ended == 0:
            break
        deaths += 1
    print(f"{deaths} deaths")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
