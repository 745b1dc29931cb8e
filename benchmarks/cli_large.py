"""Commands on large things: the CPU time up to the first line, the memory, and the requests.

    log, points           a topic of 100,000 commits, one in ten a delete. The directory has copies of the commits
    status                10,000 topics, each with a record
    restore, promotion    a topic of 10 TiB in 10,240 segments, beside one of one segment

The directory that restores and promotes has never seen the topic. The catalog is real, and the store is in memory.

The CPU time is that of a process which is killed at its first line. The memory is the most that a process had at once
(VmHWM).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import offload
import seglog
from benchmarks.large_log import SEGMENTS, TOPIC, CountedStore, of_commits, of_segments
from benchmarks.machine import describe
from benchmarks.options import Options
from benchmarks.report import Report, Row, alone
from benchmarks.topics import make_topics
from offload.operations.init import init

__all__ = ["SUMMARY", "requests_of_steps", "run"]

SUMMARY = "commands on 100,000 commits, on 10,000 topics and on a log of 10 TiB: first line, memory, requests"

COMMITS, TOPICS = 100_000, 10_000
_QUICK = 300
_FIRST_LINE_MS, _MOST_MB = 300, 200
_COMMAND = "from offload.main import main; main()"
_MEASURED = """
import sys
from offload.main import main

try:
    main()
finally:
    sys.stderr.write(open("/proc/self/status").read())
"""
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


def run(options: Options) -> Report:
    commits, topics, segments = (_QUICK, _QUICK, 20) if options.quick else (COMMITS, TOPICS, SEGMENTS)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=options.directory) as name:
        directory = Path(name, "commits")
        of_commits(directory, commits)
        found = sorted(_first_line_ms(directory, ["log", TOPIC]) for _ in range(options.rounds))
        label = f"of {commits:,} commits"
        rows.append(alone(f"log {label}, first line", "ms of CPU", found[len(found) // 2], at_most=_FIRST_LINE_MS))
        for command in ("log", "points"):
            found_mb = _peak_mb(directory, [command, TOPIC])
            rows.append(alone(f"{command} {label}", "MB", found_mb, at_most=_MOST_MB))
        directory = Path(name, "topics")
        make_topics(directory, topics)
        rows.append(alone(f"status of {topics:,} topics", "MB", _peak_mb(directory, ["status"]), at_most=_MOST_MB))
        init(directory, Path(name, "store").absolute().as_uri(), lambda: offload.Settings({}, {}))
        found_mb = _peak_mb(directory, ["status"])
        rows.append(alone(f"status of {topics:,} topics, with a remote", "MB", found_mb, at_most=_MOST_MB))
        small = requests_of_steps(Path(name, "small"), 1)
        large = requests_of_steps(Path(name, "large"), segments)
    for step, counts in large.items():
        fewest = small[step].total()
        rows.append(alone(f"{step}, of 1 segment", "requests", fewest))
        rows.append(alone(f"{step}, of {segments:,} segments", "requests", counts.total(), at_most=fewest))
    return Report("cli-large", SUMMARY, tuple(rows), describe(options.directory), options.rounds)


def requests_of_steps(path: Path, segments: int) -> dict[str, Counter[str]]:
    """Return the requests of each step by method, in a directory that has never seen the log of `segments` segments."""
    store = CountedStore(of_segments(path, segments))
    settings = offload.Settings().with_parts(offload.OffloadSettings())
    found: dict[str, Counter[str]] = {}
    with (
        seglog.open(path.with_name(f"{path.name}-other")) as log,
        offload.attach(log, store=store, settings=settings) as archive,
    ):
        restores = {"head": SEGMENTS + 5, f"seq:{SEGMENTS + 3}": SEGMENTS + 3}
        for name, (target, records) in zip(("whole", "part"), restores.items(), strict=True):
            restored = archive.restore(TOPIC, to=target, name=name)
            if not restored.last_seq == restored.records == records:
                raise RuntimeError(f"{target}: {restored.records} records: the figures would be wrong")
            found[f"restore of the {name}"] = store.taken()
        archive.branches.promote_branch(TOPIC, "whole", keep="former")
        found["branch promote"] = store.taken()
        archive.history.undo()
        found["undo of the promotion"] = store.taken()
        archive.replication.take_over(TOPIC)
        removed = archive.truncate(TOPIC, SEGMENTS + 3)
        store.taken()
        undone = archive.history.undo_removal(TOPIC, removed.lsn or 0)
        if undone.records != 3:
            raise RuntimeError(f"{undone.records} records came back: the figures would be wrong")
        found["undo of a truncation"] = store.taken()
    return found


def _first_line_ms(directory: Path, words: Sequence[str]) -> float:
    """Run a command, kill it when its first line is there, and return its CPU time."""
    reads, writes = os.pipe()
    command = [sys.executable, "-c", _COMMAND, "-C", str(directory), *words]
    actions = [(os.POSIX_SPAWN_DUP2, writes, 1), (os.POSIX_SPAWN_CLOSE, reads)]
    pid = os.posix_spawn(sys.executable, command, os.environ, file_actions=actions)
    os.close(writes)
    with open(reads, "rb") as lines:
        line = lines.readline()
        os.kill(pid, signal.SIGKILL)
    _, _, usage = os.wait4(pid, 0)
    if not line.startswith(b"lsn "):
        raise RuntimeError(f"{words} began with {line!r}: the figure would be wrong")
    return (usage.ru_utime + usage.ru_stime) * 1000


def _peak_mb(directory: Path, words: Sequence[str]) -> float:
    """Run a command, and return the most memory that it had at once."""
    command = [sys.executable, "-c", _MEASURED, "-C", str(directory), *words]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{words} failed: {done.stderr}")
    [peak_kb] = _PEAK.findall(done.stderr)
    return int(peak_kb) / 1000
