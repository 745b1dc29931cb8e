"""A `seglog tenant delete` that stops in the middle: by SIGKILL, or by a store that fails or refuses one key.

A repetition completes it. At no moment has another tenant lost anything, and no name reaches an object that is gone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from catalog.objects import s3
from tests import work
from tests.cli.tenant_world import FirstWorld, World, first_world, world
from tests.faults.front import Front, HttpFault, When
from tests.waiting import wait_until
from tests.worlds.command import Done, Run

__all__ = ["first_world", "world"]

ROOT = Path(__file__).parents[2]
WORDS = ("--json", "tenant", "delete", "acme", "--yes", "--owner-profile", "owner")
Moment = tuple[str, int, When]
#: Requests of a deletion: refs, tags, histories, segments, the upload on record, and the one that the owner lists.
FEW: tuple[Moment, ...] = (
    ("delete many", 1, "before"),
    ("delete many", 1, "after"),
    ("delete many", 3, "after"),
    ("abort", 1, "before"),
)
EVERY = tuple(
    (kind, nth, when)
    for kind, count in (("LIST", 6), ("delete many", 4), ("LIST uploads", 2), ("abort", 2))
    for nth in range(1, count + 1)
    for when in ("before", "after")
)


def prepare(world: World, directory: Path, first_world: FirstWorld | None = None) -> None:
    """Fill the tenant, if it is empty, with an upload on record in the directory and one that nobody knows."""
    if first_world is not None and not world.objects():
        first_world.give(world, directory)
    world.begin_upload(directory)
    world.upload("base/acme/x/segments/y")
    (directory / "seglog.toml").write_text(f'[remote]\nurl = "{world.remote}"\n')


def killed_at(front: Front, directory: Path, kind: str, nth: int, when: When) -> None:
    """Kill a deletion while it waits for the answer to a request, which has its effect or not."""
    front.restart([HttpFault("timeout", when, nth, kind)])
    command = [sys.executable, "-m", "offload", "-C", str(directory), *WORDS]
    environment = {**os.environ, "AWS_ENDPOINT_URL": front.url}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(lambda: front.struck or process.poll() is not None)
    process.kill()
    out, err = process.communicate(timeout=60)
    front.await_left()
    assert front.struck, err
    assert out == b""


def check_complete(world: World, done: Done, others: dict[str, str]) -> None:
    assert done.code == 0, done.err
    assert json.loads(done.text)["proves_uploads"] is True
    assert (world.objects(), world.uploads()) == ({}, [])
    assert world.others() == others


@pytest.mark.long
@pytest.mark.parametrize("moments", [FEW, pytest.param(EVERY, marks=pytest.mark.soak(part=8))], ids=["few", "every"])
def test_a_repetition_completes_a_deletion_that_was_killed(
    world: World, first_world: FirstWorld, s3_endpoint: str, run: Run, moments: tuple[Moment, ...]
) -> None:
    others, seen = world.others(), set()
    with Front(s3_endpoint) as front:
        for number, (kind, nth, when) in enumerate(moments):
            directory = world.path / (f"data-{number}" if number else "data")
            prepare(world, directory, first_world)
            begun = set(world.objects())
            killed_at(front, directory, kind, nth, when)
            world.check_order(begun)
            assert world.others() == others
            seen.add((len(world.objects()), len(world.uploads())))
            check_complete(world, run(*WORDS, directory=str(directory)), others)
    assert len(seen) >= 4, f"the moments are too alike: {seen}"
    work.tell(f"{len(moments)} moments of SIGKILL, then a repetition; {len(others)} objects of others untouched")


@pytest.mark.parametrize(("kind", "nth"), [("delete many", 2), ("LIST uploads", 1)])
def test_a_repetition_completes_a_deletion_whose_store_failed(
    world: World, s3_endpoint: str, run: Run, monkeypatch: pytest.MonkeyPatch, kind: str, nth: int
) -> None:
    monkeypatch.setattr(s3, "ATTEMPTS", 1)
    directory = world.path / "data"
    prepare(world, directory)
    others, begun = world.others(), set(world.objects())
    with Front(s3_endpoint, [HttpFault("500", "before", nth, kind, lasts=True)]) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        failed = run(*WORDS, directory=str(directory))
        assert (failed.code, failed.out, front.struck != []) == (1, b"", True), failed.err
        assert "InternalError" in failed.err
        world.check_order(begun)
        front.restart()
        check_complete(world, run(*WORDS, directory=str(directory)), others)


@pytest.mark.parametrize("part", ["/refs/", "/segments/"])
def test_one_key_that_the_store_refuses_is_named_and_nothing_that_follows_goes(
    world: World, run: Run, part: str
) -> None:
    directory = world.path / "data"
    prepare(world, directory)
    others, begun = world.others(), set(world.objects())
    key = min(each for each in begun if part in each)
    arn = f"arn:aws:s3:::{world.bucket}/{key}"
    deny = {"Sid": "Stays", "Effect": "Deny", "Principal": "*", "Action": "s3:DeleteObject", "Resource": arn}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [deny]})
    world.client.put_bucket_policy(Bucket=world.bucket, Policy=policy)
    for _ in range(2):
        refused = run(*WORDS, directory=str(directory))
        assert (refused.code, refused.out) == (1, b""), refused.err
        assert "AccessDenied" in refused.err
        assert key.removeprefix("base/acme/") in refused.err
        assert key in world.objects()
        assert len(world.uploads()) == 2, "uploads go after all objects"
        world.check_order(begun)
    world.client.delete_bucket_policy(Bucket=world.bucket)
    check_complete(world, run(*WORDS, directory=str(directory)), others)
