"""The membership of nodes: members and owners as the cluster's database and the stores' owner rows say.

Every look at the database becomes a picture: who lives, who says that it owns what, with which epoch. From it each node
decides the same way (`balance`) what it should take. Taking is done by opening the store: its owner row gives it only
when nobody's lease is on it. The catalogue is one more such store, and whoever has it leads.

A store that should move is let go by its owner after all nodes had time to hear of it, so that they hold what comes for
it, and is taken by the one that was named. Nothing here is asked on the way of a message.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

from polybus.cluster.balance import Candidate, Move, assign, next_move, ranked
from polybus.cluster.heartbeat import Heartbeat, Standing
from polybus.cluster.link import Link
from polybus.cluster.membership import Member, MembershipListener, Ownership
from polybus.limits import MOVE_HOLD_MS, MOVE_SECONDS, NODE_LOOK_SECONDS, NODE_WATCH_SECONDS
from polybus.promise import Loop
from polybus.store.cluster_database import ClusterDatabase
from polybus.store.cluster_rows import ClusterView, MemberRow, Owned
from polybus.store.lease import Lease

log = logging.getLogger(__name__)

CATALOGUE: Final = "catalogue"
"""The name of the catalogue among the stores."""
Dial = Callable[[MemberRow], Awaitable[Link]]


@dataclass(frozen=True)
class Holding:
    """A store that is open in this process."""

    epoch: int
    lease: Lease


class OpenStores(Protocol):
    """Whoever opens and closes stores in this process."""

    def holding(self, url: str) -> Holding | None:
        """What this process has of a store; None while it is not open here. The catalogue's name is CATALOGUE."""

    def lost(self, url: str) -> None:
        """The lease is over: the store is not this process's any more, and nothing of it may be handed out."""


class NodeMembership:
    def __init__(
        self,
        heartbeat: Heartbeat,
        stores: list[str],
        loop: Loop,
        dial: Dial,
    ) -> None:
        """`stores` are shown addresses, the same on all nodes."""
        self.me = heartbeat.name
        self.listener: MembershipListener | None = None
        self.opened: OpenStores | None = None
        self.clients: list[str] = []
        """Where clients reach this node."""
        self.on_expelled: Callable[[], None] | None = None
        """Another process has this node's name."""
        self.on_moving: Callable[[], None] | None = None
        """A store begins to move, or has moved."""
        self.view = ClusterView(())
        self._heartbeat = heartbeat
        self._loop = loop
        self._dial = dial
        self._names = sorted([*stores, CATALOGUE])
        self._owners: dict[str, Ownership] = {name: Ownership(name, None) for name in self._names}
        self._told: dict[str, Ownership] = dict(self._owners)
        self._claimed: set[str] = set()
        """What this node has decided to take, and has or is opening."""
        self._leaving: dict[str, Move] = {}
        """What this node hands over just now."""
        self._moved: set[str] = set()
        """What has a new owner since a moment: its partitions may need one more until they are reached from here."""
        self._standing = Standing([], [])
        self._stopping = False
        heartbeat.standing = lambda: self._standing

    # What is asked

    def members(self) -> list[Member]:
        return [Member(row.name, row.address) for row in self.view.living]

    def owner_of(self, url: str) -> Ownership:
        return self._owners[url]

    def leader(self) -> str | None:
        return self._owners[CATALOGUE].owner

    def is_moving(self, url: str) -> bool:
        """Whether a store is on its way from one node to another, as planned, or has just arrived there."""
        return url in self._leaving or self.view.moving == url or url in self._moved

    async def connect(self, member: Member) -> Link:
        row = self.view.named(member.name)
        if row is None:
            raise OSError(f"{member.name} is no member")
        return await self._dial(row)

    # What is seen

    def seen(self, view: ClusterView) -> None:
        """A look at the database; called on the loop."""
        if self._stopping:
            return
        if self._heartbeat.lost:
            self._expelled()
            return
        before, self.view = self.view, view
        self._look_at_leases()
        for name in self._names:
            self._owners[name] = self._judged(name)
        self._take()
        self._let_go()
        self._note_standing()
        self._tell(before)

    def _judged(self, name: str) -> Ownership:
        """Whose the store is: what this process has open counts, unless another has it with a later epoch."""
        claims = [
            Ownership(name, row.name, owned.epoch)
            for row in self.view.living
            if row.name != self.me
            for owned in row.owned
            if owned.store == name
        ]
        best = max(claims, key=lambda claim: claim.epoch, default=None)
        mine = self._holding(name)
        if name in self._claimed:
            if best is not None and (mine is None or best.epoch > mine.epoch):
                log.warning("%s: the node %s has it, with epoch %d", name, best.owner, best.epoch)
                self._claimed.discard(name)
                return best
            return Ownership(name, self.me, 0 if mine is None else mine.epoch)
        return best or Ownership(name, None)

    def _take(self) -> None:
        me = self.view.named(self.me)
        if me is None or self._heartbeat.problem is not None:
            return
        candidates = self._candidates()
        owners = {name: owned.owner for name, owned in self._owners.items()}
        stores = [name for name in self._names if name != CATALOGUE]
        wanted = assign(stores, owners, candidates)
        takers = [candidate.name for candidate in candidates if not candidate.draining]
        if owners[CATALOGUE] is None and takers:
            wanted[CATALOGUE] = ranked(CATALOGUE, takers)[0]
        if self.view.moving in wanted and self.view.moving_to in takers:
            wanted[self.view.moving] = self.view.moving_to
        for name, taker in wanted.items():
            if taker == self.me and name not in self._leaving:
                log.info("%s: nobody owns it; this node takes it", name)
                self._claimed.add(name)
                self._owners[name] = Ownership(name, self.me)

    def _candidates(self) -> list[Candidate]:
        return [Candidate(row.name, row.draining) for row in self.view.living]

    # Moves

    def _let_go(self) -> None:
        """Begins to hand a store over where this node has too many, or is drained."""
        if self._leaving or self.view.moving is not None or self._heartbeat.problem is not None:
            return
        owners = {name: owned.owner for name, owned in self._owners.items()}
        stores = [name for name in self._names if name != CATALOGUE]
        move = next_move(self.me, stores, owners, self._candidates())
        if move is None:
            move = self._catalogue_move(owners)
        if move is not None and self._holding(move.store) is not None:
            self._hand_over(move)

    def _catalogue_move(self, owners: dict[str, str | None]) -> Move | None:
        """The catalogue stays where it is, unless its node is drained."""
        takers = [candidate.name for candidate in self._candidates() if not candidate.draining]
        if owners[CATALOGUE] != self.me or self.me in takers or not takers:
            return None
        return Move(CATALOGUE, ranked(CATALOGUE, takers)[0])

    def _hand_over(self, move: Move) -> None:
        self._leaving[move.store] = move
        loop, done = self._loop, self._move_begun

        def begin(database: ClusterDatabase) -> None:
            begun = database.begin_move(move.store, move.target, MOVE_SECONDS)
            loop.call_soon_threadsafe(done, move, begun)  # type: ignore[attr-defined]

        self._heartbeat.wish(begin)

    def _move_begun(self, move: Move, begun: bool) -> None:
        if not begun:
            self._leaving.pop(move.store, None)
            return
        log.info("%s: moves to the node %s", move.store, move.target)
        if self.on_moving is not None:
            self.on_moving()
        # Others must hear of it before they are refused.
        self._loop.call_later(NODE_LOOK_SECONDS, self._release, move)

    def _release(self, move: Move) -> None:
        self._claimed.discard(move.store)
        self._owners[move.store] = Ownership(move.store, None)
        self._tell(self.view)
        self._until_closed(move)

    def _until_closed(self, move: Move) -> None:
        """The others hear that the store is free when it is closed here."""
        if self._holding(move.store) is not None and not self._stopping:
            self._loop.call_later(0.01, self._until_closed, move)
            return
        self._leaving.pop(move.store, None)
        self.changed()

    # What this process has

    def changed(self) -> None:
        """A store was opened or closed here: the others hear of it at once."""
        self._note_standing()
        for name in [one for one in self._claimed if self.view.moving == one and self._holding(one) is not None]:
            self._heartbeat.wish(_ending(name))
        self._heartbeat.touch()

    def watch_leases(self) -> None:
        """Looks at the leases of what is open, again and again: one that is over ends the store here."""
        if self._stopping:
            return
        self._look_at_leases()
        self._note_standing()
        self._loop.call_later(NODE_WATCH_SECONDS, self.watch_leases)

    def _look_at_leases(self) -> None:
        for name in self._names:
            mine = self._holding(name)
            if mine is not None and not mine.lease.holds:
                log.warning("%s: its lease is over", name)
                assert self.opened is not None, "what is held was opened"
                self.opened.lost(name)

    def _holding(self, name: str) -> Holding | None:
        return None if self.opened is None else self.opened.holding(name)

    def _note_standing(self) -> None:
        owned = []
        for name in self._names:
            mine = self._holding(name)
            if mine is not None and name in self._claimed and mine.lease.holds:
                owned.append(Owned(name, mine.epoch, mine.lease.left_ms))
        self._standing = Standing(owned, self.clients)

    def _expelled(self) -> None:
        if self.on_expelled is not None:
            self.on_expelled()

    def stop(self) -> None:
        """Takes nothing any more; what is owned is given back by closing it."""
        self._stopping = True
        self._standing = Standing([], self.clients)

    # What is told

    def _tell(self, before: ClusterView) -> None:
        listener = self.listener
        if listener is None:
            return
        if _places(before) != _places(self.view):
            listener.members_changed()
        if before.moving != self.view.moving:
            if before.moving is not None:
                self._moved.add(before.moving)
                self._loop.call_later(MOVE_HOLD_MS / 1000, self._moved.discard, before.moving)
            if self.on_moving is not None:
                self.on_moving()
        for name in self._names:
            now, told = self._owners[name], self._told[name]
            if (now.owner, now.epoch) == (told.owner, told.epoch):
                continue
            self._told[name] = now
            if name == CATALOGUE:
                if now.owner != told.owner:
                    listener.leader_changed()
            elif now.owner != told.owner or (now.owner != self.me and now.epoch != told.epoch):
                listener.owner_changed(now)


def _ending(name: str) -> Callable[[ClusterDatabase], None]:
    return lambda database: database.end_move(name)


def _places(view: ClusterView) -> list[tuple[str, str, str]]:
    return [(row.name, row.process, row.address) for row in view.living]
