"""Two members of one bus in one process: a catalogue that is followed, owners that change, doubts of another's gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from polybus.asyncio_bridge import from_promise, run
from polybus.clock import RealClock
from polybus.cluster import sockets
from polybus.cluster.catalogues import CatalogueFeed, FollowedCatalogue
from polybus.cluster.members import OtherMembers
from polybus.cluster.membership import FixedMembership, Member
from polybus.cluster.owner import Find
from polybus.cluster.peers import Peers
from polybus.errors import MessageNotFound, OperationConflict, PartitionUnavailable, PolybusError
from polybus.hashing import partition_for
from polybus.hosting.catalogue import Catalogue
from polybus.hosting.opener import Opener
from polybus.hosting.store_host import StoreHost
from polybus.message.message import Message
from polybus.namespace.bus import Bus
from polybus.namespace.delivery.entity_verbs import receive_deferred
from polybus.namespace.entities.description import QueueDescription, SubscriptionDescription, TopicDescription
from polybus.namespace.entities.names import parse_address
from polybus.namespace.entities.tiers import tier_named
from polybus.numbering import before_first
from polybus.promise import Promise, resolved
from polybus.rows import Batch
from polybus.store.failing import Faults

MESSAGE = b"\x00\x53\x75\xa0\x01x"
URLS = ("memory:a", "memory:b")
PARTITIONS = 4


class TwoMembers:
    """`first` leads and owns the first store, `second` owns the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.faults = {url: Faults() for url in URLS}
        self.peers: dict[str, Peers] = {}
        self.buses: dict[str, Bus] = {}
        self._servers: list[asyncio.Server] = []

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        starting = []
        for name, own in (("first", URLS[0]), ("second", URLS[1])):
            members = [Member(each, str(self._folder / each)) for each in ("first", "second")]
            owners = dict(zip(URLS, ("first", "second"), strict=True))
            membership = FixedMembership(name, members, owners, "first", lambda to: sockets.connect_to(to.address))
            peers = Peers(loop, membership, RealClock(), self._finder(name))
            catalogue: Catalogue
            followed: FollowedCatalogue | CatalogueFeed
            if peers.leads:
                catalogue = Catalogue(Opener("memory:catalogue", loop, None, False))
                followed = CatalogueFeed(catalogue, peers, loop)
            else:
                catalogue = followed = FollowedCatalogue(peers, loop)
            followed.on_followed = self._follower(name)
            stores: list[StoreHost] = []
            for url in URLS:
                if url == own:
                    stores.append(StoreHost(url, loop, Opener(url, loop, self.faults[url], False)))
                    peers.own(stores[-1])
                else:
                    stores.append(peers.remote_store(url))
            bus = Bus(loop, RealClock(), stores, catalogue, tier_named("standard", partitions=PARTITIONS))
            bus.join(OtherMembers(peers))
            self.peers[name], self.buses[name] = peers, bus
            self._servers.append(await sockets.listen(self._folder / name, peers.accepted))
            peers.start()
            starting.append(run(bus.start(["ns"])))
        await asyncio.gather(*starting)

    def _finder(self, name: str) -> Find:
        return lambda entity_id, index: self.buses[name].local_partition(entity_id, index)

    def _follower(self, name: str) -> Callable[[Batch | None], Promise[None]]:
        return lambda batch: self.buses[name].following.apply(batch) if name in self.buses else resolved(None)

    async def stop(self) -> None:
        for bus in self.buses.values():
            await run(bus.stop())
        for peers in self.peers.values():
            await peers.stop()
        for server in self._servers:
            server.close()

    async def send(self, through: str, queue: str) -> list[int]:
        namespace = self.buses[through].namespace("ns")
        done: Promise[list[int]] = Promise()
        namespace.send(namespace.entity(queue), [Message(MESSAGE)], done.reply, None)
        return await from_promise(done)

    async def active(self, through: str, queue: str) -> int:
        return (await from_promise(self.buses[through].namespace("ns").entity(queue).counts())).active


@asynccontextmanager
async def two(folder: Path) -> AsyncIterator[TwoMembers]:
    members = TwoMembers(folder)
    await members.start()
    try:
        yield members
    finally:
        await members.stop()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.005)


def test_whoever_is_asked_all_members_have_applied_a_change_when_it_is_answered(tmp_path: Path) -> None:
    async def story() -> None:
        async with two(tmp_path) as members:
            for asked, other in (("first", "second"), ("second", "first")):
                mine, theirs = (members.buses[name].namespace("ns") for name in (asked, other))
                await run(mine.management.create(QueueDescription(path=f"q-{asked}", enable_partitioning=True)))
                found = theirs.entity(f"q-{asked}")
                assert [each.available for each in found.partitions] == [True] * 4
                assert sorted({each.elsewhere for each in found.partitions}) == [False, True]
                await run(mine.management.create(TopicDescription(path=f"t-{asked}")))
                await run(mine.management.create_subscription(SubscriptionDescription(topic=f"t-{asked}", name="s")))
                topic = theirs.entity(f"t-{asked}")
                assert list(topic.subscription("s").rules) == ["$default"]
                await run(mine.management.delete_rule(f"t-{asked}", "s", "$Default"))
                assert not topic.subscription("s").rules
                await run(mine.management.delete_subscription(f"t-{asked}", "s"))
                assert not topic.subscriptions
                await run(mine.management.delete(f"t-{asked}"))
                assert theirs.find(f"t-{asked}") is None

    asyncio.run(story())


def test_an_entity_that_one_member_works_on_alone_is_changed_by_no_other(tmp_path: Path) -> None:
    async def story() -> None:
        async with two(tmp_path) as members:
            leading, following = (members.buses[name].namespace("ns").management for name in ("first", "second"))
            await run(leading.create(TopicDescription(path="t")))
            done: Promise[None] = Promise()

            async def work() -> None:
                await done

            for mine, theirs in ((following, leading), (leading, following)):
                done = Promise()
                working = asyncio.ensure_future(run(mine.alone("t", work())))
                await until(lambda: "t" in leading._busy)
                with pytest.raises(OperationConflict):
                    await run(theirs.create_subscription(SubscriptionDescription(topic="t", name="s")))
                with pytest.raises(OperationConflict):
                    await run(theirs.alone("t", work()))
                done.resolve(None)
                await working
                await until(lambda: "t" not in leading._busy)
            await run(following.create_subscription(SubscriptionDescription(topic="t", name="s")))

    asyncio.run(story())


def test_messages_are_counted_and_received_wherever_they_lie(tmp_path: Path) -> None:
    async def story() -> None:
        async with two(tmp_path) as members:
            namespace = members.buses["first"].namespace("ns")
            await run(namespace.management.create(QueueDescription(path="q", enable_partitioning=True)))
            for number in range(16):
                await members.send(("first", "second")[number % 2], "q")
            assert [await members.active(name, "q") for name in ("first", "second")] == [16, 16]

    asyncio.run(story())


def test_all_partitions_together_lock_no_more_than_a_receiver_has_credit_for(tmp_path: Path) -> None:
    class Receiver:
        deletes = False

        def __init__(self, credit: int) -> None:
            self.credit = credit
            self.got: list[object] = []

        def deliver(self, delivery: object) -> None:
            self.got.append(delivery)

        def failed(self, error: PolybusError) -> None:
            raise error

    async def story() -> None:
        async with two(tmp_path) as members:
            namespace = members.buses["first"].namespace("ns")
            await run(namespace.management.create(QueueDescription(path="q", enable_partitioning=True)))
            for _ in range(32):
                await members.send("first", "q")
            entity = members.buses["second"].namespace("ns").entity("q")
            source = entity.source(parse_address("q"))
            held = 0
            for wanted in (1, 3, 8):
                receiver = Receiver(wanted)
                source.want(receiver)
                while receiver.credit:
                    assert (await from_promise(entity.counts())).locked <= held + wanted
                await until(lambda receiver=receiver, wanted=wanted: len(receiver.got) == wanted)
                held += wanted
                assert (await from_promise(entity.counts())).locked == held

    asyncio.run(story())


def test_a_link_that_broke_is_made_again_and_partitions_serve_behind_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with two(tmp_path) as members:
            namespace = members.buses["first"].namespace("ns")
            await run(namespace.management.create(QueueDescription(path="q", enable_partitioning=True)))
            partitions = namespace.entity("q").partitions
            members.peers["first"].peer("second").link.close()
            assert [each.available for each in partitions].count(False) == PARTITIONS // 2
            await until(lambda: all(each.available for each in partitions))
            members.peers["second"].peer("first").link.close()  # on which the catalogue is followed
            await until(lambda: members.peers["second"].connected() == ["first"])
            await until(lambda: all(each.available for each in members.buses["second"].entities[1].partitions))
            await run(namespace.management.create(QueueDescription(path="later")))
            await until(lambda: members.buses["second"].namespace("ns").find("later") is not None)

    asyncio.run(story())


def test_a_store_that_fails_elsewhere_takes_its_partitions_away_and_sends_go_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with two(tmp_path) as members:
            namespace = members.buses["first"].namespace("ns")
            await run(namespace.management.create(QueueDescription(path="q", enable_partitioning=True)))
            entity = namespace.entity("q")
            faults = members.faults[URLS[1]]
            faults.fail_from_now("open")
            faults.fail_from_now("commit")
            for _ in range(8):  # one of them is in doubt, and the other partition takes it over with a mark
                await members.send("first", "q")
            assert await members.active("first", "q") == 8
            await until(lambda: not members.buses["first"].stores[1].available)
            remote = next(each for each in entity.partitions if each.elsewhere)
            try:
                remote.check_open()
            except PartitionUnavailable:
                pass
            else:
                raise AssertionError("a partition whose store is away takes no sends")
            faults.heal()
            await until(lambda: remote.available)
            assert await members.active("first", "q") == 8  # what was in doubt is there once
            assert not members.buses["first"].recovery.marks_here(members.buses["first"].stores[1].store_id)

    asyncio.run(story())


def test_a_store_that_changes_its_owner_takes_its_partitions_along(tmp_path: Path) -> None:
    async def story() -> None:
        async with two(tmp_path) as members:
            bus = members.buses["first"]
            await run(bus.namespace("ns").management.create(QueueDescription(path="q", enable_partitioning=True)))
            entity = bus.namespace("ns").entity("q")
            entity.source(parse_address("q"))
            loop = asyncio.get_running_loop()
            local = StoreHost("memory:c", loop, Opener("memory:c", loop, None, False))
            assert await from_promise(local.open())
            remote = bus.stores[1]
            bus.replace_store(remote, local)
            assert bus.stores[1] is local
            assert not remote.tenants
            await until(lambda: all(each.available for each in entity.partitions))
            assert [each.elsewhere for each in entity.partitions] == [False] * PARTITIONS
            for _ in range(4):
                await members.send("first", "q")
            bus.replace_store(local, remote)
            await until(lambda: all(each.available for each in entity.partitions))
            assert sorted({each.elsewhere for each in entity.partitions}) == [False, True]

    asyncio.run(story())


def test_who_holds_a_session_and_asks_for_a_message_of_another_partition_finds_none(tmp_path: Path) -> None:
    """Wherever both lie: the session's lock is never shown to a partition that did not give it."""

    async def story() -> None:
        async with two(tmp_path) as members:
            namespace = members.buses["first"].namespace("ns")
            queue = QueueDescription(path="q", enable_partitioning=True, requires_session=True)
            entity = await run(namespace.management.create(queue))
            source = entity.session_source(parse_address("q"))
            names = {partition_for(f"s{number}", PARTITIONS): f"s{number}" for number in range(100)}
            for session_id in names.values():
                held = await run(source.accept(session_id, "holder"))
                for index in range(PARTITIONS):
                    asked = receive_deferred(namespace, entity, source.log_id, [before_first(index) + 7], True, held)
                    with pytest.raises(MessageNotFound):
                        await run(asked)
                held.release()

    asyncio.run(story())
