"""An HTTP server whose answers a test decides, request by request."""

from __future__ import annotations

import http.server
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType

__all__ = ["Answer", "AnsweringServer", "Asked"]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request. `headers` takes names in any case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer. If `length` announces more bytes than the body has, the connection ends after the body."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int | None = None


class AnsweringServer:
    """A context manager that listens on `url`. `decide` returns the answer to a request, or None for a reset."""

    def __init__(self, decide: Callable[[Asked], Answer | None], tls: ssl.SSLContext | None = None) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # an answer is two writes, and the second would wait for 40 ms

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                answer = decide(Asked(self.command, self.path, self.headers, body))
                if answer is None:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self.send_response(answer.status)
                for name, text in answer.headers.items():
                    self.send_header(name, text)
                self.send_header("Content-Length", str(len(answer.body) if answer.length is None else answer.length))
                self.end_headers()
                if self.command != "HEAD":
                    with suppress(ConnectionError):  # the client has left
                        self.wfile.write(answer.body)
                    self.close_connection |= answer.length is not None

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer  # noqa: N815 - names of the base class

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def __enter__(self) -> AnsweringServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
