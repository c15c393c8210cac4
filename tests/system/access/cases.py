"""Who asks for what, and whether the bus may say yes. One row is asked on every protocol alike.

Keys of the namespace come from the command line, those of entities from their descriptions. `orders` has keys of its
own, `orders2` and `order` share most of its name, `127.0.0.1` is called as the bus's own host.
"""

from __future__ import annotations

import base64
import enum
import time
from dataclasses import dataclass
from urllib.parse import quote

from tests.system.access import jwt_cases
from tests.unit.gateway.test_sas import sign

ROOT, ROOT_KEY = "RootManageSharedAccessKey", "SAS_KEY_VALUE"
ODD = "odd name/é+%"
NAMESPACE_KEYS = (
    f"{ROOT}={ROOT_KEY}",
    "sender=ns-send:Send",
    "listener=ns-listen:Listen",
    "both=ns-both:Send,Listen",
    f"{ODD}=odd-key",
)
OWN_KEYS: dict[str, tuple[tuple[str, tuple[str, ...], str, str], ...]] = {
    "orders": (
        ("own", ("Manage", "Send", "Listen"), "own-key", "own-other"),
        ("own-send", ("Send",), "own-send-key", "own-send-other"),
        ("own-listen", ("Listen",), "own-listen-key", "own-listen-other"),
        ("sender", ("Listen",), "orders-sender", "orders-sender-2"),
    ),
    "topic": (("topic-own", ("Manage", "Send", "Listen"), "topic-key", "topic-other"),),
    "a/b": (("deep", ("Send",), "deep-key", "deep-other"),),
    "relay": (
        ("relay-own", ("Manage", "Send", "Listen"), "relay-key", "relay-other"),
        ("relay-send", ("Send",), "relay-send-key", "relay-send-other"),
    ),
    "talks": (("talks-listen", ("Listen",), "talks-key", "talks-other"),),
    "127.0.0.1": (("host", ("Manage", "Send", "Listen"), "host-key", "host-other"),),
}
NOW_S = int(time.time())
LATER, PAST = str(NOW_S + 3600), str(NOW_S - 3600)
HOST = "sb://localhost/"


class Do(enum.Enum):
    """What the client wants, in words that every protocol has."""

    SEND = "send"
    LISTEN = "listen"
    DEAD_LETTERS = "receive dead letters"
    PEEK = "peek"
    SCHEDULE = "schedule"
    RULES = "read the rules of a subscription"
    READ_IN_BULK = "look at many messages at once"
    WRITE_IN_BULK = "stage many messages at once"
    SESSIONS = "list the sessions"
    SEND_ON = "let an entity send on to another"


def plain(name: str, key: str, identity: str = "") -> bytes:
    return f"{identity}\0{name}\0{key}".encode()


@dataclass(frozen=True)
class Case:
    token: str | None
    allowed: bool
    do: Do = Do.SEND
    path: str = "orders"
    audience: str | None = None
    """What the token is shown for over AMQP, where that is not the address of `path`."""
    login: tuple[str | None, bytes] = ("MSSBCBS", b"")
    """SASL mechanism, or None to skip SASL, and its response, which over HTTP is a Basic header."""
    over_http: bool | None = None
    """The verdict over HTTP where the protocols differ by their nature."""


def token(
    path: str = "",
    *,
    name: str = ROOT,
    key: str = ROOT_KEY,
    expiry: str = LATER,
    raw: str | None = None,
    skn: str = "",
) -> str:
    sr = quote(HOST + path, safe="") if raw is None else raw
    sig = quote(sign(key, sr, expiry), safe="")
    return f"SharedAccessSignature sr={sr}&sig={sig}&se={expiry}&skn={skn or quote(name, safe='')}"


GOOD = token("orders")
SIGNATURE = sign(ROOT_KEY, quote(HOST + "orders", safe=""), LATER)


def field(name: str, value: str | None) -> str:
    """The good token with one field replaced, or taken away."""
    parts = dict(part.split("=", 1) for part in GOOD.removeprefix("SharedAccessSignature ").split("&"))
    parts.pop(name)
    if value is not None:
        parts[name] = value
    return "SharedAccessSignature " + "&".join(f"{key}={text}" for key, text in parts.items())


def opens(text: str, do: Do = Do.SEND, path: str = "orders", **rest: object) -> Case:
    return Case(text, True, do, path, **rest)  # type: ignore[arg-type]


def stays(text: str | None, do: Do = Do.SEND, path: str = "orders", **rest: object) -> Case:
    return Case(text, False, do, path, **rest)  # type: ignore[arg-type]


OWN_SEND = token("orders", name="own-send", key="own-send-key")
OWN_LISTEN = token("orders", name="own-listen", key="own-listen-key")
SUB, SUB2 = "topic/Subscriptions/sub", "topic/Subscriptions/sub2"

FORMS = {
    "good": opens(GOOD),
    "the namespace's": opens(token()),
    "without a slash": opens(token(raw=quote("sb://localhost", safe=""))),
    "https": opens(token(raw=quote("https://localhost:5300/orders", safe=""))),
    "amqps and a port": opens(token(raw=quote("amqps://localhost:5671/orders", safe=""))),
    "a slash at the end": opens(token("orders/")),
    "entity in other case": opens(token("ORDERS")),
    "path in other case": opens(GOOD, path="Orders"),
    "hierarchical": opens(token("a/b"), path="a/b"),
    "parent of a hierarchical name": opens(token("a"), path="a/b"),
    "lower-case hex": opens(token(raw="sb%3a%2f%2flocalhost%2forders")),
    "sr not encoded": opens(token(raw="sb://localhost/orders")),
    "a fraction": opens(token(expiry=LATER + ".5")),
    "last second of year 9999": opens(token(expiry="253402300799")),
    "a bearer": opens("Bearer " + GOOD),
    "prefix in other case": opens(GOOD.replace("SharedAccess", "sharedaccess", 1)),
    "an unknown field": opens(GOOD + "&extra=1"),
    "an odd name": opens(token(name=ODD, key="odd-key")),
    "an odd name encoded twice": opens(token(key="odd-key", skn=quote(quote(ODD, safe=""), safe=""))),
    "secondary key of the entity": opens(token("orders", name="own", key="own-other")),
    "the management node's": opens(token("orders/$management")),
}
BROKEN = {
    "none": stays(None),
    "none, to listen": stays(None, Do.LISTEN),
    "none, to peek": stays(None, Do.PEEK),
    "none, to schedule": stays(None, Do.SCHEDULE),
    "none, for dead letters": stays(None, Do.DEAD_LETTERS),
    "none, for rules": stays(None, Do.RULES, SUB),
    "none, for an entity that is not there": stays(None, path="missing"),
    "empty": stays(""),
    "blank": stays("   "),
    "only the word": stays("SharedAccessSignature"),
    "a jwt without a signature": stays("Bearer eyJhbGciOiJub25lIn0.eyJhdWQiOiJ4In0."),
    "a wrap token": stays('WRAP access_token="x"'),
    "no prefix": stays(GOOD.removeprefix("SharedAccessSignature ")),
    "no audience": stays(field("sr", None)),
    "empty audience": stays(field("sr", "")),
    "no expiry": stays(field("se", None)),
    "empty expiry": stays(field("se", "")),
    "no key name": stays(field("skn", None)),
    "empty key name": stays(field("skn", "")),
    "no signature": stays(field("sig", None)),
    "empty signature": stays(field("sig", "")),
    "audience twice": stays(GOOD + "&sr=orders"),
    "expiry twice": stays(GOOD + "&se=9999999999"),
    "key name twice": stays(GOOD + f"&skn={ROOT}"),
    "signature twice": stays(GOOD + "&sig=x"),
    "the same signature twice": stays(GOOD + "&sig=" + quote(SIGNATURE, safe="")),
    "many fields": stays(GOOD + "".join(f"&x{n}=1" for n in range(20))),
    "a field without a value": stays(GOOD + "&x"),
    "fields in upper case": stays(GOOD.replace("sig=", "SIG=")),
    "longer than any token": stays(GOOD + "&x=" + "a" * 5_000),
}
TIMES = {
    "expired": stays(token("orders", expiry=PAST)),
    "expired, root of the namespace": stays(token(expiry=PAST)),
    "expired, to listen": stays(token("orders", expiry=PAST), Do.LISTEN),
    "expired in 1970": stays(token("orders", expiry="0")),
    "negative": stays(token("orders", expiry="-1")),
    "in words": stays(token("orders", expiry="tomorrow")),
    "hexadecimal": stays(token("orders", expiry="0x7fffffff")),
    "an exponent": stays(token("orders", expiry="1e11")),
    "a sign": stays(token("orders", expiry="+" + LATER)),
    "infinite": stays(token("orders", expiry="inf")),
    "not a number": stays(token("orders", expiry="nan")),
    "in milliseconds": stays(token("orders", expiry=LATER + "000")),
    "past year 9999": stays(token("orders", expiry="253402300800")),
    "huge": stays(token("orders", expiry="9" * 400)),
    "put off without signing": stays(field("se", str(NOW_S + 7200))),
    "a zero before it": stays(field("se", "0" + LATER)),
}
KEYS = {
    "wrong key": stays(token("orders", key="guess")),
    "empty key": stays(token("orders", key="")),
    "key in other case": stays(token("orders", key=ROOT_KEY.lower())),
    "key as the signature": stays(field("sig", ROOT_KEY)),
    "unknown name": stays(token("orders", name="nobody")),
    "nobody's key": stays(token("orders", name="nobody", key="nobody")),
    "name in other case": stays(token("orders", name=ROOT.lower())),
    "prefix of a key's name": stays(token("orders", name=ROOT[:-1])),
    "name of another key": stays(field("skn", "sender")),
    "signature cut": stays(field("sig", quote(SIGNATURE[:-2], safe=""))),
    "signature longer": stays(field("sig", quote(SIGNATURE + "=", safe=""))),
    "signature in other case": stays(field("sig", quote(SIGNATURE.swapcase(), safe=""))),
    "signature encoded twice": stays(field("sig", quote(quote(SIGNATURE, safe=""), safe=""))),
    "signature of zeros": stays(field("sig", quote(base64.b64encode(bytes(32)).decode(), safe=""))),
    "signature of broken utf-8": stays(field("sig", "%ff%fe")),
    "key of another entity": stays(token("other", name="own", key="own-key"), path="other"),
    "key of another entity, its own audience": stays(token("orders", name="own", key="own-key"), path="other"),
    "key of another entity, the whole namespace": stays(token(name="own", key="own-key"), path="other"),
    "key of an entity for one with a longer name": stays(token(name="own", key="own-key"), path="orders2"),
    "key of an entity for one with a shorter name": stays(token(name="own", key="own-key"), path="order"),
    "key of a child for its parent": stays(token("a", name="deep", key="deep-key"), path="a"),
    "key of a child": opens(token("a/b", name="deep", key="deep-key"), path="a/b"),
    "key of a topic": opens(token("topic", name="topic-own", key="topic-key"), path="topic"),
    "key of a topic for a queue": stays(token("orders", name="topic-own", key="topic-key")),
    "key of an entity": opens(token("orders", name="own", key="own-key")),
}
AUDIENCES = {
    "another entity": stays(token("other")),
    "another entity, shown as it is": stays(token("other"), audience=HOST + "other"),
    "prefix of the name": stays(token("order")),
    "longer name": stays(token("orders2")),
    "a name below": stays(token("orders/sub")),
    "dead letters for the queue": stays(token("orders/$DeadLetterQueue"), Do.LISTEN),
    "double encoding": stays(token(raw=quote(quote(HOST + "orders", safe=""), safe=""))),
    "double encoding of a path": stays(token(raw="sb%3A%2F%2Flocalhost%2Fa%25252Fb"), path="a/b"),
    "dots": stays(token("other/../orders")),
    "encoded dots": stays(token("other/%2e%2e/orders")),
    "an empty segment": stays(token("a//b"), path="a/b"),
    "a star": stays(token("*")),
    "a query for a path": stays(token("other?/orders")),
    "a fragment for a path": stays(token("other#/orders")),
    "a user in the authority": stays(token(raw=quote("sb://localhost@orders/other", safe=""))),
    "a backslash": stays(token(raw=quote("sb://localhost\\orders/other", safe=""))),
    "a letter that folds to another": stays(token("order\u017f")),
    "a fullwidth letter": stays(token("\uff4frders")),
    "audience changed after signing": stays(field("sr", quote(HOST, safe=""))),
    "audience encoded otherwise after signing": stays(field("sr", "sb%3a%2f%2flocalhost%2forders")),
    "one subscription for another": stays(token(SUB), Do.LISTEN, SUB2),
    "a subscription for its topic": stays(token(SUB), path="topic"),
    "a subscription": opens(token(SUB), Do.LISTEN, SUB),
    "an entity called as the host, for itself": opens(
        token("127.0.0.1", name="host", key="host-key"), path="127.0.0.1"
    ),
    "an entity called as the host, for all": stays(
        token("127.0.0.1", name="host", key="host-key"), audience="127.0.0.1"
    ),
    "an entity called as the host, for another": stays(
        token("127.0.0.1", name="host", key="host-key"), audience="127.0.0.1/orders"
    ),
    "a token for an entity called as the host, for all": stays(token("127.0.0.1"), audience="127.0.0.1"),
}
RIGHTS = {
    "Send sends": opens(token(name="sender", key="ns-send"), path="other"),
    "Send schedules": opens(token(name="sender", key="ns-send"), Do.SCHEDULE, "other"),
    "Send listens": stays(token(name="sender", key="ns-send"), Do.LISTEN, "other"),
    "Send peeks": stays(token(name="sender", key="ns-send"), Do.PEEK, "other"),
    "Send reads dead letters": stays(token(name="sender", key="ns-send"), Do.DEAD_LETTERS, "other"),
    "Send manages": stays(token(name="sender", key="ns-send"), Do.RULES, SUB),
    "Listen listens": opens(token(name="listener", key="ns-listen"), Do.LISTEN),
    "Listen peeks": opens(token(name="listener", key="ns-listen"), Do.PEEK),
    "Listen reads dead letters": opens(token(name="listener", key="ns-listen"), Do.DEAD_LETTERS),
    "Listen sends": stays(token(name="listener", key="ns-listen")),
    "Listen schedules": stays(token(name="listener", key="ns-listen"), Do.SCHEDULE),
    "Listen reads rules, which is management over HTTP": opens(
        token(name="listener", key="ns-listen"), Do.RULES, SUB, over_http=False
    ),
    "Send and Listen send": opens(token(name="both", key="ns-both")),
    "Send and Listen listen": opens(token(name="both", key="ns-both"), Do.LISTEN),
    "Manage sends": opens(token()),
    "Manage listens": opens(token(), Do.LISTEN),
    "Manage reads dead letters": opens(token(), Do.DEAD_LETTERS),
    "Manage manages": opens(token(), Do.RULES, SUB),
    "the topic's Manage manages": opens(token("topic", name="topic-own", key="topic-key"), Do.RULES, SUB),
    "a queue's Manage manages a topic": stays(token("orders", name="own", key="own-key"), Do.RULES, SUB),
    "the entity's Send sends": opens(OWN_SEND),
    "the entity's Send listens": stays(OWN_SEND, Do.LISTEN),
    "the entity's Send peeks": stays(OWN_SEND, Do.PEEK),
    "the entity's Send reads dead letters": stays(OWN_SEND, Do.DEAD_LETTERS),
    "the entity's Listen listens": opens(OWN_LISTEN, Do.LISTEN),
    "the entity's Listen reads dead letters": opens(OWN_LISTEN, Do.DEAD_LETTERS),
    "the entity's Listen sends": stays(OWN_LISTEN),
    "the entity's Listen schedules": stays(OWN_LISTEN, Do.SCHEDULE),
    "one name, the entity's key listens": opens(token("orders", name="sender", key="orders-sender"), Do.LISTEN),
    "one name, the entity's key sends": stays(token("orders", name="sender", key="orders-sender")),
    "one name, the namespace's key sends": opens(token("orders", name="sender", key="ns-send")),
    "one name, the namespace's key listens": stays(token("orders", name="sender", key="ns-send"), Do.LISTEN),
}


def logs_in(mechanism: str | None, response: bytes = b"", text: str | None = None, **rest: object) -> Case:
    return Case(text, login=(mechanism, response), **rest)  # type: ignore[arg-type]


LOGINS = {
    "PLAIN": logs_in("PLAIN", plain(ROOT, ROOT_KEY), allowed=True, over_http=False),
    "PLAIN with Send sends": logs_in("PLAIN", plain("sender", "ns-send"), allowed=True, over_http=False),
    "PLAIN with Send listens": logs_in("PLAIN", plain("sender", "ns-send"), allowed=False, do=Do.LISTEN),
    "PLAIN with Listen sends": logs_in("PLAIN", plain("listener", "ns-listen"), allowed=False),
    "PLAIN with a wrong key": logs_in("PLAIN", plain(ROOT, "guess"), allowed=False),
    "PLAIN with a wrong name": logs_in("PLAIN", plain("nobody", ROOT_KEY), allowed=False),
    "PLAIN with another's key": logs_in("PLAIN", plain("sender", ROOT_KEY), allowed=False),
    "PLAIN with nothing": logs_in("PLAIN", b"", allowed=False),
    "PLAIN with an empty key": logs_in("PLAIN", plain(ROOT, ""), allowed=False),
    "PLAIN with two parts": logs_in("PLAIN", f"{ROOT}\0{ROOT_KEY}".encode(), allowed=False),
    "PLAIN with four parts": logs_in("PLAIN", plain(ROOT, ROOT_KEY) + b"\0x", allowed=False),
    "PLAIN with broken utf-8": logs_in("PLAIN", b"\0\xff\0\xfe", allowed=False),
    "PLAIN with an entity's key": logs_in("PLAIN", plain("own", "own-key"), allowed=False),
    "ANONYMOUS": logs_in("ANONYMOUS", allowed=False),
    "ANONYMOUS with a password": logs_in("ANONYMOUS", plain(ROOT, ROOT_KEY), allowed=False),
    "ANONYMOUS and a token": logs_in("ANONYMOUS", b"", GOOD, allowed=True),
    "MSSBCBS with a password": logs_in("MSSBCBS", plain(ROOT, ROOT_KEY), allowed=False),
    "EXTERNAL": logs_in("EXTERNAL", allowed=False),
    "EXTERNAL with a name": logs_in("EXTERNAL", ROOT.encode(), allowed=False),
    "EXTERNAL with a password": logs_in("EXTERNAL", plain(ROOT, ROOT_KEY), allowed=False),
    "an unknown mechanism": logs_in("SCRAM-SHA-256", b"n,,n=x,r=y", allowed=False),
    "no mechanism": logs_in("", allowed=False),
    "SASL skipped": logs_in(None, allowed=False),
    "SASL skipped, to listen": logs_in(None, allowed=False, do=Do.LISTEN),
    "SASL skipped, to peek": logs_in(None, allowed=False, do=Do.PEEK),
}
NAMESPACE_RIGHTS = {
    "Manage": (ROOT, ROOT_KEY, "SLM"),
    "Send": ("sender", "ns-send", "S"),
    "Listen": ("listener", "ns-listen", "L"),
    "Send and Listen": ("both", "ns-both", "SL"),
    "a wrong key": (ROOT, "guess", ""),
    "an entity's Manage elsewhere": ("own", "own-key", ""),
}
BULK = {
    f"{who} {do.value}": Case(token(name=name, key=key), needed in rights, do, path)
    for who, (name, key, rights) in NAMESPACE_RIGHTS.items()
    for do, path, needed in (
        (Do.READ_IN_BULK, "other", "L"),
        (Do.WRITE_IN_BULK, "other", "S"),
        (Do.SESSIONS, "talks", "L"),
    )
} | {
    "expired, in bulk": stays(token(expiry=PAST), Do.READ_IN_BULK, "other"),
    "none, in bulk": stays(None, Do.WRITE_IN_BULK, "other"),
    "an entity's Listen for sessions": opens(
        token("talks", name="talks-listen", key="talks-key"), Do.SESSIONS, "talks"
    ),
    "an entity's Listen for another's sessions": stays(OWN_LISTEN, Do.SESSIONS, "talks"),
    "an entity's Send in bulk": opens(OWN_SEND, Do.WRITE_IN_BULK),
    "an entity's Send reads in bulk": stays(OWN_SEND, Do.READ_IN_BULK),
}
RELAYED = {
    "Manage": opens(token(), Do.SEND_ON, "relay", audience=HOST),
    "Manage on the one alone": stays(token("relay", name="relay-own", key="relay-key"), Do.SEND_ON, "relay"),
    "Manage on the one alone, shown for all": stays(token(name="relay-own", key="relay-key"), Do.SEND_ON, "relay"),
    "Send on the one alone": stays(token("relay", name="relay-send", key="relay-send-key"), Do.SEND_ON, "relay"),
    "Listen everywhere": stays(token(name="listener", key="ns-listen"), Do.SEND_ON, "relay"),
    "Send everywhere, which manages nothing over HTTP": opens(
        token(name="sender", key="ns-send"), Do.SEND_ON, "relay", audience=HOST, over_http=False
    ),
    "none": stays(None, Do.SEND_ON, "relay"),
}


def bears(text: str, allowed: bool, do: Do = Do.SEND, path: str = "orders", **rest: object) -> Case:
    return Case(text, allowed, do, path, **rest)  # type: ignore[arg-type]


def by_role(*roles: str) -> str:
    return jwt_cases.signed(jwt_cases.claims(*roles))


TOKENS = (
    {name: opens(text) for name, text in jwt_cases.OPENING.items()}
    | {"behind the word Bearer, which only HTTP has": stays("Bearer " + jwt_cases.GOOD, over_http=True)}
    | {name: stays(text) for name, text in jwt_cases.REFUSED.items()}
    | {
        "the owner listens": opens(jwt_cases.GOOD, Do.LISTEN),
        "the owner manages": opens(jwt_cases.GOOD, Do.RULES, SUB),
        "the owner reads in bulk": opens(jwt_cases.GOOD, Do.READ_IN_BULK),
        "the sender sends": opens(by_role(jwt_cases.SENDER)),
        "the sender listens": stays(by_role(jwt_cases.SENDER), Do.LISTEN),
        "the sender peeks": stays(by_role(jwt_cases.SENDER), Do.PEEK),
        "the sender reads rules": stays(by_role(jwt_cases.SENDER), Do.RULES, SUB),
        "the receiver listens": opens(by_role(jwt_cases.RECEIVER), Do.LISTEN),
        "the receiver sends": stays(by_role(jwt_cases.RECEIVER)),
        "the receiver schedules": stays(by_role(jwt_cases.RECEIVER), Do.SCHEDULE),
        "two roles send": opens(by_role(jwt_cases.RECEIVER, jwt_cases.SENDER)),
        "two roles listen": opens(by_role(jwt_cases.RECEIVER, jwt_cases.SENDER), Do.LISTEN),
        "a role for one queue": opens(by_role("orders-sender")),
        "a role for one queue, in other case": opens(by_role("orders-sender"), path="ORDERS"),
        "a role for one queue, for another": stays(by_role("orders-sender"), path="other"),
        "a role for one queue, for one with a longer name": stays(by_role("orders-sender"), path="orders2"),
        "a role for one queue, to listen": stays(by_role("orders-sender"), Do.LISTEN),
        "a role for one subscription": opens(by_role("topic-reader"), Do.LISTEN, SUB),
        "a role for one subscription, for another": stays(by_role("topic-reader"), Do.LISTEN, SUB2),
        "a role for one subscription, for its topic": stays(by_role("topic-reader"), path="topic"),
        "a role for an entity called as the host": opens(by_role("host-owner"), path="127.0.0.1"),
        "a role for an entity called as the host, for all": stays(by_role("host-owner"), audience="127.0.0.1"),
        "a role for an entity called as the host, for another": stays(
            by_role("host-owner"), audience="127.0.0.1/orders"
        ),
    }
)
CASES = {
    f"{group}: {name}": case
    for group, table in (
        ("form", FORMS),
        ("broken", BROKEN),
        ("expiry", TIMES),
        ("key", KEYS),
        ("audience", AUDIENCES),
        ("right", RIGHTS),
        ("login", LOGINS),
        ("bulk", BULK),
        ("send on", RELAYED),
        ("jwt", TOKENS),
    )
    for name, case in table.items()
}
