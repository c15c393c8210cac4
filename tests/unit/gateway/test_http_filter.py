"""The `$filter` of a list: what it keeps, and what it refuses to read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus import limits
from polybus.errors import ArgumentError
from polybus.gateway.atom.documents import RuntimeInfo
from polybus.gateway.atom.filter import parse_filter
from polybus.namespace.entities.description import EntityStatus, QueueDescription, SubscriptionDescription

SECOND_MS = 1_000
NOON_2026_MS = 1_767_268_800_000
"""2026-01-01T12:00:00Z."""
ORDERS = QueueDescription(path="Orders/In", created_at_ms=NOON_2026_MS, updated_at_ms=NOON_2026_MS + SECOND_MS)
INFO = RuntimeInfo(size_bytes=500, active_count=7, dead_letter_count=3, accessed_at_ms=NOON_2026_MS)

KEEPS = {
    "startswith(path, 'orders') eq true": True,
    "startswith(path, 'orders')": True,
    "STARTSWITH(Path,'ORDERS/') EQ TRUE": True,
    "startswith(path, 'x') eq true": False,
    "startswith(path, 'x') eq false": True,
    "startswith(path, 'orders') ne true": False,
    "path eq 'orders/in'": True,
    "name ne 'orders/in'": False,
    "path eq 'it''s'": False,
    "messageCount gt 9": True,
    "messageCount Gt 10": False,
    "messageCount ge 10": True,
    "messageCount eq 10": True,
    "messageCount le 9": False,
    "messageCount lt 11": True,
    "sizeInBytes gt 499": True,
    "status eq 'active'": True,
    "createdAt eq '2026-01-01T12:00:00Z'": True,
    "createdAt lt datetime'2026-01-01T12:00:01'": True,
    "updatedAt gt '2026-01-01T12:00:00+00:00'": True,
    "modifiedAt gt '2026-01-01T12:00:01Z'": False,
    "accessedAt lt '2025-12-31'": False,
    "startswith(path, 'o') eq true and messageCount gt 100": False,
    "startswith(path, 'x') eq true or messageCount gt 1": True,
    "path eq 'x' and path eq 'y' or messageCount eq 10": True,
    "path eq 'x' and (path eq 'y' or messageCount eq 10)": False,
    "not path eq 'x'": True,
    "not (path eq 'x' or messageCount gt 1)": False,
}


@pytest.mark.parametrize("text", KEEPS)
def test_what_is_kept(text: str) -> None:
    keeps = parse_filter(text)
    assert keeps is not None
    assert keeps(ORDERS, INFO) is KEEPS[text]


def test_a_subscription_goes_by_its_name() -> None:
    keeps = parse_filter("startswith(name, 'aud') and status eq 'Disabled'")
    assert keeps is not None
    audit = SubscriptionDescription(topic="t", name="Audit", status=EntityStatus.DISABLED)
    assert keeps(audit, RuntimeInfo())
    assert not keeps(SubscriptionDescription(topic="audit", name="other"), RuntimeInfo())


@pytest.mark.parametrize("text", [None, "", "  "])
def test_without_one_everything_is_shown(text: str | None) -> None:
    assert parse_filter(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "path",
        "path eq",
        "path eq 5",
        "path like 'x'",
        "path eq 'x",
        "messageCount gt 'x'",
        "messageCount gt many",
        "messageCount gt 1.5",
        "colour eq 'red'",
        "createdAt gt 'yesterday'",
        "createdAt gt 5",
        "startswith(path 'x')",
        "startswith(messageCount, 'x')",
        "startswith(path, 'x') eq 1",
        "(path eq 'x'",
        "path eq 'x')",
        "path eq 'x' path eq 'y'",
        "path eq 'x' and",
        "not",
        "path eq 'x'; drop",
        "(" * (limits.HTTP_FILTER_DEPTH + 1) + "path eq 'x'" + ")" * (limits.HTTP_FILTER_DEPTH + 1),
        "not " * 300 + "path eq 'x'",
        "path eq '" + "x" * limits.HTTP_FILTER_CHARACTERS + "'",
    ],
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match=r"\$filter"):
        parse_filter(text)


@given(st.text(alphabet="()',aepqthnodrtsx 0-9\n", max_size=60) | st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        keeps = parse_filter(text)
    except ArgumentError:
        return
    if keeps is not None:
        assert keeps(ORDERS, INFO) in (True, False)
