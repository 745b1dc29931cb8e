"""docs/requests.md is true: each operation makes exactly the requests that its table says, in memory and over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

import offload
import seglog
from benchmarks.cli_large import requests_of_steps
from benchmarks.large_log import SEGMENTS
from catalog import SegmentView
from catalog.objects.memory import MemoryStore
from catalog.objects.object_store import ObjectStore
from catalog.objects.s3 import S3Store
from offload import ColdSettings, OffloadSettings
from tests.faults.front import Front
from tests.faults.store import CountingStore
from tests.seams.archive import context_of
from tests.worlds.documented import documented

BLOCK_BYTES = 5 << 20
RECORD_BYTES = 8_000


@pytest.fixture(params=["memory", "http"])
def counted(request: pytest.FixtureRequest) -> Iterator[tuple[ObjectStore, Callable[[], int]]]:
    """A store, and a function that returns the number of requests since its last call."""
    if request.param == "memory":
        store = CountingStore(MemoryStore())

        def count() -> int:
            total = store.counts.total()
            store.counts.clear()
            return total

        yield store, count
        return
    url = request.getfixturevalue("s3_remote")
    with Front(request.getfixturevalue("s3_environment")) as front:
        request.getfixturevalue("monkeypatch").setenv("AWS_ENDPOINT_URL", front.url)

        def count_at_front() -> int:
            total = front.kinds.total()
            front.restart()
            return total

        yield S3Store(url), count_at_front


def test_every_operation_makes_the_requests_that_are_documented(
    counted: tuple[ObjectStore, Callable[[], int]], tmp_path: Path
) -> None:
    store, count = counted
    random = Random(1)
    found: dict[str, int] = {}
    with (
        seglog.open(tmp_path, settings=seglog.LogSettings(max_record_bytes=1 << 20, segment_max_bytes=1 << 28)) as log,
        offload.attach(
            log,
            store=store,
            settings=offload.Settings().with_parts(
                OffloadSettings(block_size=BLOCK_BYTES, codec="none"), ColdSettings()
            ),
        ) as archive,
    ):
        topic = log.topic("t")

        def send(blocks: int) -> None:
            share = 0.9 if blocks == 1 else blocks - 0.3
            records = int(share * BLOCK_BYTES / (RECORD_BYTES + 70))
            topic.append([random.randbytes(RECORD_BYTES) for _ in range(records)])
            topic.seal()
            archive.offload("t")

        for operation, blocks in (
            ("first offload of a topic, 1 block", 1),
            ("offload of 1 block", 1),
            ("offload of 2 blocks", 2),
        ):
            send(blocks)
            found[operation] = count()
        archive.offload("t", drop_hot=True)
        count()
        first_seq = topic.head_seq + 1
        send(3)
        found["offload of 3 blocks"] = count()
        archive.offload("t", drop_hot=True)
        found["release of a run of 3 blocks"] = count()
        archive.offload("t")
        found["offload with nothing to send"] = count()

        last_seq = topic.head_seq
        for operation, seq in (
            ("cold point read", first_seq),
            ("point read with the index in memory", first_seq + 500),
            ("point read of a chunk in the disk cache", first_seq),
        ):
            assert [record.seq for record in topic.read(seq, seq)] == [seq]
            found[operation] = count()

        reader = context_of(archive).reader
        assert sum(1 for _ in reader.segment_records(_last(archive), first_seq + 140, last_seq)) > 1_500
        found["scan of 14 MiB, index in memory"] = count()

        archive.delete("t", before=3)
        found["delete of records of one segment in the archive"] = count()
        last = topic.append([b"last"]).start
        topic.seal()
        archive.offload("t")
        count()
        archive.truncate("t", last)
        found["truncation of what is offloaded"] = count()
        archive.restore("t", to="head", name="a")
        count()
        archive.restore("t", to="head", name="b")
        found["restore, indexes and last chunk at hand"] = count()
        archive.status.topic("t")
        archive.history.commits("t")
        found["status, log"] = count()
        with (
            seglog.open(tmp_path / "other") as other,
            offload.attach(other, store=store, settings=offload.Settings().with_parts(OffloadSettings())) as follower,
        ):
            follower.replication.sync("t")
            found["first sync of a replica, 7 commits"] = count()
            follower.replication.sync("t")
            found["sync without news"] = count()
            follower.replication.fetch("t")
            found["fetch without news"] = count()
            follower.status.topic("t")
            follower.history.snapshot("t")
            found["status and snapshot of a replica"] = count()
            follower.replication.take_over("t")
            found["takeover"] = count()
    assert found == documented()


def _last(archive: offload.Archive) -> SegmentView:
    return archive.history.snapshot("t").segments[-1]


@pytest.mark.long
def test_10_tib_are_restored_and_promoted_by_the_requests_of_one_segment(tmp_path: Path) -> None:
    """The directory has never seen the topic, nor any of its objects."""
    small, large = (requests_of_steps(tmp_path / f"{segments}", segments) for segments in (1, SEGMENTS))
    assert small == large
    assert all(counts.total() <= 40 for counts in large.values())
    for counts in (large["restore of the whole"], large["restore of the part"]):
        assert counts["put_new"] + counts["put"] + counts["swap"] == 4
        assert counts.total() <= 30


def test_an_offload_of_n_blocks_is_n_plus_5_requests_or_fewer() -> None:
    table = documented()
    for blocks in (1, 2, 3):
        assert table[f"offload of {blocks} block{'s' * (blocks > 1)}"] <= blocks + 5
