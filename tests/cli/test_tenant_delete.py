"""`seglog tenant delete` on S3: the tenant's objects and uploads go, and no other tenant loses anything.

A front before moto fails requests and counts them. The owner of a bucket is a profile in a file of the test.
"""

from __future__ import annotations

import json
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
from catalog.errors import AccessDenied
from offload.commands.tenant_delete import delete
from offload.tenants.deletion import lifecycle_rule
from offload.wiring import open_prefix
from tests.cli.conftest import Done, Run
from tests.faults.front import Front, HttpFault
from tests.s3_server import ACCESS_KEY, SECRET_KEY

OTHERS = ("acme2", "acme-x", "acm", "globex")
FOREIGN = ("report.txt", "a b/ü+%2f.txt", "folder/", "5notavolume/x", "tab\tkey")


class World:
    """A bucket with the tenant `acme` below `base/`, and others whose names are like its name."""

    def __init__(self, bucket: str, path: Path) -> None:
        self.bucket = bucket
        self.path = path
        self.client: Any = boto3.client("s3")
        self.remote = f"s3://{bucket}/base/acme"

    def fill(self, tenant: str, directory: Path | None = None) -> None:
        """Offload a topic with a branch, a tag and a pin."""
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


@pytest.fixture
def world(s3_remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    profile = f"[owner]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
    (tmp_path / "credentials").write_text(profile)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    made = World(s3_remote.split("/")[2], tmp_path)
    made.fill("acme", tmp_path / "data")
    for name in OTHERS:
        made.client.put_object(Bucket=made.bucket, Key=f"base/{name}/refs/orders/main", Body=b"of another tenant")
    for key in ("acme/refs/orders/main", "base/acme", "base/acme.bak", "refs/orders/main"):
        made.client.put_object(Bucket=made.bucket, Key=key, Body=b"not below the prefix")
    with closing(made.client):
        yield made


def told(done: Done) -> dict[str, Any]:
    assert done.code == 0, done.err
    [line] = done.text.splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def test_all_of_the_tenant_goes_and_nothing_of_another(run: Run, world: World) -> None:
    for key in FOREIGN:
        world.client.put_object(Bucket=world.bucket, Key=f"base/acme/{key}", Body=b"foreign")
    others, objects = world.others(), world.objects()
    assert len(others) == len(OTHERS) + 4
    words = ("--json", "--remote", world.remote, "tenant", "delete", "acme")
    would = told(run(*words, "--dry-run"))
    assert (would["kind"], would["objects"], would["foreign"]) == ("would_delete", len(objects), len(FOREIGN))
    assert world.objects() == objects
    done = told(run(*words, "--yes"))
    assert world.objects() == {}
    assert world.others() == others
    assert (done["objects"], done["unreferenced_bytes"], done["old_versions"]) == (len(objects), 0, None)
    assert done["reclaimed_bytes"] == would["bytes"] > 1000
    assert done["proves_uploads"] is False
    assert done["lifecycle"] == lifecycle_rule("acme", "base/acme/")
    text = run(*words[1:], "--yes")
    assert "deleted 0 objects of acme" in text.text
    assert "The proof covers objects only" in text.text


def test_a_bucket_takes_the_printed_rule(run: Run, world: World) -> None:
    done = told(run("--json", "--remote", world.remote, "tenant", "delete", "acme", "--yes"))
    rules = {"Rules": [done["lifecycle"]]}
    world.client.put_bucket_lifecycle_configuration(Bucket=world.bucket, LifecycleConfiguration=rules)


def test_uploads_on_record_are_aborted_and_all_others_with_the_profile_of_the_owner(run: Run, world: World) -> None:
    with LocalCatalog(world.path / "data" / "catalog.db") as local:
        [attempt, *_] = local.attempts()
    key = f"base/acme/{attempt.vid}/segments/{attempt.sid}"
    upload_id = world.upload(key)
    with LocalCatalog(world.path / "data" / "catalog.db") as local:
        local.save(attempt=replace(attempt, upload_id=upload_id))
    forgotten = [world.upload(f"base/acme/{name}") for name in ("x/segments/y", "a b")]
    assert len(forgotten) == 2
    foreign = world.upload("base/acme2/x/segments/y")
    assert foreign
    (world.path / "data" / "seglog.toml").write_text(f'[remote]\nurl = "{world.remote}"\n')
    done = told(run("--json", "tenant", "delete", "acme", "--yes"))
    assert (done["aborted_uploads"], done["proves_uploads"]) == (1, False)
    assert len(world.uploads()) == 3
    would = told(run("--json", "tenant", "delete", "acme", "--dry-run", "--owner-profile", "owner"))
    assert (would["uploads"], would["uploads_on_record"]) == (2, 1)
    done = told(run("--json", "tenant", "delete", "acme", "--yes", "--owner-profile", "owner"))
    assert (done["aborted_uploads"], done["proves_uploads"]) == (3, True)
    assert world.uploads() == ["base/acme2/x/segments/y"]


def test_a_versioned_bucket_keeps_old_versions_which_are_counted_apart(run: Run, world: World) -> None:
    versioned = {"Status": "Enabled"}
    world.client.put_bucket_versioning(Bucket=world.bucket, VersioningConfiguration=versioned)
    ref = "base/acme/refs/orders/main"
    body = world.client.get_object(Bucket=world.bucket, Key=ref)["Body"].read()
    world.client.put_object(Bucket=world.bucket, Key=ref, Body=body)
    objects = world.objects()
    done = told(run("--json", "--remote", world.remote, "tenant", "delete", "acme", "--yes"))
    assert world.objects() == {}
    assert done["reclaimed_bytes"] == 0
    assert done["old_versions"] == len(objects) + 1
    assert done["old_version_bytes"] == done["unreferenced_bytes"] + len(body)
    assert done["lifecycle"]["NoncurrentVersionExpiration"] == {"NoncurrentDays": 1}


def test_after_a_failure_at_any_request_no_reader_finds_half_a_state_and_a_repetition_completes(
    world: World, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    others, begun = world.others(), set(world.objects())
    stops = 0
    with Front(s3_endpoint) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        for nth in range(1, 60):
            front.restart([HttpFault("AccessDenied", "after" if nth % 2 else "before", nth, lasts=True)])
            try:
                with closing(open_prefix(world.remote)) as place:
                    delete("acme", place, None, (), lambda _: None)
            except AccessDenied:
                stops += 1
            else:
                break
            left = set(world.objects())
            names = {key for key in begun if key.split("/")[2] in {"refs", "tags", "pins"}}
            segments = {key for key in begun if "/segments/" in key}
            if left & names:
                assert left >= begun - names, "a name reaches what is gone"
            if left - segments:
                assert left >= segments, "a commit names what is gone"
    assert stops >= 6
    assert world.objects() == {}
    assert world.others() == others


def test_a_writer_at_work_is_found_by_the_last_list(
    world: World, s3_endpoint: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(kind: str, _target: str, _headers: object) -> None:
        if kind == "delete many":
            world.client.put_object(Bucket=world.bucket, Key="base/acme/refs/orders/main", Body=b"late")

    with Front(s3_endpoint, seen=write) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        done = run("--remote", world.remote, "tenant", "delete", "acme", "--yes")
    assert done.code == 4
    assert "shows 1 objects" in done.err
    assert "writers" in done.err


def test_a_directory_that_is_open_is_refused_and_nothing_goes(run: Run, world: World) -> None:
    objects = world.objects()
    (world.path / "data" / "seglog.toml").write_text(f'[remote]\nurl = "{world.remote}"\n')
    with seglog.open(world.path / "data"):
        done = run("tenant", "delete", "acme", "--yes")
    assert (done.code, world.objects()) == (4, objects)
    assert "is in use by" in done.err


@pytest.mark.parametrize(
    ("words", "answer", "code"),
    [
        ("tenant delete acme", "", 2),
        ("tenant delete acme", "yes\n", 1),
        ("tenant delete acme", "acme2\n", 1),
        ("tenant delete acm --yes", "", 2),
        ("tenant delete acme/ --yes", "", 2),
        ("tenant delete ACME --yes", "", 2),
    ],
)
def test_without_the_right_name_nothing_goes(run: Run, world: World, words: str, answer: str, code: int) -> None:
    objects = world.objects()
    done = run("--remote", world.remote, *words.split(), stdin=answer.encode(), is_terminal=bool(answer))
    assert (done.code, world.objects()) == (code, objects), done.err


def test_the_name_typed_on_a_terminal_confirms(run: Run, world: World) -> None:
    done = run("--remote", world.remote, "tenant", "delete", "acme", stdin=b"acme\n", is_terminal=True)
    assert (done.code, world.objects()) == (0, {}), done.err
    assert "Type acme to go on" in done.err


def test_a_directory_in_place_of_a_bucket(run: Run, tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    for tenant in ("acme", "acme2"):
        remote = (tmp_path / "archive" / tenant).as_uri()
        with seglog.open(tmp_path / tenant) as log, offload.attach(log, remote) as archive:
            log.topic("t").append([b"x"])
            log.topic("t").seal()
            archive.offload("t")
    (tmp_path / "outside").write_text("stays")
    (tmp_path / "archive" / "acme" / "link").symlink_to(tmp_path / "outside")
    other = sorted((tmp_path / "archive" / "acme2").rglob("*"))
    done = run("--remote", (tmp_path / "archive" / "acme").as_uri(), "tenant", "delete", "acme", "--yes")
    assert done.code == 0, done.err
    assert not (tmp_path / "archive" / "acme").exists()
    assert sorted((tmp_path / "archive" / "acme2").rglob("*")) == other
    assert (tmp_path / "outside").read_text() == "stays"
