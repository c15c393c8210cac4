"""The table of behaviours, area by area, each on a plain and on a partitioned entity."""

from __future__ import annotations

import pytest

from tests.sdk.python.behaviours import (
    access,
    asynchronous,
    bodies,
    deferral,
    duplicates,
    errors,
    expiry,
    locks,
    management,
    peeking,
    receiving,
    scheduling,
    sending,
    sessions,
    settling,
    stores,
    topics,
    transports,
)
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


@each(sending.table)
def test_sending(perform: Runner, behaviour: Behaviour, kind: str) -> None:
    check(perform, behaviour, kind)


@each(receiving.table)
def test_receiving(perform: Runner, behaviour: Behaviour, kind: str) -> None:
    check(perform, behaviour, kind)


@each(settling.table)
def test_settling(perform: Runner, behaviour: Behaviour, kind: str) -> None:
    check(perform, behaviour, kind)


@each(locks.table)
def test_locks(perform: Runner, behaviour: Behaviour, kind: str) -> None:
    check(perform, behaviour, kind)


@each(expiry.table)
def test_expiry(perform: Runner, behaviour: Behaviour, kind: str) -> None:
    check(perform, behaviour, kind)


@each(deferral.table)
def test_deferral(perform: Runner, behaviour: Behaviour, kind: str) -> None:
    check(perform, behaviour, kind)


@each(peeking.table)
def test_peeking(perform: Runner, behaviour: Behaviour, kind: str) -> None:
    check(perform, behaviour, kind)


@each(scheduling.table)
def test_scheduling(perform: Runner, behaviour: Behaviour, kind: str) -> None:
    check(perform, behaviour, kind)


@each(duplicates.table)
def test_duplicates(perform: Runner, behaviour: Behaviour, kind: str) -> None:
    check(perform, behaviour, kind)


@each(sessions.table)
def test_sessions(perform: Runner, behaviour: Behaviour, kind: str) -> None:
    check(perform, behaviour, kind)


@each(topics.table)
def test_topics(perform: Runner, behaviour: Behaviour, kind: str) -> None:
    check(perform, behaviour, kind)


@each(errors.table)
def test_errors(perform: Runner, behaviour: Behaviour, kind: str) -> None:
    check(perform, behaviour, kind)


@each(access.table)
def test_access(perform: Runner, behaviour: Behaviour, kind: str) -> None:
    check(perform, behaviour, kind)


@each(asynchronous.table)
def test_asynchronous(perform: Runner, behaviour: Behaviour, kind: str) -> None:
    check(perform, behaviour, kind)


@each(transports.table)
def test_transports(perform: Runner, behaviour: Behaviour, kind: str) -> None:
    check(perform, behaviour, kind)


@each(management.table)
def test_management(perform: Runner, behaviour: Behaviour, kind: str) -> None:
    check(perform, behaviour, kind)


@each(stores.table)
def test_stores(perform: Runner, behaviour: Behaviour, kind: str) -> None:
    check(perform, behaviour, kind)
