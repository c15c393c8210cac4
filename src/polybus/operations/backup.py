"""`polybus backup`: a copy of the catalogue and of every messaging store, from which a bus can be started as it is.

The bus must be stopped: the lock of its catalogue is taken first and held until the end, so that everything is of
one moment. Even so the stores are copied first and the catalogue last. Were it the other way round, an entity made
in between would be missing from the catalogue while its rows lie in a store, and the next entity would be given the
same id and find them. This way round, rows without an entity can harm nobody, for their id is never given again.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from polybus.errors import ConfigError, StoreError
from polybus.operations.catalogue_facts import CatalogueFacts
from polybus.operations.findings import Findings
from polybus.operations.store_reader import DATABASE, OpenStoreReader, StoreReader, open_reader
from polybus.store.backup_files import write_manifest
from polybus.store.base import Store
from polybus.store.copying import copy_into_folder
from polybus.store.folder import sync_folder
from polybus.store.open import open_store


@dataclass
class BackupReport:
    """What was copied."""

    target: str
    catalogue: str
    stores: list[dict[str, str]] = field(default_factory=list)
    entities: int = 0


class BackupSource(Protocol):
    """Something that can be copied."""

    url: str
    store_id: bytes

    def checkpoint(self, target: Path) -> None: ...


class _Looked:
    """A database is copied through a reader, in one transaction, so that its owner is not displaced."""

    def __init__(self, reader: StoreReader) -> None:
        self.url = reader.url
        self.store_id = reader.store_id
        self._reader = reader

    def checkpoint(self, target: Path) -> None:
        copy_into_folder(self.store_id, lambda start, end, *_: self._reader.page(start, end), target)


def backup(catalogue: str, stores: list[str], target: Path) -> BackupReport:
    """Copies everything into the folder `target`, which must not exist; it is there whole or not at all."""
    if target.exists():
        raise ConfigError(f"{target} exists already; a backup goes into a folder of its own")
    with ExitStack() as opened:
        head, reader = _open(catalogue, opened)
        sources = [_open(url, opened)[0] for url in stores]
        facts = CatalogueFacts(reader, Findings())
        _refuse_missing(facts, sources)
        report = BackupReport(str(target), head.url, entities=len(facts.entities))
        with whole_or_nothing(target) as folder:
            for index, source in enumerate(sources):
                source.checkpoint(folder / "stores" / str(index))
                report.stores.append({"url": source.url, "id": source.store_id.hex()})
            head.checkpoint(folder / "catalogue")
            write_manifest(folder, report.stores)
    return report


def _open(url: str, opened: ExitStack) -> tuple[BackupSource, StoreReader]:
    if not url.startswith("rocksdb:"):
        reader = open_reader(url)
        opened.callback(reader.close)
        return _Looked(reader), reader
    if not (Path(url.partition(":")[2]) / DATABASE).is_dir():
        raise StoreError(f"{url}: there is no messaging store")
    store: Store = open_store(url)
    opened.callback(store.close)
    return store, OpenStoreReader(store)


def _refuse_missing(facts: CatalogueFacts, sources: list[BackupSource]) -> None:
    given = {source.store_id for source in sources}
    if len(given) < len(sources):
        raise ConfigError("a messaging store was given twice")
    placed = {store for entity in facts.entities.values() for store in entity.placement}
    missing = sorted(store.hex() for store in placed - given)
    if missing:
        raise ConfigError(
            f"messages lie in a messaging store that was not given: {', '.join(missing)}; name it with --store"
        )


@contextmanager
def whole_or_nothing(target: Path) -> Iterator[Path]:
    """A folder that takes its name only when everything is in it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield folder
        sync_folder(folder)
        folder.rename(target)
        sync_folder(target.parent)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
