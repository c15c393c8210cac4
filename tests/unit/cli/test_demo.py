"""The demo's last line says what its exit code says, and why."""

from __future__ import annotations

from typing import Any

from polybus.cli.demo import _last_line


def result(*, clean: bool = True, refused: int = 0, wrong: tuple[str, ...] = ()) -> dict[str, Any]:
    outage = {"sends without a key": 100, "of these accepted": 100 - refused, "keys with a wrong answer": list(wrong)}
    return {"store lost": outage, "verdict": {"clean": clean}, "ok": clean and not refused and not wrong}


def test_what_held_is_said() -> None:
    assert _last_line(result()).startswith("Everything held: no message was lost or doubled")


def test_what_failed_is_said_though_the_verifier_is_content() -> None:
    assert _last_line(result(refused=2)) == "THE DEMO FAILED: 2 sends without a key were refused."
    assert _last_line(result(wrong=("key 3",))) == "THE DEMO FAILED: 1 keys got a wrong answer (key 3)."
    assert _last_line(result(clean=False)) == "THE DEMO FAILED: the verifier has findings."
