"""What a client of the workload does by itself: it sends, schedules, cancels, receives and settles."""

from __future__ import annotations

from typing import Any

from polybus.errors import BusError
from polybus.testing.history import DEAD_LETTER_QUEUE, FAILED, OK, UNKNOWN, Op, digest
from polybus.testing.verifier.contents import DEAD_LETTER
from tests.support.reference import Delivery, Message, Ticket

from .workload_world import KEYS, QUEUES, SESSIONS, Client, Held, World


class Sending(World):
    def _message(self, queue: str, due_ms: int = 0) -> Message:
        self._sent += 1
        name = f"m{self._sent}"
        session = self.rng.choice(SESSIONS) if QUEUES[queue].sessions else None
        keyed = session is None and QUEUES[queue].dedup_window_ms is None and self.rng.random() < 0.5
        key = self.rng.choice(KEYS) if keyed else None
        if queue == "dedup":
            self._recent_ids = [*self._recent_ids[-5:], name]
        return Message(name, f"body of {name}".encode(), key, session, due_ms)

    @staticmethod
    def _sent_values(message: Message) -> dict[str, Any]:
        return {
            "message_id": message.message_id,
            "key": message.key,
            "session": message.session,
            "digest": digest(message.body),
            "due_ms": message.due_ms or None,
        }

    def _send(self, client: Client) -> None:
        queue = self.rng.choice((*QUEUES, "sessions", "parted"))
        message = self._message(queue)
        values = self._sent_values(message)
        self._attempt(Op.SEND, queue, **values)
        self._record_when_known(client, self.bus.send(queue, [message]), [(Op.SEND, queue, values)])

    def _send_batch(self, client: Client) -> None:
        queue = self.rng.choice(("plain", "parted"))
        key = self.rng.choice((None, *KEYS))
        messages = [Message(m.message_id, m.body, key) for m in (self._message(queue) for _ in range(3))]
        batch = f"b{self._sent}"
        ops = [(Op.BATCH_SEND, queue, {**self._sent_values(m), "batch": batch}) for m in messages]
        try:
            ticket = self.bus.send(queue, messages)
        except BusError:
            for op, entity, values in ops:
                client.recorder.record(op, entity, FAILED, **values)
        else:
            self._record_when_known(client, ticket, ops)
            self._maybe_fence(next((p for p in self.bus.partitions[queue] if p.waiting), None))

    def _resend(self, client: Client) -> None:
        """Sends an id again, as one does after a time-out."""
        if not self._recent_ids:
            return
        name = self.rng.choice(self._recent_ids)
        message = Message(name, f"body of {name}".encode())
        values = self._sent_values(message)
        self._attempt(Op.SEND, "dedup", **values)
        self._record_when_known(client, self.bus.send("dedup", [message]), [(Op.SEND, "dedup", values)])

    def _schedule(self, client: Client) -> None:
        queue = self.rng.choice(list(QUEUES))
        due_ms = self.clock.now().wall_ms + self.rng.choice((500, 2_000, 6_000, 60_000))
        message = self._message(queue, due_ms)
        values = self._sent_values(message)
        self._attempt(Op.SCHEDULE, queue, **values)
        began = client.recorder.begin()

        def ended(ticket: Ticket) -> None:
            number = ticket.answer[0] if ticket.outcome == OK and ticket.answer else None
            client.recorder.record(
                Op.SCHEDULE, queue, ticket.outcome or UNKNOWN, began=began, number=number, **values
            )
            if number is not None:
                client.scheduled.append((queue, number, message.message_id))

        self._wait(client, self.bus.send(queue, [message]), ended)

    def _cancel(self, client: Client) -> None:
        if not client.scheduled:
            return
        queue, number, message_id = client.scheduled.pop(self.rng.randrange(len(client.scheduled)))
        values = {"number": number, "message_id": message_id}
        self._attempt(Op.CANCEL, queue, **values)
        self._record_when_known(client, self.bus.cancel(queue, number), [(Op.CANCEL, queue, values)])


class Receiving(Sending):
    def _delivered(self, client: Client, op: str, entity: str, delivery: Delivery) -> None:
        message = delivery.message
        client.recorder.record(op, entity, **self._seen_values(message), token=delivery.token)
        client.held.append(Held(entity, delivery))

    @staticmethod
    def _seen_values(message: Message) -> dict[str, Any]:
        return {
            "message_id": message.message_id,
            "key": message.key,
            "session": message.session,
            "number": message.number,
            "count": message.count,
            "digest": digest(message.body),
            "enqueued_ms": message.enqueued_ms,
        }

    def _receive(self, client: Client) -> None:
        queue = self.rng.choice([name for name, options in QUEUES.items() if not options.sessions])
        self._attempt(Op.RECEIVE, queue)
        delivery = self.bus.receive(queue)
        if delivery is not None:
            self._delivered(client, Op.RECEIVE, queue, delivery)

    def _receive_dead(self, client: Client) -> None:
        queue = self.rng.choice(list(QUEUES))
        self._attempt(Op.RECEIVE, queue + DEAD_LETTER_QUEUE)
        delivery = self.bus.receive(queue, DEAD_LETTER)
        if delivery is not None:
            self._delivered(client, Op.RECEIVE, queue + DEAD_LETTER_QUEUE, delivery)

    def _take(self, client: Client) -> None:
        queue = self.rng.choice(("plain", "parted"))
        self._attempt(Op.RECEIVE_AND_DELETE, queue)
        began = client.recorder.begin()

        def ended(ticket: Ticket) -> None:
            values = {}
            if ticket.outcome == OK and ticket.answer is None:
                return
            if ticket.outcome == OK:
                values = self._seen_values(ticket.answer)
            client.recorder.record(Op.RECEIVE_AND_DELETE, queue, ticket.outcome or UNKNOWN, began=began, **values)

        self._wait(client, self.bus.take(queue), ended)

    def _held_values(self, held: Held) -> dict[str, Any]:
        message = held.delivery.message
        return {
            "message_id": message.message_id,
            "session": message.session,
            "number": message.number,
            "token": held.delivery.token,
        }

    def _settle(self, client: Client) -> None:
        if not client.held:
            return
        held = client.held.pop(self.rng.randrange(len(client.held)))
        how = self.rng.choices((Op.COMPLETE, Op.ABANDON, Op.DEFER, Op.DEAD_LETTER), (50, 25, 12, 13))[0]
        if held.entity.endswith(DEAD_LETTER_QUEUE) and how in (Op.DEFER, Op.DEAD_LETTER):
            how = Op.COMPLETE
        self._settle_as(client, held, how)

    def _settle_as(self, client: Client, held: Held, how: str) -> None:
        values = self._held_values(held)
        self._attempt(how, held.entity, **values)
        began = client.recorder.begin()

        def ended(ticket: Ticket) -> None:
            outcome = ticket.outcome or UNKNOWN
            client.recorder.record(how, held.entity, outcome, began=began, **values)
            if how == Op.DEFER and outcome == OK:
                client.deferred.append((held.entity, held.delivery.message))

        self._wait(client, self.bus.settle(held.delivery.token, how), ended)

    def _settle_again(self, client: Client) -> None:
        """Tries a token that somebody was given once, as a confused client does."""
        tokens = [e for e in self.history.events[-400:] if e.op == Op.RECEIVE and e.token is not None]
        if not tokens:
            return
        event = self.rng.choice(tokens)
        values = {"message_id": event.message_id, "session": event.session, "number": event.number}
        values["token"] = event.token
        if self.rng.random() < 0.5 and event.session is None:
            self._attempt(Op.RENEW, event.entity, **values)
            self.bus.renew(event.token or "")
            client.recorder.record(Op.RENEW, event.entity, **values)  # type: ignore[arg-type]
            return
        self._attempt(Op.COMPLETE, event.entity, **values)
        ticket = self.bus.settle(event.token or "", Op.COMPLETE)
        self._record_when_known(client, ticket, [(Op.COMPLETE, event.entity, values)])

    def _renew(self, client: Client) -> None:
        held = [held for held in client.held if held.delivery.message.session is None]
        if not held:
            return
        one = self.rng.choice(held)
        values = self._held_values(one)
        self._attempt(Op.RENEW, one.entity, **values)
        self.bus.renew(one.delivery.token)
        client.recorder.record(Op.RENEW, one.entity, **values)
