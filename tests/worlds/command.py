"""Run a command as a user does, in this process for speed: argv in; exit code, stdout and stderr out."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from offload.main import main

__all__ = ["ROOT", "Done", "Run", "command", "program", "run"]

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def undated(self) -> str:
        """Return the text with TIME in the place of each time."""
        return re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", "TIME", self.text)


class _TerminalIn(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


class _TerminalOut(io.StringIO):
    def isatty(self) -> bool:
        return True


Run = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("append", "t", stdin=b"...")` is `seglog -C <a fresh directory> append t`.

    With `directory=None`, the command gets no -C. With `is_terminal`, standard input and standard error are a terminal.
    """
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, stdin: bytes = b"", directory: str | None = "data", is_terminal: bool = False) -> Done:
        place = [] if directory is None else ["-C", directory]
        with monkeypatch.context() as patch:
            return _called(patch, [*place, *arguments], stdin, is_terminal)

    return call


def command(*words: str, directory: Path, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run `seglog -C directory WORDS` in this process, because a Python that starts costs more than the command."""
    line = ["-C", str(directory), *words]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        done = _called(patch, line, given)
    return subprocess.CompletedProcess(["seglog", *line], done.code, done.out, done.err.encode())


def program(*words: str, directory: Path) -> subprocess.CompletedProcess[bytes]:
    """Run `seglog -C directory WORDS` in a process of its own."""
    line = [sys.executable, "-m", "offload", "-C", str(directory), *words]
    return subprocess.run(line, capture_output=True, cwd=ROOT, check=False, timeout=120)


def _called(patch: pytest.MonkeyPatch, words: list[str], stdin: bytes, is_terminal: bool = False) -> Done:
    out, err = io.BytesIO(), _TerminalOut() if is_terminal else io.StringIO()
    former = {each: signal.getsignal(each) for each in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
    patch.setattr(sys, "argv", ["seglog", *words])
    patch.setattr(sys, "stdin", (_TerminalIn if is_terminal else io.TextIOWrapper)(io.BytesIO(stdin)))
    patch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="utf-8", write_through=True, newline=""))
    patch.setattr(sys, "stderr", err)
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        for each, handler in former.items():
            signal.signal(each, handler)
    return Done(code, out.getvalue(), err.getvalue())
