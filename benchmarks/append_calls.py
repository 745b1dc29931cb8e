"""Counts the function calls of appends: of one appender, of batches, and of asyncio tasks in the thread of their loop.

A count is exact, and the same on every machine. It covers Python functions, generator steps and built-in functions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import seglog
from benchmarks.calls import count_calls
from benchmarks.idle import Idle
from seglog import ProducerBatch, aio

__all__ = ["AIMS", "calls_of_a_batch", "calls_of_a_key", "calls_of_a_producer", "calls_of_a_task"]

#: The most calls for each record that are wanted: of a lone append, of one of a producer or under a key, of batches, of
#: the lines of a text, and of tasks.
AIMS = {"alone": 45, "producer": 79, "key": 99, "batch": 4, "lines": 0.1, "tasks": 10}

_FEW_ROUNDS, _MANY_ROUNDS = 3, 13


def calls_of_a_batch(directory: Path, values: Sequence[bytes]) -> float:
    """Return the calls of one append of `values` at `fsync`, for each record."""
    with seglog.open(directory, upkeep=Idle) as log:
        append = partial(log.topic("bench").append, values)
        for _ in range(3):
            append()
        return count_calls(append) / len(values)


def calls_of_a_producer(directory: Path, value: bytes) -> float:
    """Return the calls of one append of a producer at `fsync`, which has five batches already."""
    with seglog.open(directory, upkeep=Idle) as log:
        batches = [ProducerBatch("bench", 0, number) for number in range(6)]
        for batch in batches[:5]:
            log.topic("bench").append([value], producer=batch)
        return count_calls(partial(log.topic("bench").append, [value], producer=batches[5]))


def calls_of_a_key(directory: Path, value: bytes) -> float:
    """Return the calls of one append under a key at `fsync`."""
    with seglog.open(directory, upkeep=Idle) as log:
        for number in range(3):
            log.topic("bench").append([value], key=f"{number}")
        return count_calls(partial(log.topic("bench").append, [value], key="3"))


def calls_of_a_task(directory: Path, tasks: int, value: bytes) -> float:
    """Return the calls for each record in the loop's thread, if each of `tasks` appends one record after the other.

    The calls of asyncio itself count too, and those of the end of each task do not.
    """
    with asyncio.Runner() as runner:
        log = runner.run(aio.open(directory, upkeep=Idle).__aenter__())
        topic = log.topic("bench")

        async def append(rounds: int) -> None:
            for _ in range(rounds):
                await topic.append([value])

        async def append_together(rounds: int) -> None:
            await asyncio.gather(*[append(rounds) for _ in range(tasks)])

        runner.run(append_together(1))
        few, many = [
            count_calls(partial(runner.run, append_together(rounds))) for rounds in (_FEW_ROUNDS, _MANY_ROUNDS)
        ]
        runner.run(log.close())
    return (many - few) / (_MANY_ROUNDS - _FEW_ROUNDS) / tasks
