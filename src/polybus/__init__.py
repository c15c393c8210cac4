"""Polybus: a service bus that speaks Azure Service Bus's own protocols, with partitioned queues and topics.

What is listed in `__all__` is for everybody and stays; the rest of the package is the bus's inside and may change.
`polybus.testing` holds what tests may import besides.
"""

from typing import TYPE_CHECKING

from polybus._compiled import install as _install

if TYPE_CHECKING:
    from polybus import errors
    from polybus.server import Server, ServerOptions

__all__ = ["BUILD", "Server", "ServerOptions", "__version__", "errors"]

__version__ = "0.1.0.dev0"

BUILD = _install()
"""`compiled` or `plain`: which build of the hot rooms this process runs."""


def __getattr__(name: str) -> object:
    """Loads what is asked for, and no sooner: importing the package costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    if name == "errors":
        return importlib.import_module("polybus.errors")
    return getattr(importlib.import_module("polybus.server"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
