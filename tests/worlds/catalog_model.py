"""A log with its archive, and a plain model of it: branches, tags, pins, GC, merges, crashes and days.

The model is a list of moments for each branch: what the branch shows after each append, delete, load and undo. The
model knows nothing of segments, commits or volumes. After every step the test reads a promised past state and compares
it with the model. It names the state by seq, time, LSN, tag or pin. After every GC it reads every promised state that
an LSN, a tag or a pin names. It compares records by seq, value, time, tag and node. It reads at the times of events and
at times between them. The archive refuses a state that never was.

    undo of a removal      also of an inherited one, while records wait, and after what others do since its preview
    undo of a name         the newest change, one after the other, also of a promotion. It takes no branch away that is
                           open or alone shows a record
    promotion              `leave`; the histories of `branch_world.py` carry
    again                  an append under a key and a producer's batch get their seqs, and add nothing
    load                   `WrittenByLog` if a log wrote last, and not after a load, an undo or a promotion

Not tested: whether the archive refuses or reads a time that GC has passed, which LSN a commit gets,
and two writers at once (`test_directories_share_a_topic.py`).

A crash is a kill at some call to the store. The next process finds the data directory as it is at that call.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

import offload
import seglog
from catalog import ForkPoint, MemoryStore, make_checkpoint
from catalog.errors import BranchExists, Conflict, NoSuchBranch, NotUndone, OutOfWindow, PinLost
from catalog.gc.collector import Collector, GcPolicy
from catalog.objects.object_store import ObjectStore
from catalog.objects.wrapped import WrappedStore
from catalog.refs.state_names import HeldPin, Pins
from catalog.undo_plan import TAKES_AWAY
from offload import ColdSettings, OffloadSettings
from offload.errors import NotOffloaded
from offload.handles import split_name
from offload.load import LoadRequest, WrittenByLog
from offload.moment import format_time
from offload.services.results import Removed
from offload.settings import CatalogSettings
from seglog import Gap, LogSettings, ProducerBatch, Record
from tests.faults.store import EFFECTS
from tests.offload.load.loads import begin, finish, part
from tests.promises.branch_world import ABOVE_ALL, kept_by
from tests.seams.archive import context_of, kept_point
from tests.worlds.clock import HandClock

__all__ = ["TOPIC", "CatalogModel"]

T = TypeVar("T")

TOPIC = "t"
START_MS = 1_790_000_000_000
DAY_MS = 24 * 3_600_000
WINDOW_MS = 7 * DAY_MS
_LOG = LogSettings(segment_max_events=6)
_OFFLOAD = OffloadSettings(codec="none", concurrency=1, merge_below_bytes=1 << 20, merge_count=2)
_UPKEEP = CatalogSettings(checkpoint_commits=4, pitr_window_s=WINDOW_MS // 1000)
_COLD = ColdSettings(cache_bytes=0, connections=1)
_KEPT_MS = DAY_MS // 2
"""The topic keeps keys for longer."""
_POLICY = GcPolicy(WINDOW_MS // 1000, DAY_MS // 1000)
_SHM = Path("/dev/shm")

Shown = tuple[bytes, int, str | None, str | None]
"""A record as a read shows it: value, time, tag and node."""

State = dict[int, Shown]


@dataclass(frozen=True)
class Removal:
    """A delete, an eviction or a truncation, with the records that it took from the branch, whose head was `head`.

    It takes the seqs below `below` and from `start` on, whatever they are. `reached` were deleted before: its commit
    names them if objects of the state hold them. `returned` came back by undos, the first of which made moment
    `undone_at`. `is_reused` says that new records have the seqs of a truncation.
    """

    number: int
    ms: int
    taken: State
    head: int
    below: int
    start: int
    reached: frozenset[int] = frozenset()
    returned: frozenset[int] = frozenset()
    undone_at: int | None = None
    is_reused: bool = False

    @property
    def is_undone(self) -> bool:
        return self.undone_at is not None


@dataclass(frozen=True)
class Moment:
    """The state that a branch shows from `ms` on, its head, and the removals so far.

    `seq` is the appended record, or None after a delete, a truncation or an undo.
    """

    ms: int
    seq: int | None
    shown: State
    head: int
    removals: tuple[Removal, ...] = ()


@dataclass
class Line:
    """A branch. `own` is the number of its moments that came with the fork.

    `points` has the commits of removals, by their number, as far as the test knows them. `undeleted_ms` has the time of
    each deletion that an undelete ended. `is_touched` says that the branch has commits of its own, or may have.
    `is_logs` says whether a log made a commit since the last load: None if that is not known.
    """

    moments: list[Moment] = field(default_factory=list)
    own: int = 0
    is_open: bool = False
    is_touched: bool = False
    is_logs: bool | None = False
    deleted_ms: int | None = None
    undeleted_ms: list[int] = field(default_factory=list)
    seen: dict[int, tuple[int, State]] = field(default_factory=dict)
    points: dict[int, ForkPoint] = field(default_factory=dict)

    @property
    def shown(self) -> State:
        return self.moments[-1].shown if self.moments else {}

    @property
    def head(self) -> int:
        return self.moments[-1].head if self.moments else 0

    @property
    def removals(self) -> tuple[Removal, ...]:
        return self.moments[-1].removals if self.moments else ()

    def open(self) -> None:
        self.is_open = self.is_touched = True
        self.is_logs = True if self.is_logs else None

    def append(self, ms: int, values: Iterable[bytes], label: str | None, node: str | None) -> None:
        for value in values:
            seq = self.head + 1
            removals = tuple(replace(each, is_reused=True) if seq >= each.start else each for each in self.removals)
            self.moments.append(Moment(ms, seq, {**self.shown, seq: (value, ms, label, node)}, seq, removals))

    def delete(
        self,
        number: int,
        ms: int,
        before: int | None,
        label: str | None,
        seqs: Container[int] | None = None,
        *,
        is_commit: bool = False,
    ) -> None:
        """Delete. If that takes no record, it is no moment unless it is a commit."""

        def fits(seq: int, record: Shown) -> bool:
            is_labeled = label is None or record[2] == label
            return (before is None or seq < before) and is_labeled and (seqs is None or seq in seqs)

        taken = {seq: record for seq, record in self.shown.items() if fits(seq, record)}
        left = {seq: record for seq, record in self.shown.items() if seq not in taken}
        below = min(before or 1, self.head + 1) if label is None and seqs is None else 1
        gone = ((seq, record) for each in self.removals for seq, record in each.taken.items() if seq not in self.shown)
        reached = frozenset(seq for seq, record in gone if below == 1 and fits(seq, record))
        removal = Removal(number, ms, taken, self.head, below, ABOVE_ALL, reached)
        if taken or is_commit:
            self.moments.append(Moment(ms, None, left, self.head, (*self.removals, removal)))

    def truncate(self, number: int, ms: int, seq: int) -> None:
        left = {at: value for at, value in self.shown.items() if at < seq}
        taken = {at: value for at, value in self.shown.items() if at >= seq}
        removal = Removal(number, ms, taken, self.head, 1, seq)
        self.moments.append(Moment(ms, None, left, seq - 1, (*self.removals, removal)))

    def back(self, removal: Removal, others: Iterable[Removal] = ()) -> State:
        """Return the records that an undo brings back once `others` are undone (UNDO-1)."""
        later = [each for each in self.removals if each.number > removal.number and each not in others]
        first, end = kept_by(each for each in later if not each.is_undone)
        kept_away = removal.returned | self.shown.keys()
        return {seq: each for seq, each in removal.taken.items() if first <= seq < end and seq not in kept_away}

    def held_up(self, removal: Removal) -> list[Removal]:
        """Return the earlier removals that are undone, which the undo of this one completes (BACK-7)."""
        earlier = [each for each in self.removals if each.number < removal.number and each.undone_at is not None]
        return sorted(earlier, key=lambda each: each.undone_at or 0)

    def is_sure(self, removal: Removal) -> bool:
        """Return whether no later delete may have named what this one took."""
        later = (each for each in self.removals if each.number > removal.number and not each.is_undone)
        return not any(each.reached & removal.taken.keys() for each in later)

    def undo(self, ms: int, removal: Removal) -> None:
        for number in (removal.number, *(each.number for each in self.held_up(removal))):
            each = next(each for each in self.removals if each.number == number)
            back = self.back(each)
            if number == removal.number or back:
                self._bring_back(ms, each, back)

    def _bring_back(self, ms: int, removal: Removal, back: State) -> None:
        undone_at = len(self.moments) if removal.undone_at is None else removal.undone_at
        undone = replace(removal, undone_at=undone_at, returned=removal.returned | back.keys())
        removals = tuple(undone if each is removal else each for each in self.removals)
        is_head_back = removal.start < ABOVE_ALL and not removal.is_undone
        head = removal.head if is_head_back else self.head
        self.moments.append(Moment(ms, None, self.shown | back, head, removals))

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
        return Line(moments, len(moments), points=dict(self.points))

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


class CatalogModel:
    """One history: the archive, and the model of it."""

    def __init__(self) -> None:
        self.counts = Counter[str]()
        self.told: list[str] = []

    def begin(self, drawn: str) -> None:
        self.random = Random(drawn)
        self.place = Path(tempfile.mkdtemp(prefix="seglog-model-", dir=_SHM if _SHM.is_dir() else None))
        self.life = 0
        self.clock = HandClock(START_MS)
        self.ground = MemoryStore()
        self.lines = {TOPIC: Line(is_open=True, is_touched=True, is_logs=None)}
        self.operations: list[tuple[int, str, tuple[str, ...], State]] = []
        self.repeatable: dict[str, list[tuple[int, list[bytes], dict[str, Any], range]]] = defaultdict(list)
        self.tags: dict[str, State] = {}
        self.pins: list[tuple[HeldPin, State]] = []
        self.made = 0
        self._open()
        self.log.topic(TOPIC).append([b"first"])
        self.lines[TOPIC].append(self.clock.ms, [b"first"], None, None)

    # ------------------------------------------------------------ records

    def append(self) -> None:
        count, label, by = (
            self.random.randint(1, 9),
            self.random.choice("ab"),
            self.random.choice(["", "key", "producer"]),
        )
        self._some_time_passes()
        name = self._some(lambda line: line.deleted_ms is None)
        line, topic = self.lines[name], self.archive.open_for_append(name)
        line.open()
        values = [b"%s %d" % (name.encode(), self.made + number) for number in range(count)]
        self.made += count
        options: dict[str, Any] = {"tag": label, "node": f"n{count % 3}" if count % 3 else None}
        if by == "key":
            options["key"] = f"k{self.made}"
        elif by == "producer":
            options["producer"] = ProducerBatch(f"p{self.made}", epoch=0, number=0)
        seqs = topic.append(values, **options)
        assert seqs == range(line.head + 1, line.head + count + 1)
        line.append(self.clock.ms, values, label, options["node"])
        if by:
            self.repeatable[name].append((self.clock.ms, values, options, seqs))

    def append_again(self) -> None:
        """Repeat appends. A promotion and an undo keep what the topic knows of its producers and keys."""
        for name in sorted(name for name, line in self.lines.items() if line.deleted_ms is None):
            for ms, values, options, seqs in self.repeatable[name][-3:]:
                if ms > self.clock.ms - _KEPT_MS:
                    self.lines[name].open()
                    assert self.archive.open_for_append(name).append(values, **options) == seqs, name
                    self.counts["repetitions"] += 1

    def load(self) -> None:
        """Append by a job without a log. It may write unless a log wrote last (LOAD-4)."""
        name = self._some(lambda line: line.deleted_ms is None)
        line, (topic, branch) = self.lines[name], split_name(name)
        if line.is_open:
            self._offload(name)
        count = self.random.randint(1, 3)
        values = [b"%s %d" % (name.encode(), self.made + number) for number in range(count)]
        self.made += count
        request = LoadRequest(topic, branch, take_over=line.is_logs is not False)
        if line.is_logs:
            with pytest.raises(WrittenByLog):
                begin(self.store, [values], replace(request, take_over=False), self.clock.ms)
        begun = begin(self.store, [values], request, self.clock.ms)
        loaded = finish(self.store, begun, [part(self.store, begun, 0, values)])
        assert (loaded.first_seq, begun.start_ms) == (line.head + 1, self.clock.ms)
        line.append(self.clock.ms, values, None, None)
        line.is_logs, line.is_touched = False, True
        if line.is_open:
            self.archive.replication.reset(name)
            line.is_open = False
        elif self.archive.replication.is_replica(name):
            self.archive.replication.sync(name)
        self.counts["loads"] += 1

    def delete(self) -> None:
        label, back = self.random.choice([None, "a", "b"]), self.random.randint(0, 12)
        self._some_time_passes()
        name = self._writable(is_clean=self.random.random() < 0.7)
        line = self.lines[name]
        start, seqs = max(1, line.head - back), None
        match self.random.choice(["below", "below", "range", "rest", "seqs"]):
            case "below":
                before = start if label is None else None
                removed = self.archive.delete(name, before=before, tag=label)
            case "range":
                before, seqs = None, range(start, start + self.random.randint(1, 6))
                removed = self.archive.delete(name, start=seqs.start, end=seqs.stop - 1, tag=label)
                if start == 1 and label is None:  # a delete of all below its end, which later undos respect (UNDO-1)
                    before, seqs = seqs.stop, None
            case "rest":
                before, seqs = None, range(start, line.head + 1)
                removed = self.archive.delete(name, start=start, tag=label)
            case _:
                before, seqs = None, range(start, line.head + 1, self.random.randint(2, 3))
                removed = self.archive.delete(name, seqs=seqs, tag=label)
        if seqs is not None:
            self.counts["deletes of ranges"] += 1
        line.delete(self._number(), self.clock.ms, before, label, seqs, is_commit=removed.lsn is not None)
        self._note(name, removed)

    def evict(self) -> None:
        back = self.random.randint(0, 12)
        self._some_time_passes()
        name = self._writable(is_clean=self.random.random() < 0.7)
        line, topic = self.lines[name], self.log.topic(name)
        before = max(1, line.head - back)
        has_news = any(seq < before for seq in line.shown)
        removed = self.archive.evict(name, before)
        if has_news:
            # Where the log has the records, the front also passes those that an earlier delete took.
            live = min((seq for seq in line.shown if seq >= before), default=line.head + 1)
            front = before if before < topic.inner.hot_floor else live
            assert (topic.inner.evict_floor, topic.earliest_seq) == (before, front)
            assert [item.gap_to for item in topic.read(1, gaps=True) if isinstance(item, Gap)] == [before - 1]
            self.counts["evictions"] += 1
        line.delete(self._number(), self.clock.ms, before, None, is_commit=removed.lsn is not None)
        if removed.lsn is None:
            line.points.clear()  # a later commit may lift the floor
        self._note(name, removed)

    def truncate(self) -> None:
        """Truncate a topic, and note what its past still shows.

        An offloaded record stays in the past of the branch. A record that only the log has was never in a past.
        """
        name, back = self._writable(), self.random.randint(1, 15)
        line, status = self.lines[name], self.archive.status.topic(name)
        seq = line.head - back + 1
        is_only_here = status.pending_lsn is None and seq > status.offloaded_seq
        if seq < self.log.topic(name).inner.evict_floor or (is_only_here and (seq == 1 or not line.are_plain(back))):
            return
        self._some_time_passes()
        done: list[Removed] = []
        if self._perhaps_killed(lambda: done.append(self.archive.truncate(name, seq))):
            assert self.log.topic(name).head_seq == seq - 1
        self.repeatable[name].clear()
        if self.log.topic(name).head_seq == seq - 1:
            self.counts["truncations of what only the log has" if is_only_here else "truncations"] += 1
            if is_only_here:
                line.forget(back)
            else:
                line.truncate(self._number(), self.clock.ms, seq)
                self._note(name, done[0] if done else Removed(None, None))

    def undo_a_removal(self) -> None:
        """Undo a removal, whose state before is within the window, by the commit that a preview names."""
        found = [
            (name, removal)
            for name, line in sorted(self.lines.items())
            for removal in line.removals
            if line.deleted_ms is None and self._is_undoable(line, removal)
        ]
        if not found:
            return
        inherited = [each for each in found if each[1].number in {one.number for one in self._inherited(each[0])}]
        name, removal = self.random.choice(inherited if inherited and self.random.random() < 0.5 else found)
        line, number = self.lines[name], removal.number
        point = line.points[number]
        seen = self.archive.history.preview_undo(name, point.lsn, point.vid)
        more = sum(len(line.back(each, [removal])) for each in line.held_up(removal))
        assert (seen.undone, seen.records) == (point, len(line.back(removal)) + more)
        self.counts["undos completed"] += bool(more)
        self._meanwhile(name)
        removal = next(each for each in line.removals if each.number == number)
        if not self._is_undoable(line, removal):
            return
        if not self._perhaps_killed(lambda: self.archive.history.undo_removal(name, point.lsn, point.vid)):
            self.archive.history.undo_removal(name, point.lsn, point.vid)
        done = self.archive.history.undo_removal(name, point.lsn, point.vid)
        assert done.undone == point
        assert done.is_earlier
        self.counts["undone of a parent" if (name, removal) in inherited else "undone"] += 1
        line.undo(self.clock.ms, removal)
        self._may_go_on(name)

    def _meanwhile(self, name: str) -> None:
        """Do what another thread or another client may do between a preview and its run."""
        line = self.lines[name]
        match self.random.choice(["nothing", "append", "compact", "tag", "gc"]):
            case "append":
                value = b"%s %d" % (name.encode(), self.made)
                self.made += 1
                self.archive.open_for_append(name).append([value])
                line.open()
                line.append(self.clock.ms, [value], None, None)
            case "compact" if line.is_open:
                self.archive.upkeep.compact(name)
            case "tag":
                self.tag()
            case "gc":
                self.gc()

    def _is_undoable(self, line: Line, removal: Removal) -> bool:
        removals = [removal, *line.held_up(removal)]
        is_kept = all(each.ms > self.clock.ms - WINDOW_MS and line.is_sure(each) for each in removals)
        return is_kept and removal.number in line.points and not removal.is_reused and bool(line.back(removal))

    def _inherited(self, name: str) -> tuple[Removal, ...]:
        line = self.lines[name]
        return line.moments[line.own - 1].removals if line.own else ()

    def _note(self, name: str, removed: Removed) -> None:
        """Note the commit of the newest removal. If it has none, nobody knows what an undo of an earlier one brings."""
        line = self.lines[name]
        is_there = bool(line.removals) and line.removals[-1].number == self.made
        if removed.lsn is None and (is_there or removed.waits_for is not None):
            line.points.clear()
        if removed.lsn is None or not is_there:
            return  # it took nothing, or waits
        past = self.archive.history.commits(name).at_lsn(removed.lsn)
        assert past is not None
        assert past.commit.kind in TAKES_AWAY
        line.points[self.made] = ForkPoint(past.commit.vid, past.commit.lsn)

    def _some_time_passes(self) -> None:
        self.clock.ms += self.random.randint(0, 1000)

    def _number(self) -> int:
        self.made += 1
        return self.made

    def seal(self) -> None:
        self.log.topic(self._writable()).seal()

    # ------------------------------------------------------------ the archive

    def offload(self) -> None:
        name, drop_hot = self._writable(), self.random.random() < 0.5
        if self._perhaps_killed(lambda: self.archive.offload(name, drop_hot=drop_hot)):
            self._remember(name)

    def compact(self) -> None:
        name = self._writable()
        self._perhaps_killed(lambda: self.archive.upkeep.compact(name))

    def checkpoint(self) -> None:
        name = self._writable()
        status = self.archive.status.topic(name)
        first = min(self.lines[name].seen, default=0)
        if status.lsn and first:
            lsn = self.random.randint(first, status.lsn)
            with contextlib.suppress(OutOfWindow):
                if self.lines[name].seen.get(lsn, (0,))[0] > self.clock.ms - WINDOW_MS:
                    make_checkpoint(
                        context_of(self.archive).volumes,
                        self.archive.history.snapshot(name).vid,
                        lsn,
                        now_ms=self.clock.ms,
                    )

    def gc(self) -> None:
        """Run GC twice, some days apart. The second run deletes what the first run planned."""

        def collect() -> None:
            known = {attempt.sid for attempt in context_of(self.archive).local.attempts()}
            report = Collector(
                self.store, _POLICY, clock=self.clock.now_ms, writer_id="gc", attempts=lambda: known
            ).run()
            assert not report.blocked
            self.counts["deleted"] += report.deleted.total()

        self._perhaps_killed(collect, one_in=4)
        self.clock.ms += self.random.randint(0, 9) * DAY_MS
        self._perhaps_killed(collect, one_in=2, within=20)
        self._check_all()

    def days_pass(self) -> None:
        self.clock.ms += self.random.randint(1, 5) * DAY_MS

    def reopen(self) -> None:
        self._close()
        self._open()

    def kill(self) -> None:
        self._copy()
        self._go_on()

    def another_machine_takes_over(self) -> None:
        """Offload every open branch, lose the machine, and let another machine write with a higher epoch."""
        for name in sorted(name for name, line in self.lines.items() if line.is_open):
            self._offload(name)
            self.lines[name].is_open = False
        self._close()
        self.life += 1
        self._open()
        self.archive.replication.take_over(TOPIC)
        self.lines[TOPIC].open()
        self.repeatable.clear()
        self.counts["takeovers"] += 1

    # ------------------------------------------------------------ names

    def restore(self) -> None:
        if len(self.lines) > 6:
            return
        found = self._some_target(self.random.choice(["seq", "time", "head"]))
        if found is None:
            return
        name, target, line = found
        branch = f"b{self.made}"
        self.made += 1
        if not self._perhaps_killed(lambda: self.archive.restore(name, to=target, name=branch)):
            try:
                self.archive.restore(name, to=target, name=branch)
            except BranchExists:
                self.counts["restored by who died"] += 1
        self.lines[f"{TOPIC}@{branch}"] = line
        self._did("create", f"{TOPIC}@{branch}")

    def tag(self) -> None:
        found = self._some_target(self.random.choice(["seq", "time", "head"]))
        if found is None:
            return
        name, target, line = found
        tag = f"v{self.random.randrange(4)}"
        if tag in self.tags:
            self.clock.ms += 1  # at the same time the same tag would count as already made
            with pytest.raises(Conflict, match="has a tag"):
                self.archive.tags.tag(name, tag, to=target)
        else:
            self.archive.tags.tag(name, tag, to=target)
            self.tags[tag] = line.shown
            self._did("tag", tag)
            self.counts["tags"] += 1

    def delete_tag(self) -> None:
        if self.tags:
            tag = self.random.choice(sorted(self.tags))
            self.archive.tags.delete_tag(TOPIC, tag)
            self._did("delete tag", tag, shown=self.tags.pop(tag))

    def pin(self) -> None:
        found, days = self._some_target(self.random.choice(["seq", "time", "head"])), self.random.randint(0, 30)
        if found is not None:
            name, target, line = found
            point = kept_point(self.archive, name, target)
            pins = Pins(context_of(self.archive).volumes)
            held = pins.hold(point, "model", ttl_ms=days * DAY_MS + 1000, now_ms=self.clock.ms)
            self.pins.append((held, line.shown))
            self.counts["pins"] += 1

    def renew_a_pin(self) -> None:
        if not self.pins:
            return
        number = self.random.randrange(len(self.pins))
        held, shown = self.pins[number]
        days = self.random.randint(0, 20)
        pins = Pins(context_of(self.archive).volumes)
        if held.pin.expires_at_ms > self.clock.ms:
            self.pins[number] = (pins.renew(held, ttl_ms=days * DAY_MS + 1000, now_ms=self.clock.ms), shown)
        else:
            with pytest.raises(PinLost):
                pins.renew(held, ttl_ms=1000, now_ms=self.clock.ms)

    def delete_branch(self) -> None:
        name = self._some_closed_branch()
        if name:
            self.archive.branches.delete_branch(TOPIC, name.partition("@")[2])
            self.lines[name].deleted_ms = self.clock.ms
            self.repeatable.pop(name, None)
            self._did("delete", name)

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
            assert line.deleted_ms is not None
            line.undeleted_ms.append(line.deleted_ms)
            line.deleted_ms = None
            self._did("undelete", name)
            self.counts["undeleted"] += 1

    def rename_branch(self) -> None:
        name = self._some_closed_branch()
        if name:
            new = f"{TOPIC}@r{self.made}"
            self.made += 1
            self.archive.branches.rename_branch(TOPIC, name.partition("@")[2], new.partition("@")[2])
            self.lines[new] = self.lines.pop(name)
            self.repeatable.pop(name, None)
            self._did("rename", name, new)
            self.counts["renamed"] += 1

    def promote(self) -> None:
        """Make a branch main. What main got after the fork stays in the former main."""
        side = self._some(lambda line: line is not self.lines[TOPIC] and line.deleted_ms is None)
        if not side:
            return
        keep = f"{TOPIC}@k{self._number()}"

        def act() -> None:
            self.archive.branches.promote_branch(TOPIC, side.partition("@")[2], keep=keep.partition("@")[2], leave=True)

        if not self._perhaps_killed(act, one_in=2, within=20):
            with contextlib.suppress(NoSuchBranch):  # the call before the kill made all steps but the last
                act()
            if self.lines[TOPIC].is_open:  # the last step is a takeover, whose commit may be there without a topic
                self.lines[side].is_logs = self.lines[side].is_logs or None
        self.lines[keep], self.lines[TOPIC] = self.lines[TOPIC], self.lines.pop(side)
        self._may_go_on(keep, TOPIC)
        self.repeatable.pop(side, None)
        self._did("promote", side, keep)
        self.counts["promotions"] += 1

    def undo_a_name(self) -> None:
        """Take back the newest change of a name. Not tested: a change that is older than the window."""
        if not self.operations or self.operations[-1][0] <= self.clock.ms - WINDOW_MS:
            return
        _, what, names, shown = self.operations[-1]
        line = self.lines.get(names[-1], Line())
        if what == "rename" and line.is_open:
            with pytest.raises(Conflict, match="is open for appends"):
                self.archive.history.undo()
            self.counts["names not undone"] += 1
            return
        try:
            self.archive.history.undo()
        except NotUndone:
            if what not in {"create", "undelete", "delete tag"}:
                raise
            self.counts["names not undone"] += 1
            return
        self.operations.pop()
        self.counts["names undone"] += 1
        match what:
            case "create" | "undelete":
                assert not line.is_open
                assert not line.is_touched or not self._alone(names[0]), f"only {names[0]} shows them"
                line.deleted_ms = self.clock.ms if what == "create" else line.undeleted_ms.pop()
            case "delete":
                line.deleted_ms = None
            case "tag":
                del self.tags[names[0]]
            case "delete tag":
                self.tags[names[0]] = shown
            case "rename":
                self.lines[names[0]] = self.lines.pop(names[1])
            case "promote":
                self.lines[names[0]], self.lines[TOPIC] = self.lines[TOPIC], self.lines.pop(names[1])
                self._may_go_on(names[0], TOPIC)
                self.repeatable.pop(TOPIC, None)
                self.counts["promotions undone"] += 1
        is_alive = names[0] in self.lines and self.lines[names[0]].deleted_ms is None
        if is_alive and self.archive.replication.is_replica(names[0]):
            self.archive.replication.sync(names[0])  # its volume may have had another name

    def _alone(self, name: str) -> set[tuple[int, Shown]]:
        """Return the records that no other branch and no tag shows."""
        others = [line.shown for each, line in self.lines.items() if each != name and line.deleted_ms is None]
        shown = {item for state in (*others, *self.tags.values()) for item in state.items()}
        return {*self.lines[name].shown.items()} - shown

    def _may_go_on(self, *names: str) -> None:
        """Note which of the names the log still has. Of such a one, the log made the last commit."""
        for name in names:
            line = self.lines[name]
            line.is_open, line.is_touched = self.log.has_topic(name), True
            line.is_logs = True if line.is_open else line.is_logs

    def _did(self, what: str, *names: str, shown: State | None = None) -> None:
        self.operations.append((self.clock.ms, what, names, shown or {}))

    # ------------------------------------------------------------ what must be

    def newest_states_are_exact(self) -> None:
        name = self._some(lambda line: line.deleted_ms is None)
        self._expect(self.archive.read(name), self.lines[name].shown, f"{name} now")

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

    def run(self, drawn: str, steps: int) -> None:
        """Live one history."""
        self.begin(drawn)
        try:
            for step in self.random.choices(list(_STEPS), list(_STEPS.values()), k=steps):
                self.told.append(step.__name__)
                self.counts["steps"] += 1
                step(self)
                self.newest_states_are_exact()
                self.a_past_state_is_exact()
                self.what_never_was_is_refused()
            self.look_back()
        except Exception as error:
            error.add_note(f"history {drawn!r}: {' '.join(self.told)}")
            raise
        finally:
            self._close()
            shutil.rmtree(self.place)

    def look_back(self) -> None:
        """Check the end of the history."""
        self._check_all()

    # ------------------------------------------------------------ inside

    def _some(self, is_good: Callable[[Line], bool]) -> str:
        names = sorted(name for name, line in self.lines.items() if is_good(line))
        return self.random.choice(names) if names else ""

    def _some_closed_branch(self) -> str:
        main = self.lines[TOPIC]
        return self._some(lambda line: line is not main and not line.is_open and line.deleted_ms is None)

    def _writable(self, *, is_clean: bool = False) -> str:
        """Return a name that is open for appends. With `is_clean`, all its records are in the remote."""
        name = self._some(lambda line: line.is_open)
        if not name:
            self.archive.open_for_append(TOPIC)
            self.lines[TOPIC].open()
            name = TOPIC
        if is_clean:
            self._offload(name)
        return name

    def _offload(self, name: str) -> None:
        self.log.topic(name).seal()
        if self.archive.offload(name).published:
            self.lines[name].is_logs = True
        self._remember(name)

    def _some_target(self, kind: str) -> tuple[str, str, Line] | None:
        """Draw a branch and a promised point of its past. Return both, and the line that forks off there."""
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

    def _perhaps_killed(self, act: Callable[[], object], one_in: int = 3, within: int = 9) -> bool:
        """Run `act`, and kill it at one of its first effects, one time in `one_in`. Return whether it completed."""
        is_killed = not self.random.randrange(one_in)
        self.store.countdown = self.random.randint(1, within) if is_killed else 0
        self.store.is_after = self.random.random() < 0.5
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


_STEPS: dict[Callable[[CatalogModel], None], int] = {
    CatalogModel.append: 8,
    CatalogModel.append_again: 2,
    CatalogModel.load: 3,
    CatalogModel.delete: 4,
    CatalogModel.evict: 2,
    CatalogModel.truncate: 4,
    CatalogModel.undo_a_removal: 5,
    CatalogModel.seal: 2,
    CatalogModel.offload: 5,
    CatalogModel.compact: 2,
    CatalogModel.checkpoint: 2,
    CatalogModel.gc: 2,
    CatalogModel.days_pass: 1,
    CatalogModel.reopen: 1,
    CatalogModel.kill: 1,
    CatalogModel.another_machine_takes_over: 1,
    CatalogModel.restore: 4,
    CatalogModel.tag: 2,
    CatalogModel.delete_tag: 1,
    CatalogModel.pin: 2,
    CatalogModel.renew_a_pin: 1,
    CatalogModel.delete_branch: 2,
    CatalogModel.undelete_branch: 2,
    CatalogModel.rename_branch: 1,
    CatalogModel.promote: 3,
    CatalogModel.undo_a_name: 3,
}
