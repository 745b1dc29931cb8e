"""Messages between a process and its worker: Python values, and descriptors of open files beside them.

    offset  size  field
    0       4     length of the body, big-endian
    4       1     number of descriptors that come with it
    5       ...   body: the value, pickled

A channel connects two processes of one program on one machine. Its bytes are never stored.

A `CarriedError` is an error on its way to another process, which raises it with its class and all its fields.
"""

from __future__ import annotations

import pickle
import select
import socket
import struct
import threading
import traceback
from collections.abc import Sequence
from typing import Any

from offload.errors import OffloadError
from seglog.base.dataclasses import dataclass
from seglog.base.errors import Unavailable

_HEADER = struct.Struct(">IB")
_MAX_DESCRIPTORS = 2


class WorkerFailed(Unavailable, OffloadError):
    """The upload process failed, ended or does not run."""


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


@dataclass(frozen=True, slots=True)
class CarriedError:
    """An error as plain values.

    `body` is the pickled class, arguments and fields, or None if they cannot be pickled. `text` is the traceback.
    """

    text: str
    body: bytes | None

    @classmethod
    def of(cls, error: BaseException) -> CarriedError:
        text = "".join(traceback.format_exception(error))
        try:
            # Do not pickle the error itself: pickle would call the class with a message, and ours take other arguments.
            body = pickle.dumps((type(error), error.__reduce__()[1], error.args, error.__dict__))
            pickle.loads(body)  # noqa: S301 - what was pickled a line above
        except Exception:
            return cls(text, None)
        return cls(text, body)

    def error(self) -> BaseException:
        if self.body is None:
            return WorkerFailed(f"the upload process failed: {self.text}")
        kind, new_arguments, arguments, fields = pickle.loads(self.body)  # noqa: S301 - from our own process
        error: BaseException = kind.__new__(kind, *new_arguments)
        error.args = arguments
        error.__dict__.update(fields)
        error.add_note(f"in the process that uploads:\n{self.text}")
        return error
