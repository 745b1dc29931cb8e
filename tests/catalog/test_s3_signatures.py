"""The signature of a write to S3 covers the body or its checksum (SIGN-1, SIGN-2)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from catalog.format.keys import Key
from catalog.objects.s3 import S3Store
from catalog.objects.s3_client import new_session, open_client
from tests.catalog.s3_stores import open_store
from tests.seams.catalog import client_of, client_that_sends_once

__all__ = ["open_store"]

A, B, COMMIT = Key("vol/segments/A"), Key("vol/segments/B"), Key("vol/log/A")
BODIES = [b"body", bytes(range(256)) * 20_480, b"tail", b"commit"]
_UNSIGNED = "UNSIGNED-PAYLOAD"


def written(store: S3Store) -> list[tuple[str, bool]]:
    """Make the writes of an offload, of each of `BODIES`. Return what each signature has in the place of the body's
    hash, and whether it covers a CRC32C."""
    found: list[tuple[str, bool]] = []

    def note(request: Any, **_: object) -> None:
        headers = {name.lower(): to_text(value) for name, value in request.headers.items()}
        names = headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
        if request.method == "PUT":
            found.append((headers["x-amz-content-sha256"], "x-amz-checksum-crc32c" in names))

    for client in (client_of(store), client_that_sends_once(store)):
        client.meta.events.register("before-send.s3", note)
    store.put(A, BODIES[0], {})
    upload_id = store.create_upload(B, {})
    parts = [store.put_part(B, upload_id, number, bytearray(BODIES[number])) for number in (1, 2)]
    store.complete_upload(B, upload_id, parts)
    store.put_new(COMMIT, BODIES[3])
    assert [store.get(key) for key in (A, B, COMMIT)] == [BODIES[0], BODIES[1] + BODIES[2], BODIES[3]]
    return found


def hash_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def to_text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def test_a_crc32c_is_signed_in_the_place_of_its_body_and_a_commit_itself(open_store: Callable[..., S3Store]) -> None:
    assert written(open_store()) == [(_UNSIGNED, True)] * 3 + [(hash_of(BODIES[3]), False)]


@pytest.mark.parametrize("checksum", ["crc32", "none"])
def test_a_body_without_a_crc32c_is_signed(open_store: Callable[..., S3Store], checksum: str) -> None:
    assert written(open_store(checksum=checksum)) == [(hash_of(body), False) for body in BODIES]


def test_the_aws_configuration_decides_if_it_says_so(
    open_store: Callable[..., S3Store], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    config.write_text("[default]\ns3 =\n  payload_signing_enabled = true\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    assert [signed for signed, _ in written(open_store())] == [hash_of(body) for body in BODIES]


@pytest.mark.parametrize(
    ("variables", "profile", "place"),
    [
        ({}, "", "https://bucket.s3."),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "", "http://127.0.0.1:9/bucket/k?"),
        (
            {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"},
            "",
            "https://bucket.s3.",
        ),
        ({}, "endpoint_url = http://127.0.0.1:9", "http://127.0.0.1:9/bucket/k?"),
    ],
)
def test_a_store_that_is_not_aws_has_its_buckets_in_the_path(
    s3_environment: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    profile: str,
    place: str,
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    (tmp_path / "no-aws-config").write_text(f"[default]\n{profile}\n")
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    with closing(open_client(new_session(), {}, "when_required", {})) as client:
        assert client.generate_presigned_url("get_object", Params={"Bucket": "bucket", "Key": "k"}).startswith(place)
