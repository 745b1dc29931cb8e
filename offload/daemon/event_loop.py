"""The event loop of the daemon: uvloop if it is installed, and otherwise the loop of asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["EventLoop", "event_loop"]


class EventLoop(NamedTuple):
    """The name of a kind of loop, for people, and the call that makes one."""

    name: str
    make: Callable[[], asyncio.AbstractEventLoop]


def event_loop() -> EventLoop:
    """Return the kind of loop for this machine. uvloop is an extra: `pip install 'seglog[uvloop]'`."""
    try:
        import uvloop
    except ImportError:
        return EventLoop("asyncio", asyncio.new_event_loop)
    return EventLoop("uvloop", uvloop.new_event_loop)
