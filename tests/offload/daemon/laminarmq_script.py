"""One script of requests for a server with laminarmq's routes, and the transcript of its answers."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

__all__ = ["Answer", "differences", "store", "stored", "transcript"]

_TIMEOUT_S = 60
_JSON = {"Content-Type": "application/json"}
_STORED = Path(__file__).with_name("laminarmq_transcript.json")
_Request: TypeAlias = tuple[str, str, dict[str, str], bytes | None]


def _get(path: str, **headers: str) -> _Request:
    return ("GET", path, headers, None)


def _post(body: bytes, kind: str | None = None) -> _Request:
    return ("POST", "/records", {} if kind is None else {"Content-Type": kind}, body)


def _truncate(body: bytes, kind: str | None = "application/json") -> _Request:
    return ("POST", "/rpc/truncate", {} if kind is None else {"Content-Type": kind}, body)


SCRIPT: tuple[_Request, ...] = (
    _get("/index_bounds"),
    _get("/records/0"),
    _truncate(b'{"truncate_index": 0}'),
    _post(b"Hello World"),
    _post(b""),
    _post(b'{"a": 1}', "application/json"),
    _post(b"--x", "multipart/form-data; boundary=x"),
    _post(bytes(range(256)), "text/html"),
    _get("/index_bounds"),
    _get("/index_bounds?x=1"),
    *(_get(f"/records/{index}") for index in range(6)),
    _get("/records/00"),
    _get("/records/+1"),
    _get("/records/%31"),
    _get("/records/-1"),
    _get("/records/x"),
    _get("/records/1.0"),
    _get("/records/%20"),
    _get("/records/%22"),
    _get("/records/4294967295"),
    _get("/records/4294967296"),
    _get("/records/18446744073709551615"),
    _get("/records/18446744073709551616"),
    _get("/records/"),
    _get("/records"),
    _get("/records/0/"),
    _get("/records/0/1"),
    _get("/"),
    _get("/nothing"),
    _get("/index_bounds/"),
    _get("/rpc/truncate"),
    ("HEAD", "/index_bounds", {}, None),
    ("HEAD", "/records/0", {}, None),
    ("HEAD", "/records/99", {}, None),
    ("DELETE", "/records/0", {}, None),
    ("PUT", "/records", {}, b"x"),
    ("OPTIONS", "/records", {}, None),
    ("POST", "/index_bounds", {}, b""),
    ("POST", "/records/0", {}, b"x"),
    _get("/records/0", Origin="http://page.example"),
    _get("/records/0", Host="other.example"),
    _get("/records/0", Accept="application/json"),
    _get("/records/0", Range="bytes=0-1"),
    _truncate(b"", None),
    _truncate(b'{"truncate_index": 1}', None),
    _truncate(b'{"truncate_index": 1}', "text/plain"),
    _truncate(b'{"truncate_index": 1}', "application/jsonl"),
    _truncate(b""),
    _truncate(b"{"),
    _truncate(b"nonsense"),
    _truncate(b'{"truncate_index": 99} more'),
    _truncate(b'\xff{"truncate_index": 1}'),
    _truncate(b"{}"),
    _truncate(b"[]"),
    _truncate(b"[1, 2]"),
    _truncate(b'"x"'),
    _truncate(b"null"),
    _truncate(b"7"),
    _truncate(b'{"truncate_index": null}'),
    _truncate(b'{"truncate_index": true}'),
    _truncate(b'{"truncate_index": "1"}'),
    _truncate(b'{"truncate_index": -1}'),
    _truncate(b'{"truncate_index": 1.0}'),
    _truncate(b'{"truncate_index": 1, "truncate_index": 2}'),
    _truncate(b'{"Truncate_Index": 1}'),
    _truncate(b'{"truncate_index": 4294967296}'),
    _truncate(b'{"truncate_index": 5}'),
    _truncate(b'{"truncate_index": 99}'),
    _truncate(b"[" * 3_000),
    _get("/index_bounds"),
    _truncate(b'{"truncate_index": 4, "other": [1]}', "application/json; charset=utf-8"),
    _get("/index_bounds"),
    _get("/records/4"),
    _truncate(b'{"truncate_index": 3}', "application/vnd.example+json"),
    _truncate(b"[2]"),
    _get("/index_bounds"),
    _get("/records/2"),
    _post(b"written again"),
    _get("/records/2"),
    _truncate(b'{"truncate_index": 0}', "Application/JSON"),
    _get("/index_bounds"),
    _get("/records/0"),
    _post(b"first"),
    _get("/records/0"),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. `request` says what was asked."""

    request: str
    status: int
    kind: str
    allow: str
    body: str


def transcript(port: int, token: str = "") -> list[Answer]:
    """Send the script to a server on this port, each request over a connection of its own."""
    extra = {"Authorization": f"Bearer {token}"} if token else {}
    return [_answer(port, request, extra) for request in SCRIPT]


def stored() -> list[Answer]:
    """Return the transcript of laminarmq's own server."""
    return [Answer(**each) for each in json.loads(_STORED.read_text())]


def store(answers: list[Answer]) -> None:
    """Keep a transcript of laminarmq's own server for `stored`."""
    _STORED.write_text("[\n" + ",\n".join(json.dumps(asdict(each)) for each in answers) + "\n]\n")


def differences(theirs: list[Answer], ours: list[Answer]) -> Iterator[tuple[Answer, Answer]]:
    """Yield the answers that differ. The words of an error count only if one of the two servers names its error."""
    for their, our in zip(theirs, ours, strict=True):
        assert their.request == our.request
        if _plain(their) != _plain(our):
            yield their, our


def _plain(answer: Answer) -> tuple[object, ...]:
    """Return the parts that a program reads: of the text of an error 400, 415 or 422, the part before the reason."""
    body = answer.body
    if answer.status in (400, 415, 422):
        body = body.partition(": ")[0]
    return (answer.status, answer.kind, answer.allow, body)


def _answer(port: int, request: _Request, extra: dict[str, str]) -> Answer:
    method, path, headers, body = request
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)) as connection:
        connection.request(method, path, body, {**headers, **extra})
        found = connection.getresponse()
        said = " ".join(f"{name}: {value}" for name, value in headers.items())
        sent = "" if body is None else repr(body)[:60]
        return Answer(
            " ".join(filter(None, (method, path, said, sent))),
            found.status,
            found.getheader("Content-Type", ""),
            found.getheader("Allow", ""),
            found.read().decode("latin-1"),
        )
