"""The console's files as they are served: with a version in their address, and a policy that lets nothing else in.

The version is a hash of all files, so that a browser may keep each of them for good and never mixes two versions. The
page itself is never kept. Its policy allows scripts and styles from these files alone, none written into the page, and
no text that becomes markup: what a message says can only ever be shown (`trusted-types` names the one place that reads
markup).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "assets"
BASE: Final = "/$polybus/console"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".md": "text/plain; charset=utf-8",
    "": "text/plain; charset=utf-8",
}
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types polybus-markup",
    )
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_FOR_GOOD: Final = "public, max-age=31536000, immutable"


@dataclass(frozen=True)
class Served:
    """What leaves: bytes and headers."""

    content: bytes
    headers: dict[str, str]


@cache
def version() -> str:
    """A hash of all files."""
    digest = hashlib.sha256()
    for name, content in sorted(_files().items()):
        digest.update(name.encode() + b"\0" + content + b"\0")
    return digest.hexdigest()[:16]


@cache
def page() -> Served:
    """The page. It says where its files are; everything else is theirs."""
    text = _files()["index.html"].decode().replace("{base}", f"{BASE}/assets/{version()}")
    headers = {"Content-Type": _TYPES[".html"], "Cache-Control": "no-cache", "Vary": "Accept", **_HEADERS}
    return Served(text.encode(), headers)


def asset(given: str, name: str) -> Served | None:
    """A file by its version and name; None where there is no such file, or not in this version."""
    content = _files().get(name)
    if content is None or given != version() or name == "index.html":
        return None
    headers = {"Content-Type": _TYPES.get(Path(name).suffix, _TYPES[""]), "Cache-Control": _FOR_GOOD, **_HEADERS}
    return Served(content, headers)


@cache
def _files() -> dict[str, bytes]:
    """All files by name, read once: they are part of the package and small."""
    return {
        path.relative_to(FOLDER).as_posix(): path.read_bytes() for path in sorted(FOLDER.rglob("*")) if path.is_file()
    }
