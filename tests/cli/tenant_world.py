"""A bucket with a tenant to delete, and with others whose names are like its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest

import offload
import seglog
from catalog import LocalCatalog
from tests.s3_server import ACCESS_KEY, AS_HARNESS, SECRET_KEY, own_prefixes

__all__ = ["OTHERS", "World", "world"]

OTHERS = ("acme2", "acme-x", "acm", "globex")


class World:
    """A bucket with the tenant `acme` below `base/`, and others whose names are like its name."""

    def __init__(self, bucket: str, path: Path) -> None:
        self.bucket = bucket
        self.path = path
        self.client: Any = boto3.client("s3", **AS_HARNESS)
        self.remote = f"s3://{bucket}/base/acme"

    def fill(self, tenant: str, directory: Path | None = None) -> None:
        """Offload a topic with a branch and a tag."""
        with (
            seglog.open(directory or self.path / tenant) as log,
            offload.attach(log, f"s3://{self.bucket}/base/{tenant}") as archive,
        ):
            topic = log.topic("orders")
            for number in range(2):
                topic.append([b"%d of the tenant" % number] * 10)
                topic.seal()
                archive.offload("orders")
            archive.restore("orders", to="lsn:1", name="trial")
            archive.tags.tag("orders", "v1", to="head")

    def objects(self, prefix: str = "base/acme/") -> dict[str, str]:
        listed = self.client.list_objects_v2(Bucket=self.bucket, Prefix=prefix).get("Contents", ())
        return {each["Key"]: each["ETag"] for each in listed}

    def uploads(self) -> list[str]:
        listed = self.client.list_multipart_uploads(Bucket=self.bucket).get("Uploads", ())
        return sorted(each["Key"] for each in listed)

    def upload(self, key: str) -> str:
        return str(self.client.create_multipart_upload(Bucket=self.bucket, Key=key)["UploadId"])

    def others(self) -> dict[str, str]:
        return {key: etag for key, etag in self.objects("").items() if not key.startswith("base/acme/")}

    def begin_upload(self, directory: Path) -> None:
        """Begin an upload that the data directory has on record."""
        with LocalCatalog(directory / "catalog.db") as local:
            [attempt, *_] = local.attempts()
        upload_id = self.upload(f"base/acme/{attempt.vid}/segments/{attempt.sid}")
        with LocalCatalog(directory / "catalog.db") as local:
            local.save(attempt=replace(attempt, upload_id=upload_id))

    def check_order(self, begun: set[str]) -> None:
        """Assert that no name and no commit of what had begun reaches an object that is gone (TDEL-2)."""
        left = set(self.objects())
        names = {key for key in begun if key.split("/")[2] in {"refs", "tags", "pins"}}
        segments = {key for key in begun if "/segments/" in key}
        if left & names:
            assert left >= begun - names, "a name reaches what is gone"
        if left - segments:
            assert left >= segments, "a commit names what is gone"


@pytest.fixture
def world(s3_remote: str, s3_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    profile = f"[owner]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
    (tmp_path / "credentials").write_text(profile)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    made = World(s3_remote.split("/")[2], tmp_path)
    own_prefixes(s3_endpoint, **{made.bucket: ["base/acme/"]})
    made.fill("acme", tmp_path / "data")
    for name in OTHERS:
        made.client.put_object(Bucket=made.bucket, Key=f"base/{name}/refs/orders/main", Body=b"of another tenant")
    for key in ("acme/refs/orders/main", "base/acme", "base/acme.bak", "refs/orders/main"):
        made.client.put_object(Bucket=made.bucket, Key=key, Body=b"not below the prefix")
    with closing(made.client):
        yield made
