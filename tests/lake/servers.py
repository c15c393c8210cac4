"""Real servers of object stores, and a wire before them that can fail.

`python -m tests.lake.servers` installs them from npm's registry and Go's proxy, and Airflow from PyPI, into `.tools` or the
folder that POLYBUS_LAKE_TOOLS names, and exits with 77 where that is not possible.
"""

from __future__ import annotations

import base64
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import httpx

from polybus.pipelines.object_stores import ObjectUrl, StoreSettings

TOOLS = Path(os.environ.get("POLYBUS_LAKE_TOOLS", Path(__file__).parents[2] / ".tools"))
AZURITE = "azurite@3"
VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@latest"
BUCKET = "lake"
MAVEN = "https://repo1.maven.org/maven2"
ICEBERG, JETTY = "1.11.0", "12.1.5"
REST_JARS = (
    *(
        f"org/apache/iceberg/iceberg-{name}/{ICEBERG}/iceberg-{name}-{ICEBERG}.jar"
        for name in ("api", "core", "common")
    ),
    f"org/apache/iceberg/iceberg-bundled-guava/{ICEBERG}/iceberg-bundled-guava-{ICEBERG}.jar",
    f"org/apache/iceberg/iceberg-core/{ICEBERG}/iceberg-core-{ICEBERG}-tests.jar",
    f"org/apache/iceberg/iceberg-open-api/{ICEBERG}/iceberg-open-api-{ICEBERG}-test-fixtures.jar",
    *(
        f"org/eclipse/jetty/jetty-{name}/{JETTY}/jetty-{name}-{JETTY}.jar"
        for name in ("server", "http", "io", "util", "session", "security")
    ),
    f"org/eclipse/jetty/ee10/jetty-ee10-servlet/{JETTY}/jetty-ee10-servlet-{JETTY}.jar",
    *(
        f"org/eclipse/jetty/compression/jetty-compression-{name}/{JETTY}/jetty-compression-{name}-{JETTY}.jar"
        for name in ("server", "common", "gzip")
    ),
    "org/apache/httpcomponents/client5/httpclient5/5.5/httpclient5-5.5.jar",
    "org/apache/httpcomponents/core5/httpcore5/5.3.4/httpcore5-5.3.4.jar",
    "com/github/ben-manes/caffeine/caffeine/2.9.3/caffeine-2.9.3.jar",
    "org/xerial/sqlite-jdbc/3.50.3.0/sqlite-jdbc-3.50.3.0.jar",
)
"""Iceberg's own server of the REST catalogue; what else it needs is among Spark's jars."""


def azurite() -> Path | None:
    found = TOOLS / "npm" / "node_modules" / ".bin" / "azurite-blob"
    return found if found.exists() and shutil.which("node") else None


def versitygw() -> Path | None:
    found = TOOLS / "go" / "versitygw"
    return found if found.exists() else None


def airflow() -> str | None:
    found = TOOLS / "airflow" / "venv" / "bin" / "airflow"
    return str(found) if found.exists() else None


def install_airflow() -> None:
    """In an environment of its own, for it pins half of the world; without it one test is skipped, and says so."""
    venv = TOOLS / "airflow" / "venv"
    if airflow() is None:
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=False)
        subprocess.run([str(venv / "bin" / "pip"), "install", "-q", "apache-airflow"], check=False)


def rest_jars() -> list[Path] | None:
    """None where one is missing."""
    found = [TOOLS / "rest" / jar.rpartition("/")[2] for jar in REST_JARS]
    return found if all(path.exists() for path in found) and shutil.which("java") else None


def install_rest() -> None:
    (TOOLS / "rest").mkdir(parents=True, exist_ok=True)
    for jar in REST_JARS:
        path = TOOLS / "rest" / jar.rpartition("/")[2]
        if not path.exists():
            try:
                hidden = path.with_suffix(".part")
                hidden.write_bytes(httpx.get(f"{MAVEN}/{jar}", timeout=60).raise_for_status().content)
                hidden.rename(path)
            except httpx.HTTPError as error:
                print(f"{jar}: {error}", file=sys.stderr)


def install() -> int:
    """0 where both servers of stores are there afterwards; tests of what else is missing are skipped, and say so."""
    install_airflow()
    install_rest()
    for name in ("npm", "go"):
        (TOOLS / name).mkdir(parents=True, exist_ok=True)
    commands = []
    if azurite() is None:
        commands.append((["npm", "install", "--no-audit", "--no-fund", "--prefix", str(TOOLS / "npm"), AZURITE], {}))
    if versitygw() is None:
        commands.append((["go", "install", VERSITYGW], {"GOBIN": str(TOOLS / "go")}))
    for words, more in commands:
        if shutil.which(words[0]) is None:
            print(f"{words[0]} is not here, so no server can be installed with it", file=sys.stderr)
            return 77
        if subprocess.run(words, env={**os.environ, **more}, check=False).returncode:
            print(f"{' '.join(words)}: failed", file=sys.stderr)
            return 77
    return 0


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


class ObjectServer(ABC):
    """A server that can be killed and started again with what it had."""

    scheme: str
    end = signal.SIGKILL

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.secrets = folder / "secrets"
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def _words(self) -> list[str]: ...

    @abstractmethod
    def _environment(self) -> dict[str, str]: ...

    @abstractmethod
    def settings(self, port: int) -> StoreSettings: ...

    @abstractmethod
    def make_bucket(self) -> None: ...

    def start(self) -> None:
        self.begin(0)
        self.wait()

    def begin(self, seconds: float) -> None:
        """Starts it after a while, in a process of its own from now on: `deltalake` holds Python while it waits."""
        with (self.folder / "log").open("ab") as log:
            words = ["sh", "-c", 'sleep "$0"; exec "$@"', str(seconds), *self._words()]
            environment = {**os.environ, **self._environment()}
            self._process = subprocess.Popen(words, stdout=log, stderr=log, env=environment)

    def wait(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert self._process is not None
                assert self._process.poll() is None, (self.folder / "log").read_text()
                time.sleep(0.05)  # a server of others says nowhere that it listens but by listening
        raise AssertionError((self.folder / "log").read_text())

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(self.end)
            process.wait()

    def stop(self) -> None:
        self.kill()

    def url(self, path: str, port: int | None = None) -> ObjectUrl:
        return ObjectUrl(f"{self.scheme}://{BUCKET}/{path}", self.settings(port or self.port))

    def declared(self, port: int | None = None) -> dict[str, Any]:
        """The `stores` of a file of pipelines."""
        told = self.settings(port or self.port)
        return {f"{self.scheme}://{BUCKET}": {**told.places, "secretsFile": told.secrets_file}}


class Versity(ObjectServer):
    """S3, on files of this machine."""

    scheme = "s3"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.key, self.secret = secrets.token_hex(8), secrets.token_hex(20)
        self.secrets.write_text(f"AWS_ACCESS_KEY_ID={self.key}\nAWS_SECRET_ACCESS_KEY={self.secret}\n")
        (folder / "files").mkdir()
        (folder / "sidecar").mkdir()

    def _words(self) -> list[str]:
        files, beside = str(self.folder / "files"), str(self.folder / "sidecar")
        return [str(versitygw()), "--port", f"127.0.0.1:{self.port}", "--quiet", "posix", "--sidecar", beside, files]

    def _environment(self) -> dict[str, str]:
        return {"ROOT_ACCESS_KEY": self.key, "ROOT_SECRET_KEY": self.secret}

    def settings(self, port: int) -> StoreSettings:
        return StoreSettings({"endpoint": f"http://127.0.0.1:{port}", "region": "us-east-1"}, str(self.secrets))

    def make_bucket(self) -> None:
        from pyarrow.fs import S3FileSystem

        S3FileSystem(
            access_key=self.key,
            secret_key=self.secret,
            endpoint_override=f"http://127.0.0.1:{self.port}",
            region="us-east-1",
            allow_bucket_creation=True,
        ).create_dir(BUCKET)


class Azurite(ObjectServer):
    """Azure Blob."""

    scheme = "az"
    account = "polybus"
    end = signal.SIGTERM
    """Killed, Azurite forgets what it has acknowledged: it writes its list of blobs every few seconds."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.front: Wire | None = None
        self.secret = base64.b64encode(secrets.token_bytes(64)).decode()
        self.secrets.write_text(f"AZURE_STORAGE_ACCOUNT_KEY={self.secret}\n")

    def start(self) -> None:
        super().start()
        if self.front is None:
            self.front = Wire(self.port, 0).__enter__()

    def url(self, path: str, port: int | None = None) -> ObjectUrl:
        assert self.front is not None
        return super().url(path, port or self.front.port)

    def declared(self, port: int | None = None) -> dict[str, Any]:
        assert self.front is not None
        return super().declared(port or self.front.port)

    def stop(self) -> None:
        super().stop()
        if self.front is not None:
            self.front.faults()

    def _words(self) -> list[str]:
        where = ["--blobHost", "127.0.0.1", "--blobPort", str(self.port), "--location", str(self.folder)]
        return ["node", str(azurite()), *where, "--skipApiVersionCheck", "--silent", "--disableTelemetry"]

    def _environment(self) -> dict[str, str]:
        return {"AZURITE_ACCOUNTS": f"{self.account}:{self.secret}"}

    def settings(self, port: int) -> StoreSettings:
        endpoint = f"http://127.0.0.1:{port}/{self.account}"
        return StoreSettings({"account": self.account, "endpoint": endpoint}, str(self.secrets))

    def make_bucket(self) -> None:
        from pyarrow.fs import AzureFileSystem

        where = f"127.0.0.1:{self.port}"
        AzureFileSystem(
            self.account,
            account_key=self.secret,
            blob_storage_authority=where,
            blob_storage_scheme="http",
            dfs_storage_authority=where,
            dfs_storage_scheme="http",
        ).create_dir(BUCKET)


class RestCatalogue:
    """Iceberg's REST catalogue, which keeps its tables on a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder

    def __enter__(self) -> RestCatalogue:
        import pyspark

        jars = rest_jars()
        assert jars is not None
        spark = Path(pyspark.__file__).parent / "jars"
        path = ":".join([*map(str, jars), f"{spark}/*"])
        environment = {
            **os.environ,
            "REST_PORT": str(self.port),
            "CATALOG_REST_PORT": str(self.port),
            "CATALOG_WAREHOUSE": str(self._folder / "warehouse"),
            "CATALOG_URI": f"jdbc:sqlite:{self._folder / 'rest.db'}",
        }
        with (self._folder / "rest.log").open("ab") as log:
            words = ["java", "-Xmx256m", "-cp", path, "org.apache.iceberg.rest.RESTCatalogServer"]
            self._process = subprocess.Popen(words, stdout=log, stderr=log, env=environment)
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            try:
                httpx.get(f"http://127.0.0.1:{self.port}/v1/config").raise_for_status()
                return self
            except httpx.HTTPError:
                assert self._process.poll() is None, (self._folder / "rest.log").read_text()
                time.sleep(0.1)  # a server of others says nowhere that it listens but by listening
        raise AssertionError((self._folder / "rest.log").read_text())

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()


class Wire:
    """What lies between client and server, with faults: see `wire.py`."""

    def __init__(self, port: int, every: int, *kinds: str) -> None:
        self._words = [sys.executable, "-m", "tests.lake.wire", str(port), str(every), *kinds]

    def __enter__(self) -> Wire:
        self._faults: list[str] | None = None
        self._process = subprocess.Popen(
            self._words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *error: object) -> None:
        self.faults()

    def faults(self) -> list[str]:
        """Ends it, and gives what it has done."""
        if self._faults is None:
            self._process.kill()
            told, _ = self._process.communicate()
            self._faults = told.splitlines() if told else []
        return self._faults


if __name__ == "__main__":
    sys.exit(install())
