"""`seglog tenant delete` on S3: the tenant's objects and uploads go, and no other tenant loses anything.

A front before moto fails requests and counts them. The owner of a bucket is a profile in a file of the test.
"""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import offload
import seglog
from catalog.errors import AccessDenied
from offload.operations.tenant import delete
from offload.tenants.deletion import lifecycle_rule
from offload.wiring import open_prefix
from tests.cli.tenant_world import OTHERS, World, first_world, world
from tests.faults.front import Front, HttpFault
from tests.worlds.command import Done, Run

__all__ = ["first_world", "world"]

FOREIGN = ("report.txt", "a b/ü+%2f.txt", "folder/", "5notavolume/x", "tab\tkey")


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
    world.begin_upload(world.path / "data")
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
            world.check_order(begun)
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


def test_without_the_right_name_nothing_goes(run: Run, world: World) -> None:
    objects = world.objects()
    refused = [
        ("tenant delete acme", "", 2),
        ("tenant delete acme", "yes\n", 1),
        ("tenant delete acme", "acme2\n", 1),
        ("tenant delete acm --yes", "", 2),
        ("tenant delete acme/ --yes", "", 2),
        ("tenant delete ACME --yes", "", 2),
    ]
    for words, answer, code in refused:
        done = run("--remote", world.remote, *words.split(), stdin=answer.encode(), is_terminal=bool(answer))
        assert (done.code, world.objects()) == (code, objects), (words, answer, done.err)


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
