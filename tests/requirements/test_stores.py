"""A2, B8 and B9 with stores of another kind: PostgreSQL servers, of which one is killed and starts again."""

from __future__ import annotations

from pathlib import Path

import pytest

from polybus.testing.history import FAILED, OK
from polybus.testing.server import ServerProcess
from tests.requirements.kit import PARTITIONS, Bus, Gate, Judged, keys_for, until
from tests.support.postgres import postgres_server


def test_a2_b8_b9_a_postgresql_server_is_killed_and_comes_back(tmp_path: Path) -> None:
    """A RocksDB store and three in PostgreSQL, one on a server of its own, which dies without a word."""
    with postgres_server() as kept, postgres_server() as killed:
        urls = [kept.url("one"), killed.url("two"), kept.url("three"), f"rocksdb:{tmp_path / 'rocks'}"]
        options = [word for url in urls for word in ("--store", url)]
        with ServerProcess(tmp_path / "data", *options) as server:
            bus, gate = Bus(server, "partitioned"), Gate(server)
            judged = Judged(server, bus.queue().name)
            for partition in range(PARTITIONS):
                assert judged.send(keys_for(partition)[0]) == OK
            lost = [place for place, store in enumerate(gate.store_numbers(judged.name)) if store == 1]
            assert len(lost) == PARTITIONS // 4
            killed.kill()
            for _ in range(2 * PARTITIONS):
                assert judged.send() == OK
            assert judged.recorder.slowest_send_ms < 15_000
            for partition in range(PARTITIONS):
                assert judged.send(keys_for(partition)[0]) == (FAILED if partition in lost else OK)
            assert set(judged.recorder.failures) == {"ServiceBusServerBusyError"}
            assert gate.missing(judged.name) == lost
            receiver = judged.open_receiver()
            reachable = sum(gate.totals(judged.name))
            assert judged.drain(reachable, receiver=receiver) == reachable
            killed.start()
            until(lambda: not gate.missing(judged.name))
            left = sum(gate.totals(judged.name))
            assert left == len(lost)
            assert judged.drain(left, receiver=receiver) == left
            verdict = judged.verdict(gate)
            assert verdict.clean, verdict.summary()
            judged.close()
            bus.close()
            gate.close()


@pytest.mark.parametrize("fault", ["full", "reserve"])
def test_b8_a_full_disk_takes_no_messages_and_others_do(tmp_path: Path, fault: str) -> None:
    with ServerProcess(tmp_path) as server:
        bus, gate = Bus(server, "partitioned"), Gate(server)
        judged = Judged(server, bus.queue().name)
        for _ in range(PARTITIONS):
            assert judged.send() == OK
        gate.switch("stores/3/full", reserve_only=fault == "reserve")
        for _ in range(PARTITIONS):
            assert judged.send() == OK
        gate.bring_back(judged.name)
        assert judged.drain(2 * PARTITIONS) == 2 * PARTITIONS
        verdict = judged.verdict(gate)
        assert verdict.clean, verdict.summary()
        judged.close()
        bus.close()
        gate.close()
