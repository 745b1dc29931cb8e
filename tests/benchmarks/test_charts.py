"""The charts of docs/benchmarks.md are those that the tables give, and its sentences have the tables' figures."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.charts import CHARTS, COLOURS, FIGURES, Bar, Chart, drawn, svg
from benchmarks.document import RESULTS, page_of
from benchmarks.machine import Machine
from benchmarks.report import Report, Row, alone

PAGE = Path("docs/benchmarks.md")
MACHINE = Machine("a processor", 2, "Linux 6", "3.11.7", "ext4 on /dev/vda", "2026-11-21")
SVG = "{http://www.w3.org/2000/svg}"
_FIGURE = re.compile(r"(?<![\w.,])\d[\d,.]*(?<![.,])")


def test_each_chart_is_the_one_that_the_tables_give() -> None:
    found = {path.name: path.read_text() for path in FIGURES.iterdir()}
    made = drawn()
    assert found.keys() == made.keys()
    stale = [name for name, text in made.items() if found[name] != text]
    assert stale == [], "a chart is out of date: python -m benchmarks charts"


def test_the_command_draws_them_without_a_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / RESULTS).mkdir(parents=True)
    (tmp_path / FIGURES).mkdir(parents=True)
    for chart in CHARTS:
        (tmp_path / page_of(chart.table)).write_text(page_of(chart.table).read_text())
    made = drawn()
    monkeypatch.chdir(tmp_path)
    assert main(["charts"]) == 0
    assert {path.name: path.read_text() for path in (tmp_path / FIGURES).iterdir()} == made


def test_the_page_shows_each_chart_with_a_link_to_its_table() -> None:
    shown = []
    for section in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        for name in re.findall(r"!\[[A-Z][^\]]+\]\(figures/([\w-]+)\.svg\)", section):
            [chart] = [chart for chart in CHARTS if chart.name == name]
            assert f"[{chart.table}](../{page_of(chart.table)})" in section
            shown.append(name)
    assert shown == [chart.name for chart in CHARTS]


def test_each_figure_in_a_sentence_of_the_page_is_one_of_its_tables() -> None:
    for section in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        names = re.findall(r"\]\(\.\./benchmarks/results/([\w-]+)\.md\)", section)
        figures = _figures("".join(page_of(name).read_text() for name in names)) | {"1"}  # "1 KB" is 1024 B
        told = _figures(re.sub(r"\]\([^)]*\)|`[^`]*`", "", section))
        assert told - figures == set(), section.splitlines()[0]


def _figures(text: str) -> set[str]:
    return {figure.replace(",", "") for figure in _FIGURE.findall(text)}


def test_a_drawing_has_its_words_as_text_and_colours_for_light_and_dark() -> None:
    for name, text in drawn().items():
        drawing = ET.fromstring(text)  # noqa: S314 - a file of ours
        assert drawing.findtext(f"{SVG}title"), name
        words = ["".join(each.itertext()) for each in drawing.iter(f"{SVG}text")]
        assert any(re.fullmatch(r"Benchmark [\w-]+, \d{4}-\d\d-\d\d", each) for each in words), name
        assert any("2 cores, Linux" in each for each in words), name
        assert set(re.findall(r"#\w{6}", text)) <= set(COLOURS.values()), name


@pytest.mark.parametrize("colour", COLOURS.values())
def test_a_colour_has_a_contrast_of_three_to_one_on_white_and_on_near_black(colour: str) -> None:
    for ground in ("#ffffff", "#141418"):
        lighter, darker = sorted((_luminance(colour), _luminance(ground)), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= 3, ground


def _luminance(colour: str) -> float:
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return sum(weight * share for weight, share in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


_CHART = Chart("a", "A & B", "us", "append", (("both", (Bar("x"), Bar("x", "SQLite", "sqlite"))),))


def test_bars_have_one_scale_from_zero_and_a_yardstick_has_its_ratio() -> None:
    row = Row("x", "us", 50, "sqlite", 200, 4, (3, 4.5))
    text = svg(_CHART, Report("append", "", (alone("x", "MB/s", 7), row), MACHINE, 5))
    drawing = ET.fromstring(text)  # noqa: S314 - a file of ours
    assert [each.get("width") for each in drawing.iter(f"{SVG}rect")] == ["75", "300"]
    words = ["".join(each.itertext()) for each in drawing.iter(f"{SVG}text")]
    assert words[:2] == ["A & B", "µs, less is better"]
    assert words[-4:-2] == ["SQLite", "200  4x (3 to 4.5)"]


def test_a_yardstick_that_was_not_measured_says_why() -> None:
    report = Report("append", "", (Row("x", "us", 50, "sqlite", missing="not installed"),), MACHINE, 5)
    text = svg(_CHART, report)
    assert ">not installed</text>" in text
    assert text.count("<rect") == 1


def test_a_chart_whose_figure_is_gone_is_refused() -> None:
    report = Report("append", "", (alone("x", "MB/s", 7),), MACHINE, 5)
    with pytest.raises(ValueError, match=r"append has no figure of seglog in us for 'x'"):
        svg(_CHART, report)
    with pytest.raises(ValueError, match="no figure of sqlite"):
        svg(_CHART, replace(report, rows=(alone("x", "us", 7),)))
