"""Test that a target is fixed once, whatever records callers append, seal and delete meanwhile.

The call makes one seal, one offload and one commit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

import offload
import seglog
from catalog.errors import OutOfWindow
from catalog.format import keys
from catalog.objects.memory import MemoryStore
from catalog.objects.wrapped import WrappedStore
from offload import Archive
from offload.moment import format_time
from seglog import Log, Topic
from tests.faults.store import EFFECTS, CountingStore
from tests.worlds.clock import HandClock

T = TypeVar("T")
_MOST = 400  # live appends at most: a faulty call that looks again after each append ends at last


class LiveStore(WrappedStore):
    """Call `live` before each PUT of a commit, at most `_MOST` times."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.live: Callable[[int], object] = lambda _: None
        self.commits = 0

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        if method == "put_new" and keys.lsn_of(key) is not None:
            self.commits += 1
            if self.commits <= _MOST:
                self.live(self.commits)
        return act()


@contextmanager
def opened(path: Path, store: LiveStore) -> Iterator[tuple[Log, Archive, Topic]]:
    with seglog.open(path) as log, offload.attach(log, store=store) as archive:
        topic = log.topic("t")
        topic.append([b"1", b"2", b"3"])
        yield log, archive, topic


def _restore(archive: Archive) -> None:
    archive.restore("t", to="head", name="b")


def _tag(archive: Archive) -> None:
    archive.tags.tag("t", "x")


@pytest.mark.parametrize("name_it", [_restore, _tag])
def test_head_is_fixed_once_while_each_commit_meets_another_append(
    name_it: Callable[[Archive], None], tmp_path: Path
) -> None:
    store = LiveStore()
    with opened(tmp_path, store) as (_, archive, topic):
        store.live = lambda number: topic.append([b"live %d" % number])
        name_it(archive)
        assert store.commits == 1
        at = "tag:x" if name_it is _tag else None
        assert [record.seq for record in archive.read("t" if at else "t@b", at=at)] == [1, 2, 3]
        assert topic.head_seq == 4
        assert len(topic.inner.segments()) == 1  # one seal: no segment has the later records yet


@pytest.mark.parametrize("name_it", [_restore, _tag])
def test_head_is_fixed_once_beside_a_thread_that_appends(name_it: Callable[[Archive], None], tmp_path: Path) -> None:
    store = LiveStore()
    with opened(tmp_path, store) as (_, archive, topic):
        stop = threading.Event()

        def append() -> None:
            for number in range(100_000):
                topic.append([b"%d" % number], durability="disk")
                if stop.is_set() or store.commits > 5:
                    return

        thread = threading.Thread(target=append)
        thread.start()
        while topic.head_seq < 50:
            stop.wait(0.001)
        head_seq = topic.head_seq
        name_it(archive)
        stop.set()
        thread.join()
        assert store.commits == 1
        at = "tag:x" if name_it is _tag else None
        seqs = [record.seq for record in archive.read("t" if at else "t@b", at=at)]
        assert seqs == list(range(1, len(seqs) + 1))
        assert len(seqs) >= head_seq  # every record that was acked before the call


@pytest.mark.parametrize("act", ["append and seal", "delete", "evict"])
@pytest.mark.parametrize("call", ["offload", "sync", "restore", "delete_topic"])
def test_a_run_ends_whatever_is_sealed_and_deleted_meanwhile(act: str, call: str, tmp_path: Path) -> None:
    store = LiveStore()
    with opened(tmp_path, store) as (_, archive, topic):
        topic.seal()
        archive.offload("t")
        topic.append([b"%d" % number for number in range(1000)])
        topic.seal()
        store.commits = 0

        def live(number: int) -> None:
            if act == "delete":
                topic.delete(before=1 + number)
            elif act == "evict":
                topic.evict(1 + number)
            else:
                topic.append([b"live"])
                topic.seal()

        store.live = live
        if call == "offload":
            archive.offload("t")
        elif call == "sync":
            archive.replication.sync("t")
        elif call == "restore":
            archive.restore("t", to="head", name="b")
        else:
            with pytest.raises(offload.errors.LocalChangesLost):
                archive.delete_topic("t", detach=True)
        assert store.commits == 1
        assert archive.replication.sync_state("t").local_ahead == 1


def test_deletes_that_were_there_when_a_run_began_are_brought_by_it(tmp_path: Path) -> None:
    store = LiveStore()
    with opened(tmp_path, store) as (_, archive, topic):
        topic.seal()
        topic.delete(before=2)
        topic.delete(before=3)
        store.live = lambda _: topic.delete(before=4)
        archive.offload("t")
        assert store.commits == 3  # the commit of the records, and the commits of the first two deletes
        store.live = lambda _: None
        archive.offload("t")
        assert store.commits == 6  # and those of the three that came meanwhile, because each may be undone
        assert list(archive.read("t", at="head")) == []


def test_a_time_in_the_future_is_refused_with_the_window_and_nothing_is_sent(tmp_path: Path) -> None:
    clock = HandClock()
    store = CountingStore(MemoryStore())
    with seglog.open(tmp_path, clock=clock) as log, offload.attach(log, store=store, clock=clock) as archive:
        log.topic("t").append([b"a"])
        log.topic("t").seal()
        archive.offload("t")
        log.topic("t").append([b"b"])
        before = sum(store.counts[method] for method in EFFECTS)
        for at in (1, 1000, 10**9):
            with pytest.raises(OutOfWindow, match=r"which is in the future.*seq 1 to "):
                archive.restore("t", to=format_time(clock.ms + at), name="b")
        assert sum(store.counts[method] for method in EFFECTS) == before
        archive.restore("t", to=format_time(clock.ms), name="b")
        assert [record.seq for record in archive.read("t@b")] == [1, 2]


def test_a_time_of_now_is_what_was_there_when_it_was_asked_for(tmp_path: Path) -> None:
    clock = HandClock()
    store = LiveStore()
    with seglog.open(tmp_path, clock=clock) as log, offload.attach(log, store=store, clock=clock) as archive:
        topic = log.topic("t")
        topic.append([b"a"])
        clock.ms += 5
        store.live = lambda _: topic.append([b"at the same time"])
        archive.restore("t", to=format_time(clock.ms), name="b")
        assert store.commits == 1
        assert [record.seq for record in archive.read("t@b")] == [1]
