"""The user's own function, found by `module:function`: the one place where something is imported by name.

The file is its owner's and so is the function; the file's own folder is searched as well, and a module found there
travels to Spark's workers.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from polybus.errors import ConfigError

ENTRY: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
ENTRY_RULE: Final = "module:function, such as my.package:enrich"


def function_of(entry: str, folder: Path) -> Callable[..., Any]:
    """The function; ConfigError where the module, or the function in it, is not there."""
    module_name, _, name = entry.partition(":")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ConfigError(f"entry {entry!r}: the module cannot be imported: {error}") from None
    found = getattr(module, name, None)
    if not callable(found):
        raise ConfigError(f"entry {entry!r}: the module {module_name!r} has no function {name!r}")
    return found  # type: ignore[no-any-return]


def module_file(entry: str, folder: Path) -> Path | None:
    """The file of a module that lies beside the declaration, which workers do not find by themselves."""
    top = entry.partition(":")[0].partition(".")[0]
    plain = folder / f"{top}.py"
    return plain if plain.is_file() else None
