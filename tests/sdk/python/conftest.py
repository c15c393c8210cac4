"""The unmodified official SDK against real servers: one for the table of behaviours, one whose clock is moved."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import _pytest.runner
import pytest

from polybus.testing.server import ServerProcess
from tests.sdk.python.runner import Runner
from tests.sdk.python.several import bus_server


def pytest_configure(config: pytest.Config) -> None:
    # What the asynchronous SDK passes to aiohttp where it speaks WebSocket.
    config.addinivalue_line("filterwarnings", "ignore:ssl=None is deprecated:DeprecationWarning")
    config.addinivalue_line("filterwarnings", "ignore:parameter 'timeout' of type 'float':DeprecationWarning")
    # The SDK forgets sockets and streams whose peer has gone.
    config.addinivalue_line("filterwarnings", "ignore::ResourceWarning")
    warnings.simplefilter("ignore", ResourceWarning)
    # Behaviours run in threads: reading the environment there fails while pytest writes its own variable into it.
    _pytest.runner._update_current_test_var = lambda item, when: None


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder: Path = tmp_path_factory.mktemp("bus")
    with bus_server(folder) as running:
        yield running


@pytest.fixture(scope="session")
def perform(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """Runs a behaviour; those that were selected are under way before anybody asks."""
    selected = []
    for item in request.session.items:
        callspec = getattr(item, "callspec", None)
        if callspec is not None and "behaviour" in callspec.params and not callspec.params["behaviour"].missing:
            selected.append((callspec.params["behaviour"], callspec.params["kind"]))
    runner = Runner(tmp_path_factory.mktemp("table"), selected)
    yield runner
    runner.stop()
