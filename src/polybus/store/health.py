"""What one store tells about itself: for the health page, the metrics and the console."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from polybus.store.group import GroupCommit

State = Literal["opening", "open", "fenced", "missing"]


@dataclass(frozen=True)
class StoreHealth:
    """One store at one moment. `unsafe` and `volatile` are warnings: accepted does not mean safe there."""

    url: str
    id: str
    state: State
    unsafe: bool = False
    volatile: bool = False
    hung: bool = False
    free_bytes: int | None = None
    last_error: str | None = None
    commits: int = 0
    ops: int = 0
    bytes: int = 0
    uncommitted_bytes: int = 0
    last_commit_ms: float = 0.0
    late_answers: int = 0


def health_of(group: GroupCommit) -> StoreHealth:
    """The health of a store that has been opened."""
    driver = group.driver
    store = driver.store
    error = group.fenced or driver.last_error
    return StoreHealth(
        url=store.url,
        id=store.store_id.hex(),
        state="fenced" if group.fenced is not None or driver.hung else "open",
        unsafe=store.unsafe,
        volatile=bool(getattr(store, "volatile", False)),
        hung=driver.hung,
        free_bytes=store.free_bytes(),
        last_error=str(error) if error is not None else None,
        commits=group.commits,
        ops=group.ops,
        bytes=group.bytes,
        uncommitted_bytes=group.uncommitted_bytes,
        last_commit_ms=group.last_commit_ms,
        late_answers=driver.late,
    )


def health_without_store(
    url: str, state: State, error: Exception | None = None, store_id: bytes = b""
) -> StoreHealth:
    """The health of a store that is being opened, or could not be."""
    return StoreHealth(url, store_id.hex(), state, last_error=str(error) if error is not None else None)
