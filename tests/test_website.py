"""The documentation site: each page has its place, each link leads somewhere, and a browser asks no other host."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import catalog.errors
import offload.errors
import seglog
import seglog.errors
from offload.daemon.http.openapi import openapi
from offload.operations.command import COMMANDS
from scripts import docs, website
from scripts.website_reference import http_pages, python_pages, reference
from tests.error_trees import defined

ROOT = Path(__file__).resolve().parent.parent
_ZENSICAL = ROOT / ".venv" / "site" / "bin" / "zensical"
_CHROMIUM = shutil.which("chromium") or ""
#: A page of each kind: prose, tables, a long list, shell, drawings, operations, docstrings.
_LOOKED_AT = (
    "index.html",
    "docs/errors.html",
    "docs/stories/deploy-it.html",
    "docs/reference/http/topics.html",
    "docs/reference/python/offload.html",
)
#: What people search, and the pages of which one has to be among the first three.
_FOUND = {
    "GDPR": {"docs/concepts/words.html", "docs/gc.html", "docs/operate/deleting-a-person.html"},
    "failover": {"docs/concepts/words.html", "docs/replicas.html", "docs/operate/high-availability.html"},
    "rotate": {"docs/concepts/words.html", "docs/daemon.html", "docs/operate/rotating-keys.html"},
    "retention": {"docs/concepts/words.html", "docs/concepts/retention.html"},
    "offset": {"docs/concepts/words.html", "docs/concepts/topic-and-seq.html"},
    "consumer group": {"docs/concepts/words.html", "docs/client.html"},
}
_needs_zensical = pytest.mark.skipif(
    not _ZENSICAL.exists(), reason="the packages of the site are not installed: `make site` does it"
)


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return {page: (ROOT / page).read_text() for page in website.pages()} | reference()


# ---------------------------------------------------------------- the menu


def test_each_page_stands_in_one_part_of_the_menu(texts: dict[str, str]) -> None:
    parts = website.menu(texts, texts)
    assert [*parts] == ["Start", "Concepts", "Guides", "Reference", "Operate", "Internals"]
    assert website.misplaced(texts, parts) == []
    assert len(texts) > 100


def test_a_page_without_a_part_or_with_two_is_told(texts: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    more = {**texts, "docs/new.md": "# New\n\nA page."}
    [line] = website.misplaced(more, website.menu(more, more))
    assert line == "docs/new.md: no part of the menu has it: name it in MENU of scripts/website.py"
    start = ("README.md", "docs/start/*.md", "CHANGELOG.md", "docs/cli.md", "docs/gone.md")
    monkeypatch.setitem(website.MENU, "Start", start)
    monkeypatch.setitem(website.MENU, "Concepts", ())
    few = {page: text for page, text in texts.items() if not page.startswith("docs/concepts/") or "words" in page}
    lines = website.misplaced(few, website.menu(few, few))
    assert lines == [
        "docs/cli.md: 2 places of the menu have it",
        "docs/concepts/words.md: no part of the menu has it: name it in MENU of scripts/website.py",
        "docs/gone.md: the menu names it, and there is no such page",
        "Concepts: the part of the menu has no page",
    ]


def test_a_folder_has_the_order_of_its_readme() -> None:
    pages = {
        "docs/concepts/README.md": "See [b](b.md), [a](a.md#x).",
        **{f"docs/concepts/{each}.md": "" for each in "abc"},
    }
    names = website.menu(pages, pages)["Concepts"]
    assert names == [f"docs/concepts/{each}.md" for each in ("README", "b", "a", "c")]


# ---------------------------------------------------------------- pages


def test_search_words_are_hidden_and_single_decisions_stay_out_of_the_search() -> None:
    text = "# Gone\n\n<!-- search: GDPR, erase -->\n\nWhat gone means.\n"
    assert website.staged("docs/gc.md", text) == "# Gone\n\n<p hidden>GDPR, erase</p>\n\nWhat gone means.\n"
    for page in ("docs/decisions/0001-a.md", "benchmarks/results/append.md"):
        assert website.staged(page, "# A\n").startswith("---\nsearch:\n  exclude: true\n---\n")
    assert website.staged("docs/decisions/README.md", "# A\n") == "# A\n"


_AFTER_CODE = "# A\n\n<!-- search: b -->\n\n```\ncode\n```\n\n**Bold** and [a link](x.md), with\na second line.\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("# A\n\nOne. Two.\n", "One."),
        (_AFTER_CODE, "Bold and a link, with a second line."),
        ("# A\n\n- Status: accepted\n\n**Context.** `x` is 3.5 ms slow. So\n", "`x` is 3.5 ms slow."),
        ("# A\n\n| a |\n| --- |\n\nAs follows:\n", "As follows"),
    ],
)
def test_the_first_sentence_of_a_page_is_its_line_in_llms_txt(text: str, sentence: str) -> None:
    assert website.summary(text) == sentence


def test_a_page_without_a_heading_or_a_sentence_is_refused() -> None:
    with pytest.raises(ValueError, match="heading"):
        website.title("text\n")
    with pytest.raises(ValueError, match="sentence"):
        website.summary("# A\n\n| a |\n| --- |\n")


def test_headings_skip_no_level_and_each_column_of_a_table_has_a_title(texts: dict[str, str]) -> None:
    """Who listens to a page goes by them."""
    for page, text in texts.items():
        prose = re.sub(r"^(`{3,}|~{3,}).*?^\1", "", text, flags=re.MULTILINE | re.DOTALL)
        levels = [len(each) for each in re.findall(r"^(#+) ", prose, flags=re.MULTILINE)]
        assert all(level <= before + 1 for before, level in pairwise(levels)), page
        for titles in re.findall(r"^\|(.*)\|\n\|(?: ?:?-+:? ?\|)+$", prose, flags=re.MULTILINE):
            assert all(title.strip() for title in titles.split("|")), (page, titles)


def test_llms_txt_names_each_page_with_a_line(texts: dict[str, str]) -> None:
    lines = website.index(website.menu(texts, texts), texts).splitlines()
    rows = [line for line in lines if line.startswith("- [")]
    assert len(rows) == len(texts)
    assert "- [Guarantees](docs/guarantees.html): " in "".join(rows)
    assert [row for row in rows if len(row.partition("): ")[2]) < 10] == []


# ---------------------------------------------------------------- faults of a site


def _site(place: Path, **pages: str) -> Path:
    (place / "a").mkdir()
    (place / "a" / "index.html").write_text('<h1 id="top">A</h1>')
    (place / "one.css").write_text("a { color: red }")
    for name, text in pages.items():
        (place / f"{name}.html").write_text(text)
    return place


def test_links_within_a_site_and_to_other_places_are_right(tmp_path: Path) -> None:
    text = """<a href="#here" id="here">x</a> <a href="a/index.html#top">x</a> <a href="a/">x</a> <a href="https://x.example/y">x</a>
    <a href="mailto:a@x.example">x</a> <link rel="stylesheet" href="one.css"> <img src="data:image/png;base64,AA">"""
    assert website.faults(_site(tmp_path, page=text)) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('<a href="b.html">x</a>', "page.html: b.html leads nowhere"),
        ('<a href="#no">x</a>', "page.html: #no names no heading of the page"),
        ('<a href="a/index.html#no">x</a>', "page.html: a/index.html#no names no heading of the page"),
        ('<a href="a/#no">x</a>', "page.html: a/#no names no heading of the page"),
        ('<img src="no.svg">', "page.html: no.svg leads nowhere"),
        ('<script src="https://x.example/a.js"></script>', "page.html: loads https://x.example/a.js from another host"),
        ('<script src="//x.example/a.js"></script>', "page.html: loads //x.example/a.js from another host"),
        ('<link rel="preconnect" href="https://x.example">', "page.html: loads https://x.example from another host"),
        ('<iframe src="http://x.example/"></iframe>', "page.html: loads http://x.example/ from another host"),
    ],
)  # fmt: skip
def test_a_link_to_nowhere_and_a_file_of_another_host_are_told(tmp_path: Path, text: str, fault: str) -> None:
    assert website.faults(_site(tmp_path, page=text)) == [fault]


@pytest.mark.parametrize("rule", ["url(https://x.example/f)", "url('//x.example/f')", '@import "http://x.example/f"'])
def test_a_style_that_loads_a_font_of_another_host_is_told(tmp_path: Path, rule: str) -> None:
    site = _site(tmp_path)
    (site / "one.css").write_text(f"@font-face {{ src: {rule} }}")
    [fault] = website.faults(site)
    assert fault.startswith("one.css: loads ")


# ---------------------------------------------------------------- the reference


def test_the_reference_has_each_operation_of_the_document() -> None:
    document = openapi(COMMANDS)
    text = "".join(http_pages(document).values())
    for path, methods in document["paths"].items():
        for method in methods:
            assert f"## {method.upper()} {path}\n" in text or f"Also as `{method.upper()} {path}`" in text, path
    assert "| `exclude_node` | query | string | no | No records of this node." in text
    assert "`application/x-ndjson` (`branch_made`)" in text


def test_the_reference_has_each_public_name_of_the_log() -> None:
    text = python_pages()["docs/reference/python/seglog.md"]
    missing = [name for name in seglog.__all__ if f"::: seglog.{name}\n" not in text]
    assert [name for name in missing if name != "errors" and not issubclass(getattr(seglog, name), Exception)] == []
    assert text.index("::: seglog.open\n") < text.index("::: seglog.Log\n") < text.index("::: seglog.Record\n")


def test_the_page_of_errors_has_each_class_with_what_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])  # `scripts.docs` puts the checkout there
    groups = ("Misuse", "Missing", "Conflict", "Corrupt", "Unavailable")
    rows = {row[0].strip("`"): row[2] for group in groups for row in docs.error_rows(group)}
    apart = {"SeglogError", "CatalogError", "OffloadError", "ChecksFailed", "DaemonError", "NotConfirmed", *groups}
    known = {name for module in (seglog.errors, catalog.errors, offload.errors) for name in defined(module)}
    assert rows.keys() == known - apart
    assert [name for name, what in rows.items() if len(what) < 5] == []
    # A hint that an error makes from its fields is shown with their names.
    assert docs.made_hint(catalog.errors.Diverged).endswith(
        "`seglog reset {topic} --as NAME` makes a branch of the records that the other writer lacks"
    )
    assert docs.made_hint(seglog.errors.BatchReused).endswith("begin epoch {epoch + 1} or a higher one with batch 0")
    assert docs.made_hint(seglog.errors.SeqOutOfRange) == ""


# ---------------------------------------------------------------- the site as a whole


def test_without_the_packages_the_build_says_who_installs_them(tmp_path: Path) -> None:
    assert website.build(tmp_path / "zensical", tmp_path / "site") == [
        f"{tmp_path / 'zensical'} is not there: `make site` installs it"
    ]
    assert not (tmp_path / "site").exists()


def test_a_builder_that_fails_is_quoted(tmp_path: Path) -> None:
    program = tmp_path / "zensical"
    program.write_text("#!/bin/sh\necho no room >&2\nexit 1\n")
    program.chmod(0o755)
    assert website.build(program, tmp_path / "site") == ["no room"]
    assert not (tmp_path / "site" / "html" / "llms.txt").exists()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    assert website.build(_ZENSICAL, place) == []
    return place / "html"


@pytest.mark.long
@_needs_zensical
def test_the_site_has_each_page_and_a_search_without_decisions(site: Path, texts: dict[str, str]) -> None:
    for line in (site / "llms.txt").read_text().splitlines():
        if line.startswith("- ["):
            assert (site / line.partition("](")[2].partition(")")[0]).exists(), line
    places = {each["location"].partition("#")[0] for each in json.loads((site / "search.json").read_text())["items"]}
    assert {"index.html", "docs/errors.html", "docs/reference/python/seglog.html"} <= places
    assert [place for place in places if place.startswith("docs/decisions/0")] == []


@pytest.mark.long
@_needs_zensical
def test_the_build_fails_for_a_broken_link_and_for_a_broken_anchor(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for folder in ("docs", "benchmarks/results"):
        shutil.copytree(ROOT / folder, root / folder)
    for name in ("localstack/README.md", *(path.name for path in ROOT.glob("*.md"))):
        (root / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    page = root / "docs" / "gc.md"
    page.write_text(page.read_text() + "\n[no page](no-page.md) and [no heading](cli.md#no-heading)\n")
    told = "\n".join(website.build(_ZENSICAL, tmp_path / "site", root))
    assert "docs/gc.md" in told
    assert "no-page.md" in told
    assert "no-heading" in told


@pytest.mark.long
@_needs_zensical
@pytest.mark.skipif(not _CHROMIUM, reason="there is no chromium on PATH (Debian: apt install chromium)")
def test_a_browser_shows_pages_without_a_fault_and_finds_the_words_of_people(site: Path) -> None:
    program = [_ZENSICAL.with_name("python"), ROOT / "tests" / "worlds" / "browser.py", site, _CHROMIUM, *_LOOKED_AT]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=800)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["faults"] == []
    assert {word: pages for word, pages in told["found"].items() if not _FOUND[word] & {*pages}} == {}
