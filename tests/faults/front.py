"""An HTTP front before an S3 server. It passes requests on, counts them by kind, and fails some of them by a plan.

    way                   what the client gets, before or after the server has the request
    500 503 409 412       that status, with an error's XML
    ExpiredToken ...      a refusal with that code; to HEAD, as every error, without a body
    200                   "200 OK" with an error in its body
    reset                 the connection is reset
    timeout               no answer until the client closes the connection
    late                  500; the server gets the request some requests later (once more, if after)
    truncated             half of the answer, and the end of the connection
    slow                  the last byte of the answer late, then the end of the connection
    flipped               the answer with one bit of its body changed
    stale                 a listing of the empty bucket

The front also shapes answers. The kinds are the requests of S3: `PUT commit`, `create`, `part`, `complete`, `GET
index`, `HEAD data`, `LIST`, `delete many`, and so on. A PUT with If-Match is a `swap`.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import re
import select
import socket
import struct
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Literal
from urllib.parse import parse_qs, urlsplit

from benchmarks.shape import Shape
from tests.answering import Asked

__all__ = ["Front", "HttpFault", "When", "kind_of", "ways_of"]

When = Literal["before", "after"]

_ERRORS: Mapping[str, tuple[int, str]] = {
    "200": (200, "InternalError"),
    "409": (409, "ConditionalRequestConflict"),
    "412": (412, "PreconditionFailed"),
    "500": (500, "InternalError"),
    "503": (503, "SlowDown"),
    "late": (500, "InternalError"),
    "AccessDenied": (403, "AccessDenied"),
    "BadDigest": (400, "BadDigest"),
    "ExpiredToken": (400, "ExpiredToken"),
    "NoSuchKey": (404, "NoSuchKey"),
    "NoSuchUpload": (404, "NoSuchUpload"),
    "RequestTimeTooSkewed": (403, "RequestTimeTooSkewed"),
}
_ANSWERED_WITH_XML = frozenset({"LIST", "LIST uploads", "create", "complete", "delete many"})
_THINGS = (
    ("/log/", "commit"),
    ("/refs/", "ref"),
    ("/tags/", "tag"),
    ("/pins/", "pin"),
    ("/oplog/", "oplog"),
    ("/gc/", "plan"),
    ("/forks/", "fork"),
    ("/lists/", "list"),
    (".index", "index"),
)
_ONE_OF_A_VOLUME = frozenset({"boundary", "checkpoints", "control"})
_FOUND = re.compile(rb"<(Contents|Upload)>.*?</\1>", re.DOTALL)
_ACCESS_KEY = re.compile(r"Credential=([^/]+)/")
_SERVER_ONLY = frozenset({"connection", "content-length", "date", "server", "transfer-encoding"})
_CLIENT_ONLY = frozenset({"connection", "content-length", "expect", "transfer-encoding"})
_REQUESTS_LATE = 3
_SLOW_S = 0.05
_DRIP_S = 0.1
_PATIENCE_S = 30.0
_SLICE_BYTES = 256 * 1024
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class HttpFault:
    """A fault at request `nth` (from 1) of `kind`, or of all requests if `kind` is None.

    With `lasts`, all later requests meet the fault too.
    """

    way: str
    when: When = "before"
    nth: int = 1
    kind: str | None = None
    lasts: bool = False

    def hits(self, kind: str, nth_of_kind: int, nth: int) -> bool:
        if self.kind not in {None, kind}:
            return False
        number = nth if self.kind is None else nth_of_kind
        return number == self.nth or (self.lasts and number > self.nth)

    def __str__(self) -> str:
        return f"{self.kind or 'request'} {self.nth}{' and on' * self.lasts}: {self.way} {self.when}"


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def kind_of(method: str, target: str, *, is_conditional: bool = False) -> str:
    """Return the kind of a request in path style. `is_conditional` says that the request has If-Match."""
    parts = urlsplit(target)
    query = parse_qs(parts.query, keep_blank_values=True)
    if method == "GET" and "list-type" in query:
        return "LIST"
    for name, kinds in (
        ("uploads", {"GET": "LIST uploads", "POST": "create"}),
        ("uploadId", {"PUT": "part", "POST": "complete", "DELETE": "abort"}),
    ):
        if name in query and method in kinds:
            return kinds[method]
    if method == "POST" and "delete" in query:
        return "delete many"
    return f"{'swap' if method == 'PUT' and is_conditional else method} {_thing(parts.path)}"


def _thing(path: str) -> str:
    name = path.rpartition("/")[2]
    if name in _ONE_OF_A_VOLUME:
        return name
    return next((thing for mark, thing in _THINGS if mark in path), "data")


def ways_of(kind: str) -> list[tuple[str, When]]:
    """Return every way in which a request of the kind may fail. A read has no effect, so it fails only before."""
    is_read = kind.startswith(("GET", "HEAD", "LIST"))
    errors = ["500", "503", "ExpiredToken", "RequestTimeTooSkewed", "reset", "timeout"]
    if not is_read:
        errors += ["409", "412", "late"]
    if kind in {"part", "complete"}:
        errors += ["NoSuchUpload"]
    if kind in {"complete", "delete many"}:
        errors += ["200"]
    if kind.startswith("swap"):
        errors += ["NoSuchKey"]
    whens: tuple[When, ...] = ("before",) if is_read else ("before", "after")
    found = [(way, when) for way in errors for when in whens]
    found += [("truncated", "after"), ("slow", "after")]
    if kind.startswith(("PUT", "swap")) or kind == "part":
        found.append(("BadDigest", "before"))
    if kind.startswith("GET") or kind in _ANSWERED_WITH_XML:
        found.append(("flipped", "after"))
    if kind.startswith("LIST"):
        found.append(("stale", "after"))
    return found


class Front:
    """A context manager that listens on `url`. `kinds` counts requests. `struck` lists the faults that requests met.

    `ranges` has the Range header of each request, or an empty text. `seen` gets kind, target and headers of each. The
    test may change `plan` between requests.
    `access_keys` counts requests by the access key of their signature. `keys_of_prefixes` has those keys by the first
    segment of the key or of the prefix that a request names. Each request with one of `expired_keys` gets
    ExpiredToken; a HEAD gets the code in a header if `names_the_code_of_a_head`, and nowhere otherwise.
    `restart` forgets the counts and the late requests.
    """

    def __init__(
        self,
        endpoint: str,
        plan: Iterable[HttpFault] = (),
        shape: Shape | None = None,
        seen: Callable[[str, str, Mapping[str, str]], None] | None = None,
    ) -> None:
        self.plan = tuple(plan)
        self.kinds: Counter[str] = Counter()
        self.ranges: list[str] = []
        self.access_keys: Counter[str] = Counter()
        self.keys_of_prefixes: defaultdict[str, set[str]] = defaultdict(set)
        self.expired_keys: set[str] = set()
        self.names_the_code_of_a_head = False
        self.struck: list[HttpFault] = []
        self.struck_kinds: list[str] = []
        self._inner = urlsplit(endpoint)
        self._shape = shape or Shape()
        self._seen = seen or (lambda *_: None)
        self._late: list[tuple[int, Asked]] = []
        self._lock = threading.Lock()
        self._connections = 0
        self._is_left = threading.Condition()
        self._is_closing = threading.Event()
        front = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                front._count_connections(1)

            def finish(self) -> None:
                front._count_connections(-1)
                super().finish()

            def pass_on(self) -> None:
                since = time.perf_counter()
                length = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(length)
                if len(body) < length:  # the client is gone
                    self.close_connection = True
                    return
                front._serve(self, Asked(self.command, self.path, dict(self.headers), body), since)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = pass_on  # noqa: N815 - names of the base class

            def log_message(self, *_: object) -> None:
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def __enter__(self) -> Front:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._is_closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def restart(self, plan: Iterable[HttpFault] = ()) -> None:
        with self._lock:
            self.plan = tuple(plan)
            self.kinds.clear()
            self.ranges.clear()
            self.access_keys.clear()
            self.keys_of_prefixes.clear()
            self.struck.clear()
            self.struck_kinds.clear()
            self._late.clear()

    def land(self, up_to: int | None = None) -> None:
        """Send the late requests that are due at request `up_to` (None: all). No client gets the answers."""
        with self._lock:
            due = [request for at, request in self._late if up_to is None or at <= up_to]
            self._late = [(at, request) for at, request in self._late if up_to is not None and at > up_to]
        for request in due:
            self._ask(request)

    def await_left(self) -> None:
        """Wait until no client has a connection. Then every request that a killed client sent has its effect."""
        with self._is_left:
            assert self._is_left.wait_for(lambda: self._connections == 0, timeout=_PATIENCE_S)

    # ------------------------------------------------------------ one request

    def _count_connections(self, change: int) -> None:
        with self._is_left:
            self._connections += change
            self._is_left.notify_all()

    def _serve(self, handler: http.server.BaseHTTPRequestHandler, request: Asked, since: float) -> None:
        fault = self._counted(request)
        if _access_key_of(request) in self.expired_keys:
            answer = _error(*_ERRORS["ExpiredToken"])
            if self.names_the_code_of_a_head:
                answer = replace(answer, headers=(*answer.headers, ("x-amz-error-code", "ExpiredToken")))
            self._send(handler, answer, since)
            return
        if fault is None:
            self._send(handler, self._ask(request), since)
            return
        answer = self._ask(request) if fault.when == "after" else None
        connection = handler.connection
        if fault.way in _ERRORS:
            self._send(handler, _error(*_ERRORS[fault.way]), since)
            return
        handler.close_connection = True
        if fault.way == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        elif fault.way == "timeout":
            self._say_nothing(connection)
        elif fault.way == "drip":
            self._drip(connection, answer or _error(*_ERRORS["500"]))
        else:
            assert answer is not None, f"{fault} changes an answer, so it comes after"
            self._send(handler, answer, since, fault.way)

    def _counted(self, request: Asked) -> HttpFault | None:
        kind = kind_of(request.method, request.target, is_conditional="If-Match" in request.headers)
        with self._lock:
            self._seen(kind, request.target, request.headers)
            self.kinds[kind] += 1
            self.access_keys[_access_key_of(request)] += 1
            self.keys_of_prefixes[_prefix_of(request)].add(_access_key_of(request))
            self.ranges.append(next((text for name, text in request.headers.items() if name.lower() == "range"), ""))
            number = self.kinds.total()
            fault = next((each for each in self.plan if each.hits(kind, self.kinds[kind], number)), None)
            if fault is not None:
                self.struck.append(fault)
                self.struck_kinds.append(kind)
                if fault.way == "late":
                    self._late.append((number + _REQUESTS_LATE, request))
        self.land(up_to=number)
        return fault

    def _ask(self, request: Asked) -> _Answer:
        connection = http.client.HTTPConnection(self._inner.hostname or "", self._inner.port, timeout=_PATIENCE_S)
        try:
            headers = {name: text for name, text in request.headers.items() if name.lower() not in _CLIENT_ONLY}
            connection.request(request.method, request.target, request.body, headers)
            answer = connection.getresponse()
            return _Answer(answer.status, tuple(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def _send(self, handler: http.server.BaseHTTPRequestHandler, answer: _Answer, since: float, way: str = "") -> None:
        body: bytes | bytearray = answer.body
        if way == "stale":
            body = _FOUND.sub(b"", body)
        elif way == "flipped" and body:
            body = bytearray(body)
            body[len(body) // 2] ^= 1
        length = str(len(body))
        if handler.command == "HEAD":
            length = next((text for name, text in answer.headers if name.lower() == "content-length"), "0")
            body = b""
        head = [f"HTTP/1.1 {answer.status} {http.client.responses.get(answer.status, 'Unknown')}"]
        head += [f"{name}: {text}" for name, text in answer.headers if name.lower() not in _SERVER_ONLY]
        head += [f"Content-Length: {length}", "", ""]
        whole = "\r\n".join(head).encode("latin-1") + body
        if way == "truncated":
            whole = whole[: len(whole) - max(1, len(body or whole) // 2)]
        self._shape.wait(since, 0)
        with contextlib.suppress(ConnectionError):  # the client went away
            if way == "slow":
                handler.wfile.write(whole[:-1])
                time.sleep(_SLOW_S)
                handler.wfile.write(whole[-1:])
                time.sleep(_SLOW_S)
                return
            for start in range(0, len(whole), _SLICE_BYTES):
                handler.wfile.write(whole[start : start + _SLICE_BYTES])
                self._shape.wait(since, start + _SLICE_BYTES)

    def _drip(self, connection: socket.socket, answer: _Answer) -> None:
        """Send a byte now and then, until the client closes the connection."""
        head = f"HTTP/1.1 {answer.status} OK\r\nContent-Length: {len(answer.body)}\r\n\r\n".encode()
        with contextlib.suppress(ConnectionError):
            for byte in head + answer.body:
                connection.sendall(bytes([byte]))
                if self._is_closing.is_set() or select.select([connection], [], [], _DRIP_S)[0]:
                    return

    def _say_nothing(self, connection: socket.socket) -> None:
        """Wait until the client closes the connection. A closed connection becomes readable."""
        until = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until and not self._is_closing.is_set():
            if select.select([connection], [], [], 0.02)[0]:
                return


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a client that went away. Report any other error."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def _access_key_of(request: Asked) -> str:
    """Return the access key in the signature of a request; an empty text without one."""
    signatures = (text for name, text in request.headers.items() if name.lower() == "authorization")
    found = _ACCESS_KEY.search(next(signatures, ""))
    return found[1] if found else ""


def _prefix_of(request: Asked) -> str:
    """Return the first segment of the key, or of the prefix of a listing. An empty text names the whole bucket."""
    parts = urlsplit(request.target)
    _, _, key = parts.path.lstrip("/").partition("/")
    return (key or parse_qs(parts.query).get("prefix", [""])[0]).partition("/")[0]


def _error(status: int, code: str) -> _Answer:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>a fault of the plan</Message></Error>"
    return _Answer(status, (("Content-Type", "application/xml"),), body.encode())
