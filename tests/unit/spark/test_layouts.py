"""Messages known by their layout: found in them is what a walk over each of them finds."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus.limits import SPARK_LAYOUT_BYTES, SPARK_LAYOUTS
from polybus.message.message import build
from polybus.spark.layouts import Layouts, layouts_of
from polybus.spark.sections import Sections
from polybus.spark.walking import SectionWalk
from tests.unit.spark.test_records import EVERY, ODD, built


def _laid_out(raws: list[bytes]) -> tuple[Any, Any, Any]:
    """Messages one behind the other, with something between them that is none of theirs."""
    data = np.frombuffer(b"".join(b"\xaa" * 7 + raw for raw in raws), np.uint8)
    end = np.cumsum([7 + len(raw) for raw in raws])
    return data, end - [len(raw) for raw in raws], end


def _shown(found: Sections) -> list[object]:
    """What was found in each message; nothing where it was given up on."""
    total = len(found.plain)
    plain = np.nonzero(found.plain)[0]
    counts, keys, values = found.pairs.of(plain, total)
    texts = {name: each.of(plain) for name, each in (*found.texts.items(), ("body", found.body))}
    shown: list[object] = [found.plain.tolist(), counts.tolist(), keys.at.tolist(), keys.length.tolist()]
    shown += [bytes(found.data[at : at + size]) for at, size in zip(values.at, values.length, strict=True)]
    for name, each in sorted(texts.items()):
        if each.present.any():
            shown.append((name, each.length.tolist(), each.at[each.present].tolist()))
    return shown


def _walked(raws: list[bytes], columns: tuple[str, ...]) -> list[object]:
    data, at, end = _laid_out(raws)
    return _shown(Sections(SectionWalk(data, at.copy(), end), columns))


def _known(layouts: Layouts, raws: list[bytes]) -> list[object]:
    return _shown(layouts.sections(*_laid_out(raws)))


def _changed(raw: bytes, place: int, value: int) -> bytes:
    return raw[: place % len(raw)] + bytes((value,)) + raw[place % len(raw) + 1 :] if raw else raw


kinds = st.lists(built | st.sampled_from(ODD), min_size=1, max_size=4)
changes = st.tuples(st.integers(0, 3), st.integers(0, 200), st.integers(0, 255))
chosen = st.just(EVERY) | st.lists(st.sampled_from(EVERY), min_size=1, unique=True).map(tuple)


@given(kinds, st.lists(changes, min_size=1, max_size=30), chosen)
def test_what_is_known_of_a_kind_is_what_a_walk_finds_in_each(
    raws: list[bytes], changed: list[tuple[int, int, int]], columns: tuple[str, ...]
) -> None:
    like_them = [_changed(raws[which % len(raws)], place, value) for which, place, value in changed]
    layouts = Layouts(columns, worth_rows=1)
    for batch in (raws, raws + like_them, like_them + raws, like_them[::-1]):
        assert _known(layouts, batch) == _walked(batch, columns)


def test_messages_that_are_alike_are_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    layouts = Layouts(EVERY)
    alike = [build(b"%04d" % number, message_id="id", application={"a": "b"}).raw for number in range(200)]
    _known(layouts, alike)
    expected = _walked(alike, EVERY)
    monkeypatch.setattr(SectionWalk, "section", None)
    assert _known(layouts, alike) == expected


def test_numbers_for_properties_are_right_for_each_message() -> None:
    layouts = Layouts(EVERY, worth_rows=1)
    for first in (0, 10):
        raws = [build(b"x", application={"n": 1000 + first + number}).raw for number in range(9)]
        assert _known(layouts, raws) == _walked(raws, EVERY)
        assert not layouts.kinds


def test_only_so_many_kinds_are_remembered_and_the_frequent_ones_stay() -> None:
    layouts = Layouts(EVERY, worth_rows=1)
    often = build(b"often").raw
    for number in range(SPARK_LAYOUTS + 5):
        raws = [often, often, build(b"x" * (20 + number)).raw]
        assert _known(layouts, raws) == _walked(raws, EVERY)
    assert layouts.kinds == SPARK_LAYOUTS
    assert len(often) in [each.length for each in layouts]


def test_kinds_that_are_as_frequent_do_not_push_each_other_out() -> None:
    layouts = Layouts(EVERY, worth_rows=1)
    kinds = [[build(b"x" * (20 + number)).raw] * 2 for number in range(SPARK_LAYOUTS + 1)]
    for _ in range(SPARK_LAYOUTS):
        _known(layouts, [raw for kind in kinds[:-1] for raw in kind])
    learned = {each.length for each in layouts}
    assert learned == {len(kind[0]) for kind in kinds[:-1]}
    _known(layouts, [raw for kind in kinds for raw in kind])
    assert {each.length for each in layouts} == learned
    _known(layouts, [raw for kind in kinds for raw in kind] + kinds[-1] * 2)
    assert len(kinds[-1][0]) in {each.length for each in layouts}


def test_a_kind_with_a_long_front_is_walked_each_time() -> None:
    layouts = Layouts(EVERY, worth_rows=1)
    raws = [build(b"x", application={f"n{number}": "y" * 250 for number in range(SPARK_LAYOUT_BYTES // 250 + 1)}).raw]
    for _ in range(2):
        assert _known(layouts, raws) == _walked(raws, EVERY)
        assert not layouts.kinds


def test_what_is_remembered_holds_nothing_of_the_memory_it_was_learned_from() -> None:
    layouts = Layouts(EVERY, worth_rows=1)
    data, at, end = _laid_out([build(b"x", message_id="id", application={"a": "b"}).raw] * 3)
    data = data.copy()
    memory = weakref.ref(data)
    layouts.sections(data, at, end)
    assert layouts.kinds == 1
    del data
    gc.collect()
    assert memory() is None


def test_a_process_remembers_kinds_for_each_choice_of_columns() -> None:
    assert layouts_of(("body",)) is layouts_of(("body",))
    assert layouts_of(("body",)) is not layouts_of(("position",))
