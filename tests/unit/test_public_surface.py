"""What the package shows to everybody: this list, loaded when it is asked for and not before."""

from __future__ import annotations

import subprocess
import sys

import pytest

import polybus

PUBLIC = ["BUILD", "Server", "ServerOptions", "__version__", "errors"]


def test_the_public_names_are_these() -> None:
    assert polybus.__all__ == PUBLIC
    assert set(PUBLIC) <= set(dir(polybus))
    for name in PUBLIC:
        assert getattr(polybus, name) is not None


def test_whatever_is_not_public_is_not_there() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Node'"):
        polybus.Node  # type: ignore[attr-defined]  # noqa: B018


def loaded_after(statement: str) -> list[str]:
    look = f"import sys; {statement}; print(*sorted(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    return ran.stdout.split()


def test_importing_the_package_loads_no_room() -> None:
    own = [name for name in loaded_after("import polybus") if name.startswith("polybus")]
    assert own == ["polybus", "polybus._compiled"]


def test_naming_a_server_loads_no_bus() -> None:
    """A program that only passes options on does not pay for stores, TLS and HTTP."""
    loaded = loaded_after("from polybus import Server, ServerOptions; ServerOptions(); Server()")
    assert [
        name for name in loaded if name.split(".")[0] in ("starlette", "uvicorn", "cryptography", "rocksdict")
    ] == []
