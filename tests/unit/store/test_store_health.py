from __future__ import annotations

from polybus.errors import StoreError
from polybus.store.driver import InlineDriver
from polybus.store.failing import FailingStore
from polybus.store.group import GroupCommit
from polybus.store.health import health_of, health_without_store
from polybus.store.memory import MemoryStore

from .fake_loop import FakeLoop


def test_an_open_store_tells_what_it_did() -> None:
    loop = FakeLoop()
    store = MemoryStore("memory:one")
    group = GroupCommit(InlineDriver(store, loop), loop, loop.time)
    group.batch.put(b"key", b"value")
    group.touch()
    loop.run()
    health = health_of(group)
    assert (health.url, health.id, health.state) == ("memory:one", store.store_id.hex(), "open")
    assert (health.unsafe, health.volatile, health.hung) == (True, True, False)
    assert (health.commits, health.ops, health.bytes, health.uncommitted_bytes) == (1, 1, 8, 0)
    assert health.last_error is None


def test_a_fenced_store_tells_why() -> None:
    loop = FakeLoop()
    store = FailingStore(MemoryStore())
    store.faults.fail_nth("sync")
    group = GroupCommit(InlineDriver(store, loop), loop, loop.time)
    group.batch.put(b"key", b"value")
    group.touch()
    loop.run()
    health = health_of(group)
    assert health.state == "fenced"
    assert health.last_error == "sync fails on demand"
    assert health.commits == 0


def test_a_store_that_did_not_open() -> None:
    health = health_without_store("rocksdb:x", "missing", StoreError("no such disk"), bytes(16))
    assert (health.state, health.id, health.last_error) == ("missing", "00" * 16, "no such disk")
    assert health_without_store("rocksdb:x", "opening").last_error is None
