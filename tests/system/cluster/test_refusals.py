"""What cannot be a node ends with one clear line and exit code 2, before it has touched anything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from polybus.cli.app import app
from tests.support.cluster import Cluster, wait_for

CLUSTER = ("--cluster", "postgresql://u:geheim@127.0.0.1:1/db?schema=c")
STORE = ("--store", "postgresql://u:geheim@127.0.0.1:1/db?schema=s")
NODE = ("--node", "a")


def refused(folder: Path, *options: str) -> str:
    """The one line that `polybus serve` ends with."""
    done = subprocess.run(
        [sys.executable, "-m", "polybus", "serve", "--data", str(folder), "--port", "0", *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "POLYBUS_BUILD": "plain"},
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert "geheim" not in lines[0]
    return lines[0]


def test_options_and_a_database_that_cannot_be(tmp_path: Path) -> None:
    assert "--cluster needs --node NAME" in refused(tmp_path, *CLUSTER, *STORE)
    workers = refused(tmp_path, *CLUSTER, *NODE, *STORE, "--workers", "2")
    assert "--workers and --cluster do not go together" in workers
    assert "127.0.0.1:1/db?schema=c" in refused(tmp_path, *CLUSTER, *NODE, *STORE)


def given(cluster: Cluster, name: str, stores: list[str]) -> list[str]:
    return ["--cluster", cluster.url, "--node", name, *(word for url in stores for word in ("--store", url))]


def test_a_living_name_and_what_differs_from_the_clusters(cluster: Cluster, tmp_path: Path) -> None:
    assert "the node 'a' is alive" in refused(tmp_path, *given(cluster, "a", cluster.stores))
    fewer = given(cluster, "d", cluster.stores[:-1])
    assert "the stores of this node differ from the cluster's" in refused(tmp_path, *fewer)
    keyed = [*given(cluster, "d", cluster.stores), "--key", "mine=" + "x" * 40]
    assert "the keys of this node differ from the cluster's (RootManage" in refused(tmp_path, *keyed)
    other = [*given(cluster, "d", cluster.stores), "--namespace", "other"]
    assert "the settings of this node differ from the cluster's (namespaces)" in refused(tmp_path, *other)
    wait_for(lambda: [row.name for row in cluster.view().living] == ["a", "b", "c"], "the three are what they were")


def test_nodes_command_needs_a_cluster() -> None:
    for words, code, said in (
        (["nodes"], 2, "needs --cluster URL"),
        (["nodes", "--cluster", CLUSTER[1]], 3, "127.0.0.1:1"),
    ):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == code, done.output
        assert said in done.output
        assert "geheim" not in done.output
