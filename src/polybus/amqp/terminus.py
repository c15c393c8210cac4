"""The two ends of a link. Fields that nobody interprets are kept as decoded, so that the echo is exact.

AMQP 1.0 §3.5.3, §3.5.4, §4.5.1; docs/protocol/amqp.md#attach.
"""

from __future__ import annotations

from polybus.amqp.fields import at, described_list, invalid, map_at, text_at
from polybus.amqp.types import Described, ULong, symbols

_SOURCE_FIELDS = 11
_TARGET_FIELDS = 7


class Source:
    """Where a link's messages come from; `others` holds its remaining fields by their place in the list."""

    def __init__(
        self,
        address: str | None = None,
        filter: dict[object, object] | None = None,  # noqa: A002  the field's own name
        others: list[object] | None = None,
    ) -> None:
        self.address = address
        self.filter = filter
        self.others = others

    @property
    def dynamic(self) -> bool:
        """Whether the peer asks for a node that is made for this link."""
        return at(self.others or [], 4) is True

    @property
    def durable(self) -> bool:
        """Whether the terminus is to outlive the link: one that keeps its configuration, or more."""
        kept = at(self.others or [], 1)
        return isinstance(kept, int) and kept > 0

    @property
    def distribution_mode(self) -> str | None:
        mode = at(self.others or [], 6)
        return str(mode) if isinstance(mode, str) else None

    @property
    def default_outcome(self) -> object:
        """What becomes of deliveries that nobody has decided on when the link ends. AMQP 1.0 §3.5.3."""
        return at(self.others or [], 8)

    @property
    def capabilities(self) -> list[str]:
        return symbols(at(self.others or [], 10))

    def described(self) -> Described:
        fields = _padded(self.others, _SOURCE_FIELDS)
        fields[0] = self.address
        fields[7] = self.filter
        return Described(ULong(0x28), fields)


class Target:
    """Where a link's messages go."""

    def __init__(self, address: str | None = None, others: list[object] | None = None) -> None:
        self.address = address
        self.others = others

    @property
    def dynamic(self) -> bool:
        return at(self.others or [], 4) is True

    @property
    def capabilities(self) -> list[str]:
        return symbols(at(self.others or [], 6))

    def described(self) -> Described:
        fields = _padded(self.others, _TARGET_FIELDS)
        fields[0] = self.address
        return Described(ULong(0x29), fields)


class Coordinator:
    """The target of a link that controls transactions."""

    def __init__(self, capabilities: object = None) -> None:
        self.capabilities = capabilities

    def described(self) -> Described:
        return Described(ULong(0x30), [self.capabilities])


def _padded(others: list[object] | None, count: int) -> list[object]:
    fields = list(others or [])[:count]
    return fields + [None] * (count - len(fields))


def source_from(value: object) -> Source | None:
    if value is None:
        return None
    code, fields = described_list(value)
    if code != 0x28:
        raise invalid("a source is expected")
    return Source(text_at(fields, 0), map_at(fields, 7), fields)


def target_from(value: object) -> Target | Coordinator | None:
    if value is None:
        return None
    code, fields = described_list(value)
    if code == 0x29:
        return Target(text_at(fields, 0), fields)
    if code == 0x30:
        return Coordinator(at(fields, 0))
    raise invalid("a target is expected")
