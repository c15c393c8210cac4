"""Finds the compiled build of the hot rooms, if there is one for exactly these sources.

`scripts/compile.py` puts builds into the environment under a hash of the sources. `POLYBUS_BUILD` chooses:
`auto` (the default) takes the compiled build where it fits, `plain` never does, `compiled` insists.
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
    "gateway/stats.py",
    "namespace/entities/entity.py",
    "hosting/partition_host.py",
    "promise.py",
    "namespace/delivery/routing.py",
    "namespace/delivery/sender.py",
    "namespace/delivery/session_source.py",
    "namespace/delivery/source.py",
    "hosting/store_host.py",
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
    return Path(sys.prefix) / "lib" / "polybus-compiled" / digest.hexdigest()[:24]


class _Finder(MetaPathFinder):
    """Gives the compiled module where there is one by that name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._suffixes = importlib.machinery.EXTENSION_SUFFIXES

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname != SHARED and not fullname.startswith("polybus."):
            return None
        base = self._folder.joinpath(*fullname.split("."))
        for suffix in self._suffixes:
            candidate = base.with_name(base.name + suffix)
            if candidate.is_file():
                return importlib.util.spec_from_file_location(fullname, candidate)
        return None


def install() -> str:
    """Chooses the build for this process; gives its name."""
    wanted = os.environ.get("POLYBUS_BUILD", "auto")
    if wanted == "plain":
        return "plain"
    folder = build_folder()
    if not folder.is_dir():
        if wanted == "compiled":
            raise ImportError("POLYBUS_BUILD=compiled, but there is no compiled build of these sources")
        return "plain"
    sys.meta_path.insert(0, _Finder(folder))
    return "compiled"
