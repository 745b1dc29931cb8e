"""Raise an interrupt at a chosen point of a run.

A point is a place where the interpreter looks for signals, so that a handler may raise. The interpreter looks when a
function begins, after a call, and when a loop turns. `points` counts the points that a run has in the given modules.
`interrupted` raises `KeyboardInterrupt` at the nth point. `handled` calls a handler at the nth point instead. Only
points of the calling thread count, as with signals. Without `entries`, the beginning of a function is no point.

Python 3.11 has `sys.settrace` for this. In 3.12 its first run sees no instruction. In 3.13 a frame of another thread
switches off the points of code that both threads run. So `sys.monitoring` does it there, and finds the same points.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from threading import get_ident
from types import CodeType, FrameType
from typing import Any

__all__ = ["handled", "interrupted", "points"]


def points(work: Callable[[], object], modules: tuple[str, ...]) -> int:
    """Run `work` and return its number of points."""
    tracer = _Way(modules, 0, _interrupt)
    tracer.run(work)
    return tracer.passed


def interrupted(work: Callable[[], object], modules: tuple[str, ...], at: int, *, entries: bool = True) -> bool:
    """Return True if `work` was interrupted at point `at`, counted from 1. Return False if the run has fewer points.

    Any other exception of `work` propagates.
    """
    try:
        _Way(modules, at, _interrupt, entries=entries).run(work)
    except KeyboardInterrupt:
        return True
    return False


def handled(work: Callable[[], object], modules: tuple[str, ...], at: int, handler: Callable[[], object]) -> None:
    """Run `work` and call `handler` at that point. Exceptions of both propagate; the handler's pass through `work`."""
    _Way(modules, at, handler).run(work)


def _interrupt() -> None:
    raise KeyboardInterrupt


class _Tracer:
    def __init__(
        self, modules: tuple[str, ...], at: int, handler: Callable[[], object], *, entries: bool = True
    ) -> None:
        self._handler = handler
        self._entries = entries
        self.passed = 0
        assert all(map(find_spec, modules)), modules  # else the run would pass points that it should have
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
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        return self._step

    def _step(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event in ("return", "exception"):  # the interpreter looks for no signals after a call that raised
            self._last.pop(frame, None)
        if event == "opcode":
            last, self._last[frame] = self._last.get(frame), frame.f_lasti
            if last is not None and last in _points(frame.f_code, entries=self._entries):
                self._pass()
        return self._step

    def _pass(self) -> None:
        self.passed += 1
        if self.passed == self._at:
            self._handler()


class _Monitor(_Tracer):
    """The same with `sys.monitoring`, whose events come from all threads. What the handler runs has no points."""

    def run(self, work: Callable[[], object]) -> None:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        events, tool = monitoring.events, monitoring.PROFILER_ID
        self._thread, self._codes = get_ident(), set[CodeType]()
        monitoring.use_tool_id(tool, "points")
        callbacks = {
            events.PY_START: self._start,
            events.INSTRUCTION: self._instruction,
            events.PY_RETURN: self._leave,
            events.PY_YIELD: self._leave,
            events.RAISE: self._leave,
        }
        try:
            for event, callback in callbacks.items():
                monitoring.register_callback(tool, event, callback)
            monitoring.restart_events()
            monitoring.set_events(tool, events.PY_START | events.RAISE)
            work()
        finally:
            self._thread = 0
            monitoring.set_events(tool, 0)
            for code in list(self._codes):
                monitoring.set_local_events(tool, code, 0)
            for event in callbacks:
                monitoring.register_callback(tool, event, None)
            monitoring.free_tool_id(tool)

    def _start(self, code: CodeType, _offset: int) -> Any:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        events = monitoring.events
        if sys._getframe(1).f_globals.get("__name__") in self._modules:
            self._codes.add(code)
            wanted = events.INSTRUCTION | events.PY_RETURN | events.PY_YIELD
            with suppress(ValueError):  # another thread, and the run has ended
                monitoring.set_local_events(monitoring.PROFILER_ID, code, wanted)
        return monitoring.DISABLE  # the code has its events now, or needs none

    def _instruction(self, code: CodeType, offset: int) -> None:
        if get_ident() != self._thread:
            return
        frame = sys._getframe(1)
        last, self._last[frame] = self._last.get(frame), offset
        if last is not None and last in _points(code, entries=False):  # `settrace` begins behind it, too
            thread, self._thread = self._thread, 0
            try:
                self._pass()
            finally:
                self._thread = thread

    def _leave(self, _code: CodeType, _offset: int, _value: object) -> None:
        if get_ident() == self._thread:
            self._last.pop(sys._getframe(1), None)


_Way = _Monitor if sys.version_info >= (3, 12) else _Tracer


_LOOKING = frozenset({"CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD"})


@functools.cache
def _points(code: CodeType, *, entries: bool) -> frozenset[int]:
    """Return the offsets of the instructions after which the interpreter looks for signals."""
    return frozenset(
        each.offset
        for each in dis.get_instructions(code)
        if each.opname in _LOOKING or (entries and each.opname == "RESUME")
    )
