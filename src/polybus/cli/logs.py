"""Log lines: text for people, JSON for machines; never a message's body, never a token."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable

from polybus.limits import LOG_KIND_LINES, LOG_KIND_SECONDS

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, object] = {
            "time": f"{stamp}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update({name: value for name, value in vars(record).items() if name not in _STANDARD})
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextLines(logging.Formatter):
    """One line for each record: what peers wrote cannot begin another, nor move a terminal's cursor."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        extra = " ".join(f"{name}={_shown(value)}" for name, value in vars(record).items() if name not in _STANDARD)
        text = escaped(super().formatMessage(record))
        return f"{text} {extra}" if extra else text


def escaped(text: str) -> str:
    """The text with all that is not printable written out."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _shown(value: object) -> str:
    """A value behind its name; in quotes where it could be taken for another name and value."""
    text = escaped(str(value))
    return json.dumps(text, ensure_ascii=False) if any(each in text for each in ' ="') else text


class EachKindOnce(logging.Filter):
    """Lets a few warnings of one kind through in a minute; how many more there were is told with the next."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now_s = now_s
        self._kinds: dict[tuple[str, str], list[float]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or record.exc_info:
            return True
        now_s = self._now_s()
        since_s, told, held = self._kinds.get((record.name, str(record.msg)), (now_s, 0, 0))
        if now_s - since_s >= LOG_KIND_SECONDS:
            if held:
                record.more_like_it = int(held)
            since_s, told, held = now_s, 0, 0
        passes = told < LOG_KIND_LINES
        self._kinds[record.name, str(record.msg)] = [since_s, told + passes, held + (not passes)]
        return passes


def configure_logs(as_json: bool, verbose: bool) -> None:
    """Sends the log to standard error, so that standard output holds only what commands print."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else TextLines("%(asctime)s %(levelname)-7s %(message)s"))
    handler.addFilter(EachKindOnce())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("polybus").setLevel(logging.INFO if verbose else logging.WARNING)
