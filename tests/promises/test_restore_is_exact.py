"""Any past state comes back exact to the record, by seq and by time, after any deletes and offloads."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import offload
import seglog
from catalog.errors import OutOfWindow
from catalog.objects.memory import MemoryStore
from offload import Archive
from seglog import LogSettings, Topic
from tests.worlds.clock import HandClock

START_MS = 1_790_000_000_000


@dataclass
class Model:
    """The model of the topic: the live seqs after each event, by its time and by the head at the event."""

    live: set[int] = field(default_factory=set)
    tags: dict[int, str] = field(default_factory=dict)
    head: int = 0
    by_seq: dict[int, frozenset[int]] = field(default_factory=dict)
    by_time: list[tuple[int, frozenset[int]]] = field(default_factory=list)

    def append(self, ms: int, count: int, tag: str) -> None:
        for _ in range(count):
            self.head += 1
            self.live.add(self.head)
            self.tags[self.head] = tag
            self.by_seq[self.head] = frozenset(self.live)
        self.by_time.append((ms, frozenset(self.live)))

    def delete(self, ms: int, before: int | None, tag: str | None) -> None:
        self.live = {
            seq for seq in self.live
            if (before is not None and seq >= before) or (tag is not None and self.tags[seq] != tag)
        }  # fmt: skip
        self.by_time.append((ms, frozenset(self.live)))

    def at(self, ms: int) -> frozenset[int]:
        return max((event for event in self.by_time if event[0] <= ms), key=lambda event: event[0])[1]


def _live_at(archive: Archive, target: str) -> set[int]:
    return {record.seq for record in archive.read("t", at=target)}


def _one_step(chance: random.Random, clock: HandClock, model: Model, topic: Topic, archive: Archive) -> None:
    clock.ms += chance.randrange(1, 5)
    kind = chance.random()
    if kind < 0.55 or not model.head:
        count, tag = chance.randrange(1, 6), chance.choice("abc")
        topic.append([b"%d" % (model.head + n) for n in range(1, count + 1)], tag=tag)
        model.append(clock.ms, count, tag)
    elif kind < 0.7:
        before, tag = chance.choice([(chance.randrange(1, model.head + 3), None), (None, chance.choice("abc"))])
        archive.delete("t", before=before, tag=tag)
        model.delete(clock.ms, before, tag)
    elif kind < 0.85:
        topic.seal()
    else:
        archive.offload("t", drop_hot=chance.random() < 0.5)
    assert {record.seq for record in topic.read()} == model.live


@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.soak(part=8)) for seed in range(2, 60))]
)
def test_every_past_state_is_the_one_that_was(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    clock = HandClock()
    clock.ms = START_MS
    settings = LogSettings(segment_max_events=7)
    model = Model()
    with seglog.open(tmp_path / "data", clock=clock, settings=settings) as log:
        archive = offload.attach(log, store=MemoryStore(), clock=clock)
        topic = log.topic("t")
        for _ in range(60):
            _one_step(chance, clock, model, topic, archive)
        topic.seal()
        archive.offload("t", drop_hot=True)

        assert _live_at(archive, "head") == model.live
        for seq, live in model.by_seq.items():
            assert _live_at(archive, f"seq:{seq}") == live
        for ms in range(model.by_time[0][0], clock.ms + 1):
            time = _iso(ms)
            assert _live_at(archive, time) == model.at(ms), time
        for target in (_iso(START_MS - 1), _iso(clock.ms + 1), f"seq:{model.head + 1}"):
            with pytest.raises(OutOfWindow):
                archive.history.point("t", target)

        seq = chance.choice(list(model.by_seq))
        restored = archive.restore("t", to=f"seq:{seq}", name="back")
        assert {record.seq for record in archive.read("t@back")} == model.by_seq[seq]
        assert restored.records == len(model.by_seq[seq])
        archive.close()


def _iso(ms: int) -> str:
    from offload.moment import format_time

    return format_time(ms)
