"""The bulk verbs: purge, redrive, un-defer, and scheduled messages cancelled or given another time.

Each walks over the messages that a choice names and deals with one page at a time, those of one page in one batch.
What receivers hold is left to them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from polybus.errors import EntityNotFound, InvalidOperation, PartitionUnavailable, QuotaExceeded
from polybus.hosting.partition_client import PartitionClient
from polybus.limits import BULK_STEP_ROWS, JOB_SAMPLES
from polybus.message.edit import Edit
from polybus.message.peeked import Peeked
from polybus.message.rendering import STATE_SCHEDULED
from polybus.namespace.delivery.redrive import move_messages
from polybus.namespace.entities.entity import Entity
from polybus.namespace.entities.names import Address, parse_address
from polybus.namespace.jobs.choice import Choice
from polybus.namespace.jobs.job import Job, Work
from polybus.namespace.jobs.walk import Walk
from polybus.namespace.namespace import Namespace
from polybus.partition.data import Moved
from polybus.promise import Promise, pause

Verb = Callable[[PartitionClient, int, list[int]], Promise[Moved]]
"""One page's verb at its partition: the log's id, and the numbers."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What every bulk verb is told."""

    namespace: Namespace
    entity: Entity
    log_id: int
    choice: Choice
    dry_run: bool = False
    """Only count, and name the first ones."""
    count: bool = False
    """Count first, so that progress has an end to look at."""
    limit: int | None = None
    """Deal with at most so many."""
    rate: float | None = None
    """At most so many in a second."""
    indexes: list[int] = field(default_factory=list)
    """The partitions; all of them where none is named."""

    def walk(self) -> Walk:
        indexes = list(self.indexes) or list(range(len(self.entity.partitions)))
        return Walk(self.namespace, self.entity, self.log_id, self.choice, indexes)

    def page_rows(self) -> int:
        """A slow rate takes small pages, so that it is kept from the first second on."""
        return BULK_STEP_ROWS if self.rate is None else max(min(int(self.rate), BULK_STEP_ROWS), 1)


def purge(order: Order) -> Work:
    """Removes messages for good."""
    if order.choice.states == (STATE_SCHEDULED,):
        return cancel_scheduled(order)
    return _each_page(order, lambda partition, log_id, numbers: partition.delete_numbers(log_id, numbers))


def defer(order: Order) -> Work:
    """Defers active messages, each under the number that it has."""
    return _each_page(order, lambda partition, log_id, numbers: partition.defer_numbers(log_id, numbers))


def undefer(order: Order) -> Work:
    """Makes deferred messages active again, at the end of where they are."""
    return _each_page(order, lambda partition, log_id, numbers: partition.undefer(log_id, numbers))


def cancel_scheduled(order: Order) -> Work:
    return _each_page(order, lambda partition, _, numbers: partition.cancel_numbers(numbers))


def reschedule(order: Order, due_ms: int, by_ms: int) -> Work:
    """Gives scheduled messages another time: `due_ms`, or where that is 0, `by_ms` more than they have."""
    return _each_page(order, lambda partition, _, numbers: partition.reschedule(numbers, due_ms, by_ms))


def _each_page(order: Order, verb: Verb) -> Work:
    async def deal(job: Job, index: int, page: list[Peeked]) -> None:
        partition = order.entity.partitions[index]
        note(job, await verb(partition, order.log_id, [each.marks.sequence for each in page]))

    return lambda job: _run(order, job, deal)


def note(job: Job, moved: Moved) -> None:
    job.done += len(moved.moved)
    job.missing += len(moved.missing)
    job.locked += len(moved.locked)


Deal = Callable[[Job, int, list[Peeked]], Awaitable[None]]


async def _run(order: Order, job: Job, deal: Deal) -> None:
    if order.count or order.dry_run:
        await _count(order, job)
    if order.dry_run:
        return
    walk = order.walk()
    loop = order.namespace.bus.loop
    while not walk.done and not job.stopping and not _reached(order, job):
        index, page = await walk.page(order.page_rows())
        if order.limit is not None:
            page = page[: order.limit - job.chosen]
        job.looked, job.chosen = walk.looked, job.chosen + len(page)
        if page:
            try:
                await deal(job, index, page)
            except PartitionUnavailable:
                job.unreachable.append(index)
                walk.leave()
        # Reads may be answered at once: others must still get their turn.
        await pause(loop, 0 if order.rate is None else 1000 * len(page) / order.rate)
    job.unreachable = sorted({*job.unreachable, *walk.unreachable})


def _reached(order: Order, job: Job) -> bool:
    return order.limit is not None and job.chosen >= order.limit


async def _count(order: Order, job: Job) -> None:
    walk = order.walk()
    total = 0
    while not walk.done and not job.stopping:
        _, page = await walk.page()
        total += len(page)
        job.looked = walk.looked
        if order.dry_run:
            job.samples += [each.marks.sequence for each in page][: JOB_SAMPLES - len(job.samples)]
        await pause(order.namespace.bus.loop, 0)
    job.total = total if order.limit is None else min(total, order.limit)
    if order.dry_run:
        job.chosen = job.total
        job.unreachable = walk.unreachable


# Redrive


@dataclass(frozen=True, kw_only=True)
class Redrive:
    """Where messages go, and what is altered of each of them."""

    to: Address | None
    """None sends each one back to where it died."""
    edit: Callable[[int, int], Edit | None]
    """What is altered of the message with this number, where so many bytes are the most that it may have."""
    allow: Callable[[Address], None]
    """Raises where whoever asked may not send there."""


def redrive(order: Order, plan: Redrive) -> Work:
    """Sends messages to their source, to another entity or to one subscription, each of them once."""

    async def deal(job: Job, index: int, page: list[Peeked]) -> None:
        del index
        for target, own in _by_target(order, plan, page).items():
            await _send(order, plan, job, target, own)

    return lambda job: _run(order, job, deal)


def _by_target(order: Order, plan: Redrive, page: list[Peeked]) -> dict[Address, list[int]]:
    found: dict[Address, list[int]] = {}
    for each in page:
        target = plan.to or _source(order, each)
        found.setdefault(target, []).append(each.marks.sequence)
    return found


def _source(order: Order, peeked: Peeked) -> Address:
    """The entity or subscription that a dead letter died in."""
    overlay = peeked.marks.overlay
    if overlay is None or overlay.dead_letter_source is None:
        raise InvalidOperation(
            f"Message {peeked.marks.sequence} of '{order.entity.name}' never died, so it has no source to go back to;"
            " say where 'to'."
        )
    return parse_address(overlay.dead_letter_source)


async def _send(order: Order, plan: Redrive, job: Job, target: Address, numbers: list[int]) -> None:
    plan.allow(target)
    destination = order.namespace.addressed(target)
    destination.check_sendable()
    await check_room(destination)
    subscription = 0 if target.subscription is None else destination.subscription(target.subscription).number
    made = {number: plan.edit(number, destination.max_message_bytes) for number in numbers}
    edits = {number: edit for number, edit in made.items() if edit is not None}
    report = await move_messages(
        order.namespace, order.entity, order.log_id, numbers, {}, edits, destination.name, subscription
    )
    if report.unreachable:
        raise PartitionUnavailable("A partition cannot be reached.")
    job.done += len(report.moved)
    job.missing += len(report.missing)
    job.locked += len(report.locked)


async def check_room(destination: Entity) -> None:
    """QuotaExceeded where an entity is full: what is sent there now would only lie in between."""
    if destination.deleted:
        raise EntityNotFound(f"The messaging entity '{destination.name}' could not be found.")
    most = destination.settings.max_bytes * len(destination.partitions)
    if (await destination.counts()).size_bytes >= most:
        raise QuotaExceeded(f"'{destination.name}' is full; what was not sent there yet stays where it is.")
