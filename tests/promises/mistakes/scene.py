"""The means of the tests of mistakes: records that are acked, read back, and nothing of them lost."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import seglog
from offload.cli.interrupt import raise_in_command
from offload.main import main
from tests import trees

__all__ = ["ROOT", "command", "filled", "numbered", "program", "tree", "values"]

ROOT = Path(__file__).resolve().parents[3]


def numbered(count: int, first: int = 1) -> list[bytes]:
    return [b"record %d" % number for number in range(first, first + count)]


def filled(path: Path, count: int = 10, *, seal: bool = False) -> list[bytes]:
    """A data directory at `path` with `count` records of the topic orders, acked at fsync. Returns their values."""
    with seglog.open(path) as log:
        log.topic("orders").append(numbered(count))
        if seal:
            log.topic("orders").seal()
    return numbered(count)


def values(path: Path, topic: str = "orders") -> list[bytes]:
    """The values that a fresh opening reads."""
    with seglog.open(path, create=False) as log:
        return [record.value for record in log.topic(topic).read()]


def tree(path: Path, leave_out: Iterable[str] = ("LOCK",)) -> dict[str, bytes]:
    """The content of each file below `path`, but for files with these names."""
    names = set(leave_out)
    return {name: content for name, content in trees.tree(path).items() if Path(name).name not in names}


def command(*words: str, directory: Path, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run `seglog -C directory WORDS` in this process, because a Python that starts costs more than the command."""
    line = ["seglog", "-C", str(directory), *words]
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True, newline="") for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setattr(sys, "argv", line)
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        finally:
            raise_in_command()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
    found = [each.buffer.getvalue() for each in (out, err)]  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(line, code, *found)


def program(*words: str, directory: Path) -> subprocess.CompletedProcess[bytes]:
    """Run `seglog -C directory WORDS` in a process of its own."""
    line = [sys.executable, "-m", "offload", "-C", str(directory), *words]
    return subprocess.run(line, capture_output=True, cwd=ROOT, check=False, timeout=120)
