"""Errors of others, fit to be printed: one line, not too long, no key in it."""

from __future__ import annotations

import re
from typing import Final

from polybus.limits import PIPELINE_ERROR_CHARACTERS

_KEY: Final = re.compile(r"(SharedAccessKey|SharedAccessSignature|sig)\s*=\s*[^;&\s'\"]+", re.IGNORECASE)


def one_line(text: str) -> str:
    """The text without line ends, keys, and what is beyond a page."""
    clean = " ".join(_KEY.sub(r"\1=…", text).split())
    return clean if len(clean) <= PIPELINE_ERROR_CHARACTERS else f"{clean[:PIPELINE_ERROR_CHARACTERS]}…"
