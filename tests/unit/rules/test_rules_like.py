"""LIKE: hostile patterns, and that no character is looked at twice."""

from __future__ import annotations

import inspect

import pytest
from rules_kit import Message

from polybus.limits import RULE_TEXT_CHARACTERS
from polybus.rules import RuleEvaluationError, SqlFilter
from polybus.rules.like import LikePattern, Segment


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("%a%a%a%a%a%a%a%a%b", "a" * 5_000, False),
        ("%_a%_a%_a%_a%_a%_b", "a" * 5_000, False),
        ("%" * 1024, "anything", True),
        ("_" * 1024, "x" * 1024, True),
        ("_" * 1024, "x" * 1023, False),
        ("%_" * 512, "x" * 512, True),
        ("%_" * 512, "x" * 511, False),
        ("a%a", "a", False),
        ("a%a", "aa", True),
        ("ab%ba", "aba", False),
        ("%ab%ab%", "abab", True),
        ("%ab%ab%", "abxa", False),
        ("%a_c%", "aacabc", True),
        ("%a_c%", "acac", False),
        ("%a_c%", "acbaxx", False),
        ("a%_b", "ab", False),
        ("_%_", "x", False),
        ("_%_", "xy", True),
        ("%é_", "caféx", True),
        ("%\U0001f600_", "a\U0001f600b", True),
        ("line%end", "line\nend", True),
    ],
)
def test_pattern(pattern: str, text: str, matches: bool) -> None:
    assert LikePattern(pattern).matches(text) is matches


@pytest.mark.parametrize(
    ("pattern", "escape", "text", "matches"),
    [
        ("100%%", "%", "100%", True),
        ("100%%", "%", "1000", False),
        ("a__b", "_", "a_b", True),
        ("%%%", "%", "%%", True),
        ("xx%", "x", "x", True),
        ("x%x_x", "x", "%_x", True),
    ],
)
def test_escape(pattern: str, escape: str, text: str, matches: bool) -> None:
    assert LikePattern(pattern, escape).matches(text) is matches


class CountingMasks(dict[str, int]):
    looks = 0

    def get(self, key: str, default: int = 0) -> int:  # type: ignore[override]
        self.looks += 1
        return super().get(key, default)


@pytest.mark.skipif(not inspect.isfunction(Segment.end_of_first), reason="compiled loops cannot be counted")
@pytest.mark.parametrize("length", [1_000, 2_000, 32_000])
def test_each_character_is_looked_at_once(length: int) -> None:
    segment = Segment([None, *"a" * 100, None, "b"])
    segment.masks = CountingMasks(segment.masks)
    assert segment.end_of_first("a" * length, 0, length) == -1
    assert segment.masks.looks == length


def test_a_pattern_that_is_put_together_is_as_short_as_a_text() -> None:
    together = SqlFilter("a LIKE @p + @p", {"p": "%" * RULE_TEXT_CHARACTERS})
    with pytest.raises(RuleEvaluationError, match="more than 1024 characters"):
        together.matches(Message({"a": "x"}))
