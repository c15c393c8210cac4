"""What a namespace of each tier may hold: sizes, partitions, features (A7 to A14).

A partitioned entity of Basic or Standard has `partitions` partitions, each of the size that was chosen, so
the whole is larger. Premium has none, unless `premium_partitions` asks for the rule of 2017: then every
entity has that many, and the chosen size is shared out over them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from polybus import limits
from polybus.errors import ArgumentError
from polybus.limits import INFINITE_MS
from polybus.namespace.entities.description import EntityDescription

STANDARD_SIZES_MB = (1024, 2048, 3072, 4096, 5120)
PREMIUM_SIZES_MB = (1024, 2048, 3072, 4096, 5120, 10240, 20480, 40960, 81920)


class TierName(enum.Enum):
    """The value is what `$namespaceinfo` calls the messaging SKU."""

    BASIC = "Basic"
    STANDARD = "Standard"
    PREMIUM = "Premium"


@dataclass(frozen=True)
class Tier:
    name: TierName = TierName.STANDARD
    partitions: int = limits.PARTITIONS_STANDARD
    premium_partitions: int | None = None

    def __post_init__(self) -> None:
        for count in (self.partitions, 1 if self.premium_partitions is None else self.premium_partitions):
            if not 1 <= count <= limits.PARTITIONS_MAX:
                raise ArgumentError(
                    f"The number of partitions must be between 1 and {limits.PARTITIONS_MAX}, not {count}."
                )
        if self.premium_partitions is not None and PREMIUM_SIZES_MB[0] % self.premium_partitions:
            raise ArgumentError(
                "Premium partitions share the size that was chosen evenly: their number must be a power of two up to"
                f" {PREMIUM_SIZES_MB[0]}, not {self.premium_partitions}."
            )

    @property
    def is_premium(self) -> bool:
        return self.name is TierName.PREMIUM

    @property
    def is_basic(self) -> bool:
        return self.name is TierName.BASIC

    @property
    def has_topics(self) -> bool:
        return not self.is_basic

    @property
    def always_partitioned(self) -> bool:
        return self.is_premium and self.premium_partitions is not None

    @property
    def may_ask_for_partitioning(self) -> bool:
        return not self.is_premium or self.always_partitioned

    @property
    def sizes_mb(self) -> tuple[int, ...]:
        return PREMIUM_SIZES_MB if self.is_premium else STANDARD_SIZES_MB

    @property
    def message_kilobytes(self) -> int:
        """An entity's MaxMessageSizeInKilobytes when nothing else was asked for."""
        size = limits.PREMIUM_MESSAGE_BYTES if self.is_premium else limits.STANDARD_MESSAGE_BYTES
        return size // 1024

    @property
    def time_to_live_ms_max(self) -> int:
        return limits.BASIC_TIME_TO_LIVE_MS if self.is_basic else INFINITE_MS

    @property
    def entities_max(self) -> int | None:
        """How many queues and topics a namespace may have (A11); None for no limit."""
        return None if self.is_premium else limits.ENTITIES

    @property
    def partitioned_entities_max(self) -> int:
        return limits.PARTITIONED_ENTITIES

    def partition_count(self, *, partitioned: bool) -> int:
        """How many partitions an entity gets that is created now."""
        if self.always_partitioned:
            return self.premium_partitions or 1
        return self.partitions if partitioned else 1

    def message_bytes(self, description: EntityDescription) -> int:
        """The largest message that the entity takes."""
        return (description.max_message_size_in_kilobytes or self.message_kilobytes) * 1024


BASIC = Tier(TierName.BASIC)
STANDARD = Tier(TierName.STANDARD)
PREMIUM = Tier(TierName.PREMIUM)


def tier_named(
    text: str, *, partitions: int = limits.PARTITIONS_STANDARD, premium_partitions: int | None = None
) -> Tier:
    """The tier that a command line or a file calls `basic`, `standard` or `premium`."""
    for name in TierName:
        if name.value.lower() == text.lower():
            return Tier(name, partitions, premium_partitions)
    raise ArgumentError(f"There is no tier {text[:40]!r}; it is one of basic, standard, premium.")
