"""Sockets that look at the time left for their command before each step (catalog.objects.store_timeout).

WATCH-1  Also a body is sent in slices. Python gives the whole of one `sendall` the time limit of the connection, so a
    part of 64 MiB over a slow line would never get through.
"""

from __future__ import annotations

import io
import socket
from typing import Any

from catalog.objects.store_timeout import this_call

_SLICE_BYTES = 64 * 1024


class _Limit:
    """A context in which a step of a socket takes no longer than what is left for the command of this thread."""

    __slots__ = ("_call", "_former_s", "_socket")

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened
        self._call = this_call()
        self._former_s: float | None = None

    def __enter__(self) -> _Limit:
        if self._call is not None:
            left_s, former_s = self._call.left_s(), self._socket.gettimeout()
            if left_s <= 0:
                raise TimeoutError("timed out")
            if former_s is None or left_s < former_s:
                self._former_s = former_s
                self._socket.settimeout(left_s)
        return self

    def moved(self, count: int) -> None:
        if self._call is not None:
            self._call.moved(count)

    def __exit__(self, *_: object) -> None:
        if self._former_s is not None and self._socket.fileno() >= 0:
            self._socket.settimeout(self._former_s)


class _Reading(socket.SocketIO):
    def readinto(self, buffer: Any) -> int | None:
        with _Limit(self._sock) as limit:  # type: ignore[attr-defined]  # of the base class
            count = super().readinto(buffer)
            limit.moved(count or 0)
            return count


class WatchedSocket:
    """A socket whose steps look at the time that is left."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened, name)

    def sendall(self, data: Any, flags: int = 0) -> None:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), _SLICE_BYTES):
            part = view[start : start + _SLICE_BYTES]
            with _Limit(self._opened) as limit:
                self._opened.sendall(part, flags) if flags else self._opened.sendall(part)
                limit.moved(len(part))

    def makefile(self, mode: str, buffering: int = -1) -> io.RawIOBase | io.BufferedReader:
        assert mode == "rb"  # noqa: S101 - http.client asks for nothing else
        self._opened._io_refs += 1  # noqa: SLF001 - as `socket.makefile` does: the file keeps the socket open
        raw = _Reading(self._opened, "r")
        return io.BufferedReader(raw) if buffering else raw


class Watched:
    """A connection of urllib3, by inheritance, whose socket is a watched one."""

    sock: Any

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]  # of the connection
        self.sock = WatchedSocket(self.sock)
