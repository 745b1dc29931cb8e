"""A store over HTTP for the JVM reader's port to bytes. A test chooses its answers."""

from __future__ import annotations

import base64
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.offload.spark.judge import Judge
from tests.s3_server import ACCESS_KEY, REGION, SECRET_KEY

__all__ = [
    "BODY",
    "KEY",
    "Store",
    "body_of",
    "cut",
    "drip",
    "page",
    "read",
    "refuse",
    "reset",
    "serve",
    "shifted",
    "slow",
    "store",
    "whole",
]

BODY = bytes(range(256)) * 40
KEY = "v/segments/an id+1"


class Store:
    """A server that serves the range that was asked for, unless a test chooses its answers.

    `faults` are the next answers, and `always` is each answer after them.
    """

    def __init__(self) -> None:
        self.faults: list[Callable[[BaseHTTPRequestHandler], None]] = []
        self.always: Callable[[BaseHTTPRequestHandler], None] = serve
        self.requests: list[tuple[str, dict[str, str]]] = []
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                store.requests.append((self.path, {name.lower(): text for name, text in self.headers.items()}))
                (store.faults.pop(0) if store.faults else store.always)(self)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


def _range(handler: BaseHTTPRequestHandler) -> tuple[int, int]:
    first, last = handler.headers["range"].removeprefix("bytes=").split("-")
    return int(first), min(int(last), len(BODY) - 1)


def _send(
    handler: BaseHTTPRequestHandler, status: int, body: bytes, *, length: int | None = None, shift: int = 0
) -> None:
    """Send a head and `body`. The head promises `length` bytes, and a 206 names the range, `shift` bytes too late."""
    handler.send_response(status)
    if status == 206:
        first, last = _range(handler)
        handler.send_header("Content-Range", f"bytes {first + shift}-{last + shift}/{len(BODY)}")
    handler.send_header("Content-Length", str(len(body) if length is None else length))
    handler.end_headers()
    handler.wfile.write(body)
    if length is not None:
        handler.close_connection = True


def _asked(handler: BaseHTTPRequestHandler, shift: int = 0) -> bytes:
    """Return the bytes of the range that was asked for, or of one that begins `shift` bytes later."""
    first, last = _range(handler)
    return BODY[first + shift : last + 1 + shift]


def serve(handler: BaseHTTPRequestHandler) -> None:
    _send(handler, 206, _asked(handler))


def refuse(status: int, code: str) -> Callable[[BaseHTTPRequestHandler], None]:
    body = f"<Error><Code>{code}</Code></Error>".encode()
    return lambda handler: _send(handler, status, body)


def cut(handler: BaseHTTPRequestHandler) -> None:
    body = _asked(handler)
    _send(handler, 206, body[:-7], length=len(body))


def reset(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.close()
    handler.close_connection = True


def drip(handler: BaseHTTPRequestHandler) -> None:
    """Send a byte now and then, so that the connection is never idle for as long as the reader's patience."""
    body = _asked(handler)
    _send(handler, 206, b"", length=len(body))
    with contextlib.suppress(ConnectionError):
        for place in range(8):
            handler.wfile.write(body[place : place + 1])
            time.sleep(0.5)


def page(handler: BaseHTTPRequestHandler) -> None:
    """Answer 404 as a proxy does, with a page of its own."""
    _send(handler, 404, b"<html><head><title>404 Not Found</title></head></html>")


def shifted(handler: BaseHTTPRequestHandler) -> None:
    """Answer a range that begins one byte later."""
    _send(handler, 206, _asked(handler, 1), shift=1)


def whole(handler: BaseHTTPRequestHandler) -> None:
    """Answer the whole object, as a server does that knows no ranges."""
    _send(handler, 200, BODY)


def slow(handler: BaseHTTPRequestHandler) -> None:
    """Send the head at once, and the body after the reader's patience of two seconds."""
    _send(handler, 206, b"", length=len(_asked(handler)))
    time.sleep(3)


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def read(
    judge: Judge,
    endpoint: str,
    offset: int = 5,
    length: int = 1000,
    ranges: list[list[int]] | None = None,
    **environment: str | None,
) -> dict[str, Any]:
    variables = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        **environment,
    }
    wanted = {"offset": offset, "length": length} if ranges is None else {"ranges": ranges}
    return judge.ask(op="read", url="s3://bucket/a prefix", key=KEY, environment=variables, **wanted)


def body_of(answer: dict[str, Any]) -> bytes:
    assert "error" not in answer, answer
    return base64.b64decode(answer["body"])
