"""Test that the front does to a request what its plan says, and changes no other request."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from tests.faults.front import Front, HttpFault, When, kind_of, ways_of
from tests.s3_recorder import HARNESS

# moto refuses an unsigned request and does not check the signature.
_SIGNED = f"AWS4-HMAC-SHA256 Credential={HARNESS}/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"


class Wire:
    """Send requests to a bucket through the front, or past it, each on a connection of its own."""

    def __init__(self, front: Front, endpoint: str, bucket: str) -> None:
        self.front = front
        self._hosts = {True: urlsplit(front.url), False: urlsplit(endpoint)}
        self._bucket = bucket

    def ask(
        self, method: str, key: str, body: bytes = b"", *, by_front: bool = True, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        host = self._hosts[by_front]
        with closing(http.client.HTTPConnection(host.hostname or "", host.port, timeout=1)) as connection:
            named = {"Authorization": _SIGNED, **(headers or {})}
            connection.request(method, f"/{self._bucket}/{key}", body, named)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def is_there(self, key: str) -> bool:
        return self.ask("HEAD", key, by_front=False)[0] == 200


@pytest.fixture
def wire(s3_remote: str, s3_endpoint: str) -> Iterator[Wire]:
    with Front(s3_endpoint) as front:
        yield Wire(front, s3_endpoint, urlsplit(s3_remote).netloc)


def test_without_a_plan_it_passes_on_and_counts(wire: Wire) -> None:
    assert wire.ask("PUT", "v/log/F", b"body") == (200, b"")
    assert wire.ask("GET", "v/log/F") == (200, b"body")
    assert wire.ask("HEAD", "v/control")[0] == 404
    assert wire.front.kinds == {"PUT commit": 1, "GET commit": 1, "HEAD control": 1}
    assert wire.front.struck == []


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("way", "status"),
    [("200", 200), ("409", 409), ("412", 412), ("500", 500), ("503", 503), ("ExpiredToken", 400),
     ("NoSuchKey", 404), ("NoSuchUpload", 404), ("RequestTimeTooSkewed", 403), ("BadDigest", 400)],
)  # fmt: skip
def test_an_error_is_told_before_or_after_the_effect(wire: Wire, way: str, status: int, when: When) -> None:
    wire.front.plan = (HttpFault(way, when, 2),)
    assert wire.ask("PUT", "first", b"body")[0] == 200
    answer = wire.ask("PUT", "second", b"body")
    assert answer[0] == status
    assert b"<Error><Code>" in answer[1]
    assert wire.is_there("second") == (when == "after")
    assert wire.ask("PUT", "third", b"body")[0] == 200


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("way", "error"), [("reset", ConnectionError), ("timeout", TimeoutError)])
def test_no_answer_is_told_before_or_after_the_effect(wire: Wire, way: str, error: type[Exception], when: When) -> None:
    wire.front.plan = (HttpFault(way, when),)
    with pytest.raises(error):
        wire.ask("PUT", "key", b"body")
    assert wire.is_there("key") == (when == "after")


def test_an_error_to_head_has_no_body(wire: Wire) -> None:
    wire.front.plan = (HttpFault("ExpiredToken"),)
    assert wire.ask("HEAD", "key") == (400, b"")


def test_a_late_request_has_its_effect_some_requests_later(wire: Wire) -> None:
    wire.front.plan = (HttpFault("late"),)
    assert wire.ask("PUT", "key", b"late")[0] == 500
    for _ in range(2):
        wire.ask("HEAD", "other")
        assert not wire.is_there("key")
    wire.ask("HEAD", "other")
    assert wire.is_there("key")
    wire.front.plan = (HttpFault("late", nth=5),)
    wire.ask("DELETE", "key")
    wire.front.land()
    assert not wire.is_there("key")


def test_an_answer_is_cut_or_slow_or_changed(wire: Wire) -> None:
    wire.ask("PUT", "key", b"a body of some bytes")
    wire.front.plan = tuple(HttpFault(way, "after", nth) for nth, way in enumerate(("truncated", "slow", "flipped"), 2))
    with pytest.raises(http.client.IncompleteRead):
        wire.ask("GET", "key")
    assert wire.ask("GET", "key") == (200, b"a body of some bytes")
    _, changed = wire.ask("GET", "key")
    assert sum((a ^ b).bit_count() for a, b in zip(changed, b"a body of some bytes", strict=True)) == 1


def test_a_stale_listing_lacks_what_is_there(wire: Wire) -> None:
    wire.ask("PUT", "key", b"body")
    wire.front.plan = (HttpFault("stale", "after", kind="LIST"),)
    assert b"<Key>key</Key>" not in wire.ask("GET", "?list-type=2&prefix=")[1]
    assert b"<Key>key</Key>" in wire.ask("GET", "?list-type=2&prefix=")[1]


@pytest.mark.parametrize(
    ("method", "target", "kind"),
    [
        ("GET", "/b?list-type=2&prefix=a", "LIST"),
        ("GET", "/b?uploads&prefix=a", "LIST uploads"),
        ("POST", "/b/v/segments/s?uploads", "create"),
        ("PUT", "/b/v/segments/s?uploadId=1&partNumber=2", "part"),
        ("POST", "/b/v/segments/s?uploadId=1", "complete"),
        ("DELETE", "/b/v/segments/s?uploadId=1", "abort"),
        ("PUT", "/b/v/segments/s", "PUT data"),
        ("GET", "/b/v/segments/s.index", "GET index"),
        ("PUT", "/b/refs/t/main", "PUT ref"),
        ("PUT", "/b/v/forks/w", "PUT fork"),
        ("PUT", "/b/v/checkpoints", "PUT checkpoints"),
        ("GET", "/b/acme/tags/t/v1", "GET tag"),
        ("POST", "/b?delete", "delete many"),
    ],
)
def test_requests_have_kinds_and_each_kind_its_ways(method: str, target: str, kind: str) -> None:
    assert kind_of(method, target) == kind
    ways = {way for way, _ in ways_of(kind)}
    assert ways >= {"500", "503", "reset", "timeout", "ExpiredToken", "RequestTimeTooSkewed", "truncated", "slow"}
    assert ("stale" in ways) == kind.startswith("LIST")
    assert ("200" in ways) == (kind in {"complete", "delete many"})


def test_a_put_with_a_condition_is_a_kind_of_its_own(wire: Wire) -> None:
    assert kind_of("PUT", "/b/v/boundary", is_conditional=True) == "swap boundary"
    assert ("NoSuchKey", "after") in ways_of("swap boundary")
    wire.ask("PUT", "v/boundary", b"first")
    status, _ = wire.ask("PUT", "v/boundary", b"second", headers={"If-Match": '"another"'})
    assert status == 412
    assert wire.front.kinds == {"PUT boundary": 1, "swap boundary": 1}
