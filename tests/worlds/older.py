"""An older version of seglog: the same code in a process of its own, which knows one form less."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.daemons import ServedDirectory
from tests.worlds.command import ROOT

__all__ = ["older", "served_by_older"]

_LINE = [
    sys.executable,
    "-c",
    "import seglog.base.forms as forms; forms.NEWEST -= 1; from offload.main import main; main()",
]


def older(*words: str, directory: Path, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run `seglog -C directory WORDS` of the older version."""
    line = [*_LINE, "-C", str(directory), *words]
    return subprocess.run(line, input=given, capture_output=True, cwd=ROOT, check=False, timeout=120)


class _OlderDirectory(ServedDirectory):
    @staticmethod
    def start(arguments: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
        return subprocess.Popen([*_LINE, *arguments], env=environment, stderr=subprocess.PIPE, text=True, cwd=ROOT)


@contextmanager
def served_by_older(directory: Path, remote: str) -> Iterator[ServedDirectory]:
    """Run a daemon of the older version on an existing directory."""
    daemon = _OlderDirectory(directory, {**os.environ, "SEGLOG_REMOTE": remote})
    try:
        yield daemon
    finally:
        daemon.kill()
