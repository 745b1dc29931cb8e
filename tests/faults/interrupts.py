"""An interrupt at a chosen point of a run: where the interpreter looks for signals, and so a handler may raise.

That is when a function begins, after a call, and when a loop turns. `points` counts how many of those a run has in the
modules given, `interrupted` raises `KeyboardInterrupt` at the n-th. Of the thread that calls, as with signals.
`handled` calls a handler at the n-th point instead.
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
    """How many there are; `work` is done."""
    tracer = _Tracer(modules, 0, _interrupt)
    tracer.run(work)
    return tracer.passed


def interrupted(work: Callable[[], object], modules: tuple[str, ...], at: int) -> bool:
    """Whether `work` was interrupted at that point, from 1; not if it has fewer. What else it raises comes out."""
    try:
        _Tracer(modules, at, _interrupt).run(work)
    except KeyboardInterrupt:
        return True
    return False


def handled(work: Callable[[], object], modules: tuple[str, ...], at: int, handler: Callable[[], object]) -> None:
    """Do `work`, and call `handler` at that point. What either raises comes out, the handler's through the work."""
    _Tracer(modules, at, handler).run(work)


def _interrupt() -> None:
    raise KeyboardInterrupt


class _Tracer:
    def __init__(self, modules: tuple[str, ...], at: int, handler: Callable[[], object]) -> None:
        self._handler = handler
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
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._step

    def _step(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "return":
            self._last.pop(frame, None)
        if event == "opcode":
            last, self._last[frame] = self._last.get(frame), frame.f_lasti
            if last is not None and last in _points(frame.f_code):
                self.passed += 1
                if self.passed == self._at:
                    self._handler()
        return self._step


@functools.cache
def _points(code: CodeType) -> frozenset[int]:
    """Offsets of the instructions after which the interpreter looks."""
    return frozenset(
        each.offset
        for each in dis.get_instructions(code)
        if each.opname == "RESUME" or each.opname.startswith(("CALL", "JUMP_BACKWARD"))
    )
