"""A reader who types what a page says: one folder and one bus for each page, its blocks from top to bottom.

Where a page names the ports that a bus has by default, the reader's bus has others, and the text is changed to them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType

import httpx
import yaml

from polybus.gateway.config.file import load
from polybus.namespace.entities.tiers import tier_named
from polybus.testing.server import ServerProcess
from tests.docs.blocks import ROOT, Block

PATIENCE_S = 120
ENTITIES = {
    "Name": "sbemulatorns",
    "Queues": [{"Name": "orders", "Properties": {"EnablePartitioning": True}}],
    "Topics": [{"Name": "news", "Subscriptions": [{"Name": "eu"}]}],
}
"""What a reader has made by then: the queue of the first start, and a topic."""
COMMANDS = {
    "polybus": 'case "$1" in serve) shift; exec python -m tests.docs.serving "$@";; esac\nexec python -m polybus "$@"',
    "curl": f'exec {shutil.which("curl")} --fail-with-body --silent --show-error "$@"',
}
"""What stands in front of the real commands: a bus is stopped when it is ready, a refusal is a failure."""


class Reader:
    def __init__(self, folder: Path) -> None:
        self._folder = folder / "here"
        self._bin = folder / "bin"
        for made in (self._folder, self._bin, self._folder / "scripts"):
            made.mkdir(parents=True)
        for name, text in COMMANDS.items():
            self._command(self._bin / name, text)
        self._command(self._folder / "scripts" / "serve", 'exec polybus serve "$@"')
        config = folder / "config.json"
        config.write_text(json.dumps({"UserConfig": {"Namespaces": [ENTITIES]}}))
        self._server = ServerProcess(self._folder / "polybus-data", "--config", str(config))
        self._python: subprocess.Popen[str] | None = None

    def _command(self, path: Path, text: str) -> None:
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._python is not None:
            self._python.communicate(timeout=PATIENCE_S)
        if self._server.addresses:
            self._server.stop()

    def _environment(self) -> dict[str, str]:
        server = self._server
        return {
            **os.environ,
            "HOME": str(self._folder),
            "PATH": f"{self._bin}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            "POLYBUS_CONNECTION": server.connection_string,
            "POLYBUS_ADMIN_CONNECTION_STRING": server.admin_connection_string,
            "POLYBUS_AUTHORITY": str(server.authority),
            "BUS": server.http_url,
            "TOKEN": server.token(),
        }

    def _here(self, code: str) -> str:
        for port, listener in (("5672", "amqp"), ("5300", "http"), ("5671", "tls")):
            for host in ("localhost", "127.0.0.1"):
                code = code.replace(f"{host}:{port}", self._server.addresses[listener])
        return code

    def run(self, block: Block) -> str | None:
        """Does what a block says; what went wrong, or None."""
        if block.file:
            (self._folder / block.file).write_text(block.code)
        if block.language in ("json", "yaml"):
            return checked(block)
        if not self._server.addresses:
            self._server.start()
        return getattr(self, f"_run_{block.language}")(block, self._here(block.code))

    def _run_python(self, block: Block, code: str) -> str | None:
        if "def test_" in code:
            return self._pytest(code)
        if self._python is None:
            self._python = subprocess.Popen(
                [sys.executable, "-m", "tests.docs.interpreter"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=self._folder,
                env=self._environment(),
            )
        assert self._python.stdin is not None
        assert self._python.stdout is not None
        asked = {"code": code, "place": block.place, "given": block.given}
        print(json.dumps(asked), file=self._python.stdin, flush=True)
        return json.loads(self._python.stdout.readline())["error"]

    def _pytest(self, code: str) -> str | None:
        path = self._folder / "test_page.py"
        path.write_text(code)
        options = ["-q", "-W", "error", "-p", "no:cacheprovider", "-p", "polybus.testing.pytest_plugin"]
        return self._ran([sys.executable, "-m", "pytest", *options, "--rootdir", str(self._folder), str(path)])

    def _run_sh(self, block: Block, code: str) -> str | None:
        return self._ran(["bash", "-euo", "pipefail", "-c", code])

    def _ran(self, command: list[str]) -> str | None:
        done = subprocess.run(
            command, cwd=self._folder, env=self._environment(), capture_output=True, text=True, timeout=PATIENCE_S
        )
        return None if done.returncode == 0 else f"exit code {done.returncode}\n{done.stdout}{done.stderr}"

    def _run_http(self, block: Block, code: str) -> str | None:
        head, _, body = code.partition("\n")
        method, path = head.split(" ", 1)
        answer = httpx.request(
            method, f"{self._server.http_url}{path}", content=body, headers={"Authorization": self._server.token()}
        )
        return None if answer.is_success else f"{answer.status_code} {answer.text}"


def checked(block: Block) -> str | None:
    """A document must be one; a bus's configuration must be taken by the bus, without a warning."""
    document = yaml.safe_load(block.code) if block.language == "yaml" else json.loads(block.code)
    if isinstance(document, dict) and "UserConfig" in document:
        warnings = load(block.code, block.place, tier_named("standard")).warnings
        return "\n".join(text for text in warnings if "the emulator allows" not in text) or None
    return None
