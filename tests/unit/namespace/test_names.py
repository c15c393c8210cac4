"""Names, addresses and HTTP paths: what is valid, and how every SDK's spelling is understood."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus.errors import ArgumentError
from polybus.namespace.entities.names import (
    Address,
    HttpTarget,
    TargetKind,
    check_entity_path,
    check_rule_name,
    check_subscription_name,
    parse_address,
    parse_forward_target,
    parse_http_path,
)
from tests.unit.namespace import description_kit as kit

DEAD: Final = "dead-letter"
TRANSFER: Final = "transfer-dead-letter"

BAD_PATHS = [
    "", "/", "a/", "/a", "a//b", ".", "..", "...", "a/..", "../a", "a/./b", "a b", "a\tb", "a\nb", "a\x00b", "\x7f",
    "a\\b", "a?b", "a#b", "a@b", "a*b", "a%20b", "a:b", "a+b", "a=b", "a&b", "a<b", "a'b", 'a"b', "a,b", "a;b", "$a",
    "a/$DeadLetterQueue", "$cbs", "é", "\uff41", "\u212a", "ß", "\u0131", "a\u0301", "日本", "a\u200bb", "😀",
    "x" * 261,
    "a/" + "b" * 259, "a/messages", "a/MESSAGES", "a/messages/head", "a/messages/1/2", "a/subscriptions",
    "a/Subscriptions/b", "a/subscriptions/b/rules", "a/subscriptions/b/Rules/c",
]  # fmt: skip


@pytest.mark.parametrize("path", BAD_PATHS)
def test_entity_paths_that_cannot_be(path: str) -> None:
    with pytest.raises(ArgumentError):
        check_entity_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "a", "A", "0", "a/b", "orders/inbound", "a.b-c_d~e", "-", "_", "a..b", ".a", "x" * 260, "messages",
        "subscriptions", "MassTransit/Fault--Order--", "acme/messages/order-placed", "rules/a", "health", "a/rules",
        "con", "nul", "messages/a",
    ],
)  # fmt: skip
def test_entity_paths_that_can_be(path: str) -> None:
    assert check_entity_path(path) == path


@pytest.mark.parametrize(
    "name", ["", "x" * 51, "a/b", "a\\b", "a b", "a@b", "a?b", "a#b", "..", "$Default2", "é", "a\x00", "$"]
)
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(ArgumentError):
        check_subscription_name(name)
    with pytest.raises(ArgumentError):
        check_rule_name(name)


@pytest.mark.parametrize("name", ["a", "x" * 50, "eu-only", "A.b_c", "messages", "rules"])
def test_names_that_can_be(name: str) -> None:
    assert check_subscription_name(name) == check_rule_name(name) == name


def test_the_default_rule_is_the_only_name_with_a_dollar() -> None:
    assert check_rule_name("$Default") == "$Default"
    assert check_rule_name("$default") == "$default"
    with pytest.raises(ArgumentError):
        check_subscription_name("$Default")


ADDRESSES = [
    ("q", Address("q")),
    ("/q", Address("q")),
    ("q/", Address("q")),
    ("sb://h/q", Address("q")),
    ("amqp://h:5672/q", Address("q")),
    ("amqps://h/q", Address("q")),
    ("AMQPS://User:pass@H.example:5671/q/", Address("q")),
    ("sb://[::1]:5672/q", Address("q")),
    ("https://h/a/b/c", Address("a/b/c")),
    ("a/b", Address("a/b")),
    ("a%2Fb", Address("a/b")),
    ("/%61bc", Address("abc")),
    ("Q", Address("Q")),
    ("t/Subscriptions/s", Address("t", "s")),
    ("t/subscriptions/S", Address("t", "S")),
    ("amqps://h/a/t/SUBSCRIPTIONS/s", Address("a/t", "s")),
    ("q/$DeadLetterQueue", Address("q", None, DEAD)),
    ("q/$deadletterqueue", Address("q", None, DEAD)),
    ("a/b/$DEADLETTERQUEUE", Address("a/b", None, DEAD)),
    ("q/%24DeadLetterQueue", Address("q", None, DEAD)),
    ("q/$Transfer/$DeadLetterQueue", Address("q", None, TRANSFER)),
    ("q/$transfer/$deadletterqueue", Address("q", None, TRANSFER)),
    ("t/Subscriptions/s/$DeadLetterQueue", Address("t", "s", DEAD)),
    ("t/Subscriptions/s/$Transfer/$DeadLetterQueue", Address("t", "s", TRANSFER)),
    ("q/$management", Address("q", management=True)),
    ("q/$MANAGEMENT", Address("q", management=True)),
    ("q/$DeadLetterQueue/$management", Address("q", None, DEAD, management=True)),
    ("t/Subscriptions/s/$management", Address("t", "s", management=True)),
    ("t/Subscriptions/s/$Transfer/$DeadLetterQueue/$management", Address("t", "s", TRANSFER, management=True)),
    ("$cbs", Address("", special="$cbs")),
    ("amqps://h/$CBS", Address("", special="$cbs")),
    ("subscriptions/s", Address("subscriptions/s")),
    ("t/subscriptions", Address("t/subscriptions")),
    ("messages", Address("messages")),
]


@pytest.mark.parametrize(("text", "address"), ADDRESSES)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(address.path) == address


@pytest.mark.parametrize(
    "text",
    [
        "", "/", "sb://h", "sb://h/", "$management", "$DeadLetterQueue", "$Transfer/$DeadLetterQueue", "q/$Other",
        "q/$Transfer", "q/$management/$DeadLetterQueue", "q/$DeadLetterQueue/$Transfer", "a//b", "a/../b",
        "a%2e%2e/%2e%2e", "..%2Fetc", "a%00", "a%ff", "a%C3%A9", "a%zz", "a%252Fb", "a\\b", "q?x=1", "q#f", "a b",
        "%2Fa",
        "x" * 261, "x" * 3000,
        "t/Subscriptions/" + "s" * 51, "t/Subscriptions/s/rules/r/$DeadLetterQueue/x$",
        "t/Subscriptions/$Default", "$cbs/x",
        "q/$cbs", "\ud800", "q\x00/$DeadLetterQueue",
    ],
)  # fmt: skip
def test_addresses_that_name_nothing(text: str) -> None:
    with pytest.raises(ArgumentError):
        parse_address(text)


def test_spelling_is_kept_and_lookups_fold() -> None:
    one, other = (
        parse_address("Orders/Subscriptions/EU/$DEADLETTERQUEUE"),
        parse_address("orders/subscriptions/eu/$deadLetterQueue"),
    )
    assert one.entity == "Orders"
    assert one.folded == other.folded == ("orders", "eu", DEAD)
    assert one.path == "Orders/Subscriptions/EU/$DeadLetterQueue"


@given(kit.paths, st.none() | kit.segments, st.sampled_from([None, DEAD, TRANSFER]), st.booleans())
def test_canonical_paths_come_back(entity: str, subscription, sub_queue, management: bool) -> None:
    address = Address(entity, subscription, sub_queue, management)
    assert parse_address(address.path) == address
    assert parse_address("sb://host:1/" + quote(address.path, safe="")) == address
    assert parse_address(address.path.upper()).folded == address.folded


@given(st.text(max_size=60) | st.text("a/$%2eE.Ff\\subscriptionsmg", max_size=40))
def test_any_text_is_an_address_or_an_error(text: str) -> None:
    try:
        address = parse_address(text)
    except ArgumentError:
        return
    assert parse_address(address.path) == address


@pytest.mark.parametrize(
    ("text", "path"),
    [("q", "q"), ("a/b", "a/b"), ("sb://h:1/a/b", "a/b"), ("http://localhost/Q", "Q"), ("https://x/a%2Fb", "a/b")],
)
def test_forward_targets(text: str, path: str) -> None:
    assert parse_forward_target(text) == path


@pytest.mark.parametrize(
    "text", ["", "sb://h", "t/Subscriptions/s", "q/$DeadLetterQueue", "q/$management", "$cbs", "a b"]
)
def test_forward_targets_that_cannot_be(text: str) -> None:
    with pytest.raises(ArgumentError):
        parse_forward_target(text)


K = TargetKind
LOCK = "5ac1bd4b-7e9d-4a8a-9a8e-4f7f1e0d1c2b"
PATHS = [
    ("/$namespaceinfo", HttpTarget(K.NAMESPACE_INFO)),
    ("/$NamespaceInfo/", HttpTarget(K.NAMESPACE_INFO)),
    ("/$Resources/queues", HttpTarget(K.QUEUES)),
    ("/%24Resources/Queues/", HttpTarget(K.QUEUES)),
    ("/$resources/TOPICS", HttpTarget(K.TOPICS)),
    ("/q", HttpTarget(K.ENTITY, Address("q"))),
    ("/a%2Fb", HttpTarget(K.ENTITY, Address("a/b"))),
    ("/a/b", HttpTarget(K.ENTITY, Address("a/b"))),
    ("/messages", HttpTarget(K.ENTITY, Address("messages"))),
    ("/subscriptions", HttpTarget(K.ENTITY, Address("subscriptions"))),
    ("/q/$DeadLetterQueue", HttpTarget(K.ENTITY, Address("q", None, DEAD))),
    ("/t/subscriptions", HttpTarget(K.SUBSCRIPTIONS, Address("t"))),
    ("/t/Subscriptions/", HttpTarget(K.SUBSCRIPTIONS, Address("t"))),
    ("/a%2Ft/subscriptions", HttpTarget(K.SUBSCRIPTIONS, Address("a/t"))),
    ("/t/subscriptions/s", HttpTarget(K.SUBSCRIPTION, Address("t", "s"))),
    ("/a/t/Subscriptions/S", HttpTarget(K.SUBSCRIPTION, Address("a/t", "S"))),
    ("/t%2Fsubscriptions%2Fs", HttpTarget(K.SUBSCRIPTION, Address("t", "s"))),
    ("/t/subscriptions/messages", HttpTarget(K.SUBSCRIPTION, Address("t", "messages"))),
    ("/t/subscriptions/s/rules", HttpTarget(K.RULES, Address("t", "s"))),
    ("/t/Subscriptions/s/Rules/", HttpTarget(K.RULES, Address("t", "s"))),
    ("/t/subscriptions/s/rules/$Default", HttpTarget(K.RULE, Address("t", "s"), rule="$Default")),
    ("/t/subscriptions/s/rules/%24Default", HttpTarget(K.RULE, Address("t", "s"), rule="$Default")),
    ("/t/subscriptions/s/rules/messages", HttpTarget(K.RULE, Address("t", "s"), rule="messages")),
    ("/q/messages", HttpTarget(K.MESSAGES, Address("q"))),
    ("/a%2Fb/Messages", HttpTarget(K.MESSAGES, Address("a/b"))),
    ("/q/messages/head", HttpTarget(K.HEAD, Address("q"))),
    ("/q/MESSAGES/HEAD", HttpTarget(K.HEAD, Address("q"))),
    ("/q/$DeadLetterQueue/messages/head", HttpTarget(K.HEAD, Address("q", None, DEAD))),
    ("/q/$Transfer/$DeadLetterQueue/messages", HttpTarget(K.MESSAGES, Address("q", None, TRANSFER))),
    ("/t/subscriptions/s/messages/head", HttpTarget(K.HEAD, Address("t", "s"))),
    ("/t/subscriptions/s/$deadletterqueue/messages/head", HttpTarget(K.HEAD, Address("t", "s", DEAD))),
    (f"/q/messages/7/{LOCK}", HttpTarget(K.MESSAGE, Address("q"), message_id="7", lock_token=LOCK)),
    (f"/a/b/messages/x%2Fy/{LOCK}", HttpTarget(K.MESSAGE, Address("a/b"), message_id="x/y", lock_token=LOCK)),
    (f"/q/messages/a%20b%3F/{LOCK}", HttpTarget(K.MESSAGE, Address("q"), message_id="a b?", lock_token=LOCK)),
    (f"/q/messages/rules/{LOCK}", HttpTarget(K.MESSAGE, Address("q"), message_id="rules", lock_token=LOCK)),
    (f"/q/messages/subscriptions/{LOCK}", HttpTarget(K.MESSAGE, Address("q"), None, "subscriptions", LOCK)),
    (f"/t/subscriptions/s/messages/7/{LOCK}", HttpTarget(K.MESSAGE, Address("t", "s"), None, "7", LOCK)),
]  # fmt: skip


@pytest.mark.parametrize(("path", "target"), PATHS)
def test_http_paths(path: str, target: HttpTarget) -> None:
    assert parse_http_path(path) == target


@pytest.mark.parametrize(
    "path",
    [
        "/", "", "//", "/a//b", "/..", "/a/../b", "/a/%2e%2e", "/%2e%2e%2fetc%2fpasswd", "/a%00b", "/a%ff", "/a%5Cb",
        "/a%3Fb",
        "/$Resources", "/$Resources/other", "/$other", "/a b", "/t/subscriptions/s s", "/t/subscriptions/s/rules/$x",
        "/t/subscriptions/" + "s" * 51, "/" + "a" * 261, "/" + "a" * 5000, "/a%252Fb", "/$cbs",
    ],
)  # fmt: skip
def test_http_paths_that_name_nothing(path: str) -> None:
    with pytest.raises(ArgumentError):
        parse_http_path(path)


@given(kit.paths)
def test_every_valid_entity_path_is_routed_to_its_entity(path: str) -> None:
    assert check_entity_path(path) == path
    for raw in (f"/{path}", "/" + quote(path, safe=""), f"/{path}/"):
        assert parse_http_path(raw) == HttpTarget(K.ENTITY, Address(path))


@given(st.text(max_size=60) | st.text("a/$%2eE.Ff\\subscriptionsmgrulhd", max_size=60))
def test_any_text_is_a_path_or_an_error(text: str) -> None:
    try:
        target = parse_http_path(text)
    except ArgumentError:
        return
    assert isinstance(target.kind, TargetKind)
    if target.address is not None:
        assert ".." not in target.address.entity.split("/")
