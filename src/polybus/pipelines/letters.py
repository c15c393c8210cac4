"""Dead letters as a table of Spark: written once for each run, then filtered and repaired in SQL.

A run works on its own snapshot, so that what SQL decided and what was moved can be looked up together afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from polybus.errors import ConfigError
from polybus.pipelines.places import FORMAT, EntityReference
from polybus.pipelines.repairs import COLUMNS, PROPERTIES, PROPERTY, REDRIVES, Repaired
from polybus.pipelines.views import query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VIEW: Final = "letters"
NUMBER: Final = "sequence_number"
DESTINATION: Final = "destination"
_DIED: Final = "dead_letter_source is not null or dead_letter_reason is not null"
_COUNT: Final = f"coalesce(try_cast(properties['{REDRIVES}'] as int), 0)"


@dataclass(frozen=True)
class LetterSelection:
    """Which letters, and what is repaired of them: `where` with `repairs`, or a query of one's own."""

    where: str | None
    repairs: dict[str, str]
    """Column, or `properties.NAME`, to an expression."""
    sql: str | None
    max_redrives: int | None


def snapshot(session: SparkSession, entity: EntityReference, folder: Path) -> DataFrame:
    """Every letter that is there now, as the table of this run."""
    from polybus.spark.columns import COLUMNS as READ

    columns = ",".join([*READ, "reply_to_session_id"])
    found = session.read.format(FORMAT).options(**entity.options(columns=columns)).load().where(_DIED)
    found.write.mode("overwrite").parquet(str(folder))
    return session.read.parquet(str(folder))


def reasons(letters: DataFrame) -> list[tuple[str, str, int]]:
    """Reason, source and count, the most frequent first."""
    shown = letters.selectExpr(
        "coalesce(dead_letter_reason, '(none)') as reason", "coalesce(dead_letter_source, '(none)') as source"
    )
    rows = shown.groupBy("reason", "source").count().collect()
    return sorted(((row[0], row[1], row[2]) for row in rows), key=lambda row: (-row[2], row[:2]))


def chosen(session: SparkSession, letters: DataFrame, selection: LetterSelection) -> DataFrame:
    """Number, destination where SQL gives one, origin, redrives so far, old and new value of each repaired column."""
    kept = letters
    if selection.max_redrives is not None:
        kept = kept.where(f"{_COUNT} < {selection.max_redrives}")
    if selection.sql is not None:
        return _by_query(session, kept, selection.sql)
    if selection.where is not None:
        kept = kept.where(selection.where)
    pairs = [
        part
        for name, expression in selection.repairs.items()
        for part in (f"{_old(name)} as `old {name}`", f"({expression}) as `new {name}`")
    ]
    given = f"cast(null as string) as {DESTINATION}"
    return kept.selectExpr(NUMBER, given, "dead_letter_source", f"{_COUNT} as redrives", *pairs)


def _old(name: str) -> str:
    return "null" if name.startswith(PROPERTY) else f"`{name}`"


def _by_query(session: SparkSession, letters: DataFrame, sql: str) -> DataFrame:
    given = query(session, sql, {VIEW: letters})
    names = check_columns(given.columns)
    renamed = given.selectExpr(
        NUMBER,
        f"cast({DESTINATION if DESTINATION in given.columns else 'null'} as string) as {DESTINATION}",
        *(f"`{name}` as `new {name}`" for name in names),
    )
    olds = letters.selectExpr(
        NUMBER, "dead_letter_source", f"{_COUNT} as redrives", *(f"`{name}` as `old {name}`" for name in names)
    )
    pairs = [f"`{age} {name}`" for name in names for age in ("old", "new")]
    return olds.join(renamed, NUMBER).selectExpr(NUMBER, DESTINATION, "dead_letter_source", "redrives", *pairs)


def check_columns(columns: list[str]) -> list[str]:
    """The columns of a query that repair something; ConfigError where it gives others, or no number."""
    known = (NUMBER, DESTINATION, PROPERTIES, *COLUMNS)
    unknown = [name for name in columns if name not in known]
    if NUMBER not in columns or unknown or len(set(columns)) != len(columns):
        raise ConfigError(
            f"the query of a redrive must give {NUMBER}, and may give {', '.join(known[1:])}, each once;"
            f" it gives {', '.join(columns)}"
        )
    return [name for name in columns if name not in (NUMBER, DESTINATION)]


def count_once(plan: DataFrame) -> int:
    """How many letters a plan has; ConfigError where it has one twice, for then it is not clear how to repair it."""
    rows, numbers = plan.selectExpr("count(*)", f"count(distinct {NUMBER})").collect()[0]
    if rows != numbers:
        raise ConfigError(
            f"the query of a redrive gives {rows - numbers} letters more than once: make it give each once"
        )
    return int(rows)


def repaired_rows(plan: DataFrame, to: str | None, counting: bool) -> Iterator[Repaired]:
    """The letters of a plan, in order of their numbers, so that those of a session keep their order.

    Each goes where SQL says, else `to`, else to its origin.
    """
    names = [name.removeprefix("new ") for name in plan.columns if name.startswith("new ")]
    for row in plan.orderBy(NUMBER).toLocalIterator():
        values: dict[str, Any] = row.asDict()
        yield Repaired(
            number=values[NUMBER],
            destination=values[DESTINATION] or to or values["dead_letter_source"],
            redrives=values["redrives"] if counting else None,
            old={name: values[f"old {name}"] for name in names},
            new={name: values[f"new {name}"] for name in names},
        )
