from __future__ import annotations

import datetime
import json

import pytest
import typer
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError, ServiceRequestError
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
)

from polybus.cli.explaining import sdk_failure
from polybus.cli.output import REFUSED, UNREACHABLE, USAGE, CommandFailure, CommandOutput, one_line_errors, plain
from polybus.cli.overview import bar
from polybus.errors import ConfigError, EntityNotFound, StoreError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CommandFailure("text", 3), 3),
        (EntityNotFound("text"), REFUSED),
        (StoreError("text"), USAGE),
        (ConfigError("text"), USAGE),
        (OSError("text"), USAGE),
        (ValueError("text"), USAGE),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_an_error_is_one_line_and_a_code(error: Exception, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as caught, one_line_errors():
        raise error
    assert caught.value.exit_code == code
    assert capsys.readouterr().err == "polybus: text\n"


def test_our_own_faults_are_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError), one_line_errors():
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (ServiceRequestError("refused"), UNREACHABLE, "here does not answer: refused"),
        (ServiceRequestError("x CERTIFICATE_VERIFY_FAILED y"), USAGE, "not trusted"),
        (ServiceBusConnectionError(message="gone"), UNREACHABLE, "here does not answer: gone"),
        (ServiceBusAuthenticationError(message="no"), REFUSED, "no"),
        (MessagingEntityNotFoundError(message="no Error condition: amqp:not-found."), REFUSED, "no"),
        (ResourceNotFoundError("nothing there"), REFUSED, "nothing there"),
        (HttpResponseError("bad\nContent: <Error><Detail>x</Detail></Error>"), REFUSED, "x"),
        (HttpResponseError("bad\nContent: y"), REFUSED, "bad"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_errors_of_the_sdk(error: Exception, code: int, says: str) -> None:
    failure = sdk_failure(error, "here")
    assert failure is not None
    assert (failure.code, says in str(failure)) == (code, True), str(failure)
    assert "Error condition" not in str(failure)


def test_other_errors_are_not_the_sdks() -> None:
    assert sdk_failure(ValueError("x"), "here") is None


def test_values_in_json() -> None:
    moment = datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC)
    assert plain(datetime.timedelta(minutes=1)) == "PT1M"
    assert plain(datetime.timedelta.max) == "P10675199DT2H48M5.4775807S"
    assert plain(moment) == "2026-01-31T00:00:00+00:00"
    assert plain(b"text") == "text"
    assert plain({"a": 1}) == {"a": 1}


def test_results_are_sentences_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    CommandOutput(False).result({"a": 1}, "done")
    assert capsys.readouterr().out == "done\n"
    CommandOutput(True).result({"a": datetime.timedelta(seconds=1)}, "done")
    assert json.loads(capsys.readouterr().out) == {"a": "PT1S"}


def test_tables_show_values_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("[red]x[/red]", True, 1_000_000, None), ("y", False, 0, datetime.timedelta.max)]
    CommandOutput(False).table("", ("name", "flag", "#count", "end"), rows)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["name", "flag", "count", "end"]
    assert lines[1].split() == ["[red]x[/red]", "yes", "1,000,000", "-"]
    assert lines[2].split() == ["y", "no", "0", "never"]


def test_bars_show_the_spread() -> None:
    assert bar(10, 10) == "█" * 12
    assert bar(5, 10) == "█" * 6
    assert bar(1, 1_000_000) == "▏"
    assert bar(0, 10) == bar(0, 0) == ""
