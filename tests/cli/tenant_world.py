"""A bucket with a tenant to delete, and with others whose names are like its name."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import offload
import seglog
from catalog import LocalCatalog
from tests.s3_server import ACCESS_KEY, SECRET_KEY, own_prefixes

__all__ = ["OTHERS", "World", "first_world", "world"]

OTHERS = ("acme2", "acme-x", "acm", "globex")


class World:
    """A bucket with the tenant `acme` below `base/`, and others whose names are like its name."""

    def __init__(self, bucket: str, path: Path, client: Any) -> None:
        self.bucket = bucket
        self.path = path
        self.client = client
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


class FirstWorld:
    """The tenant that the first test of a module fills. The others copy it: its bucket and its data directory."""

    def __init__(self, path: Path, client: Any) -> None:
        self.bucket = f"first-{uuid.uuid4().hex[:12]}"
        self.path = path / "data"
        self._client = client

    def give(self, world: World, directory: Path) -> None:
        """Fill the bucket of a world, and make the data directory that filled it."""
        if self.path.exists():
            shutil.copytree(self.path, directory)
            self._copy(self.bucket, world.bucket)
            return
        world.fill("acme", directory)
        self._client.create_bucket(Bucket=self.bucket)
        self._copy(world.bucket, self.bucket)
        shutil.copytree(directory, self.path)

    def _copy(self, source: str, target: str) -> None:
        for each in self._client.list_objects_v2(Bucket=source)["Contents"]:
            origin = {"Bucket": source, "Key": each["Key"]}
            self._client.copy_object(Bucket=target, Key=each["Key"], CopySource=origin)


@pytest.fixture(scope="module")
def first_world(tmp_path_factory: pytest.TempPathFactory, s3_client: Any) -> FirstWorld:
    return FirstWorld(tmp_path_factory.mktemp("first"), s3_client)


@pytest.fixture
def world(
    s3_remote: str,
    s3_endpoint: str,
    s3_client: Any,
    first_world: FirstWorld,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> World:
    profile = f"[owner]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
    (tmp_path / "credentials").write_text(profile)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    made = World(s3_remote.split("/")[2], tmp_path, s3_client)
    own_prefixes(s3_endpoint, **{made.bucket: ["base/acme/"]})
    first_world.give(made, tmp_path / "data")
    for name in OTHERS:
        made.client.put_object(Bucket=made.bucket, Key=f"base/{name}/refs/orders/main", Body=b"of another tenant")
    for key in ("acme/refs/orders/main", "base/acme", "base/acme.bak", "refs/orders/main"):
        made.client.put_object(Bucket=made.bucket, Key=key, Body=b"not below the prefix")
    return made
