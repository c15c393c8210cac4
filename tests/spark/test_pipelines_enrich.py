"""Messages joined with tables and with another stream on their way to a topic, each once."""

from __future__ import annotations

import json

import pytest
from azure.servicebus import ServiceBusMessage

from polybus.pipelines.runner import PipelineFailed
from tests.spark.kit import Kit
from tests.spark.redrive_kit import run_pipeline


def _orders(count: int, first: int = 0) -> list[ServiceBusMessage]:
    return [
        ServiceBusMessage(
            json.dumps({"order": number, "customer": number % 4}),
            partition_key=f"key {number % 4}",
            application_properties={"order": number},
        )
        for number in range(first, first + count)
    ]


def _customers(kit: Kit) -> str:
    path = kit.folder / "customers.csv"
    path.write_text("id,name\n0,Ada\n1,Grace\n2,Mary\n")
    return str(path)


def test_a_queue_is_joined_with_a_table_into_a_topic(kit: Kit) -> None:
    queue, topic = kit.queue("-from"), kit.topic("all")
    fields = {
        "kind": "enrich",
        "from": queue,
        "to": {"entity": topic, "options": {"waitSeconds": 30}},
        "tables": {
            "customers": {
                "path": _customers(kit),
                "format": "csv",
                "options": {"header": True},
                "schema": "id int, name string",
            }
        },
        "sql": (
            "select m.body, m.partition_key, c.name as customer, m.properties['order'] as number from"
            " (select *, from_json(cast(body as string), 'order int, customer int') as told from messages) m"
            " join customers c on c.id = m.told.customer"
        ),
        "unknownColumns": "properties",
    }
    kit.send(queue, _orders(8))
    run_pipeline(kit, **fields)  # type: ignore[arg-type]
    kit.send(queue, _orders(4, first=8))
    run_pipeline(kit, **fields)  # type: ignore[arg-type]
    commits = kit.folder / "state" / "p" / "stream" / "commits"
    newest = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for path in (commits / str(newest), commits / f".{newest}.crc"):
        path.unlink(missing_ok=True)
    run_pipeline(kit, **fields)  # type: ignore[arg-type]
    rows = kit.read(f"{topic}/Subscriptions/all").collect()
    names = {0: "Ada", 1: "Grace", 2: "Mary"}
    assert sorted((int(row.properties["number"]), row.properties["customer"], row.partition_key) for row in rows) == [
        (number, names[number % 4], f"key {number % 4}") for number in range(12) if number % 4 in names
    ]


def test_two_streams_are_joined_within_their_time(kit: Kit) -> None:
    orders, payments, topic = kit.queue("-orders"), kit.queue("-payments"), kit.topic("all")
    fields = {
        "kind": "enrich",
        "from": orders,
        "to": {"entity": topic, "options": {"waitSeconds": 30}},
        "watermark": "1h",
        "streams": {"payments": {"from": payments, "watermark": "1h"}},
        "sql": (
            "select concat(cast(m.body as string), ' paid by ', cast(p.body as string)) as body from messages m"
            " join payments p on m.properties['order'] = p.properties['order'] and p.enqueued_time between"
            " m.enqueued_time - interval 1 hour and m.enqueued_time + interval 1 hour"
        ),
    }

    def paid(number: int) -> ServiceBusMessage:
        return ServiceBusMessage(f"card {number}", application_properties={"order": number})

    kit.send(orders, [ServiceBusMessage(f"order {n}", application_properties={"order": n}) for n in range(4)])
    kit.send(payments, [paid(1)])
    run_pipeline(kit, **fields)  # type: ignore[arg-type]
    kit.send(payments, [paid(3), paid(9)])
    run_pipeline(kit, **fields)  # type: ignore[arg-type]
    rows = kit.read(f"{topic}/Subscriptions/all").collect()
    assert sorted(bytes(row.body).decode() for row in rows) == ["order 1 paid by card 1", "order 3 paid by card 3"]


def test_a_query_that_cannot_be_is_told_before_anything_is_read(kit: Kit) -> None:
    queue, target = kit.queue("-from"), kit.queue("-to")
    fields = {"kind": "enrich", "from": queue, "to": target}
    kit.send(queue, _orders(1))
    with pytest.raises(PipelineFailed, match="nowhere"):
        run_pipeline(kit, **fields, sql="select messages.body from messages join nowhere")  # type: ignore[arg-type]
    with pytest.raises(PipelineFailed, match="gives no stream"):
        run_pipeline(kit, **fields, sql="select 'x' as body where 'messages' = ''")  # type: ignore[arg-type]
    assert kit.spark.catalog.listTables() == []
