"""The CPU time of a command, beside the CPU time of a Python that does nothing.

The kernel counts the user and the system time of the whole process. This sum is steadier than the time on the clock,
because a busy machine changes it little. It leaves out the time of a daemon. The remote is a directory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import Aim, Report, Row, compare
from benchmarks.runner import Figures, in_turns

__all__ = ["SUMMARY", "run"]

SUMMARY = "the CPU time of a command, beside `python -c pass`"

_ROUNDS = 20
_NOTHING = "python -c pass"
_COMMAND = "from offload.main import main; main()"
_COMMANDS = """
import json, os, sys
from offload.cli.command_line import run

for words in json.load(sys.stdin):
    if run(words, os.environ, None):
        sys.exit(1)
"""
_FRONT = ("--version", "--help", "read --help", "completion bash", "__complete re", "__complete read t")
_SERVED = ("status", "read t --limit 1")
_LOCAL = ("topic list", "topic show t", "read t --limit 1", "status", "pin list t")
_DECODING = ("tail t", "log t", "show t head", "points t", "branch list t", "tag list t", "oplog", "gc --dry-run")
_GROUPS = (
    ("", "own", _FRONT, 3),
    (", with a daemon", "served", _SERVED, 8),
    (", without a daemon", "own", _LOCAL, 8),
    (", without a daemon", "own", _DECODING, 16),
)
"""The end of a row's name, the data directory, the commands, and how many times `python -c pass` they may take.

The last group decodes objects of the remote, for which it imports protobuf, or arrays of records, for which it imports
numpy.
"""


def run(options: Options) -> Report:
    rounds = options.rounds if options.quick else max(options.rounds, _ROUNDS)
    groups = [(told, place, words[:1] if options.quick else words, most) for told, place, words, most in _GROUPS]
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        places = {place: _filled(Path(name, place)) for place in ("own", "served")}
        subjects: dict[str, Callable[[], Figures]] = {_NOTHING: lambda: _cpu_ms(["-c", "pass"])}
        for told, place, commands, _ in groups:
            for words in commands:
                subjects[words + told] = _subject(places[place], words.split())
        with _daemon(places["served"]):
            measured = in_turns(subjects, rounds=rounds, label="cli", warm_ups=0 if options.quick else 1)
    rows: list[Row] = []
    for told, _, commands, most in groups:
        for words in commands:
            found = measured.called("seglog", words + told)
            aims = (Aim(1 / most, _NOTHING),)
            rows += compare(found, words + told, "ms", "cpu_ms", _NOTHING, more_is_better=False, aims=aims)
    return Report("cli", SUMMARY, tuple(rows), describe(options.directory), rounds)


def _subject(directory: Path, words: Sequence[str]) -> Callable[[], Figures]:
    return lambda: _cpu_ms(["-c", _COMMAND, *_dir(directory, words)])


def _dir(directory: Path, words: Sequence[str]) -> list[str]:
    """Return the words for a command on this directory. A completion gets the words as the user types them."""
    return (
        ["__complete", "-C", str(directory), *words[1:]] if words[0] == "__complete" else ["-C", str(directory), *words]
    )


def _cpu_ms(arguments: Sequence[str]) -> Figures:
    """Run Python with `arguments`, and return the CPU time that it took. Its output is thrown away."""
    discarded = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawn(sys.executable, [sys.executable, *arguments], os.environ, file_actions=discarded)
    _, status, usage = os.wait4(pid, 0)
    if status:
        raise RuntimeError(f"{arguments} ended with exit code {os.waitstatus_to_exitcode(status)}")
    return {"cpu_ms": (usage.ru_utime + usage.ru_stime) * 1000}


def _filled(directory: Path) -> Path:
    """Make a data directory with a topic of two offloads, a branch and a tag."""
    steps = (
        f"init --remote {directory.absolute().as_uri()}-remote",
        "append t README.md", "seal t", "offload t", "append t README.md", "seal t", "offload t",
        "branch create t b --at lsn:1", "tag create t v1",
    )  # fmt: skip
    commands = [["-C", str(directory), *step.split()] for step in steps]
    run = [sys.executable, "-c", _COMMANDS]
    subprocess.run(run, input=json.dumps(commands), stdout=subprocess.DEVNULL, check=True, text=True)
    return directory


@contextmanager
def _daemon(directory: Path) -> Iterator[None]:
    """Run a daemon on the directory."""
    command = [sys.executable, "-c", _COMMAND, "-C", str(directory), "serve"]
    variables = {**os.environ, "SEGLOG_SERVE_PORT": "0"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=variables) as daemon:
        assert daemon.stderr is not None
        try:
            while "serving" not in (line := daemon.stderr.readline()):
                if not line:
                    raise RuntimeError("the daemon did not start")
            yield
        finally:
            daemon.terminate()
            daemon.stderr.read()
