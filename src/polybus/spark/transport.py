"""Requests to a bus over one kept connection, repeated while the bus is away or busy.

Every request of the bulk API may be repeated: reads change nothing, positions only grow, a stage that nobody knows
of expires, an epoch is published once. So a bus that restarts in the middle of a batch costs time and nothing else.
Refusals become the errors that the bus raised.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlencode

from polybus import errors
from polybus.limits import (
    SPARK_INTAKE_BYTES,
    SPARK_REQUEST_SECONDS,
    SPARK_RETRY_PAUSE_SECONDS,
    SPARK_RETRY_PAUSE_SECONDS_MAX,
)
from polybus.spark.connection import BusConnection

JSON_TYPE: Final = "application/json"
Query = dict[str, str | int]

_BY_SUB_CODE: dict[int, type[errors.BusError]] = {
    errors.CursorLeased.sub_code: errors.CursorLeased,
    errors.CursorTruncated.sub_code: errors.CursorTruncated,
    errors.ProducerFenced.sub_code: errors.ProducerFenced,
}
_BY_STATUS: dict[int, type[errors.BusError]] = {
    400: errors.ArgumentError,
    401: errors.Unauthorized,
    403: errors.QuotaExceeded,
    404: errors.EntityNotFound,
    408: errors.OperationTimeout,
    409: errors.EntityAlreadyExists,
    410: errors.EntityDeleted,
    501: errors.NotImplementedByBus,
    503: errors.ServerBusy,
}


class Patience:
    """How long something is tried again, with pauses that grow."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        """There was progress: the time begins anew."""
        self._deadline = time.monotonic() + self._seconds
        self._pause = SPARK_RETRY_PAUSE_SECONDS

    def wait(self) -> bool:
        """Pauses; False where the time is over."""
        if time.monotonic() + self._pause > self._deadline:
            return False
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, SPARK_RETRY_PAUSE_SECONDS_MAX)
        return True


class BulkTransport:
    """One connection to the bus, opened when it is needed and again when it breaks."""

    def __init__(self, connection: BusConnection, retry_seconds: float) -> None:
        self._connection = connection
        self._retry_seconds = retry_seconds
        self._http: http.client.HTTPConnection | None = None

    def close(self) -> None:
        kept, self._http = self._http, None
        if kept is not None:
            kept.close()

    def json(self, method: str, path: str, body: object = None, query: Query | None = None) -> dict[str, Any]:
        """What the bus answers, as JSON; an empty answer is an empty object."""
        content = None if body is None else json.dumps(body).encode()
        return self.send(method, path, query, content, JSON_TYPE)

    def send(self, method: str, path: str, query: Query | None, content: bytes | None, kind: str) -> dict[str, Any]:
        def work() -> dict[str, Any]:
            response = self._request(method, path, query, content, kind)
            text = response.read()
            found = json.loads(text) if text.strip() else {}
            return found if isinstance(found, dict) else {}

        found: dict[str, Any] = self.repeat(work)
        return found

    def stream(self, path: str, query: Query) -> http.client.HTTPResponse:
        """An answer that is read as it comes. Nothing else may be asked on this connection before its end."""
        return self._request("GET", path, query, None, JSON_TYPE)

    def repeat(self, work: Callable[[], Any]) -> Any:
        """Does it again while the bus cannot be reached or is busy, for as long as was agreed."""
        patience = Patience(self._retry_seconds)
        while True:
            try:
                return work()
            except (OSError, http.client.HTTPException, errors.ServerBusy, errors.OperationTimeout) as error:
                self.close()
                if not patience.wait():
                    raise _unreachable(error, self._connection) from error

    def _request(
        self, method: str, path: str, query: Query | None, content: bytes | None, kind: str
    ) -> http.client.HTTPResponse:
        if self._http is None:
            self._http = self._connection.open(SPARK_REQUEST_SECONDS)
        headers = {"Authorization": self._connection.token(), "Accept": JSON_TYPE}
        if content is not None:
            headers["Content-Type"] = kind
        target = f"{path}?{urlencode(query)}" if query else path
        self._http.request(method, target, body=content, headers=headers)
        response = self._http.getresponse()
        if response.status >= 300:
            raise refusal(response.status, response.read())
        return response


class Intake:
    """An answer as a file that Arrow reads. What it gives is good until the next read: large parts share one memory.

    Fresh memory for each of them costs more than what is done with it.
    """

    closed = False

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self._memory = bytearray()

    def read(self, size: int = -1) -> bytes | memoryview:
        if size < SPARK_INTAKE_BYTES:
            return self._response.read(size if size >= 0 else None)
        if len(self._memory) < size:
            self._memory = bytearray(size)
        part, came = memoryview(self._memory)[:size], 0
        while came < size and (more := self._response.readinto(part[came:])):
            came += more
        return part[:came]


def refusal(status: int, body: bytes) -> errors.BusError:
    """The error that the bus raised, as far as its answer tells."""
    try:
        told = json.loads(body)["error"]
        text, sub_code = str(told["detail"]), told["sub_code"]
    except (ValueError, KeyError, TypeError):
        text, sub_code = body[:500].decode(errors="replace"), None
    kind = _BY_SUB_CODE.get(sub_code) or _BY_STATUS.get(status)
    if kind is None:
        kind = errors.ServerBusy if status >= 500 else errors.InvalidOperation
    return kind(text)


def _unreachable(error: Exception, connection: BusConnection) -> Exception:
    if isinstance(error, errors.BusError):
        return error
    return errors.ServerBusy(f"The bus at {connection.authority} cannot be reached: {error}")
