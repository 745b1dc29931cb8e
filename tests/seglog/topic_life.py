"""A sequence of steps that truncate, evict, delete and recreate topics, and the state of the log after each step.

A dry run notes the state after each step. Another run crashes in step k. After recovery, the log must show the state
after step k - 1 or after step k. If step k appends to a topic, recovery may keep only the first of its records.

Recovery shows gaps in place of ephemeral records. The last ephemeral records are an exception: only a checkpoint keeps
their seqs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import seglog
from seglog import Gap, Log, LogSettings, SeqSet, TopicConfig, TruncateOp
from seglog.engine.work_thread import InCaller
from seglog.files.file_system import Files
from tests.seglog.totals import check_totals
from tests.worlds.clock import HandClock

__all__ = ["SETTINGS", "SHARDED", "STEPS", "TIERED", "Shown", "TopicShown", "check", "live", "shown"]

SETTINGS = LogSettings(segment_max_events=4, wal_file_bytes=4096, segment_max_age_ms=10_000)
SHARDED = replace(SETTINGS, wal_shards=3)
#: Settings with a warm directory beside the data directory. The test creates the warm directory.
TIERED = replace(SETTINGS, cold_dir="../cold", hot_retain_segments=0)


@dataclass(frozen=True)
class TopicShown:
    epoch: int
    evict_floor: int
    items: tuple[tuple[int, bytes] | Gap, ...]
    truncate_ops: tuple[TruncateOp, ...] = ()


PASSING = "passing"

Shown: TypeAlias = dict[str, TopicShown]
Step: TypeAlias = Callable[[Log, HandClock], object]


def _append(name: str, count: int, what: str, tag: str | None = None) -> Step:
    durability = "ephemeral" if what == PASSING else "fsync"
    values = [f"{name} {what} {i} ".encode() * 5 for i in range(count)]
    return lambda log, _: log.topic(name).append(values, tag=tag, durability=durability)


def _truncate(name: str, seq: int) -> Step:
    return lambda log, _: log.topic(name).truncate(seq)


@dataclass(frozen=True)
class Pass:
    """A step that moves the clock ahead by `ms`."""

    ms: int

    def __call__(self, log: Log, clock: HandClock) -> None:
        clock.ms += self.ms


STEPS: tuple[Step, ...] = (
    _append("t", 10, "first", tag="x"),
    lambda log, _: log.create_topic("kept", TopicConfig(keep_history=True)),
    _append("kept", 3, "first"),
    _append("mixed", 3, "first"),
    _append("mixed", 3, PASSING),
    _append("mixed", 2, "second"),
    lambda log, _: log.topic("t").delete(tag="x", before=3),
    lambda log, _: log.checkpoint(),
    _append("t", 3, "second"),
    _append("mixed", 2, PASSING),
    _truncate("mixed", 10),  # in memory only
    _append("mixed", 1, "third"),
    _append("mixed", 2, PASSING),
    _append("t", 3, "third", tag="y"),
    lambda log, _: log.topic("t").delete(tag="y"),
    lambda log, _: log.topic("t").undo(2),
    lambda log, _: log.topic("t").delete(tag="y"),
    _truncate("t", 15),  # in the tail, below the seq that a delete has reached
    _append("t", 2, "fourth", tag="y"),
    _truncate("mixed", 5),  # through records in memory, and through lost seqs in a segment
    _append("mixed", 2, PASSING),
    _append("mixed", 2, "fourth"),
    _truncate("t", 7),  # through a sealed segment
    _append("t", 4, "fifth"),
    lambda log, _: log.create_topic("all", TopicConfig("ephemeral")),
    _append("all", 5, PASSING),
    _truncate("all", 4),
    _append("mixed", 3, PASSING),
    _truncate("mixed", 9),  # between a segment and the records in memory
    lambda log, _: log.topic("kept").truncate(3),
    _append("kept", 7, "second"),
    lambda log, _: log.checkpoint(),
    lambda log, _: log.topic("kept").inner.release(4),
    lambda log, _: log.topic("kept").delete(seqs=[5, 7]),
    lambda log, _: log.topic("kept").inner.settle_deletes(1),
    lambda log, _: log.topic("kept").delete(seqs=[6]),
    lambda log, _: log.topic("kept").inner.undelete(SeqSet.of([(5, 6)])),  # a listed delete reaches 6
    _truncate("kept", 7),  # through a sealed segment that an archive may have
    _append("kept", 2, "third"),
    lambda log, _: log.topic("t").truncate(5),  # at the beginning of a segment
    _append("t", 1, "sixth"),
    lambda log, _: log.topic("t").seal(),
    _truncate("kept", 2),  # below the hot floor
    _append("kept", 1, "fourth"),
    lambda log, _: log.topic("kept").evict(2),
    lambda log, _: log.topic("kept").inner.settle_truncation(TruncateOp(3, 1000, 1)),
    _truncate("t", 2),
    _append("t", 9, "seventh"),
    lambda log, _: log.topic("t").seal(),
    lambda log, _: log.configure("t", TopicConfig(cap_records=4)),
    lambda log, _: log.topic("t").enforce_retention(),
    _append("all", 2, "first"),
    _append("all", 2, PASSING),
    lambda log, _: log.configure("mixed", TopicConfig(cap_records=1)),
    _append("mixed", 4, "fifth"),
    lambda log, _: log.topic("mixed").enforce_retention(),
    _append("t", 2, "eighth"),
    Pass(20_000),
    lambda log, _: log.enforce_retention(),
    lambda log, _: log.configure("t", TopicConfig(ttl_ms=10_000)),
    lambda log, _: log.enforce_retention(),
    _append("t", 2, "ninth"),
    lambda log, _: log.delete_topic("t"),
    _append("t", 6, "tenth"),
    lambda log, _: log.checkpoint(),
    _truncate("t", 3),
    lambda log, _: log.delete_topic("t"),
    _append("t", 1, "eleventh"),
    _append("other", 1, "first"),
)

#: The milliseconds that each step moves the clock.
PASSED_MS = [step.ms if isinstance(step, Pass) else 0 for step in STEPS]


def live(
    directory: Path, files: Files, done: list[Shown | None], settings: LogSettings = SETTINGS, *, look: bool = False
) -> None:
    """Run all steps. Append an entry to `done` at the opening and after each step.

    The entry is the state of the log if `look` is set, else None.
    """
    clock = HandClock(1_000)
    with seglog.open(directory, upkeep=InCaller, files=files, settings=settings, clock=clock) as log:
        done.append({} if look else None)
        for step in STEPS:
            step(log, clock)
            done.append(shown(log) if look else None)


def shown(log: Log) -> Shown:
    check_totals(log)
    return {name: _topic_shown(log, name) for name in log.topics()}


def check(directory: Path, files: Files, dry: list[Shown], done: int, settings: LogSettings = SETTINGS) -> None:
    """Recover after a crash, append a record to each topic, and recover again.

    `done` is the number of entries that `live` appended before the crash. The clock starts at the time of the crash.
    """
    clock = HandClock(1_000 + sum(ms for place, ms in enumerate(PASSED_MS) if place + 1 < done))
    before, after = dry[max(done - 1, 0)], dry[min(done, len(dry) - 1)]
    with seglog.open(directory, upkeep=InCaller, files=files, settings=settings, clock=clock) as log:
        found = shown(log)
        for name in {*before, *after, *found}:
            _check_topic(found.get(name), before.get(name), after.get(name))
        heads = {name: log.topic(name).head_seq for name in found}
        for name, head in heads.items():
            log.configure(name, replace(log.topic(name).config, cap_records=None))
            assert log.topic(name).append([b"next"], durability="fsync") == range(head + 1, head + 2)
    with seglog.open(directory, upkeep=InCaller, files=files, settings=settings, clock=clock) as log:
        for name, head in heads.items():
            topic = log.topic(name)
            assert topic.epoch == found[name].epoch
            assert _topic_shown(log, name).items == (*found[name].items, (head + 1, b"next"))
        assert not list((directory / "topics").glob("*.deleted"))
        _check_warm_store(log)


def _check_warm_store(log: Log) -> None:
    """Check that the warm store holds the .data files of the warm segments that the log lists, and no others."""
    if log.settings.cold_dir:
        log.checkpoint()
        known = {
            f"{log.topic(name).inner.topic_id:08X}/seg-{segment.first_seq:016d}.data"
            for name in log.topics()
            for segment in log.topic(name).inner.segments()
            if not segment.is_hot
        }
        topics = (log.path / log.settings.cold_dir / "topics").resolve()
        assert {str(path.relative_to(topics)) for path in topics.rglob("*.data")} == known


def _check_topic(found: TopicShown | None, before: TopicShown | None, after: TopicShown | None) -> None:
    found, before, after = (None if each is None else _restarted(each) for each in (found, before, after))
    if found in (before, after):
        return
    # A crash within an append of several records may keep only the first of them. If the append creates the topic, the
    # topic may be empty. Records that the append evicts for a cap may still be present.
    assert found is not None
    assert after is not None
    start = () if before is None else before.items
    head = max((_end(item) for item in start), default=0)
    assert found.epoch == after.epoch
    assert found.items[: len(start)] == start
    whole = (*start, *(item for item in after.items if _end(item) > head))
    assert found.items == whole[: len(found.items)]


def _restarted(shown: TopicShown) -> TopicShown:
    """Return the state after a restart: gaps replace ephemeral records, and the gap at the end is left out.

    Only a checkpoint keeps the gap at the end.
    """
    items: list[tuple[int, bytes] | Gap] = []
    for item in shown.items:
        lost = item if isinstance(item, Gap) else Gap(item[0], item[0]) if PASSING.encode() in item[1] else None
        if lost is not None and items and isinstance(items[-1], Gap) and items[-1].gap_to + 1 == lost.gap_from:
            lost = Gap(items.pop().gap_from, lost.gap_to)  # type: ignore[union-attr]
        items.append(item if lost is None else lost)
    if items and isinstance(items[-1], Gap):
        items.pop()
    # A reader sees the same gap, whether it comes from the eviction floor or from a lost seq.
    return TopicShown(shown.epoch, 1, tuple(items), shown.truncate_ops)


def _end(item: tuple[int, bytes] | Gap) -> int:
    return item.gap_to if isinstance(item, Gap) else item[0]


def _topic_shown(log: Log, name: str) -> TopicShown:
    topic = log.topic(name)
    first = topic.inner.hot_floor if topic.config.keep_history else 1
    items = tuple(item if isinstance(item, Gap) else (item.seq, item.value) for item in topic.read(first, gaps=True))
    assert topic.head_seq + 1 >= topic.earliest_seq >= topic.inner.evict_floor
    assert not any(
        isinstance(item, Gap) and item.gap_from < topic.inner.evict_floor
        for item in topic.read(max(first, topic.inner.evict_floor), gaps=True)
    )
    return TopicShown(topic.epoch, topic.inner.evict_floor, items, topic.inner.truncate_ops())
