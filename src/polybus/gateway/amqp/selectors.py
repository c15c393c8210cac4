"""The selector of a receiving link: a filter of its source, in whichever of its forms a client writes it.

It is known by its descriptor, and by its name where it has none. What is in force goes back in the answer, in the
client's own form; filters that nobody here knows are left out of it, so that the client sees that they are not.
AMQP 1.0 §3.5.8; docs/protocol/amqp.md#filters.
"""

from __future__ import annotations

from typing import Final

from polybus.amqp.terminus import Source
from polybus.amqp.types import Described
from polybus.errors import ArgumentError
from polybus.rules.selectors import selector_sql

SELECTOR: Final = "apache.org:selector-filter:string"
SELECTOR_CODE: Final = 0x0000468C00000004


def selector_of(source: Source | None) -> str | None:
    """The selector as the text of an SQL filter; None where there is none."""
    name = _selector_name(source)
    if source is None or source.filter is None or name is None:
        return None
    value = source.filter[name]
    text = value.value if isinstance(value, Described) else value
    if not isinstance(text, str):
        raise ArgumentError("The selector is not a string.")
    return selector_sql(text) if text.strip() else None


def _selector_name(source: Source | None) -> object:
    """The key under which a source has a selector."""
    for name, value in ((source.filter if source is not None else None) or {}).items():
        descriptor = value.descriptor if isinstance(value, Described) else name
        if descriptor == SELECTOR or (descriptor == SELECTOR_CODE and not isinstance(descriptor, str)):
            return name
    return None


def in_force(source: Source | None, selects: bool) -> Source:
    """The source as it is answered: of its filters only the selector, and only where it is applied."""
    given = source or Source()
    name = _selector_name(given) if selects else None
    filters = None if name is None or given.filter is None else {name: given.filter[name]}
    return Source(given.address, filters, given.others)
