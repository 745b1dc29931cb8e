"""Records docs/stories/undo-a-bad-delete.cast: `python scripts/recording.py`. `asciinema play FILE` shows it.

The commands of `STEPS` run on a terminal of their own, after those of `BEFORE`, which the recording leaves out. The
file is an asciicast of version 2: a header, then a line for each piece of output with its time. A marker begins each
command. Keys are struck at an even pace, and a pause follows each output. All other times are the real ones.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["BEFORE", "CAST", "STEPS", "Event", "record"]

CAST = Path(__file__).resolve().parents[1] / "docs" / "stories" / "undo-a-bad-delete.cast"
BEFORE = (
    ("init --remote file://{here}/archive", b""),
    ("append orders", b"".join(b"order %d\n" % number for number in range(1, 1001))),
    ("seal orders", b""),
    ("offload orders", b""),
    ("delete orders --before 900 --yes", b""),
)
STEPS = (
    "seglog points orders",
    "seglog undo orders lsn:2 --dry-run",
    "seglog undo orders lsn:2",
    "seglog read orders --limit 3",
)
_WIDTH, _HEIGHT = 120, 24
_PROMPT = "\x1b[1;32m$\x1b[0m "
_KEY_S, _PAUSE_S = 0.04, 2.0

Event = tuple[float, str, str]


class _Clock:
    """The time of the recording: the real time, and the pauses that nobody waited for."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._skipped_s = 0.0

    def now(self) -> float:
        return round(time.monotonic() - self._began + self._skipped_s, 3)

    def skip(self, seconds: float) -> None:
        self._skipped_s += seconds


def record(directory: Path) -> Iterator[Event]:
    """Run all commands in a new directory, and yield the events."""
    root = str(CAST.parents[2])
    variables = {**os.environ, "SEGLOG_DIR": "data", "TERM": "xterm-256color", "PAGER": "cat", "PYTHONPATH": root}
    for name in ("COLUMNS", "NO_COLOR"):
        variables.pop(name, None)
    seglog = [sys.executable, "-m", "offload"]
    for line, data in BEFORE:
        words = line.format(here=directory).split()
        subprocess.run([*seglog, *words], cwd=directory, env=variables, input=data, check=True, capture_output=True)
    clock = _Clock()
    for step in STEPS:
        yield clock.now(), "m", step
        yield clock.now(), "o", _PROMPT
        for key in step:
            clock.skip(_KEY_S)
            yield clock.now(), "o", key
        clock.skip(_KEY_S)
        yield clock.now(), "o", "\r\n"
        for piece in _output([*seglog, *step.split()[1:]], directory, variables):
            yield clock.now(), "o", piece.replace(socket.gethostname(), "laptop")
        clock.skip(_PAUSE_S)
    yield clock.now(), "o", _PROMPT


def _output(command: list[str], directory: Path, variables: dict[str, str]) -> Iterator[str]:
    """Run a command on a terminal, and yield its output as it comes."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", _HEIGHT, _WIDTH, 0, 0))
    with subprocess.Popen(command, cwd=directory, env=variables, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        with open(ours, "rb", buffering=0) as terminal:
            text = b""
            while True:
                try:
                    text += terminal.read(65536) or b""
                except OSError:  # the command has closed the terminal
                    break
                whole = text[: text.rfind(b"\n") + 1]
                if whole:
                    yield whole.decode()
                    text = text[len(whole) :]
            if text:
                yield text.decode()
    if process.returncode:
        raise SystemExit(f"{command} ended with exit code {process.returncode}")


def main() -> None:
    header = {"version": 2, "width": _WIDTH, "height": _HEIGHT, "title": "seglog: a bad delete is put back"}
    with tempfile.TemporaryDirectory() as name:
        lines = [header, *record(Path(name).resolve())]
    CAST.write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(f"{CAST.name}: {len(STEPS)} commands, {lines[-1][0]} s")  # type: ignore[index]


if __name__ == "__main__":
    main()
