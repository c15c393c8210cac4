"""Polybus: a service bus that speaks Azure Service Bus's own protocols, with partitioned queues and topics."""

from polybus._compiled import install as _install

__version__ = "0.1.0.dev0"

BUILD = _install()
"""`compiled` or `plain`: which build of the hot rooms this process runs."""
