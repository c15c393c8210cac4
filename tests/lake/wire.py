"""The wire between a client and a server, with faults; a process of its own, for `deltalake` holds Python while it waits.

`python -m tests.lake.wire PORT EVERY KIND ...`: one request of each so many fails, in one of these ways in turn. A kind is
an HTTP status that is answered instead of asking the server, `before`: the connection ends, or `after`: it ends when the
server has done what it was asked for. EVERY 0 is never. It prints its own port, then a line for each fault.

Azurite passes over `startFrom`, with which Azure lists from a name on, and `deltalake` counts on it: the wire leaves out
what comes before.
"""

from __future__ import annotations

import http.client
import itertools
import re
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import unescape

Answer = tuple[int, list[tuple[str, str]], bytes]


class Faults:
    def __init__(self, every: int, kinds: list[str]) -> None:
        self._every = every
        self._count = itertools.count(1)
        self._kinds = itertools.cycle(kinds)
        self._lock = threading.Lock()

    def next(self, request: str) -> str | None:
        with self._lock:
            if not self._every or next(self._count) % self._every:
                return None
            kind = next(self._kinds)
            print(f"{kind} {request}", flush=True)
            return kind


def listed_from(path: str, content: bytes) -> bytes:
    """Azure's answer to a list, without the blobs before `startFrom`."""
    start = parse_qs(urlsplit(path).query).get("startFrom")
    if not start:
        return content

    def kept(blob: re.Match[bytes]) -> bytes:
        return blob[0] if unescape(blob[1].decode()) >= start[0] else b""

    return re.sub(rb"<Blob><Name>([^<]*)</Name>.*?</Blob>", kept, content, flags=re.DOTALL)


def serve(port: int, faults: Faults) -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self._body()
            fault = faults.next(f"{self.command} {self.path.partition('?')[0]}")
            if fault is not None and fault.isdigit():
                self._pass_on((int(fault), [], b""))
                return
            told = None if fault == "before" else self._forward(body)
            if fault is None and told is not None:
                self._pass_on(told)
                return
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

        def _body(self) -> bytes:
            """As it came, chunks and all."""
            if self.headers.get("transfer-encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("content-length") or 0))
            body, size = b"", -1
            while size:
                line = self.rfile.readline()
                size = int(line.partition(b";")[0], 16)
                body += line + self.rfile.read(size + 2)
            return body

        def _forward(self, body: bytes) -> Answer:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            try:
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    connection.putheader(name, value)
                connection.endheaders(body or None)
                answer = connection.getresponse()
                return answer.status, answer.getheaders(), listed_from(self.path, answer.read())
            except OSError:
                return 503, [], b""
            finally:
                connection.close()

        def _pass_on(self, told: Answer) -> None:
            status, headers, body = told
            self.send_response_only(status)
            length = str(len(body))
            for name, value in headers:
                if name.lower() == "content-length" and self.command == "HEAD":
                    length = value
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            self.send_header("content-length", length)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _answer

        def log_message(self, *words: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]), Faults(int(sys.argv[2]), sys.argv[3:]))
