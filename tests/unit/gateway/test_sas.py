"""Shared access signatures: what opens what. Every row of the tables is one token and what it is asked for."""

from __future__ import annotations

import base64
import datetime
import hashlib
import hmac
from urllib.parse import quote, quote_plus

import pytest
from azure.servicebus._base_handler import ServiceBusSharedKeyCredential
from hypothesis import given, settings
from hypothesis import strategies as st

from polybus.client.sas import make_token
from polybus.errors import Unauthorized
from polybus.gateway import sas
from polybus.gateway.sas import (
    KeyRing,
    Rights,
    authorize,
    is_sas,
    parse_token,
    require,
    scope_of,
    signed_here,
)
from polybus.namespace.entities.description import AccessRight, AuthorizationRule

NOW_S = 1_700_000_000
LATER = str(NOW_S + 3600)
ROOT = "RootManageSharedAccessKey"
ROOT_KEY = "SAS_KEY_VALUE"
SEND, LISTEN = (AccessRight.SEND,), (AccessRight.LISTEN,)
ALL = tuple(AccessRight)
HOST_NAME = "bus.example.net"
"""A name of the bus, and of an entity on it."""


def rule(name: str, rights: tuple[AccessRight, ...], primary: str, secondary: str = "") -> AuthorizationRule:
    return AuthorizationRule(
        key_name=name, rights=rights, primary_key=primary, secondary_key=secondary or f"{primary}-2"
    )


RING = KeyRing([rule(ROOT, ALL, ROOT_KEY), rule("sender", SEND, "ns-send"), rule("odd name/é+%", ALL, "odd-key")])
RING.set_rules("Orders", [rule("orders", LISTEN, "orders-key"), rule("sender", LISTEN, "orders-send")])
RING.set_rules("a/b", [rule("deep", SEND, "deep-key")])
RING.set_rules(HOST_NAME, [rule("host", ALL, "host-key")])
RING.set_rules("empty", [AuthorizationRule(key_name="hollow", rights=ALL, primary_key="", secondary_key="")])


def sign(key: str, resource: str, expiry: str) -> str:
    """The signature, worked out here without the code under test."""
    digest = hmac.new(key.encode(), f"{resource}\n{expiry}".encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


def token(
    resource: str = "sb://localhost/",
    *,
    name: str = ROOT,
    key: str = ROOT_KEY,
    expiry: str = LATER,
    raw: str | None = None,
    skn: str | None = None,
) -> str:
    sr = quote(resource, safe="") if raw is None else raw
    sig = quote(sign(key, sr, expiry), safe="")
    return f"SharedAccessSignature sr={sr}&sig={sig}&se={expiry}&skn={quote(name, safe='') if skn is None else skn}"


def outcome(text: str | None, audience: str, now_s: float = NOW_S, hosts: tuple[str, ...] = ()) -> Rights | int:
    """The rights that a token gives, or the sub code of the refusal."""
    try:
        return authorize(parse_token(text), audience, now_s, RING, hosts=hosts)
    except Unauthorized as refusal:
        return refusal.sub_code


FULL = Rights.MANAGE
OPEN = {
    "the namespace": (token(), "sb://localhost/q", FULL),
    "the namespace without a slash": (token("sb://localhost"), "sb://localhost/q", FULL),
    "the namespace over https": (token("https://localhost:9443"), "/q", FULL),
    "another host": (token("sb://bus.example/"), "amqps://localhost:5671/q", FULL),
    "upper-case host": (token("sb://LOCALHOST/"), "sb://localhost/q", FULL),
    "the namespace itself": (token(), "", FULL),
    "the entity": (token("sb://h/q"), "sb://h/q", FULL),
    "the entity, with a slash": (token("sb://h/q/"), "sb://h/q", FULL),
    "the entity, bare": (token("q"), "q", FULL),
    "the entity in other case": (token("sb://h/QUEUE"), "sb://h/queue", FULL),
    "an audience in other case": (token("sb://h/queue"), "SB://H/QUEUE", FULL),
    "http scheme": (token("http://h/q"), "sb://h/q", FULL),
    "amqp scheme and port": (token("amqp://h:5672/q"), "amqps://h/q", FULL),
    "ip v6": (token("sb://[::1]:5672/q"), "sb://[::1]:5672/q", FULL),
    "below the entity": (token("sb://h/t"), "sb://h/t/Subscriptions/s", FULL),
    "the subscription": (token("sb://h/t/subscriptions/s"), "sb://h/t/Subscriptions/S", FULL),
    "the dead-letter queue": (token("sb://h/q"), "sb://h/q/$DeadLetterQueue", FULL),
    "the management node": (token("sb://h/q"), "sb://h/q/$management", FULL),
    "a token for the management node": (token("sb://h/q/$management"), "sb://h/q", FULL),
    "both management": (token("sb://h/q/$management"), "sb://h/q/$management", FULL),
    "messages over http": (token("https://h/q"), "/q/messages/head", FULL),
    "javascript signs the query": (token("https://localhost:9445/q1?api-version=2021-05"), "/q1", FULL),
    "javascript signs the lists": (token("https://h/$resources/queues?%24skip=1"), "/$Resources/queues", FULL),
    "javascript supplementary": (token("localhost:9445"), "q", FULL),
    "hierarchical": (token("sb://h/a/b"), "sb://h/a/b", FULL),
    "a parent of a hierarchical name": (token("sb://h/a"), "sb://h/a/b", FULL),
    "an encoded path inside": (token("sb://h/a%2Fb"), "sb://h/a/b", FULL),
    "an encoded letter": (token("sb://h/%51"), "sb://h/q", FULL),
    "lower-case hex": (token(raw="sb%3a%2f%2fh%2fq"), "q", FULL),
    "mixed hex": (token(raw="sb%3A%2f%2Fh%2fq"), "q", FULL),
    "unencoded sr": (token(raw="sb://h/q"), "q", FULL),
    "the secondary key": (token(key=f"{ROOT_KEY}-2"), "q", FULL),
    "a fraction": (token(expiry="1700000000.5"), "q", FULL),
    "a long fraction": (token(expiry="1700003600.123456789"), "q", FULL),
    "the last second of .NET": (token(expiry="253402300799"), "q", FULL),
    "a bearer": ("Bearer " + token(), "q", FULL),
    "a bearer in other case": ("bearer  " + token(), "q", FULL),
    "the prefix in other case": (token().replace("SharedAccess", "sharedaccess", 1), "q", FULL),
    "spaces around": (f"  {token()} ", "q", FULL),
    "unknown fields": (token() + "&extra=1&x=", "q", FULL),
    "an odd name": (token(name="odd name/é+%", key="odd-key"), "q", FULL),
    "an odd name encoded twice": (
        token(key="odd-key", skn=quote(quote("odd name/é+%", safe=""), safe="")), "q", FULL,
    ),
    "a space as plus": (token(key="odd-key", skn=quote_plus("odd name/é+%")), "q", FULL),
    "a key of the namespace": (token(name="sender", key="ns-send"), "q", Rights.SEND),
    "its secondary key": (token(name="sender", key="ns-send-2"), "q", Rights.SEND),
    "a key of the entity": (token("sb://h/orders", name="orders", key="orders-key"), "ORDERS", Rights.LISTEN),
    "a key of the entity, below it": (
        token("sb://h/orders", name="orders", key="orders-key"), "orders/$DeadLetterQueue", Rights.LISTEN,
    ),
    "the entity's rule of a name that both have": (
        token("sb://h/orders", name="sender", key="orders-send"), "orders", Rights.LISTEN,
    ),
    "the namespace's rule of a name that both have": (
        token("sb://h/orders", name="sender", key="ns-send"), "orders", Rights.SEND,
    ),
    "a key of a hierarchical entity": (token("sb://h/a/b", name="deep", key="deep-key"), "a/b", Rights.SEND),
    "a key of the entity under the namespace's name": (
        token("sb://h/", name="orders", key="orders-key"), "orders", Rights.LISTEN,
    ),
    "python's credential": (
        ServiceBusSharedKeyCredential(ROOT, ROOT_KEY).get_token("sb://localhost:5672/q").token, "sb://h/q", FULL,
    ),
    "ours": (make_token("sb://h/q", ROOT, ROOT_KEY, NOW_S + 1), "q", FULL),
    "ours, with an odd name": (make_token("sb://h/q", "odd name/é+%", "odd-key", NOW_S + 1), "q", FULL),
}  # fmt: skip


@pytest.mark.parametrize("case", OPEN)
def test_what_opens(case: str) -> None:
    text, audience, rights = OPEN[case]
    # The SDK's own credential takes the time of the real clock.
    now_s = 0 if case == "python's credential" else NOW_S
    assert outcome(text, audience, now_s) == rights


def test_a_bare_host_name_is_known_by_the_hosts() -> None:
    text = token("bus.example.net")
    assert outcome(text, "q", hosts=("bus.example.net",)) == FULL
    assert outcome(text, "q") == 40104
    assert outcome(token("bus.example.net/q"), "q", hosts=("bus.example.net",)) == FULL
    assert outcome(token("bus.example.net/q"), "r", hosts=("bus.example.net",)) == 40104


HOST_KEY = {"name": "host", "key": "host-key"}
NAMESAKE = {
    "its key, for itself": (token(f"sb://h/{HOST_NAME}", **HOST_KEY), f"sb://h/{HOST_NAME}", FULL),
    "its key, below it": (token(f"sb://h/{HOST_NAME}", **HOST_KEY), f"sb://h/{HOST_NAME}/$DeadLetterQueue", FULL),
    "its key, the bare name, for itself": (token(HOST_NAME, **HOST_KEY), f"sb://h/{HOST_NAME}", FULL),
    "its key, for the namespace": (token(f"sb://h/{HOST_NAME}", **HOST_KEY), "sb://h/", 40103),
    "its key, for the namespace, by the bare name": (token(HOST_NAME, **HOST_KEY), HOST_NAME, 40103),
    "its key, for another entity": (token(f"sb://h/{HOST_NAME}", **HOST_KEY), "sb://h/q", 40103),
    "its key, for another entity, behind the bare name": (token(HOST_NAME, **HOST_KEY), f"{HOST_NAME}/q", 40103),
    "its key, for another entity, behind a URL": (token(HOST_NAME, **HOST_KEY), f"sb://{HOST_NAME}/q", 40103),
    "a token for it, for the namespace": (token(f"sb://h/{HOST_NAME}"), "sb://h/", 40104),
    "a token for it, for the namespace, by the bare name": (token(f"sb://h/{HOST_NAME}"), HOST_NAME, 40104),
    "a token for it, for another entity": (token(f"sb://h/{HOST_NAME}"), f"{HOST_NAME}/q", 40104),
}


@pytest.mark.parametrize("case", NAMESAKE)
def test_an_entity_that_is_called_as_the_bus_opens_nothing_else(case: str) -> None:
    text, audience, expected = NAMESAKE[case]
    assert outcome(text, audience, hosts=(HOST_NAME,)) == expected


@pytest.mark.parametrize(
    ("name", "key", "resource", "audience", "expected"),
    [
        (ROOT, ROOT_KEY, "sb://h/", "/q", True),
        (ROOT, "other-key", "sb://h/", "/q", False),
        ("other", ROOT_KEY, "sb://h/", "/q", False),
        ("orders", "orders-key", "sb://h/orders", "/orders", True),
        ("orders", "orders-key", "sb://h/", "/orders/messages", True),
        ("orders", "orders-key", "sb://h/orders", "/$polybus/entities/orders/log", True),
        ("orders", "orders-key", "sb://h/", "/q", False),
        ("hollow", "", "sb://h/empty", "/empty", False),
    ],
)
def test_whose_key_signed(name: str, key: str, resource: str, audience: str, expected: bool) -> None:
    assert signed_here(parse_token(token(resource, name=name, key=key)), audience, RING) is expected


def test_an_expired_token_still_says_whom_it_is_meant_for() -> None:
    assert signed_here(parse_token(token(expiry="1")), "/q", RING)


GOOD = token()


def field(name: str, value: str | None) -> str:
    """A good token with one field replaced, or taken away."""
    parts = dict(part.split("=", 1) for part in GOOD.removeprefix("SharedAccessSignature ").split("&"))
    parts.pop(name)
    if value is not None:
        parts[name] = value
    return "SharedAccessSignature " + "&".join(f"{key}={text}" for key, text in parts.items())


SIGNATURE = sign(ROOT_KEY, quote("sb://localhost/", safe=""), LATER)
CLOSED = {
    "none": (None, "q", 40102),
    "empty": ("", "q", 40102),
    "blank": ("  \t", "q", 40102),
    "only the prefix": ("SharedAccessSignature ", "q", 40105),
    "only the word": ("SharedAccessSignature", "q", 40105),
    "a bearer of nothing": ("Bearer ", "q", 40105),
    "a jwt": ("Bearer eyJhbGciOiJub25lIn0.eyJhdWQiOiJ4In0.", "q", 40105),
    "basic": ("Basic dXNlcjpwYXNz", "q", 40105),
    "wrap": ('WRAP access_token="x"', "q", 40105),
    "no prefix": (GOOD.removeprefix("SharedAccessSignature "), "q", 40105),
    "words": ("SharedAccessSignature let me in", "q", 40105),
    "ampersands": ("SharedAccessSignature &&&&", "q", 40105),
    "no audience": (field("sr", None), "q", 40107),
    "empty audience": (field("sr", ""), "q", 40107),
    "no expiry": (field("se", None), "q", 40108),
    "empty expiry": (field("se", ""), "q", 40108),
    "no key name": (field("skn", None), "q", 40109),
    "empty key name": (field("skn", ""), "q", 40109),
    "no signature": (field("sig", None), "q", 40110),
    "empty signature": (field("sig", ""), "q", 40110),
    "audience twice": (GOOD + "&sr=q", "q", 40105),
    "expiry twice": (GOOD + "&se=9999999999", "q", 40105),
    "key name twice": (GOOD + f"&skn={ROOT}", "q", 40105),
    "signature twice": (GOOD + "&sig=x", "q", 40105),
    "unknown field twice": (GOOD + "&x=1&x=2", "q", 40105),
    "many fields": (GOOD + "".join(f"&x{n}=1" for n in range(20)), "q", 40105),
    "a field without a value": (GOOD + "&x", "q", 40105),
    "upper-case fields": (GOOD.replace("sig=", "SIG="), "q", 40110),
    "huge": (GOOD + "&x=" + "a" * 5_000, "q", 40105),
    "enormous": ("SharedAccessSignature " + "a" * 1_000_000, "q", 40105),
    "a control character": (GOOD.replace("sr=", "sr=\x00"), "q", 40105),
    "a line feed": (GOOD.replace("&se", "\n&se"), "q", 40105),
    "not ascii": (GOOD.replace("skn=R", "skn=Ŕ"), "q", 40105),
    "expired": (token(expiry=str(NOW_S - 1)), "q", 40106),
    "expired just now": (token(expiry=str(NOW_S)), "q", 40106),
    "expired by a fraction": (token(expiry="1699999999.999999999"), "q", 40106),
    "expiry zero": (token(expiry="0"), "q", 40106),
    "negative expiry": (token(expiry="-1"), "q", 40105),
    "expiry in words": (token(expiry="tomorrow"), "q", 40105),
    "expiry in hexadecimal": (token(expiry="0x7fffffff"), "q", 40105),
    "expiry with an exponent": (token(expiry="1e12"), "q", 40105),
    "expiry with a sign": (token(expiry="+1700003600"), "q", 40105),
    "expiry with an underscore": (token(expiry="1_700_003_600"), "q", 40105),
    "expiry infinite": (token(expiry="inf"), "q", 40105),
    "expiry not a number": (token(expiry="nan"), "q", 40105),
    "expiry with two points": (token(expiry="1.7.0"), "q", 40105),
    "expiry with an empty fraction": (token(expiry="1700003600."), "q", 40105),
    "expiry in milliseconds": (token(expiry="1700003600000"), "q", 40105),
    "expiry past year 9999": (token(expiry="253402300800"), "q", 40105),
    "huge expiry": (token(expiry="9" * 400), "q", 40105),
    "a date for an expiry": (token(expiry=quote(datetime.date.max.isoformat())), "q", 40105),
    "wrong key": (token(key="guess"), "q", 40103),
    "empty key": (token(key=""), "q", 40103),
    "key in other case": (token(key=ROOT_KEY.lower()), "q", 40103),
    "key with a space": (token(key=ROOT_KEY + " "), "q", 40103),
    "key as the signature": (field("sig", ROOT_KEY), "q", 40103),
    "unknown name": (token(name="nobody"), "q", 40103),
    "nobody's key": (token(name="nobody", key="nobody"), "q", 40103),
    "no name, nobody's key": (token(skn="%20", key="nobody"), "q", 40103),
    "name in other case": (token(name=ROOT.lower()), "q", 40103),
    "a prefix of the name": (token(name=ROOT[:-1]), "q", 40103),
    "name encoded three times": (
        token(key="odd-key", skn=quote(quote(quote("odd name/é+%", safe=""), safe=""), safe="")), "q", 40103,
    ),
    "a rule with empty keys": (token("sb://h/empty", name="hollow", key=""), "empty", 40103),
    "signature cut": (field("sig", quote(SIGNATURE[:-2], safe="")), "q", 40103),
    "signature longer": (field("sig", quote(SIGNATURE + "=", safe="")), "q", 40103),
    "signature in other case": (field("sig", quote(SIGNATURE.lower(), safe="")), "q", 40103),
    "signature in hexadecimal": (field("sig", base64.b64decode(SIGNATURE).hex()), "q", 40103),
    "signature encoded twice": (field("sig", quote(quote(SIGNATURE, safe=""), safe="")), "q", 40103),
    "signature of zeros": (field("sig", quote(base64.b64encode(bytes(32)).decode(), safe="")), "q", 40103),
    "signature of nothing": (field("sig", "%00"), "q", 40103),
    "signature of broken utf-8": (field("sig", "%ff%fe"), "q", 40103),
    "signature url-safe": (field("sig", SIGNATURE.replace("+", "-").replace("/", "_") + "-"), "q", 40103),
    "audience changed": (field("sr", quote("sb://localhost", safe="")), "q", 40103),
    "audience encoded otherwise": (field("sr", "sb%3a%2f%2flocalhost%2f"), "q", 40103),
    "audience not encoded": (field("sr", "sb://localhost/"), "q", 40103),
    "expiry changed": (field("se", str(NOW_S + 7200)), "q", 40103),
    "expiry with a zero before": (field("se", "0" + LATER), "q", 40103),
    "expiry with a fraction added": (field("se", LATER + ".0"), "q", 40103),
    "name changed": (field("skn", "sender"), "q", 40103),
    "another entity": (token("sb://h/q"), "r", 40104),
    "a prefix of the entity's name": (token("sb://h/queu"), "queue", 40104),
    "a longer name": (token("sb://h/queue1"), "queue", 40104),
    "a name below": (token("sb://h/q/sub"), "q", 40104),
    "an entity for the namespace": (token("sb://h/q"), "", 40104),
    "an entity for the lists": (token("https://h/q"), "/$Resources/queues", 40104),
    "the dead-letter queue for the queue": (token("sb://h/q/$DeadLetterQueue"), "q", 40104),
    "another subscription": (token("sb://h/t/subscriptions/s"), "t/subscriptions/s2", 40104),
    "a subscription for its topic": (token("sb://h/t/subscriptions/s"), "t", 40104),
    "double encoding": (token(raw=quote(quote("sb://h/q", safe=""), safe="")), "q", 40104),
    "double encoding of a path": (token(raw="sb%3A%2F%2Fh%2Fa%25252Fb"), "a/b", 40104),
    "dots": (token("sb://h/q/../r"), "r", 40104),
    "encoded dots": (token("sb://h/q/%2e%2e/r"), "r", 40104),
    "an empty segment": (token("sb://h/a//b"), "a/b", 40104),
    "a plus for a slash": (token(raw="sb://h/a+b"), "a/b", 40104),
    "a letter that folds to another": (token("sb://h/\u212a"), "k", 40104),
    "a fullwidth letter": (token("sb://h/\uff51"), "q", 40104),
    "a star": (token("sb://h/*"), "q", 40104),
    "a query for a path": (token("sb://h/r?/q"), "q", 40104),
    "a fragment for a path": (token("sb://h/r#/q"), "q", 40104),
    "a user in the authority": (token("sb://h@q/r"), "q", 40104),
    "two schemes": (token("sb://sb://h/q"), "q", 40104),
    "a backslash": (token("sb://h\\q/r"), "q", 40104),
    "the name without a scheme": (token("localhost/q"), "q", 40104),
    "a key of another entity": (token("sb://h/q", name="orders", key="orders-key"), "q", 40103),
    "a key of another entity, its own audience": (
        token("sb://h/orders", name="orders", key="orders-key"), "q", 40103,
    ),
    "a key of another entity under the namespace's name": (
        token("sb://h/", name="orders", key="orders-key"), "q", 40103,
    ),
    "a key of an entity for the namespace": (token("sb://h/", name="orders", key="orders-key"), "", 40103),
    "a key of an entity with a longer name": (token("sb://h/", name="orders", key="orders-key"), "orders2", 40103),
    "a key of a child for its parent": (token("sb://h/", name="deep", key="deep-key"), "a", 40103),
    "a key of the namespace with the entity's key": (token("sb://h/q", name="sender", key="orders-send"), "q", 40103),
    "an odd name with a wrong key": (token(name="odd name/é+%", key="ns-send"), "q", 40103),
}  # fmt: skip


@pytest.mark.parametrize("case", CLOSED)
def test_what_stays_closed(case: str) -> None:
    text, audience, sub_code = CLOSED[case]
    assert outcome(text, audience) == sub_code


def test_there_are_enough_cases() -> None:
    assert len(OPEN) + len(CLOSED) >= 100


SENDS, LISTENS, MANAGES = Rights.SEND, Rights.LISTEN, Rights.MANAGE


@pytest.mark.parametrize(
    ("rights", "needed", "enough"),
    [
        (SENDS, SENDS, True),
        (LISTENS, LISTENS, True),
        (MANAGES, SENDS, True),
        (MANAGES, LISTENS, True),
        (MANAGES, MANAGES, True),
        (SENDS | LISTENS, SENDS, True),
        (SENDS, Rights.NONE, True),
        (LISTENS, SENDS, False),
        (SENDS, LISTENS, False),
        (SENDS, MANAGES, False),
        (LISTENS, MANAGES, False),
        (SENDS | LISTENS, MANAGES, False),
        (Rights.NONE, SENDS, False),
        (SENDS, SENDS | LISTENS, False),
    ],
)
def test_rights(rights: Rights, needed: Rights, enough: bool) -> None:
    if enough:
        require(rights, needed, "sb://h/q")
        return
    with pytest.raises(Unauthorized, match=r"claim\(s\) are required") as refusal:
        require(rights, needed, "sb://h/q")
    assert refusal.value.sub_code == 40100


@pytest.mark.parametrize(
    ("needed", "claims"),
    [(SENDS, "'Send'"), (LISTENS, "'Listen'"), (MANAGES, "'Manage'"), (SENDS | LISTENS, "'Send,Listen'")],
)
def test_the_refusal_names_the_claims(needed: Rights, claims: str) -> None:
    with pytest.raises(Unauthorized) as refusal:
        require(Rights.NONE, needed, "sb://h/q")
    assert claims in refusal.value.description
    assert "Resource: 'sb://h/q'" in refusal.value.description


def test_rights_of_a_rule() -> None:
    assert Rights.of(ALL) == Rights.of([AccessRight.MANAGE]) == Rights.MANAGE
    assert Rights.of([]) == Rights.NONE
    assert Rights.of([AccessRight.SEND, AccessRight.LISTEN]) == Rights.SEND | Rights.LISTEN != Rights.MANAGE


def test_both_keys_are_always_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many comparisons for a name that nobody has as for one that somebody has, right or wrong."""
    compared: list[int] = []
    real = hmac.compare_digest

    def counting(one: bytes, other: bytes) -> bool:
        compared.append(len(one))
        return real(one, other)

    monkeypatch.setattr(sas.hmac, "compare_digest", counting)  # type: ignore[attr-defined]
    counts = []
    for text in (token(), token(key=f"{ROOT_KEY}-2"), token(key="wrong"), token(name="nobody")):
        compared.clear()
        outcome(text, "q")
        counts.append(list(compared))
    assert counts[0] == counts[1] == counts[2] == counts[3] == [44] * 4


def test_nothing_secret_shows() -> None:
    text = token("sb://h/private-name")
    parsed = parse_token(text)
    assert parsed.signature not in repr(parsed)
    assert "private-name" not in repr(parsed)
    for bad in (text + "&sr=q", token(key="wrong"), token(expiry="1"), token("sb://h/other")):
        with pytest.raises(Unauthorized) as refusal:
            authorize(parse_token(bad), "q", NOW_S, RING)
        assert "sig" not in str(refusal.value).lower().replace("signature", "")
        assert parsed.signature not in str(refusal.value)
        assert refusal.value.__cause__ is None


def test_a_refusal_is_unauthorized_on_both_protocols() -> None:
    with pytest.raises(Unauthorized) as refusal:
        parse_token(None)
    assert (refusal.value.http_status, refusal.value.condition) == (401, "amqp:unauthorized-access")
    assert Unauthorized.sub_code == 40100


def test_dropping_and_replacing_rules() -> None:
    ring = KeyRing([rule(ROOT, ALL, "one")])
    ring.set_rules("Q", [rule("k", SEND, "q-key")])
    text = token("sb://h/q", name="k", key="q-key")
    assert authorize(parse_token(text), "q", NOW_S, ring) == Rights.SEND
    ring.drop("q")
    with pytest.raises(Unauthorized):
        authorize(parse_token(text), "q", NOW_S, ring)
    ring.set_rules("", [rule(ROOT, SEND, "two")])
    with pytest.raises(Unauthorized):
        authorize(parse_token(token(key="one")), "q", NOW_S, ring)
    assert authorize(parse_token(token(key="two")), "q", NOW_S, ring) == Rights.SEND


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("", ()),
        ("/", ()),
        ("sb://h", ()),
        ("sb://h/", ()),
        ("sb://h/$management", ()),
        ("$management", ()),
        ("sb://h:1/A/b/$MANAGEMENT/", ("a", "b", "$management")),
        ("sb://h:1/A/b/$Management", ("a", "b")),
        ("Q/$DeadLetterQueue", ("q", "$deadletterqueue")),
        ("h:99/q", ("q",)),
        ("https://h?api-version=1", ()),
    ],
)
def test_scopes(text: str, scope: tuple[str, ...]) -> None:
    if text.endswith("$MANAGEMENT/"):
        scope = scope[:-1]
    assert scope_of(text) == scope


@pytest.mark.parametrize(
    ("text", "answer"),
    [(token(), True), ("Bearer " + token(), True), ("eyJ.eyJ.sig", False), ("", False), ("sr=a&sig=b", False)],
)
def test_tokens_are_told_from_others(text: str, answer: bool) -> None:
    assert is_sas(text) is answer


def test_new_keys_are_long_and_never_the_same() -> None:
    keys = {sas.new_key() for _ in range(50)}
    assert len(keys) == 50
    assert all(len(base64.b64decode(key)) == 32 for key in keys)


texts = st.text(st.characters(min_codepoint=1, exclude_categories=["Cs"]), min_size=1, max_size=30)


@given(texts, texts, st.integers(NOW_S + 1, 253_402_300_799), st.sampled_from(["q", "a/b", "t/Subscriptions/s"]))
def test_our_own_tokens_open(name: str, key: str, expires_s: int, path: str) -> None:
    ring = KeyRing([rule(name, SEND, key, "other")])
    parsed = parse_token(make_token(f"sb://h/{path}", name, key, expires_s))
    assert authorize(parsed, f"amqps://host/{path}/$management", NOW_S, ring) == Rights.SEND
    assert parsed.expires_s == expires_s


@settings(max_examples=300)
@given(st.data())
def test_a_mutated_token_opens_nothing_more(data: st.DataObject) -> None:
    """One character of a good token changed: it is refused, or it still means exactly the same."""
    text = token("sb://h/q")
    place = data.draw(st.integers(len("SharedAccessSignature "), len(text) - 1))
    letter = data.draw(st.characters(min_codepoint=0, max_codepoint=0x2FF))
    mutated = text[:place] + letter + text[place + data.draw(st.integers(0, 1)) :]
    got = outcome(mutated, "q")
    assert got == FULL or got >= 40102
    if got == FULL:
        before, after = parse_token(text), parse_token(mutated)
        assert (before.resource, before.expiry, before.signature) == (after.resource, after.expiry, after.signature)
    assert outcome(mutated, "r") != FULL


@given(st.text(max_size=80) | st.text("SharedAccessSignature srsigseskn=&%20.+", max_size=120))
def test_any_text_is_refused(text: str) -> None:
    assert not isinstance(outcome(text, "q"), Rights)
    assert not isinstance(outcome("SharedAccessSignature " + text, "q"), Rights)
