"""A real Chromium without a window, for pages that are written to files: what it shows, fetches and complains about.

It is spoken to through its DevTools protocol, a JSON over a WebSocket. Where there is no Chromium, tests are skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import websocket

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SECONDS = 60
SETTINGS = (
    "--headless",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--no-first-run",
    "--remote-debugging-port=0",
)


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """A browser with a profile of its own; skips the test where there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"a page is looked at with Chromium, and there is none in the PATH ({', '.join(NAMES)})")
    # Its sandbox refuses root, which containers often are; the pages are our own.
    root = ("--no-sandbox",) if os.geteuid() == 0 else ()
    command = [found, *SETTINGS, *root, f"--user-data-dir={folder / 'chromium'}", "about:blank"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield Browser(_address(process))
        finally:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """Told to end, it takes its many processes with it; killed, it leaves them to find out."""
    process.terminate()
    try:
        process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if "DevTools listening on ws://" in line:
            return line.split("ws://")[1].split("/")[0]
    raise AssertionError("Chromium ended without saying where it listens")


@dataclass
class Shown:
    """A page that has loaded."""

    _tab: Tab
    complaints: list[str] = field(default_factory=list)
    """What stands in the console, and scripts that failed."""
    requests: list[str] = field(default_factory=list)

    def value(self, expression: str) -> Any:
        """What an expression in JavaScript gives in the page."""
        told = self._tab.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")


class Browser:
    def __init__(self, address: str) -> None:
        self._address = address

    @contextmanager
    def shown(self, page: Path, *, dark: bool = False, width: int = 1280) -> Iterator[Shown]:
        with urlopen(
            Request(f"http://{self._address}/json/new?about:blank", method="PUT"), timeout=SECONDS
        ) as answer:
            told = json.load(answer)
        tab = Tab(told["webSocketDebuggerUrl"])
        try:
            for domain in ("Page", "Runtime", "Log", "Network"):
                tab.call(f"{domain}.enable")
            scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
            tab.call("Emulation.setEmulatedMedia", features=[scheme])
            tab.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
            tab.call("Page.navigate", url=page.as_uri())
            tab.wait_for("Page.loadEventFired")
            shown = Shown(tab)
            # What the page complains about while it loads was told before this is answered.
            assert shown.value("document.readyState") == "complete"
            shown.complaints += [json.dumps(told) for name, told in tab.events if name in COMPLAINTS]
            shown.requests += [told["request"]["url"] for name, told in tab.events if name == REQUEST]
            yield shown
        finally:
            tab.close()


COMPLAINTS = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Network.loadingFailed")
REQUEST = "Network.requestWillBeSent"


class Tab:
    """Calls and events of one tab."""

    def __init__(self, url: str) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._socket = websocket.create_connection(url, timeout=SECONDS, suppress_origin=True)
        self._number = 0

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while (told := self._next()).get("id") != self._number:
            pass
        assert "error" not in told, told
        result: dict[str, Any] = told["result"]
        return result

    def wait_for(self, event: str) -> None:
        while event not in [name for name, _ in self.events]:
            self._next()

    def _next(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self._socket.recv())
        if "method" in told:
            self.events.append((told["method"], told["params"]))
        return told

    def close(self) -> None:
        self._socket.close()
