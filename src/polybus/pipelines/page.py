"""What a runner tells over HTTP, on loopback: `/metrics` for Prometheus, `/status` as JSON, `/health`."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

HOST: Final = "127.0.0.1"
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
JSON_TYPE: Final = "application/json"
Answer = tuple[int, str, str]
"""Status, content type, content."""


class Page:
    """Serves until it is closed; `answers` maps a path to what is told there now."""

    def __init__(self, port: int, answers: dict[str, Callable[[], Answer]]) -> None:
        class Handler(_PageHandler):
            pass

        Handler.answers = answers
        self._server = ThreadingHTTPServer((HOST, port), Handler)
        self._server.daemon_threads = True
        self.address = f"{HOST}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="pipelines-page", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _PageHandler(BaseHTTPRequestHandler):
    answers: dict[str, Callable[[], Answer]] = {}
    timeout = 10
    server_version = "polybus"
    sys_version = ""

    def do_GET(self) -> None:
        answer = self.answers.get(self.path.partition("?")[0])
        status, kind, text = answer() if answer else (404, "text/plain", f"there is: {', '.join(self.answers)}\n")
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *words: Any) -> None:
        """Requests are not worth a line."""


def json_answer(data: object, status: int = 200) -> Answer:
    return status, JSON_TYPE, json.dumps(data) + "\n"
