"""Raise an interrupt at a chosen point of a run.

A point is a place where the interpreter looks for signals, so that a handler may raise. The interpreter looks when a
function begins, after a call, and when a loop turns. `points` counts the points that a run has in the given modules.
`interrupted` raises `KeyboardInterrupt` at the nth point. `handled` calls a handler at the nth point instead. Only
points of the calling thread count, as with signals. Without `entries`, the beginning of a function is no point.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

__all__ = ["handled", "interrupted", "points"]


def points(work: Callable[[], object], modules: tuple[str, ...]) -> int:
    """Run `work` and return its number of points."""
    tracer = _Tracer(modules, 0, _interrupt)
    tracer.run(work)
    return tracer.passed


def interrupted(work: Callable[[], object], modules: tuple[str, ...], at: int, *, entries: bool = True) -> bool:
    """Return True if `work` was interrupted at point `at`, counted from 1. Return False if the run has fewer points.

    Any other exception of `work` propagates.
    """
    try:
        _Tracer(modules, at, _interrupt, entries=entries).run(work)
    except KeyboardInterrupt:
        return True
    return False


def handled(work: Callable[[], object], modules: tuple[str, ...], at: int, handler: Callable[[], object]) -> None:
    """Run `work` and call `handler` at that point. Exceptions of both propagate; the handler's pass through `work`."""
    _Tracer(modules, at, handler).run(work)


def _interrupt() -> None:
    raise KeyboardInterrupt


class _Tracer:
    def __init__(
        self, modules: tuple[str, ...], at: int, handler: Callable[[], object], *, entries: bool = True
    ) -> None:
        self._handler = handler
        self._entries = entries
        self.passed = 0
        self._modules = modules
        self._at = at
        self._last: dict[FrameType, int] = {}

    def run(self, work: Callable[[], object]) -> None:
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            work()
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        if frame.f_globals.get("__name__") not in self._modules:
            return None
        frame.f_trace = self._step  # Python 3.13 traces instructions only of a frame that has its function already
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return self._step

    def _step(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event in ("return", "exception"):  # the interpreter looks for no signals after a call that raised
            self._last.pop(frame, None)
        if event == "opcode":
            last, self._last[frame] = self._last.get(frame), frame.f_lasti
            if last is not None and last in _points(frame.f_code, entries=self._entries):
                self.passed += 1
                if self.passed == self._at:
                    self._handler()
        return self._step


@functools.cache
def _points(code: CodeType, *, entries: bool) -> frozenset[int]:
    """Return the offsets of the instructions after which the interpreter looks for signals."""
    return frozenset(
        each.offset
        for each in dis.get_instructions(code)
        if (entries and each.opname == "RESUME") or each.opname.startswith(("CALL", "JUMP_BACKWARD"))
    )
