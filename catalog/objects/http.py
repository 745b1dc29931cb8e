"""A remote over HTTP, which only reads: the objects that a proxy shows (offload.daemon.http.objects).

    https://log.example:7373                 the objects of a daemon
    https://log.example:7373/tenants/acme    those of one of its tenants

A GET of an object may have a `Range`, and `Cache-Control: no-cache` goes past the cache of the proxy. A HEAD has
metadata and checksum in `seglog-object`. Keys come page by page, and commits for a follower at once (`Forward`).

HTTP-READ-1  Absence is an answer 404 with `seglog-error: NoSuchObject`. Another 404, as that of a wrong URL, is not.
HTTP-READ-2  A write raises `AccessDenied` before any request. So no protocol of the catalog stands on a proxy.
HTTP-READ-3  A request without an answer, or with 429, 502, 503 or 504, is sent again after a pause that grows. Each
    step of its socket looks at the time that is left for its command (catalog.objects.store_timeout).
HTTP-READ-4  A wait for news has connections of its own, and one try. However short the timeout of a GET is, it leaves
    the proxy the time to wait. `end_waits` shuts the connections, so that a stop waits for no answer.
HTTP-READ-5  An answer that is cut is no answer: its length is the one that its head says, or the request is repeated.
"""

from __future__ import annotations

import copy
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlencode
from weakref import WeakSet

from urllib3 import BaseHTTPResponse, HTTPConnectionPool, Timeout, connection_from_url
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, SSLError
from xxhash import xxh3_64_hexdigest

from catalog.errors import AccessDenied, InvalidKey, InvalidObject, NoSuchObject, StoreUnreachable
from catalog.format.checksum import Checksum, ChecksumKind
from catalog.format.ids import Vid
from catalog.format.keys import Key, check_key, check_prefix
from catalog.format.remotes import split_remote
from catalog.objects import settled_writes
from catalog.objects.object_store import Forward, ObjectInfo, WithETag, refusal
from catalog.objects.store_timeout import LIMIT_S, Call, waiting
from catalog.objects.watched_sockets import Watched
from catalog.objects.wrapped import T, WrappedStore

ERROR_HEADER: Final = "seglog-error"
OBJECT_HEADER: Final = "seglog-object"
FORWARD_HEADER: Final = "seglog-forward"
PAGE_KEYS: Final = 1000
_CONNECT_S = 10.0
_CONNECTIONS = 32
_CONFLICT = 409
_TROUBLE = frozenset({429, 502, 503, 504})
_TOKEN_HINT = "SEGLOG_TOKEN_FILE names the file with the token, which needs the role `read` on the topic"  # noqa: S105
_WRONG_URL = "is this a seglog daemon with serve.proxy? A tenant's URL ends in /tenants/NAME"
_SILENT = "it has not answered, or too slowly, for {:g} s"


class _Connection(Watched, HTTPConnection): ...


class _SecureConnection(Watched, HTTPSConnection): ...


class HttpStore(WrappedStore):
    """An `ObjectStore` that only reads. `token` returns the bearer token of now, or None; each request asks for it."""

    def __init__(
        self,
        url: str,
        token: Callable[[], str | None] = lambda: None,
        *,
        timeout_s: float = 30.0,
        attempts: int = 4,
        limit_s: float = LIMIT_S,
    ) -> None:
        # It wraps no store: the base class has the writes, which `_call` refuses.
        parts = split_remote(url)
        self._url = url.rstrip("/")
        self._prefix = parts.path.rstrip("/")
        self._token = token
        self._timeout_s = timeout_s
        self._attempts = attempts
        self._limit_s = limit_s
        self._headers: Mapping[str, str] = {}
        self._pool = connection_from_url(f"{parts.scheme}://{parts.netloc}", maxsize=_CONNECTIONS, block=True)
        self._pool.ConnectionCls = _SecureConnection if parts.scheme == "https" else _Connection
        self._waits = connection_from_url(f"{parts.scheme}://{parts.netloc}", maxsize=_CONNECTIONS)
        self._waits.ConnectionCls = _ended_by(self._pool.ConnectionCls, self._open_wait)
        self._waiting = WeakSet[Any]()
        self._waiting_lock = threading.Lock()
        self._is_over = threading.Event()

    @property
    def url(self) -> str:
        return self._url

    @property
    def is_ordered(self) -> bool:
        return True

    @property
    def is_proxied(self) -> bool:
        return True

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:  # noqa: ARG002 - as the base has it
        """Refuse a write (HTTP-READ-2). No read calls this."""
        raise refusal(self._url)

    def past_cache(self) -> HttpStore:
        other = copy.copy(self)
        other._headers = {"Cache-Control": "no-cache"}  # noqa: SLF001 - of this class
        return other

    def get(self, key: Key) -> bytes:
        return self.get_with_etag(key).body

    def get_with_etag(self, key: Key) -> WithETag:
        answer = self._ask("GET", f"/objects/{check_key(key)}", key)
        return WithETag(answer.data, answer.headers.get("etag", ""))

    def get_range(self, key: Key, start: int, length: int) -> bytes:
        path = f"/objects/{check_key(key)}"
        if length == 0:
            return b""
        answer = self._ask("GET", path, key, {"Range": f"bytes={start}-{start + length - 1}"})
        body = answer.data if answer.status == 206 else answer.data[start : start + length]
        if len(body) != length:
            raise InvalidObject(key, f"it ends at {start + len(body)}, and {start + length} bytes were expected")
        span = f"bytes {start}-{start + length - 1}"
        if answer.status == 206 and answer.headers.get("content-range", "").partition("/")[0] != span:
            raise InvalidObject(key, f"the answer is of another range than {span}")
        return body

    def head(self, key: Key) -> ObjectInfo:
        answer = self._ask("HEAD", f"/objects/{check_key(key)}", key)
        try:
            facts = json.loads(answer.headers[OBJECT_HEADER])
            sums = [Checksum.parse(ChecksumKind(kind), text) for kind, text in facts["checksum"].items()]
            return ObjectInfo(int(answer.headers["content-length"]), facts["metadata"], sums[0] if sums else None)
        except (KeyError, ValueError, AttributeError, TypeError) as error:
            raise StoreUnreachable(self._url, f"its answer about {key} has no facts: {error!r}", _WRONG_URL) from error

    def list(self, prefix: str, *, limit: int | None = None, start_after: str = "") -> Iterator[str]:
        check_prefix(prefix)
        is_more, left = True, limit
        while is_more and left != 0:
            most = PAGE_KEYS if left is None else min(PAGE_KEYS, left)
            query = urlencode({"prefix": prefix, "start_after": start_after, "limit": most})
            answer = self._ask("GET", f"/objects?{query}", prefix)
            try:
                page = json.loads(answer.data)
                keys, is_more = [check_key(key) for key in page["keys"]], bool(page["more"])
            except (KeyError, ValueError, TypeError) as error:
                raise StoreUnreachable(self._url, f"its listing is none: {error!r}", _WRONG_URL) from error
            yield from keys
            start_after = keys[-1] if keys else start_after
            left = None if left is None else left - len(keys)
            is_more = is_more and bool(keys)

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        return ((key, self.head(Key(key)).size) for key in self.list(prefix))

    def time_ms(self) -> int | None:
        return None

    def forward(self, name: str, since: int) -> Forward | None:
        return self._forward(name, f"since={since}", self._pool)

    def await_forward(self, name: str, vid: Vid, since: int, wait_s: int) -> Forward | None:
        patient, least_s = copy.copy(self), wait_s + _CONNECT_S  # a silent proxy is left after that at the earliest
        patient._timeout_s = max(self._timeout_s, least_s)  # noqa: SLF001 - of this class
        patient._limit_s = max(self._limit_s, least_s)  # noqa: SLF001
        return patient._forward(name, f"since={since}&vid={vid}&wait_s={wait_s}", self._waits)  # noqa: SLF001

    def end_waits(self) -> None:
        self._is_over.set()
        with self._waiting_lock:
            waiting = tuple(self._waiting)
        for connection in waiting:
            with suppress(OSError, AttributeError):  # it is closed, or closes now
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _open_wait(self, connection: Any) -> None:
        with self._waiting_lock:
            self._waiting.add(connection)
        if self._is_over.is_set():
            raise OSError("the waits have ended")

    def _forward(self, name: str, query: str, pool: HTTPConnectionPool) -> Forward | None:
        try:
            answer = self._ask("GET", f"/topics/{name}/forward?{query}", name, accepts=_CONFLICT, pool=pool)
        except NoSuchObject:
            return None
        if answer.status == _CONFLICT:
            return None  # the name or its volume is gone: the objects say which
        bodies, at = list[bytes](), 0
        try:
            while at < len(answer.data):
                length = int.from_bytes(answer.data[at : at + 4], "little")
                bodies.append(answer.data[at + 4 : at + 4 + length])
                at += 4 + length
            facts, _, checksum = answer.headers[FORWARD_HEADER].rpartition(" ")
            vid, lsn, boundary = facts.split(" ") if checksum == forward_sum(facts, answer.data) else ["?"]
            return Forward(Vid.parse(vid), int(lsn), int(boundary), tuple(bodies))
        except (KeyError, ValueError, InvalidKey) as error:
            raise StoreUnreachable(self._url, f"its answer about {name} is none: {error!r}", _WRONG_URL) from error

    def followed(self) -> Sequence[str]:
        answer = self._ask("GET", "/topics", "")
        try:
            return [str(name) for name in json.loads(answer.data)["topics"]]
        except (KeyError, ValueError, TypeError) as error:
            raise StoreUnreachable(self._url, f"its answer about topics is none: {error!r}", _WRONG_URL) from error

    def close(self) -> None:
        self.end_waits()
        self._waits.close()
        self._pool.close()

    def _ask(
        self,
        method: str,
        path: str,
        key: str,
        headers: Mapping[str, str] | None = None,
        *,
        accepts: int = 200,
        pool: HTTPConnectionPool | None = None,
    ) -> BaseHTTPResponse:
        """Return the answer, which is a success or has the status `accepts`. Raises the errors of a store."""
        token = self._token()
        sent = {**self._headers, **(headers or {}), **({} if token is None else {"Authorization": f"Bearer {token}"})}
        with waiting(self._limit_s) as call:
            answer = self._answered(method, self._prefix + path, sent, call, pool or self._pool)
            call.answered()
        if answer.status < 300 or answer.status == accepts:
            return answer
        text = f"{answer.status} {_detail(answer)}".strip()
        if answer.status in (401, 403):
            raise AccessDenied(self._url, text, _TOKEN_HINT)
        if answer.status == 404 and answer.headers.get(ERROR_HEADER) == NoSuchObject.__name__:
            raise NoSuchObject(key)
        if answer.status == 416:
            raise InvalidObject(key, "it ends before the bytes that were expected")
        raise StoreUnreachable(self._url, text, _WRONG_URL if answer.status in (400, 404, 405) else "see its log")

    def _answered(
        self, method: str, target: str, headers: Mapping[str, str], call: Call, pool: HTTPConnectionPool
    ) -> BaseHTTPResponse:
        attempts = 1 if pool is self._waits else self._attempts
        for tries in range(1, attempts + 1):
            left_s = call.left_s()
            if left_s <= 0:
                raise StoreUnreachable(self._url, _SILENT.format(call.limit_s))
            timeout = Timeout(connect=min(_CONNECT_S, left_s), read=min(self._timeout_s, left_s))
            try:
                answer = pool.urlopen(method, target, headers=headers, retries=False, redirect=False, timeout=timeout)
            except SSLError as error:
                raise StoreUnreachable(self._url, str(error), "is its certificate trusted here?") from error
            except (HTTPError, OSError) as error:
                cause = str(error) or type(error).__name__
            else:
                if answer.status not in _TROUBLE:
                    return answer
                cause = f"{answer.status} {_detail(answer)}".strip()
            if tries < attempts:
                time.sleep(min(settled_writes.backoff_s(tries), max(0.0, call.left_s())))
        if call.left_s() <= 0:
            cause = f"{_SILENT.format(call.limit_s)}; {cause}"
        raise StoreUnreachable(self._url, cause)


def _ended_by(kind: Any, begin: Callable[[Any], None]) -> Any:
    """Return a class of connections that call `begin` when they are open."""

    class Waiting(kind):  # type: ignore[misc]
        def connect(self) -> None:
            super().connect()
            begin(self)

    return Waiting


def forward_sum(facts: str, body: bytes) -> str:
    """Return the checksum of an answer to `forward`, which its header ends with."""
    return xxh3_64_hexdigest(facts.encode() + b"\n" + body)


def _detail(answer: BaseHTTPResponse) -> str:
    """Return what the answer says of its error."""
    try:
        report = json.loads(answer.data)
        return str(report["detail"])
    except (KeyError, ValueError, TypeError):
        return ""
