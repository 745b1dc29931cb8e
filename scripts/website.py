"""Build the documentation site from the pages of this checkout: `make site`.

    python scripts/website.py ZENSICAL [DIR]    DIR is build/site at first; the site is DIR/html

No page moves for it. The pages are copied with their paths, so that a link leads to the same place on the site and in
the repository. The reference of HTTP and of Python is made beside them (scripts/website_reference.py). `MENU` says in
which part a page stands. A comment `<!-- search: GDPR, erase -->` in a page gives the search words that the page lacks.

The build fails, with a line for each fault, for a page that stands in no part or in two, for a link or an anchor that
leads nowhere, and for a script, style, font or image of another host.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["MENU", "ROOT", "build", "configuration", "faults", "index", "main", "menu", "misplaced", "pages", "staged"]

ROOT = Path(__file__).resolve().parent.parent

#: The parts of the menu. A name with `*` stands for what is in the folder. A pair is a heading with its pages.
MENU: dict[str, tuple[str | tuple[str, str], ...]] = {
    "Start": ("README.md", "docs/start/*.md", "CHANGELOG.md"),
    "Concepts": ("docs/concepts/*.md",),
    "Guides": (
        "docs/append-safely.md",
        "docs/restore.md",
        "docs/client.md",
        "docs/delivery.md",
        "docs/queues.md",
        "docs/routers.md",
        "docs/daemon.md",
        "docs/streams.md",
        "docs/tenants.md",
        "docs/replicas.md",
        "docs/proxy.md",
        "docs/spark.md",
        ("Spark on a service", "docs/spark/*.md"),
        "docs/warm-segments.md",
        "docs/journal.md",
        "docs/pulsar.md",
        ("Stories", "docs/stories/*.md"),
    ),
    "Reference": (
        "docs/cli.md",
        "docs/configuration.md",
        "docs/spark-options.md",
        "docs/metrics.md",
        "docs/errors.md",
        "docs/http.md",
        ("HTTP operations", "docs/reference/http/*.md"),
        ("Python", "docs/reference/python/*.md"),
        "docs/schema/*.md",
    ),
    "Operate": (
        "docs/guarantees.md",
        "docs/limits.md",
        "docs/not-yet.md",
        "docs/operate/*.md",
        "docs/stores.md",
        "docs/gc.md",
        "docs/requests.md",
        "docs/security.md",
        "SECURITY.md",
    ),
    "Internals": (
        "ARCHITECTURE.md",
        "docs/internals/*.md",
        "docs/formats.md",
        "docs/graft.md",
        "docs/benchmarks.md",
        ("Tables of the benchmarks", "benchmarks/results/*.md"),
        "CONTRIBUTING.md",
        "localstack/*.md",
        ("Decisions", "docs/decisions/*.md"),
    ),
}
_LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(?:#[^)]*)?\)")
_WORDS = re.compile(r"^<!-- search: (.+?) -->\n", re.MULTILINE)
_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
_FOREIGN = re.compile(r"""(?:url\(|@import\s)\s*["']?((?:https?:)?//[^"')\s]+)""")


def pages(root: Path = ROOT) -> list[str]:
    """Return the paths of the pages of a checkout that people read."""
    found = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    found += [path for folder in ("localstack", "benchmarks/results") for path in (root / folder).glob("*.md")]
    return sorted(path.relative_to(root).as_posix() for path in found)


def menu(known: Iterable[str], texts: Mapping[str, str]) -> dict[str, list[str | tuple[str, list[str]]]]:
    """Return the pages of each part, with those of a folder in the order in which its README names them."""

    def chosen(pattern: str) -> list[str]:
        folder, _, name = pattern.rpartition("/")
        if "*" not in name:
            return [pattern]
        inside = [page for page in known if page.rpartition("/")[0] == folder]
        order = [f"{folder}/{link}" for link in _LINK.findall(texts.get(f"{folder}/README.md", ""))]
        order.insert(0, f"{folder}/README.md")
        return sorted(inside, key=lambda page: (order.index(page) if page in order else len(order), page))

    parts: dict[str, list[str | tuple[str, list[str]]]] = {}
    for part, entries in MENU.items():
        parts[part] = []
        for entry in entries:
            if isinstance(entry, str):
                parts[part] += chosen(entry)
            else:
                parts[part].append((entry[0], chosen(entry[1])))
    return parts


def misplaced(known: Iterable[str], parts: Mapping[str, list[str | tuple[str, list[str]]]]) -> list[str]:
    """Return a line for each page that stands in no part or in several, and for each empty part."""
    named = Counter(page for entries in parts.values() for page in _flat(entries))
    lines = [
        f"{page}: no part of the menu has it: name it in MENU of scripts/website.py" for page in {*known} - {*named}
    ]
    lines += [f"{page}: {count} places of the menu have it" for page, count in named.items() if count > 1]
    lines += [f"{page}: the menu names it, and there is no such page" for page in named if page not in {*known}]
    return sorted(lines) + [
        f"{part}: the part of the menu has no page" for part, entries in parts.items() if not [*_flat(entries)]
    ]


def _flat(entries: Iterable[str | tuple[str, list[str]]]) -> Iterator[str]:
    for entry in entries:
        yield from [entry] if isinstance(entry, str) else entry[1]


def staged(page: str, text: str) -> str:
    """Return a page as the site builder takes it, with its search words where no reader sees them.

    The search leaves out single decisions: their titles have the words of users, and their list is enough. It leaves
    out the tables of the benchmarks, because `docs/benchmarks.md` says the same in sentences.
    """
    is_apart = re.match(r"docs/decisions/\d|benchmarks/results/", page)
    front = "---\nsearch:\n  exclude: true\n---\n\n" if is_apart else ""
    return front + _WORDS.sub(r"<p hidden>\1</p>\n", text)


def title(text: str) -> str:
    """Return the heading of a page, without its code marks. Raises `ValueError` if it has none."""
    heading = re.search(r"^# (.+)$", text, re.MULTILINE)
    if heading is None:
        raise ValueError("a page needs a heading of the first level")
    return heading[1].replace("`", "")


def summary(text: str) -> str:
    """Return the first sentence of a page, for llms.txt. Raises `ValueError` if it has none."""
    plain = re.sub(r"^# .+$", "", _COMMENT.sub("", _FENCE.sub("", text)), count=1, flags=re.MULTILINE)
    for paragraph in plain.split("\n\n"):
        line = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(paragraph.split())).replace("**", "")
        line = line.removeprefix("Context. ")  # of a decision
        if re.match(r"[\w`\"]", line) and not line.startswith(":::"):
            return re.split(r"(?<=[.:?!]) (?=[A-Z`])", line)[0].rstrip(":")
    raise ValueError("a page needs a sentence below its heading")


def index(parts: Mapping[str, list[str | tuple[str, list[str]]]], texts: Mapping[str, str]) -> str:
    """Return llms.txt: the pages of each part, with a line each."""
    lines = ["# seglog", "", f"> {_project()['description']}"]
    for part, entries in parts.items():
        lines += ["", f"## {part}", ""]
        for page in _flat(entries):
            lines.append(f"- [{title(texts[page])}]({_address(page)}): {summary(texts[page])}")
    return "\n".join(lines) + "\n"


def _address(page: str) -> str:
    """Return the address of a page on the site. README is the index of its folder."""
    return re.sub(r"(^|/)README$", r"\1index", page.removesuffix(".md")) + ".html"


def configuration(parts: Mapping[str, list[str | tuple[str, list[str]]]], texts: Mapping[str, str]) -> str:
    """Return mkdocs.yml. JSON is YAML, so no library writes it."""

    def entry(page: str) -> dict[str, str]:
        return {title(texts[page]): page}

    def entries(part: Iterable[str | tuple[str, list[str]]]) -> list[object]:
        return [entry(each) if isinstance(each, str) else {each[0]: [entry(page) for page in each[1]]} for each in part]

    light = {"media": "(prefers-color-scheme: light)", "scheme": "default"}
    dark = {"media": "(prefers-color-scheme: dark)", "scheme": "slate"}
    settings = {
        "site_name": f"seglog {_project()['version']}",
        "site_description": _project()["description"],
        "docs_dir": "pages",
        "site_dir": "html",
        "use_directory_urls": False,  # a page can also be opened as a file
        "strict": True,
        "nav": [{part: entries(each)} for part, each in parts.items()],
        "theme": {
            "name": "material",
            "language": "en",
            "font": False,  # those of the reader's system: no request to another host
            "icon": {"logo": "lucide/logs"},
            "features": [
                "content.code.copy",
                "navigation.footer",
                "navigation.tabs",
                "navigation.top",
                "search.highlight",
                "toc.follow",
            ],
            "palette": [
                {**light, "toggle": {"icon": "lucide/sun", "name": "Switch to the dark theme"}},
                {**dark, "toggle": {"icon": "lucide/moon", "name": "Switch to the light theme"}},
            ],
        },
        "extra_css": ["website.css"],
        "extra_javascript": ["website.js"],
        "plugins": [
            "search",
            {
                "mkdocstrings": {
                    "handlers": {
                        "python": {
                            "paths": [str(ROOT)],
                            "options": {
                                "docstring_style": "google",
                                "docstring_section_style": "list",  # a table calls each option of `Unpack` required
                                # It does not see what `Unpack` gives; tests/test_docstrings.py looks.
                                "docstring_options": {"warn_unknown_params": False, "warn_missing_types": False},
                                "filters": ["!^_"],
                                "heading_level": 2,
                                "inherited_members": True,
                                "members_order": "source",
                                "preload_modules": ["seglog", "catalog", "offload"],
                                "separate_signature": True,
                                "show_bases": False,
                                "show_root_heading": True,
                                "show_signature_annotations": True,
                                "show_source": False,
                            },
                        }
                    }
                }
            },
        ],
        "markdown_extensions": [
            "tables",
            {"toc": {"permalink": True, "slugify": "github"}},
            {"pymdownx.highlight": {"pygments_lang_class": True}},
            "pymdownx.superfences",
        ],
    }
    slugify = "!!python/object/apply:pymdownx.slugs.slugify {kwds: {case: lower}}"
    return json.dumps(settings, indent=1).replace('"github"', slugify) + "\n"


def _project() -> dict[str, str]:
    project: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


class _Page(HTMLParser):
    """What a page of the site has: its anchors, the links to other places, and what a browser loads for it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = {name: value or "" for name, value in attrs}
        self.anchors |= {own[name] for name in ("id", "name") if own.get(name)}
        if tag == "a" and "href" in own:
            self.links.append(own["href"])
        if own.get(_LOADS.get(tag, "")) and own.get("rel") not in {"canonical", "next", "prev"}:
            self.loads.append(own[_LOADS[tag]])


def faults(site: Path) -> list[str]:
    """Return a line for each link that leads nowhere, and for each file that a page loads from another host."""
    parsed = {path: _Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    lines = []
    for path, page in parsed.items():
        name = path.relative_to(site)
        for link in (*page.links, *page.loads):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loads and parts.scheme != "data":
                    lines.append(f"{name}: loads {link} from another host")
                continue
            start = site if link.startswith("/") else path.parent
            target = path if not parts.path else (start / unquote(parts.path).lstrip("/")).resolve()
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                lines.append(f"{name}: {link} leads nowhere")
            elif parts.fragment and target in parsed and unquote(parts.fragment) not in parsed[target].anchors:
                lines.append(f"{name}: {link} names no heading of the page")
    for style in sorted(site.rglob("*.css")):
        hosts = _FOREIGN.findall(style.read_text())
        lines += [f"{style.relative_to(site)}: loads {host} from another host" for host in hosts]
    return sorted(set(lines))


def build(zensical: Path, place: Path, root: Path = ROOT) -> list[str]:
    """Build the site in `place`/html. Return the faults, or none."""
    from scripts.website_reference import reference

    texts = {page: (root / page).read_text() for page in pages(root)} | reference()
    parts = menu(texts, texts)
    if lines := [*misplaced(texts, parts), *_silent(texts)]:
        return lines
    if not zensical.exists():
        return [f"{zensical} is not there: `make site` installs it"]
    shutil.rmtree(place, ignore_errors=True)
    _stage(root, place / "pages", texts)
    (place / "mkdocs.yml").write_text(configuration(parts, texts))
    done = subprocess.run(
        [zensical, "build", "--strict", "--config-file", "mkdocs.yml"],
        cwd=place, env={**os.environ, "NO_COLOR": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    told = _COLOUR.sub("", done.stdout + done.stderr)
    if done.returncode:
        is_link = "--strict flag" in told  # it has told each link, and then ends with a traceback
        return (told.partition("Traceback")[0] if is_link else told).splitlines()
    (place / "html" / "llms.txt").write_text(index(parts, texts))
    return faults(place / "html")


def _silent(texts: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each page without a heading, or without a sentence that tells what it is."""
    for page, text in texts.items():
        try:
            title(text)
            summary(text)
        except ValueError as error:
            yield f"{page}: {error}"


def _stage(root: Path, stage: Path, texts: Mapping[str, str]) -> None:
    """Copy the pages, the files beside them, and each file of the source that a page links to."""
    shutil.copytree(root / "docs", stage / "docs")
    for name in ("website.css", "website.js"):
        shutil.copy(ROOT / "scripts" / name, stage / name)
    for page, text in texts.items():
        path = stage / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(staged(page, text))
        for link in _LINK.findall(_FENCE.sub("", text)):
            source = (root / page).parent.joinpath(link).resolve()
            copy = stage / os.path.relpath(source, root)
            if source.is_file() and source.is_relative_to(root) and not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, copy)


def main(zensical: Path, place: Path) -> int:
    sys.path.insert(0, str(ROOT))
    lines = build(zensical, place)
    for line in lines:
        print(line, file=sys.stderr)
    if not lines:
        print(f"The site is {place}/html. To look at it: python3 -m http.server --directory {place}/html")
    return 1 if lines else 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]).absolute(), Path(sys.argv[2]) if sys.argv[2:] else ROOT / "build" / "site"))
