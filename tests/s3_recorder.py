"""Records the requests that the S3 server of the tests gets, and finds each that leaves the prefix of its store.

The bucket of a test has one store, under `acme/`. A test that has more of them names their prefixes (`own`). Requests
of the tests themselves have the access key `HARNESS`, and may do anything.

RECORD-1  The key of a request on an object begins with the prefix, as do both keys of a copy.
RECORD-2  A LIST, of objects, versions or uploads, has a prefix that begins with the prefix of the store.
RECORD-3  Each key of a delete of many keys begins with the prefix.
RECORD-4  Any other request on a bucket, such as HeadBucket, leaves the prefix.
RECORD-5  If an access key has prefixes of its own, its requests begin with one of these and no other. A key that STS
    gives has the prefix of its session policy. A test may name those of other keys.
RECORD-6  In a bucket of several tenants, each request has an access key with a prefix of its own.
RECORD-7  A check of a bucket is one LIST without a prefix, for one key at most. A test says where it is allowed.
"""

from __future__ import annotations

import html
import io
import json
import re
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote

__all__ = ["HARNESS", "PATH", "PREFIX", "Recorder", "Seen", "Taken", "outside", "prefixes_of"]

HARNESS = "seglog-harness"
PREFIX = "acme/"
PATH = "/_recorded"  # no bucket has such a name

_CREDENTIAL = re.compile(r"Credential=([^/]+)/\d+/[^/]*/(\w+)/")
_KEY = re.compile(r"<Key>(.*?)</Key>", re.DOTALL)
_LISTS = ("list-type", "prefix", "versions", "uploads", "delimiter", "marker", "max-keys")
_KEPT = 20
_GRANTED = re.compile(r"<AccessKeyId>(\w+)</AccessKeyId>")
_OBJECTS = "s3:GetObject"  # only the statement of a tenant's policy about objects has it


@dataclass(frozen=True, slots=True)
class Seen:
    """A request in path style. `keys` are those in the body of a delete of many, and the source of a copy."""

    method: str
    bucket: str
    key: str
    query: Mapping[str, str]
    keys: tuple[str, ...] = ()
    access_key: str = ""

    @property
    def is_check(self) -> bool:
        """Return whether this is the second request of `seglog tenant check` (RECORD-7)."""
        is_list = self.method == "GET" and not self.key and self.query.get("list-type") == "2"
        return is_list and "prefix" not in self.query and self.query.get("max-keys") == "1"

    def __str__(self) -> str:
        named = "&".join(f"{name}={value}" for name, value in self.query.items())
        return f"{self.method} {self.bucket}/{self.key}?{named} {' '.join(self.keys)} by {self.access_key or 'nobody'}"


def outside(seen: Seen, prefix: str) -> bool:
    """Return whether a request leaves the prefix."""
    if seen.key:
        return not all(key.startswith(prefix) for key in (seen.key, *seen.keys))
    if seen.method == "POST" and "delete" in seen.query:
        return not seen.keys or not all(key.startswith(prefix) for key in seen.keys)
    is_list = seen.method == "GET" and any(name in seen.query for name in _LISTS)
    return not (is_list and seen.query.get("prefix", "").startswith(prefix))


@dataclass(frozen=True, slots=True)
class Taken:
    """The numbers of requests: all, those whose access key has prefixes of its own, and those outside."""

    requests: int
    keys: int
    outside: int
    examples: list[str]


def prefixes_of(policy: str) -> list[str]:
    """Return the prefixes of objects that the session policy of a tenant allows; none without a policy."""
    statements = json.loads(policy)["Statement"] if policy else []
    arns = [arn for each in statements if _OBJECTS in each["Action"] for arn in each["Resource"]]
    return [arn.partition("/")[2].removesuffix("*") for arn in arns]


@dataclass(slots=True)
class _Known:
    """The statements of the tests, and the grants of STS. `of` has the prefixes of buckets and of access keys."""

    of: dict[str, list[str]] = field(default_factory=dict)
    shared: list[str] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)

    def is_outside(self, seen: Seen) -> bool:
        if seen.is_check and seen.bucket in self.checked:
            return False
        own = self.of.get(seen.access_key)
        if own is None:
            own = [] if seen.bucket in self.shared else self.of.get(seen.bucket, [PREFIX])
        return all(outside(seen, prefix) for prefix in own)


class Recorder:
    """Stands before the server's application. A GET of `PATH` answers the counts since the last such GET.

    A PUT says more about buckets and access keys, as the fields of `_Known`. A DELETE answers as a GET does, and then
    forgets all that was said.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._outside: list[str] = []
        self._known = _Known()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path == PATH:
            return self._answer(environ, start_response)
        if path == "/" and method == "POST":
            return self._of_sts(environ, start_response)
        seen = _seen(environ)
        if seen is not None and seen.access_key != HARNESS:
            self._record(seen)
        return self._app(environ, start_response)

    def _record(self, seen: Seen) -> None:
        with self._lock:
            self._counts["requests"] += 1
            self._counts["keys"] += seen.access_key in self._known.of
            if self._known.is_outside(seen):
                self._counts["outside"] += 1
                self._outside = [*self._outside, str(seen)][:_KEPT]

    def _of_sts(self, environ: dict[str, Any], start_response: Any) -> Any:
        """Learn which prefix an access key of STS belongs to (RECORD-5)."""
        asked = parse_qs(_body_of(environ).decode())
        answer = b"".join(self._app(environ, start_response))
        prefixes = prefixes_of(asked.get("Policy", [""])[0])
        if prefixes and (found := _GRANTED.search(answer.decode())):
            with self._lock:
                self._known.of[found[1]] = prefixes
        return [answer]

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Any:
        method = environ["REQUEST_METHOD"]
        with self._lock:
            if method == "PUT":
                said = json.loads(_body_of(environ))
                self._known.of |= said.get("of", {})
                self._known.shared += said.get("shared", ())
                self._known.checked += said.get("checked", ())
            counts = {name: self._counts[name] for name in ("requests", "keys", "outside")}
            told = json.dumps({**counts, "examples": self._outside}).encode()
            if method != "PUT":
                self._counts, self._outside = Counter(), []
            if method == "DELETE":
                self._known = _Known()
        start_response("200 OK", [("Content-Length", str(len(told)))])
        return [told]


def _body_of(environ: dict[str, Any]) -> bytes:
    """Return the body of a request, which the application can still read."""
    body: bytes = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)
    return body


def _seen(environ: dict[str, Any]) -> Seen | None:
    """Return the request, or None for one to another service, such as STS."""
    query = {name: values[-1] for name, values in parse_qs(environ["QUERY_STRING"], keep_blank_values=True).items()}
    signed = environ.get("HTTP_AUTHORIZATION", "") or f"Credential={query.get('X-Amz-Credential', '')}"
    found = _CREDENTIAL.search(signed)
    path = environ["PATH_INFO"].encode("latin-1").decode("utf-8", "replace").lstrip("/")
    bucket, _, key = path.partition("/")
    if (found and found[2] != "s3") or not bucket:
        return None
    keys: list[str] = []
    if source := environ.get("HTTP_X_AMZ_COPY_SOURCE"):
        keys.append(unquote(source).lstrip("/").partition("/")[2])
    if environ["REQUEST_METHOD"] == "POST" and "delete" in query:
        keys += map(html.unescape, _KEY.findall(_body_of(environ).decode()))
    return Seen(environ["REQUEST_METHOD"], bucket, key, query, tuple(keys), found[1] if found else "")
