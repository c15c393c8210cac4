"""Folders on object stores: S3, Azure Blob and ADLS Gen2, Google's, by their URLs, with secrets by reference.

What stands in the file of pipelines is no secret: where the store is, and which file holds the keys; without one, the
environment does, under the names that the stores' own tools use. Keys are looked up where they are used, in the driver
and in each worker, so that no plan, line or page holds one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from polybus.errors import ConfigError
from polybus.limits import OBJECT_RETRIES, OBJECT_RETRY_SECONDS

if TYPE_CHECKING:
    from polybus.pipelines.fields import Fields

S3: Final = "s3"
AZURE: Final = "azure"
GOOGLE: Final = "google"
SCHEMES: Final = {"s3": S3, "s3a": S3, "az": AZURE, "abfss": AZURE, "gs": GOOGLE}
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_ABFSS: Final = re.compile(r"(?P<container>[^@/]+)@(?P<account>[^./]+)\.dfs\.core\.windows\.net")
ALLOWED: Final = (
    "a folder, or s3://bucket/folder, az://container/folder, "
    "abfss://container@account.dfs.core.windows.net/folder, gs://bucket/folder"
)
SECRETS: Final = {
    S3: ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    AZURE: (
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_SAS_KEY",
        "AZURE_STORAGE_CLIENT_ID",
        "AZURE_STORAGE_CLIENT_SECRET",
        "AZURE_STORAGE_TENANT_ID",
    ),
    GOOGLE: ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY"),
}
"""By kind of store: what the environment or the file of secrets may hold."""
_PLACES: Final = {
    S3: {"region": "AWS_REGION", "endpoint": "AWS_ENDPOINT_URL"},
    AZURE: {"account": "AZURE_STORAGE_ACCOUNT_NAME", "endpoint": "AZURE_STORAGE_ENDPOINT"},
    GOOGLE: {"endpoint": "GOOGLE_BASE_URL"},
}
"""By kind of store: what the file may say, and the variable that says it else."""


@dataclass(frozen=True)
class StoreSettings:
    """How the stores below one URL are reached; the file's `stores` has one for each."""

    places: dict[str, str] = field(default_factory=dict)
    """`endpoint`, `region`, `account`."""
    secrets_file: str | None = None


@dataclass(frozen=True)
class ObjectUrl:
    """A folder of an object store."""

    url: str
    settings: StoreSettings = StoreSettings()

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> ObjectUrl:
        return ObjectUrl(f"{self.url}/{name}", self.settings)

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    def with_name(self, name: str) -> ObjectUrl:
        return ObjectUrl(f"{self.url.rpartition('/')[0]}/{name}", self.settings)

    @property
    def kind(self) -> str:
        return SCHEMES[urlsplit(self.url).scheme]

    @property
    def container(self) -> str:
        """The bucket or container."""
        return urlsplit(self.url).netloc.partition("@")[0]

    @property
    def prefix(self) -> str:
        return urlsplit(self.url).path.strip("/")

    # What it takes to reach it

    def resolved(self) -> dict[str, str]:
        """Places and secrets under the variables' names, secrets included: never to be shown or pickled."""
        given = {**os.environ, **_secrets_in(self.settings.secrets_file)}
        found = {name: given[name] for name in SECRETS[self.kind] if given.get(name)}
        for field_name, variable in _PLACES[self.kind].items():
            value = self.settings.places.get(field_name) or given.get(variable)
            if value:
                found[variable] = value
        account = _ABFSS.fullmatch(urlsplit(self.url).netloc)
        if account is not None:
            found["AZURE_STORAGE_ACCOUNT_NAME"] = account["account"]
        return found

    def store(self) -> Any:
        """The store, rooted at this folder; retries what a store answers when it is busy or away for a moment."""
        try:
            from obstore.store import AzureStore, GCSStore, S3Store
        except ImportError:
            raise ConfigError("object stores need: pip install 'polybus[pipelines]'") from None
        config = {_NAMES.get(name, name.lower()): value for name, value in self.resolved().items()}
        more: dict[str, Any] = {"prefix": self.prefix, "retry_config": _RETRY, "config": config}
        if any(value.startswith("http://") for value in config.values()):
            more["client_options"] = {"allow_http": True}
        if self.kind == S3:
            return S3Store(self.container, **more)
        return (AzureStore if self.kind == AZURE else GCSStore)(self.container, **more)


_NAMES: Final = {"AWS_ENDPOINT_URL": "aws_endpoint"}
_RETRY: Final = {
    "max_retries": OBJECT_RETRIES,
    "retry_timeout": timedelta(seconds=OBJECT_RETRY_SECONDS),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
}
Location = Path | ObjectUrl
"""Where a table lies."""


def is_url(text: str) -> bool:
    return _URL.match(text) is not None


def _secrets_in(path: str | None) -> dict[str, str]:
    """A file of lines `NAME=value`."""
    if path is None:
        return {}
    try:
        lines = Path(path).read_text().splitlines()
    except OSError as error:
        raise ConfigError(f"{path}: the file of secrets cannot be read here: {error.strerror}") from None
    pairs = [line.strip().removeprefix("export ").partition("=") for line in lines if "=" in line]
    return {name.strip(): value.strip().strip("\"'") for name, _, value in pairs if not name.startswith("#")}


class Stores:
    """The file's `stores`: settings by the beginning of URLs, the longest that fits counts."""

    def __init__(self, settings: Mapping[str, StoreSettings] | None = None) -> None:
        self._settings = dict(settings or {})

    def at(self, text: str) -> ObjectUrl | None:
        """The place that a URL names; None where it is of no kind that is known."""
        parts = urlsplit(text.rstrip("/"))
        known = parts.scheme in SCHEMES and parts.netloc and not parts.query and not parts.fragment
        if not known or (parts.scheme == "abfss") != (_ABFSS.fullmatch(parts.netloc) is not None):
            return None
        url = text.rstrip("/")
        fitting = [start for start in self._settings if url == start or url.startswith(f"{start}/")]
        return ObjectUrl(url, self._settings[max(fitting, key=len)] if fitting else StoreSettings())


def stores_from(fields: Fields | None, folder: Path) -> Stores:
    """Reads `stores: {s3://lake: {endpoint: http://…, secretsFile: …}}`."""
    if fields is None:
        return Stores()
    found: dict[str, StoreSettings] = {}
    for start in fields.names():
        place = Stores().at(start)
        if place is None:
            fields.refuse(start, start, "the beginning of URLs, such as s3://bucket")
        inner = fields.mapping(start)
        assert inner is not None
        places = {name: inner.text(name) for name in _PLACES[place.kind] if inner.has(name)}
        secrets = inner.text("secretsFile", None, "a file of lines NAME=value")
        inner.close()
        found[start.rstrip("/")] = StoreSettings(places, None if secrets is None else str(folder / secrets))
    return Stores(found)
