"""Plots and pages: what is drawn lies inside of its picture, says its numbers, and needs nothing from elsewhere."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybus.pipelines import charts
from polybus.pipelines.charts import HEIGHT, WIDTH, Series, number_text, scale_to
from polybus.pipelines.reports import ReportTable, Section, page, remove_older, time_text, write_page

AMOUNTS = st.floats(0, 1e12, allow_nan=False)


def drawn(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg.partition("<p ")[0])


def inside(picture: ElementTree.Element) -> bool:
    """Whether every mark lies in the picture."""
    _, _, width, height = (float(number) for number in picture.attrib["viewBox"].split())
    for mark in picture.iter():
        at = mark.attrib
        xs = [float(at[name]) for name in ("x", "x1", "x2", "cx") if name in at]
        ys = [float(at[name]) for name in ("y", "y1", "y2", "cy") if name in at]
        if mark.tag == "rect":
            xs.append(float(at["x"]) + float(at["width"]))
            ys.append(float(at["y"]) + float(at["height"]))
        for pair in at.get("points", "").split():
            xs.append(float(pair.split(",")[0]))
            ys.append(float(pair.split(",")[1]))
        if mark.tag == "text":
            half = len(mark.text or "") * 6.5 / 2
            middle = float(at["x"]) + {"start": half, "middle": 0.0, "end": -half}[at["text-anchor"]]
            xs += [middle - half, middle + half]
        if any(not -0.1 <= x <= width + 0.1 for x in xs) or any(not -0.1 <= y <= height + 0.1 for y in ys):
            return False
    return True


# Scales and numbers


@given(st.floats(1e-9, 1e15))
def test_a_scale_holds_the_largest_value_in_a_few_even_steps(largest: float) -> None:
    scale = scale_to(largest)
    assert scale.top >= largest * (1 - 1e-9)
    assert scale.top - scale.step < largest * (1 + 1e-9)
    assert 2 <= len(scale.ticks) <= 7
    digits = f"{scale.step:e}".split("e")[0].rstrip("0").rstrip(".")
    assert digits in ("1", "2", "5")


@pytest.mark.parametrize("nothing", [0.0, -1.0, float("nan"), float("inf")])
def test_where_there_is_nothing_to_draw_there_is_a_scale_all_the_same(nothing: float) -> None:
    assert scale_to(nothing).ticks == [0.0, 1.0]


@given(st.integers(1, 10**12))
def test_what_is_counted_has_no_halves_at_its_axis(largest: int) -> None:
    scale = scale_to(largest, whole=True)
    assert scale.step >= 1
    assert scale.top >= largest
    assert all(tick == int(tick) for tick in scale.ticks)
    labels = {text.text for text in drawn(charts.bars("p", ["a"], [1])).iter("text")}
    assert labels == {"p", "a", "0", "1"}


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1234567, "1,234,567"), (0.25, "0.25"), (1234.56, "1,234.6"), (None, "-"), (float("nan"), "-")],
)
def test_numbers_are_written_as_people_read_them(value: float | None, text: str) -> None:
    assert number_text(value) == text


@pytest.mark.parametrize(
    ("value", "largest", "text"),
    [
        (0, 0, "0"),
        (0.5, 1, "0.5"),
        (9000, 9000, "9000"),
        (5000, 20_000, "5k"),
        (20_000, 20_000, "20k"),
        (0, 20_000, "0"),
        (5e5, 2.5e6, "0.5M"),
        (3e9, 3e9, "3G"),
        (1e12, 1e12, "1T"),
    ],
)
def test_numbers_at_an_axis_are_short_and_all_in_one_unit(value: float, largest: float, text: str) -> None:
    assert charts.short_text(value, largest) == text


# Plots


@given(st.lists(AMOUNTS, max_size=70), st.none() | AMOUNTS)
def test_bars_are_as_high_as_their_values_and_lie_inside(values: list[float], mark: float | None) -> None:
    picture = drawn(charts.bars("a plot", [str(number) for number in range(len(values))], values, mark=mark))
    assert inside(picture)
    found = [float(bar.attrib["height"]) for bar in picture.iter("rect")]
    assert len(found) == len(values)
    largest = max(values, default=0)
    for value, height in zip(values, found, strict=True):
        whole = found[values.index(largest)]
        assert height == pytest.approx(whole * value / largest if largest else 0, abs=0.11)


def test_a_bar_says_its_number_and_its_name_is_harmless() -> None:
    svg = charts.bars("a <plot>", ["<b>&"], [1234])
    assert "<title>&lt;b&gt;&amp;: 1,234</title>" in svg
    assert drawn(svg).attrib["aria-label"] == "a <plot>"


@given(st.lists(AMOUNTS, max_size=40))
def test_rows_are_as_long_as_their_values(values: list[float]) -> None:
    picture = drawn(charts.rows("keys", ["k" * 80] * len(values), values))
    assert inside(picture)
    widths = [float(bar.attrib["width"]) for bar in picture.iter("rect")]
    assert sorted(range(len(values)), key=lambda place: values[place]) == sorted(
        range(len(values)), key=lambda place: (widths[place], values[place])
    )
    shown = [text.text or "" for text in picture.iter("text")]
    assert all(len(text) < 30 for text in shown)


@given(st.lists(st.lists(st.none() | AMOUNTS, min_size=9, max_size=9), min_size=1, max_size=4))
def test_a_line_goes_through_its_points_and_is_interrupted_where_one_is_missing(
    many: list[list[float | None]],
) -> None:
    names = [f"12:0{number}" for number in range(9)]
    series = [Series(f"s{number}", values) for number, values in enumerate(many)]
    picture = drawn(charts.lines("lines", names, series))
    assert inside(picture)
    known = [value for values in many for value in values if value is not None]
    assert len(list(picture.iter("circle"))) == len(known)
    points = sum(len(line.attrib["points"].split()) for line in picture.iter("polyline"))
    assert points == len(known)
    runs = sum(
        1
        for values in many
        for place, value in enumerate(values)
        if value is not None and (place == 0 or values[place - 1] is None)
    )
    assert len(list(picture.iter("polyline"))) == runs


def test_a_single_point_stands_in_the_middle_and_many_labels_are_thinned() -> None:
    picture = drawn(charts.lines("one", ["now"], [Series("s", [5.0])]))
    (dot,) = picture.iter("circle")
    assert WIDTH * 0.4 < float(dot.attrib["cx"]) < WIDTH * 0.7
    picture = drawn(charts.bars("many", [f"n{number}" for number in range(64)], [1.0] * 64))
    labels = [text for text in picture.iter("text") if (text.text or "").startswith("n")]
    assert [text.text for text in labels] == [f"n{number}" for number in range(0, 64, 4)]


@given(st.integers(1, 300), st.integers(1, 20))
def test_labels_never_run_into_each_other(count: int, length: int) -> None:
    names = [("t" * length)] * count
    for svg in (charts.bars("b", names, [1.0] * count), charts.lines("l", names, [Series("s", [1.0] * count)])):
        picture = drawn(svg)
        assert inside(picture)
        middles = sorted(float(text.attrib["x"]) for text in picture.iter("text") if text.text == names[0])
        assert middles
        assert all(right - left >= length * 6.5 for left, right in pairwise(middles))


def test_several_lines_have_a_legend_and_more_than_four_are_refused() -> None:
    two = [Series("first", [1.0]), Series("<second>", [2.0])]
    assert "&lt;second&gt;" in charts.lines("two", ["a"], two).partition('class="legend"')[2]
    assert "legend" not in charts.lines("one", ["a"], two[:1])
    with pytest.raises(AssertionError):
        charts.lines("five", ["a"], [Series(str(number), [1.0]) for number in range(5)])


def test_a_plot_says_what_it_shows_and_where_it_shows_nothing_it_says_that() -> None:
    def texts(svg: str) -> list[str | None]:
        return [text.text for text in drawn(svg).iter("text")]

    for empty in (charts.bars("Keys", [], []), charts.rows("Keys", [], []), charts.lines("Keys", [], [])):
        assert texts(empty)[0] == "Keys"
        assert "nothing to show yet" in texts(empty)
    assert "nothing to show yet" in texts(charts.lines("l", ["a"], [Series("s", [None])]))
    assert "0 everywhere" in texts(charts.bars("Lag", ["0", "1"], [0, 0]))
    full = texts(charts.bars("Lag", ["0", "1"], [0, 1])) + texts(charts.rows("Keys", ["k"], [1]))
    assert {"0 everywhere", "nothing to show yet"}.isdisjoint(full)


def test_a_long_name_is_cut_at_its_end() -> None:
    picture = drawn(charts.rows("Keys", ["short", "W" * 80], [2, 1]))
    _, place = picture.iter("svg")
    (text,) = place
    assert (text.attrib["text-anchor"], place.attrib["overflow"]) == ("start", "hidden")
    bars = [float(bar.attrib["x"]) for bar in picture.iter("rect")]
    assert float(place.attrib["width"]) < min(bars)


def test_a_point_without_neighbours_is_large_enough_to_be_seen() -> None:
    radii = [
        float(dot.attrib["r"])
        for dot in drawn(charts.lines("l", list("abcd"), [Series("s", [1, 2, None, 4])])).iter("circle")
    ]
    assert radii[0] == radii[1] < radii[2]


def test_a_plot_keeps_its_shape() -> None:
    assert drawn(charts.bars("a", ["1"], [1])).attrib["viewBox"] == f"0 0 {WIDTH} {HEIGHT}"


# Pages


def test_a_page_fetches_nothing_and_escapes_everything() -> None:
    table = ReportTable(["key", "n"], [["<script>alert(1)</script>", 5], ["b", None]])
    content = page("T <1>", "sub & title", [Section("H <2>", "text <3>", charts.bars("p", ["a"], [1]), table)])
    assert "<script" not in content
    assert not re.search(r"https?:|src=|@import|url\(", content)
    for text in ("T &lt;1&gt;", "sub &amp; title", "H &lt;2&gt;", "text &lt;3&gt;", "&lt;script&gt;"):
        assert text in content
    assert "prefers-color-scheme: dark" in content
    assert content.startswith("<!doctype html>")


def test_a_section_shows_itself_in_a_notebook_and_styles_nothing_else_there() -> None:
    html = Section("Heading", "text", charts.bars("p", ["a"], [1]))._repr_html_()
    assert "Heading" in html
    assert "<svg" in html
    style = html.partition("<style>")[2].partition("</style>")[0]
    rules = re.sub(r"@media[^{]*{((?:[^{}]*{[^{}]*})*)[^{}]*}", r"\1", style)
    selectors = [each.strip() for rule in re.findall(r"([^{}]+){", rules) for each in rule.split(",")]
    assert len(selectors) > 20
    assert [each for each in selectors if not each.startswith(".polybus")] == []


def test_every_class_of_a_mark_has_its_colour_in_light_and_in_dark() -> None:
    style = page("t", "s", [])
    light, dark = style.split("@media (prefers-color-scheme: dark)")[:2]
    dark = dark.split("}")[0]
    for name in ("--ground", "--ink", "--soft", "--rule", "--c1", "--c2", "--c3", "--c4", "--mark"):
        colours = [re.search(rf"{name}: (#[0-9a-f]{{6}})", part) for part in (light, dark)]
        assert len({found[1] for found in colours if found is not None}) == 2


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("name", ["--ink", "--soft", "--c1", "--c2", "--c3", "--c4", "--mark"])
def test_colours_stand_out_from_the_ground_in_light_and_in_dark(name: str) -> None:
    style = page("t", "s", [])
    for part in style.split("@media (prefers-color-scheme: dark)")[:2]:
        ground, colour = (re.search(rf"{each}: (#[0-9a-f]{{6}})", part) for each in ("--ground", name))
        assert ground is not None
        assert colour is not None
        lighter, darker = sorted((_luminance(ground[1]), _luminance(colour[1])), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def test_columns_of_numbers_are_set_to_the_right() -> None:
    html = ReportTable(["key", "n"], [["1", 5], ["2", None]]).html()
    assert "<td>1</td><td class=number>5</td>" in html
    assert "<td class=number>-</td>" in html


def test_a_table_without_rows_says_so_and_long_texts_may_be_broken() -> None:
    assert '<td class="soft" colspan="2">none</td>' in ReportTable(["key", "n"], []).html()
    html = ReportTable(["key", "n"], [["k" * 128, 5]]).html()
    assert f"<td class=long>{'k' * 128}</td>" in html


def test_a_page_is_put_in_its_place_at_once(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "page.html"
    write_page(place, "one")
    write_page(place, "two")
    assert place.read_text() == "two"
    assert [path.name for path in place.parent.iterdir()] == ["page.html"]


def test_folders_that_are_too_old_are_removed(tmp_path: Path) -> None:
    import os

    for name, seconds in (("batch=1", 1_000), ("batch=2", 3_000), ("kept", 1_000)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (seconds, seconds))
    remove_older(tmp_path, datetime.fromtimestamp(2_000, UTC))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["batch=2", "kept"]


def test_times_are_written_in_utc() -> None:
    assert time_text(datetime(2026, 1, 31, 12, tzinfo=UTC)) == "2026-01-31 12:00:00 UTC"
