"""The cluster's database: names, leases by its own clock, what all agree on, and links that only members may have."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from polybus.cluster import tls_links
from polybus.cluster.certificates import Peer, link_security, new_shared
from polybus.cluster.heartbeat import Heartbeat
from polybus.cluster.link import Link
from polybus.cluster.options import agreed
from polybus.errors import ConfigError, StoreError
from polybus.limits import POSTGRES_LEASE_SECONDS
from polybus.store.cluster_database import ClusterDatabase
from polybus.store.cluster_rows import Agreed, ClusterView, Joining, Owned, Shared
from polybus.store.lease import Lease, boot_ns
from polybus.store.postgres import Holder, PostgresStore, StoreOwned
from polybus.store.postgres_url import parse_postgres_url
from tests.support.postgres import PostgresServer, postgres_server

KEYS = {"root": ["secret", "Manage"]}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


@pytest.fixture
def url(server: PostgresServer, request: pytest.FixtureRequest) -> str:
    return server.url("c_" + request.node.name.replace("[", "_").replace("]", "").replace("-", "_")[:50].lower())


def joining(name: str, process: str, keys: dict[str, object] | None = None, stores: tuple[str, ...] = ()) -> Joining:
    def wanted(secret: bytes) -> Agreed:
        return agreed(secret, stores, keys or KEYS, {})

    return Joining(name, process, f"{name}:1", "1.0", 1, new_shared, wanted)


def joined(url: str, name: str, process: str = "p", **given: object) -> ClusterDatabase:
    database = ClusterDatabase(url)
    database.join(joining(name, process, **given))  # type: ignore[arg-type]
    return database


def execute(url: str, statement: str) -> list[tuple[object, ...]]:
    address = parse_postgres_url(url)
    with psycopg.connect(address.conninfo, autocommit=True) as connection:
        connection.execute(f"SET search_path TO {address.schema}")
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def test_many_first_starts_at_once_make_one_cluster(url: str) -> None:
    def start(number: int) -> Shared:
        database = ClusterDatabase(url)
        try:
            return database.join(joining(f"n{number}", "p"))
        finally:
            database.close()

    with ThreadPoolExecutor(8) as pool:
        shared = list(pool.map(start, range(8)))
    assert len({one.secret for one in shared}) == 1
    assert len({one.authority for one in shared}) == 1
    database = ClusterDatabase(url)
    assert [member.name for member in database.look().living] == [f"n{number}" for number in range(8)]
    database.close()


def test_a_living_name_is_refused_and_a_dead_one_taken_after_its_lease(url: str) -> None:
    first = joined(url, "a", "one")
    stopped = threading.Event()

    def live() -> None:
        while not stopped.wait(0.3):
            first.beat("a", "one", [], [])

    thread = threading.Thread(target=live)
    thread.start()
    second = ClusterDatabase(url)
    try:
        with pytest.raises(ConfigError, match="'a' is alive, at a:1"):
            second.join(joining("a", "two"))
    finally:
        stopped.set()
        thread.join()
    began_s = time.monotonic()
    second.join(joining("a", "two"))
    assert 1 < time.monotonic() - began_s < POSTGRES_LEASE_SECONDS + 1
    assert not first.beat("a", "one", [], []), "the first one has lost its name"
    first.close()
    second.close()


def test_leaving_gives_the_name_back_at_once(url: str) -> None:
    first = joined(url, "a", "one")
    first.leave("a", "one")
    began_s = time.monotonic()
    second = joined(url, "a", "two")
    assert time.monotonic() - began_s < 1
    assert [member.process for member in second.look().members] == ["two"]
    first.close()
    second.close()


def test_other_keys_or_stores_than_the_living_ones_are_refused_and_named(url: str) -> None:
    store = "postgresql://u:geheim@h/db?schema=s"
    first = joined(url, "a", stores=(store,))
    for given, what in (
        ({"keys": {"root": ["another", "Manage"]}, "stores": (store,)}, r"keys of this node differ.*\(root\)"),
        ({"keys": {**KEYS, "more": []}, "stores": (store,)}, r"\(more\)"),
        ({"stores": ("postgresql://u@h/db?schema=t",)}, r"stores of this node differ.*it has postgresql://u@h"),
    ):
        with pytest.raises(ConfigError, match=what) as refused:
            joined(url, "b", **given)
        assert "\n" not in str(refused.value)
    assert "geheim" not in str(first.agreed())
    assert "secret" not in str(first.agreed())
    first.leave("a", "p")
    # Nobody lives: what the next one is given holds from then on.
    second = joined(url, "b", keys={"root": ["another", "Manage"]}, stores=(store,))
    first.close()
    second.close()


def test_leases_are_judged_by_the_servers_clock(url: str) -> None:
    """The row says until when, and only the server compares: a node's own clock is nowhere in it."""
    database = joined(url, "a")
    assert database.look().named("a").alive  # type: ignore[union-attr]
    execute(url, "UPDATE members SET lease_until = clock_timestamp() - interval '1 ms'")
    assert not database.look().named("a").alive  # type: ignore[union-attr]
    assert database.beat("a", "p", [Owned("s", 4, 900)], ["h:1"])
    member = database.look().named("a")
    assert member is not None
    assert member.alive
    assert member.owned == (Owned("s", 4, 900),)
    database.close()


def test_one_store_moves_at_a_time(url: str) -> None:
    database = joined(url, "a")
    assert database.begin_move("s1", "b", 0.5)
    assert not database.begin_move("s2", "c", 5)
    assert (database.look().moving, database.look().moving_to) == ("s1", "b")
    database.end_move("s1")
    assert database.begin_move("s2", "c", 0.01)
    time.sleep(0.02)  # a move whose node died in the middle of it: its time passes
    assert database.begin_move("s3", "a", 1)
    database.close()


def test_a_heartbeat_tells_of_others_at_once_and_survives_a_lost_connection(url: str) -> None:
    async def play() -> None:
        loop = asyncio.get_running_loop()
        views: asyncio.Queue[ClusterView] = asyncio.Queue()
        heart = Heartbeat(joined(url, "a", "one"), "a", "one", loop, views.put_nowait)
        heart.start()
        try:
            await asyncio.wait_for(views.get(), 5)
            other = await asyncio.to_thread(joined, url, "b", "two")
            while "b" not in [member.name for member in (await asyncio.wait_for(views.get(), 1)).living]:
                pass
            backends = "SELECT pid FROM pg_stat_activity WHERE query NOT LIKE '%%pg_stat%%'"
            await asyncio.to_thread(execute, url, f"SELECT pg_terminate_backend(pid) FROM ({backends}) AS others")
            while not views.empty():
                views.get_nowait()
            await asyncio.wait_for(views.get(), 5)
            assert heart.problem is None
            other.close()
        finally:
            await asyncio.to_thread(heart.stop)
        after = ClusterDatabase(url)
        assert "a" not in [member.name for member in after.look().members]
        after.close()

    asyncio.run(play())


# Leases of stores


def test_a_node_waits_for_the_lease_also_when_the_owners_session_has_ended(url: str) -> None:
    """An owner whose connection broke may still hand out what it has in memory: only its lease says until when."""
    first = PostgresStore(url, holder=Holder("a", process="one", by_lease=True))
    assert first.lease is not None
    assert first.lease.holds
    deadline_ns = first.lease.deadline_ns
    execute(url, "SELECT pg_terminate_backend(session) FROM store")
    with pytest.raises(StoreOwned, match="owned by a"):
        PostgresStore(url, holder=Holder("b", process="two", by_lease=True))
    while True:
        try:
            second = PostgresStore(url, holder=Holder("b", process="two", by_lease=True))
            break
        except StoreOwned:
            assert boot_ns() < deadline_ns + 2_000_000_000
    assert not first.lease.holds, "the first one knew that its time was over before the second one had the store"
    assert second.epoch > first.epoch
    first.close()
    began_s = time.monotonic()
    second.close()
    third = PostgresStore(url, holder=Holder("c", process="three", by_lease=True))
    assert time.monotonic() - began_s < 1, "a graceful stop gives the lease back at once"
    third.close()


def test_a_lease_ends_before_its_server_says_so() -> None:
    lease = Lease()
    assert not lease.holds
    lease.renewed(boot_ns(), 3)
    assert lease.holds
    lease.renewed(boot_ns() - 2_950_000_000, 3)
    assert not lease.holds, "the last moment is for what is on its way"
    lease.renewed(boot_ns(), 3)
    lease.lost = True
    assert not lease.holds


# Links


def test_links_are_for_members_only_and_each_side_knows_the_other() -> None:
    async def play() -> None:
        shared, foreign = new_shared(), new_shared()
        a, b = Peer("a", "aa"), Peer("b", "bb")
        members = {a, b}
        arrived: list[Peer] = []
        kept: list[Link] = []

        def connected(link: Link, peer: Peer) -> None:
            arrived.append(peer)
            kept.append(link)

        bound = tls_links.bind_links("127.0.0.1", 0)
        host, port = bound.getsockname()[:2]
        address = f"{host}:{port}"
        server = await tls_links.listen(bound, link_security(shared, a), members.__contains__, connected)
        try:
            link = await tls_links.connect(address, link_security(shared, b), a)
            while not arrived:
                await asyncio.sleep(0)
            assert arrived == [b]
            link.close()
            with pytest.raises(OSError, match="is not the node 'c'"):
                await tls_links.connect(address, link_security(shared, b), Peer("c", "cc"))
            with pytest.raises(OSError, match=r"(?i)certificate|tls|ssl|connection"):
                await tls_links.connect(address, link_security(foreign, b), a)
            # A certificate of the authority, and no member (any more): cut off before a frame is read.
            gone = await tls_links.connect(address, link_security(shared, Peer("x", "dd")), a)
            closed = asyncio.Event()
            gone.on_closed.append(closed.set)
            await asyncio.wait_for(closed.wait(), 5)
            _, plain = await asyncio.open_connection(host, port)
            plain.write(b"POLYBUS\x01\x00\x01\x00\x01")
            plain.close()
            assert set(arrived) == {b}
        finally:
            server.close()

    asyncio.run(play())


def test_a_database_that_is_not_there_is_one_line() -> None:
    database = ClusterDatabase("postgresql://u:geheim@127.0.0.1:1/db?schema=s")
    with pytest.raises(StoreError) as refused:
        database.join(joining("a", "p"))
    assert "geheim" not in str(refused.value)
