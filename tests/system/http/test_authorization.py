"""Who may do what over HTTP: the twins of the SAS cases, and which right each call needs."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, quote_plus

import httpx
import pytest

from polybus.errors import Unauthorized
from polybus.gateway.sas import Rights
from polybus.namespace.entities.description import (
    AccessRight,
    AuthorizationRule,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from tests.system.http.kit import ALL, KEY, KEY_NAME, Server
from tests.system.http.test_refusals import check, entry, queue

NEVER = "00000000-0000-0000-0000-000000000000"


@pytest.fixture(scope="module", autouse=True)
def entities(server: Server) -> None:
    management = server.namespace.management
    own = AuthorizationRule(key_name="own", rights=ALL, primary_key="own key", secondary_key="own other")
    reader = AuthorizationRule(
        key_name="reader", rights=(AccessRight.LISTEN,), primary_key="read key", secondary_key=""
    )
    server.wait(management.create(QueueDescription(path="orders", authorization_rules=(own, reader))))
    server.wait(management.create(QueueDescription(path="orders2")))
    server.wait(management.create(QueueDescription(path="a/b")))
    server.wait(management.create(TopicDescription(path="topic", authorization_rules=(own,))))
    server.wait(management.create_subscription(SubscriptionDescription(topic="topic", name="sub")))


def signed(resource: str, expiry: str, key: str = KEY) -> str:
    digest = hmac.new(key.encode(), f"{resource}\n{expiry}".encode(), hashlib.sha256).digest()
    return quote(base64.b64encode(digest), safe="")


def token(
    resource: str = "", *, expiry: str | None = None, key: str = KEY, name: str = KEY_NAME, sig: str | None = None
) -> str:
    expiry = expiry or str(int(time.time()) + 600)
    encoded = quote(f"https://localhost/{resource}".rstrip("/"), safe="")
    signature = signed(encoded, expiry, key) if sig is None else sig
    return f"SharedAccessSignature sr={encoded}&sig={signature}&se={expiry}&skn={name}"


def get(server: Server, path: str, authorization: str | bytes | None) -> httpx.Response:
    headers = {} if authorization is None else {"Authorization": authorization}
    return httpx.get(f"{server.url}{path}", headers=headers)  # type: ignore[arg-type]


def test_a_good_token_opens(server: Server) -> None:
    for good in (
        token(),
        token("orders"),
        token("ORDERS"),
        token("orders/"),
        token(key="other key"),
        token("orders", name="own", key="own key"),
        token("orders", name="own", key="own other"),
        token(expiry=f"{time.time() + 600:.3f}"),
        f"Bearer {token()}",
        token().replace("SharedAccessSignature", "sharedaccesssignature"),
        token().replace("SharedAccessSignature ", "SharedAccessSignature   "),
    ):
        assert get(server, "/orders?api-version=2021-05", good).status_code == 200, good


def lower_hex(encoded: str) -> str:
    return re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), encoded)


def test_the_order_of_fields_and_the_case_of_hex_do_not_matter(server: Server) -> None:
    expiry = str(int(time.time()) + 600)
    for encoded in (
        "https%3a%2f%2flocalhost%2forders",
        "https%3A%2F%2Flocalhost%2Forders",
        "https://localhost/orders",
    ):
        signature = signed(encoded, expiry)
        for text in (
            f"SharedAccessSignature sig={signature}&se={expiry}&skn={KEY_NAME}&sr={encoded}",
            f"SharedAccessSignature se={expiry}&skn={KEY_NAME}&sr={encoded}&sig={lower_hex(signature)}",
        ):
            assert get(server, "/orders", text).status_code == 200


def test_the_javascript_sdk_signs_the_whole_url(server: Server) -> None:
    expiry = str(int(time.time()) + 300)
    for path in ("/orders", "/$resources/queues", "/topic/subscriptions/sub/rules", "/$namespaceinfo"):
        encoded = quote_plus(f"https://localhost:9443{path}?api-version=2021-05".lower())
        text = f"SharedAccessSignature sig={signed(encoded, expiry)}&se={expiry}&skn={KEY_NAME}&sr={encoded}"
        spelled = path.replace("$resources/queues", "$Resources/Queues").replace("subscriptions", "Subscriptions")
        assert get(server, f"{spelled}?api-version=2021-05", text).status_code == 200, path


BAD = {
    "none": (None, "SubCode=40102."),
    "empty": ("", "SubCode=40102."),
    "word": ("SharedAccessSignature", "SubCode=401"),
    "basic": ("Basic dXNlcjpwYXNz", "SubCode=40105."),
    "wrap": ('WRAP access_token="x"', "SubCode=40105."),
    "jwt": ("Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.", "SubCode=40105."),
    "expired": (token(expiry="1000000000"), "SubCode=40106."),
    "expired just now": (token(expiry=str(int(time.time()) - 1)), "SubCode=40106."),
    "expiry zero": (token(expiry="0"), "SubCode=40106."),
    "expiry negative": (token(expiry="-5"), "SubCode=40105."),
    "expiry text": (token(expiry="tomorrow"), "SubCode=40105."),
    "expiry hex": (token(expiry="0xFFFFFFFFFF"), "SubCode=40105."),
    "expiry exponent": (token(expiry="9e99"), "SubCode=40105."),
    "expiry infinite": (token(expiry="inf"), "SubCode=40105."),
    "expiry huge": (token(expiry="9" * 30), "SubCode=40105."),
    "expiry digits": (token(expiry="\u0661\u0662"), "SubCode=40105."),
    "wrong key": (token(key="wrong"), "SubCode=40103."),
    "empty key": (token(key=""), "SubCode=40103."),
    "key's case": (token(key=KEY.lower()), "SubCode=40103."),
    "wrong name": (token(name="Nobody"), "SubCode=40103."),
    "name's case": (token(name=KEY_NAME.lower()), "SubCode=40103."),
    "empty secondary key": (token(name="sender", key=""), "SubCode=40103."),
    "no signature": (token(sig=""), "SubCode=40110."),
    "short signature": (token(sig="AAAA"), "SubCode=40103."),
    "signature of all": (token(sig="*"), "SubCode=40103."),
    "other entity": (token("orders2"), "SubCode=40104."),
    "prefix of the name": (token("order"), "SubCode=40104."),
    "below": (token("orders/messages"), "SubCode=40104."),
    "dots": (token("orders2/../orders"), "SubCode=40104."),
    "key of another entity": (token("orders", name="elsewhere", key="own key"), "SubCode=40103."),
    "no audience": (token().replace("sr=", "xx="), "SubCode=40107."),
    "no expiry": (token().replace("&se=", "&xx="), "SubCode=40108."),
    "no name": (token().replace("&skn=", "&xx="), "SubCode=40109."),
    "audience twice": (token() + "&sr=https%3A%2F%2Flocalhost%2Forders", "SubCode=40105."),
    "expiry twice": (token(expiry="1000000000") + "&se=9999999999", "SubCode=40105."),
    "name twice": (token() + f"&skn={KEY_NAME}", "SubCode=40105."),
    "many fields": (token() + "".join(f"&f{number}=1" for number in range(50)), "SubCode=40105."),
    "no equals": (token() + "&x", "SubCode=40105."),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_token_opens_nothing(server: Server, case: str) -> None:
    text, code = BAD[case]
    headers = {} if text is None else {"Authorization": text.encode()}
    with httpx.Client(base_url=server.url, headers=headers) as http:  # type: ignore[arg-type]
        for method, path in (
            ("GET", "/orders"),
            ("DELETE", "/orders"),
            ("POST", "/orders/messages"),
            ("POST", "/orders/messages/head?timeout=0"),
            ("GET", "/$polybus/entities/orders/log"),
        ):
            if case == "below" and "messages" in path:
                continue
            response = http.request(method, path)
            check(response, 401, code)
            assert KEY not in response.text
            assert "sig=" not in response.text
    assert server.namespace.find("orders") is not None


def test_a_changed_token_is_refused_wherever_it_is_changed(server: Server) -> None:
    good = token("orders")
    start = good.index("sr=")
    with httpx.Client(base_url=server.url) as http:
        for place in range(start, len(good)):
            replacement = "A" if good[place] != "A" else "B"
            changed = good[:place] + replacement + good[place + 1 :]
            response = http.get("/orders", headers={"Authorization": changed})
            assert response.status_code == 401, changed


NEEDS = [
    ("GET", "/orders", Rights.MANAGE),
    ("PUT", "/orders", Rights.MANAGE),
    ("DELETE", "/missing-queue", Rights.MANAGE),
    ("GET", "/$Resources/queues", Rights.MANAGE),
    ("GET", "/$Resources/topics", Rights.MANAGE),
    ("GET", "/topic/subscriptions", Rights.MANAGE),
    ("GET", "/topic/subscriptions/sub", Rights.MANAGE),
    ("GET", "/topic/subscriptions/sub/rules", Rights.MANAGE),
    ("DELETE", "/topic/subscriptions/sub/rules/none", Rights.MANAGE),
    ("POST", "/orders/messages", Rights.SEND),
    ("POST", "/topic/messages", Rights.SEND),
    ("POST", "/orders/messages/head?timeout=0", Rights.LISTEN),
    ("DELETE", "/orders/messages/head?timeout=0", Rights.LISTEN),
    ("DELETE", f"/orders/messages/1/{NEVER}", Rights.LISTEN),
    ("PUT", f"/orders/messages/1/{NEVER}", Rights.LISTEN),
    ("POST", f"/orders/messages/1/{NEVER}", Rights.LISTEN),
    ("GET", "/orders/messages", Rights.LISTEN),
    ("GET", "/orders/$DeadLetterQueue/messages", Rights.LISTEN),
    ("GET", "/$polybus/entities/orders/log", Rights.LISTEN),
    ("GET", "/$polybus/entities/orders/range?partition=0&format=json", Rights.LISTEN),
    ("GET", "/$polybus/entities/orders/browse?format=json", Rights.LISTEN),
    ("GET", "/$polybus/entities/orders/events?partition=0", Rights.LISTEN),
    ("PUT", "/$polybus/entities/orders/events", Rights.MANAGE),
    ("GET", "/$polybus/entities/orders/cursors", Rights.LISTEN),
    ("GET", "/$polybus/entities/orders/cursors/none", Rights.LISTEN),
    ("DELETE", "/$polybus/entities/orders/cursors/none", Rights.LISTEN),
    ("POST", "/$polybus/entities/orders/cursors/none/advance", Rights.LISTEN),
    ("POST", "/$polybus/entities/orders/cursors/none/lease", Rights.LISTEN),
    ("POST", "/$polybus/entities/orders/move", Rights.LISTEN),
    ("POST", "/$polybus/entities/orders/stage", Rights.SEND),
    ("POST", "/$polybus/entities/orders/publish", Rights.SEND),
    ("POST", "/$polybus/entities/orders/abort", Rights.SEND),
    ("GET", "/$polybus/entities/orders/producers/none", Rights.SEND),
    ("GET", "/$polybus/stores", Rights.MANAGE),
    ("GET", "/$polybus/cursors", Rights.MANAGE),
]


@pytest.mark.parametrize(("method", "path", "needed"), NEEDS)
def test_each_call_needs_its_right_and_no_more(server: Server, method: str, path: str, needed: Rights) -> None:
    keys = {
        Rights.SEND: token(name="sender", key="send key"),
        Rights.LISTEN: token(name="listener", key="listen key"),
        Rights.MANAGE: token(),
    }
    for right, text in keys.items():
        response = httpx.request(method, f"{server.url}{path}", headers={"Authorization": text})
        if right & needed == needed:
            assert response.status_code != 401, response.text
        else:
            check(response, 401, "claim(s) are required to perform this operation")


def test_any_right_shows_the_namespace(server: Server) -> None:
    for name, key in (("sender", "send key"), ("listener", "listen key"), (KEY_NAME, KEY)):
        assert get(server, "/$namespaceinfo", token(name=name, key=key)).status_code == 200
    assert get(server, "/$namespaceinfo", token("orders")).status_code == 401


def test_a_key_of_an_entity_stays_inside(server: Server) -> None:
    own = token("orders", name="own", key="own key")
    everywhere = token("", name="own", key="own key")
    for text in (own, everywhere):
        assert get(server, "/orders", text).status_code == 200
        assert get(server, "/orders/messages", text).status_code in (200, 204)
        assert get(server, "/$polybus/entities/orders/log", text).status_code == 200
        assert get(server, "/orders2", text).status_code == 401
        assert get(server, "/$Resources/queues", text).status_code == 401
        assert get(server, "/$polybus/stores", text).status_code == 401
    inside = token("topic", name="own", key="own key")
    assert get(server, "/topic/subscriptions/sub", inside).status_code == 200
    reader = token("orders", name="reader", key="read key")
    assert get(server, "/orders/messages", reader).status_code in (200, 204)
    assert get(server, "/orders", reader).status_code == 401
    assert httpx.post(f"{server.url}/orders/messages", headers={"Authorization": reader}).status_code == 401


def test_spelling_does_not_change_what_is_checked(server: Server) -> None:
    """What is authorised is what is routed, however the path is written."""
    text = token("a")
    for path in ("/a%2Fb", "/a/b", "/A/B", "//a/b", "/a/b/", "/%61/b"):
        assert get(server, path, text).status_code == 200, path
    other = token("orders2")
    for path in ("//orders", "/orders/", "/%6Frders", "/ORDERS", "/orders?x=/orders2"):
        assert get(server, path, other).status_code == 401, path
    for path in (
        "/$polybus/entities/orders%2F/log",
        "/%24polybus/entities/orders/log",
        "/$POLYBUS/entities/Orders/log",
    ):
        assert get(server, path, other).status_code in (400, 401), path


def test_publishing_asks_for_every_entity_that_was_staged_for(server: Server) -> None:
    full = token()
    staged = httpx.post(
        f"{server.url}/$polybus/entities/orders2/stage", content='{"body": "x"}', headers={"Authorization": full}
    ).json()
    own = {"Authorization": token("orders", name="own", key="own key")}
    body = {"producer": "p", "query": "q", "epoch": 0, "stages": [staged]}
    url = f"{server.url}/$polybus/entities/orders"
    assert httpx.post(f"{url}/publish", json=body, headers=own).status_code == 401
    assert httpx.post(f"{url}/abort", json=body, headers=own).status_code == 401
    move = {"numbers": [1], "to": "orders2"}
    assert httpx.post(f"{url}/move", json=move, headers=own).status_code == 401
    assert httpx.post(f"{url}/publish", json=body, headers={"Authorization": full}).status_code == 200


def test_a_token_for_the_destination_is_verified_where_it_is_sent(server: Server) -> None:
    headers = {"Authorization": token()}
    body = queue("<ForwardTo>sb://localhost/orders2</ForwardTo>")
    dead = queue("<ForwardDeadLetteredMessagesTo>orders2</ForwardDeadLetteredMessagesTo>")
    one, two = "ServiceBusSupplementaryAuthorization", "ServiceBusDlqSupplementaryAuthorization"
    for number, (document, header, good) in enumerate(
        (
            (body, one, token("orders2")),
            (body, one, token("orders2", name="sender", key="send key")),
            (dead, two, token()),
        )
    ):
        made = httpx.put(f"{server.url}/f{number}", content=document, headers={**headers, header: good})
        assert made.status_code == 201, made.text
    for document, header, bad in (
        (body, one, token("orders")),
        (body, one, token("orders2", name="listener", key="listen key")),
        (body, one, token("orders2", expiry="1000000000")),
        (dead, two, "nonsense"),
    ):
        refused = httpx.put(f"{server.url}/never", content=document, headers={**headers, header: bad})
        assert refused.status_code == 401
    topic = entry("SubscriptionDescription", "<ForwardTo>orders2</ForwardTo>")
    refused = httpx.put(
        f"{server.url}/topic/subscriptions/f", content=topic, headers={**headers, one: token("orders")}
    )
    assert refused.status_code == 401
    assert server.namespace.find("never") is None


FORWARDS = ("ForwardTo", "ForwardDeadLetteredMessagesTo")


@pytest.mark.parametrize("kind", FORWARDS)
@pytest.mark.parametrize(
    "spelling", ["orders2", "ORDERS2", "sb://localhost/orders2", "sb://elsewhere.example/orders2/"]
)
def test_manage_on_one_entity_is_not_send_on_another(server: Server, kind: str, spelling: str) -> None:
    """Without a token for the destination the request's own must allow the send, whoever forwards and however."""
    inside = f"<{kind}>{spelling}</{kind}>"
    subscription = entry("SubscriptionDescription", inside)
    create, update = {}, {"If-Match": "*"}
    for resource, document, how in (
        ("orders", queue(inside), create),
        ("orders", queue(inside), update),
        ("topic/subscriptions/new", subscription, create),
        ("topic/subscriptions/sub", subscription, update),
    ):
        own = token(resource.partition("/")[0], name="own", key="own key")
        refused = httpx.put(f"{server.url}/{resource}", content=document, headers={"Authorization": own, **how})
        assert refused.status_code == 401, refused.text
    found = server.namespace.find("orders")
    assert found is not None
    assert isinstance(found.description, QueueDescription)
    assert (found.description.forward_to, found.description.forward_dead_lettered_messages_to) == (None, None)


def test_what_is_forwarded_already_may_be_told_again(server: Server) -> None:
    """A manager of one queue changes its other settings; where it forwards to was allowed to somebody else."""
    own = AuthorizationRule(key_name="own", rights=ALL, primary_key="own key", secondary_key="")
    described = QueueDescription(path="relay", forward_to="sb://localhost/orders2", authorization_rules=(own,))
    server.wait(server.namespace.management.create(described))
    headers = {"Authorization": token("relay", name="own", key="own key"), "If-Match": "*"}
    same = queue("<ForwardTo>ORDERS2</ForwardTo><UserMetadata>told again</UserMetadata>")
    assert httpx.put(f"{server.url}/relay", content=same, headers=headers).status_code == 200
    other = queue("<ForwardTo>a/b</ForwardTo>")
    assert httpx.put(f"{server.url}/relay", content=other, headers=headers).status_code == 401
    swapped = queue("<ForwardDeadLetteredMessagesTo>orders2</ForwardDeadLetteredMessagesTo>")
    assert httpx.put(f"{server.url}/relay", content=swapped, headers=headers).status_code == 401


@pytest.fixture
def with_jwt(certificates: Path) -> Iterator[Server]:
    server = Server(certificates).start()

    def verify(text: str, scope: tuple[str, ...]) -> tuple[Rights, float]:
        if text != "good.jwt.token":
            raise Unauthorized("not ours")
        return Rights.MANAGE, time.time() + 60

    server.gateway.jwt_verifier = verify
    yield server
    server.stop()


def test_a_jwt_is_good_where_somebody_can_verify_it(with_jwt: Server) -> None:
    assert get(with_jwt, "/$Resources/queues", "Bearer good.jwt.token").status_code == 200
    assert get(with_jwt, "/$Resources/queues", "bearer  good.jwt.token").status_code == 200
    assert get(with_jwt, "/$Resources/queues", "Bearer bad.jwt.token").status_code == 401
    assert get(with_jwt, "/$Resources/queues", token()).status_code == 200
