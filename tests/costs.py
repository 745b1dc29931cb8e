"""What each test costs: seconds of CPU and of the clock, and which processes it starts.

Each run writes the sums to build/durations.json. CPU time counts the test's process and all that came from it: daemons,
servers, JVMs. Times are noisy, so nothing fails by them: `python -m tests.costs` only names the files that grew since
tests/durations.json. The numbers of processes are exact, so a run of `make test` fails above `BOUNDS`. Who adds a test
above a bound marks it `long`, or raises the bound and says why.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.runs import REPORT

__all__ = ["BOUNDS", "COST", "above_bounds", "begin", "cost", "saw_start", "starts", "write"]

COST = "cost"  # The name of the report property that has the cost of a test.

#: How many tests of `make test` may start a process of each kind. A follower of a file counts as a daemon.
BOUNDS = {"daemon": 143, "jvm": 1, "process": 216, "s3 server": 6}

_TICKS = os.sysconf("SC_CLK_TCK")
_started: Counter[str] = Counter()
_began = [0.0, 0.0]
#: The processes that come from this one. To look for them takes longer than many a test, because a JVM has sixty
#: threads and each may have children. So a test of some milliseconds that starts nothing leaves the list as it is.
_alive: list[str] = []
_SHORT_S = 0.1


def begin() -> None:
    """Say that a test begins."""
    _began[:] = _cpu_of_all(), time.monotonic()
    _started.clear()


def cost() -> dict[str, Any]:
    """Return what the test that began last has cost so far."""
    cpu, wall = _began
    if _started or time.monotonic() - wall > _SHORT_S:
        _alive[:] = _descendants(str(os.getpid()))
    return {
        "cpu_s": round(max(0.0, _cpu_of_all() - cpu), 3),
        "wall_s": round(time.monotonic() - wall, 3),
        "started": dict(_started),
    }


def saw_start(kind: str) -> None:
    """Count a process that no hook of Python sees, such as a daemon that a forge forks."""
    _started[kind] += 1


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen":
        _started[_kind_of([os.fsdecode(each) for each in _words(arguments[1])])] += 1
    elif event == "os.fork":
        _started["process"] += 1


def _words(command: object) -> Iterable[Any]:
    return [command] if isinstance(command, str | bytes | os.PathLike) else command  # type: ignore[return-value]


def _kind_of(words: list[str]) -> str:
    name, text = Path(words[0]).name, " ".join(words)
    if name == "java" or name.startswith("spark"):
        return "jvm"
    if name == "minio" or "s3_server" in text:
        return "s3 server"
    return "daemon" if "serve" in words else "process"


def _cpu_of_all() -> float:
    """Return the CPU seconds of this process, and of all that came from it: those that ended, and those in `_alive`."""
    return sum(os.times()[:4]) + sum(map(_cpu_of, _alive))


def _cpu_of(pid: str) -> float:
    """Return the CPU seconds of a process and of its children that ended."""
    fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return sum(int(each) for each in fields[11:15]) / _TICKS


def _descendants(pid: str) -> Iterator[str]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    for thread in threads:
        for child in _text(f"/proc/{pid}/task/{thread}/children").split():
            yield child
            yield from _descendants(child)


def _text(path: str) -> str:
    """Return a file of the kernel; nothing if its process is gone. A `Path` and a stream would cost as much again."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return os.read(fd, 1 << 16).decode()
    except OSError:
        return ""
    finally:
        os.close(fd)


def starts(spent: dict[str, dict[str, Any]]) -> Counter[str]:
    """Return how many tests start a process, of each kind."""
    return Counter(f"tests that start a {kind}" for each in spent.values() for kind in each["started"])


def above_bounds(spent: dict[str, dict[str, Any]]) -> list[str]:
    """Return a line for each kind of process that too many tests of `make test` start."""
    counts = starts(spent)
    return [
        f"{number} {what}, and {BOUNDS[kind]} may: mark one `long`, or raise tests/costs.py:BOUNDS and say why"
        for kind in BOUNDS
        if (number := counts[what := f"tests that start a {kind}"]) > BOUNDS[kind]
    ]


def write(spent: dict[str, dict[str, Any]], report: dict[str, Any]) -> None:
    """Write the report of a run, and build/durations.json with each file and the 200 tests that cost most CPU time."""
    if not spent:
        return
    files: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for test, each in spent.items():
        files[test.partition("::")[0]].update(
            {"cpu_s": each["cpu_s"], "wall_s": each["wall_s"], "tests": 1, **each["started"]}
        )
    slowest = sorted(spent, key=lambda test: -spent[test]["cpu_s"])[:200]
    durations = {
        "files": {
            name: {key: round(number, 1) for key, number in sums.items()} for name, sums in sorted(files.items())
        },
        "slowest": {test: spent[test] for test in slowest},
    }
    folder = Path("build")
    folder.mkdir(exist_ok=True)
    (folder / "durations.json").write_text(json.dumps(durations, indent=1) + "\n")
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1) + "\n")


def grown(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return a line for each file of tests that takes at least a second and half as much CPU time again as before."""
    return [
        f"{name}: {old['cpu_s']} s of CPU before, now {new['cpu_s']}"
        for name, new in sorted(after["files"].items())
        if (old := before["files"].get(name)) and new["cpu_s"] > max(1, 1.5 * old["cpu_s"])
    ]


if __name__ == "__main__":
    was, now = (json.loads(Path(name).read_text()) for name in ("tests/durations.json", "build/durations.json"))
    print(*(grown(was, now) or ["no file of tests takes half as much CPU time again"]), sep="\n")
else:
    sys.addaudithook(_audit)
