from __future__ import annotations

import json
import logging

from polybus.cli.logs import JsonLines, TextLines


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
