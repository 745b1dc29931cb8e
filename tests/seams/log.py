"""Seams of an open log and of its parts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import seglog.interrupts
import seglog.startup.replay
import seglog.wal.manifest
from seglog import DiskFull, Log, Producer, TopicConfig, inner_topic
from seglog.aio import AsyncLog
from seglog.aio.append_queue import commit
from seglog.aio.merged import Ack, Part
from seglog.engine.engine import Engine
from seglog.engine.entries import CreateEntry
from seglog.engine.tail import Tail
from seglog.files.file_system import Files, OsFiles
from seglog.format.appends import encode_appends
from seglog.format.frame import Header
from seglog.interrupts import Reentrant, owned
from seglog.journal.journal import Journal
from seglog.maintenance import absorb, removal
from seglog.segments.segment import SegmentInfo
from seglog.topic import Topic
from seglog.values.append_key import Key
from seglog.values.layout import Layout
from seglog.wal.group_commit import Committer, Entry, GroupCommit
from seglog.wal.manifest import Encoder, TopicMeta, load
from seglog.wal.wal import Wal
from seglog.writing import append

__all__ = [
    "as_release_of_format_1",
    "async_queue_of",
    "before_a_follower_begins",
    "before_abandoning",
    "behind_encoded_ahead",
    "checkpoints_fail",
    "commit_for_tasks",
    "end_work_at",
    "engine_of",
    "group_of",
    "has_spare_file",
    "holds_checkpoint_lock",
    "keys_of",
    "known_mark_secret",
    "known_to",
    "lengths_of",
    "lock_of",
    "mark_secret_of",
    "new_topic_entry",
    "note_encoded",
    "note_encoded_under_lock",
    "note_groups",
    "note_replayed",
    "parts_of",
    "producers_of",
    "queue_of",
    "reclaim_at_once",
    "reclaim_pause_of",
    "section_end",
    "shards_of",
    "use_files_for_segments",
    "waiters_of",
]


def engine_of(log: Log | Topic) -> Engine:
    """Return the parts of an open log.

    A test holds one of their locks, makes one part fail, or looks at a state that callers never see.
    """
    return log._engine


def waiters_of(log: Log | Topic, name: str) -> list[Callable[[], None]]:
    """Return what wakes the followers that wait for records of a topic. A test waits until all of them wait."""
    return engine_of(log).topics[name].waiters


def as_release_of_format_1(patch: pytest.MonkeyPatch) -> None:
    """Know the manifests of the releases before producers, and no newer ones."""
    patch.setattr("seglog.base.forms.NEWEST", 1)
    patch.setattr("seglog.wal.manifest._FORMAT_WITH_ELSEWHERE", 1)


@contextmanager
def known_mark_secret(secret: int) -> Iterator[None]:
    """Give a directory that is made meanwhile this secret for its sync marks. Else it draws one (WAL-9)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seglog.startup.opening.new_mark_secret", lambda: secret)
        yield


@contextmanager
def checkpoints_fail() -> Iterator[None]:
    """Let no checkpoint that begins meanwhile have room on the disk. The files of a truncation are cut before that."""

    def fail(engine: Engine, _: object) -> None:
        raise DiskFull(engine.layout.root, "checkpoint")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seglog.maintenance.checkpoint.plan_checkpoint", fail)
        yield


@contextmanager
def manifests_fail() -> Iterator[None]:
    """Let a checkpoint set its flags, and have no room for its manifest."""

    def fail(engine: Engine, *_: object) -> None:
        raise DiskFull(engine.layout.root, "checkpoint")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seglog.maintenance.checkpoint._store_and_publish", fail)
        yield


@contextmanager
def after_each_front_search(act: Callable[[], object]) -> Iterator[None]:
    """Call `act` between the search for a topic's first live record and the use of its result, as a thread might."""
    search = removal._first_near

    def search_and_act(*given: Any) -> int | None:
        front = search(*given)
        act()
        return front

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(removal, "_first_near", search_and_act)
        yield


@contextmanager
def after_each_unflagging(act: Callable[[], object]) -> Iterator[None]:
    """Call `act` in the checkpoint of an undelete, after it removed the flags and before it sets those of deletes."""
    unflag = absorb._unflag_all

    def unflag_and_act(*given: Any) -> None:
        unflag(*given)
        act()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(absorb, "_unflag_all", unflag_and_act)
        yield


def mark_secret_of(directory: Path, files: Files | None = None) -> int:
    """Return the secret of the sync marks of a data directory. A test puts a mark where the log would have put one."""
    return load(files or OsFiles(), Layout(directory))[1].mark_secret


def producers_of(log: Log, name: str) -> tuple[tuple[str, Producer], ...]:
    """Return the producers of a topic, the one that appended longest ago first. A caller knows only those it names."""
    producers = engine_of(log).state(name).producers
    return () if producers is None else producers.all()


def keys_of(log: Log, name: str) -> tuple[tuple[str, Key], ...]:
    """Return the keys of the appends of a topic, the oldest first. A caller knows only its own."""
    keys = engine_of(log).state(name).keys
    return () if keys is None else keys.all()


def end_work_at(patch: pytest.MonkeyPatch, crash: type[BaseException]) -> None:
    """End the work of `uninterrupted` at this exception, as the death of a process does.

    The exception is no `Exception`, so the product takes it for an interrupt and repeats the work 100 times. On a dead
    disk each repeat fails again, and the repeats were a fifth of the time of the tests that crash.
    """
    is_interrupt = seglog.interrupts.is_interrupt
    patch.setattr("seglog.interrupts.is_interrupt", lambda error: not isinstance(error, crash) and is_interrupt(error))


# ---------------------------------------------------------------- group commit and the WAL


def before_abandoning(patch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Call `act` when an interrupt has ended a call, before that call completes what it had begun.

    The interrupted thread holds no lock then. So `act` lets another thread come in between, which is rare in practice.
    """
    leave = Committer.leave

    def leaving(committer: Committer, error: BaseException) -> None:
        if not isinstance(error, Exception):
            act()
        leave(committer, error)

    patch.setattr(Committer, "leave", leaving)


def shards_of(log: Log) -> tuple[GroupCommit, ...]:
    """Return the group commit of each shard."""
    return engine_of(log).committer._shards


def queue_of(log: Log, shard: int = 0) -> list[Entry]:
    """Return the entries that wait for a leader. A test waits until another thread has queued one."""
    return shards_of(log)[shard]._queue


def holds_checkpoint_lock(log: Log) -> bool:
    """Return whether this thread holds the lock of checkpoints. A test does not wait for a checkpoint then."""
    return log._engine._checkpoint_lock._is_owned()


def group_of(shard: GroupCommit) -> list[Entry]:
    """Return the entries that the leader writes. A test waits until an entry joins the queue behind them."""
    return shard._group


def note_groups(shard: GroupCommit) -> list[int]:
    """Return a list that gets the number of entries of each later group."""
    groups: list[int] = []
    take_group = shard._take_group

    def noting() -> None:
        take_group()
        groups.append(len(shard._group))

    shard._take_group = noting  # type: ignore[method-assign]
    return groups


def has_spare_file(wal: Wal) -> bool:
    """Return whether the upkeep has made the next file ready. A test waits for that."""
    return wal._next is not None


def note_replayed(patch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the type of each frame that recovery replays one by one."""
    types: list[int] = []
    apply_one = seglog.startup.replay.Replay._apply_one

    def noting(replay: Any, offset: int, header: Header, buffer: bytes, position: int) -> None:
        types.append(header.type)
        apply_one(replay, offset, header, buffer, position)

    patch.setattr(seglog.startup.replay.Replay, "_apply_one", noting)
    return types


# ---------------------------------------------------------------- topics and their segments


def new_topic_entry(engine: Engine, name: str, config: TopicConfig) -> CreateEntry:
    """Return the entry that creates a topic. A test queues the entry and appends before anyone writes it."""
    return append.new_topic(engine, name, config, first_seq=1, ts_floor_ms=0)


def lengths_of(tail: Tail) -> list[int]:
    """Return the length of each frame that no checkpoint has absorbed. A test adds them up."""
    lengths: list[int] = tail.rows(0, len(tail))["length"].tolist()
    return lengths


def use_files_for_segments(log: Log, files: Files) -> None:
    """Let the log reach its segments through other files. A test makes their calls fail after the opening."""
    engine_of(log).segments._files = files


def reclaim_at_once(log: Log) -> None:
    """Reclaim at full speed. `Log.reclaim` makes a checkpoint before, which would mend what a test has prepared."""
    assert log._reclaimer is not None
    log._reclaimer.run_now()


def reclaim_pause_of(log: Log) -> threading.Event:
    """Return the event on which the reclaimer pauses, for its pace. A test notes the pauses instead."""
    assert log._reclaimer is not None
    return log._reclaimer._stopping


# ---------------------------------------------------------------- the manifest


def known_to(encoder: Encoder) -> set[int]:
    """Return the ids of the topics whose bytes the encoder keeps. A test finds a deleted topic among them."""
    return {*encoder._topics, *encoder._waiting}


def note_encoded(patch: pytest.MonkeyPatch) -> tuple[list[SegmentInfo], list[TopicMeta]]:
    """Return two lists, which get the segments and the topics that an encoder encodes from now on."""
    segments: list[SegmentInfo] = []
    topics: list[TopicMeta] = []
    encode_row, to_json = seglog.wal.manifest._row, seglog.wal.manifest._topic_to_json

    def row(info: SegmentInfo) -> bytes:
        segments.append(info)
        return encode_row(info)

    def topic_to_json(topic: TopicMeta, form: int) -> dict[str, Any]:
        topics.append(topic)
        return to_json(topic, form)

    patch.setattr(seglog.wal.manifest, "_row", row)
    patch.setattr(seglog.wal.manifest, "_topic_to_json", topic_to_json)
    return segments, topics


def behind_encoded_ahead(patch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Act once, when the frames of an append are encoded, and before it takes the lock."""
    encode_ahead = append._encode_ahead

    def encode_and_act(*given: Any) -> Any:
        patch.setattr(append, "_encode_ahead", encode_ahead)
        ahead = encode_ahead(*given)
        act()
        return ahead

    patch.setattr(append, "_encode_ahead", encode_and_act)


def note_encoded_under_lock(patch: pytest.MonkeyPatch, lock: Reentrant) -> list[int]:
    """Return a list that gets the number of records of each append that is encoded under the lock from now on."""
    under_lock: list[int] = []

    def encode(topic_id: int, seqs: range, *given: Any, **named: Any) -> Any:
        if owned(lock):
            under_lock.append(len(seqs))
        return encode_appends(topic_id, seqs, *given, **named)

    patch.setattr(append, "encode_appends", encode)
    return under_lock


# ---------------------------------------------------------------- asyncio, the journal


def async_queue_of(log: AsyncLog) -> Any:
    """Return the queue of the appends of tasks. A test checks its bound, and that the queue is empty in the end."""
    assert log._queue is not None
    return log._queue


def parts_of(queue: Any) -> list[Any]:
    """Return the parts of appends that wait in the queue of a log's tasks. A test counts their bytes."""
    return [part for parts in (*queue._handed_over, queue.waiting.parts) for part in parts]


def commit_for_tasks(log: Log, values: dict[str, list[bytes]]) -> dict[str, range | BaseException]:
    """Append to each topic in one group, in the calling thread. The thread of `seglog.aio` does so for tasks."""
    group, outcomes = list[Part](), dict[Part, int | BaseException]()
    for name, own in values.items():
        ack = Ack()
        ack.values, ack.records, ack.is_cancelled = own, len(own), False
        group.append(part := Part((name, append.PLAIN)))
        part.take_over([ack])
    commit(engine_of(log), group, outcomes)
    return {
        part.kind[0]: range(outcome, outcome + part.records) if isinstance(outcome, int) else outcome
        for part, outcome in outcomes.items()
    }


def lock_of(journal: Journal) -> Reentrant:
    """Return the lock that calls of a journal take. A test holds it while the process forks."""
    return journal._lock.exclusive


def section_end(journal: Journal, section: int) -> int:
    """Return the offset behind the last item of a section. A test tells from it where the last item lies."""
    return journal._sections[section].end


def before_a_follower_begins(monkeypatch: pytest.MonkeyPatch, work: Callable[[], None]) -> None:
    """Do `work` once, when the next follower has looked at the truncations, and finds the seq at which it begins."""
    begin = inner_topic.begin

    def late(*given: Any) -> Any:
        monkeypatch.setattr(inner_topic, "begin", begin)
        work()
        return begin(*given)

    monkeypatch.setattr(inner_topic, "begin", late)
