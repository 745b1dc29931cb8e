"""A life of topics that lose records in every way except a delete by tag. The clock moves back and ahead.

    cut      truncated in the WAL, within a segment, and below the seq that a delete by seq has reached
    capped   evicted for its cap, which the life changes; evicted by a call
    full     refuses records above its cap; accepts more after an eviction
    aging    has a ttl, which the life changes

Another topic loses no records. Its frames lie between theirs in the WAL. As in `workload.py`, no second thread runs.
"""

from __future__ import annotations

from pathlib import Path

import seglog
from seglog import Log, LogSettings, TopicConfig
from seglog.engine.work_thread import InCaller
from seglog.files.file_system import Files
from tests.seglog.workload import SETTINGS, Journal
from tests.worlds.clock import HandClock

__all__ = ["live", "live_on"]


def live(
    directory: Path,
    files: Files,
    journal: Journal,
    settings: LogSettings = SETTINGS,
    later: LogSettings | None = None,
) -> None:
    """Run two lives of the process. The second life has the settings `later` if given, else `settings`."""
    clock, topics = HandClock(5_000), journal.versions
    with seglog.open(directory, files=files, settings=settings, clock=clock, upkeep=InCaller) as log:
        topics.create(log, "cut", TopicConfig())
        topics.create(log, "capped", TopicConfig(cap_records=5))
        topics.create(log, "full", TopicConfig(cap_records=6, discard="reject"))
        topics.create(log, "aging", TopicConfig(ttl_ms=1_000))
        topics.append(log, "cut", 6)
        topics.append(log, "aging", 3)
        topics.append(log, "capped", 3)
        topics.append(log, "full", 4)
        topics.truncate(log, "cut", 6)
        topics.move_clock(log, -3_000)
        topics.append(log, "cut", 4, "memory")
        topics.append(log, "aging", 2)
        topics.delete(log, "cut", before=3)
        topics.append(log, "full", 3)
        topics.append(log, "capped", 6)
        journal.append(log, "a", 1)
        topics.evict(log, "full", 4)
        topics.append(log, "full", 3)
        topics.checkpoint(log)
        topics.move_clock(log, 6_000)
        topics.append(log, "aging", 2)
        topics.truncate(log, "cut", 7)
        topics.append(log, "cut", 3, "disk")
        topics.enforce(log)
        topics.configure(log, "capped", TopicConfig(cap_records=2))
        topics.append(log, "capped", 4, "disk")
        topics.configure(log, "aging", TopicConfig(ttl_ms=50))
        topics.move_clock(log, 100)
        topics.append(log, "aging", 1)
        topics.evict(log, "capped", log.topic("capped").head_seq)
    topics.settle()
    assert topics.with_losses() == {"capped", "full", "aging"}
    clock.ms -= 5_000
    with seglog.open(directory, files=files, settings=later or settings, clock=clock, upkeep=InCaller) as log:
        topics.delete(log, "cut", log.topic("cut").head_seq)
        topics.truncate(log, "cut", max(5, log.topic("cut").inner.hot_floor))
        topics.append(log, "cut", 5)
        topics.configure(log, "cut", TopicConfig(cap_records=3))
        topics.append(log, "cut", 2)
        journal.append(log, "a", 1)
        topics.move_clock(log, 10_000)
        topics.enforce(log)
        topics.append(log, "aging", 5, "memory")


def live_on(log: Log, journal: Journal) -> None:
    """Run a short life after a crash, with the topics that recovery found."""
    topics = journal.versions
    for name in topics.known:
        if log.has_topic(name):
            topics.append(log, name, 2)
            head, topic = log.topic(name).head_seq, log.topic(name)
            topics.truncate(log, name, max(head, topic.inner.hot_floor, topic.inner.evict_floor))
            topics.append(log, name, 2, "disk")
            topics.evict(log, name, head)
            topics.configure(log, name, TopicConfig(cap_records=1))
    topics.move_clock(log, 1_000)
    journal.append(log, "a", 1)
    topics.checkpoint(log)
    for name in topics.known:
        if log.has_topic(name):
            topics.append(log, name, 5, "memory")
    topics.enforce(log)
