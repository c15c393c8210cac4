"""A real Chromium on a real bus. Where there is no Chromium these tests have not run, and say so at the end."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Playwright, sync_playwright

from polybus.testing.server import ServerProcess
from tests.browser.kit import Bus, Hand

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = os.environ.get("POLYBUS_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
NOT_RUN = "NOT RUN: tests/browser needs Chromium (Debian: apt-get install chromium; POLYBUS_CHROMIUM names another)"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if CHROMIUM is None:
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=NOT_RUN))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if CHROMIUM is None:
        terminalreporter.section("browser", red=True, bold=True)
        terminalreporter.line(NOT_RUN, red=True, bold=True)


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="session")
def browser(playwright: Playwright) -> Iterator[Browser]:
    launched = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
    yield launched
    launched.close()


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bus]:
    """A bus with a movable clock and keys of less than all rights, for all tests of a file."""
    keys = ("RootManageSharedAccessKey=SAS_KEY_VALUE", "listener=listen key:Listen", "sender=send key:Send")
    options = ["--clock", "movable", *(word for key in keys for word in ("--key", key))]
    with ServerProcess(tmp_path_factory.mktemp("bus"), *options) as server, Bus(server) as opened:
        yield opened


@pytest.fixture
def stranger(browser: Browser, bus: Bus) -> Iterator[Hand]:
    """Somebody who has not logged in. Errors of the page fail the test, whatever it looked for."""
    context = browser.new_context(viewport={"width": 1280, "height": 860}, accept_downloads=True)
    hand = Hand(context.new_page(), bus)
    yield hand
    context.close()
    assert hand.complaints == []


@pytest.fixture
def hand(stranger: Hand) -> Hand:
    """Somebody with a key that may do everything."""
    stranger.log_in()
    stranger.clicks = 0
    return stranger
