"""What is compiled, and which build of it a process runs.

A wheel for a platform has compiled modules beside the sources (`setup.py`), and Python's own import takes them. A
checkout never has: there a stale one would win over the changed source. `scripts/compile.py` puts builds of a checkout
into the environment under a hash of the sources, so a changed source falls back to plain Python by itself.

`POLYBUS_BUILD` chooses: `auto` (the default) takes the compiled build where there is one, `plain` the sources wherever
they are, `compiled` ends the process with one line where it would have to run the sources.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType

SOURCES = Path(__file__).resolve().parent
ROOMS = ("amqp", "message", "partition", "rules")
FILES = (
    "clock.py",
    "rows.py",
    "numbering.py",
    "hashing.py",
    "gateway/stats.py",
    "namespace/entities/entity.py",
    "cluster/frames.py",
    "cluster/link.py",
    "cluster/owner.py",
    "cluster/remote_partition.py",
    "cluster/remote_store.py",
    "cluster/values.py",
    "cluster/verbs.py",
    "hosting/local_moving.py",
    "hosting/local_partition.py",
    "hosting/local_pipelines.py",
    "hosting/local_sessions.py",
    "hosting/partition_client.py",
    "hosting/partition_host.py",
    "promise.py",
    "namespace/delivery/routing.py",
    "namespace/delivery/sender.py",
    "namespace/delivery/session_source.py",
    "namespace/delivery/source.py",
    "hosting/store_host.py",
    "store/journal.py",
    "store/layers.py",
)
NOT_COMPILED = ("__init__.py", "transport.py")
"""The transport subclasses asyncio's own Protocol, which only the interpreter can."""
SHARED = "polybus__mypyc"
"""The library that mypyc puts all compiled modules into."""


def source_files() -> list[Path]:
    """What is compiled, in a stable order."""
    rooms = [path for room in ROOMS for path in sorted((SOURCES / room).glob("*.py")) if path.name != "__init__.py"]
    links = [path for path in sorted((SOURCES / "gateway" / "amqp").glob("*.py")) if path.name not in NOT_COMPILED]
    return rooms + links + [SOURCES / name for name in FILES]


def build_folder() -> Path:
    """Where the build of the present sources is, or would be."""
    digest = hashlib.sha256(f"{sys.version}|{sys.platform}".encode())
    for path in source_files():
        digest.update(str(path.relative_to(SOURCES)).encode() + b"\0" + path.read_bytes())
    return builds() / digest.hexdigest()[:24]


def builds() -> Path:
    """Where this environment keeps the builds of a checkout."""
    return Path(sys.prefix) / "lib" / "polybus-compiled"


class _Compiled(MetaPathFinder):
    """Gives the compiled module where a build folder has one by that name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname != SHARED and not fullname.startswith("polybus."):
            return None
        candidate = _extension(self._folder, fullname)
        return None if candidate is None else importlib.util.spec_from_file_location(fullname, candidate)


class _Plain(MetaPathFinder):
    """Gives the source of a module beside which a compiled one lies."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if not fullname.startswith("polybus.") or _extension(SOURCES.parent, fullname) is None:
            return None
        source = SOURCES.parent.joinpath(*fullname.split(".")).with_suffix(".py")
        return importlib.util.spec_from_file_location(fullname, source)


def _extension(folder: Path, fullname: str) -> Path | None:
    base = folder.joinpath(*fullname.split("."))
    candidates = (base.with_name(base.name + suffix) for suffix in importlib.machinery.EXTENSION_SUFFIXES)
    return next((each for each in candidates if each.is_file()), None)


def install() -> str:
    """Chooses the build for this process; gives its name. Who insists on one that is not there gets no further."""
    wanted = os.environ.get("POLYBUS_BUILD") or "auto"
    if wanted not in ("auto", "plain", "compiled"):
        raise SystemExit(f"polybus: POLYBUS_BUILD is auto, plain or compiled, not {wanted}")
    packaged = _extension(SOURCES.parent, SHARED) is not None
    if wanted == "plain":
        if packaged:
            sys.meta_path.insert(0, _Plain())
        return "plain"
    if packaged:
        return "compiled"
    if builds().is_dir() and (folder := build_folder()).is_dir():
        sys.meta_path.insert(0, _Compiled(folder))
        return "compiled"
    if wanted == "compiled":
        raise SystemExit(
            "polybus: POLYBUS_BUILD=compiled, but there is no compiled build of these sources; "
            "in a checkout scripts/compile.py makes one, elsewhere install the wheel of your platform"
        )
    return "plain"
