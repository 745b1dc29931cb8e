"""A file of log lines on its whole way, by the commands that people use: append, seal, offload, read, verify.

    append     seglog append t FILE
    seal       seglog seal t
    offload    seglog offload t --drop-hot
    read       seglog read t > FILE, all from cold. The result must be the input, byte by byte
    verify     seglog verify --remote --deep

The remote is a directory. Each command is a process of its own, with its start in its time. The yardsticks go through
the same file: `cp`, `zstd -3`, and `.import` of sqlite3 into a table of one column. If the command sqlite3 is missing,
Python's module makes the same table. Neither `cp` nor `zstd` syncs. The input is in the page cache for all.

The lines differ from one another over 6 MB, and then come again. So no compressor that looks back over 2 MiB, as
`zstd -3` does, finds them twice.
"""

from __future__ import annotations

import filecmp
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from benchmarks.lines import log_lines
from benchmarks.machine import describe
from benchmarks.measured_command import measured
from benchmarks.options import Options
from benchmarks.report import Aim, Report, Row, alone, compare
from benchmarks.runner import Figures, Rounds, in_turns, settle_disk

__all__ = ["SUMMARY", "run"]

SUMMARY = "a file of log lines through append, offload, read and verify, beside cp, zstd -3 and sqlite3 .import"

_AIMS_MB_S = {"append": 120.0, "offload": 100.0, "read": 250.0}
_PEAK_MOST_MB = 300
_LINE_BYTES, _LINES = 194, 32_768
_COMMAND = (sys.executable, "-c", "from offload.main import main; main()", "-C")
_IMPORT = (".mode ascii", '.separator "\\037" "\\n"')
_IMPORT_BY_MODULE = """
import sqlite3, sys

with sqlite3.connect(sys.argv[1]) as connection, open(sys.argv[2], newline="\\n") as lines:
    connection.execute("CREATE TABLE lines (line TEXT)")
    connection.executemany("INSERT INTO lines VALUES (?)", ((line[:-1],) for line in lines))
"""


def run(options: Options) -> Report:
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        place = Path(name).absolute()
        size_bytes, count = _write_lines(place / "lines", options.bulk_mib << 20)
        subjects, missing = _yardsticks(place, size_bytes)
        ours: dict[str, Callable[[], Figures]] = {"seglog": lambda: _whole_way(place, size_bytes)}
        found = in_turns({**ours, **subjects}, rounds=options.rounds, label="bulk", warm_ups=0)
    rows = [row for step in ("append", "seal", "offload", "read", "verify") for row in _rows(found, step, missing)]
    summary = f"{SUMMARY}; {count:,} lines of {_LINE_BYTES} B"
    return Report("bulk", summary, tuple(rows), describe(options.directory), options.rounds)


def _write_lines(path: Path, wanted_bytes: int) -> tuple[int, int]:
    """Write a file of at least that many bytes, and return its size and the number of its lines."""
    lines = log_lines(min(_LINES, wanted_bytes // _LINE_BYTES + 1), _LINE_BYTES)
    text = b"\n".join(lines) + b"\n"
    times = -(-wanted_bytes // len(text))
    with path.open("wb") as file:
        for _ in range(times):
            file.write(text)
    return times * len(text), times * len(lines)


def _whole_way(place: Path, size_bytes: int) -> Figures:
    """Take the file through a new data directory and a new remote, and return the figures of each step."""
    directory, remote, copy = place / "data", place / "remote", place / "copy"
    steps = {
        "init": ("init", "--remote", remote.as_uri()),
        "append": ("append", "t", str(place / "lines")),
        "seal": ("seal", "t"),
        "offload": ("offload", "t", "--drop-hot"),
        "read": ("read", "t"),
        "verify": ("verify", "--remote", "--deep"),
    }
    figures: dict[str, float] = {}
    for step, words in steps.items():
        settle_disk()
        found = measured((*_COMMAND, str(directory), *words), size_bytes, copy if step == "read" else None)
        figures |= {f"{step} {figure}": value for figure, value in found.items()}
    if not filecmp.cmp(place / "lines", copy, shallow=False):
        raise RuntimeError("the records are not the lines: the figures would be wrong")
    for gone in (directory, remote):
        shutil.rmtree(gone)
    copy.unlink()
    return figures


def _yardsticks(place: Path, size_bytes: int) -> tuple[dict[str, Callable[[], Figures]], Mapping[str, str]]:
    """Return the yardsticks of this machine, and for each of the others why it has no figures."""
    source, target = str(place / "lines"), str(place / "target")
    commands = {"cp": ("cp", source, target), "zstd -3": ("zstd", "-3", "-q", source, "-o", target)}
    if shutil.which("sqlite3"):
        words = [word for line in _IMPORT for word in ("-cmd", line)]
        create = "CREATE TABLE lines (line TEXT)"
        commands["sqlite3 .import"] = ("sqlite3", *words, "-cmd", create, target, f".import {source} lines")
    else:
        commands["sqlite3 module"] = (sys.executable, "-c", _IMPORT_BY_MODULE, target, source)
    missing = {name: f"{words[0]} is not installed" for name, words in commands.items() if not shutil.which(words[0])}

    def subject(words: tuple[str, ...]) -> Figures:
        settle_disk()
        figures = measured(words, size_bytes)
        Path(target).unlink()
        return figures

    return {name: partial(subject, words) for name, words in commands.items() if name not in missing}, missing


def _rows(found: Rounds, step: str, missing: Mapping[str, str]) -> list[Row]:
    """Return the rows of one step: rate and CPU time beside each yardstick, and the memory."""
    own = [
        {figure: each[f"{step} {figure}"] for figure in ("mb_s", "cpu_s", "peak_mb")}
        for each in found.by_subject["seglog"]
    ]
    rounds = Rounds({**found.by_subject, "seglog": own}, missing)
    yardsticks = [name for name in (*found.by_subject, *missing) if name != "seglog"]
    aims = (Aim(_AIMS_MB_S[step]),) if step in _AIMS_MB_S else ()
    return [
        *compare(rounds, step, "MB/s", "mb_s", *yardsticks, more_is_better=True, aims=aims),
        *compare(rounds, f"{step}, CPU", "s", "cpu_s", *yardsticks, more_is_better=False),
        alone(f"{step}, memory", "MB", rounds.median("seglog", "peak_mb"), at_most=_PEAK_MOST_MB),
    ]
