"""Bodies taken apart: columns beside the raw bytes, by a schema that is given, or inferred once and kept.

What does not fit is told apart with a reason, row by row, so that nothing is dropped and nothing stops the capture. The
kept schema is a file in the pipeline's folder; fields that come up later are added to it and never taken away, so a
column's type does not change: a value that is of another type goes to the quarantine.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from polybus.errors import ConfigError
from polybus.limits import BODY_SAMPLE_ROWS
from polybus.pipelines.fields import Fields
from polybus.pipelines.kind import Origin
from polybus.pipelines.object_stores import Location

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

JSON: Final = "json"
AVRO_BODY: Final = "avro"
TEXT: Final = "text"
CLOUDEVENTS: Final = "cloudevents"
KINDS: Final = (JSON, AVRO_BODY, TEXT, CLOUDEVENTS)
PREFIX: Final = "data_"
EVENT: Final = "event_"
REASON: Final = "quarantine_reason"
NOT_UTF8: Final = "the body is not UTF-8"
NOT_JSON: Final = "the body is not JSON of the schema"
NOT_AVRO: Final = "the body is not Avro of the schema"
NO_EVENT: Final = "the message is no CloudEvent"
_CORRUPT: Final = "_corrupt_record"
UNKNOWN: Final = "_unknown_fields"
_KEPT: Final = "body-schema.json"
_ATTRIBUTES: Final = ("specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema")
_BINARY_MODE: Final = ("cloudEvents:", "cloudEvents_", "ce-")
"""How attributes are called among a message's properties: by the AMQP binding, its form for picky clients, HTTP's."""


@dataclass(frozen=True)
class BodySettings:
    """The file's `body`: what the bodies are, and where what is not goes."""

    kind: str
    schema: str | None
    """DDL (`id BIGINT, total DOUBLE`), or an Avro schema; None: inferred."""
    quarantine: Location


def body_settings(fields: Fields, origin: Origin, table: Location) -> BodySettings | None:
    """Reads `body: json`, or `body: {as: json, schema: 'id BIGINT', quarantine: lake/bad}`."""
    told = fields.raw("body")
    beside = table.with_name(f"{table.name}-quarantine")
    if told is None:
        return None
    if isinstance(told, str):
        return _checked(fields, BodySettings(fields.word("body", KINDS), None, beside))
    own = fields.mapping("body")
    if own is None:
        fields.refuse("body", told, f"one of {', '.join(KINDS)}, or a mapping with 'as'")
    kind = own.word("as", KINDS)
    schema = own.text("schema", None)
    if own.has("schemaFile"):
        if schema is not None:
            own.refuse("schemaFile", own.text("schemaFile"), "either 'schema' or 'schemaFile'")
        schema = _file_text(own, origin.path(own.text("schemaFile")))
    if own.has("quarantine"):
        beside = origin.location(own, "quarantine", "a folder for what does not fit")
    own.close()
    return _checked(own, BodySettings(kind, schema, beside))


def _checked(fields: Fields, settings: BodySettings) -> BodySettings:
    if settings.kind == AVRO_BODY and settings.schema is None:
        fields.missing("schema", "the Avro schema in which bodies are written, or 'schemaFile'")
    if settings.kind == TEXT and settings.schema is not None:
        fields.refuse("schema", settings.schema, "nothing: text has no schema")
    return settings


def _file_text(fields: Fields, path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        fields.refuse("schemaFile", str(path), f"a file that can be read ({error.strerror})")


class Bodies:
    """The bodies of one pipeline, taken apart batch by batch."""

    def __init__(self, settings: BodySettings, folder: Path) -> None:
        self.settings = settings
        self._path = folder / _KEPT

    # The schema

    def schema(self) -> StructType | None:
        """The fields that are known: given, or kept from earlier batches; None where nothing is known yet."""
        from pyspark.sql.types import StructType

        if self.settings.kind == TEXT:
            return StructType.fromDDL("text STRING")
        if self.settings.kind == AVRO_BODY:
            from polybus.pipelines.avro_bodies import spark_fields

            return spark_fields(str(self.settings.schema))
        if self.settings.schema is not None:
            return given_schema(self.settings.schema)
        try:
            return StructType.fromJson(json.loads(self._path.read_text()))
        except FileNotFoundError:
            return None

    @property
    def inferred(self) -> bool:
        return self.settings.schema is None and self.settings.kind in (JSON, CLOUDEVENTS)

    def learn(self, frame: DataFrame) -> list[str]:
        """Adds the fields of a frame's bodies that are not known yet, keeps them, and says which those are."""
        found = inferred_schema(_payload(self.settings.kind, frame))
        known = self.schema()
        names = {field.name.lower() for field in known} if known is not None else set()
        new = [field for field in found if field.name.lower() not in names]
        if new:
            self._keep([*(known or []), *new])
        return [f"{field.name} {field.dataType.simpleString()}" for field in new]

    def _keep(self, fields: list[Any]) -> None:
        from pyspark.sql.types import StructType

        hidden = self._path.with_name(f".{_KEPT}")
        hidden.write_text(StructType(fields).json())
        hidden.replace(self._path)

    # Taking apart

    def typed(self, frame: DataFrame) -> DataFrame:
        """The frame with its bodies' columns, why a row does not fit, and whether it has fields that are not known."""
        from pyspark.sql import functions as F  # noqa: N812

        kind, schema = self.settings.kind, self.schema()
        if kind == TEXT:
            text = F.when(_is_utf8("body"), F.col("body").cast("string"))
            return frame.withColumns(
                {f"{PREFIX}text": text, REASON: F.when(~_is_utf8("body"), NOT_UTF8), UNKNOWN: F.lit(False)}
            )
        if kind == AVRO_BODY:
            from polybus.pipelines.avro_bodies import decoded

            return decoded(frame, str(self.settings.schema), PREFIX, REASON, NOT_AVRO).withColumn(
                UNKNOWN, F.lit(False)
            )
        if kind == CLOUDEVENTS:
            frame = _with_event(frame)
            return _with_json(frame, F.col("_event_data"), schema, F.col("_event_reason")).drop(
                "_event_data", "_event_reason"
            )
        return _with_json(frame, F.col("body").cast("string"), schema, F.when(~_is_utf8("body"), NOT_UTF8))


def given_schema(text: str) -> StructType:
    from pyspark.sql.types import StructType

    try:
        return StructType.fromJson(json.loads(text)) if text.lstrip().startswith("{") else StructType.fromDDL(text)
    except Exception as error:  # Spark's parser raises what Java gives it
        raise ConfigError(f"the schema of 'body' cannot be read: {str(error).splitlines()[0]}") from None


def inferred_schema(texts: DataFrame) -> StructType:
    """The fields of JSON texts as Spark infers them from a sample."""
    from pyspark.sql.types import StructType

    lines = texts.limit(BODY_SAMPLE_ROWS).rdd.map(lambda row: row[0])
    found = texts.sparkSession.read.option("columnNameOfCorruptRecord", _CORRUPT).json(lines).schema
    return StructType([field for field in found if field.name != _CORRUPT])


def _payload(kind: str, frame: DataFrame) -> DataFrame:
    """The JSON texts of a frame, in one column."""
    from pyspark.sql import functions as F  # noqa: N812

    if kind == CLOUDEVENTS:
        return _with_event(frame).where("_event_reason is null and _event_data is not null").select("_event_data")
    return frame.where(_is_utf8("body")).select(F.col("body").cast("string"))


def _is_utf8(column: str) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    return F.expr(f"is_valid_utf8({column})")


def _with_json(frame: DataFrame, text: Column, schema: StructType | None, reason: Column) -> DataFrame:
    """Columns of JSON texts. A row without a text (an event without data) has nulls; `reason` is an earlier one."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import StringType, StructType

    fields = schema if schema is not None else StructType()
    wanted = StructType([*fields.fields]).add(_CORRUPT, StringType())
    parsed = F.from_json(text, wanted, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT})
    frame = frame.withColumns({"_text": text, "_parsed": parsed, "_reason": reason})
    corrupt = F.col("_text").isNotNull() & (F.col("_parsed").isNull() | F.col(f"_parsed.{_CORRUPT}").isNotNull())
    known = (
        F.array(*[F.lit(field.name) for field in fields])
        if fields.fields
        else F.expr("cast(array() as array<string>)")
    )
    unknown = F.size(F.array_except(F.json_object_keys("_text"), known)) > 0
    columns = {f"{PREFIX}{field.name}": F.col("_parsed").getField(field.name) for field in fields}
    columns[REASON] = F.coalesce(F.col("_reason"), F.when(corrupt, NOT_JSON))
    columns[UNKNOWN] = F.coalesce(unknown, F.lit(False))
    return frame.withColumns(columns).drop("_text", "_parsed", "_reason")


def _with_event(frame: DataFrame) -> DataFrame:
    """The attributes of CloudEvents, in structured mode (a JSON body) or binary mode (properties), and their data."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import StringType, StructType

    envelope = StructType()
    for name in (*_ATTRIBUTES, "data"):
        envelope.add(name, StringType())
    text = F.when(_is_utf8("body"), F.col("body").cast("string"))
    frame = frame.withColumns({"_envelope": F.from_json(text, envelope), "_text": text})
    structured = F.col("_envelope.specversion").isNotNull()
    columns = {}
    for name in _ATTRIBUTES:
        said = [F.col("properties").getItem(f"{prefix}{name}") for prefix in _BINARY_MODE]
        value = F.when(structured, F.col(f"_envelope.{name}")).otherwise(F.coalesce(*said))
        columns[f"{EVENT}{name}"] = value
    frame = frame.withColumns(columns)
    frame = frame.withColumn(f"{EVENT}time", F.try_to_timestamp(F.col(f"{EVENT}time")))
    data = F.when(structured, F.col("_envelope.data")).otherwise(F.col("_text"))
    missing = F.col(f"{EVENT}specversion").isNull() | F.col(f"{EVENT}id").isNull() | F.col(f"{EVENT}type").isNull()
    return frame.withColumns({"_event_data": data, "_event_reason": F.when(missing, NO_EVENT)}).drop(
        "_envelope", "_text"
    )
