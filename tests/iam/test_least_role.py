"""Each command runs under the least role that should suffice, with and without a KMS key, and no request is denied."""

from __future__ import annotations

import os
import re
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.tenants.policies import TenantRole
from offload.settings import MIN_BLOCK_SIZE
from tests.iam.site import KMS_KEY, Site
from tests.iam.station import Station, check, requests_of
from tests.worlds.command import Run, run

__all__ = ["run"]

READER, WRITER, MAINTAINER, ADMIN = TenantRole
TENANT = "globex"
#: Nine megabytes that no codec makes smaller: two parts of an upload.
LINES = b"".join(os.urandom(1000).replace(b"\n", b" ") + b"\n" for _ in range(9_000))


@pytest.fixture(params=["plain", "kms"])
def station(request: pytest.FixtureRequest, site: Site, tmp_path: Path, run: Run) -> Iterator[Station]:
    station = Station(site, TENANT, tmp_path, f"least-{uuid.uuid4().hex}", run)
    station.did(WRITER, "init", "--remote", station.remote)
    settings = tmp_path / "data" / "seglog.toml"
    text = re.sub(r"# max_record_bytes = \d+ ", "max_record_bytes = 65536 ", settings.read_text())
    text = re.sub(r"# block_size = \d+ ", f"block_size = {MIN_BLOCK_SIZE} ", text)
    if request.param == "kms":
        text = text.replace('# sse = "none"', 'sse = "aws:kms"')
        text = text.replace('# sse_kms_key_id = ""', f'sse_kms_key_id = "{KMS_KEY}"')
    settings.write_text(text)
    yield station
    if request.param == "kms":
        assert keys_of(station) == {KMS_KEY}


def keys_of(station: Station) -> set[str]:
    """Return the KMS keys of all objects of the station."""
    owner, bucket = station.site.client(), station.site.bucket
    listed = owner.list_objects_v2(Bucket=bucket, Prefix=station.prefix)["Contents"]
    heads = [owner.head_object(Bucket=bucket, Key=each["Key"]) for each in listed]
    assert heads
    return {str(head.get("SSEKMSKeyId", "none")).removeprefix("arn:aws:kms:") for head in heads}


def test_every_command_suffices_with_its_least_role(station: Station) -> None:
    with requests_of(station.site) as write:
        station.did(WRITER, "append", "orders", stdin=LINES)
        station.did(WRITER, "seal", "orders")
        station.did(WRITER, "offload", "orders", "--drop-hot")
        assert station.did(WRITER, "read", "orders") == LINES
        station.did(WRITER, "branch", "create", "orders", "fix")
        station.did(WRITER, "append", "orders@fix", stdin=b"fixed\n")
        station.did(WRITER, "tag", "create", "orders", "before")
        station.did(WRITER, "delete", "orders", "--before", "8001", "--yes")
        station.did(WRITER, "restore", "orders", "--to", "head~1", "--as", "back")
        assert station.did(WRITER, "read", "orders@back") == LINES
        station.did(WRITER, "undo", "orders", "lsn:2")
        station.did(WRITER, "branch", "delete", "orders", "back", "--yes")
    with requests_of(station.site) as read:
        station.did(READER, "recover", station.remote, str(station.directory / "copy"), directory="copy")
        assert station.did(READER, "read", "orders", directory="copy") == LINES
        for words in (["log", "orders"], ["branch", "list", "orders"], ["points", "orders"], ["cost"]):
            station.did(READER, *words, directory="copy")
        station.did(READER, "gc", "--dry-run", directory="copy")
        station.did(READER, "verify", "--remote", directory="copy")
    with requests_of(station.site) as collect:
        station.did(MAINTAINER, "gc", "--retain", "0")
        station.did(MAINTAINER, "gc", "--retain", "0", "--grace", "0")
    assert "s3.NewMultipartUpload" in {each.api for each in write}
    for role, requests in ((WRITER, write), (READER, read), (MAINTAINER, collect)):
        check(station, role, requests)


@pytest.mark.soak(part=9)
@pytest.mark.parametrize("station", ["kms"], indirect=True)
def test_spark_reads_as_a_reader(station: Station) -> None:
    station.did(WRITER, "append", "orders", stdin=b"a\nb\nc\n")
    station.did(WRITER, "seal", "orders")
    station.did(WRITER, "offload", "orders")
    with requests_of(station.site) as read:
        done = station.process(READER, sys.executable, "-m", "demo.count", station.remote, "orders", "main")
    assert done.stdout.split() == ["3"], done.stderr
    check(station, READER, read)


@pytest.mark.parametrize("station", ["plain"], indirect=True)
def test_the_role_below_does_not_suffice(station: Station) -> None:
    station.did(WRITER, "append", "orders", stdin=b"a\nb\nc\n")
    station.did(WRITER, "seal", "orders")
    denied = station.asked(READER, "offload", "orders")
    assert (denied.code, "AccessDenied" in denied.err) == (1, True), denied.err
    station.did(WRITER, "offload", "orders")
    station.did(WRITER, "delete", "orders", "--before", "4", "--yes")
    station.did(WRITER, "gc", "--retain", "0")
    with requests_of(station.site) as collect:
        denied = station.asked(WRITER, "gc", "--retain", "0", "--grace", "0")
    assert (denied.code, "AccessDenied" in denied.err) == (1, True), denied.err
    deletes = [each.status for each in collect if "Delete" in each.api]
    assert deletes
    assert station.did(READER, "verify", "--remote")
