"""Spark's writer with a fault, in the processes that Spark starts for it.

fault           what happens
task before     partition 1 fails before it takes a row, at its first attempt
task within     the same, in the middle of its rows
task dies       the same, and its process of Python is killed
task after      the same, when its objects are in the remote
slow task       the first attempt of partition 1 has written its objects, and ends only after another attempt did
killed before   the driver and all that it started are killed before the PUT of the commit
killed after    the same, after the PUT
lost answer     the PUT of the commit has its effect, and its answer is lost
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyspark import TaskContext
from pyspark.sql.types import StructType

from catalog.objects import ObjectStore
from catalog.objects.wrapped import WrappedStore
from offload.spark import stores
from offload.spark.source import PythonDataSource
from offload.spark.writer import LoadMessage, SeglogWriter
from tests.faults.store import lost

__all__ = ["FaultyWriter", "HappenedError", "faulty_source"]

_HIT_PARTITION = 1
_WAITS_S = 300
T = TypeVar("T")


class HappenedError(Exception):
    """The fault of the test."""


def faulty_source(fault: str, place: Path) -> type[PythonDataSource]:
    """Return the source in Python under the name by which the provider in the JVM hands its writes to it.

    Attempts at tasks, and a lost answer, note in the directory `place` what happened.
    """

    class FaultySource(PythonDataSource):
        def writer(self, schema: StructType, overwrite: bool) -> SeglogWriter:
            return FaultyWriter(dict(self.options), schema, overwrite=overwrite, fault=fault, place=place)

    return FaultySource


class FaultyWriter(SeglogWriter):
    def __init__(
        self, options: dict[str, str], schema: StructType, *, overwrite: bool, fault: str, place: Path
    ) -> None:
        super().__init__(options, schema, overwrite=overwrite)
        self._fault = fault
        self._place = place

    def write(self, iterator: Iterator[Any]) -> LoadMessage:
        context = TaskContext.get()
        if context.partitionId() != _HIT_PARTITION or "task" not in self._fault:
            return super().write(iterator)
        attempt = context.attemptNumber()
        (self._place / f"attempt {attempt} began").touch()
        if attempt == 0 and self._fault == "task before":
            raise HappenedError
        message = super().write(iterator if attempt else self._broken(iterator))
        if attempt == 0 and self._fault == "task after":
            raise HappenedError
        if attempt == 0 and self._fault == "slow task":
            self._await_other_attempt()
        (self._place / f"attempt {attempt} ended").touch()
        return message

    def commit(self, messages: list[Any]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            before = stores.open_remote
            patch.setattr(stores, "open_remote", lambda *given: _CommitFault(before(*given), self._fault, self._place))
            super().commit(messages)

    def _broken(self, batches: Iterator[Any]) -> Iterator[Any]:
        yield next(batches)
        if self._fault == "task within":
            raise HappenedError
        if self._fault == "task dies":
            os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    def _await_other_attempt(self) -> None:
        until = time.monotonic() + _WAITS_S
        while not (self._place / "attempt 1 ended").exists():
            assert time.monotonic() < until, "Spark started no other attempt"
            time.sleep(0.05)


class _CommitFault(WrappedStore):
    """A store that meets the fault at the PUT of a commit."""

    def __init__(self, inner: ObjectStore, fault: str, place: Path) -> None:
        super().__init__(inner)
        self._fault = fault
        self._place = place

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        if method != "put_new" or "/log/" not in key:
            return act()
        if self._fault == "killed before":
            _kill_session()
        result = act()
        if self._fault == "killed after":
            _kill_session()
        if self._fault == "lost answer":
            (self._place / "lost answer").touch()
            raise lost(key)
        return result


def _kill_session() -> None:
    """Kill all processes of this session, this one last: the driver, its JVM, and all workers."""
    own, session = os.getpid(), os.getsid(0)
    assert Path(f"/proc/{session}/cmdline").read_bytes().count(b"write_driver"), "the session is the driver's own"
    for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()):
        with suppress(ProcessLookupError):
            if pid != own and os.getsid(pid) == session:
                os.kill(pid, signal.SIGKILL)
    os.kill(own, signal.SIGKILL)
