"""Work on executors, in rounds. After each round, the driver puts the finished units on record.

ROUND-1  A task takes units up to a number of bytes, or one unit. So many small objects make one task.
ROUND-2  A round has several tasks for each core, so that a slow task seldom makes the other cores wait.
ROUND-3  An error of seglog ends the job, with its own class and exit code. For all other errors, Spark tries the task
    again. The rounds before the error are on record.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from offload.worker.channel import CarriedError
from seglog.errors import SeglogError

__all__ = ["TASK_BYTES", "in_rounds"]

TASK_BYTES = 256 * 1024 * 1024
_TASKS_A_CORE = 4

U = TypeVar("U")
R = TypeVar("R")


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
