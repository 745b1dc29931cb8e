"""Test the number of records that a snapshot shows. The commits have it; an index is read only if they do not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import offload
import seglog
from catalog.objects.memory import MemoryStore
from catalog.snapshot import cut
from offload.archive import Archive
from offload.read.cold_reader import ColdReader
from offload.read.delete_effects import count_live, last_live_seq
from seglog import Log
from tests.faults.store import CountingStore

TOLD, ASKED = 0, 1  # segments whose index is read


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with seglog.open(tmp_path / "log") as log:
        log.topic("t").append([b"1", b"2", b"3"], tag="odd")
        log.topic("t").append([b"4"], tag="even")
        log.topic("t").append([b"5", b"6"], tag="odd")
        log.topic("t").seal()
        yield log


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(MemoryStore())


@pytest.fixture
def archive(log: Log, store: CountingStore) -> Iterator[Archive]:
    with offload.attach(log, store=store) as archive:
        archive.offload("t")
        yield archive


def check(archive: Archive, store: CountingStore, *, indexes: int) -> int:
    """Check the counts for each seq at which the snapshot may be cut. Return the number of records of the whole."""
    snapshot = archive.history.snapshot("t")
    for seq in range(snapshot.bounds.head_seq + 1):
        views = cut(snapshot, seq).segments
        seqs = [record.seq for record in archive.read("t", end=seq, at=f"lsn:{snapshot.lsn}")] if views else []
        with closing(ColdReader(store)) as reader:
            store.counts.clear()
            counts = [count_live(view, reader) for view in views]
            assert store.counts.total() <= indexes
            assert sum(counts) == len(seqs)
            assert [last_live_seq(view, reader) for view, count in zip(views, counts, strict=True) if count][-1:] == (
                seqs[-1:]
            )
    count, last = archive.history.count(snapshot)
    assert (count, last and last.seq) == (len(seqs), seqs[-1] if seqs else None)
    return count


def test_what_was_deleted_since_is_told_by_the_commits(archive: Archive, store: CountingStore) -> None:
    assert check(archive, store, indexes=TOLD) == 6
    archive.delete("t", tag="even")
    assert check(archive, store, indexes=TOLD) == 5
    archive.delete("t", before=3)
    assert check(archive, store, indexes=TOLD) == 3
    archive.delete("t", tag="*")
    assert check(archive, store, indexes=TOLD) == 0


def test_what_was_gone_before_is_told_for_a_whole_segment(archive: Archive, store: CountingStore) -> None:
    archive.delete("t", tag="even")
    assert archive.upkeep.erase("t")
    [view] = archive.history.snapshot("t").segments
    assert view.ref.live_records == 5
    with closing(ColdReader(store)) as reader:
        store.counts.clear()
        assert count_live(view, reader) == 5
        assert not store.counts
    assert check(archive, store, indexes=ASKED) == 5  # its parts need the index
    archive.delete("t", before=2)
    assert check(archive, store, indexes=ASKED) == 4


def test_a_part_of_a_segment_is_asked_for_only_if_records_were_gone(archive: Archive, store: CountingStore) -> None:
    archive.delete("t", before=4)
    archive.delete("t", tag="even")
    assert archive.upkeep.erase("t")
    [view] = archive.history.snapshot("t").segments
    assert (view.first, view.ref.live_records) == (4, 2)
    snapshot = replace(archive.history.snapshot("t"), segments=(replace(view, first=5), replace(view, last=4)))
    assert archive.history.count(snapshot)[0] == 2
