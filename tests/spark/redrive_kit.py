"""Pipelines over the test's own bus, run once in the shared session; messages that die, and the figures of jobs."""

from __future__ import annotations

from typing import Any

import yaml
from azure.servicebus import ServiceBusMessage

from polybus.pipelines.declaration import parse
from polybus.pipelines.runner import Runner, run_once
from tests.spark.kit import Kit


def run_pipeline(kit: Kit, said: list[str] | None = None, **fields: Any) -> Runner:
    """Runs one pipeline over what there is now. The connection string stands in the file: it is the emulator's."""
    document = {
        "bus": {"connectionString": kit.server.connection_string},
        "checkpoints": str(kit.folder / "state"),
        "restart": {"attempts": 1},
        "pipelines": [{"name": "p", **fields}],
    }
    declaration = parse(yaml.safe_dump(document), "pipelines.yml", kit.folder)
    return run_once(declaration, kit.spark, (said if said is not None else []).append)


def figures(runner: Runner) -> dict[str, float]:
    """What a job tells of its last run."""
    names = ("letters", "chosen", "moved", "planned", "refused", "missing", "locked", "events", "lost")
    found = {name: runner.metrics.get("polybus_pipeline_job", pipeline="p", figure=name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def dead_letter(kit: Kit, queue: str, count: int, reason: str = "why", subscription: str | None = None) -> None:
    """Receives so many messages and gives them up."""
    if subscription is None:
        receiver = kit.sdk.get_queue_receiver(queue)
    else:
        receiver = kit.sdk.get_subscription_receiver(queue, subscription)
    with receiver:
        left = count
        while left:
            for message in receiver.receive_messages(max_message_count=left, max_wait_time=10):
                receiver.dead_letter_message(message, reason=reason, error_description="it broke")
                left -= 1


def messages(count: int, first: int = 0) -> list[ServiceBusMessage]:
    """Messages with ids, keys and typed properties."""
    return [
        ServiceBusMessage(
            f"body {number}",
            message_id=f"id {number}",
            partition_key=f"key {number % 5}",
            subject="orders",
            application_properties={"n": number, "even": number % 2 == 0},
        )
        for number in range(first, first + count)
    ]
