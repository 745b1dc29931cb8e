"""Commands that get a real signal at a chosen point, each in a process of its own: `python -m tests.faults.signalled`.

A point is a place where the interpreter looks for signals (tests/faults/interrupts.py), in the code of the command, of
its services, of the catalog or of the log. So a run has thousands of points. The process takes requests as lines of
JSON, and answers each with a line. It forks a child for each run, so that the imports happen once.

    request  place, words (the command), signals, points (how many of each), again (the second run; the same command
             without it), looks (the data directory that the answer shows)
    answer   wanted (the state after a run without a signal), and for each run: signal, point, code, err, the second
             run's code and err, and the state after it

A state is the values of each branch: hot and cold together, and as the remote alone shows them. The files of an export
belong to it.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import offload
import seglog
from catalog import MAIN
from offload.main import main
from tests.faults.interrupts import handled, points

__all__ = ["Answer", "Signalled", "signals"]

_ROOT = Path(__file__).parents[2]
_CODE = (
    "catalog.local_catalog",
    "catalog.objects",
    "catalog.refs",
    "catalog.volume",
    "offload.archive",
    "offload.cli.append",
    "offload.cli.execution",
    "offload.cli.export",
    "offload.cli.start",
    "offload.handles",
    "offload.operations.append",
    "offload.operations.branch",
    "offload.operations.export",
    "offload.operations.offload",
    "offload.operations.oplog",
    "offload.operations.restore",
    "offload.recovery",
    "offload.replication",
    "offload.services",
    "offload.write",
    "seglog.maintenance",
    "seglog.wal",
    "seglog.writing",
)
_HANGS_AFTER_S = 120


@dataclass(frozen=True)
class Answer:
    """A run that got a signal at a point, and the run after it. `err` is what the first one said."""

    signal: str
    point: int
    code: int
    err: str
    again: int
    again_err: str
    state: dict[str, list[str]]


Signalled = Callable[..., tuple[dict[str, list[str]], list[Answer]]]


@contextmanager
def signals(directory: Path) -> Iterator[Signalled]:
    """Yield a function that sends a request, and returns the wanted state and the answers."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.faults.signalled"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        pipe, answers = process.stdin, process.stdout

        def ask(**request: Any) -> tuple[dict[str, list[str]], list[Answer]]:
            pipe.write(json.dumps(request).encode() + b"\n")
            pipe.flush()
            found = json.loads(answers.readline())
            return found["wanted"], [Answer(**each) for each in found["answers"]]

        yield ask


def _answer(
    place: str, words: list[str], signals: list[str], points: int, again: list[str] | None = None, looks: str = "data"
) -> dict[str, Any]:
    _in_copy(place)
    count = int(_forked(lambda: print(_points(words)))[1].split()[-1])
    wanted = _state(looks)
    answers = []
    for turn in range(points):
        at = 1 + (2 * turn + 1) * count // (2 * points)
        answers += [asdict(_signalled(place, words, name, at, again or words, looks)) for name in signals]
    return {"wanted": wanted, "answers": answers}


def _signalled(place: str, words: list[str], name: str, at: int, again: list[str], looks: str) -> Answer:
    _in_copy(place)
    code, _, err = _forked(lambda: handled(_run(words), _modules(), at, _sends(name)))
    if "continue with `" in err:  # an append says how to continue
        again = shlex.split(err.partition("continue with `")[2].partition("`")[0])[1:]
    second, _, told = _forked(_run(again))
    return Answer(name, at, code, err, second, told, _state(looks))


def _in_copy(place: str) -> None:
    """Put a copy of the prepared place where the commands look."""
    for each in ("data", "exported", "new", "remote"):
        shutil.rmtree(each, ignore_errors=True)
    shutil.copytree(Path(place, "data"), "data")
    shutil.copytree(Path(place, "remote"), "remote")


def _run(words: list[str]) -> Callable[[], None]:
    def run() -> None:
        sys.argv = ["seglog", "-C", "data", *words]
        main()

    return run


def _points(words: list[str]) -> int:
    """Return the number of points of a run that ends well."""

    def run() -> None:
        try:
            _run(words)()
        except SystemExit as end:
            if end.code:
                raise

    return points(run, _modules())


def _import_all() -> None:
    """Import what a command may need, so that no import counts, and none happens twice."""
    for each in pkgutil.walk_packages(offload.__path__, "offload."):
        if not each.name.startswith(("offload.__", "offload.daemon", "offload.spark", "offload.worker")):
            importlib.import_module(each.name)


def _modules() -> tuple[str, ...]:
    return tuple(name for name in sys.modules if name.startswith(_CODE))


def _sends(name: str) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), signal.Signals[name])


def _forked(act: Callable[[], object]) -> tuple[int, str, str]:
    """Run `act` in a child, and return its exit code, its output and its errors."""
    child = os.fork()
    if not child:
        signal.alarm(_HANGS_AFTER_S)
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        code = 1
        try:
            act()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code, Path("out").read_text(), Path("err").read_text()


def _state(directory: str) -> dict[str, list[str]]:
    found = _forked(lambda: print(json.dumps(_values(directory))))
    assert found[0] == 0, found[2]
    state: dict[str, list[str]] = json.loads(found[1])
    return state


def _values(directory: str) -> dict[str, list[str]]:
    with seglog.open(directory) as log, offload.attach(log, Path("remote").absolute().as_uri()) as archive:
        branches = [each.branch for each in archive.branches.list("t")]
        names = ["t" if branch == MAIN else f"t@{branch}" for branch in branches]
        here = {name: [record.value.decode() for record in archive.read(name)] for name in names}
        there = {f"{name} there": [each.value.decode() for each in archive.read(name, at="head")] for name in names}
        return here | there | _exported()


def _exported() -> dict[str, list[str]]:
    """Return the content of each file of an export, without the manifest, whose times differ from run to run."""
    files = [path for path in sorted(Path("exported").glob("*")) if not path.name.startswith("manifest")]
    return {f"file {path.name}": [path.read_text()] for path in files}


if __name__ == "__main__":
    _import_all()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_answer(**json.loads(line))) + "\n")
        sys.stdout.flush()
