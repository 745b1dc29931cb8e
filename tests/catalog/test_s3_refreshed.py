"""Test a store whose credentials change: boto3 and obstore use the newest, and no upload starts over."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import pytest

from catalog.errors import AccessDenied, NoSuchObject
from catalog.format.keys import Key
from catalog.objects.s3 import S3Store
from catalog.objects.s3_credentials import FoundCredentials
from tests.faults.front import Front

KEY = Key("vid/segments/data")
PART = bytes(5 << 20)


class Source:
    """A source whose key is `key-1`, then `key-2`. It has newer ones for each refusal, while `renews`."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self.newest = ""
        self.renews = True
        self.trouble: Exception | None = None
        self.refused: list[str] = []
        self.renew()

    def renew(self) -> None:
        self.newest = f"key-{next(self._numbers)}"

    def current(self, refused: str = "") -> FoundCredentials:
        if self.trouble is not None:
            raise self.trouble
        with self._lock:
            if refused:
                self.refused.append(refused)
            if refused == self.newest and self.renews:
                self.renew()
            return FoundCredentials(self.newest, "secret", f"token of {self.newest}", None)


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def front(s3_environment: str) -> Iterator[Front]:
    with Front(s3_environment) as front:
        yield front


@pytest.fixture
def store(s3_remote: str, front: Front, source: Source, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Store]:
    """A store whose environment has no credentials of its own."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    store = S3Store(s3_remote, credentials=source)
    yield store
    store.close()


def test_each_request_of_both_clients_has_the_key_of_the_source(store: S3Store, front: Front, source: Source) -> None:
    store.put_new(KEY, b"body")
    store.get(KEY)
    store.head(KEY)
    assert front.access_keys == {"key-1": 3}
    source.renew()
    store.head(KEY)
    list(store.list(""))
    assert front.access_keys == {"key-1": 3, "key-2": 2}
    assert source.refused == []


def test_an_upload_continues_when_its_credentials_expire(store: S3Store, front: Front) -> None:
    upload_id = store.create_upload(KEY, {"name": "value"})
    parts = [store.put_part(KEY, upload_id, 1, PART)]
    front.expired_keys = {"key-1"}
    parts.append(store.put_part(KEY, upload_id, 2, PART))
    front.expired_keys = {"key-1", "key-2"}
    store.complete_upload(KEY, upload_id, parts)
    assert store.get_range(KEY, 0, 3) == b"\0\0\0"
    assert store.head(KEY).size == 2 * len(PART)
    # Each expiry costs one refused request, and the upload is created once.
    assert {kind: count for kind, count in front.kinds.items() if not kind.startswith(("GET", "HEAD"))} == {
        "create": 1,
        "part": 3,
        "complete": 2,
    }


@pytest.mark.parametrize("is_named", [True, False])
def test_a_head_with_an_old_key_gets_newer_ones(store: S3Store, front: Front, is_named: bool) -> None:
    store.put_new(KEY, b"body")
    front.names_the_code_of_a_head = is_named
    front.expired_keys = {"key-1"}
    assert store.head(KEY).size == 4
    assert front.access_keys["key-2"] in ({1} if is_named else {2})  # without the name, a GET finds the reason
    front.expired_keys.add("key-2")
    with pytest.raises(NoSuchObject):
        store.head(Key("absent"))


def test_a_read_with_an_old_key_gets_newer_ones(store: S3Store, front: Front, source: Source) -> None:
    store.put_new(KEY, b"body")
    assert store.get(KEY) == b"body"
    front.expired_keys = {"key-1"}
    assert store.get(KEY) == b"body"
    assert store.get_range(KEY, 1, 2) == b"od"
    assert source.refused == ["key-1"]
    assert front.access_keys == {"key-1": 3, "key-2": 2}


def test_a_write_that_is_sent_once_follows_a_refused_key(store: S3Store, front: Front) -> None:
    front.expired_keys = {"key-1"}
    store.put_new(KEY, b"body")
    assert front.kinds["PUT data"] == 2
    front.expired_keys = {"key-1", "key-2"}
    store.swap(KEY, b"other", store.get_with_etag(KEY).etag)
    assert store.get(KEY) == b"other"


def test_without_newer_credentials_the_refusal_stays(store: S3Store, front: Front, source: Source) -> None:
    source.renews = False
    front.expired_keys = {"key-1"}
    for ask in (lambda: store.get(KEY), lambda: store.head(KEY), lambda: store.put_new(KEY, b"body")):
        with pytest.raises(AccessDenied, match="ExpiredToken"):
            ask()


def test_a_source_that_never_has_valid_ones_ends_after_some_requests(store: S3Store, front: Front) -> None:
    front.expired_keys = {f"key-{number}" for number in range(100)}
    with pytest.raises(AccessDenied, match="ExpiredToken"):
        store.put_new(KEY, b"body")
    assert front.kinds["PUT data"] == 3


def test_the_error_of_a_source_reaches_the_caller(store: S3Store, front: Front, source: Source) -> None:
    source.trouble = AccessDenied("STS", "no role", "name another role")
    for ask in (lambda: store.get(KEY), lambda: store.head(KEY), lambda: store.put_new(KEY, b"body")):
        with pytest.raises(AccessDenied, match="no role"):
            ask()
    assert front.access_keys == {}
