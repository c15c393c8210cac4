"""Tokens of Entra ID with the official SDK, keys that an issuer changes, and from where clients may connect."""

from __future__ import annotations

import datetime
import http.server
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusAuthorizationError
from azure.servicebus.management import ServiceBusAdministrationClient
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from polybus.errors import ConfigError, Unauthorized
from polybus.gateway.jwt_tokens import BUILT_IN, JwtSettings, JwtVerifier, jwt_settings, parse_role
from polybus.gateway.listener import networks_named
from polybus.gateway.sas import Rights
from polybus.gateway.tls import ensure_certificates
from polybus.namespace.entities.network_rules import is_within
from polybus.testing.server import ServerProcess
from tests.system.access.jwt_cases import ISSUER, OWNER, RECEIVER, SENDER, claims, options, signed, write_keys

PORTS = ("--amqp-port", "0", "--http-port", "0", "--tls-port", "0")


class Credential:
    """What azure-identity gives to the SDK."""

    def __init__(self, *roles: str) -> None:
        self._token = signed(claims(*roles))

    def get_token(self, *scopes: str, **given: Any) -> AccessToken:
        assert scopes == ("https://servicebus.azure.net//.default",) or "servicebus.azure.net" in scopes[0]
        return AccessToken(self._token, int(time.time()) + 3600)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("entra")
    with ServerProcess(folder / "data", "--stores", "1", *options(folder)) as server:
        yield server


def admin(server: ServerProcess, *roles: str) -> ServiceBusAdministrationClient:
    port = server.addresses["http"].rpartition(":")[2]
    credential: Any = Credential(*roles)
    trust = {"connection_verify": str(server.authority), "retry_total": 0}
    return ServiceBusAdministrationClient(f"localhost:{port}", credential, **trust)


def client(server: ServerProcess, *roles: str) -> ServiceBusClient:
    port = server.addresses["tls"].rpartition(":")[2]
    credential: Any = Credential(*roles)
    return ServiceBusClient(
        "localhost",
        credential,
        ssl_context=ssl.create_default_context(cafile=str(server.authority)),
        custom_endpoint_address=f"sb://localhost:{port}",
        transport_type=TransportType.Amqp,
        retry_total=0,
    )


def test_the_sdk_works_with_a_token_credential(server: ServerProcess) -> None:
    with admin(server, OWNER) as manager:
        manager.create_queue("orders")
    with admin(server, SENDER) as manager, pytest.raises(ClientAuthenticationError):
        manager.create_queue("never")
    with client(server, SENDER) as bus:
        with bus.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("by role"))
        with pytest.raises(ServiceBusAuthorizationError), bus.get_queue_receiver("orders") as receiver:
            receiver.receive_messages(max_wait_time=1)
    with client(server, RECEIVER) as bus:
        with bus.get_queue_receiver("orders") as receiver:
            (message,) = receiver.receive_messages(max_wait_time=10)
            receiver.complete_message(message)
        assert str(message) == "by role"
        with pytest.raises(ServiceBusAuthorizationError), bus.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("never"))


class Issuer:
    """Publishes keys over TLS, and changes them."""

    def __init__(self, folder: Path) -> None:
        self.keys: list[dict[str, Any]] = []
        self.asked = 0
        files = ensure_certificates(folder, datetime.datetime.now(datetime.UTC))
        self.authority = files.authority
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.certificate, files.key)
        issuer = self

        class Answers(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked += 1
                if self.path == "/elsewhere":
                    self.send_response(302)
                    self.send_header("Location", "/keys")
                    self.end_headers()
                    return
                body = json.dumps({"keys": issuer.keys}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                return

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://localhost:{self._server.server_port}"

    @contextmanager
    def running(self) -> Iterator[Issuer]:
        thread = threading.Thread(target=self._server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


def published(key: rsa.RSAPrivateKey, kid: str) -> dict[str, Any]:
    return {**json.loads(RSAAlgorithm.to_jwk(key.public_key())), "kid": kid, "alg": "RS256", "use": "sig"}


def test_keys_come_from_an_address_and_are_read_again_when_one_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
    with Issuer(tmp_path).running() as issuer:
        monkeypatch.setenv("SSL_CERT_FILE", str(issuer.authority))
        issuer.keys = [published(first, "1")]
        verifier = JwtVerifier(JwtSettings(f"{issuer.url}/keys", [ISSUER]))
        verifier.load()
        assert verifier(signed(claims(), first, kid="1"), ())[0] == Rights.MANAGE
        renewed = signed(claims(), second, kid="2")
        with pytest.raises(Unauthorized):
            verifier(renewed, ())
        assert verifier.wanted
        issuer.keys = [published(second, "2")]
        verifier.load()
        assert not verifier.wanted
        assert verifier(renewed, ())[0] == Rights.MANAGE
        with pytest.raises(Unauthorized):
            verifier(signed(claims(), first, kid="1"), ())
        # An issuer that answers nonsense, or nothing, leaves what is known.
        issuer.keys = []
        verifier.load()
        assert verifier(renewed, ())[0] == Rights.MANAGE
        moved = JwtVerifier(JwtSettings(f"{issuer.url}/elsewhere", [ISSUER]))
        moved.load()
        with pytest.raises(Unauthorized):
            moved(renewed, ())
    verifier.load()
    assert verifier(renewed, ())[0] == Rights.MANAGE


def test_an_issuer_whose_certificate_nobody_trusts_gives_no_keys(tmp_path: Path) -> None:
    with Issuer(tmp_path).running() as issuer:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        issuer.keys = [published(key, "1")]
        verifier = JwtVerifier(JwtSettings(f"{issuer.url}/keys", [ISSUER]))
        verifier.load()
        with pytest.raises(Unauthorized):
            verifier(signed(claims(), key, kid="1"), ())
        assert issuer.asked == 0


def test_what_is_said_about_tokens_must_fit_together(tmp_path: Path) -> None:
    keys = str(write_keys(tmp_path))
    assert jwt_settings(None, None, None, None) is None
    for given, says in (
        ((None, [ISSUER], None, None), "go with --jwt-keys"),
        (("http://issuer.example/keys", [ISSUER], None, None), "https://"),
        ((keys, [ISSUER], None, ["x=Everything"]), "a role is"),
    ):
        with pytest.raises(ConfigError, match=says):
            jwt_settings(*given)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="--jwt-issuer"):
        JwtVerifier(JwtSettings(keys, []))
    assert parse_role("a=b=Send, listen@Orders/")[0] == "a=b"
    assert parse_role("a=b=Send, listen@Orders/")[1].scope == ("orders",)
    settings = jwt_settings(keys, [ISSUER], None, ["x=Send"])
    assert settings is not None
    assert settings.roles.keys() == {*BUILT_IN, "x"}
    command = [sys.executable, "-m", "polybus", "serve", "--data", str(tmp_path / "data"), *PORTS, "--jwt-keys", keys]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "--jwt-issuer" in done.stderr


def knock(server: ServerProcess, source: str) -> bytes:
    """What the bus says to somebody who comes from an address."""
    host, _, port = server.addresses["amqp"].rpartition(":")
    try:
        with socket.create_connection((host, int(port)), 10, (source, 0)) as there:
            there.sendall(b"AMQP\x03\x01\x00\x00")
            return there.recv(8)
    except ConnectionError:
        return b""


def test_only_who_comes_from_an_allowed_network_is_heard(tmp_path: Path) -> None:
    allowed = ("--allow-ip", "127.0.0.2", "--allow-ip", "127.1.0.0/16")
    with ServerProcess(tmp_path / "data", "--stores", "1", *allowed) as server:
        heard = {
            source: bool(knock(server, source)) for source in ("127.0.0.1", "127.0.0.2", "127.0.0.3", "127.1.2.3")
        }
    assert heard == {"127.0.0.1": False, "127.0.0.2": True, "127.0.0.3": False, "127.1.2.3": True}


def test_networks_are_what_they_say() -> None:
    networks = networks_named(["10.0.0.0/8", "2001:db8::/32"])
    for host, inside in (
        ("10.1.2.3", True),
        ("11.0.0.1", False),
        ("::ffff:10.1.2.3", True),
        ("::ffff:11.1.2.3", False),
        ("2001:db8::1", True),
        ("2001:db9::1", False),
        ("fe80::1%eth0", False),
    ):
        assert is_within(host, networks) is inside, host
    for text in ("10.0.0.1/8", "everywhere", "10.0.0.0/33"):
        with pytest.raises(ConfigError):
            networks_named([text])
