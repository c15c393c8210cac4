"""The load of a soak: clients of the official SDK in threads of their own, which outlive the bus that they talk to.

Each keeps a history. When the bus is killed, a client lets its connection go and waits until the next process is
ready; what it did not hear the end of has the outcome unknown. No judging lives here.
"""

from __future__ import annotations

import contextlib
import datetime
import random
import threading
from dataclasses import dataclass, field
from typing import Any, Final

from azure.servicebus import NEXT_AVAILABLE_SESSION

from polybus.testing.history import OK, UNKNOWN, Op
from polybus.testing.sdk_clients import RecordedClient, connect, message
from polybus.testing.server import ServerProcess

LOCK_MS: Final = 60_000
PATIENCE_S: Final = 120.0
WAIT_S: Final = 0.5
DUE_S: Final = 1.0
COLOURS: Final = ("red", "blue")
QUEUES: Final = ("wide", "unique", "later", "first")


@dataclass
class Round:
    """One bus, its clients, and what they share: whether it is up, and how far they are."""

    server: ServerProcess
    seed: int
    up: threading.Event = field(default_factory=threading.Event)
    stopping: threading.Event = field(default_factory=threading.Event)
    """Senders stop; receivers go on."""
    ended: threading.Event = field(default_factory=threading.Event)
    progress: threading.Condition = field(default_factory=threading.Condition)
    acknowledged: int = 0
    crashes: list[str] = field(default_factory=list)

    def note_progress(self) -> None:
        with self.progress:
            self.acknowledged += 1
            self.progress.notify_all()

    def wait_for(self, acknowledged: int) -> None:
        with self.progress:
            if not self.progress.wait_for(lambda: self.acknowledged >= acknowledged, PATIENCE_S):
                raise RuntimeError("the clients make no progress:\n" + "".join(self.server.output[-20:]))


class Client(threading.Thread):
    """A client in a thread of its own. When the bus is gone it waits for the next one and connects again."""

    def __init__(self, name: str, run: Round) -> None:
        super().__init__(name=name, daemon=True)
        self.round = run
        self.rng = random.Random(f"{run.seed} {name}")
        self.recorder = RecordedClient(name)
        self.sent = 0

    def run(self) -> None:
        try:
            while not self.over():
                if self.round.up.wait(WAIT_S):
                    self._visit()
        except Exception as error:
            self.round.crashes.append(f"{self.name}: {error!r}")

    def _visit(self) -> None:
        """As long as one connection lasts. That it cannot be closed decently is what a kill is about."""
        sdk = connect(self.round.server.connection_string)
        with contextlib.ExitStack() as opened:
            opened.callback(_close, sdk)
            self.work(sdk)

    def over(self) -> bool:
        return self.round.stopping.is_set()

    def work(self, sdk: Any) -> None:
        raise NotImplementedError

    def next_id(self) -> str:
        self.sent += 1
        return f"{self.name} {self.sent}"


def _close(handler: Any) -> None:
    with contextlib.suppress(Exception):
        handler.close()


def _open(handler: Any) -> Any:
    """The handler, connected; None where the bus is not there."""
    try:
        return handler.__enter__()
    except Exception:
        _close(handler)
        return None


class Sending(Client):
    """Sends to one entity after the other until a send's outcome is unknown."""

    def work(self, sdk: Any) -> None:
        senders: dict[str, Any] = {}
        try:
            outcome = OK
            while outcome != UNKNOWN and not self.over():
                name = self.rng.choice((*QUEUES, "steps", "news"))
                if name not in senders and (sender := _open(sdk.get_queue_sender(name))) is None:
                    return
                outcome = self.send(name, senders.setdefault(name, senders.get(name) or sender))
                if outcome == OK:
                    self.round.note_progress()
        finally:
            for each in senders.values():
                _close(each)

    def send(self, name: str, sender: Any) -> str:
        message_id = self.next_id()
        if name == "unique":
            return self._twice(sender, message_id)
        if name == "later":
            return self._later(sender, message_id)
        if name == "steps":
            return self.recorder.send(
                sender, name, message(message_id, session_id=f"session {self.rng.randrange(6)}")
            )
        if name == "news":
            colour = self.rng.choice(COLOURS)
            sent = message(message_id, partition_key=self._key(), application_properties={"colour": colour})
            return self.recorder.send(sender, f"news?{colour}", sent)
        if self.rng.random() < 0.2:
            key = self._key()
            batch = [message(message_id, partition_key=key)]
            batch += [message(self.next_id(), partition_key=key) for _ in range(4)]
            return self.recorder.send_batch(sender, name, message_id, batch)
        return self.recorder.send(sender, name, message(message_id, partition_key=self._key()))

    def _key(self) -> str | None:
        return f"key {self.rng.randrange(20)}" if self.rng.random() < 0.5 else None

    def _twice(self, sender: Any, message_id: str) -> str:
        """The second is dropped, or takes the place of a first that was lost on its way."""
        outcome = self.recorder.send(sender, "unique", message(message_id))
        return self.recorder.send(sender, "unique", message(message_id)) if outcome == OK else outcome

    def _later(self, sender: Any, message_id: str) -> str:
        due = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=DUE_S)
        number = self.recorder.schedule(sender, "later", message(message_id), due)
        if number is not None and self.rng.random() < 0.4:
            self.recorder.cancel(sender, "later", number, message_id)
        return self.recorder.history.events[-1].outcome


class Receiving(Client):
    """Receives from one place and completes nearly everything; some is abandoned first."""

    def __init__(self, place: str, run: Round) -> None:
        super().__init__(f"receiver of {place}", run)
        self.place = place

    def over(self) -> bool:
        return self.round.ended.is_set()

    def work(self, sdk: Any) -> None:
        receiver = _open(self._receiver(sdk))
        if receiver is None:
            return
        try:
            while not self.over():
                found = self.recorder.try_receive(receiver, self.place, 20, WAIT_S, LOCK_MS)
                if found is None or not all(self._settle(receiver, each) for each in found):
                    return
        finally:
            _close(receiver)

    def _receiver(self, sdk: Any) -> Any:
        topic, _, subscription = self.place.partition("/Subscriptions/")
        return sdk.get_subscription_receiver(topic, subscription) if subscription else sdk.get_queue_receiver(topic)

    def _settle(self, receiver: Any, seen: Any) -> bool:
        op = Op.ABANDON if self.rng.random() < 0.05 else Op.COMPLETE
        return self.recorder.settle(receiver, self.place, seen, op) != UNKNOWN


class ReceivingSessions(Receiving):
    """Accepts whatever session has messages, takes some of them and gives it back."""

    def work(self, sdk: Any) -> None:
        while not self.over():
            receiver = sdk.get_queue_receiver(self.place, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=WAIT_S)
            accepted = self.recorder.accept(receiver, self.place)
            if accepted is None:
                _close(receiver)
                if not self.round.up.is_set() or "OperationTimeoutError" not in self.recorder.failures:
                    return
                continue
            try:
                for _ in range(self.rng.randrange(1, 4)):
                    found = self.recorder.try_receive(receiver, self.place, 5, WAIT_S, LOCK_MS, accepted)
                    if found is None or not all(self._settle(receiver, each) for each in found):
                        return
            finally:
                self.recorder.release(receiver, self.place)
