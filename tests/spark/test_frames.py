"""Helpers for DataFrames of messages, on a real bus."""

from __future__ import annotations

import json

from azure.servicebus import ServiceBusMessage

from polybus.spark import by_reason, dead_letters, decode, send_again
from tests.spark.kit import CONNECTION_VARIABLE, Kit


def test_dead_letters_are_counted_by_reason_decoded_and_sent_again(kit: Kit) -> None:
    queue, copy = kit.queue(), kit.queue("-copy")
    kit.send(queue, [ServiceBusMessage(json.dumps({"id": n, "city": f"c{n}"}), message_id=str(n)) for n in range(5)])
    with kit.sdk.get_queue_receiver(queue) as receiver:
        taken = 0
        while taken < 5:
            for message in receiver.receive_messages(max_message_count=5, max_wait_time=10):
                reason = "NoTenant" if json.loads(str(message))["id"] < 3 else "Late"
                receiver.dead_letter_message(message, reason=reason)
                taken += 1
    letters = dead_letters(kit.spark, queue, connectionStringEnv=CONNECTION_VARIABLE)
    assert [(row.reason, row.letters) for row in by_reason(letters).collect()] == [("NoTenant", 3), ("Late", 2)]
    decoded = decode(letters, "id BIGINT, city STRING")
    assert sorted((row.data.id, row.data.city) for row in decoded.collect()) == [(n, f"c{n}") for n in range(5)]
    assert send_again(decoded.where("data.id >= 3"), copy, connectionStringEnv=CONNECTION_VARIABLE) == 2
    assert sorted(message.message_id or "" for message in kit.drain(copy, 2)) == ["3", "4"]
