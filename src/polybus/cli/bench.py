"""`polybus bench`: what a bus does with one client, measured with the official SDK against any connection string."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from polybus.cli.client import Client
from polybus.cli.completing import entity_argument
from polybus.cli.output import REFUSED, CommandFailure
from polybus.cli.progress import Progress
from polybus.limits import CLI_PAGE


def bench(
    client: Client,
    entity: Annotated[str, entity_argument("An empty queue for the messages.")],
    messages: Annotated[int, typer.Option(min=1, help="How many.")] = 1_000,
    size: Annotated[int, typer.Option(min=0, help="Bytes of each body.")] = 1_024,
    batch: Annotated[int, typer.Option(min=1, help="Messages sent at once.")] = 1,
) -> None:
    """Sends messages, receives and completes them, and tells the rates. The SDK is the slower side of it."""
    from azure.servicebus import ServiceBusMessage

    with client.messaging.get_queue_receiver(entity) as receiver:
        if receiver.peek_messages(1):
            raise CommandFailure(f"{entity} is not empty, and its messages would be received", REFUSED)
        made = [ServiceBusMessage(b"b" * size) for _ in range(messages)]
        sent_s, slowest = _send(client, entity, made, batch)
        started = time.perf_counter()
        received = _receive(receiver, messages)
        received_s = time.perf_counter() - started
    data = {
        "messages": messages,
        "bytes": size,
        "sent_per_second": round(messages / sent_s, 1),
        "slowest_send_ms": round(slowest * 1000, 1),
        "received_per_second": round(received / received_s, 1),
        "received": received,
    }
    lines = (
        f"{messages:,} messages of {size:,} bytes to {entity} at {client.endpoint.authority}, batches of {batch}",
        f"sent {data['sent_per_second']:,} a second (the slowest took {data['slowest_send_ms']} ms)",
        f"received and completed {data['received_per_second']:,} a second",
    )
    client.out.result(data, "\n".join(lines))
    if received != messages:
        raise CommandFailure(f"only {received:,} of {messages:,} came back; does somebody else receive?", REFUSED)


def _send(client: Client, entity: str, messages: list[Any], batch: int) -> tuple[float, float]:
    """Seconds for all, and for the slowest call. The link is opened before."""
    slowest = 0.0
    with client.sender(entity) as sender, Progress("sent", len(messages)) as progress:
        sender.create_message_batch()
        started = time.perf_counter()
        for start in range(0, len(messages), batch):
            progress.at(start)
            began = time.perf_counter()
            sender.send_messages(messages[start : start + batch])
            slowest = max(slowest, time.perf_counter() - began)
        return time.perf_counter() - started, slowest


def _receive(receiver: Any, messages: int) -> int:
    received = 0
    with Progress("received", messages) as progress:
        while received < messages:
            found = receiver.receive_messages(max_message_count=min(CLI_PAGE, messages - received), max_wait_time=5)
            for message in found:
                receiver.complete_message(message)
            received += len(found)
            progress.at(received)
            if not found:
                break
    return received
