"""Test a stream without Spark whose records change or go: replays, truncations, evictions, branches that move, GC."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from catalog.checkpointer import make_checkpoint
from catalog.format.commit import ForkPoint
from catalog.format.control import Boundary
from catalog.format.keys import boundary_key, commit_key
from catalog.format.small_objects import encode_boundary
from catalog.refs.branch import Branches
from offload.spark.data_loss import DataLoss
from offload.spark.query_plan import Remote
from tests.offload.spark.archives import NOW_MS, TopicArchive
from tests.offload.spark.follower import Follower, orders, remote, samples, url

__all__ = ["remote", "url"]


@contextmanager
def one_warning(caplog: pytest.LogCaptureFixture, text: str) -> Iterator[None]:
    with caplog.at_level(logging.WARNING, logger="offload.spark.stream"):
        caplog.clear()
        yield
    assert [text in record.getMessage() for record in caplog.records] == [True]


def test_a_replay_gives_the_same_rows_whatever_happened_since(remote: Remote, url: str):
    archive, follower = TopicArchive(url), Follower(remote, maxRecordsPerTrigger=6)
    ref = archive.add(samples(10))
    archive.delete(ref, [1])
    follower.advance()
    follower.advance()
    first, second = follower.seqs(-2), follower.seqs(-1)
    assert (first, second) == ([1, 3, 4, 5, 6], [7, 8, 9, 10])
    archive.delete(ref, [2, 7])
    archive.truncate(9)
    archive.add(samples(5))
    archive.evict(4)
    follower.restart()
    assert (follower.seqs(-2), follower.seqs(-1)) == (first, second)


def test_a_truncation_below_the_offset_is_data_loss(remote: Remote, url: str, caplog: pytest.LogCaptureFixture):
    archive = TopicArchive(url)
    archive.add(samples(10))
    strict, lenient = Follower(remote), Follower(remote, failOnDataLoss="false")
    strict.advance()
    lenient.advance()
    archive.truncate(6)
    archive.add(samples(20))  # beyond the offset, so that the bounds tell nothing
    text = "records 6 to 10 of orders were truncated after the stream gave them"
    for _ in range(2):
        with pytest.raises(DataLoss, match=text):
            strict.advance()
    with one_warning(caplog, text):
        assert lenient.read_all() == [orders(6, 25)]
    lenient.restart()
    assert lenient.rows() == orders(6, 25)
    archive.truncate(1)
    with one_warning(caplog, "records 1 to 25 of orders"):
        assert lenient.read_all() == [[]]
    archive.add(samples(2))
    assert lenient.read_all() == [orders(1, 2)]


def test_a_truncation_above_the_offset_is_no_loss(remote: Remote, url: str):
    archive, follower = TopicArchive(url), Follower(remote, maxRecordsPerTrigger=4)
    archive.add(samples(10))
    follower.advance()
    archive.truncate(5)
    archive.add(samples(2))
    assert follower.read_all() == [orders(5, 6)]


def test_evicted_records_are_data_loss(remote: Remote, url: str, caplog: pytest.LogCaptureFixture):
    archive = TopicArchive(url)
    archive.add(samples(10))
    strict, lenient = (Follower(remote, maxRecordsPerTrigger=4, failOnDataLoss=fails) for fails in ("true", "false"))
    strict.advance()
    lenient.advance()
    archive.evict(5)
    assert strict.seqs() == [1, 2, 3, 4]
    archive.evict(8)
    with pytest.raises(DataLoss, match="records 5 to 7 of orders were evicted before the stream read them"):
        strict.advance()
    with one_warning(caplog, "records 5 to 7 of orders were evicted"):
        assert lenient.read_all() == [orders(8, 10)]
    with pytest.raises(DataLoss, match="records 1 to 7 of orders were evicted"):
        Follower(remote).advance()
    with one_warning(caplog, "records 1 to 7 of orders were evicted"):
        assert Follower(remote, failOnDataLoss="false").read_all() == [orders(8, 10)]
    assert Follower(remote, startingSeq="earliest").read_all() == [orders(8, 10)]


def test_a_branch_that_leads_to_another_volume_is_followed_as_far_as_it_is_the_same(remote: Remote, url: str):
    """`undo`, or a deleted branch that is made again, gives the name to another volume."""
    main = TopicArchive(url)
    main.add(samples(10))
    branches, follower = Branches(main.volumes), Follower(remote, branch="dev")

    def dev(parent: TopicArchive, seq: int | None, count: int) -> TopicArchive:
        if parent is not main:
            branches.delete("orders", "dev", now_ms=NOW_MS)
        made = TopicArchive(url, branch="dev", parent=ForkPoint(parent.vid, 1, seq))
        made.add(samples(count))
        return made

    first = dev(main, None, 5)
    assert follower.read_all() == [orders(1, 15)]
    second = dev(first, None, 2)
    assert follower.read_all() == [orders(16, 17)]
    dev(second, 12, 4)
    with pytest.raises(DataLoss, match="records 13 to 17 of orders@dev were truncated"):
        follower.advance()
    branches.delete("orders", "dev", now_ms=NOW_MS)
    dev(main, None, 20)
    with pytest.raises(DataLoss, match="records 1 to 17 of orders@dev were truncated"):
        follower.advance()


def test_a_deleted_branch_of_a_glob_is_data_loss(remote: Remote, url: str, caplog: pytest.LogCaptureFixture):
    main = TopicArchive(url)
    main.add(samples(3))
    TopicArchive(url, "orders-2", "dev").add(samples(3))
    TopicArchive(url, branch="dev", parent=ForkPoint(main.vid, 1))
    strict, lenient = (Follower(remote, topic="ord*", branch="dev", failOnDataLoss=each) for each in ("true", "false"))
    strict.advance()
    lenient.advance()
    Branches(main.volumes).delete("orders", "dev", now_ms=NOW_MS)
    with pytest.raises(DataLoss, match="of orders@dev are gone, for their branch was deleted"):
        strict.advance()
    with one_warning(caplog, "orders@dev are gone"):
        assert lenient.read_all() == []


def collect(archive: TopicArchive, boundary: int) -> None:
    """Collect all commits below the boundary, as GC does."""
    make_checkpoint(archive.volumes, archive.vid, boundary, now_ms=NOW_MS)
    archive.store.put(boundary_key(archive.vid), encode_boundary(Boundary(archive.vid, boundary)), {})
    for lsn in range(1, boundary):
        archive.store.delete(commit_key(archive.vid, lsn))


def test_a_stream_that_waited_longer_than_the_window_is_told_so(
    remote: Remote, url: str, caplog: pytest.LogCaptureFixture
):
    archive = TopicArchive(url)
    archive.add(samples(10))
    strict, lenient = Follower(remote), Follower(remote, failOnDataLoss="false")
    strict.advance()
    lenient.advance()
    for _ in range(3):
        archive.add(samples(5))
    collect(archive, 2)
    assert strict.read_all() == [orders(11, 25)]  # the commits since are all there
    strict.offsets.pop()
    collect(archive, 3)
    with closing(Remote.open(url)) as strict.remote, closing(Remote.open(url)) as lenient.remote:
        with pytest.raises(DataLoss, match="records 1 to 10 of orders may have been truncated"):
            strict.advance()
        with pytest.raises(DataLoss, match="records 1 to 10 of orders cannot be read as the stream planned them"):
            strict.rows()
        with one_warning(caplog, "records 1 to 10 of orders cannot be read"):
            assert lenient.rows() == orders(1, 10)
        with one_warning(caplog, "records 1 to 10 of orders may have been truncated"):
            assert lenient.read_all() == [orders(11, 25)]
