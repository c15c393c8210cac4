"""The frames' bodies that make and unmake connections, sessions and links, as typed classes.

Each class has `from_fields`, liberal in what it takes, and `fields`, which always gives every field of the
specification with nulls explicit, because older SDKs index into the list (docs/protocol/amqp.md#full-lists).
AMQP 1.0 §2.7, §5.3.3.
"""

from __future__ import annotations

from typing import Final

from polybus.amqp.fields import (
    ULONG_MAX,
    at,
    bool_at,
    invalid,
    map_at,
    needed_uint_at,
    number_at,
    text_at,
    uint_at,
)
from polybus.amqp.outcomes import AmqpError, error_described, error_from
from polybus.amqp.terminus import Coordinator, Source, Target, source_from, target_from
from polybus.amqp.types import UByte, UInt, ULong, UShort, symbol_array, symbols

OPEN: Final = 0x10
BEGIN: Final = 0x11
ATTACH: Final = 0x12
FLOW: Final = 0x13
TRANSFER: Final = 0x14
DISPOSITION: Final = 0x15
DETACH: Final = 0x16
END: Final = 0x17
CLOSE: Final = 0x18


def uint_or_null(value: int | None) -> object:
    return None if value is None else UInt(value)


class Performative:
    """One frame's body."""

    def code(self) -> int:
        raise NotImplementedError

    def fields(self) -> list[object]:
        raise NotImplementedError


class Open(Performative):
    """AMQP 1.0 §2.7.1."""

    def __init__(
        self,
        container_id: str,
        hostname: str | None = None,
        max_frame_size: int = 0xFFFF_FFFF,
        channel_max: int = 0xFFFF,
        idle_time_out: int | None = None,
        properties: dict[object, object] | None = None,
        offered: list[str] | None = None,
        desired: list[str] | None = None,
    ) -> None:
        self.offered = offered or []
        self.desired = desired or []
        self.container_id = container_id
        self.hostname = hostname
        self.max_frame_size = max_frame_size
        self.channel_max = channel_max
        self.idle_time_out = idle_time_out
        self.properties = properties

    @staticmethod
    def from_fields(fields: list[object]) -> Open:
        frame_size = uint_at(fields, 2)
        channel_max = number_at(fields, 3, 0xFFFF)
        return Open(
            text_at(fields, 0) or "",
            text_at(fields, 1),
            0xFFFF_FFFF if frame_size is None else frame_size,
            0xFFFF if channel_max is None else channel_max,
            uint_at(fields, 4),
            map_at(fields, 9),
            symbols(at(fields, 7)),
            symbols(at(fields, 8)),
        )

    def code(self) -> int:
        return OPEN

    def fields(self) -> list[object]:
        sizes: list[object] = [UInt(self.max_frame_size), UShort(self.channel_max), uint_or_null(self.idle_time_out)]
        capabilities = [symbol_array(names) if names else None for names in (self.offered, self.desired)]
        return [self.container_id, self.hostname, *sizes, None, None, *capabilities, self.properties]


class Begin(Performative):
    """AMQP 1.0 §2.7.2."""

    def __init__(
        self,
        next_outgoing_id: int,
        incoming_window: int,
        outgoing_window: int,
        handle_max: int = 0xFFFF_FFFF,
        remote_channel: int | None = None,
        properties: dict[object, object] | None = None,
    ) -> None:
        self.next_outgoing_id = next_outgoing_id
        self.incoming_window = incoming_window
        self.outgoing_window = outgoing_window
        self.handle_max = handle_max
        self.remote_channel = remote_channel
        self.properties = properties

    @staticmethod
    def from_fields(fields: list[object]) -> Begin:
        handle_max = uint_at(fields, 4)
        return Begin(
            needed_uint_at(fields, 1),
            needed_uint_at(fields, 2),
            needed_uint_at(fields, 3),
            0xFFFF_FFFF if handle_max is None else handle_max,
            number_at(fields, 0, 0xFFFF),
            map_at(fields, 7),
        )

    def code(self) -> int:
        return BEGIN

    def fields(self) -> list[object]:
        channel = None if self.remote_channel is None else UShort(self.remote_channel)
        windows: list[object] = [UInt(self.incoming_window), UInt(self.outgoing_window), UInt(self.handle_max)]
        return [channel, UInt(self.next_outgoing_id), *windows, None, None, self.properties]


class Attach(Performative):
    """AMQP 1.0 §2.7.3. `role` is true when the author of the frame receives."""

    def __init__(
        self,
        name: str,
        handle: int,
        role: bool,
        source: Source | None = None,
        target: Target | Coordinator | None = None,
        snd_settle_mode: int | None = None,
        rcv_settle_mode: int | None = None,
        initial_delivery_count: int | None = None,
        max_message_size: int | None = None,
        properties: dict[object, object] | None = None,
        desired_capabilities: object = None,
    ) -> None:
        self.name = name
        self.handle = handle
        self.role = role
        self.source = source
        self.target = target
        self.snd_settle_mode = snd_settle_mode
        self.rcv_settle_mode = rcv_settle_mode
        self.initial_delivery_count = initial_delivery_count
        self.max_message_size = max_message_size
        self.properties = properties
        self.desired_capabilities = desired_capabilities

    @staticmethod
    def from_fields(fields: list[object]) -> Attach:
        name = text_at(fields, 0)
        if name is None or at(fields, 2) is None:
            raise invalid("an attach needs a name and a role")
        return Attach(
            name,
            needed_uint_at(fields, 1),
            bool_at(fields, 2),
            source_from(at(fields, 5)),
            target_from(at(fields, 6)),
            number_at(fields, 3, 2),
            number_at(fields, 4, 1),
            uint_at(fields, 9),
            number_at(fields, 10, ULONG_MAX),
            map_at(fields, 13),
            at(fields, 12),
        )

    def code(self) -> int:
        return ATTACH

    def fields(self) -> list[object]:
        modes = [None if mode is None else UByte(mode) for mode in (self.snd_settle_mode, self.rcv_settle_mode)]
        size = None if self.max_message_size is None else ULong(self.max_message_size)
        return [
            self.name,
            UInt(self.handle),
            self.role,
            *modes,
            None if self.source is None else self.source.described(),
            None if self.target is None else self.target.described(),
            None,
            None,
            uint_or_null(self.initial_delivery_count),
            size,
            None,
            self.desired_capabilities,
            self.properties,
        ]


class Detach(Performative):
    """AMQP 1.0 §2.7.7."""

    def __init__(self, handle: int, closed: bool = False, error: AmqpError | None = None) -> None:
        self.handle = handle
        self.closed = closed
        self.error = error

    @staticmethod
    def from_fields(fields: list[object]) -> Detach:
        return Detach(needed_uint_at(fields, 0), bool_at(fields, 1), error_from(at(fields, 2)))

    def code(self) -> int:
        return DETACH

    def fields(self) -> list[object]:
        return [UInt(self.handle), self.closed, error_described(self.error)]


class End(Performative):
    """AMQP 1.0 §2.7.8."""

    def __init__(self, error: AmqpError | None = None) -> None:
        self.error = error

    @staticmethod
    def from_fields(fields: list[object]) -> End:
        return End(error_from(at(fields, 0)))

    def code(self) -> int:
        return END

    def fields(self) -> list[object]:
        return [error_described(self.error)]


class Close(Performative):
    """AMQP 1.0 §2.7.9."""

    def __init__(self, error: AmqpError | None = None) -> None:
        self.error = error

    @staticmethod
    def from_fields(fields: list[object]) -> Close:
        return Close(error_from(at(fields, 0)))

    def code(self) -> int:
        return CLOSE

    def fields(self) -> list[object]:
        return [error_described(self.error)]
