"""Skew of real traffic: the counts are those that were sent, and the hash is the bus's own."""

from __future__ import annotations

from tests.spark.kit import Kit
from tests.spark.redrive_kit import run_pipeline


def _fill(kit: Kit, queue: str, hot: int, rest: int, keyless: int) -> None:
    rows = [("x" * 100, "hot key")] * hot
    rows += [("x" * 10, f"key {number}") for number in range(rest)]
    rows += [("x" * 10, None)] * keyless  # type: ignore[list-item]
    frame = kit.spark.createDataFrame(rows, "body string, partition_key string")
    kit.write(frame.coalesce(1), queue)


def test_keys_partitions_and_other_numbers_of_partitions(kit: Kit) -> None:
    queue = kit.queue()
    fields = {"kind": "skew", "from": queue, "to": "out", "partitions": [1, 4, 64]}
    _fill(kit, queue, hot=120, rest=200, keyless=32)
    first = run_pipeline(kit, **fields)  # type: ignore[arg-type]
    assert first.metrics.get("polybus_pipeline_rows_total", pipeline="p") == 352
    _fill(kit, queue, hot=30, rest=0, keyless=0)
    kit.drain(queue, 382)
    ran = run_pipeline(kit, **fields)  # type: ignore[arg-type]
    counts = kit.spark.read.parquet(str(kit.folder / "out" / "counts"))
    # What receivers have taken in the meantime is counted all the same, and nothing twice.
    keys = {row[0]: (row[1], row[2]) for row in counts.groupBy("key").sum("messages", "bytes").collect()}
    assert keys == {
        "hot key": (150, 15_000),
        **{f"key {number}": (1, 10) for number in range(200)},
        None: (32, 320),
    }
    share = ran.metrics.get("polybus_pipeline_skew_hottest_key_share", pipeline="p")
    assert share == 150 / 382
    html = (kit.folder / "out" / "skew.html").read_text()
    assert html.count("<svg") == html.count("<table") == 5
    for text in ("382 messages", "hot key", "16 (now)", "128-255", "in turn: 32."):
        assert text in html


def test_the_simulation_agrees_with_the_bus_on_where_each_key_is(kit: Kit) -> None:
    from polybus.pipelines.traffic import spread

    queue = kit.queue()
    _fill(kit, queue, hot=50, rest=300, keyless=0)
    rows = kit.read(queue).groupBy("partition", "partition_key").count().collect()
    there: dict[tuple[int, int], int] = {}
    for row in rows:
        there[16, row.partition] = there.get((16, row.partition), 0) + row["count"]
    keys = {row.partition_key: row["count"] for row in rows}
    assert len(keys) == len(rows), "a key is in one partition"
    assert spread(keys.items(), (16,)) == there


def test_a_batch_that_is_repeated_counts_once(kit: Kit) -> None:
    queue = kit.queue()
    fields = {"kind": "skew", "from": queue, "to": "out", "bytes": False}
    _fill(kit, queue, hot=40, rest=10, keyless=0)
    run_pipeline(kit, **fields)  # type: ignore[arg-type]
    commits = kit.folder / "state" / "p" / "stream" / "commits"
    for path in commits.iterdir():
        path.unlink()
    run_pipeline(kit, **fields)  # type: ignore[arg-type]
    counts = kit.spark.read.parquet(str(kit.folder / "out" / "counts"))
    assert counts.selectExpr("sum(messages)", "sum(bytes)").collect()[0][:] == (50, 0)
