"""F2: create, update and delete act on all partitions, or on none of them."""

from __future__ import annotations

import pytest
from azure.core.exceptions import HttpResponseError

from polybus.testing.server import ServerProcess
from tests.requirements.kit import PARTITIONS, Bus, Gate, until
from tests.sdk.python.bus import Entity


def patient(bus: Bus, work) -> None:
    """Repeats what was refused because a store is away, until it works: never half done means that it can be."""

    def done() -> bool:
        try:
            work()
        except HttpResponseError as error:
            if error.status_code != 503:
                raise
            return False
        return True

    until(done)


def test_f2_management_with_an_unhealthy_partition_fails_whole(bus: Bus, gate: Gate, server: ServerProcess) -> None:
    queue = bus.queue()
    queue.send(*["x"] * PARTITIONS)
    gate.take_down(2)
    properties = bus.admin.get_queue(queue.name)
    properties.max_delivery_count = 3
    impatient = impatient_administration(server)
    for refused in (
        lambda: impatient.update_queue(properties),
        lambda: impatient.delete_queue(queue.name),
        lambda: impatient.create_queue("new", enable_partitioning=True),
    ):
        with pytest.raises(HttpResponseError) as error:
            refused()
        assert error.value.status_code == 503
    assert bus.admin.get_queue(queue.name).max_delivery_count == 10
    assert "new" not in [each.name for each in bus.admin.list_queues()]

    server.restart(kill=True)
    assert gate.totals(queue.name) == [1] * PARTITIONS, "nothing was deleted, on no partition"
    patient(bus, lambda: bus.admin.update_queue(properties))
    assert bus.admin.get_queue(queue.name).max_delivery_count == 3
    patient(bus, lambda: bus.admin.create_queue("new", enable_partitioning=True))
    assert gate.totals("new") == [0] * PARTITIONS
    patient(bus, lambda: bus.admin.delete_queue(queue.name))
    again = bus.queue(queue.name)
    assert gate.totals(again.name) == [0] * PARTITIONS
    Entity(bus, "new").send("x")


def impatient_administration(server: ServerProcess):
    """An administration client that tells of a refusal at once."""
    from azure.servicebus.management import ServiceBusAdministrationClient

    return ServiceBusAdministrationClient.from_connection_string(
        server.admin_connection_string, connection_verify=str(server.authority), retry_total=0
    )
