"""TLS that can be relied on: required, with clients' certificates, with ciphers that hold, renewed without a restart."""

from __future__ import annotations

import datetime
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.management import ServiceBusAdministrationClient
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from polybus.gateway.tls import CertificateFiles, ensure_certificates
from polybus.testing.server import ServerProcess

NOW = datetime.datetime.now(datetime.UTC)
AMQP_HEADER = b"AMQP\x03\x01\x00\x00"
PORTS = ("--amqp-port", "0", "--http-port", "0", "--tls-port", "0")
EVERYWHERE = ("amqp", "http", "tls")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    """Certificates of an authority that is not the bus's own."""
    return ensure_certificates(tmp_path_factory.mktemp("own"), NOW)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return ensure_certificates(tmp_path_factory.mktemp("other"), NOW)


def client_certificate(files: CertificateFiles, folder: Path) -> Path:
    """A certificate with its key, in one file, by which a client of this authority is known."""
    issuer = x509.load_pem_x509_certificate(files.authority.read_bytes())
    signing = serialization.load_pem_private_key(files.authority_key.read_bytes(), None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a client")]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - datetime.timedelta(days=1))
        .not_valid_after(NOW + datetime.timedelta(days=1))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(signing, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    folder.mkdir(exist_ok=True)
    (folder / "client.pem").write_bytes(pem + made.public_bytes(serialization.Encoding.PEM))
    return folder / "client.pem"


def trusting(files: CertificateFiles, client: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(files.authority))
    if client is not None:
        context.load_cert_chain(client)
    return context


def address(server: ServerProcess, name: str) -> tuple[str, int]:
    host, _, port = server.addresses[name].rpartition(":")
    return host, int(port)


def answer(server: ServerProcess, name: str, first: bytes, context: ssl.SSLContext | None = None) -> bytes:
    """What a listener says to these bytes; nothing where it hangs up."""
    try:
        with socket.create_connection(address(server, name), 10) as plain:
            if context is None:
                plain.sendall(first)
                return plain.recv(8)
            with context.wrap_socket(plain, server_hostname="localhost") as encrypted:
                encrypted.sendall(first)
                return encrypted.recv(8)
    except (ssl.SSLError, ConnectionError):
        return b""


def certificate(server: ServerProcess, context: ssl.SSLContext) -> bytes | None:
    with (
        socket.create_connection(address(server, "tls"), 10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as encrypted,
    ):
        return encrypted.getpeercert(binary_form=True)


def given(files: CertificateFiles) -> tuple[str, ...]:
    return ("--cert", str(files.certificate), "--cert-key", str(files.key))


def test_nothing_is_said_without_tls_where_it_is_required(tmp_path: Path, own: CertificateFiles) -> None:
    with ServerProcess(tmp_path / "data", "--tls", "required", *given(own)) as server:
        for name in EVERYWHERE:
            for first in (AMQP_HEADER, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"):
                assert answer(server, name, first) == b"", (name, first)
            assert answer(server, name, AMQP_HEADER, trusting(own)) == AMQP_HEADER
        assert not (tmp_path / "data" / "certificates").exists()


def test_a_client_must_show_a_certificate_of_the_authority(
    tmp_path: Path, own: CertificateFiles, other: CertificateFiles
) -> None:
    options = ("--tls", "required", "--client-ca", str(own.authority), *given(own))
    known, stranger = client_certificate(own, tmp_path / "known"), client_certificate(other, tmp_path / "stranger")
    with ServerProcess(tmp_path / "data", *options) as server:
        for name in EVERYWHERE:
            assert answer(server, name, AMQP_HEADER, trusting(own)) == b""
            assert answer(server, name, AMQP_HEADER, trusting(own, stranger)) == b""
            assert answer(server, name, AMQP_HEADER, trusting(own, known)) == AMQP_HEADER
        # The official SDK, with a certificate of its own.
        port = address(server, "http")[1]
        text = f"Endpoint=sb://localhost:{port};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE"
        with ServiceBusAdministrationClient.from_connection_string(
            text, connection_verify=str(own.authority), connection_cert=str(known)
        ) as admin:
            admin.create_queue("q")
        tls = f"sb://localhost:{address(server, 'tls')[1]}"
        with (
            ServiceBusClient.from_connection_string(
                text,
                ssl_context=trusting(own, known),
                custom_endpoint_address=tls,
                transport_type=TransportType.Amqp,
            ) as client,
            client.get_queue_sender("q") as sender,
        ):
            sender.send_messages(ServiceBusMessage("over TLS"))


def test_only_ciphers_that_authenticate_are_spoken(tmp_path: Path, own: CertificateFiles) -> None:
    weak = (
        "ECDHE-ECDSA-AES128-SHA256",
        "ECDHE-ECDSA-AES256-SHA384",
        "ECDHE-ECDSA-AES128-SHA",
        "ECDHE-ECDSA-AES256-SHA",
    )
    strong = ("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305")
    with ServerProcess(tmp_path / "data", *given(own)) as server:
        for names, spoken in ((weak, b""), (strong, AMQP_HEADER)):
            for cipher in names:
                context = trusting(own)
                context.maximum_version = ssl.TLSVersion.TLSv1_2
                context.set_ciphers(f"{cipher}:@SECLEVEL=0")
                assert answer(server, "tls", AMQP_HEADER, context) == spoken, cipher


def within(seconds: float, true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_certificates_are_renewed_without_a_restart(
    tmp_path: Path, own: CertificateFiles, other: CertificateFiles
) -> None:
    files = CertificateFiles.in_folder(tmp_path / "tls")
    files.certificate.parent.mkdir()
    shutil.copy(own.certificate, files.certificate)
    shutil.copy(own.key, files.key)
    with ServerProcess(tmp_path / "data", *given(files)) as server:
        first = certificate(server, trusting(own))
        # Half of a renewal, or nonsense, leaves everything as it is.
        shutil.copy(other.certificate, files.certificate)
        os.kill(server.pid, signal.SIGHUP)
        assert within(10, lambda: any("stay as they were" in line for line in server.output))
        assert certificate(server, trusting(own)) == first
        with (
            socket.create_connection(address(server, "tls"), 10) as plain,
            trusting(own).wrap_socket(plain, server_hostname="localhost") as kept,
        ):
            shutil.copy(other.key, files.key)
            os.kill(server.pid, signal.SIGHUP)
            assert within(10, lambda: any("read again" in line for line in server.output))
            assert certificate(server, trusting(other)) not in (None, first)
            kept.sendall(AMQP_HEADER)
            assert kept.recv(8) == AMQP_HEADER
        assert answer(server, "tls", AMQP_HEADER, trusting(own)) == b""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--profile", "production", "--key", "a=b"), "needs --cert and --cert-key"),
        (("--cert", "only.pem"), "go together"),
        (("--cert-key", "only.pem"), "go together"),
        (("--cert", "missing.pem", "--cert-key", "missing.pem"), "cannot be used for TLS"),
        (("--client-ca", "ca.pem"), "needs --tls required"),
        (("--tls", "off", "--cert", "a", "--cert-key", "b"), "takes no certificates"),
        (("--tls", "perhaps"), "offered, required, off"),
    ],
)
def test_what_would_be_less_than_was_meant_is_refused(tmp_path: Path, options: tuple[str, ...], says: str) -> None:
    command = [sys.executable, "-m", "polybus", "serve", "--data", str(tmp_path / "data"), *PORTS, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_behind_a_proxy_there_is_no_tls_and_no_authority(tmp_path: Path, own: CertificateFiles) -> None:
    options = ("--tls", "off", "--profile", "production", "--key", "a=b")
    with ServerProcess(tmp_path / "data", *options) as server:
        assert answer(server, "amqp", AMQP_HEADER) == AMQP_HEADER
        assert answer(server, "amqp", AMQP_HEADER, trusting(own)) == b""
        assert not (tmp_path / "data" / "certificates").exists()
