"""A connection of a client: HTTP/1.1 with time limits, and with an end that loses no request.

    limit                 starts                      the daemon then
    header_timeout_s      at the connection, and      closes the connection
                          after each answer
    body_timeout_s        when the client takes no    aborts the connection, a second after the guard ended the request
                          byte of its answer

A close waits until the client takes the buffered bytes, so an abort follows each close. If a body breaks off, but the
connection can still carry an answer, the guard gets to know (`BROKEN`). So the answer of an append says which records
are in.

CONNECTION-1  When the daemon stops, an idle connection stays open until no byte came for half a second and none waits.
    So the daemon answers a request that the client sent before it saw the end.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from offload.daemon.guard import BROKEN

__all__ = ["Connection"]

_ABORT_AFTER_S = 1
_QUIET_S = 0.5
_LOOK_AGAIN_S = 0.01


class Connection(H11Protocol):
    """The limits and `is_stopping` are attributes of a subclass, one for each listener."""

    header_timeout_s: float
    reader_timeout_s: float
    is_stopping: Callable[[], bool]
    _reader_timer: asyncio.TimerHandle | None = None
    _came_at: float = 0.0
    _is_ending = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._came_at = self.loop.time()
        self._wait_for_headers()
        if self.is_stopping():
            self.shutdown()

    def data_received(self, data: bytes) -> None:
        self._came_at = self.loop.time()
        super().data_received(data)

    def eof_received(self) -> bool:  # type: ignore[override]  # as asyncio has it
        """Keep the connection open for the answer to a body that broke off."""
        return self._breaks_off()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP, unless the request that they break has an answer of its own."""
        if not self._breaks_off():
            super().send_400_response(msg)

    def _breaks_off(self) -> bool:
        """Return whether a request waits for the rest of its body. If so, its body ends here."""
        cycle = self.cycle
        if cycle is None or cycle.response_started or not (cycle.more_body or BROKEN in cycle.scope):
            return False
        cycle.scope[BROKEN] = True  # type: ignore[literal-required]
        cycle.more_body = cycle.keep_alive = False
        cycle.message_event.set()
        return True

    def shutdown(self) -> None:
        """End the connection after the request under way, or once it is quiet (CONNECTION-1)."""
        self._is_ending = True
        if self._is_idle:
            self.loop.call_later(_QUIET_S, self._close_if_quiet)

    def _close_if_quiet(self) -> None:
        if not self._is_idle or self.transport.is_closing():
            return  # the end of the answer calls this again, unless the answer says `Connection: close`
        quiet_s = self.loop.time() - self._came_at
        if quiet_s < _QUIET_S or _waiting_bytes(self.transport):
            self.loop.call_later(max(_QUIET_S - quiet_s, _LOOK_AGAIN_S), self._close_if_quiet)
            return
        self.transport.close()
        self._abort_later()

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_headers()
        if self._is_ending:  # an answer that began before the end did not say `Connection: close`
            self.shutdown()

    def _wait_for_headers(self) -> None:
        before = self.cycle
        self.loop.call_later(self.header_timeout_s, self._close_if_still, before)

    def _close_if_still(self, before: Any) -> None:
        is_idle = before is None or before.response_complete  # else a pipelined request is still at work
        if self.cycle is before and is_idle and not self.transport.is_closing():
            self.transport.close()
            self._abort_later()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._abort_later()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._abort_later()

    def resume_writing(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
        super().resume_writing()

    def _abort_later(self) -> None:
        # The guard's timeout comes first: the guard counts the slow client and ends the request.
        self._reader_timer = self.loop.call_later(self.reader_timeout_s + _ABORT_AFTER_S, self.transport.abort)


def _waiting_bytes(transport: Any) -> int:
    """Return the number of bytes that the kernel holds and the daemon has not read."""
    count = bytearray(4)
    fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.FIONREAD, count)
    return int(struct.unpack("i", count)[0])
