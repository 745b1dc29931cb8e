"""Every store of ours passes every check of `catalog.objects.conformance`, and no store leaves its prefix."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import boto3
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog.errors import InvalidKey, KeyTaken, NoSuchObject
from catalog.format.keys import Key
from catalog.objects import LocalStore, MemoryStore, ObjectInfo, ObjectStore
from catalog.objects.conformance import CHECKS, Check, NotKept, Sandbox
from catalog.objects.s3 import S3Store
from tests.catalog.s3_stores import kept_open
from tests.s3_server import AS_HARNESS, MINIO, own_prefixes
from tests.worlds.proxies import ThroughProxy

__all__ = ["kept_open"]

A, B = Key("vol/log/A"), Key("vol/log/B")


KINDS = ["file", "memory", "s3", "s3-boto3"]


def _opened(request: pytest.FixtureRequest, path: Path) -> ObjectStore:
    if request.param == "file":
        return LocalStore(path)
    if request.param == "memory":
        return MemoryStore()
    if request.param == "http":  # it only reads, so the writes of a check go past it
        return ThroughProxy(LocalStore(path), path.parent / "proxy")
    reader: Literal["obstore", "boto3"] = "boto3" if request.param == "s3-boto3" else "obstore"
    return S3Store(request.getfixturevalue("s3_remote"), reader=reader)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    opened = _opened(request, tmp_path / "remote")
    yield opened
    opened.close()


@pytest.fixture(params=[*KINDS, "http"])
def shared_store(request: pytest.FixtureRequest, kept_open: dict[str, ObjectStore]) -> ObjectStore:
    """One store for all checks, each of which has a prefix of its own."""
    if request.param not in kept_open:
        remote = request.getfixturevalue("tmp_path_factory").mktemp("stores") / "remote"
        kept_open[request.param] = _opened(request, remote)
    elif request.param.startswith("s3"):
        request.getfixturevalue("s3_environment")  # it reports the requests of the test
    return kept_open[request.param]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_store_keeps_its_promise(shared_store: ObjectStore, check: Check) -> None:
    try:
        check.run(Sandbox(shared_store, f"doctor/{check.name}/"))
    except NotKept as reason:
        if not MINIO:
            raise
        pytest.skip(str(reason))


def test_a_store_with_nothing_in_it_lists_nothing(store: ObjectStore) -> None:
    assert list(store.list("")) == []
    assert list(store.list_uploads("")) == []


# ---------------------------------------------------------------- keys stay under the prefix (STORE-7)


BAD_KEYS = ["", "/a", "a/", "a//b", ".", "..", "a/../b", "../b", ".multipart/x", "a/.b", "a b", "a\n", "é", "a\x00"]
BAD_PREFIXES = ["/", "../", "..", "a/../", ".multipart/", "a//"]


def test_a_key_that_could_leave_the_prefix_is_refused_before_any_request(store: ObjectStore) -> None:
    store.close()  # a request to a closed store would raise another error
    for bad in map(Key, BAD_KEYS):
        for call in (
            lambda bad: store.put_new(bad, b""),
            lambda bad: store.put(bad, b"", {}),
            lambda bad: store.get(bad),
            lambda bad: store.get_with_etag(bad),
            lambda bad: store.swap(bad, b"", "etag"),
            lambda bad: store.delete_many([A, bad]),
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


def test_a_neighbour_whose_prefix_begins_alike_is_not_seen(tmp_path: Path, s3_endpoint: str, s3_remote: str) -> None:
    own_prefixes(s3_endpoint, **{s3_remote.split("/")[2]: ["acme/", "acme2/"]})
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
    client = boto3.client("s3", **AS_HARNESS)
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
            st.sampled_from(["put_new", "put", "swap", "delete"]),
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
        outcomes: list[str] = []
        for store in (local, model):
            try:
                if method == "put_new":
                    store.put_new(Key(name), body)
                elif method == "put":
                    store.put(Key(name), body, {"length": str(len(body))})
                elif method == "swap":
                    store.swap(Key(name), body, store.get_with_etag(Key(name)).etag)
                else:
                    store.delete(Key(name))
                outcomes.append("done")
            except KeyTaken:
                outcomes.append("taken")
            except NoSuchObject:
                outcomes.append("absent")
        assert outcomes[0] == outcomes[1]
    assert contents(local) == contents(model)


def contents(store: ObjectStore) -> list[tuple[str, bytes, ObjectInfo]]:
    return [(key, store.get(Key(key)), store.head(Key(key))) for key in store.list("")]
