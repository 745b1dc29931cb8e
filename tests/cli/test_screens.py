"""Commands on terminals of 80 by 24 and 200 by 50 cells: what a user sees, cell by cell, as golden files.

pexpect runs the commands on a terminal, and pyte is its screen. After a change of what a command prints, this writes
the files anew: `scripts/isolated.sh env SEGLOG_GOLDEN=write python -m pytest tests/cli/test_screens.py`.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pyte

from tests.cli.screens import DONE, SHOWN

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "screens"
_SIZES = ((80, 24), (200, 50))
_QUESTIONS = {"delete-question": "y/N] ", "delete-most-question": "to go on: "}
_NO_TIME_LEFT = "-:--:--"  # the end of a bar that has just appeared
_WAIT_S = 120


class _Terminal:
    """A terminal on which the commands run, one after the other."""

    def __init__(self, directory: Path) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "NO_COLOR"}}
        self._process = pexpect.spawn(
            sys.executable,
            ["-m", "tests.cli.screens"],
            cwd=str(directory),
            env={**environment, "TERM": "xterm", "PAGER": "", "TZ": "UTC", "PYTHONPATH": str(ROOT)},
            dimensions=_SIZES[0][::-1],
            timeout=_WAIT_S,
        )
        self.resize(*_SIZES[0])

    def resize(self, columns: int, lines: int) -> None:
        self._process.setwinsize(lines, columns)
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)

    def until(self, text: str) -> list[str]:
        """Wait for a text, and return the lines of the screen."""
        self._process.expect_exact(text)
        self._stream.feed(self._process.before + text.encode())
        return [line.rstrip() for line in self._screen.display]

    def answer(self, line: str) -> None:
        self._process.sendline(line)

    def close(self) -> None:
        self._process.close(force=True)


def _screens(terminal: _Terminal) -> Iterator[tuple[str, list[str]]]:
    """Yield the screen of each command, by the name of its file. A question is answered with no."""
    for number, (columns, lines) in enumerate(_SIZES):
        terminal.resize(columns, lines)
        if number:
            terminal.answer("")
        for name, screen in _screens_of_a_size(terminal):
            yield f"{name}-{columns}x{lines}.txt", screen


def _screens_of_a_size(terminal: _Terminal) -> Iterator[tuple[str, list[str]]]:
    for number, name in enumerate(SHOWN):
        if number:
            terminal.answer("")
        if name in _QUESTIONS:
            yield name, terminal.until(_QUESTIONS[name])
            terminal.answer("no")
        elif name == "progress":
            yield name, terminal.until(_NO_TIME_LEFT)
            terminal.answer("")
        shown = terminal.until(DONE)
        if name != "progress":
            yield name if name not in _QUESTIONS else f"{name}-refused", shown


def _text(lines: list[str], path: Path) -> str:
    """Return a screen as text, without the name of the test's own directory."""
    text = "\n".join(lines).rstrip("\n") + "\n"
    return text.replace(path.name, "." * len(path.name))


def test_each_screen_is_as_it_was() -> None:
    path = Path(tempfile.mkdtemp(prefix="seglog-", dir="/tmp"))  # a name of the same length in each run
    terminal = _Terminal(path)
    wrong = []
    try:
        for name, screen in _screens(terminal):
            text, golden = _text(screen, path), GOLDEN / name
            if os.environ.get("SEGLOG_GOLDEN") == "write":
                golden.write_text(text)
            elif text != golden.read_text():
                wrong.append(f"{golden.name} is not:\n{text}")
    finally:
        terminal.close()
        shutil.rmtree(path)
    assert not wrong, "\n".join(wrong)
