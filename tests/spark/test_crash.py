"""A driver that is killed in the middle: whoever goes on from its checkpoint loses nothing and doubles nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.sdk.python.bus import text
from tests.spark.kit import Kit


def test_a_killed_driver_is_followed_by_another_with_every_message_once(kit: Kit) -> None:
    origin, target = kit.queue("-from"), kit.queue("-to")
    sent = kit.fill(origin, 1_000)
    command = [sys.executable, "-m", "tests.spark.driver_child", str(kit.folder), origin, target]
    environment = {**os.environ, "BUS": kit.server.connection_string}
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment, start_new_session=True
    )
    assert child.stdout is not None
    assert child.stdout.readline().strip() == "started"
    with kit.sdk.get_queue_receiver(target) as receiver:
        # The first message that arrives says that the query is under way.
        found = receiver.receive_messages(max_message_count=1, max_wait_time=60)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        assert len(found) == 1
        receiver.abandon_message(found[0])
    frame = kit.stream(origin, maxMessagesPerTrigger=100).select("body", "partition_key")
    kit.to_bus(frame, target)
    received = kit.drain(target, len(sent))
    assert sorted(text(message) for message in received) == sorted(sent)
    assert kit.read(target).count() == 0
