"""One conformance suite over every object store: what `catalog.objects.base` promises, P1 to P5."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Literal

import boto3
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog.checksum import Checksum, ChecksumKind
from catalog.errors import InvalidKey, InvalidObject, KeyTaken, NoSuchObject
from catalog.keys import Key
from catalog.objects import LocalStore, MemoryStore, ObjectInfo, ObjectStore, PartTag
from catalog.objects.base import whole_of
from catalog.objects.s3 import S3Store

A, B, C = Key("vol/log/A"), Key("vol/log/B"), Key("vol/segments/s1")
ABSENT = Key("vol/absent")
PART = bytes(range(256)) * 20_480  # 5 MiB, the least S3 takes for a part that is not the last


@pytest.fixture(params=["file", "memory", "s3", "s3-boto3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    opened: ObjectStore
    if request.param == "file":
        opened = LocalStore(tmp_path / "remote")
    elif request.param == "memory":
        opened = MemoryStore()
    else:
        reader: Literal["obstore", "boto3"] = "boto3" if request.param == "s3-boto3" else "obstore"
        opened = S3Store(request.getfixturevalue("s3_remote"), reader=reader)
    yield opened
    opened.close()


def upload(store: ObjectStore, key: Key, *bodies: bytes) -> tuple[str, list[PartTag]]:
    upload_id = store.create_upload(key, {"software": "test"})
    return upload_id, [store.put_part(key, upload_id, number, body) for number, body in enumerate(bodies, 1)]


# ---------------------------------------------------------------- P1, P2


def test_a_new_object_is_read_back_as_it_was_put(store: ObjectStore) -> None:
    for key, body in ((A, b"one"), (B, b""), (C, bytes(range(256)) * 999)):
        store.put_new(key, body)
        assert store.get(key) == body
        assert store.head(key).size == len(body)


def test_a_key_that_exists_is_taken_and_stays_as_it_was(store: ObjectStore) -> None:
    store.put_new(A, b"first")
    with pytest.raises(KeyTaken):
        store.put_new(A, b"second")
    assert store.get(A) == b"first"


def test_of_racing_creators_exactly_one_wins_and_all_see_its_object(store: ObjectStore) -> None:
    racers = 8
    for race in range(3):
        key = Key(f"vol/log/race-{race}")
        start = threading.Barrier(racers)

        def put(racer: int, key: Key = key, start: threading.Barrier = start) -> bool:
            start.wait()
            try:
                store.put_new(key, b"racer %d" % racer)
            except KeyTaken:
                return False
            return True

        with ThreadPoolExecutor(racers) as pool:
            won = list(pool.map(put, range(racers)))
        assert won.count(True) == 1
        assert store.get(key) == b"racer %d" % won.index(True)


def test_put_replaces(store: ObjectStore) -> None:
    store.put(A, b"first", {"software": "one"})
    store.put(A, b"second", {})
    assert store.get(A) == b"second"
    assert store.head(A).metadata == {}


def test_metadata_comes_back_with_lower_case_keys(store: ObjectStore) -> None:
    metadata = {"s3managedledgeroffloaderformatversion": "1", "software": "seglog 0.1 (test)"}
    store.put(A, b"body", metadata)
    assert store.head(A).metadata == metadata


# ---------------------------------------------------------------- P3


def test_what_is_not_there_is_no_such_object(store: ObjectStore) -> None:
    store.put_new(A, b"one")
    for key in (ABSENT, Key("absent"), Key("vol"), Key("vol/log"), Key(A + "/below")):
        for look in (store.get, store.head, lambda key: store.get_range(key, 0, 1)):
            with pytest.raises(NoSuchObject):
                look(key)


def test_deleting_is_idempotent(store: ObjectStore) -> None:
    store.put(A, b"one", {"software": "one"})
    for _ in range(2):
        store.delete(A)
        with pytest.raises(NoSuchObject):
            store.head(A)
    store.put_new(A, b"two")
    assert store.head(A).metadata == {}


# ---------------------------------------------------------------- ranges


def test_a_range_is_exact(store: ObjectStore) -> None:
    store.put_new(A, b"0123456789")
    for start, length in ((0, 1), (0, 10), (3, 4), (9, 1), (5, 0), (99, 0)):
        assert store.get_range(A, start, length) == b"0123456789"[start : start + length]


def test_a_range_beyond_the_end_is_an_invalid_object(store: ObjectStore) -> None:
    store.put_new(A, b"0123456789")
    for start, length in ((0, 11), (9, 2), (10, 1), (500, 3)):
        with pytest.raises(InvalidObject, match=A):
            store.get_range(A, start, length)


# ---------------------------------------------------------------- list


def test_a_listing_is_ascending_by_whole_keys_and_keeps_to_its_prefix(store: ObjectStore) -> None:
    keys = ["t/a", "t/a-b/x", "t/a.b", "t/a0", "t/b/c/d", "t/B", "t/_", "t2/x", "other"]
    for key in keys:
        store.put_new(Key(key), b"")
    for prefix in ("", "t", "t/", "t/a", "t/b/", "t/b/c/d", "nothing/", "nothing"):
        assert list(store.list(prefix)) == sorted(key for key in keys if key.startswith(prefix))


def test_a_limit_bounds_a_listing(store: ObjectStore) -> None:
    for name in "edcba":
        store.put_new(Key(f"t/{name}"), b"")
    assert list(store.list("t/", limit=1)) == ["t/a"]
    assert list(store.list("t/", limit=3)) == ["t/a", "t/b", "t/c"]
    assert list(store.list("t/", limit=9)) == ["t/a", "t/b", "t/c", "t/d", "t/e"]


# ---------------------------------------------------------------- P4


def test_a_multipart_object_appears_whole_when_it_is_completed(store: ObjectStore) -> None:
    upload_id, parts = upload(store, C, PART, PART, b"tail")
    assert list(store.list("")) == []
    with pytest.raises(NoSuchObject):
        store.head(C)
    store.complete_upload(C, upload_id, parts)
    assert store.get(C) == PART + PART + b"tail"
    assert store.get_range(C, len(PART) - 2, 4) == PART[-2:] + PART[:2]
    assert store.head(C).metadata == {"software": "test"}
    assert list(store.list("")) == [C]
    assert list(store.list_uploads("")) == []


def test_parts_may_come_in_any_order_and_again(store: ObjectStore) -> None:
    upload_id = store.create_upload(C, {})
    last = store.put_part(C, upload_id, 2, b"tail")
    store.put_part(C, upload_id, 1, bytes(len(PART)))
    first = store.put_part(C, upload_id, 1, PART)
    store.complete_upload(C, upload_id, [first, last])
    assert store.get(C) == PART + b"tail"


def test_parts_may_be_sent_from_several_threads(store: ObjectStore) -> None:
    upload_id = store.create_upload(C, {})
    bodies = [PART, PART[::-1], PART, b"tail"]
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda n: store.put_part(C, upload_id, n, bodies[n - 1]), range(1, 5)))
    store.complete_upload(C, upload_id, parts)
    assert store.get(C) == b"".join(bodies)


def test_a_part_that_is_not_the_one_sent_is_refused(store: ObjectStore) -> None:
    upload_id, parts = upload(store, C, PART, b"tail")
    wrong = replace(parts[1], etag="0" * 32)
    with pytest.raises(InvalidObject, match=C):
        store.complete_upload(C, upload_id, [parts[0], wrong])
    with pytest.raises(NoSuchObject):
        store.head(C)


def test_a_whole_that_is_not_what_was_sent_is_refused(store: ObjectStore) -> None:
    upload_id, parts = upload(store, C, PART, b"tail")
    assert parts[1].checksum is not None
    wrong = replace(parts[1], checksum=replace(parts[1].checksum, value=parts[1].checksum.value ^ 1))
    with pytest.raises(InvalidObject, match=C):
        store.complete_upload(C, upload_id, [parts[0], wrong])
    with pytest.raises(NoSuchObject):
        store.head(C)
    store.complete_upload(C, upload_id, parts)
    assert store.get(C) == PART + b"tail"


def test_a_store_tells_the_checksum_of_the_whole_object(store: ObjectStore) -> None:
    store.put(A, b"123456789", {})
    assert str(store.head(A).checksum) == "4waSgw=="  # of the check string E3069283
    upload_id, parts = upload(store, C, PART, PART[::-1], b"tail")
    store.complete_upload(C, upload_id, parts)
    whole = whole_of(parts)
    assert whole is not None
    assert whole.size == 2 * len(PART) + 4
    assert store.head(C).checksum == whole.checksum == Checksum.of(ChecksumKind.CRC32C, PART + PART[::-1] + b"tail")


def test_an_aborted_upload_leaves_nothing_and_aborting_is_idempotent(store: ObjectStore) -> None:
    upload_id, parts = upload(store, C, PART)
    assert list(store.list_uploads("vol/")) == [(C, upload_id)]
    for _ in range(2):
        store.abort_upload(C, upload_id)
    assert list(store.list_uploads("")) == []
    with pytest.raises(NoSuchObject):
        store.put_part(C, upload_id, 2, b"late")
    with pytest.raises(NoSuchObject):
        store.complete_upload(C, upload_id, parts)
    with pytest.raises(NoSuchObject):
        store.head(C)


def test_a_completed_upload_is_gone_and_its_object_stays(store: ObjectStore) -> None:
    upload_id, parts = upload(store, C, b"one")
    store.complete_upload(C, upload_id, parts)
    with contextlib.suppress(NoSuchObject):  # S3 may also say, again, that it is done
        store.complete_upload(C, upload_id, parts)
    store.abort_upload(C, upload_id)
    assert list(store.list_uploads("")) == []
    assert store.get(C) == b"one"


def test_uploads_are_listed_by_prefix(store: ObjectStore) -> None:
    ids = {key: store.create_upload(key, {}) for key in (A, B, C)}
    assert list(store.list_uploads("vol/log/")) == [(A, ids[A]), (B, ids[B])]
    assert sorted(store.list_uploads("")) == sorted(ids.items())


# ---------------------------------------------------------------- P5


BAD_KEYS = ["", "/a", "a/", "a//b", ".", "..", "a/../b", "../b", ".multipart/x", "a/.b", "a b", "a\n", "é", "a\x00"]
BAD_PREFIXES = ["/", "../", "..", "a/../", ".multipart/", "a//"]


def test_a_key_that_could_leave_the_prefix_is_refused_before_any_request(store: ObjectStore) -> None:
    store.close()  # a request now would be another error
    for bad in map(Key, BAD_KEYS):
        for call in (
            lambda bad: store.put_new(bad, b""),
            lambda bad: store.put(bad, b"", {}),
            lambda bad: store.get(bad),
            lambda bad: store.get_range(bad, 0, 1),
            lambda bad: store.head(bad),
            lambda bad: store.delete(bad),
            lambda bad: store.create_upload(bad, {}),
            lambda bad: store.put_part(bad, "0" * 32, 1, b""),
            lambda bad: store.complete_upload(bad, "0" * 32, []),
            lambda bad: store.abort_upload(bad, "0" * 32),
        ):
            with pytest.raises(InvalidKey):
                call(bad)


def test_a_listing_cannot_leave_the_prefix(store: ObjectStore) -> None:
    for prefix in BAD_PREFIXES:
        with pytest.raises(InvalidKey):
            list(store.list(prefix))
        with pytest.raises(InvalidKey):
            list(store.list_uploads(prefix))


def test_a_neighbour_whose_prefix_begins_alike_is_not_seen(tmp_path: Path, s3_remote: str) -> None:
    for ours, theirs in (
        (S3Store(s3_remote), S3Store(s3_remote + "2")),
        (LocalStore(tmp_path / "acme"), LocalStore(tmp_path / "acme2")),
    ):
        theirs.put_new(A, b"theirs")
        theirs.create_upload(B, {})
        assert list(ours.list("")) == []
        assert list(ours.list_uploads("")) == []
        with pytest.raises(NoSuchObject):
            ours.get(A)
        ours.close()
        theirs.close()


def test_objects_lie_where_the_url_says(s3_remote: str, tmp_path: Path) -> None:
    remote, local = S3Store(s3_remote), LocalStore(tmp_path / "acme")
    remote.put_new(A, b"one")
    local.put_new(A, b"one")
    bucket, _, prefix = s3_remote.removeprefix("s3://").partition("/")
    client = boto3.client("s3")
    assert [found["Key"] for found in client.list_objects_v2(Bucket=bucket)["Contents"]] == [f"{prefix}/{A}"]
    client.close()
    remote.close()
    assert remote.url == s3_remote
    assert local.url == f"file://{tmp_path}/acme"
    assert (tmp_path / "acme" / A).read_bytes() == b"one"


# ---------------------------------------------------------------- against a model


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["put_new", "put", "delete"]),
            st.sampled_from(["a/x", "a/y", "a-b/x", "b", "c/d/e", "c/d/f"]),
            st.binary(max_size=8),
        ),
        max_size=20,
    )
)
def test_a_local_store_behaves_as_one_in_memory(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, bytes]]
) -> None:
    local, model = LocalStore(tmp_path_factory.mktemp("remotes") / "remote"), MemoryStore()
    for method, name, body in steps:
        outcomes = []
        for store in (local, model):
            try:
                if method == "put_new":
                    store.put_new(Key(name), body)
                elif method == "put":
                    store.put(Key(name), body, {"length": str(len(body))})
                else:
                    store.delete(Key(name))
                outcomes.append("done")
            except KeyTaken:
                outcomes.append("taken")
        assert outcomes[0] == outcomes[1]
    assert contents(local) == contents(model)


def contents(store: ObjectStore) -> list[tuple[str, bytes, ObjectInfo]]:
    return [(key, store.get(Key(key)), store.head(Key(key))) for key in store.list("")]
