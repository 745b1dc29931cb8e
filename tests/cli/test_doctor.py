"""Test `seglog doctor`: every promise of a store, over a directory and over S3, and over stores that break one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from catalog.format.keys import Key
from catalog.objects import LocalStore, MemoryStore, ObjectStore
from catalog.objects.conformance import CHECKS
from catalog.objects.s3 import S3Store
from catalog.objects.store_time import ahead_ms
from tests.faults.broken_stores import CASES, Broken, Writer
from tests.faults.store import CountingStore
from tests.s3_server import AS_HARNESS, not_of_minio
from tests.seams.limits import Limit, set_limit
from tests.worlds.command import Run

LOCAL = ["versions", "disk", "fsync", "files", "permissions", "tls", "daemon", "packages"]
NAMES = [check.name for check in CHECKS]


def values_of(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def wire(monkeypatch: pytest.MonkeyPatch, store: ObjectStore) -> None:
    monkeypatch.setattr("offload.wiring.open_store", lambda *_: store)


def files_of(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() and ".locks" not in path.parts]


def test_a_directory_keeps_every_promise_and_is_left_as_it_was(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "remote"
    LocalStore(root).put_new(Key("refs/orders/main"), b"the user's")
    done = run("--remote", root.as_uri(), "doctor")
    assert (done.code, done.err) == (0, "")
    *checks, clock = done.text.splitlines()
    assert [line.split()[:2] for line in checks] == [["ok", f"{name}:"] for name in NAMES]
    assert clock == "clock   this machine's is right"
    assert files_of(root) == [root / "refs/orders/main"]


def test_the_remote_of_the_data_directory_is_the_one_that_is_checked(run: Run, tmp_path: Path) -> None:
    assert run("init", "--remote", (tmp_path / "remote").as_uri()).code == 0
    done = run("--json", "doctor")
    assert done.code == 0
    *checks, clock = values_of(done.text)
    local = [value for value in checks if value["kind"] == "directory_checked"]
    assert [value["check"] for value in local] == LOCAL
    assert "fail" not in [value["outcome"] for value in local]
    assert [value["outcome"] for value in checks[len(local) :]] == ["ok"] * len(NAMES)
    assert clock == {"schema": 1, "kind": "clock_ahead", "clock_ahead_ms": 0}
    assert (tmp_path / "remote").is_dir()


def test_without_a_remote_it_says_how_to_name_one(run: Run) -> None:
    done = run("doctor")
    assert done.code == 2
    assert "--remote URL" in done.err


@pytest.mark.long
@not_of_minio
def test_s3_keeps_every_promise_tells_its_time_and_is_left_as_it_was(run: Run, s3_remote: str) -> None:
    done = run("--json", "--remote", s3_remote, "doctor")
    *checks, clock = values_of(done.text)
    assert (done.code, done.err) == (0, "")
    assert [(value["check"], value["outcome"]) for value in checks] == [(name, "ok") for name in NAMES]
    assert clock == {"schema": 1, "kind": "clock_ahead", "clock_ahead_ms": 0}
    client = boto3.client("s3", **AS_HARNESS)
    bucket = s3_remote.split("/")[2]
    assert client.list_objects_v2(Bucket=bucket)["KeyCount"] == 0
    assert "Uploads" not in client.list_multipart_uploads(Bucket=bucket)
    client.close()


def test_a_clock_that_goes_wrong_is_told(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seglog.SystemClock.now_ms", lambda _: 4_102_444_800_000)  # the year 2100
    done = run("--remote", (tmp_path / "remote").as_uri(), "doctor")
    assert done.code == 0  # no store promises a right clock
    assert "s ahead of the store's" in done.text.splitlines()[-1]


@pytest.mark.parametrize(
    ("asked", "told", "answered", "ahead"),
    [
        (5_000, 5_000, 5_100, 0),
        (5_999, 5_000, 6_400, 0),  # the store tells whole seconds: 5,000 is any time before 6,000
        (4_900, 5_000, 5_000, 0),
        (6_100, 5_000, 6_200, 101),
        (4_000, 5_000, 4_200, -800),
    ],
)
def test_clocks_agree_if_there_may_be_a_moment_at_which_they_do(
    asked: int, told: int, answered: int, ahead: int
) -> None:
    assert ahead_ms(asked, told, answered) == ahead


@pytest.mark.parametrize(("name", "broken"), CASES, ids=lambda case: case if isinstance(case, str) else case.__name__)
def test_a_store_that_breaks_a_promise_is_found_out(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str, broken: type[Broken]
) -> None:
    wire(monkeypatch, broken())
    set_limit(monkeypatch, Limit.PART_OF_A_CHECK, bytes(range(256)) * 4)  # only S3 needs 5 MiB
    done = run("--remote", "s3://bucket/acme", "doctor")
    assert done.code == 1
    assert f"FAIL    {name}: " in done.text
    assert " failed at memory://. See docs/stores.md" in done.err


def test_a_role_that_may_not_delete_is_told_what_stays(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    wire(monkeypatch, Writer())
    done = run("--remote", "s3://bucket/acme", "doctor")
    assert done.code == 0
    assert "skipped delete: this role may not delete" in done.text
    [note] = done.err.splitlines()
    assert "stays in memory:///doctor/8" in note
    assert "refuses access" in note
    *checks, left = values_of(run("--json", "--remote", "s3://bucket/acme", "doctor").text)
    assert {value["outcome"] for value in checks} == {"ok", "skipped"}
    assert "refuses access" in str(left["reason"])


def test_an_interrupt_leaves_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(Broken):
        def list(self, prefix: str, *, limit: int | None = None, start_after: str = "") -> Iterator[str]:
            if limit is not None:
                raise KeyboardInterrupt
            return super().list(prefix, start_after=start_after)

    store = Interrupted()
    wire(monkeypatch, store)
    done = run("--remote", "s3://bucket/acme", "doctor")
    assert done.code == 130
    assert list(store.inner.list("")) == []


def test_a_remote_that_cannot_be_reached_is_tried_once(run: Run, tmp_path: Path) -> None:
    done = run("--remote", (tmp_path / "unmounted" / "remote").as_uri(), "doctor")
    assert done.code == 1
    first, *others = done.text.splitlines()
    assert first.startswith("FAIL    read-after-write: directory ")
    assert all(line.startswith("skipped ") for line in others)


def test_it_costs_what_the_manual_says(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []

    class Weighed(CountingStore):
        def put_part(self, key, upload_id, number, body):  # type: ignore[no-untyped-def]
            sent.append(len(body))
            return super().put_part(key, upload_id, number, body)

    store = Weighed(MemoryStore())
    wire(monkeypatch, store)
    assert run("--remote", "s3://bucket/acme", "doctor").code == 0
    print(store.counts, store.counts.total(), sum(sent))
    page = (Path(__file__).parents[2] / "docs" / "stores.md").read_text()
    assert f"about {round(store.counts.total(), -1)} requests and {sum(sent) / 1e6:.0f} MB" in page


def test_s3_tells_its_time_also_when_it_refuses(s3_remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", str(boto3.client("s3").meta.endpoint_url))
    store = S3Store("s3://no-such-bucket-anywhere/acme")
    told = store.time_ms()
    store.close()
    assert told is not None
    assert told % 1000 == 0
