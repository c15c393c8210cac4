"""The files of a backup: what belongs to it, with a checksum of each, as a folder and as one stream.

A backup is a data folder with `backup.json` in it, which is written last: without it a backup is not whole. As a
stream it is a tar file; names in it are looked at before anything is written.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

from polybus import __version__
from polybus.errors import ConfigError
from polybus.limits import BACKUP_MANIFEST_BYTES, BACKUP_PIECE_BYTES
from polybus.store.folder import sync_folder

MANIFEST: Final = "backup.json"
FORMAT: Final = 1
_LOCK: Final = "lock"
_NAME: Final = re.compile(r"(?:catalogue|stores/[0-9]{1,5})/db/[A-Za-z0-9_.-]+")
_MODE: Final = 0o600

Facts = dict[str, dict[str, Any]]
"""Size and checksum of each file, by its way from the folder."""


class NotWhole(ConfigError):
    """A backup of which something is missing, or not as it was made."""


def files_of(folder: Path) -> list[Path]:
    """Everything that belongs to the backup in this folder, but for its manifest."""
    found = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sorted(path for path in found if path.name != _LOCK and path != folder / MANIFEST)


def write_manifest(folder: Path, stores: list[dict[str, str]]) -> None:
    """Puts the checksums of everything beside it, and makes all of it durable."""
    facts = {str(path.relative_to(folder)): _facts(path) for path in files_of(folder)}
    (folder / MANIFEST).write_bytes(_manifest(stores, facts))
    sync_all(folder)


def sync_all(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            sync_folder(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _manifest(stores: list[dict[str, str]], facts: Facts) -> bytes:
    manifest = {"format": FORMAT, "version": __version__, "stores": stores, "files": facts}
    return json.dumps(manifest, indent=2).encode() + b"\n"


def _facts(path: Path) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    for piece in _pieces(path):
        digest.update(piece)
        size += len(piece)
    return {"bytes": size, "sha256": digest.hexdigest()}


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(BACKUP_PIECE_BYTES):
            yield piece


# As a stream


def stream(folder: Path, stores: list[dict[str, str]]) -> Iterator[bytes]:
    """The folder as a tar file, piece by piece; its manifest comes last, when everything was read."""
    facts: Facts = {}
    for path in files_of(folder):
        name, size = str(path.relative_to(folder)), path.stat().st_size
        digest, left = hashlib.sha256(), size
        yield _header(name, size)
        for piece in _pieces(path):
            digest.update(piece)
            left -= len(piece)
            yield piece
        if left:
            raise NotWhole(f"{name} changed while it was read")
        yield _padding(size)
        facts[name] = {"bytes": size, "sha256": digest.hexdigest()}
    manifest = _manifest(stores, facts)
    yield _header(MANIFEST, len(manifest)) + manifest + _padding(len(manifest)) + bytes(2 * tarfile.BLOCKSIZE)


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, _MODE
    return info.tobuf(tarfile.PAX_FORMAT)


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)


def unpack(source: IO[bytes], folder: Path) -> None:
    """Writes a streamed backup into a folder that is there and empty, and verifies it."""
    try:
        with tarfile.open(fileobj=source, mode="r|") as archive:
            for member in archive:
                _unpack(archive, member, folder)
    except (tarfile.TarError, EOFError) as error:
        raise NotWhole(f"the backup broke off: {error}") from error
    verify(folder)


def _unpack(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    content = archive.extractfile(member) if member.isreg() else None
    if content is None or not (member.name == MANIFEST or _NAME.fullmatch(member.name)):
        raise NotWhole(f"{member.name[:200]!a} cannot be part of a backup")
    path = folder / member.name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        path.chmod(_MODE)
        shutil.copyfileobj(content, file, BACKUP_PIECE_BYTES)


# Whether it is whole


def read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        text = path.read_bytes()[: BACKUP_MANIFEST_BYTES + 1]
        manifest = json.loads(text)
    except FileNotFoundError:
        raise NotWhole(f"{folder} is not a whole backup: {MANIFEST} is missing") from None
    except ValueError:
        raise NotWhole(f"{path} is damaged") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("stores"), list):
        raise NotWhole(f"{path} is damaged")
    if manifest.get("format", FORMAT) != FORMAT:
        raise ConfigError(f"{path}: format {manifest['format']}; this version of Polybus reads {FORMAT}")
    return manifest


def verify(folder: Path) -> dict[str, Any]:
    """The manifest, after every file was found to be as it was made; NotWhole where one is not."""
    manifest = read_manifest(folder)
    expected = manifest.get("files", {})
    found = {str(path.relative_to(folder)): path for path in files_of(folder)}
    for name in sorted(expected.keys() | found.keys()):
        if name not in expected:
            raise NotWhole(f"{folder}: {name} does not belong to the backup")
        if name not in found:
            raise NotWhole(f"{folder}: {name} is missing")
        if _facts(found[name]) != expected[name]:
            raise NotWhole(f"{folder}: {name} is not as it was made")
    return manifest
