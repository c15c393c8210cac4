from __future__ import annotations

import json
import logging

from polybus.cli.logs import EachKindOnce, JsonLines, TextLines
from polybus.limits import LOG_KIND_LINES, LOG_KIND_SECONDS


def record(**extra: object) -> logging.LogRecord:
    made = logging.LogRecord("polybus.gateway", logging.INFO, __file__, 1, "refused: %s", ("why",), None)
    vars(made).update(extra)
    return made


def test_json_lines_hold_everything_that_is_known() -> None:
    line = json.loads(JsonLines().format(record(entity="q", tracking_id="t")))
    assert line["message"] == "refused: why"
    assert (line["level"], line["logger"], line["entity"], line["tracking_id"]) == (
        "info",
        "polybus.gateway",
        "q",
        "t",
    )
    assert line["time"].endswith("Z")


def test_text_lines_put_what_is_known_behind_the_text() -> None:
    assert TextLines("%(message)s").format(record(entity="q")) == "refused: why entity=q"
    assert TextLines("%(message)s").format(record()) == "refused: why"


def test_what_a_peer_wrote_stays_on_its_line() -> None:
    made = record(link="a\nERROR a lie \x1b[2J", entity="q admin=true")
    made.args = ("why\r\n2026 ERROR another lie\u2028",)
    line = TextLines("%(message)s").format(made)
    assert line.isprintable()
    assert line == (
        r"refused: why\r\n2026 ERROR another lie\u2028"
        r' link="a\\nERROR a lie \\x1b[2J" entity="q admin=true"'
    )


def warning(text: str, *args: object) -> logging.LogRecord:
    return logging.LogRecord("polybus", logging.WARNING, __file__, 1, text, args, None)


def test_one_kind_of_trouble_fills_no_log() -> None:
    now = [0.0]
    once = EachKindOnce(lambda: now[0])
    let_through = [once.filter(warning("no more connections: %s", n)) for n in range(500)]
    assert sum(let_through) == LOG_KIND_LINES
    assert once.filter(warning("another kind"))
    now[0] += LOG_KIND_SECONDS
    later = warning("no more connections: %s", 1)
    assert once.filter(later)
    assert vars(later)["more_like_it"] == 500 - LOG_KIND_LINES
