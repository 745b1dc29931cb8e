"""Test reads of past states by HTTP, of a topic that the daemon follows, and of one that it writes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import seglog
from catalog.objects import MemoryStore
from offload.archive import Archive
from seglog.client import aio
from tests.offload.replicas import opened, ship, values
from tests.seams.proxy import look_at_remote
from tests.worlds.proxies import QUIET, Proxied, proxied


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[Proxied, Archive]]:
    """A proxy that follows `t`: commit 1 has records 1 to 3, 2 deletes record 2, 3 has 4 and 5, 4 evicts up to 3."""
    store = MemoryStore()
    with opened(tmp_path / "writer", store) as (log, archive):
        ship(archive, log, "t", b"one", b"two", b"three", tag="a")
        archive.tags.tag("t", "first", to="head")
        archive.delete("t", seqs=[2])
        ship(archive, log, "t", b"four", b"five", tag="b")
        archive.evict("t", 4)
        with proxied(tmp_path / "proxy", store, **QUIET) as proxy:
            look_at_remote(proxy.service)
            yield proxy, archive


def get(proxy: Proxied, query: str, topic: str = "t", **more: Any) -> tuple[int, Mapping[str, str], list[Any]]:
    status, headers, body = proxy.ask(f"/topics/{topic}/records?{query}", None, **more)
    return status, headers, [json.loads(line) for line in body.splitlines()]


def shown(lines: list[Any]) -> list[Any]:
    return [line.get("value", line.get("gap_to")) for line in lines]


@pytest.mark.parametrize(
    ("query", "expected", "next_seq"),
    [
        ("at=lsn:1", ["one", "two", "three"], 4),
        ("at=head~3", ["one", "two", "three"], 4),
        ("at=tag:first", ["one", "two", "three"], 4),
        ("at=lsn:2", ["one", "three"], 4),
        ("at=seq:2", ["one", "two"], 3),
        ("at=seq:4", ["one", "three", "four"], 5),
        ("at=head", ["four", "five"], 6),
        ("at=head&from=1&gaps=1", [3, "four", "five"], 6),
        ("at=lsn:3&from=2&to=4", ["three", "four"], 5),
        ("at=lsn:3&tag=b*", ["four", "five"], 6),
        ("at=lsn:3&tag=a&limit=1", ["one"], 2),
        ("at=lsn:3&tail=2", ["four", "five"], 6),
        ("at=lsn:3&limit=2", ["one", "three"], 4),
        ("at=lsn:3&from=4&max_bytes=4", ["four"], 5),
        ("at=lsn:1&since_ms=9999999999999", [], 4),
        ("at=lsn:1&until_ms=5", [], 4),
    ],
)
def test_a_past_state_of_a_followed_topic(
    world: tuple[Proxied, Archive], query: str, expected: list[Any], next_seq: int
) -> None:
    status, headers, lines = get(world[0], query)
    assert (status, shown(lines), headers.get("seglog-next-seq")) == (200, expected, str(next_seq))
    assert "etag" not in headers


def test_the_answer_names_the_state_so_that_the_next_page_is_of_the_same(world: tuple[Proxied, Archive]) -> None:
    proxy, archive = world
    status, headers, first = get(proxy, "at=head~1&limit=2")
    vid = archive.history.snapshot("t").vid
    assert (status, headers["seglog-head"], headers["seglog-at"]) == (200, "5", f"lsn:3@{vid}")
    archive.delete("t", seqs=[4])
    look_at_remote(proxy.service)
    at, start = headers["seglog-at"], headers["seglog-next-seq"]
    assert shown(first + get(proxy, f"at={at}&from={start}")[2]) == ["one", "three", "four", "five"]
    assert get(proxy, "at=seq:2")[1]["seglog-at"] == "seq:2"
    deleted_ms = archive.history.commit("t", "lsn:2").commit.created_at_ms
    deleted = datetime.fromtimestamp(deleted_ms / 1000, UTC).isoformat().replace("+", "%2B")
    assert get(proxy, f"at={deleted}")[1]["seglog-at"] == f"lsn:2@{vid}"
    status, headers, _ = get(proxy, "at=lsn:1", method="HEAD")
    assert (status, headers["seglog-earliest"], headers["seglog-head"]) == (200, "1", "3")
    assert "seglog-epoch" not in headers  # that of now says nothing of then


def test_pages_of_the_head_and_of_a_fork_point_are_of_one_state(tmp_path: Path) -> None:
    store = MemoryStore()
    with opened(tmp_path / "writer", store) as (log, archive), proxied(tmp_path / "proxy", store, **QUIET) as proxy:
        ship(archive, log, "t", b"one", b"two", b"three")
        archive.restore("t", to="seq:2", name="b")
        archive.open_for_append("t@b")
        ship(archive, log, "t@b", b"own")
        look_at_remote(proxy.service)
        pages = []
        for topic, at in (("t", "head"), ("t", "head~0"), ("t@b", "head"), ("t@b", "head~1")):
            status, headers, lines = get(proxy, f"at={at}&limit=1", topic)
            assert (status, shown(lines)) == (200, ["one"])
            pages.append((topic, headers["seglog-at"]))
        archive.delete("t@b", seqs=[2])
        archive.truncate("t", 2)
        ship(archive, log, "t", b"other", b"more")
        look_at_remote(proxy.service)
        rest = [shown(get(proxy, f"at={at}&from=2", topic)[2]) for topic, at in pages]
        assert rest == [["two", "three"], ["two", "three"], ["two", "own"], ["two"]]


@pytest.mark.parametrize(
    ("query", "status", "title"),
    [
        ("at=lsn:1&follow=1", 400, "InvalidOption"),
        ("at=lsn:1&wait_s=1", 400, "InvalidOption"),
        ("at=nonsense", 400, "InvalidTarget"),
        ("at=", 400, "InvalidTarget"),
        ("at=tag:absent", 404, "NoSuchTag"),
        ("at=lsn:99", 404, "OutOfWindow"),
        ("at=lsn:1&from=9", 404, "SeqOutOfRange"),
        ("at=head&from=1", 410, "Evicted"),
    ],
)
def test_what_names_no_state_or_no_record_is_refused(
    world: tuple[Proxied, Archive], query: str, status: int, title: str
) -> None:
    found, _, [report] = get(world[0], query)
    assert (found, report["title"]) == (status, title)


def test_other_forms_and_other_topics(world: tuple[Proxied, Archive], tmp_path: Path) -> None:
    proxy, _ = world
    _, _, body = proxy.ask("/topics/t/records?at=seq:1", None, Accept="application/vnd.seglog.values.seqs")
    assert body == (1).to_bytes(8, "little") + (3).to_bytes(4, "little") + b"one"
    assert get(proxy, "at=lsn:1", Accept="application/vnd.apache.arrow.stream")[0] == 406
    assert get(proxy, "at=lsn:1", topic="absent")[0] == 404


def test_a_topic_of_the_daemon_with_records_that_no_commit_has(tmp_path: Path) -> None:
    with proxied(tmp_path / "own", MemoryStore(), **QUIET) as proxy:
        archive = proxy.service.archive
        assert archive is not None
        topic = proxy.service.sync.create_topic("t")
        topic.append([b"one", b"two"], tag="a")
        topic.seal()
        archive.offload("t")
        time.sleep(0.002)
        topic.append([b"three", b"four"], tag="b")
        for at in ("seq:3", "lsn:1", "head~1"):
            assert shown(get(proxy, f"at={at}")[2]) == [value.decode() for value in values(archive, "t", at=at)]
        for at in ("head", "head~0"):
            status, _, [report] = get(proxy, f"at={at}")
            assert (status, report["title"], "leave out at" in report["detail"]) == (400, "InvalidOption", True)
        assert shown(get(proxy, "at=seq:3&tag=b")[2]) == ["three"]
        second = next(topic.read(2))
        assert isinstance(second, seglog.Record)
        assert shown(get(proxy, f"at=seq:3&until_ms={second.ts_ms}")[2]) == ["one", "two"]
        assert shown(get(proxy, "at=seq:3&tail=2")[2]) == ["two", "three"]


def test_a_daemon_without_a_remote_has_no_past(tmp_path: Path) -> None:
    with proxied(tmp_path / "own", "", SERVE_PROXY="false") as proxy:
        proxy.service.sync.create_topic("t").append([b"one"])
        status, _, [report] = get(proxy, "at=seq:1")
        assert (status, report["title"], "seglog.toml" in report["hint"]) == (400, "NoRemote", True)


def test_both_clients_read_a_past_state(world: tuple[Proxied, Archive]) -> None:
    proxy, _ = world
    with seglog.connect(proxy.url) as client:
        assert [record.value for record in client.archive.read("t", 2, 3, at="lsn:1")] == [b"two", b"three"]
        assert [record.value for record in client.archive.read("t")] == [b"four", b"five"]
        with pytest.raises(seglog.SeglogError, match="nonsense"):
            list(client.archive.read("t", at="nonsense"))

    async def read() -> list[bytes]:
        async with aio.connect(proxy.url) as client:
            return [record.value async for record in client.archive.read("t", at="lsn:2")]

    assert asyncio.run(read()) == [b"one", b"three"]
