"""The disk of a child process: it can be made to hang, and to lose what was not synced (see `unreliable_disk.c`)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_COMPILER = shutil.which("cc") or shutil.which("gcc")
needs_compiler = pytest.mark.skipif(
    _COMPILER is None or sys.platform != "linux", reason="an unreliable disk needs a C compiler on Linux"
)


class UnreliableDisk:
    def __init__(self, folder: Path) -> None:
        assert _COMPILER is not None
        self._library = folder / "unreliable_disk.so"
        self._synced = folder / "synced"
        source = Path(__file__).with_suffix(".c")
        subprocess.run([_COMPILER, "-shared", "-fPIC", "-o", self._library, source, "-ldl"], check=True)

    def environment(self, hanging_below: Path | None = None, hanging_while: Path | None = None) -> dict[str, str]:
        """What a child must be given to have this disk."""
        variables = {"LD_PRELOAD": str(self._library), "SYNCED": str(self._synced)}
        if hanging_below is not None:
            variables |= {"HANGING_BELOW": str(hanging_below), "HANGING_WHILE": str(hanging_while)}
        return variables

    def keep(self, folder: Path) -> None:
        """Whatever is in the folder now is safe: another process, with a better disk, has been there."""
        sizes = [(file.stat().st_ino, file.stat().st_size) for file in folder.rglob("*")]
        self._synced.write_text("".join(f"{inode} {size}\n" for inode, size in sizes))

    def lose_unsynced(self, folder: Path) -> None:
        """The power failed: every file of the folder ends where it was last synced."""
        sizes = {}
        for line in self._synced.read_text().splitlines():
            inode, size = line.split()
            sizes[int(inode)] = int(size)
        for file in folder.rglob("*"):
            if file.suffix in (".log", ".sst"):
                found = file.stat()
                with file.open("r+b") as opened:
                    opened.truncate(min(sizes.get(found.st_ino, 0), found.st_size))
