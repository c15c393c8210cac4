"""Opens a messaging store by its address, as users write it after `--store`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polybus.errors import ConfigError
from polybus.store.base import Store
from polybus.store.memory import MemoryStore

if TYPE_CHECKING:
    from polybus.store.postgres import Holder

_FORMS = "rocksdb:PATH, postgresql://HOST/DATABASE?schema=NAME or memory:"


def open_store(url: str, *, unsafe: bool = False, holder: Holder | None = None) -> Store:
    """The store at this address, made where it is new. `unsafe` accepts a server that loses what it confirmed; `holder`
    is the node that opens it, where there are several."""
    scheme, colon, rest = url.partition(":")
    if colon and scheme == "memory":
        return MemoryStore(url)
    if colon and scheme == "rocksdb":
        return _open_rocks(url, rest)
    if colon and scheme in ("postgresql", "postgres"):
        return _open_postgres(url, unsafe, holder)
    # What was given is not repeated: it may be an address with a password in it.
    raise ConfigError(f"a messaging store is {_FORMS}")


def _open_rocks(url: str, path: str) -> Store:
    if not path or path.startswith("//"):
        raise ConfigError(f"{url!r}: give the folder right after the colon, as in rocksdb:/var/lib/polybus/1")
    from polybus.store.rocks import RocksStore

    return RocksStore(Path(path))


def _open_postgres(url: str, unsafe: bool, holder: Holder | None) -> Store:
    try:
        from polybus.store.postgres import PostgresStore
    except ImportError as error:
        raise ConfigError("a PostgreSQL store needs: pip install 'polybus[postgres]'") from error
    return PostgresStore(url, unsafe=unsafe, holder=holder)
