"""What goes wrong around a pipeline: the bus restarts, a store is away, a cursor is cut off, a driver is replaced."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from polybus.limits import SPARK_HANDED_OVER_ROWS
from polybus.spark.bus import CursorState
from tests.spark.kit import QUERY_SECONDS, Kit


@pytest.fixture
def stores(kit: Kit) -> Iterator[Callable[[str], None]]:
    """Switches a store off and on: `stores("down")`, `stores("up")`."""

    def switch(how: str) -> None:
        kit.fault(f"stores/0/{how}")

    yield switch
    kit.fault("heal")


def _in_batches(kit: Kit, frame: DataFrame, before: Callable[[int], None]) -> StreamingQuery:
    """Runs a query into files; `before` is called when a batch is planned and nothing of it has been read."""

    def write(rows: DataFrame, batch: int) -> None:
        before(batch)
        rows.write.mode("overwrite").parquet(str(kit.folder / "out" / f"batch={batch}"))

    query = (
        frame.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(kit.folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(QUERY_SECONDS), "the query did not end"
    return query


def test_a_bus_that_is_killed_and_started_again_within_a_batch_stops_no_query(kit: Kit) -> None:
    queue, target = kit.queue(), kit.queue("-to")
    sent = kit.fill(queue, 300)
    frame = kit.stream(queue, maxMessagesPerTrigger=200)
    _in_batches(kit, frame, lambda batch: kit.server.restart(kill=True) if batch == 0 else None)
    assert kit.files() == sorted(sent)
    kit.to_bus(kit.stream(queue, cursor="other").select("body"), target, "other")
    assert kit.read(target).count() == 300


def test_a_store_that_goes_within_a_batch_is_waited_for(kit: Kit, stores: Callable[[str], None]) -> None:
    queue = kit.queue()
    sent = kit.fill(queue, 200)

    def away_for_a_while(batch: int) -> None:
        stores("down")
        threading.Timer(1.0, stores, ("up",)).start()

    _in_batches(kit, kit.stream(queue), away_for_a_while)
    assert kit.files() == sorted(sent)


def test_a_store_that_stays_away_stops_the_batch_which_is_repeated_exactly(
    kit: Kit, stores: Callable[[str], None]
) -> None:
    queue = kit.queue()
    sent = kit.fill(queue, SPARK_HANDED_OVER_ROWS + 100)  # fewer would be read before the store goes away
    with pytest.raises(StreamingQueryException, match="not available"):
        _in_batches(kit, kit.stream(queue, retrySeconds=0), lambda _: stores("down"))
    stores("up")
    _wait_for(kit, queue)
    _in_batches(kit, kit.stream(queue), lambda _: None)
    assert kit.files() == sorted(sent)


def test_partitions_of_a_store_that_is_away_are_read_when_it_is_back(kit: Kit, stores: Callable[[str], None]) -> None:
    queue = kit.queue()
    sent = kit.fill(queue, 50)
    kit.to_files(kit.stream(queue))  # the cursor needs all partitions to be made
    sent |= kit.fill(queue, 150, first=50)
    stores("down")
    kit.to_files(kit.stream(queue))
    assert 50 < len(kit.files()) < 200
    stores("up")
    _wait_for(kit, queue)
    kit.to_files(kit.stream(queue))
    assert kit.files() == sorted(sent)


def _wait_for(kit: Kit, queue: str) -> None:
    """A store that was away opens again a moment later."""
    deadline = time.monotonic() + 30
    while not all(end.available for end in kit.bus(queue).log().ends):
        assert time.monotonic() < deadline, "the store did not come back"
        threading.Event().wait(0.05)


def test_a_cursor_over_its_limit_is_a_loss_that_is_told(kit: Kit) -> None:
    queue = kit.queue()
    kit.bus(queue).create_cursor("spark", {"start": "earliest", "max_lag_bytes": 500})
    sent = kit.fill(queue, 120)
    kit.drain(queue, 120)
    truncated = _truncated(kit, queue)
    assert sum(truncated.truncated.values()) > 0
    with pytest.raises(StreamingQueryException, match="are no longer there"):
        kit.to_files(kit.stream(queue))
    kit.to_files(kit.stream(queue, failOnDataLoss="false"))
    found = kit.files()
    assert set(found) < sent
    assert len(set(found)) == len(found)


def _truncated(kit: Kit, queue: str) -> CursorState:
    deadline = time.monotonic() + 30
    while True:
        state = kit.bus(queue).cursor("spark")
        assert state is not None
        if state.truncated:
            return state
        assert time.monotonic() < deadline, "the cursor was not cut off"
        threading.Event().wait(0.05)


def test_a_driver_that_takes_the_cursor_over_stops_the_one_before(kit: Kit) -> None:
    queue = kit.queue()
    kit.fill(queue, 10)
    old = _endless(kit, kit.stream(queue), "one")
    old.processAllAvailable()
    new = _endless(kit, kit.stream(queue, takeLease="true"), "two")
    new.processAllAvailable()
    sent = kit.fill(queue, 30, first=10)
    new.processAllAvailable()
    with pytest.raises(StreamingQueryException, match="Cursor"):
        old.awaitTermination(QUERY_SECONDS)
    assert new.exception() is None
    new.stop()
    assert set(kit.files("two")) >= sent


def _endless(kit: Kit, frame: DataFrame, name: str) -> StreamingQuery:
    writer = frame.writeStream.format("parquet").option("path", str(kit.folder / name))
    return writer.option("checkpointLocation", str(kit.folder / f"checkpoint-{name}")).start()


def test_over_tls_with_the_authority_that_is_named(kit: Kit) -> None:
    queue = kit.queue()
    sent = kit.fill(queue, 50)
    secure = kit.server.connection_string_for(address=kit.server.addresses["tls"])
    options = {"connectionString": secure.replace("UseDevelopmentEmulator=true;", ""), "entity": queue}
    trusting = {**options, "caFile": str(Path(kit.server.authority))}
    rows = kit.spark.read.format("servicebus").options(**trusting).load().collect()
    assert {bytes(row.body).decode() for row in rows} == sent
    with pytest.raises(Exception, match="certificate"):
        kit.spark.read.format("servicebus").options(**options, retrySeconds="0").load().collect()
