"""Who else may look into a folder of the bus: nobody. Messages lie there, and keys.

What the bus makes is made for its own user alone. What it finds open, from an older version or a careless copy, it
closes and says so; what it can neither close nor trust it refuses. A folder that belongs to somebody else (the root of
a mounted volume) stays as it is where nobody but the bus and its group may write to it: what lies inside is closed.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from polybus.errors import StoreError

log = logging.getLogger(__name__)

PRIVATE_UMASK = 0o077
"""For the whole process: RocksDB makes its own files, and asks for no mode."""
_OTHERS = 0o077
_FOLDER = 0o700


def keep_to_ourselves() -> None:
    """From now on whatever this process makes can be read by its own user alone."""
    os.umask(PRIVATE_UMASK)


def make_folder(path: Path) -> None:
    """The folder, made for its owner alone where it is new; folders above it are made as the process makes them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=_FOLDER, exist_ok=True)


def close_folder(path: Path) -> None:
    """Takes from everybody else what the folder and all that lies in it let them do; tells of it where it did."""
    opened = [found for found in _found(path) if stat.S_IMODE(found.lstat().st_mode) & _OTHERS]
    closed = [found for found in opened if _close(found, is_root=found == path)]
    if closed:
        log.warning(
            "%s: %d files and folders were open to other users, %s among them; they are closed now. If others could"
            " reach them, give out new keys.",
            path,
            len(closed),
            closed[0],
        )


def warn_of_readers(path: Path) -> None:
    """Tells of a file with keys that others may read. It is not ours, so it is left as it is."""
    if path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
        log.warning("%s: holds keys, and every user of this machine may read it: chmod 600", path)


def _found(path: Path) -> Iterator[Path]:
    """Everything that a walk reaches without following a link out of the folder."""
    yield path
    for folder, folders, files in os.walk(path):
        here = Path(folder)
        yield from (found for name in (*folders, *files) if not (found := here / name).is_symlink())


def _close(path: Path, *, is_root: bool) -> bool:
    mode = stat.S_IMODE(path.lstat().st_mode)
    try:
        path.chmod(mode & ~_OTHERS)
    except FileNotFoundError:
        return False
    except OSError as error:
        if is_root and not mode & stat.S_IWOTH:
            return False
        raise StoreError(
            f"{path}: other users may reach it (mode {mode:o}), and that cannot be changed: {error.strerror}"
        ) from error
    return True
