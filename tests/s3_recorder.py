"""Records the requests that the S3 server of the tests gets, and finds those that leave the prefix of their store.

The bucket of a test has one store, under `acme/`. A test that has more of them names their prefixes (`own`). Requests
of the tests themselves have the access key `HARNESS`, and may do anything.

RECORD-1  The key of a request on an object begins with the prefix, as do both keys of a copy.
RECORD-2  A LIST, of objects, versions or uploads, has a prefix that begins with that of the store.
RECORD-3  Each key of a delete of many keys begins with the prefix.
RECORD-4  Any other request on a bucket, such as HeadBucket, leaves the prefix.
RECORD-5  If an access key has a prefix of its own, its requests begin with that prefix and no other.
"""

from __future__ import annotations

import html
import io
import json
import re
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote

__all__ = ["HARNESS", "PATH", "PREFIX", "Recorder", "Seen", "outside"]

HARNESS = "seglog-harness"
PREFIX = "acme/"
PATH = "/_recorded"  # no bucket has such a name

_CREDENTIAL = re.compile(r"Credential=([^/]+)/\d+/[^/]*/(\w+)/")
_KEY = re.compile(r"<Key>(.*?)</Key>", re.DOTALL)
_LISTS = ("list-type", "prefix", "versions", "uploads", "delimiter", "marker", "max-keys")
_KEPT = 20


@dataclass(frozen=True, slots=True)
class Seen:
    """A request in path style. `keys` are those in the body of a delete of many, and the source of a copy."""

    method: str
    bucket: str
    key: str
    query: Mapping[str, str]
    keys: tuple[str, ...] = ()
    access_key: str = ""

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


class Recorder:
    """Stands before the server's application. A GET of `PATH` answers the requests since the last such GET."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._outside: list[str] = []
        self._prefixes: dict[str, tuple[str, ...]] = {}

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        if environ["PATH_INFO"] == PATH:
            return self._answer(environ, start_response)
        seen = _seen(environ)
        if seen is not None:
            self._record(seen)
        return self._app(environ, start_response)

    def _record(self, seen: Seen) -> None:
        with self._lock:
            if seen.access_key == HARNESS:
                return
            own = self._prefixes.get(seen.access_key) or self._prefixes.get(seen.bucket) or (PREFIX,)
            self._counts["requests"] += 1
            if all(outside(seen, prefix) for prefix in own):
                self._counts["outside"] += 1
                self._outside = [*self._outside, str(seen)][:_KEPT]

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Any:
        """Answer the counts. A PUT gives a bucket or an access key its prefixes."""
        with self._lock:
            if environ["REQUEST_METHOD"] == "PUT":
                body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
                self._prefixes |= {name: tuple(prefixes) for name, prefixes in json.loads(body).items()}
            told = json.dumps({"requests": self._counts["requests"], "outside": self._outside}).encode()
            if environ["REQUEST_METHOD"] == "GET":
                self._counts, self._outside = Counter(), []
        start_response("200 OK", [("Content-Length", str(len(told)))])
        return [told]


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
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        keys += map(html.unescape, _KEY.findall(body.decode()))
    return Seen(environ["REQUEST_METHOD"], bucket, key, query, tuple(keys), found[1] if found else "")
