"""A TCP proxy before a daemon that cuts, delays and repeats requests, each before or after its effect.

The proxy reads one whole request at a time from a client, and does what `plan` says for it:

    pass       the daemon gets the request, and the client the answer
    refuse     the client's connection ends; the daemon gets nothing
    half       the daemon gets half the request, and then both connections end
    lose       the daemon gets the request and answers, and the client's connection ends without the answer
    cut        the client gets half of the answer
    again      the daemon gets the request twice, one after the other; the client gets the first answer
    twice      the same, and the client gets the second answer
    late       the daemon gets the request after the next one that passes
    busy       the daemon gets nothing, and the client an answer 429 with Retry-After
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

__all__ = ["FATES", "CuttingProxy", "proxied"]

FATES = ("pass", "refuse", "half", "lose", "cut", "again", "twice", "late", "busy")
_WAIT_S = 60
_BUSY = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0\r\nContent-Length: 17\r\n\r\n" + b'{"title": "Busy"}'


class CuttingProxy:
    """The proxy. `plan` gets the number of each POST, from 0, and returns its fate. Other requests pass."""

    def __init__(self, target: Callable[[], int], plan: Callable[[int], str]) -> None:
        self._target = target
        self._plan = plan
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._passed = threading.Condition(self._lock)
        self._number = 0
        self._passes = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._threads: list[threading.Thread] = []
        self._is_closed = False
        self._start(self._accept)

    def close(self) -> None:
        self._is_closed = True
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=_WAIT_S):
            pass
        with self._passed:
            self._passed.notify_all()
        for each in self._threads:
            each.join(_WAIT_S)
        self._listener.close()

    def _start(self, work: Callable[..., None], *given: object) -> None:
        thread = threading.Thread(target=work, args=given, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._is_closed:
            client, _ = self._listener.accept()
            self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        client.settimeout(_WAIT_S)
        with closing(client), contextlib.suppress(OSError, ValueError):
            while not self._is_closed:
                message = _message(client)
                if message is None or not self._handle(client, message):
                    return

    def _handle(self, client: socket.socket, message: bytes) -> bool:
        """Do with a request what the plan says. Return whether the connection continues."""
        fate = "pass"
        if message.startswith(b"POST"):
            with self._lock:
                fate = self._plan(self._number)
                self._number += 1
                self.counts[fate] += 1
        if fate == "refuse":
            return False
        if fate == "busy":
            client.sendall(_BUSY)
            return True
        if fate == "late":
            with self._passed:
                passes = self._passes
                self._passed.wait_for(lambda: self._passes > passes or self._is_closed, 0.05)
        sent = message[: len(message) // 2] if fate == "half" else message
        answers = [self._ask(sent, is_whole=fate != "half") for _ in range(2 if fate in ("again", "twice") else 1)]
        with self._passed:
            self._passes += 1
            self._passed.notify_all()
        answer = answers[-1 if fate == "twice" else 0]
        if fate in ("half", "lose"):
            return False
        client.sendall(answer[: len(answer) // 2] if fate == "cut" else answer)
        return fate != "cut" and bool(answer)

    def _ask(self, message: bytes, *, is_whole: bool) -> bytes:
        """Send a request to the daemon, and return its answer; nothing if there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self._target()), timeout=_WAIT_S) as daemon:
                daemon.sendall(message)
                return (_message(daemon) or b"") if is_whole else b""
        except OSError:
            return b""


def _message(source: socket.socket) -> bytes | None:
    """Return one whole message of HTTP, or None at the end of the connection."""
    head = b""
    while b"\r\n\r\n" not in head:
        piece = source.recv(65536)
        if not piece:
            return None
        head += piece
    begin = head.index(b"\r\n\r\n") + 4
    found = re.search(rb"content-length: *(\d+)", head[:begin], re.IGNORECASE)
    wanted = begin + (int(found[1]) if found else 0)
    while len(head) < wanted:
        piece = source.recv(65536)
        if not piece:
            return None
        head += piece
    return head


@contextmanager
def proxied(target: Callable[[], int], plan: Callable[[int], str]) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(target, plan)
    try:
        yield proxy
    finally:
        proxy.close()


class Leak:
    """A proxy that passes bytes on, and cuts each connection after `limit` bytes of answers."""

    def __init__(self, target: int, limit: int) -> None:
        self._target = target
        self._limit = limit
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._is_closed = False
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> Leak:
        return self

    def __exit__(self, *_told: object) -> None:
        self._is_closed = True
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=_WAIT_S):
            pass
        self._thread.join(_WAIT_S)
        self._listener.close()

    def _accept(self) -> None:
        while not self._is_closed:
            client, _ = self._listener.accept()
            self.connections += 1
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        client.settimeout(_WAIT_S)
        address = ("127.0.0.1", self._target)
        with contextlib.suppress(OSError), closing(client), socket.create_connection(address, _WAIT_S) as daemon:
            threading.Thread(target=self._requests, args=(client, daemon), daemon=True).start()
            left = self._limit
            while left and (piece := daemon.recv(min(left, 65536))):
                client.sendall(piece)
                left -= len(piece)
            for each in (client, daemon):  # a close alone would wait for the other thread
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _requests(self, client: socket.socket, daemon: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := client.recv(65536):
                daemon.sendall(piece)
            daemon.shutdown(socket.SHUT_WR)
