"""Tables: what `CREATE TABLE ... USING servicebus` must remember, so that the table can be read later.

Spark asks for the schema of a new table with the table's options, among properties of its own, and keeps both in its
catalogue; but when the table is read it hands the source the schema alone. So the options travel in the schema, as
metadata of its first column. A catalogue is read by many: an option that holds a secret is refused there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import StructField, StructType

from polybus.errors import ConfigError

_OPTION: Final = "option."
"""Before a table's options, as Spark hands them over with the table's properties."""
_PROVIDER: Final = "provider"
"""A property that only tables have."""
_METADATA: Final = "polybus.options"


def is_table(options: Mapping[str, str]) -> bool:
    """Whether these are the properties of a table."""
    return any(name.lower() == _PROVIDER for name in options)


def table_options(properties: Mapping[str, str]) -> dict[str, str]:
    """The options that the table was created with."""
    folded = {name.lower(): value for name, value in properties.items()}
    options = {name.removeprefix(_OPTION): value for name, value in folded.items() if name.startswith(_OPTION)}
    if "connectionstring" in options:
        raise ConfigError(
            "a table's options are kept in Spark's catalogue, for everybody to see: name the environment variable that"
            " holds the connection string with the option 'connectionStringEnv' instead"
        )
    return options


def remembered(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The schema with the options in it."""
    first, *others = schema.fields
    kept = StructField(first.name, first.dataType, first.nullable, {_METADATA: dict(options)})
    return StructType([kept, *others])


def recalled(schema: StructType) -> dict[str, str]:
    """The options of the table that has this schema; none where it is no table's."""
    return {} if not schema.fields else schema.fields[0].metadata.get(_METADATA, {})


def over(table: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """A table's options, and above them those of one query."""
    return {**table, **{name.lower(): value for name, value in options.items()}}
