"""The parameters of a write: checksum, storage class and encryption.

The store's answers, not a guess, decide which checksum the client uses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from catalog.errors import ChecksumNotKept, InvalidObject
from catalog.format.checksum import Checksum, ChecksumKind
from catalog.format.keys import Key
from catalog.objects.s3 import S3Store
from tests.catalog.s3_stores import open_store
from tests.s3_server import AS_HARNESS, not_of_minio
from tests.seams.catalog import client_of, client_that_sends_once

__all__ = ["open_store"]

A, B = Key("vol/segments/A"), Key("vol/segments/B")
PART = bytes(range(256)) * 20_480
WHOLE = PART + b"tail"
BOTH = ["put_object", "create_multipart_upload"]


class Calls:
    """Records the calls of one method of a store's client. `change` replaces each answer, or raises."""

    def __init__(
        self,
        store: S3Store,
        monkeypatch: pytest.MonkeyPatch,
        method: str,
        change: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]] = lambda _, answer: answer,
    ) -> None:
        self.asked: list[dict[str, Any]] = []
        client = client_that_sends_once(store) if method == "complete_multipart_upload" else client_of(store)
        real = getattr(client, method)

        def call(**request: Any) -> dict[str, Any]:
            self.asked.append(request)
            return change(request, real(**request))

        monkeypatch.setattr(client, method, call)


def forgets(_: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of a store that ignores checksums."""
    return {name: value for name, value in answer.items() if "Checksum" not in name}


def refuses_new_kinds(request: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    if request.get("ChecksumAlgorithm") != "CRC32" or "ChecksumType" in request:
        raise ClientError({"Error": {"Code": "InvalidArgument", "Message": "no such algorithm"}}, "Write")
    return answer


def send_both(store: S3Store) -> None:
    store.put(A, b"body", {})
    upload_id = store.create_upload(B, {"role": "data"})
    parts = [store.put_part(B, upload_id, number, body) for number, body in enumerate((PART, b"tail"), 1)]
    store.complete_upload(B, upload_id, parts)


@pytest.mark.parametrize("kind", ChecksumKind)
def test_each_kind_is_of_the_whole_object_and_of_each_part(
    open_store: Callable[..., S3Store], monkeypatch: pytest.MonkeyPatch, kind: ChecksumKind
) -> None:
    store = open_store(checksum=kind.value)
    parts = Calls(store, monkeypatch, "upload_part")
    done = Calls(store, monkeypatch, "complete_multipart_upload")
    send_both(store)
    name = f"Checksum{kind.upper()}"
    assert [asked[name] for asked in parts.asked] == [str(Checksum.of(kind, body)) for body in (PART, b"tail")]
    [completion] = done.asked
    assert completion[name] == str(Checksum.of(kind, WHOLE))
    assert completion["ChecksumType"] == "FULL_OBJECT"
    assert completion["MpuObjectSize"] == len(WHOLE)
    assert store.head(A).checksum == Checksum.of(kind, b"body")
    assert store.head(B).checksum == Checksum.of(kind, WHOLE)


def test_auto_is_crc32c_where_the_store_says_that_it_keeps_it_and_asks_once(
    open_store: Callable[..., S3Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    calls = [Calls(store, monkeypatch, method) for method in BOTH]
    for _ in range(2):
        send_both(store)
    assert [len(call.asked) for call in calls] == [2, 2]
    assert store.head(B).checksum == Checksum.of(ChecksumKind.CRC32C, WHOLE)


@pytest.mark.parametrize("change", [forgets, refuses_new_kinds])
def test_auto_falls_back_to_crc32_of_each_part_once_the_store_has_shown_that_it_does_not_know_more(
    open_store: Callable[..., S3Store],
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]],
) -> None:
    store = open_store()
    calls = [Calls(store, monkeypatch, method, change) for method in BOTH]
    parts, done = (Calls(store, monkeypatch, method) for method in ("upload_part", "complete_multipart_upload"))
    for _ in range(2):
        send_both(store)
    for call in calls:
        assert [asked.get("ChecksumAlgorithm") for asked in call.asked] == ["CRC32C", "CRC32", "CRC32"]
    assert parts.asked[0]["ChecksumCRC32"] == str(Checksum.of(ChecksumKind.CRC32, PART))
    assert "ChecksumType" not in done.asked[0]
    assert store.get(B) == WHOLE
    if change is forgets:  # the abandoned upload was aborted
        assert list(store.list_uploads("")) == []


def test_a_refusal_for_another_reason_is_told_and_decides_nothing(
    open_store: Callable[..., S3Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(_: dict[str, Any], __: dict[str, Any]) -> dict[str, Any]:
        raise ClientError({"Error": {"Code": "InternalError"}}, "Write")

    store = open_store()
    with monkeypatch.context() as broken:
        for method in BOTH:
            Calls(store, broken, method, denied)
        for call in (lambda: store.put(A, b"", {}), lambda: store.create_upload(B, {})):
            with pytest.raises(Exception, match="InternalError"):
                call()
    send_both(store)
    assert store.head(A).checksum == Checksum.of(ChecksumKind.CRC32C, b"body")


@pytest.mark.parametrize("kind", ChecksumKind)
def test_a_kind_asked_for_by_name_that_is_not_kept_is_an_error(
    open_store: Callable[..., S3Store], monkeypatch: pytest.MonkeyPatch, kind: ChecksumKind
) -> None:
    store = open_store(checksum=kind.value)
    for method in BOTH:
        Calls(store, monkeypatch, method, forgets)
    for call in (lambda: store.put(A, b"", {}), lambda: store.create_upload(B, {})):
        with pytest.raises(ChecksumNotKept, match=kind.value):
            call()
    assert list(store.list_uploads("")) == []


def test_none_sends_none(open_store: Callable[..., S3Store], monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(checksum="none")
    every = ["upload_part", "complete_multipart_upload", *BOTH]
    calls = [Calls(store, monkeypatch, method) for method in every]
    send_both(store)
    assert not [name for call in calls for asked in call.asked for name in asked if "Checksum" in name]
    assert store.get(B) == WHOLE
    assert store.head(A).checksum is None


@pytest.mark.parametrize("method", ["put_object", "complete_multipart_upload"])
def test_an_answer_with_another_checksum_is_not_taken_for_success(
    open_store: Callable[..., S3Store], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    def damaged(_: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
        return answer | {"ChecksumCRC32C": str(Checksum(ChecksumKind.CRC32C, 1))}

    store = open_store()
    Calls(store, monkeypatch, method, damaged)
    with pytest.raises(InvalidObject, match="was sent"):
        send_both(store)


@not_of_minio
def test_storage_class_and_encryption_are_what_the_store_has(
    open_store: Callable[..., S3Store], s3_remote: str
) -> None:
    store = open_store(storage_class="STANDARD_IA", sse="aws:kms", sse_kms_key_id="arn:aws:kms:us-east-1:1:key/k")
    send_both(store)
    store.put_new(Key("vol/log/1"), b"commit")
    client = boto3.client("s3", **AS_HARNESS)
    bucket = s3_remote.split("/")[2]
    for key, storage_class in ((A, "STANDARD_IA"), (B, "STANDARD_IA"), ("vol/log/1", None)):
        found = client.head_object(Bucket=bucket, Key=f"acme/{key}")
        assert found.get("StorageClass") == storage_class
        assert found["ServerSideEncryption"] == "aws:kms"
        assert found["SSEKMSKeyId"] == "arn:aws:kms:us-east-1:1:key/k"
    client.close()


@not_of_minio
def test_encryption_with_the_stores_own_key_names_none(open_store: Callable[..., S3Store], s3_remote: str) -> None:
    store = open_store(sse="AES256")
    send_both(store)
    client = boto3.client("s3", **AS_HARNESS)
    found = client.head_object(Bucket=s3_remote.split("/")[2], Key=f"acme/{B}")
    assert found["ServerSideEncryption"] == "AES256"
    assert "SSEKMSKeyId" not in found
    assert "StorageClass" not in found
    client.close()
