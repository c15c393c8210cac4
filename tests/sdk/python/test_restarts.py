"""The table of behaviours over a restart of the bus, which is stopped or killed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.sdk.python.behaviours import restarts
from tests.sdk.python.restarting import HOWS, Restart
from tests.sdk.python.table import Behaviour


@pytest.fixture(scope="module")
def restarted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Restart]:
    """The results by how the bus went down; a server is started for each when it is first asked for."""
    results: dict[str, Restart] = {}

    def get(how: str) -> Restart:
        if how not in results:
            specs = [item.callspec.params for item in request.session.items if "how" in _params(item)]  # type: ignore[attr-defined]
            selected = [(each["restarted_one"], each["kind"]) for each in specs if each["how"] == how]
            selected = [(behaviour, kind) for behaviour, kind in selected if not behaviour.missing]
            results[how] = Restart(tmp_path_factory.mktemp(how), how, selected)
        return results[how]

    return get


def _params(item: pytest.Item) -> dict[str, object]:
    return getattr(getattr(item, "callspec", None), "params", {})


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(("restarted_one", "kind"), restarts.table.pairs(), ids=restarts.table.ids())
def test_restarts(restarted: Callable[[str], Restart], restarted_one: Behaviour, kind: str, how: str) -> None:
    if restarted_one.missing:
        pytest.skip(restarted_one.missing)
    restarted(how).check(restarted_one, kind)
