"""The certificates of links between nodes: an authority that the cluster's database keeps, and one for each node.

A node makes its own when it starts, signed by the authority that it finds in the database: whoever can read that is the
cluster. A certificate names the node and its process, so that each side knows whom it speaks to, and a node whose name
another has taken since is told from that one.
"""

from __future__ import annotations

import datetime
import re
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from secrets import token_bytes
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from polybus.errors import ConfigError
from polybus.limits import NODE_AUTHORITY_DAYS, NODE_CERTIFICATE_DAYS, NODE_NAME_CHARS
from polybus.store.cluster_rows import Shared

_SKEW: Final = datetime.timedelta(days=1)
"""Clocks of nodes may differ, by an hour or more: a certificate is no reason for that to matter."""
_PEER: Final = re.compile(r"polybus:node/([^/]+)/([0-9a-f]+)")
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclass(frozen=True)
class Peer:
    """Whom a certificate names."""

    name: str
    process: str


@dataclass(frozen=True)
class LinkSecurity:
    """What a node shows and asks for at both ends of its links."""

    server: ssl.SSLContext
    client: ssl.SSLContext


def check_node_name(name: str) -> str:
    if len(name) > NODE_NAME_CHARS or not _NAME.fullmatch(name):
        raise ConfigError(
            f"--node {name!r}: a name has at most {NODE_NAME_CHARS} letters, digits, dots, hyphens and underscores"
        )
    return name


def new_shared() -> Shared:
    """A cluster's secret and the authority of its links."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("Polybus cluster")
    builder = _builder(name, name, key, NODE_AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(authority=True), critical=True)
    return Shared(token_bytes(32), _pem(builder.sign(key, hashes.SHA256())), _key_pem(key))


def link_security(shared: Shared, peer: Peer) -> LinkSecurity:
    """Both ends' settings, with a certificate of the authority for this node."""
    authority = x509.load_pem_x509_certificate(shared.authority)
    authority_key = serialization.load_pem_private_key(shared.authority_key, None)
    assert isinstance(authority_key, ec.EllipticCurvePrivateKey), "the authority was made here"
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name(peer.name), authority.subject, key, NODE_CERTIFICATE_DAYS)
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    uri = x509.UniformResourceIdentifier(f"polybus:node/{peer.name}/{peer.process}")
    for extension, critical in (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(authority=False), True),
        (x509.ExtendedKeyUsage(both), False),
        (x509.SubjectAlternativeName([uri]), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), False),
    ):
        builder = builder.add_extension(extension, critical=critical)
    chain = _pem(builder.sign(authority_key, hashes.SHA256())) + _key_pem(key)
    return LinkSecurity(_context(True, shared.authority, chain), _context(False, shared.authority, chain))


def peer_of(tls: object) -> Peer | None:
    """Whom the certificate of the other side names; None where it names nobody of ours."""
    if not isinstance(tls, (ssl.SSLObject, ssl.SSLSocket)):
        return None
    shown = tls.getpeercert()
    names: Any = () if shown is None else shown.get("subjectAltName", ())
    for kind, value in names:
        found = _PEER.fullmatch(value) if kind == "URI" else None
        if found is not None:
            return Peer(found[1], found[2])
    return None


def _context(server: bool, authority: bytes, chain: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # a node is known by its name, wherever it is
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=authority.decode())
    # OpenSSL reads keys from files alone: this one is nobody else's to read, and is gone at once.
    with tempfile.TemporaryDirectory(prefix="polybus-link-") as folder:
        path = Path(folder) / "node.pem"
        path.touch(mode=0o600)
        path.write_bytes(chain)
        context.load_cert_chain(path)
    return context


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
