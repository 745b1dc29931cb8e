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


def serve(handler: BaseHTTPRequestHandler, cut: int = 0) -> None:
    first, last = _range(handler)
    body = BODY[first : last + 1]
    handler.send_response(206)
    handler.send_header("Content-Range", f"bytes {first}-{last}/{len(BODY)}")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[: len(body) - cut])
    if cut:
        handler.close_connection = True


def refuse(status: int, code: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        body = f"<Error><Code>{code}</Code></Error>".encode()
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def cut(handler: BaseHTTPRequestHandler) -> None:
    serve(handler, cut=7)


def reset(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.close()
    handler.close_connection = True


def drip(handler: BaseHTTPRequestHandler) -> None:
    """Send a byte now and then, so that the connection is never idle for as long as the reader's patience."""
    first, last = _range(handler)
    handler.send_response(206)
    handler.send_header("Content-Range", f"bytes {first}-{last}/{len(BODY)}")
    handler.send_header("Content-Length", str(last + 1 - first))
    handler.end_headers()
    with contextlib.suppress(ConnectionError):
        for place in range(first, first + 8):
            handler.wfile.write(BODY[place : place + 1])
            time.sleep(0.5)
    handler.close_connection = True


def page(handler: BaseHTTPRequestHandler) -> None:
    """Answer 404 as a proxy does, with a page of its own."""
    body = b"<html><head><title>404 Not Found</title></head></html>"
    handler.send_response(404)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def shifted(handler: BaseHTTPRequestHandler) -> None:
    """Answer a range that begins one byte later."""
    first, last = _range(handler)
    handler.send_response(206)
    handler.send_header("Content-Range", f"bytes {first + 1}-{last + 1}/{len(BODY)}")
    handler.send_header("Content-Length", str(last + 1 - first))
    handler.end_headers()
    handler.wfile.write(BODY[first + 1 : last + 2])


def whole(handler: BaseHTTPRequestHandler) -> None:
    """Answer the whole object, as a server does that knows no ranges."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(BODY)))
    handler.end_headers()
    handler.wfile.write(BODY)


def slow(handler: BaseHTTPRequestHandler) -> None:
    """Send the head at once, and the body after the reader's patience of two seconds."""
    first, last = _range(handler)
    handler.send_response(206)
    handler.send_header("Content-Range", f"bytes {first}-{last}/{len(BODY)}")
    handler.send_header("Content-Length", str(last + 1 - first))
    handler.end_headers()
    time.sleep(3)
    handler.close_connection = True


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
