"""Messages between a process and its worker: Python values, and descriptors of open files beside them.

    offset  size  field
    0       4     length of the body, big-endian
    4       1     number of descriptors that come with it
    5       ...   body: the value, pickled

A channel connects two processes of one program on one machine. Its bytes are never stored.
"""

from __future__ import annotations

import pickle
import select
import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any

__all__ = ["Channel"]

_HEADER = struct.Struct(">IB")
_MAX_DESCRIPTORS = 2


class Channel:
    """One end of a channel. Any thread may send, but only one receives. `EOFError` means that the other end is gone."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._lock = threading.Lock()

    def send(self, message: Any, descriptors: Sequence[int] = ()) -> None:
        """Send `message`. The other end gets descriptors of its own for the same files. Raises `EOFError`."""
        body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        with self._lock:
            try:
                socket.send_fds(self._socket, [_HEADER.pack(len(body), len(descriptors))], descriptors)
                self._socket.sendall(body)
            except OSError as error:
                raise EOFError from error

    def wait(self, seconds: float) -> bool:
        """Return whether something to receive comes within `seconds`. The end of the channel counts as something."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def receive(self) -> tuple[Any, tuple[int, ...]]:
        """Return the next message, and the descriptors that came with it. Raises `EOFError`."""
        try:
            head, descriptors, _, _ = socket.recv_fds(self._socket, _HEADER.size, _MAX_DESCRIPTORS)
            if not head:
                raise EOFError
            head += self._read(_HEADER.size - len(head))
            length, _ = _HEADER.unpack(head)
            return pickle.loads(self._read(length)), tuple(descriptors)  # noqa: S301 - from our own process
        except OSError as error:
            raise EOFError from error

    def close(self) -> None:
        self._socket.close()

    def _read(self, length: int) -> bytes:
        body = bytearray(length)
        view, done = memoryview(body), 0
        while done < length:
            count = self._socket.recv_into(view[done:])
            if not count:
                raise EOFError
            done += count
        return bytes(body)
