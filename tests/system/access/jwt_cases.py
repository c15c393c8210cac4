"""JSON web tokens for the table: good ones, and every way in which one can look good and not be."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

ISSUER = "https://sts.windows.net/tenant/"
AUDIENCE = "https://servicebus.azure.net"
OWNER, SENDER, RECEIVER = (f"Azure Service Bus Data {word}" for word in ("Owner", "Sender", "Receiver"))
ROLES = ("orders-sender=Send@orders", "topic-reader=Listen@topic/Subscriptions/sub", "host-owner=Manage@127.0.0.1")
SECRET = base64.urlsafe_b64encode(b"a secret of sixty-four bytes, which anybody can read in the file").decode()

RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
STRANGER = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _public(algorithm: Any, key: Any, **more: str) -> dict[str, Any]:
    return {**json.loads(algorithm.to_jwk(key.public_key())), **more}


def write_keys(folder: Path) -> Path:
    """The issuer's published keys, with two in it that must never count."""
    keys = [
        _public(RSAAlgorithm, RSA_KEY, kid="rsa", alg="RS256", use="sig"),
        _public(ECAlgorithm, EC_KEY, kid="ec", alg="ES256", use="sig"),
        _public(RSAAlgorithm, STRANGER, kid="encryption", alg="RS256", use="enc"),
        {"kty": "oct", "kid": "secret", "k": SECRET, "alg": "HS256"},
    ]
    path = folder / "jwks.json"
    path.write_text(json.dumps({"keys": keys}))
    return path


def options(folder: Path) -> list[str]:
    """What the bus is told about them."""
    words = ["--jwt-keys", str(write_keys(folder)), "--jwt-issuer", ISSUER]
    return [*words, *(word for role in ROLES for word in ("--jwt-role", role))]


def claims(*roles: str, **changed: Any) -> dict[str, Any]:
    now = int(time.time())
    whole = {"iss": ISSUER, "aud": AUDIENCE, "exp": now + 3600, "nbf": now - 300, "iat": now - 300, "sub": "somebody"}
    whole |= {"roles": list(roles or (OWNER,)), **changed}
    return {name: value for name, value in whole.items() if value is not None}


def signed(payload: Mapping[str, Any], key: Any = RSA_KEY, algorithm: str = "RS256", **headers: Any) -> str:
    head = {"kid": "rsa", **headers}
    return jwt.encode(
        dict(payload), key, algorithm, {name: value for name, value in head.items() if value is not None}
    )


def _part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def raw(head: Any, payload: Any, signature: str = "") -> str:
    """Put together by hand, with whatever signature."""
    return f"{_part(head)}.{_part(payload)}.{signature}"


GOOD = signed(claims())
PUBLIC_PEM = RSA_KEY.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


def confused(secret: bytes, kid: str) -> str:
    """Signed with HMAC and something that everybody knows, for a verifier that lets a token choose its algorithm."""
    text = f"{_part({'alg': 'HS256', 'typ': 'JWT', 'kid': kid})}.{_part(claims())}"
    digest = hmac.new(secret, text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def with_payload(changed: Mapping[str, Any]) -> str:
    """The good token's signature under other claims."""
    head, _, signature = GOOD.split(".")
    return f"{head}.{_part(changed)}.{signature}"


NOW = int(time.time())
OPENING = {
    "RS256": GOOD,
    "ES256": signed(claims(), EC_KEY, "ES256", kid="ec"),
    "several roles": signed(claims("nothing", OWNER)),
    "one of several audiences": signed(claims(aud=["https://elsewhere.example", AUDIENCE])),
    "the audience with a slash": signed(claims(aud=AUDIENCE + "/")),
    "claims that nobody knows": signed(claims(tid="tenant", appid="app", ver="1.0")),
}
REFUSED = {
    "another issuer": signed(claims(iss="https://sts.windows.net/other/")),
    "the issuer without its slash": signed(claims(iss=ISSUER.rstrip("/"))),
    "the issuer and more": signed(claims(iss=ISSUER + "x")),
    "no issuer": signed(claims(iss=None)),
    "another audience": signed(claims(aud="https://management.azure.com")),
    "no audience": signed(claims(aud=None)),
    "an empty audience": signed(claims(aud="")),
    "only other audiences": signed(claims(aud=["https://a.example", "https://b.example"])),
    "expired": signed(claims(exp=NOW - 3600)),
    "expired in 1970": signed(claims(exp=0)),
    "no expiry": signed(claims(exp=None)),
    "an expiry in words": signed(claims(exp="tomorrow")),
    "an endless expiry": raw({"alg": "RS256", "kid": "rsa"}, claims(exp="inf"), "x"),
    "not yet": signed(claims(nbf=NOW + 3600)),
    "no algorithm": raw({"alg": "none", "typ": "JWT"}, claims()),
    "no algorithm, with a key": raw({"alg": "none", "kid": "rsa"}, claims()),
    "no algorithm in capitals": raw({"alg": "NONE", "kid": "rsa"}, claims()),
    "an empty signature": GOOD.rpartition(".")[0] + ".",
    "no signature": GOOD.rpartition(".")[0],
    "a signature that was changed": GOOD[:-6] + ("AAAAAA" if GOOD[-6:] != "AAAAAA" else "BBBBBB"),
    "other claims under the signature": with_payload(claims(OWNER, sub="root")),
    "a later expiry under the signature": with_payload(claims(exp=NOW + 9_999_999)),
    "a stranger's key": signed(claims(), STRANGER),
    "a stranger's key that is not known": signed(claims(), STRANGER, kid="stranger"),
    "a key for encryption": signed(claims(), STRANGER, kid="encryption"),
    "no name of a key": signed(claims(), kid=None),
    "an empty name of a key": signed(claims(), kid=""),
    "the key of another algorithm": signed(claims(), EC_KEY, "ES256", kid="rsa"),
    "RS512 with a key for RS256": signed(claims(), RSA_KEY, "RS512"),
    "the public key as a secret": confused(PUBLIC_PEM, "rsa"),
    "the public key as a secret, without its last line": confused(PUBLIC_PEM.strip(), "rsa"),
    "a published secret": confused(base64.urlsafe_b64decode(SECRET), "secret"),
    "a key of its own in the header": signed(
        claims(), STRANGER, kid="own", jwk=_public(RSAAlgorithm, STRANGER, kid="own")
    ),
    "a key's address in the header": signed(claims(), STRANGER, kid="own", jku="https://elsewhere.example/keys"),
    "a name of a key that is a path": signed(claims(), STRANGER, kid="../../../dev/null"),
    "something critical that nobody knows": signed(claims(), crit=["exp2"], exp2=1),
    "three empty parts": "..",
    "four parts": GOOD + ".x",
    "not base64": "a!.b!.c!",
    "a list for claims": raw({"alg": "RS256", "kid": "rsa"}, [1], "x"),
    "a number for a header": raw(1, claims(), "x"),
    "longer than any token": signed(claims(more="x" * 20_000)),
    "no roles": signed(claims(roles=None)),
    "an empty list of roles": signed(claims(roles=[])),
    "roles as a text": signed(claims(roles=OWNER)),
    "roles in a list in a list": signed(claims(roles=[[OWNER]])),
    "a role in other case": signed(claims(roles=[OWNER.lower()])),
    "a role with a space": signed(claims(roles=[OWNER + " "])),
    "a role in another claim": signed(claims(roles=[], scp=OWNER, role=OWNER, groups=[OWNER])),
}
