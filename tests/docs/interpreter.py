"""Runs the Python of one page, block after block, in a process of its own: names stay from one block to the next.

Reads one JSON object a line, {"code", "place", "given"}, and answers with {"error"}: a traceback, or null.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from typing import Any


def main() -> None:
    names: dict[str, Any] = {"__name__": "__page__"}
    answers = sys.stdout
    for line in sys.stdin:
        asked = json.loads(line)
        error = None
        # What a page prints must not be taken for an answer.
        with contextlib.redirect_stdout(sys.stderr):
            try:
                names.update({name: GIVEN[name]() for name in asked["given"]})
                exec(compile(asked["code"], asked["place"], "exec"), names)
            except BaseException:
                error = traceback.format_exc()
        print(json.dumps({"error": error}), file=answers, flush=True)


def _admin() -> Any:
    from azure.servicebus.management import ServiceBusAdministrationClient

    return ServiceBusAdministrationClient.from_connection_string(
        os.environ["POLYBUS_ADMIN_CONNECTION_STRING"], connection_verify=os.environ["POLYBUS_AUTHORITY"]
    )


def _client() -> Any:
    from azure.servicebus import ServiceBusClient

    return ServiceBusClient.from_connection_string(os.environ["POLYBUS_CONNECTION"])


GIVEN: dict[str, Any] = {
    "admin": _admin,
    "client": _client,
    "connection_string": lambda: os.environ["POLYBUS_CONNECTION"],
    "signature": lambda: os.environ["TOKEN"],
}
"""What a page may take for granted, as its reader has it by then."""

if __name__ == "__main__":
    main()
