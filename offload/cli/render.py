"""Colours and tables for a terminal, by rich. Nothing imports this module for a pipe (offload.cli.session)."""

from __future__ import annotations

import functools
import shutil
import sys
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.highlighter import RegexHighlighter
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text
from rich.theme import Theme

_STYLES = {
    "added": "green",
    "command": "cyan",
    "hash": "yellow",
    "key": "bold",
    "name": "bold cyan",
    "removed": "red",
    "rewritten": "blue",
    "time": "dim",
    "trouble": "bold red",
}


class _Words(RegexHighlighter):
    """The words that have a colour, wherever they stand."""

    base_style = "seglog."
    highlights = [  # noqa: RUF012 - rich declares it
        r"(?P<time>\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z)",
        r"(?P<key>\b(lsn|seq) \d[\d,-]*)",
        r"(?P<hash>\b[0-9a-f]{12}\b)",
        r"(?P<removed>\b(delete|evict|truncate)\b)",
        r"(?P<added>\boffload\b)",
        r"(?P<rewritten>\bcompact\b)",
        r"(?P<removed>^- .*)",
        r"(?P<added>^\+ .*)",
        r"(?P<trouble>\b(AHEAD|COLLECTED|DAMAGED|DIVERGED|FENCED)\b)",
        r"(?P<command>`[^`]+`)",
        r"(?P<name>  \([^()]+\)$)",
    ]


def painted(text: str) -> str:
    """Return a text with its colours. Its lines stay as long as they are."""
    console = _console()
    with console.capture() as captured:
        console.print(_WORDS(text), soft_wrap=True, end="")
    return captured.get()


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as wide as the terminal. Longer cells take several lines."""
    grid = Table(
        *(Column(column, overflow="fold") for column in columns),
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        header_style="bold",
    )
    for row in rows:
        grid.add_row(*map(_WORDS, row))
    console = _console()
    with console.capture() as captured:
        console.print(grid, width=shutil.get_terminal_size().columns)
    return captured.get()


class Screen:
    """A text that changes in its place, on the whole terminal. After `close`, the former text is there again."""

    def __init__(self) -> None:
        self._live = Live(console=Console(), screen=True, auto_refresh=False)
        self._live.start()

    def show(self, text: str) -> None:
        self._live.update(Text.from_ansi(text), refresh=True)

    def close(self) -> None:
        self._live.stop()


@functools.cache
def _console() -> Console:
    width = shutil.get_terminal_size().columns
    theme = Theme({f"seglog.{name}": style for name, style in _STYLES.items()})
    return Console(file=sys.stderr, force_terminal=True, width=width, theme=theme, highlight=False)


_WORDS = _Words()
