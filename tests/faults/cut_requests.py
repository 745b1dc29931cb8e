"""A TCP front before a daemon. It passes requests on, and cuts, delays or repeats some of them by a plan.

    fault        the daemon gets the request    the client gets
    before       never                          a reset
    within       half of it, then a reset       a reset
    after        once                           a reset, in place of the answer
    late         after the next request         a reset
    twice        two times in a row             the second answer

Each connection carries one request. The requests are numbered as they come, repetitions too.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from collections.abc import Mapping
from types import TracebackType

__all__ = ["FAULTS", "CuttingFront"]

FAULTS = ("before", "within", "after", "late", "twice")
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_TIMEOUT_S = 60


class CuttingFront:
    """A front, as a context manager. `plan` maps the number of a request to its fault; `passed` counts requests.

    The daemon may be replaced by another one: set `target`.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.plan: Mapping[int, str] = {}
        self.requests = 0
        self.hit: list[str] = []
        self._late: list[bytes] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept)

    @property
    def port(self) -> int:
        port: int = self._listening.getsockname()[1]
        return port

    def begin(self, plan: Mapping[int, str]) -> None:
        """Begin a new script of requests, after all delayed ones of the last script."""
        self._pass_late()
        self.plan, self.requests, self.hit = plan, 0, []

    def __enter__(self) -> CuttingFront:
        self._thread.start()
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(_TIMEOUT_S)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            client.settimeout(_TIMEOUT_S)
            with client:
                self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        request = _message(client)
        fault = self.plan.get(self.requests, "")
        self.requests += 1
        if fault:
            self.hit.append(fault)
        answer = b""
        if fault == "late":
            self._late.append(request)
        elif fault == "within":
            self._send_half(request)
        elif fault != "before":
            answer = self._ask(request)
            self._pass_late()
            if fault == "twice":
                answer = self._ask(request)
        if fault in {"", "twice"}:
            client.sendall(answer)
        else:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)

    def _pass_late(self) -> None:
        late, self._late = self._late, []
        for request in late:
            self._ask(request)

    def _ask(self, request: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.target), timeout=_TIMEOUT_S) as daemon:
            daemon.sendall(request)
            return _message(daemon)

    def _send_half(self, request: bytes) -> None:
        with socket.create_connection(("127.0.0.1", self.target), timeout=_TIMEOUT_S) as daemon:
            with contextlib.suppress(ConnectionError):
                daemon.sendall(request[: -len(request) // 8])
            daemon.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)


def _message(connection: socket.socket) -> bytes:
    """Return a whole request or answer. Its head has a Content-Length."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(connection)
    head, _, _ = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    size_bytes = len(head) + 4 + (int(length[1]) if length else 0)
    while len(data) < size_bytes:
        data += _some(connection)
    return data


def _some(connection: socket.socket) -> bytes:
    data = connection.recv(65_536)
    if not data:
        raise ConnectionError("the other side closed the connection")
    return data
