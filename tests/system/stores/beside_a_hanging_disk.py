"""Child process: commits to one store whose disk hangs, and meanwhile to another; says what it saw.

Arguments: the folder of the store that will hang, the folder of the other, and the file that makes it hang.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from polybus.errors import StoreError
from polybus.store.base import Batch
from polybus.store.driver import ThreadDriver
from polybus.store.rocks import RocksStore


def commit(driver: ThreadDriver, number: int) -> asyncio.Future[StoreError | None]:
    done: asyncio.Future[StoreError | None] = asyncio.get_running_loop().create_future()
    batch = Batch()
    batch.put(b"%d" % number, b"v" * 1000)
    driver.commit(batch, done.set_result)
    return done


async def main(hanging: Path, other: Path, while_there: Path) -> None:
    loop = asyncio.get_running_loop()
    first, second = ThreadDriver(RocksStore(hanging), loop), ThreadDriver(RocksStore(other), loop)
    assert await commit(first, 0) is None
    while_there.touch()
    stuck = commit(first, 1)
    for number in range(10):
        assert await commit(second, number) is None
    print("others went on" if not stuck.done() else "nothing hung", flush=True)
    while_there.unlink()
    assert await stuck is None
    print("and it came back", flush=True)
    for driver in (first, second):
        closed = loop.create_future()
        driver.close(closed.set_result)
        await closed


asyncio.run(main(*(Path(argument) for argument in sys.argv[1:])))
