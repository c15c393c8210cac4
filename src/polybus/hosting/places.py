"""Where messaging stores lie, as the catalogue writes it down: a store that was not named is found by it.

A folder inside the data folder is noted by its way from there, so that a data folder can be moved and copied; every
other one by its whole path; a database by its address without the password. What lives in memory has no place.
"""

from __future__ import annotations

from pathlib import Path

_ROCKS = "rocksdb:"
_MEMORY = "memory:"
_DATABASE = "db"


def place_of(shown: str, data: Path) -> str | None:
    """The place of a store with this address."""
    if shown.startswith(_MEMORY):
        return None
    if not shown.startswith(_ROCKS):
        return shown
    path, root = Path(shown.removeprefix(_ROCKS)).absolute(), data.absolute()
    return _ROCKS + str(path.relative_to(root) if path.is_relative_to(root) else path)


def address_of(place: str, data: Path) -> str:
    """The address of the store that was noted at this place."""
    return f"{_ROCKS}{data / place.removeprefix(_ROCKS)}" if place.startswith(_ROCKS) else place


def is_there(url: str) -> bool:
    """Whether there is a store at this address, as far as that can be seen from outside."""
    return not url.startswith(_ROCKS) or (Path(url.removeprefix(_ROCKS)) / _DATABASE).is_dir()


def own_stores(data: Path, count: int | None) -> list[str]:
    """The stores of a data folder: every one that is there, and `count` of them where there are fewer."""
    folder = data / "stores"
    found = [path.name for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    names = sorted({*found, *map(str, range(count or 0))}, key=_by_number)
    return [f"{_ROCKS}{folder / name}" for name in names]


def _by_number(name: str) -> tuple[int, str]:
    return (int(name), "") if name.isdecimal() else (1 << 62, name)
