"""Every write to the store carries the tenant's own KMS key: PUTs, swaps and the beginnings of uploads (KMS-1).

A front before moto sees each request. A part and a completion follow their upload, so they carry no key.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

import seglog
from offload.settings import Settings
from offload.wiring import open_store
from offload.write.warm_object_store import warm_stores
from seglog import LogSettings
from tests.daemons import served
from tests.faults.front import Front
from tests.s3_server import MINIO
from tests.seams.limits import Limit, set_limit
from tests.waiting import wait_until
from tests.worlds.command import Done, Run
from tests.worlds.kms import KEY

OTHER = "arn:aws:kms:us-east-1:111122223333:key/5b1c9f30-globex"
TOML = f"""
[remote]
url = "%s"
[offload]
sse = "aws:kms"
sse_kms_key_id = "{KEY}"
block_size = 5242880
codec = "none"
[log]
max_record_bytes = 1048576
[catalog]
checkpoint_commits = 2
"""


class Writes:
    """The writes that a front saw, counted by kind and by the key that they carry."""

    def __init__(self) -> None:
        self.found: Counter[tuple[str, str]] = Counter()

    def see(self, kind: str, target: str, headers: Mapping[str, str]) -> None:
        given = {name.lower(): text for name, text in headers.items()}
        if kind.startswith(("PUT", "swap", "create")) and target.count("/") > 2:
            way = given.get("x-amz-server-side-encryption", "none")
            self.found[kind, f"{way} {given.get('x-amz-server-side-encryption-aws-kms-key-id', '')}"] += 1

    def kinds(self, key: str = KEY) -> set[str]:
        """Return the kinds of the writes with the key, which are all writes."""
        assert {carried for _, carried in self.found} == {f"aws:kms {key}"}, self.found
        return {kind for kind, _ in self.found}


@pytest.fixture
def writes() -> Writes:
    return Writes()


@pytest.fixture
def encrypted(s3_remote: str, s3_endpoint: str, writes: Writes, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield a remote behind a front that sees each request."""
    with Front(s3_endpoint, seen=writes.see) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        yield s3_remote


def told(done: Done) -> str:
    assert done.code == 0, done.err
    return done.text


def lines(first: int, last: int) -> bytes:
    return b"".join(b"record %d\n" % number for number in range(first, last + 1))


def offloaded(run: Run, first: int, last: int, topic: str = "orders") -> None:
    told(run("append", topic, stdin=lines(first, last)))
    told(run("seal", topic))
    told(run("offload", topic))


@pytest.mark.long
def test_every_write_of_the_commands_carries_the_key(
    run: Run, encrypted: str, writes: Writes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not MINIO:
        set_limit(monkeypatch, Limit.PART_OF_A_CHECK, bytes(range(256)) * 4)
    told(run("init", "--remote", encrypted))
    (tmp_path / "data" / "seglog.toml").write_text(TOML % encrypted)
    for first in (1, 11, 21):
        offloaded(run, first, first + 9)
    told(run("branch", "create", "orders", "trial"))
    told(run("tag", "create", "orders", "v1"))
    told(run("resolve", "orders", "--to", "lsn:1", "--pin", "1h"))
    told(run("delete", "orders", "--before", "5", "--yes"))
    told(run("undo", "orders", "lsn:4"))
    told(run("truncate", "orders", "--from", "25", "--yes"))
    told(run("branch", "promote", "orders", "trial", "--leave", "--keep", "old"))
    told(run("branch", "delete", "orders", "old", "--yes"))
    told(run("tag", "delete", "orders", "v1"))
    told(run("append", "events", stdin=(b"x" * 100_000 + b"\n") * 72))
    told(run("seal", "events"))
    told(run("offload", "events"))
    told(run("compact", "events"))
    for _ in range(2):
        told(run("gc", "--retain", "0", "--grace", "0"))
    told(run("doctor"))
    expected = {f"PUT {each}" for each in ("commit", "control", "fork", "index", "oplog", "plan", "pin", "ref", "tag")}
    assert writes.kinds() >= {*expected, "create", "PUT checkpoints", "swap checkpoints", "swap commit", "swap ref"}
    print(f"writes with the tenant's key: {writes.found.total()} of {len(writes.kinds())} kinds")


def test_a_takeover_by_recover_carries_the_key_of_the_environment(
    run: Run, encrypted: str, writes: Writes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEGLOG_OFFLOAD_SSE", "aws:kms")
    monkeypatch.setenv("SEGLOG_OFFLOAD_SSE_KMS_KEY_ID", KEY)
    told(run("init", "--remote", encrypted))
    offloaded(run, 1, 10)
    assert "PUT commit" in writes.kinds()
    writes.found.clear()
    told(run("recover", encrypted, str(tmp_path / "new"), "--writable", directory=None))
    assert writes.kinds() == {"PUT commit"}


@pytest.mark.long
def test_every_write_of_the_daemon_and_of_its_upload_process_carries_the_key(
    encrypted: str, writes: Writes, tmp_path: Path
) -> None:
    seglog.open(tmp_path / "data").close()
    (tmp_path / "data" / "seglog.toml").write_text(TOML % encrypted)
    with served(tmp_path / "data", encrypted, OFFLOAD_OFFLOAD_AFTER_S="0") as daemon:
        daemon.append("orders", b"one")
        daemon.call("seal", topic="orders")
        wait_until(lambda: daemon.status("orders")["offloaded_seq"] == 1)
    assert writes.kinds() >= {"PUT data", "PUT index", "PUT commit", "PUT control", "PUT ref"}


def test_every_write_of_a_warm_store_carries_the_key(encrypted: str, writes: Writes, tmp_path: Path) -> None:
    settings = Settings(tomllib.loads(TOML % encrypted))
    with (
        closing(open_store(encrypted, settings.cold, settings.offload)) as store,
        seglog.open(
            tmp_path / "data",
            warm_stores=warm_stores(store, "here"),
            settings=LogSettings(segment_max_events=10, hot_retain_segments=1),
        ) as log,
    ):
        topic = log.topic("orders")
        topic.append([b"value"] * 30)
        topic.seal()
        log.checkpoint()
        wait_until(lambda: topic.inner.bytes_relocated > 0)
    assert writes.kinds() == {"PUT data"}


def test_two_tenants_of_one_process_have_their_own_keys(encrypted: str, writes: Writes) -> None:
    for key, tenant in ((KEY, "acme"), (OTHER, "globex")):
        writes.found.clear()
        settings = Settings({"offload": {"sse": "aws:kms", "sse_kms_key_id": key}})
        with closing(open_store(f"{encrypted}/{tenant}", settings.cold, settings.offload)) as store:
            store.put("data", b"x", {})
            store.put_new("new", b"x")
            store.swap("new", b"y", store.get_with_etag("new").etag)
            store.abort_upload("large", store.create_upload("large", {}))
        assert writes.kinds(key) == {"PUT data", "swap data", "create"}
