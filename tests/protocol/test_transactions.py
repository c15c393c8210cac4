"""The wire types of transactions. AMQP 1.0 §4.5; docs/protocol/transactions.md#coordinator."""

from __future__ import annotations

import pytest

from polybus.amqp.codec import decode, encode
from polybus.amqp.events import Attached, IncomingDelivery
from polybus.amqp.outcomes import (
    ACCEPTED,
    Declare,
    Declared,
    Discharge,
    Received,
    Rejected,
    TransactionalState,
    state_from,
    transaction_request,
)
from polybus.amqp.performatives import Attach
from polybus.amqp.terminus import Coordinator, Source
from polybus.amqp.traffic import Transfer
from polybus.amqp.types import AmqpArray, Described, Symbol, ULong, symbol_array, symbols
from polybus.errors import ProtocolError
from tests.protocol.peer import Peer


def test_coordinator_link_is_told_apart() -> None:
    peer = Peer().opened()
    target = Coordinator(symbol_array(["amqp:local-transactions", "amqp:multi-txns-per-ssn"]))
    [event] = peer.send(Attach("txn", 0, False, Source("x"), target))
    assert isinstance(event, Attached)
    assert isinstance(event.attach.target, Coordinator)
    assert symbols(event.attach.target.capabilities) == ["amqp:local-transactions", "amqp:multi-txns-per-ssn"]


@pytest.mark.parametrize(
    ("capabilities", "names"),
    [(None, []), (Symbol("a"), ["a"]), (AmqpArray(0xA3, [Symbol("a"), Symbol("b")]), ["a", "b"])],
)
def test_multiple_symbols_in_all_forms(capabilities, names) -> None:
    assert symbols(capabilities) == names


def test_declare_and_discharge_are_read_from_a_body() -> None:
    value, _ = decode(encode(Declare().described()), 0)
    assert isinstance(transaction_request(value), Declare)
    for fail in (False, True):
        value, _ = decode(encode(Discharge(b"txn", fail).described()), 0)
        request = transaction_request(value)
        assert isinstance(request, Discharge)
        assert (request.txn_id, request.fail) == (b"txn", fail)


def test_discharge_without_fail_commits() -> None:
    request = transaction_request(Described(ULong(0x32), [b"txn"]))
    assert isinstance(request, Discharge)
    assert request.fail is False


@pytest.mark.parametrize(
    "value",
    [
        None,
        "declare",
        [],
        Described(ULong(0x24), []),
        Described(ULong(0x32), []),
        Described(ULong(0x32), ["txn"]),
        Described(ULong(0x31), "x"),
    ],
)
def test_other_bodies_are_invalid(value) -> None:
    with pytest.raises(ProtocolError) as caught:
        transaction_request(value)
    assert caught.value.condition == "amqp:invalid-field"


def test_transfer_in_a_transaction() -> None:
    peer = Peer().opened()
    peer.sender(0)
    [event] = peer.send(Transfer(0, 0, b"t", 0, state=TransactionalState(b"txn", None)), payload=b"x")
    assert isinstance(event, IncomingDelivery)
    assert isinstance(event.state, TransactionalState)
    assert (event.state.txn_id, event.state.outcome) == (b"txn", None)


@pytest.mark.parametrize("outcome", [None, ACCEPTED, Rejected()])
def test_transactional_states_round_trip(outcome) -> None:
    state = state_from(decode(TransactionalState(b"txn", outcome).encoded(), 0)[0])
    assert isinstance(state, TransactionalState)
    assert state.txn_id == b"txn"
    assert type(state.outcome) is type(outcome)


def test_declared_carries_the_id() -> None:
    encoded = Declared(b"0123456789abcdef").encoded()
    assert encoded == b"\x00\x53\x33\xc0\x13\x01\xa0\x100123456789abcdef"
    state = state_from(decode(encoded, 0)[0])
    assert isinstance(state, Declared)


@pytest.mark.parametrize("inner", [TransactionalState(b"x", None), Declared(b"x"), Received(0, 0)])
def test_a_transactional_state_holds_only_outcomes(inner) -> None:
    with pytest.raises(ProtocolError):
        state_from(decode(TransactionalState(b"txn", inner).encoded(), 0)[0])
