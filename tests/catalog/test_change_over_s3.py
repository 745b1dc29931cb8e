"""Changes and deletes over a wire that fails each request in every way.

Each answer to the caller is true, and the next change or delete succeeds.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

import pytest

from catalog.errors import CatalogError, KeyChanged, NoSuchObject, OutcomeUnknown
from catalog.format.keys import Key
from catalog.objects import s3 as s3_module
from catalog.objects.s3 import ReadSettings, S3Store
from catalog.objects.settled_writes import change
from tests.catalog.s3_stores import kept_open, wire
from tests.faults.front import Front, HttpFault, When, ways_of
from tests.seams.limits import Limit, set_limit
from tests.worlds.changes import line, no_pause

__all__ = ["kept_open", "wire"]

A, B = Key("vol/boundary"), Key("vol/log/B")
TIMEOUT_S = 0.5
# Refusals that a faulty wire sends although the request took effect.
LIES = frozenset({"BadDigest", "ExpiredToken", "NoSuchUpload", "RequestTimeTooSkewed"})
Reader = Literal["obstore", "boto3"]
KINDS: list[tuple[Reader, str]] = [
    ("obstore", "PUT boundary"),
    ("obstore", "swap boundary"),
    ("obstore", "GET boundary"),
    ("boto3", "GET boundary"),
]
WAYS = [
    (reader, kind, way, when)
    for reader, kind in KINDS
    for way, when in ways_of(kind)
    if (kind, way) != ("GET boundary", "flipped")  # catalog.format.envelope finds flipped bits
]


@pytest.fixture
def front(s3_environment: str, wire: Front, monkeypatch: pytest.MonkeyPatch) -> Front:
    assert s3_environment
    monkeypatch.setenv("AWS_ENDPOINT_URL", wire.url)
    monkeypatch.setattr(s3_module, "ATTEMPTS", 2)
    monkeypatch.setattr(s3_module, "READ_TIMEOUT_S", TIMEOUT_S)
    set_limit(monkeypatch, Limit.S3_FIRST_BACKOFF, timedelta(milliseconds=1))
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.0)
    monkeypatch.setattr("botocore.retries.adaptive.ClientRateLimiter.on_sending_request", lambda *_, **__: None)
    wire.restart()
    return wire


@pytest.fixture
def reader() -> Reader:
    return "obstore"


@pytest.fixture
def store(request: pytest.FixtureRequest, front: Front, reader: Reader, kept_open: dict[str, S3Store]) -> S3Store:
    """An empty store. Tests share it, because making one costs more than their requests."""
    assert not front.plan
    if reader not in kept_open:
        reads = ReadSettings(timeout_s=2 * TIMEOUT_S, attempts=2)
        kept_open[reader] = S3Store(request.getfixturevalue("s3_remote"), reader=reader, reads=reads)
    kept_open[reader].delete_many([*map(Key, kept_open[reader].list(""))])
    return kept_open[reader]


def state_of(store: S3Store) -> bytes:
    try:
        return store.get(A)
    except NoSuchObject:
        return b""


@pytest.mark.parametrize(("reader", "kind", "way", "when"), WAYS, ids=str)
def test_a_change_is_made_once_whatever_becomes_of_a_request(
    store: S3Store, front: Front, kind: str, way: str, when: When
) -> None:
    if kind != "PUT boundary":
        store.put_new(A, b"old")
    before = state_of(store)
    front.restart([HttpFault(way, when, 1, kind)])
    is_refused = is_open = False
    try:
        change(store, A, line(b"new"), no_pause)
    except OutcomeUnknown:
        is_open = True
    except CatalogError:
        is_refused = True
    assert len(front.struck) == 1
    front.plan = ()
    found = state_of(store)
    if is_refused:
        assert found == before or (way in LIES and when == "after")
    elif not is_open:
        assert found.splitlines().count(b"new") == 1
    front.land()
    change(store, A, line(b"newer"), no_pause)
    change(store, A, line(b"new"), no_pause)
    front.land()
    assert sorted(state_of(store).splitlines()) == sorted([*before.splitlines(), b"new", b"newer"])


@pytest.mark.parametrize(("way", "when"), ways_of("delete many"), ids=str)
def test_a_delete_of_many_is_done_or_told_and_may_be_repeated(
    store: S3Store, front: Front, way: str, when: When
) -> None:
    keys = [Key("a"), B]
    for key in keys:
        store.put_new(key, b"body")
    front.restart([HttpFault(way, when, 1, "delete many")])
    try:
        store.delete_many(keys)
    except CatalogError:
        store.delete_many(keys)
    assert len(front.struck) == 1
    assert list(store.list("")) == []


def test_a_late_duplicate_of_a_swap_is_refused_by_what_came_meanwhile(store: S3Store, front: Front) -> None:
    store.put_new(A, b"1")
    first = store.get_with_etag(A)
    front.restart([HttpFault("late", "after", 1, "swap boundary")])
    with pytest.raises(OutcomeUnknown):
        store.swap(A, b"2", first.etag)
    store.swap(A, b"3", store.get_with_etag(A).etag)
    front.land()
    assert store.get(A) == b"3"
    with pytest.raises(KeyChanged):
        store.swap(A, b"4", first.etag)
