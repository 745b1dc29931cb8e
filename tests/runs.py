"""Long runs of the tests, and the record of what has passed when: `tests/last_run.json`.

    python -m tests.runs                       what each group and each slice last did
    python -m tests.runs group [NAME ...]      run groups of `make test-all`, or all of them
    python -m tests.runs due                   run the groups whose part of the product changed since they last passed
    python -m tests.runs slice [WORD]          run the slice that has waited longest, or the first whose name has WORD
    python -m tests.runs nightly [MINUTES]     each slice once in that order, until it is stopped or the time is over:
                                               two tests of the soak at a time, and mutants alone, as they use all cores
    python -m tests.runs list                  bring the list of slices up to date

Nobody waits for all proofs before each change, so they take turns. A slice is a test of the soak, or twenty mutants,
and takes five minutes at most. A slice that failed goes first until it passes. The record is checked in, so that
whoever works next goes on where the last one stopped.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from tests.mutants.listing import all_mutants

__all__ = [
    "GROUPS",
    "LONGEST_S",
    "RECORD",
    "REPORT",
    "Group",
    "Run",
    "group_of",
    "listed",
    "read_record",
    "run",
    "slices",
    "touched",
]

_ROOT = Path(__file__).resolve().parent.parent
RECORD = _ROOT / "tests" / "last_run.json"
#: What a run leaves about itself: tests/conftest.py the counts of tests, tests/mutants those of verdicts. What the run
#: starts leaves its own elsewhere, so the variable goes.
REPORT = Path(os.environ.pop("TESTS_REPORT", _ROOT / "build" / "run.json"))
LONGEST_S = 15 * 60
_ENDING_S = 60
_MUTANTS = 20
_recording = threading.Lock()  # of the record
_running = set[subprocess.Popen[bytes]]()
_is_stopped = threading.Event()
_WORKERS = ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")


class Group(NamedTuple):
    """Tests that run together, and the product's folders that they prove.

    Tests are folders, or files of a folder that is too much for one group. A longer path wins over a shorter one.
    """

    tests: tuple[str, ...]
    folders: tuple[str, ...]


_JOINTS = ("offload/daemon", "offload/replication", "offload/services")
#: Promises that a crash, a kill, a damage or a failing disk or store puts to the proof.
_CRASHES = (
    *("acked_cursors", "acked_survives_crash", "cold_trouble_stays_cold", "corruption_is_located", "corruption_matrix"),
    *("crash_images", "followed_file", "full_disk", "group_commit_images", "hostile_values", "kill_at_every_step"),
    *("kill_under_live_appends", "listed_points", "lost_machine", "nth_operation_fails", "producer_crashes"),
    *("repeated_appends", "signals", "silent_stores", "store_fault_plan", "store_fault_plan_over_http"),
    "stream_crashes",
)

GROUPS = {
    "core": Group(("tests",), ("seglog", "benchmarks", "docs", "localstack", "scripts", "tests")),
    "catalog": Group(("tests/catalog",), ("catalog",)),
    "daemon": Group(("tests/offload",), ("offload", "seglog/client")),
    "cli": Group(("tests/cli",), ("offload/cli", "offload/operations")),
    "spark": Group(("tests/offload/spark",), ("offload/spark", "offload/load")),
    "versions": Group(("tests/offload/spark/versions",), ("offload/spark",)),
    "promises": Group(("tests/promises",), ("seglog", "catalog", *_JOINTS, "offload/read", "offload/write")),
    "crashes": Group(
        tuple(f"tests/promises/test_{name}.py" for name in _CRASHES),
        ("seglog", "catalog", *_JOINTS, "offload/read", "offload/write"),
    ),
    "races": Group(("tests/races",), ("catalog", *_JOINTS, "offload/operations", "offload/write")),
    "simulation": Group(("tests/simulation",), ("catalog", *_JOINTS, "offload/write")),
    "iam": Group(("tests/iam",), ("offload/tenants", "catalog/tenants", "localstack")),
    "pulsar": Group(("tests/interop",), ("offload/format", "offload/write")),
}


def group_of(path: str) -> str:
    """Return the group that runs a file of tests."""
    return _longest(path, {tests: name for name, group in GROUPS.items() for tests in group.tests})


def touched(paths: Iterable[str]) -> set[str]:
    """Return the groups that prove a file of these: by its folder, or because the file is one of their tests."""
    found = set()
    for path in paths:
        if path.startswith("tests/"):
            found.add(group_of(path))
        found |= {
            name for name, group in GROUPS.items() if any(path.startswith(f"{folder}/") for folder in group.folders)
        }
    return found


def _longest(path: str, names: dict[str, str]) -> str:
    return names[max((place for place in names if f"{path}/".startswith(f"{place}/")), key=len)]


@dataclass(frozen=True, slots=True)
class Run:
    """One thing to run: its name in the record, and the command."""

    name: str
    command: tuple[str, ...]


def _pytest(marks: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "pytest", "-m", marks, *arguments)


def group_run(name: str) -> Run:
    group = GROUPS[name]
    if name in ("iam", "pulsar"):  # what these need is made by their own targets
        return Run(f"group {name}", ("make", f"test-{name}"))
    others = sorted({place for other in GROUPS.values() for place in other.tests if place not in group.tests})
    inner = [f"--ignore={place}" for place in others if any(place.startswith(f"{own}/") for own in group.tests)]
    return Run(f"group {name}", _pytest("not soak and not pulsar", *_WORKERS, *inner, *group.tests))


def slices(record: dict[str, Any]) -> list[Run]:
    """Return the slices of the record: one that failed first, then the one that has waited longest."""
    names = [name for name in record if not name.startswith("group ")]
    names.sort(key=lambda name: (record[name].get("result") != "failed", record[name].get("date", ""), name))
    return [_slice(name) for name in names]


def _slice(name: str) -> Run:
    if name.startswith("mutants "):
        _, listing, number = name.split()
        names = [each.name for each in all_mutants() if each.name.startswith(f"{listing}-")]
        chosen = names[int(number) * _MUTANTS : (int(number) + 1) * _MUTANTS]
        return Run(name, (sys.executable, "-m", "tests.mutants", "--exactly", *chosen))
    return Run(name, _pytest("soak", name))


def listed() -> list[str]:
    """Return the names of all slices: the tests of the soak, and the mutants."""
    command = _pytest("soak", "--collect-only", "-q", "tests")
    shown = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=True).stdout
    soak = [line for line in shown.splitlines() if "::" in line]
    counts: dict[str, int] = {}
    for mutant in all_mutants():
        listing = mutant.name.partition("-")[0]
        counts[listing] = counts.get(listing, 0) + 1
    return soak + [f"mutants {name} {each}" for name, count in counts.items() for each in range(-(-count // _MUTANTS))]


def read_record() -> dict[str, Any]:
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def write_record(record: dict[str, Any]) -> None:
    RECORD.write_text(json.dumps(dict(sorted(record.items())), indent=1) + "\n")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a run that takes too long as Ctrl-C would, so that pytest closes the servers and clusters of its fixtures."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        process.kill()


def run(chosen: Run) -> bool:
    """Run it, put what it did into the record, and return whether it passed. Two threads may run two at a time."""
    print(f"\n-- {chosen.name}", flush=True)
    report_file = REPORT.with_stem(f"{REPORT.stem}-{threading.get_ident()}")
    report_file.unlink(missing_ok=True)
    began, commit = time.monotonic(), _commit()
    variables = {"TESTS_REPORT": str(report_file)}
    if chosen.name.startswith("group "):
        variables["SEGLOG_TEST_SEED"] = "30"
    # A session of its own, so that Ctrl-C reaches it by `_end` alone: one that it breaks off has not failed.
    with subprocess.Popen(chosen.command, cwd=_ROOT, env=os.environ | variables, start_new_session=True) as process:
        _running.add(process)
        try:
            result = "passed" if process.wait(LONGEST_S) == 0 else "failed"
        except subprocess.TimeoutExpired:
            result = "failed"
            _end(process)
        except KeyboardInterrupt:
            _end(process)
            raise
        finally:
            _running.discard(process)
    if _is_stopped.is_set():
        return False
    report = json.loads(report_file.read_text()) if report_file.exists() else {}
    report_file.unlink(missing_ok=True)
    seconds = round(time.monotonic() - began)
    date = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    with _recording:
        outcome = {"commit": commit, "date": date, "seconds": seconds, "result": result, **report}
        write_record(read_record() | {chosen.name: outcome})
    print(f"-- {chosen.name}: {result} in {seconds} s", flush=True)
    return result == "passed"


def nightly(waiting: Sequence[Run], end_s: float) -> bool:
    """Run each of them once until `end_s`, of the monotonic clock, and return whether all passed.

    Ctrl-C ends it as well, and those under way, which leave no result.
    """

    def run_in_time(chosen: Run) -> bool:
        return time.monotonic() >= end_s or run(chosen)

    has_passed = True
    for are_mutants, those in groupby(waiting, lambda each: each.name.startswith("mutants ")):
        lanes = ThreadPoolExecutor(1 if are_mutants else 2)
        try:
            has_passed &= all([*lanes.map(run_in_time, those)])
        except KeyboardInterrupt:
            _is_stopped.set()
            for process in tuple(_running):
                _end(process)
            return False
        finally:
            lanes.shutdown(cancel_futures=True)
    return has_passed


def _commit() -> str:
    """Return the commit, with `-dirty` if a file has changed since, other than the record."""
    commit = _git("rev-parse", "--short=10", "HEAD").strip()
    return commit + ("-dirty" if _git("status", "--porcelain", "--", ".", ":!tests/last_run.json") else "")


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=_ROOT, capture_output=True, text=True, check=True).stdout


def _due() -> Iterator[str]:
    """Yield the groups that have not passed since a part of theirs changed."""
    record = read_record()
    for name in GROUPS:
        last = record.get(f"group {name}", {})
        commit = str(last.get("commit", "")).removesuffix("-dirty")
        is_known = last.get("result") == "passed" and bool(
            _git("rev-list", "--max-count=1", "--ignore-missing", commit)
        )
        if not is_known or name in touched(_git("diff", "--name-only", commit).splitlines()):
            yield name


def _bring_up_to_date() -> None:
    record = read_record()
    names = [*listed(), *(f"group {name}" for name in GROUPS)]
    write_record({name: record.get(name, {}) for name in names})
    print(f"{len(names)} groups and slices")


def _show() -> None:
    for name, last in read_record().items():
        shown = "never" if not last else f"{last['date'][:10]} {last['commit']} {last['result']} {last['seconds']} s"
        print(f"{shown:44} {name}")


def main(words: Sequence[str]) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    what, *rest = words or ["show"]
    has_passed = True
    if what == "group":
        for name in rest or GROUPS:
            has_passed &= run(group_run(name))
    elif what == "due":
        for name in [*_due()]:
            has_passed &= run(group_run(name))
    elif what == "slice":
        found = [each for each in slices(read_record()) if not rest or rest[0] in each.name]
        if not found:
            sys.exit(f"no slice has {rest[0]} in its name: `python -m tests.runs` lists them")
        has_passed = run(found[0])
    elif what == "nightly":
        end = time.monotonic() + 60 * float(rest[0]) if rest else float("inf")
        has_passed = nightly(slices(read_record()), end)
    elif what == "list":
        _bring_up_to_date()
    else:
        _show()
    return 0 if has_passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
