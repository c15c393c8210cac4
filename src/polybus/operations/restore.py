"""`polybus restore`: a backup becomes a data folder again, after it was verified to be whole and without findings.

A backup is a data folder already, and a bus could be started on it. It is copied so that it stays a backup, and looked
at so that nobody finds out later that it was none. Nothing is ever written over.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from polybus.errors import ConfigError
from polybus.operations.backup import whole_or_nothing
from polybus.operations.check import Report, catalogue_url, check, store_urls
from polybus.operations.store_reader import StoreReader, open_reader
from polybus.store.backup_files import MANIFEST, NotWhole, files_of, read_manifest, sync_all, verify
from polybus.store.base import Row, Store
from polybus.store.copying import PAST_ALL_KEYS, copy_rows
from polybus.store.folder import sync_folder


@dataclass
class RestoreReport:
    """What was restored."""

    target: str
    stores: list[str] = field(default_factory=list)
    entities: int = 0
    messages: int = 0


def restore(backup: Path, target: Path, stores: list[str]) -> RestoreReport:
    """Makes the folder `target`, which must not exist or be empty, of a backup. Messaging stores go to the addresses in
    `stores`, where there are any: empty databases, one for each store of the backup, in its order."""
    manifest = read_manifest(backup)
    _refuse_what_is_there(target)
    if stores and len(stores) != len(manifest["stores"]):
        raise ConfigError(f"the backup has {len(manifest['stores'])} messaging stores, not {len(stores)}")
    with _in_place(target) as folder:
        _copy(backup, folder)
        if "files" in manifest:
            verify(folder)
        report = _looked_at(folder)
        if stores:
            _move_rows(folder, stores)
        (folder / MANIFEST).unlink()
        sync_all(folder)
    return RestoreReport(
        str(target),
        stores or store_urls(target),
        len(report.entities),
        sum(each.active + each.deferred + each.scheduled + each.dead_letter for each in report.entities),
    )


def _refuse_what_is_there(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"{target} is not empty; nothing is written over")


@contextmanager
def _in_place(target: Path) -> Iterator[Path]:
    """A folder that becomes the target, or whose contents do: an empty target may be where a disk is mounted."""
    if not target.exists():
        with whole_or_nothing(target) as folder:
            yield folder
        return
    folder = Path(tempfile.mkdtemp(prefix=".restore.", dir=target))
    try:
        yield folder
        for path in list(folder.iterdir()):
            path.rename(target / path.name)
        folder.rmdir()
        sync_folder(target)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _copy(backup: Path, folder: Path) -> None:
    for path in (*files_of(backup), backup / MANIFEST):
        copy = folder / path.relative_to(backup)
        copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.copyfile(path, copy)
        copy.chmod(0o600)


def _looked_at(folder: Path) -> Report:
    report = check(catalogue_url(folder), store_urls(folder))
    if not report.clean:
        raise NotWhole(
            f"the backup has {report.finding_count} findings, the first: {report.findings[0].problem};"
            " `polybus check` shows them"
        )
    return report


def _move_rows(folder: Path, stores: list[str]) -> None:
    """The rows of each store into an empty database with the same id."""
    for path, url in zip(store_urls(folder), stores, strict=True):
        with closing(open_reader(path)) as reader, closing(_empty(url, reader.store_id)) as target:
            copy_rows(partial(_page, reader), target)
    shutil.rmtree(folder / "stores")


def _page(reader: StoreReader, start: bytes, end: bytes, *_: int) -> list[Row]:
    return reader.page(start, end)


def _empty(url: str, store_id: bytes) -> Store:
    if not url.startswith(("postgresql:", "postgres:")):
        raise ConfigError("messaging stores are restored into the data folder or into postgresql://… databases")
    from polybus.store.postgres import PostgresStore

    store = PostgresStore(url, store_id=store_id)
    if store.scan(b"", PAST_ALL_KEYS, 1):
        store.close()
        raise ConfigError(f"{store.url} is not empty; nothing is written over")
    return store
