"""TLS for development: a certificate authority of the bus's own and a server certificate, made on first start.

The Python, JavaScript, Java and Go administration clients speak https whatever they are told, so a bus on a
laptop needs a certificate that they can trust (docs/protocol/atom.md#tls). The authority is made once and kept, so that
trusting it once is enough; the server's certificate is made again when it runs out or when the names change. In
production a certificate is given, and nothing here writes a file.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import platform
import re
import shlex
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from polybus.errors import ConfigError

AUTHORITY_DAYS = 3_650
SERVER_DAYS = 397
"""Apple's clients refuse server certificates that are valid for longer than 398 days."""
RENEW_BEFORE_DAYS = 7
_TLS_1_2_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Forward secrecy and AEAD; what TLS 1.3 has is nothing else."""
_SKEW = datetime.timedelta(days=1)
"""A client's clock may be behind ours."""
_ALWAYS = ("localhost", "127.0.0.1", "::1")
_DNS_NAME = re.compile(r"(?:\*\.)?[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


@dataclass(frozen=True)
class CertificateFiles:
    """Where the certificates lie. The authority's own key is needed only to renew."""

    authority: Path
    certificate: Path
    key: Path
    authority_key: Path

    @classmethod
    def in_folder(cls, folder: Path) -> CertificateFiles:
        return cls(folder / "ca.pem", folder / "server.pem", folder / "server-key.pem", folder / "ca-key.pem")


@dataclass(frozen=True)
class _SignedCertificate:
    """A certificate with the key that belongs to it."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def ensure_certificates(folder: Path, now: datetime.datetime, names: Iterable[str] = ()) -> CertificateFiles:
    """The certificates in `folder` for this machine and `names`; made or renewed if they must be."""
    files = CertificateFiles.in_folder(folder)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Nobody chose the machine's own name for this, so one that cannot stand in a certificate is left out.
    machine = platform.node()
    wanted = subject_names((machine, *names) if _DNS_NAME.fullmatch(machine) else names)
    authority = _load(files.authority, files.authority_key)
    if authority is None or _runs_out(authority.certificate, now):
        authority = _make_authority(now)
        _store(authority, files.authority, files.authority_key)
    server = _load(files.certificate, files.key)
    if server is None or not _serves(server.certificate, authority.certificate, wanted, now):
        _store(_make_server(authority, wanted, now), files.certificate, files.key)
    return files


def subject_names(names: Iterable[str]) -> tuple[str, ...]:
    """The names that a certificate is for: always those of the loopback, then the others, each once."""
    given = (name.strip().strip("[]").lower() for name in names)
    return tuple(dict.fromkeys((*_ALWAYS, *(name for name in given if name))))


def certificate_names(certificate: Path) -> list[str]:
    """The names that a certificate is for."""
    loaded = x509.load_pem_x509_certificate(certificate.read_bytes())
    try:
        found = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress))]


def server_context(certificate: Path, key: Path, client_authority: Path | None = None) -> ssl.SSLContext:
    """The settings of a listener: TLS 1.2 or later, ciphers that authenticate what they encrypt, and where an authority
    for clients is given none without a certificate of it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_TLS_1_2_CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(certificate, key)
        if client_authority is not None:
            context.load_verify_locations(client_authority)
            context.verify_mode = ssl.CERT_REQUIRED
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(f"{certificate}, {key}: cannot be used for TLS: {error}") from error
    # AMQP clients offer no protocol and are not held to one; HTTP clients must not choose HTTP/2.
    context.set_alpn_protocols(["http/1.1"])
    return context


def trust_lines(authority: Path) -> str:
    """The shell lines after which the Python and JavaScript SDKs trust this bus."""
    path = shlex.quote(str(authority))
    variables = ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")
    return "".join(f"export {variable}={path}\n" for variable in variables)


def _load(certificate_path: Path, key_path: Path) -> _SignedCertificate | None:
    """The pair in two files, or None if it is not there, not readable or does not belong together."""
    try:
        certificate = x509.load_pem_x509_certificate(certificate_path.read_bytes())
        key = serialization.load_pem_private_key(key_path.read_bytes(), None)
    except (OSError, ValueError, TypeError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        return None
    return _SignedCertificate(certificate, key)


def _runs_out(certificate: x509.Certificate, now: datetime.datetime) -> bool:
    margin = datetime.timedelta(days=RENEW_BEFORE_DAYS)
    return not certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc - margin


def _serves(
    certificate: x509.Certificate,
    authority: x509.Certificate,
    wanted: tuple[str, ...],
    now: datetime.datetime,
) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    return not _runs_out(certificate, now) and set(names) == set(_general_names(wanted))


def _general_names(names: tuple[str, ...]) -> list[x509.GeneralName]:
    return [_general_name(name) for name in names]


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(_dns_name(name))


def _dns_name(name: str) -> str:
    try:
        encoded = name.encode("idna").decode("ascii")
    except UnicodeError:
        encoded = ""
    if not _DNS_NAME.fullmatch(encoded):
        raise ConfigError(f"{name!r} cannot stand in a certificate: it is neither a host name nor an address")
    return encoded


def _make_authority(now: datetime.datetime) -> _SignedCertificate:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _distinguished_name("Polybus development authority")
    builder = _builder(name, name, key, now, AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
    return _SignedCertificate(builder.sign(key, hashes.SHA256()), key)


def _make_server(authority: _SignedCertificate, names: tuple[str, ...], now: datetime.datetime) -> _SignedCertificate:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = authority.certificate.subject
    builder = _builder(_distinguished_name("Polybus"), issuer, key, now, SERVER_DAYS)
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    extensions: tuple[tuple[x509.ExtensionType, bool], ...] = (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_key_usage(signs_certificates=False), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.SubjectAlternativeName(_general_names(names)), False),
        (issuer_key, False),
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return _SignedCertificate(builder.sign(authority.key, hashes.SHA256()), key)


def _distinguished_name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + datetime.timedelta(days=days) - _SKEW)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _store(signed: _SignedCertificate, certificate_path: Path, key_path: Path) -> None:
    key = signed.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    _write(key_path, key, 0o600)
    _write(certificate_path, signed.certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Replace a file at once, so that no reader sees half of it and no key is readable for a moment."""
    temporary = path.with_name(f"{path.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)
