"""Tables of Spark's catalogue over a bus: created once in SQL, then read, streamed and inserted into by name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusMessage
from pyspark.errors import AnalysisException

from tests.spark.kit import CONNECTION_VARIABLE, Kit


@pytest.fixture
def table(kit: Kit) -> Iterator[str]:
    """A table over a queue; the connection string stays in the environment."""
    kit.spark.sql(
        f"CREATE TABLE bus_orders USING servicebus OPTIONS (connectionStringEnv '{CONNECTION_VARIABLE}',"
        f" entity '{kit.queue()}', columns 'message_id, subject, properties, body', waitSeconds '30')"
    )
    yield "bus_orders"
    kit.spark.sql("DROP TABLE bus_orders")


def test_a_table_is_read_by_its_name(kit: Kit, table: str) -> None:
    kit.send(kit._name, [ServiceBusMessage("first", message_id="1", subject="s")])
    rows = kit.spark.sql(f"SELECT message_id, subject, cast(body AS string) AS body FROM {table}").collect()
    assert [tuple(row) for row in rows] == [("1", "s", "first")]


def test_a_table_is_a_stream_too(kit: Kit, table: str) -> None:
    kit.send(kit._name, [ServiceBusMessage("one", message_id="1", application_properties={"colour": "red"})])
    frame = kit.spark.readStream.table(table).selectExpr("message_id", "properties", "cast(body AS string) AS body")
    kit.run(frame, "parquet", path=str(kit.folder / "out"))
    (row,) = kit.spark.read.parquet(str(kit.folder / "out")).collect()
    assert (row.message_id, row.properties, row.body) == ("1", {"colour": "red"}, "one")


def test_rows_are_inserted_as_messages(kit: Kit, table: str) -> None:
    kit.spark.sql(f"INSERT INTO {table} VALUES ('7', 'news', map('colour', 'blue'), cast('inserted' AS binary))")
    (message,) = kit.drain(kit._name, 1)
    assert (message.message_id, message.subject, str(message)) == ("7", "news", "inserted")


def test_a_connection_string_is_not_written_into_the_catalogue(kit: Kit) -> None:
    with pytest.raises(AnalysisException, match="connectionStringEnv"):
        kit.spark.sql(
            "CREATE TABLE bus_leaks USING servicebus OPTIONS"
            f" (connectionString '{kit.server.connection_string}', entity 'orders')"
        )


def test_an_unknown_option_of_a_table_is_refused(kit: Kit) -> None:
    with pytest.raises(AnalysisException, match="there is no option 'entitty'"):
        kit.spark.sql(
            f"CREATE TABLE bus_typo USING servicebus OPTIONS (connectionStringEnv '{CONNECTION_VARIABLE}', entitty 'x')"
        )
