"""The progress of a job: rounds of work on executors, and the state from which the next run continues.

After each round, the driver puts the finished units on record in a directory. Executors never see it:

    <directory>/<job>.jsonl
    first line    the facts of the job, such as the remote, and the version of seglog: they are the same in every run
    other lines   [key, value]: a finished unit of work, and what it gave

ROUND-1  A task takes units up to a number of bytes, or one unit. So many small objects make one task.
ROUND-2  A round has several tasks for each core, so that a slow task seldom makes the other cores wait.
ROUND-3  An error of seglog ends the job, with its own class and exit code. For all other errors, Spark tries the task
    again. The rounds before the error are on record.
STATE-1  A line is on the disk before the job begins the next round. A killed run loses the work of one round.
STATE-2  A last line that a kill cut does not count. The next run removes it.
STATE-3  One run at a time has the file. It holds a lock, which ends with the process.
STATE-4  A job without a directory keeps its state in memory, so each run does all of the work.
STATE-5  Only the version of seglog that wrote a state goes on from it, because some results are pickled.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, TypeVar

from offload.errors import InvalidOption
from offload.format.labels import software_version
from offload.worker.channel import CarriedError
from seglog.errors import SeglogError

TASK_BYTES = 256 * 1024 * 1024
_TASKS_A_CORE = 4

U = TypeVar("U")
R = TypeVar("R")
Directory: TypeAlias = str | os.PathLike[str]


def in_rounds(
    spark: Any, units: Iterable[U], work: Callable[[U], R], size_bytes: Callable[[U], int], task_bytes: int
) -> Iterator[list[tuple[U, R]]]:
    """Yield the units of each round with what `work` returned for them, in order.

    Spark pickles `work`, the units and the results. Raises what `work` raises.
    """
    tasks = list(_tasks(units, size_bytes, task_bytes))
    if not tasks:
        return
    context = spark.sparkContext
    at_a_time = _TASKS_A_CORE * max(context.defaultParallelism, 1)
    for start in range(0, len(tasks), at_a_time):
        some = tasks[start : start + at_a_time]
        found = context.parallelize(some, len(some)).map(functools.partial(_each, work)).collect()
        for results in found:
            if isinstance(results, CarriedError):
                raise results.error()
        yield [pair for task, results in zip(some, found, strict=True) for pair in zip(task, results, strict=True)]


def _tasks(units: Iterable[U], size_bytes: Callable[[U], int], task_bytes: int) -> Iterator[list[U]]:
    task: list[U] = []
    used = 0
    for unit in units:
        size = size_bytes(unit)
        if task and used + size > task_bytes:
            yield task
            task, used = [], 0
        task.append(unit)
        used += size
    if task:
        yield task


def _each(work: Callable[[U], R], units: Sequence[U]) -> list[R] | CarriedError:
    try:
        return [work(unit) for unit in units]
    except SeglogError as error:
        return CarriedError.of(error)


class JobState:
    """The finished units of a job, by key. `done` has what each gave."""

    def __init__(self, file: BinaryIO | None, done: dict[str, Any]) -> None:
        self._file = file
        self.done = done

    def add(self, finished: Mapping[str, Any]) -> None:
        """Put units on record. The values are JSON."""
        self.done.update(finished)
        if self._file is not None and finished:
            self._file.write(b"".join(_line(item) for item in finished.items()))
            self._file.flush()
            os.fsync(self._file.fileno())


@contextmanager
def job_state(directory: Directory | None, job: str, facts: Mapping[str, Any]) -> Iterator[JobState]:
    """Open the state of a job, with the work of earlier runs.

    Raises `InvalidOption` if the state has other facts, is damaged, or another run has it open.
    """
    if directory is None:
        yield JobState(None, {})
        return
    path = Path(directory) / f"{job}.jsonl"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b")
    except OSError as error:
        raise InvalidOption("state", f"{path} cannot be opened: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InvalidOption("state", f"another run has {path} open", hint="wait until it has ended") from None
        yield JobState(file, _known(file, path, {"seglog": software_version(), **facts}))


def _known(file: BinaryIO, path: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the finished units. Write the facts if the file is new."""
    file.seek(0)
    body = file.read()
    whole = body[: body.rfind(b"\n") + 1]
    file.truncate(len(whole))
    hint = "name another directory, or delete the file to begin anew"
    try:
        found, *rest = [json.loads(line) for line in whole.splitlines()] or [facts]
        done = {str(key): value for key, value in rest}
    except ValueError as error:
        raise InvalidOption("state", f"{path} is damaged: {error}", hint=hint) from error
    if found != facts:
        raise InvalidOption("state", f"{path} belongs to a job with {_line(found).decode().strip()}", hint=hint)
    if not whole:
        file.write(_line(facts))
    return done


def _line(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode() + b"\n"
