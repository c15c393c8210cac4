"""Who should own which messaging store: plain decisions from what is known of the cluster, the same on every node.

Rendezvous hashing says whom a store would like best, so that nodes which see the same choose the same without a word.
Owners are sticky: a store moves only when its owner is gone, when its owner is drained, or when one node has two more
than another. What is decided here is a wish; the owner row of the store decides what happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

UNEVEN = 2
"""A store moves to even things out only where one node has so many more than another: with less it would move for ever.
"""


@dataclass(frozen=True)
class Candidate:
    """A living node."""

    name: str
    draining: bool = False


@dataclass(frozen=True)
class Move:
    store: str
    target: str


def liking(store: str, name: str) -> int:
    """How much a store would like to be with a node."""
    return int.from_bytes(blake2b(f"{store}\0{name}".encode(), digest_size=8).digest(), "big")


def ranked(store: str, names: Iterable[str]) -> list[str]:
    """The nodes in the order in which the store would like them."""
    return sorted(names, key=lambda name: (-liking(store, name), name))


def assign(
    stores: Sequence[str], owners: Mapping[str, str | None], candidates: Iterable[Candidate]
) -> dict[str, str]:
    """For each store that nobody alive owns, the node that should take it: the one it likes best among those that have
    least."""
    takers = [candidate.name for candidate in candidates if not candidate.draining]
    loads = dict.fromkeys(takers, 0)
    for store in stores:
        owner = owners.get(store)
        if owner in loads:
            loads[owner] += 1
    assigned: dict[str, str] = {}
    for store in sorted(stores):
        if owners.get(store) is None and takers:
            least = min(loads.values())
            chosen = ranked(store, [name for name in takers if loads[name] == least])[0]
            assigned[store] = chosen
            loads[chosen] += 1
    return assigned


def next_move(
    me: str, stores: Sequence[str], owners: Mapping[str, str | None], candidates: Sequence[Candidate]
) -> Move | None:
    """The store that this node should hand to another now; None where it should keep what it has."""
    takers = [candidate.name for candidate in candidates if not candidate.draining]
    mine = sorted(store for store in stores if owners.get(store) == me)
    others = [name for name in takers if name != me]
    if not mine or not others:
        return None
    loads = {name: sum(1 for store in stores if owners.get(store) == name) for name in {*takers, me}}
    least = min(loads[name] for name in others)
    if me not in takers:
        target_names = [name for name in others if loads[name] == least]
    elif any(owners.get(store) is None for store in stores):
        return None  # they are taken first: that may even things out by itself
    elif loads[me] - least >= UNEVEN and me == _fullest(loads):
        target_names = [name for name in others if loads[name] == least]
    else:
        return None
    store = max(mine, key=lambda one: (max(liking(one, name) for name in target_names), one))
    return Move(store, ranked(store, target_names)[0])


def _fullest(loads: Mapping[str, int]) -> str:
    return min(loads, key=lambda name: (-loads[name], name))
