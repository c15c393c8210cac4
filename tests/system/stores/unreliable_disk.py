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


_PAGE = 4_096


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
        """The power failed: every file of the folder ends where it was last synced, and of a synced write that was under
        way every other page is missing."""
        sizes = {}
        torn: dict[int, tuple[int, int]] = {}
        for line in self._synced.read_text().splitlines():
            words = line.split()
            if words[0] == "w":
                torn[int(words[1])] = int(words[2]), int(words[3])
            elif words[0] == "s":
                torn.pop(int(words[1]), None)
            else:
                sizes[int(words[0])] = int(words[1])
        for file in folder.rglob("*"):
            if file.stat().st_ino in torn:
                _tear(file, *torn[file.stat().st_ino])
            if file.suffix in (".log", ".sst"):
                found = file.stat()
                with file.open("r+b") as opened:
                    opened.truncate(min(sizes.get(found.st_ino, 0), found.st_size))


def _tear(file: Path, at: int, size: int) -> None:
    with file.open("r+b") as opened:
        for page in range(at + _PAGE, at + size, 2 * _PAGE):
            opened.seek(page)
            opened.write(bytes(_PAGE))
