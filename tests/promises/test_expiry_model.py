"""A topic with a ttl shows what a list of times says, after any operations and any jumps of its clock.

Not tested: crashes, releases to an archive, deletes by tag. tests/promises/test_topic_model.py
has those, without a ttl.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import seglog
from seglog import Gap, Log, LogSettings, TopicConfig
from seglog.engine.work_thread import InCaller
from tests.faults.files import UnsyncedFiles
from tests.worlds.clock import HandClock

STEPS = ["append", "append", "append", "forward", "back", "seal", "checkpoint", "enforce", "delete", "ttl", "reopen"]


@pytest.mark.parametrize(
    "seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.soak(part=2)) for seed in range(5, 60))]
)
def test_a_topic_with_a_ttl_shows_what_a_list_of_times_says(tmp_path: Path, seed: int) -> None:
    chance, clock = random.Random(seed), HandClock(10_000)

    def opened() -> Log:
        settings = LogSettings(segment_max_events=7)
        return seglog.open(tmp_path / "data", settings=settings, clock=clock, files=UnsyncedFiles(), upkeep=InCaller)

    log, times, floor, deleted = opened(), list[int](), 1, 1
    log.create_topic("t", TopicConfig(ttl_ms=500))
    for _ in range(150):
        topic, ttl_ms = log.topic("t"), log.topic("t").config.ttl_ms
        match chance.choice(STEPS):
            case "append":
                count = chance.randint(1, 5)
                times += [max([clock.ms, *times[-1:]])] * count
                topic.append([b"x"] * count, durability="memory")
            case "forward":
                clock.ms += chance.randint(1, 200)
            case "back":
                clock.ms -= chance.randint(1, 100)
            case "seal":
                topic.seal()
            case "checkpoint":
                log.checkpoint()
            case "enforce":
                log.enforce_retention()
            case "delete" if times:
                before = chance.randint(1, len(times) + 1)
                topic.delete(before=before)
                deleted = max(deleted, before)
            case "ttl":
                log.configure("t", TopicConfig(ttl_ms=chance.choice([None, 300, 500, 900])))
            case "reopen":
                log.close()
                log = opened()
        topic, ttl_ms = log.topic("t"), log.topic("t").config.ttl_ms
        if ttl_ms is not None:
            floor = max(floor, 1 + sum(time < clock.ms - ttl_ms for time in times))
        live = list(range(max(floor, deleted), len(times) + 1))
        assert [record.seq for record in topic.read()] == live
        assert [record.seq for batch in topic.read_batches() for record in batch] == live
        assert [seq for found in topic.read_arrays() for seq in found.seqs.tolist()] == live
        assert topic.earliest_seq == max(floor, deleted)
        if times:
            items = list(topic.read(1, gaps=True))
            assert [item.seq for item in items if not isinstance(item, Gap)] == live
    log.close()
