"""T5: a log with its archive does what a plain model says, over branches, tags, pins, GC, merges, crashes and days.

The model is a list of moments for each branch: what the branch shows after each append and each delete. The model knows
nothing of segments, commits or volumes. After every step the test reads a promised past state and compares it with the
model. It names the state by seq, time, LSN, tag or pin. After every GC it reads every promised state that an LSN, a tag
or a pin names. It compares records by seq, value, time, tag and node. It reads at the times of events and at times
between them. The archive refuses a state that never was.

The seed of the run decides the histories (`tests/work.py`).

Not tested: whether the archive refuses or reads a time that GC has passed, which LSN a commit gets,
and two writers at once (`test_directories_share_a_topic.py`).

A crash is a kill at some call to the store. The next process finds the data directory as it is at that call.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

import offload
import seglog
from catalog import ForkPoint, MemoryStore, make_checkpoint
from catalog.errors import BranchExists, NoSuchBranch, OutOfWindow, PinLost, TagExists
from catalog.gc.collector import Collector, GcPolicy
from catalog.objects.base import ObjectStore
from catalog.objects.wrapped import WrappedStore
from catalog.refs.pin import HeldPin, Pins
from offload import ColdSettings, OffloadSettings
from offload.errors import NotOffloaded
from offload.moment import format_time
from offload.settings import CatalogSettings
from seglog import Gap, LogSettings, Record
from tests.faults.store import EFFECTS
from tests.seams.archive import context_of, kept_point
from tests.work import seed_of, tell
from tests.worlds.clock import HandClock

T = TypeVar("T")

TOPIC = "t"
START_MS = 1_790_000_000_000
DAY_MS = 24 * 3_600_000
WINDOW_MS = 7 * DAY_MS
_LOG = LogSettings(segment_max_events=6)
_OFFLOAD = OffloadSettings(codec="none", concurrency=1, merge_below_bytes=1 << 20, merge_count=2)
_UPKEEP = CatalogSettings(checkpoint_commits=4, pitr_window_s=WINDOW_MS // 1000)
_COLD = ColdSettings(cache_bytes=0, connections=1)
_HAPPENS = (
    "evictions",
    "kills",
    "pins",
    "renamed",
    "restored by who died",
    "tags",
    "takeovers",
    "truncations",
    "truncations of what only the log has",
    "undeleted",
)
_POLICY = GcPolicy(WINDOW_MS // 1000, DAY_MS // 1000)
_SHM = Path("/dev/shm")

Shown = tuple[bytes, int, str | None, str | None]
"""A record as a read shows it: value, time, tag and node."""

State = dict[int, Shown]


@dataclass(frozen=True)
class Moment:
    """The state that a branch shows from `ms` on, and its head.

    `seq` is the appended record, or None after a delete or a truncation.
    """

    ms: int
    seq: int | None
    shown: State
    head: int


@dataclass
class Line:
    """A branch. `own` is the number of its moments that came with the fork."""

    moments: list[Moment] = field(default_factory=list)
    own: int = 0
    is_open: bool = False
    deleted_ms: int | None = None
    seen: dict[int, tuple[int, State]] = field(default_factory=dict)

    @property
    def shown(self) -> State:
        return self.moments[-1].shown if self.moments else {}

    @property
    def head(self) -> int:
        return self.moments[-1].head if self.moments else 0

    def append(self, ms: int, values: Iterable[bytes], label: str | None, node: str | None) -> None:
        for value in values:
            seq = self.head + 1
            self.moments.append(Moment(ms, seq, {**self.shown, seq: (value, ms, label, node)}, seq))

    def delete(self, ms: int, before: int | None, label: str | None) -> None:
        left = {
            seq: record
            for seq, record in self.shown.items()
            if not (before is not None and seq < before) and not (label is not None and record[2] == label)
        }
        self.moments.append(Moment(ms, None, left, self.head))

    def truncate(self, ms: int, seq: int) -> None:
        left = {at: value for at, value in self.shown.items() if at < seq}
        self.moments.append(Moment(ms, None, left, seq - 1))

    def shown_since_ms(self, moment: Moment) -> int:
        """Return the time of the commit that shows `moment`, or an earlier time.

        A truncation of records that no commit has makes no commit. The commit before these records shows the state.
        """
        if moment.seq is not None:
            return moment.ms
        return min(each.ms for each in self.moments if (each.shown, each.head) == (moment.shown, moment.head))

    def are_plain(self, back: int) -> bool:
        """Return whether each of the last `back` moments is the append of one record."""
        return all(moment.seq is not None for moment in self.moments[-back:])

    def forget(self, back: int) -> None:
        """Remove the last `back` records. Only this log had them, so no past state shows them."""
        del self.moments[-back:]

    def firsts(self) -> set[int]:
        """Return the moments of records whose seq is higher than every seq before."""
        found, highest = set(), 0
        for number, moment in enumerate(self.moments):
            if moment.seq is not None and moment.seq > highest:
                found.add(number)
                highest = moment.seq
        return found

    def fork(self, number: int) -> Line:
        """Return a branch with the state of this one at moment `number`."""
        moments = self.moments[: number + 1]
        return Line(moments, len(moments))

    def offloaded(self, waiting: int) -> Moment:
        """Return the newest moment before the last `waiting` records. The newest commit shows it."""
        number = len(self.moments)
        while waiting:
            number -= 1
            waiting -= self.moments[number].seq is not None
        return self.moments[number - 1]

    def promised(self, since_ms: int) -> range:
        """Return the moments of this branch itself that were the newest at some time since `since_ms`."""
        first = len(self.moments) - 1
        while first > self.own and self.moments[first].ms > since_ms:
            first -= 1
        return range(max(first, self.own), len(self.moments))

    def at(self, ms: int) -> State:
        return next(moment.shown for moment in reversed(self.moments) if moment.ms <= ms)


class Killed(BaseException):
    pass


class KillStore(WrappedStore):
    """Calls `on_kill` before or after effect number `countdown`. After that every call raises `Killed`."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.countdown = 0
        self.is_after = False
        self.on_kill: Callable[[], None] = lambda: None

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        if self.countdown < 0:
            raise Killed
        if not self.countdown or method not in EFFECTS:
            return act()
        self.countdown -= 1
        if self.countdown:
            return act()
        if self.is_after:
            act()
        self.countdown = -1
        self.on_kill()
        raise Killed


class CatalogModel(RuleBasedStateMachine):
    counts: ClassVar[Counter[str]] = Counter()

    @initialize(drawn=st.integers(0, 2**32))
    def begin(self, drawn: int) -> None:
        self.random = Random(drawn)
        self.place = Path(tempfile.mkdtemp(prefix="seglog-model-", dir=_SHM if _SHM.is_dir() else None))
        self.life = 0
        self.clock = HandClock(START_MS)
        self.ground = MemoryStore()
        self.lines = {TOPIC: Line(is_open=True)}
        self.tags: dict[str, State] = {}
        self.pins: list[tuple[HeldPin, State]] = []
        self.made = 0
        self._open()
        self.log.topic(TOPIC).append([b"first"])
        self.lines[TOPIC].append(self.clock.ms, [b"first"], None, None)

    # ------------------------------------------------------------ records

    @rule(count=st.integers(1, 9), label=st.sampled_from("ab"), ms=st.integers(0, 1000))
    def append(self, count: int, label: str, ms: int) -> None:
        self.clock.ms += ms
        name = self._some(lambda line: line.deleted_ms is None)
        line, topic = self.lines[name], self.archive.open_for_append(name)
        line.is_open = True
        values = [b"%s %d" % (name.encode(), self.made + number) for number in range(count)]
        self.made += count
        node = f"n{count % 3}" if count % 3 else None
        assert topic.append(values, tag=label, node=node) == range(line.head + 1, line.head + count + 1)
        line.append(self.clock.ms, values, label, node)

    @rule(label=st.none() | st.sampled_from("ab"), back=st.integers(0, 12), ms=st.integers(0, 1000))
    def delete(self, label: str | None, back: int, ms: int) -> None:
        self.clock.ms += ms
        name = self._some(lambda line: line.is_open)
        line = self.lines[name]
        before = max(1, line.head - back) if label is None else None
        self.archive.delete(name, before=before, tag=label)
        line.delete(self.clock.ms, before, label)

    @rule(back=st.integers(0, 12), ms=st.integers(0, 1000))
    def evict(self, back: int, ms: int) -> None:
        self.clock.ms += ms
        name = self._some(lambda line: line.is_open)
        line, topic = self.lines[name], self.log.topic(name)
        before = max(1, line.head - back)
        has_news = any(seq < before for seq in line.shown)
        self.archive.evict(name, before)
        if has_news:
            assert topic.evict_floor == topic.earliest_seq == before
            assert [item.gap_to for item in topic.read(1, gaps=True) if isinstance(item, Gap)] == [before - 1]
            self.counts["evictions"] += 1
        line.delete(self.clock.ms, before, None)

    @rule(back=st.integers(1, 15), ms=st.integers(0, 1000), at=st.integers(0, 9), is_after=st.booleans())
    def truncate(self, back: int, ms: int, at: int, is_after: bool) -> None:
        """Truncate a topic, and note what its past still shows.

        An offloaded record stays in the past of the branch. A record that only the log has was never in a past.
        """
        name = self._some(lambda line: line.is_open)
        line, status = self.lines[name], self.archive.status.topic(name)
        seq = line.head - back + 1
        is_only_here = status.pending_lsn is None and seq > status.offloaded_seq
        if seq < self.log.topic(name).evict_floor or (is_only_here and (seq == 1 or not line.are_plain(back))):
            return
        self.clock.ms += ms
        if self._perhaps_killed(at, is_after, lambda: self.archive.truncate(name, seq)):
            assert self.log.topic(name).head_seq == seq - 1
        if self.log.topic(name).head_seq == seq - 1:
            self.counts["truncations of what only the log has" if is_only_here else "truncations"] += 1
            if is_only_here:
                line.forget(back)
            else:
                line.truncate(self.clock.ms, seq)

    @rule()
    def seal(self) -> None:
        self.log.topic(self._some(lambda line: line.is_open)).seal()

    # ------------------------------------------------------------ the archive

    @rule(drop_hot=st.booleans(), at=st.integers(0, 9), is_after=st.booleans())
    def offload(self, drop_hot: bool, at: int, is_after: bool) -> None:
        name = self._some(lambda line: line.is_open)
        if self._perhaps_killed(at, is_after, lambda: self.archive.offload(name, drop_hot=drop_hot)):
            self._remember(name)

    @rule(at=st.integers(0, 9), is_after=st.booleans())
    def compact(self, at: int, is_after: bool) -> None:
        name = self._some(lambda line: line.is_open)
        self._perhaps_killed(at, is_after, lambda: self.archive.upkeep.compact(name))

    @rule(part=st.floats(0, 1))
    def checkpoint(self, part: float) -> None:
        name = self._some(lambda line: line.is_open)
        status = self.archive.status.topic(name)
        first = min(self.lines[name].seen, default=0)
        if status.lsn and first:
            lsn = first + int(part * (status.lsn - first))
            with contextlib.suppress(OutOfWindow):
                if self.lines[name].seen.get(lsn, (0,))[0] > self.clock.ms - WINDOW_MS:
                    make_checkpoint(
                        context_of(self.archive).volumes,
                        self.archive.history.snapshot(name).vid,
                        lsn,
                        now_ms=self.clock.ms,
                    )

    @rule(at=st.integers(0, 40), is_after=st.booleans(), days=st.integers(0, 9))
    def gc(self, at: int, is_after: bool, days: int) -> None:
        """Run GC twice, `days` days apart. The second run deletes what the first run planned."""

        def collect() -> None:
            known = {attempt.sid for attempt in context_of(self.archive).local.attempts()}
            report = Collector(
                self.store, _POLICY, clock=self.clock.now_ms, writer_id="gc", attempts=lambda: known
            ).run()
            assert not report.blocked
            self.counts["deleted"] += report.deleted.total()

        self._perhaps_killed(at if at < 10 else 0, is_after, collect)
        self.clock.ms += days * DAY_MS
        self._perhaps_killed(at if at < 20 else 0, is_after, collect)
        self._check_all()

    @rule(days=st.integers(1, 5))
    def days_pass(self, days: int) -> None:
        self.clock.ms += days * DAY_MS

    @rule()
    def reopen(self) -> None:
        self._close()
        self._open()

    @rule()
    def kill(self) -> None:
        self._copy()
        self._go_on()

    @rule(is_fine=st.integers(0, 7))
    def another_machine_takes_over(self, is_fine: int) -> None:
        """Offload every open branch, lose the machine, and let another machine write with a higher epoch."""
        if is_fine:
            return
        for name in sorted(name for name, line in self.lines.items() if line.is_open):
            self.log.topic(name).seal()
            self.archive.offload(name)
            self._remember(name)
            self.lines[name].is_open = False
        self._close()
        self.life += 1
        self._open()
        self.archive.replication.take_over(TOPIC)
        self.lines[TOPIC].is_open = True
        self.counts["takeovers"] += 1

    # ------------------------------------------------------------ names

    @rule(kind=st.sampled_from(["seq", "time", "head", "tag"]), at=st.integers(0, 9), is_after=st.booleans())
    def restore(self, kind: str, at: int, is_after: bool) -> None:
        if len(self.lines) > 6:
            return
        found = self._some_target(kind)
        if found is None:
            return
        name, target, line = found
        branch = f"b{self.made}"
        self.made += 1
        if not self._perhaps_killed(at, is_after, lambda: self.archive.restore(name, to=target, name=branch)):
            try:
                self.archive.restore(name, to=target, name=branch)
            except BranchExists:
                self.counts["restored by who died"] += 1
        self.lines[f"{TOPIC}@{branch}"] = line

    @rule(kind=st.sampled_from(["seq", "time", "head"]))
    def tag(self, kind: str) -> None:
        found = self._some_target(kind)
        if found is None:
            return
        name, target, line = found
        tag = f"v{self.random.randrange(4)}"
        if tag in self.tags:
            self.clock.ms += 1  # at the same time the same tag would count as already made
            with pytest.raises(TagExists):
                self.archive.tags.tag(name, tag, to=target)
        else:
            self.archive.tags.tag(name, tag, to=target)
            self.tags[tag] = line.shown
            self.counts["tags"] += 1

    @rule()
    def delete_tag(self) -> None:
        if self.tags:
            tag = self.random.choice(sorted(self.tags))
            self.archive.tags.delete_tag(TOPIC, tag)
            del self.tags[tag]

    @rule(kind=st.sampled_from(["seq", "time", "head"]), days=st.integers(0, 30))
    def pin(self, kind: str, days: int) -> None:
        found = self._some_target(kind)
        if found is not None:
            name, target, line = found
            point = kept_point(self.archive, name, target)
            pins = Pins(context_of(self.archive).volumes)
            held = pins.hold(point, "model", ttl_ms=days * DAY_MS + 1000, now_ms=self.clock.ms)
            self.pins.append((held, line.shown))
            self.counts["pins"] += 1

    @rule(days=st.integers(0, 20))
    def renew_a_pin(self, days: int) -> None:
        if not self.pins:
            return
        number = self.random.randrange(len(self.pins))
        held, shown = self.pins[number]
        pins = Pins(context_of(self.archive).volumes)
        if held.pin.expires_at_ms > self.clock.ms:
            self.pins[number] = (pins.renew(held, ttl_ms=days * DAY_MS + 1000, now_ms=self.clock.ms), shown)
        else:
            with pytest.raises(PinLost):
                pins.renew(held, ttl_ms=1000, now_ms=self.clock.ms)

    @rule()
    def delete_branch(self) -> None:
        name = self._some(lambda line: not line.is_open and line.deleted_ms is None)
        if name:
            self.archive.branches.delete_branch(TOPIC, name.partition("@")[2])
            self.lines[name].deleted_ms = self.clock.ms

    @rule()
    def undelete_branch(self) -> None:
        name = self._some(lambda line: line.deleted_ms is not None)
        if not name:
            return
        line = self.lines[name]
        try:
            self.archive.branches.undelete_branch(TOPIC, name.partition("@")[2])
        except (OutOfWindow, NoSuchBranch):
            assert line.deleted_ms is not None
            assert line.deleted_ms + WINDOW_MS <= self.clock.ms
            del self.lines[name]
        else:
            line.deleted_ms = None
            self.counts["undeleted"] += 1

    @rule()
    def rename_branch(self) -> None:
        name = self._some(lambda line: not line.is_open and line.deleted_ms is None)
        if name:
            new = f"{TOPIC}@r{self.made}"
            self.made += 1
            self.archive.branches.rename_branch(TOPIC, name.partition("@")[2], new.partition("@")[2])
            self.lines[new] = self.lines.pop(name)
            self.counts["renamed"] += 1

    # ------------------------------------------------------------ what must be

    @invariant()
    def newest_states_are_exact(self) -> None:
        self.counts["steps"] += 1
        name = self._some(lambda line: line.deleted_ms is None)
        self._expect(self.archive.read(name), self.lines[name].shown, f"{name} now")

    @invariant()
    def a_past_state_is_exact(self) -> None:
        what = self.random.choice(["seq", "time", "lsn", "tag", "pin"])
        if what == "tag":
            self._check_tags(self._sample(sorted(self.tags)))
        elif what == "pin":
            self._check_pins(self._sample(self.pins))
        elif what == "lsn":
            self._check_lsns([self._some(lambda line: line.deleted_ms is None)], self._sample)
        elif self.random.random() < 0.5:  # a read at a seq or time seals and offloads up to the target
            found = self._some_target("seq" if what == "seq" else "time")
            if found is not None:
                name, target, line = found
                self._expect(self.archive.read(name, at=target), line.shown, f"{name} at {target}")

    @invariant()
    def what_never_was_is_refused(self) -> None:
        if self.random.random() < 0.8:
            return
        name = self._some(lambda line: line.deleted_ms is None)
        target = self.random.choice([format_time(START_MS - 1), f"seq:{10**9}", f"lsn:{10**6}"])
        # A pending commit may still get that LSN, so the archive may answer NotOffloaded.
        with pytest.raises((OutOfWindow, NotOffloaded) if target.startswith("lsn:") else OutOfWindow):
            list(self.archive.read(name, at=target))
        self.counts["refused"] += 1

    def _check_all(self) -> None:
        """Check every state that a branch, a tag or a pin holds, or that the window promises."""
        alive = sorted(name for name, line in self.lines.items() if line.deleted_ms is None)
        for name in alive:
            self._expect(self.archive.read(name), self.lines[name].shown, f"{name} now")
        self._check_tags(sorted(self.tags))
        self._check_pins(self.pins)
        self._check_lsns(alive, list)

    def _check_tags(self, tags: Iterable[str]) -> None:
        for tag in tags:
            self._expect(self.archive.read(TOPIC, at=f"tag:{tag}"), self.tags[tag], f"tag {tag}")

    def _check_pins(self, pins: Iterable[tuple[HeldPin, State]]) -> None:
        for held, shown in pins:
            if held.pin.expires_at_ms > self.clock.ms:
                self._expect(self._records_at(held.pin.point), shown, held.key)

    def _check_lsns(self, names: Iterable[str], drawn: Callable[[list[int]], Iterable[int]]) -> None:
        since_ms = self.clock.ms - WINDOW_MS
        for name in names:
            seen = self.lines[name].seen
            for lsn in drawn([lsn for lsn, (ms, _) in seen.items() if ms > since_ms]):
                self._expect(self.archive.read(name, at=f"lsn:{lsn}"), seen[lsn][1], f"lsn {lsn} of {name}")

    def _sample(self, found: Sequence[T]) -> list[T]:
        return [self.random.choice(found)] if found else []

    def teardown(self) -> None:
        with contextlib.suppress(AttributeError):
            self._close()
            shutil.rmtree(self.place)

    # ------------------------------------------------------------ inside

    def _some(self, is_good: Callable[[Line], bool]) -> str:
        names = sorted(name for name, line in self.lines.items() if is_good(line))
        return self.random.choice(names) if names else ""

    def _some_target(self, kind: str) -> tuple[str, str, Line] | None:
        """Draw a branch and a promised point of its past. Return both, and the line that forks off there."""
        if kind == "tag":
            return None
        name = self._some(lambda line: line.deleted_ms is None)
        line = self.lines[name]
        if kind == "head":
            return name, "head", line.fork(len(line.moments) - 1)
        promised = [number for number in line.promised(self.clock.ms - WINDOW_MS) if number >= line.own]
        if kind == "seq":
            # A history that begins with a state cannot tell the seqs of what happened before the window.
            since_ms = self.clock.ms - WINDOW_MS
            promised = [number for number in sorted({*promised} & line.firsts()) if line.moments[number].ms > since_ms]
        if not promised:
            return None
        number = self.random.choice(promised)
        moment = line.moments[number]
        if kind == "seq":
            return name, f"seq:{moment.seq}", line.fork(number)
        if moment.ms <= self.clock.ms - WINDOW_MS:
            return None
        # Draw the moment itself, or any time before the next moment.
        after = min((each.ms for each in line.moments if each.ms > moment.ms), default=moment.ms + 1)
        ms = self.random.choice([moment.ms, self.random.randrange(moment.ms, after), after - 1])
        last = max(at for at, each in enumerate(line.moments) if each.ms <= ms)
        return name, format_time(ms), line.fork(last)

    def _expect(self, records: Iterable[Record], shown: State, what: str) -> None:
        self.counts["states read"] += 1
        assert {each.seq: (each.value, each.ts_ms, each.tag, each.node) for each in records} == shown, what

    def _records_at(self, point: ForkPoint) -> Iterable[Record]:
        snapshot = context_of(self.archive).volumes.snapshot(point.vid, point.lsn, point.seq)
        return context_of(self.archive).reader.records(snapshot, snapshot.bounds.first_seq, snapshot.bounds.head_seq)

    def _remember(self, name: str) -> None:
        lsn = self.archive.status.topic(name).lsn
        if lsn:
            line = self.lines[name]
            moment = line.offloaded(line.head - self.archive.status.topic(name).offloaded_seq)
            # The window follows the topic's own times.
            line.seen[lsn] = (line.shown_since_ms(moment), moment.shown)

    def _perhaps_killed(self, at: int, is_after: bool, act: Callable[[], object]) -> bool:
        """Run `act`, and kill it at effect number `at` (0: no kill). Return whether it completed."""
        self.store.countdown, self.store.is_after = at, is_after
        try:
            act()
        except Killed:
            self.counts["kills"] += 1
            self._go_on()
            return False
        self.store.countdown = 0
        return True

    def _open(self) -> None:
        self.store = KillStore(self.ground)
        self.store.on_kill = self._copy
        self.log = seglog.open(self.place / f"{self.life}", clock=self.clock, settings=_LOG)
        self.archive = offload.attach(
            self.log,
            store=self.store,
            settings=offload.Settings().with_parts(_OFFLOAD, _COLD, _UPKEEP),
            clock=self.clock,
        )

    def _close(self) -> None:
        self.archive.close()
        self.log.close()

    def _copy(self) -> None:
        """Copy the directory as a process that is killed now leaves it."""
        shutil.copytree(self.place / f"{self.life}", self.place / f"{self.life + 1}")

    def _go_on(self) -> None:
        self._close()
        shutil.rmtree(self.place / f"{self.life}")
        self.life += 1
        self._open()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    monkeypatch.setattr("catalog.objects.put_once.backoff_s", lambda _: 0.0)


def _run(drawn: int, examples: int, steps: int) -> Counter[str]:
    CatalogModel.counts = Counter()
    print(f"T5: hypothesis seed {drawn}")
    run_state_machine_as_test(
        seed(drawn)(CatalogModel),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    tell(", ".join(f"{count} {what}" for what, count in CatalogModel.counts.items()))
    return CatalogModel.counts


def test_an_archive_is_what_the_model_says() -> None:
    assert _run(seed_of("T5"), examples=8, steps=40)["states read"] > 160


@pytest.mark.soak(part=8)
def test_an_archive_is_what_the_model_says_for_long() -> None:
    counts = _run(seed_of("T5, long"), examples=1_000, steps=80)
    assert counts["deleted"] > 100
    assert min(counts[what] for what in _HAPPENS) > 20
