"""Options: the names people know, their types, and clear words where one is wrong."""

from __future__ import annotations

import pickle

import pytest

from polybus.errors import ConfigError
from polybus.spark.connection import BusConnection
from polybus.spark.options import sink_options, source_options

STRING = "Endpoint=sb://127.0.0.1:5672;SharedAccessKeyName=root;SharedAccessKey=secret;UseDevelopmentEmulator=true;"
GIVEN = {"connectionString": STRING, "entity": "orders"}


def test_two_options_are_enough() -> None:
    options = source_options(GIVEN)
    assert (options.place.entity, options.cursor, options.start, options.fail_on_data_loss) == (
        "orders",
        "spark",
        "earliest",
        True,
    )
    assert sink_options(GIVEN).delivery == "transactional"


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("consumerGroup", "lake", "cursor", "lake"),
        ("maxOffsetsPerTrigger", "50", "max_messages", 50),
        ("MAXMESSAGESPERTRIGGER", "50", "max_messages", 50),
        ("maxBytesPerTrigger", "256m", "max_bytes", 256 << 20),
        ("maxBytesPerTrigger", "10", "max_bytes", 10),
        ("maxBytesPerTrigger", "2GiB", "max_bytes", 2 << 30),
        ("startingOffsets", "latest", "start", "latest"),
        ("startingOffsets", '{"0": 41, "03": 7}', "start", {0: 41, 3: 7}),
        ("startingTimestamp", "1700000000000", "start_time", "2023-11-14T22:13:20.000Z"),
        ("startingTimestamp", "2023-11-14T22:13:20", "start_time", "2023-11-14T22:13:20.000Z"),
        ("startingTimestamp", "2023-11-14T23:13:20+01:00", "start_time", "2023-11-14T22:13:20.000Z"),
        ("state", "active|deferred", "states", ("active", "deferred")),
        ("columns", "partition, body", "columns", ("partition", "body")),
        ("failOnDataLoss", "False", "fail_on_data_loss", False),
    ],
)
def test_options_of_the_source(name: str, value: str, field: str, expected: object) -> None:
    assert getattr(source_options({**GIVEN, name: value}), field) == expected


@pytest.mark.parametrize("left_out", ["properties", "body"])
def test_columns_can_be_left_out(left_out: str) -> None:
    name = {"properties": "includeHeaders", "body": "includeBody"}[left_out]
    assert left_out in source_options(GIVEN).columns
    assert left_out not in source_options({**GIVEN, name: "false"}).columns


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"connectionString": ""}, "'connectionString'"),
        ({"entity": ""}, "'entity' is missing"),
        ({"connectionString": "nonsense"}, "must have the form"),
        ({"connectionString": "Endpoint=sb://h;SharedAccessKeyName=a"}, "SharedAccessKey"),
        ({"maxMessagesPerTriger": "5"}, "no option 'maxmessagespertriger'"),
        ({"maxMessagesPerTrigger": "0"}, "from 1"),
        ({"maxMessagesPerTrigger": "many"}, "from 1"),
        ({"maxBytesPerTrigger": "5 cows"}, "a size such as"),
        ({"startingOffsets": "newest"}, "earliest, latest"),
        ({"startingOffsets": "[]"}, "earliest, latest"),
        ({"startingOffsets": '{"0": -1}'}, "earliest, latest"),
        ({"startingTimestamp": "noon"}, "an ISO time"),
        ({"failOnDataLoss": "perhaps"}, "true or false"),
        ({"state": "active|gone"}, "one or several of"),
        ({"columns": "body,nothing"}, "nothing"),
        ({"columns": "body,body"}, "may come once"),
        ({"asyncProgressTrackingEnabled": "true"}, "cannot be used"),
        ({"cursor": "x" * 129}, "1 to 128"),
    ],
)
def test_a_wrong_option_is_named(changes: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        source_options({**GIVEN, **changes}).place.connect()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"delivery": "exactlyOnce"}, "transactional, idempotent, atLeastOnce"),
        ({"cursor": "c"}, "no option 'cursor'"),
    ],
)
def test_a_wrong_option_of_the_sink_is_named(changes: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        sink_options({**GIVEN, **changes})


def test_the_connection_string_may_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"connectionStringEnv": "BUS", "entity": "orders"}
    with pytest.raises(ConfigError, match="'BUS'"):
        source_options(given)
    monkeypatch.setenv("BUS", STRING)
    assert source_options(given).place.connect().port == 5672


def test_the_entity_may_stand_in_the_connection_string() -> None:
    assert source_options({"connectionString": f"{STRING}EntityPath=other"}).place.entity == "other"


def test_no_text_shows_the_key() -> None:
    options = source_options(GIVEN)
    assert "secret" not in repr(options) + repr(options.place.connect())
    assert "secret" not in options.place.connect().token()


@pytest.mark.parametrize(
    ("string", "tls", "port"),
    [
        (STRING, False, 5672),
        ("Endpoint=sb://bus.example;SharedAccessKeyName=a;SharedAccessKey=b", True, 443),
        ("Endpoint=sb://[::1]:99;SharedAccessKeyName=a;SharedAccessKey=b", True, 99),
    ],
)
def test_emulators_are_spoken_to_in_clear_text_and_others_over_tls(string: str, tls: bool, port: int) -> None:
    connection = BusConnection(string)
    assert (connection.tls, connection.port) == (tls, port)


def test_options_travel_to_tasks() -> None:
    options = source_options(GIVEN)
    assert pickle.loads(pickle.dumps(options)) == options
