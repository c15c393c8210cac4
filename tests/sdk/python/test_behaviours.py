"""The table of behaviours, area by area, each on a plain and on a partitioned entity."""

from __future__ import annotations

import pytest

from tests.sdk.python.behaviours import bodies
from tests.sdk.python.runner import Runner
from tests.sdk.python.table import Behaviour, Table


def each(table: Table) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("behaviour", "kind"), table.pairs(), ids=table.ids())


def check(perform: Runner, behaviour: Behaviour, kind: str) -> None:
    if behaviour.missing:
        pytest.skip(behaviour.missing)
    perform(behaviour, kind)


@each(bodies.table)
def test_bodies(perform: Runner, behaviour: Behaviour, kind: str) -> None:
    check(perform, behaviour, kind)
