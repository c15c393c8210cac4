"""A messaging store with messages belongs to the catalogue that placed them: another one must not build on it."""

from __future__ import annotations

from random import Random

import pytest

from polybus.errors import ConfigError
from polybus.hosting.catalogue import Catalogue
from polybus.namespace.entities.description import SubscriptionDescription, TopicDescription
from polybus.promise import spawn
from polybus.rows import Batch
from tests.support.simulation.small_world import QUICK, SmallWorld
from tests.support.simulation.world import Disk, Process


def another_catalogue(small: SmallWorld) -> None:
    """The process ends, and the next one is given another catalogue."""
    small.world.die()
    small.world.catalogue = Disk(small.world.loop, "another", Random(1))
    small.world.catalogue.faults = QUICK


def started(small: SmallWorld) -> None:
    """One try to start a bus; raises what it fails with."""
    small.answer(spawn(small.world._make_bus(Process(small.world.loop)).start(["sim"])))


def test_a_store_with_messages_is_refused_with_another_catalogue() -> None:
    small = SmallWorld()
    small.queue("mine")
    small.sent("mine", "secret")
    another_catalogue(small)
    for _ in range(2):
        with pytest.raises(ConfigError, match="holds messages that this catalogue knows nothing of"):
            started(small)


def test_stores_that_are_empty_can_be_given_to_another_catalogue() -> None:
    small = SmallWorld()
    small.queue("mine")
    small.sent("mine", "gone")
    small.do(small.namespace.management.delete("mine"))
    small.run(1)
    another_catalogue(small)
    small.do(small.world.start())
    small.queue("yours")
    assert small.bodies("yours") == []


def test_a_store_with_messages_that_opens_later_is_refused_too() -> None:
    small = SmallWorld()
    small.queue("mine", 2)
    small.sent("mine", "a")
    small.sent("mine", "b")
    another_catalogue(small)
    own = small.world.disks
    fresh = Disk(small.world.loop, "fresh", Random(2))
    fresh.faults = QUICK
    small.world.disks = [fresh, own[0]]
    small.take_down(own[0])
    small.do(small.world.start())
    small.heal()
    small.run(30)
    store = small.bus.stores[1]
    assert not store.available
    assert "knows nothing of" in str(store.last_error)
    assert len(small.bus.catalogue.stores) == 1


def test_a_store_that_did_not_come_to_be_noted_is_known_by_what_was_placed_there() -> None:
    small = SmallWorld()
    small.queue("q", 2)
    small.sent("q", "kept")
    small.world.die()
    catalogue = Catalogue(small.world.catalogue.opener(Process(small.world.loop)))
    catalogue.loop = small.world.loop
    small.do(catalogue.open())
    catalogue.stores = []
    small.do(_write(catalogue))
    small.do(small.world.start())
    assert small.bodies("q") == ["kept"]
    assert len(small.bus.catalogue.stores) == 2


async def _write(catalogue: Catalogue) -> None:
    await catalogue.next_incarnation()
    await catalogue.close()


def put_back(small: SmallWorld, copy: list[tuple[bytes, bytes]]) -> None:
    """The process ends, and the next one finds the catalogue as it was when the copy was made."""
    small.world.die()
    older = Disk(small.world.loop, "older", Random(1))
    older.faults = QUICK
    batch = Batch()
    for key, value in copy:
        batch.put(key, value)
    older._store.commit(batch)
    small.world.catalogue = older
    small.do(small.world.start())


def test_an_entity_is_not_given_the_id_of_one_that_an_older_catalogue_has_forgotten() -> None:
    small = SmallWorld()
    small.queue("kept")
    copy = small.world.catalogue.rows()
    for path in ("secret", "more"):
        small.queue(path, 2)
        small.sent(path, path)
    put_back(small, copy)
    for path in ("new", "another"):
        small.queue(path, 2)
        assert small.bodies(path) == []
    small.restart()
    assert small.bodies("new") == small.bodies("another") == []


def test_a_subscription_is_not_given_the_number_of_one_that_an_older_catalogue_has_forgotten() -> None:
    small = SmallWorld()
    small.create(TopicDescription(path="t", enable_partitioning=True), 4)
    copy = small.world.catalogue.rows()
    management = small.namespace.management
    for name in ("secret", "more"):
        small.do(management.create_subscription(SubscriptionDescription(topic="t", name=name)))
    small.sent("t", "old")
    put_back(small, copy)
    management = small.namespace.management
    for name in ("new", "another"):
        small.do(management.create_subscription(SubscriptionDescription(topic="t", name=name)))
    small.sent("t", "fresh")
    for _ in range(2):
        assert small.bodies("t/Subscriptions/new") == small.bodies("t/Subscriptions/another") == ["fresh"]
        small.restart()
