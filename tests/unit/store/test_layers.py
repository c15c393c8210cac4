"""The rows of a journal in memory, against dictionaries."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from polybus.rows import NO_LIMIT
from polybus.store.layers import Change, Layer, Range, changes_in, look_up, overlaid, ranges_of, unsuperseded

keys = st.binary(max_size=2).map(lambda key: bytes(byte % 5 * 60 for byte in key))
ops = st.lists(st.tuples(keys, st.none() | st.binary(max_size=3)), max_size=8)
batches = st.lists(st.tuples(st.lists(st.tuples(keys, keys), max_size=1), ops), max_size=6)
Model = dict[bytes, bytes | None]


def built(parts: list[list[tuple[list[Range], list[Change]]]]) -> tuple[list[Layer], Model]:
    """Layers from the oldest part to the youngest, and what they say of each key that they know by name."""
    layers: list[Layer] = []
    model: Model = {}
    for part in parts:
        layer = Layer()
        layers.insert(0, layer)
        for ranges, changes in part:
            layer.apply(ranges, changes, 0)
            for start, end in ranges:
                for key in [key for key in model if start <= key < end]:
                    model[key] = None
            model.update(changes)
    return layers, model


@settings(max_examples=200, deadline=None)
@given(st.lists(batches, min_size=1, max_size=3), keys, keys, st.integers(1, 6) | st.just(1_000), st.integers(0, 30))
def test_they_say_what_was_written_last(
    parts: list[list[tuple[list[Range], list[Change]]]], start: bytes, end: bytes, limit: int, max_bytes: int
) -> None:
    layers, model = built(parts)
    for key, value in model.items():
        assert look_up(layers, key) == (True, value)
    everything = sorted((key, value) for key, value in model.items() if start <= key < end)
    assert changes_in(layers, start, end, 1_000) == everything
    some = changes_in(layers, start, end, limit, max_bytes)
    assert some == everything[: len(some)]
    live = [(key, value) for key, value in some if value is not None]
    if len(some) < len(everything):
        assert len(live) == limit or sum(len(key) + len(value) for key, value in live) > max_bytes


def test_a_key_that_nobody_wrote_is_not_known_unless_a_range_covers_it() -> None:
    layer = Layer()
    layer.apply([(b"b", b"d"), (b"z", b"a")], [(b"c", b"1")], 2)
    assert look_up([layer], b"a") == (False, None)
    assert look_up([layer], b"b") == (True, None)
    assert look_up([layer], b"c") == (True, b"1")
    assert ranges_of([layer]) == [(b"b", b"d")]


def test_order_is_kept_in_runs_however_many_keys_come() -> None:
    layer = Layer()
    expected: list[bytes] = []
    for step in range(5):
        some = [(number * 7_919 % 100_000 * 10 + step).to_bytes(4, "big") for number in range(9_000)]
        layer.apply([], [(key, b"v") for key in some], 0)
        expected += some
        found = changes_in([layer], b"", b"\xff" * 5, NO_LIMIT)
        assert [key for key, _ in found] == sorted(set(expected))
        assert all(len(run) <= 8_192 for run in layer.runs())
    assert len(changes_in([layer], b"\x00\x00\x01", b"\xff", 10)) == 10


def test_what_a_younger_layer_knows_by_name_is_left_out() -> None:
    younger, empty = Layer(), Layer()
    younger.apply([], [(b"b", None)], 1)
    assert unsuperseded([(b"c", b"1"), (b"b", b"1"), (b"a", None)], [empty, younger]) == [(b"a", None), (b"c", b"1")]


def test_changes_are_made_to_rows() -> None:
    changes: list[Change] = [(b"0", b"no"), (b"a", None), (b"b", b"2"), (b"d", b"4"), (b"e", b"no")]
    rows = [(b"a", b"1"), (b"c", b"3"), (b"d", b"0")]
    assert overlaid(rows, changes, 1, 4) == [(b"b", b"2"), (b"c", b"3"), (b"d", b"4")]


def test_memory_is_counted() -> None:
    layer = Layer()
    layer.apply([(b"a", b"b")], [(b"k", b"v" * 100), (b"l", None)], 102)
    assert layer.weight > 102 + 3 * 100
