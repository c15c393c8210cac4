"""URLs of object stores and the secrets beside them: what a file may say, and what is never shown."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from polybus.errors import ConfigError
from polybus.pipelines.capture import CaptureKind
from polybus.pipelines.declaration import Declaration, parse
from polybus.pipelines.iceberg import iceberg_location, iceberg_options
from polybus.pipelines.manifests import TaskTarget
from polybus.pipelines.object_folder import ObjectTarget
from polybus.pipelines.object_stores import ObjectUrl, Stores, StoreSettings

SECRET = "the-secret-itself"


def declared(path: str, stores: Any = None, folder: Path = Path("/x"), **to: Any) -> Declaration:
    told = {
        "bus": {"connectionStringEnv": "BUS"},
        "checkpoints": "c",
        **({} if stores is None else {"stores": stores}),
        "pipelines": [{"name": "lake", "kind": "capture", "from": "orders", "to": {"path": path, **to}}],
    }
    return parse(json.dumps(told), "p.yml", folder)


def place(declaration: Declaration) -> ObjectUrl:
    (kind,) = declaration.pipelines
    assert isinstance(kind, CaptureKind)
    assert isinstance(kind.place.path, ObjectUrl)
    return kind.place.path


@pytest.mark.parametrize(
    ("url", "kind", "container", "prefix"),
    [
        ("s3://lake/a/b", "s3", "lake", "a/b"),
        ("az://lake/a/", "azure", "lake", "a"),
        ("abfss://lake@acc.dfs.core.windows.net/a", "azure", "lake", "a"),
        ("gs://lake/a", "google", "lake", "a"),
    ],
)
def test_a_url_names_a_store(url: str, kind: str, container: str, prefix: str) -> None:
    found = place(declared(url))
    assert (found.kind, found.container, found.prefix) == (kind, container, prefix)


@pytest.mark.parametrize("url", ["ftp://lake/a", "s3://", "abfss://lake/a", "s3://lake/a?x=1", "http://lake/a"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"pipelines\[0\]\.to\.path: .* is not allowed; allowed: a folder, or s3:"):
        declared(url)


def test_a_url_is_refused_where_only_a_folder_can_be() -> None:
    told = {"bus": {"connectionStringEnv": "B"}, "checkpoints": "s3://lake/c", "pipelines": []}
    with pytest.raises(ConfigError, match="s3://lake/c: must be a folder or file here"):
        parse(json.dumps(told), "p.yml", Path("/x"))


def test_an_iceberg_table_on_a_store_needs_a_catalogue() -> None:
    with pytest.raises(ConfigError, match=r"to\.catalog: is missing"):
        declared("s3://lake/a", format="iceberg")


def test_the_longest_beginning_of_a_url_says_how_its_store_is_reached() -> None:
    stores = {"s3://lake": {"region": "one"}, "s3://lake/far": {"region": "two"}, "s3://lakes": {"region": "three"}}
    assert place(declared("s3://lake/near", stores)).settings.places == {"region": "one"}
    assert place(declared("s3://lake/far/away", stores)).settings.places == {"region": "two"}
    assert place(declared("s3://other", stores)).settings == StoreSettings()


def test_a_file_may_not_hold_a_secret_and_its_value_is_not_told() -> None:
    for name in ("secretKey", "AWS_SECRET_ACCESS_KEY", "accountKey", "token"):
        with pytest.raises(ConfigError) as caught:
            declared("s3://lake/a", {"s3://lake": {name: SECRET}})
        assert SECRET not in str(caught.value)
        assert "secretsFile" in str(caught.value)


def test_secrets_are_read_where_they_are_used_and_travel_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys").write_text(f"# ours\nAWS_ACCESS_KEY_ID=me\nexport AWS_SECRET_ACCESS_KEY='{SECRET}'\n")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of the environment")
    found = place(declared("s3://lake/a", {"s3://lake": {"secretsFile": "keys", "region": "r"}}, tmp_path))
    assert found.resolved() == {
        "AWS_ACCESS_KEY_ID": "me",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": "of the environment",
        "AWS_REGION": "r",
    }
    target: TaskTarget = ObjectTarget(found, "batch")
    assert SECRET.encode() not in pickle.dumps((found, target))
    assert SECRET not in f"{found!r} {found} {target!r}"
    again = pickle.loads(pickle.dumps(found))
    assert again.resolved() == found.resolved()


def test_a_file_of_secrets_that_is_not_there_is_told() -> None:
    url = ObjectUrl("s3://lake/a", StoreSettings(secrets_file="/nowhere/keys"))
    with pytest.raises(ConfigError, match="/nowhere/keys: the file of secrets cannot be read here"):
        url.resolved()


def test_azure_is_known_to_iceberg_by_its_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", SECRET)
    url = Stores({"az://lake": StoreSettings({"account": "acc"})}).at("az://lake/a")
    assert url is not None
    assert iceberg_location(url) == "abfss://lake@acc.dfs.core.windows.net/a"
    assert iceberg_options(url) == {"adls.account-name": "acc", "adls.account-key": SECRET}
    with pytest.raises(ConfigError, match="needs the 'account'"):
        iceberg_location(ObjectUrl("az://lake/a"))


def test_a_sibling_is_in_the_same_store() -> None:
    url = ObjectUrl("s3://lake/orders", StoreSettings({"region": "r"}))
    assert str(url.with_name("orders-quarantine")) == "s3://lake/orders-quarantine"
    assert (url / "x").settings == url.settings
