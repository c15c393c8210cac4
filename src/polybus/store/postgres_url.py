"""The address of a PostgreSQL store: libpq's own form, with `schema=NAME` added, and without secrets to show."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from polybus.errors import ConfigError

DEFAULT_SCHEMA = "polybus"
SCHEMES = ("postgresql", "postgres")
_OWN = frozenset({"schema", "replicated"})
"""Options that are ours; all others are libpq's."""
_SECRETS = frozenset({"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"})
_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


@dataclass(frozen=True)
class PostgresUrl:
    """`conninfo` is for the driver and holds the password; `shown` is for everybody else."""

    conninfo: str
    shown: str
    schema: str
    replicated: bool
    """Declared so: the server must keep what it confirms on more than one machine."""


def parse_postgres_url(url: str) -> PostgresUrl:
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise ConfigError("a PostgreSQL store is postgresql://HOST/DATABASE?schema=NAME")
    options = parse_qsl(parts.query, keep_blank_values=True)
    schema = dict(options).get("schema", DEFAULT_SCHEMA)
    if not _SCHEMA_NAME.fullmatch(schema):
        raise ConfigError(f"schema={schema!r}: a lower-case name of at most 63 letters, digits and _")
    replicated = dict(options).get("replicated", "false")
    if replicated not in ("true", "false"):
        raise ConfigError(f"replicated={replicated!r}: true or false")
    passed_on = [(name, value) for name, value in options if name not in _OWN]
    shown = [(name, value) for name, value in options if name not in _SECRETS]
    return PostgresUrl(
        conninfo=_joined(parts.netloc, parts.path, passed_on),
        shown=_joined(_without_password(parts.netloc), parts.path, shown),
        schema=schema,
        replicated=replicated == "true",
    )


def _joined(netloc: str, path: str, options: list[tuple[str, str]]) -> str:
    # libpq reads %20 but not +, and wants both slashes also where no host follows.
    query = urlencode(options, safe="/", quote_via=quote)
    return f"postgresql://{netloc}{path}" + (f"?{query}" if query else "")


def _without_password(netloc: str) -> str:
    user, at, host = netloc.rpartition("@")
    return user.partition(":")[0] + at + host
