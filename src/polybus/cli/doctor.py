"""`polybus doctor`: looks at this machine and says what would stand in the way of a bus, and what is not safe."""

from __future__ import annotations

import datetime
import os
import platform
import shutil
import socket
import stat
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

import polybus
from polybus.cli.options import AsJson
from polybus.cli.output import REFUSED, CommandOutput, one_line_errors

PORTS: Final = (5672, 5300, 5671)
SYNCS: Final = 20
SLOW_SYNC_MS: Final = 20.0
"""A send waits for a sync: with this one a single sender has 50 messages a second."""
SUSPICIOUS_SYNC_MS: Final = 0.02
"""No disk is as quick; memory is, and a disk that only says that it has written."""
LOW_BYTES: Final = 1_000_000_000
SOON_DAYS: Final = 14
_STYLE: Final = {"ok": "ok", "note": "note", "bad": "BAD"}


@dataclass(frozen=True)
class Finding:
    """One look: `ok`, `note` (know it) or `bad` (a bus would suffer)."""

    what: str
    verdict: str
    found: str


def doctor(
    data: Annotated[Path, typer.Option(help="The data folder that a bus has, or would have.")] = Path("polybus-data"),
    as_json: AsJson = False,
) -> None:
    """Looks at ports, certificates, Java, the disk's sync time and what is not safe. Exit code 1: something is bad."""
    out = CommandOutput(as_json)
    with one_line_errors():
        findings = [*_installation(), *_ports(), *_disk(data), *_certificates(data), *_safety(data), _java()]
        if as_json:
            out.json([asdict(each) for each in findings])
        else:
            out.table("", ("what", "", "found"), [(each.what, _STYLE[each.verdict], each.found) for each in findings])
    raise typer.Exit(REFUSED if any(each.verdict == "bad" for each in findings) else 0)


def _installation() -> Iterator[Finding]:
    python = platform.python_version()
    yield Finding("version", "ok", f"polybus {polybus.__version__}, Python {python}, {platform.system()}")
    if polybus.BUILD == "compiled":
        yield Finding("build", "ok", "compiled")
    else:
        yield Finding("build", "note", "plain, several times slower than the compiled one; it needs a C compiler")


def _ports() -> Iterator[Finding]:
    for port in PORTS:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                found = f"taken ({error.strerror}), by a bus or by another program; serve --port N takes another"
                yield Finding(f"port {port}", "note", found)
            else:
                yield Finding(f"port {port}", "ok", "free")


def _disk(data: Path) -> Iterator[Finding]:
    place = next(each for each in (data.absolute(), *data.absolute().parents) if each.exists())
    free = shutil.disk_usage(place).free
    yield Finding("free space", "ok" if free >= LOW_BYTES else "bad", f"{free / 1e9:,.1f} GB at {place}")
    if not os.access(place, os.W_OK):
        yield Finding("disk", "bad", f"{place} cannot be written to")
        return
    sync_ms = _sync_ms(place)
    verdict = "bad" if sync_ms < SUSPICIOUS_SYNC_MS else "note" if sync_ms > SLOW_SYNC_MS else "ok"
    text = f"{sync_ms:.2f} ms: one sender that waits for each answer has at most {1000 / sync_ms:,.0f} a second"
    if verdict == "bad":
        text = f"{sync_ms:.3f} ms, quicker than a disk is: what is accepted may not survive a power cut"
    yield Finding("sync time", verdict, text)


def _sync_ms(place: Path) -> float:
    taken = []
    with tempfile.TemporaryFile(dir=place) as file:
        for _ in range(SYNCS):
            file.write(b"s" * 4096)
            file.flush()
            started = time.perf_counter()
            os.fsync(file.fileno())
            taken.append((time.perf_counter() - started) * 1000)
    return statistics.median(taken)


def _certificates(data: Path) -> Iterator[Finding]:
    from cryptography import x509

    for path in sorted((data / "certificates").glob("*.pem")):
        content = path.read_bytes()
        if b"BEGIN CERTIFICATE" not in content:
            continue
        ends = x509.load_pem_x509_certificate(content).not_valid_after_utc
        left = (ends - datetime.datetime.now(datetime.UTC)).days
        verdict = "bad" if left < 0 else "note" if left < SOON_DAYS else "ok"
        yield Finding(f"certificate {path.name}", verdict, f"valid until {ends:%Y-%m-%d}, {left} days")


def _safety(data: Path) -> Iterator[Finding]:
    if not data.exists():
        yield Finding("data", "ok", f"{data} is not there yet")
        return
    mode = stat.S_IMODE(data.stat().st_mode)
    if mode & 0o077:
        yield Finding(
            "data", "bad", f"{data} is open to other users ({mode:o}); chmod 700 closes it, and so does serve"
        )
    else:
        yield Finding("data", "ok", f"{data} is closed to other users")
    if os.geteuid() == 0 and sys.platform != "win32":
        yield Finding("user", "note", "root; a bus needs no such rights")


def _java() -> Finding:
    found = shutil.which("java") or (Path(os.environ.get("JAVA_HOME", "/none")) / "bin" / "java")
    if not Path(found).exists():
        return Finding("Java", "note", "not there; only Spark pipelines need it (17 or newer)")
    done = subprocess.run([str(found), "-version"], capture_output=True, text=True, check=False)
    line = next(iter((done.stderr or done.stdout).splitlines()), "")
    return Finding("Java", "ok" if done.returncode == 0 else "note", line or "does not start")
