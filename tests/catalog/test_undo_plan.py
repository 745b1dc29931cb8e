"""The plan of an undo, compared with a model: what a reader gets after it, from objects that hold each record.

The model keeps the records of the topic by seq, and what each operation took. Objects hold the records that were live
when they were made. The history goes on in forks, also of past states and of a part of a commit, whose removals it then
inherits.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
from pyroaring import BitMap

from catalog.errors import NotUndone
from catalog.format.commit import Bounds, Commit, CommitKind, Deletions, ForkPoint, SegmentRef, SegmentView
from catalog.format.encoding import StoredCommit, commit_hash, decode_commit, decode_views, encode_commit
from catalog.format.ids import Sid
from catalog.snapshot import Snapshot, checkpoint_of, cut, empty, fold, fork, from_checkpoint
from catalog.undo_plan import TAKES_AWAY, Taken, UndoPlan, plan_undo
from tests import work
from tests.catalog.samples import segment, ts_of, vid
from tests.worlds.snapshots import visible

Held = dict[int, int]  # seq to the number of the record


@dataclass
class _Step:
    """A commit, the state before it, and what the model knows: the records it took, and the seqs it takes at all.

    `after` are the records and the floors after it. `returned` are the seqs that undos of it have brought back, and
    `brought` those that it brought back as an undo. `cut` is the last seq that a fork kept of it. `named` are the
    records of objects that a delete names, also those that were deleted before.
    """

    stored: StoredCommit
    before: Snapshot
    records: Held
    floors: tuple[int, int]
    after: tuple[Held, tuple[int, int]]
    cut: int | None = None
    taken: Held = field(default_factory=dict)
    returned: set[int] = field(default_factory=set)
    brought: frozenset[int] = frozenset()
    named: frozenset[tuple[Sid, int]] = frozenset()
    below: int = 1
    start: int = 2**64

    @property
    def undone(self) -> ForkPoint | None:
        restored = self.stored.commit.restored
        return None if restored is None else restored.undone

    def cut_at(self, seq: int) -> None:
        self.cut = seq if self.cut is None else min(self.cut, seq)
        if self.stored.commit.truncate_from is None:
            self.taken = {each: record for each, record in self.taken.items() if each <= self.cut}


class World:
    """One history of a topic with its objects, and the model beside it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now = empty(vid(1))
        self.steps: list[_Step] = []
        self.cuts: list[tuple[int, list[tuple[int | None, Held]]]] = []
        self.objects: dict[Sid, Held] = {}
        self.records: Held = {}
        self.floors = (1, 0)  # first_seq, evict_floor
        self.head = self.numbers = self.volumes = 0
        self.counts: Counter[str] = Counter()

    # ------------------------------------------------------------ operations

    def offload(self) -> None:
        first = self.head + 1
        self.head += self.rng.randint(1, 12)
        made = {seq: self._number() for seq in range(first, self.head + 1)}
        if self.rng.random() < 0.3:  # deleted before the offload: tombstones
            made = {seq: record for seq, record in made.items() if self.rng.random() < 0.8}
        self.records |= made
        self._commit(CommitKind.OFFLOAD, segments=(self._object(first, self.head, made),))

    def delete_below(self, kind: CommitKind = CommitKind.DELETE) -> None:
        seq = self.rng.randint(1, self.head + 1)
        gone = {each: record for each, record in self.records.items() if each < seq}
        if not gone or seq <= self.floors[0]:
            return
        if kind is CommitKind.EVICT:
            self.floors = (seq, seq)
        self._take(gone, kind, below=seq, deletions=Deletions(seq))

    def evict(self) -> None:
        self.delete_below(CommitKind.EVICT)

    def delete_by_tag(self) -> None:
        """Delete some records, and name some that are deleted already."""
        rate = self.rng.choice([0.1, 0.5])
        named = frozenset(
            (view.ref.sid, seq)
            for view in self.now.segments
            for seq in self.objects[view.ref.sid]
            if view.first <= seq <= view.last and self.rng.random() < rate
        )
        bitmaps: dict[Sid, BitMap] = {}
        firsts = {view.ref.sid: view.ref.first_seq for view in self.now.segments}
        for sid, seq in sorted(named):
            bitmaps.setdefault(sid, BitMap()).add(seq - firsts[sid])
        if named:
            gone = {seq: self.records[seq] for _, seq in named if seq in self.records}
            deletions = Deletions(0, {sid: bits.serialize() for sid, bits in bitmaps.items()})
            self._take(gone, CommitKind.DELETE, deletions=deletions)
            self.steps[-1].named = named

    def truncate(self) -> None:
        if self.head:
            start = self.rng.randint(max(1, self.head - 15), self.head)
            gone = {seq: record for seq, record in self.records.items() if seq >= start}
            self.floors = (min(self.floors[0], start), min(self.floors[1], start))
            self.head = start - 1
            self._take(gone, CommitKind.TRUNCATE, start=start, truncate_from=start)

    def compact(self) -> None:
        own = [view for view in self.now.segments if view.vid == self.now.vid]
        if own:
            at = self.rng.randrange(len(own))
            views = own[at : at + self.rng.randint(1, 3)]
            sids = {view.ref.sid for view in views}
            shown = [view for view in self.now.segments if view.ref.sid in sids]
            first, last = shown[0].first, shown[-1].last
            if any(first <= view.first <= last and view.ref.sid not in sids for view in self.now.segments):
                return
            made = {seq: record for seq, record in self.records.items() if first <= seq <= last}
            self._commit(
                CommitKind.COMPACT, segments=(self._object(first, last, made),), removed_sids=tuple(sorted(sids))
            )

    def branch(self) -> None:
        """Go on in a fork of the newest state."""
        self.volumes += 1
        self.now = fork(self.now, vid(1 + self.volumes))

    def branch_in_the_past(self) -> None:
        """Go on in a fork of a past state, perhaps in the middle of the records of its last commit.

        A target cuts a commit at one of its own records, or not at all. `cuts` has, for each such cut, how many steps
        it cut, and what they were before: a state from before a truncation is whole again (HIST-4).
        """
        if not self.steps:
            return
        kept = self.rng.randint(1, len(self.steps))
        ended, self.steps = self.steps[kept:], self.steps[:kept]
        while self.cuts and any(each.stored.commit.truncate_from for each in ended[: max(0, self.cuts[-1][0] - kept)]):
            for step, (cut_seq, taken) in zip(self.steps, self.cuts.pop()[1], strict=False):
                step.cut, step.taken = cut_seq, taken
        self.cuts = [(min(number, kept), steps) for number, steps in self.cuts]
        last = self.steps[-1]
        first, end = last.before.bounds.head_seq + 1, last.stored.commit.bounds.head_seq
        if last.stored.commit.kind is CommitKind.OFFLOAD and last.cut is None and self.rng.random() < 0.5:
            seq = self.rng.randint(first, end)
            self.cuts.append((kept, [(step.cut, step.taken) for step in self.steps]))
            for step in self.steps:
                step.cut_at(seq)
        self.now, (self.records, self.floors) = fold(last.before, [last.stored]), last.after
        self.records = dict(self.records)
        if last.cut is not None:
            self.now = cut(self.now, last.cut)
            self.records = {seq: record for seq, record in self.records.items() if seq <= last.cut}
            self.floors = (min(self.floors[0], last.cut + 1), min(self.floors[1], last.cut + 1))
        self.head = self.now.bounds.head_seq
        for step in self.steps:
            point = _point(step)
            step.returned = {seq for each in self.steps if each.undone == point for seq in each.brought}
        self.branch()

    def undo(self) -> None:
        found = [step for step in self.steps if step.stored.commit.kind in TAKES_AWAY]
        if found:
            self.undo_step(self.rng.choice(found[-6:]))

    def undo_step(self, step: _Step) -> None:
        at = self.steps.index(step)
        later = self.steps[at + 1 :]
        commits = [each.stored.commit for each in later]
        undone = {each.restored.undone for each in commits if each.restored}
        start = step.stored.commit.truncate_from
        try:
            plan = self._plan(step, commits)
        except NotUndone:
            assert start is not None
            assert any(each.bounds.head_seq >= start for each in commits)
            return
        in_force = [each for each in later if _point(each) not in undone]
        below = 1
        end = 2**64
        for each in in_force:
            below, end = max(below, each.below), min(end, each.start)
            below = min(below, end)
        sids, named = visible(step.before), frozenset().union(*(each.named for each in in_force))
        away = {seq for seq in step.taken if not below <= seq < end or (Sid(sids[seq]), seq) in named}
        kept_away = self.records.keys() | step.returned | away
        back = {seq: record for seq, record in step.taken.items() if seq not in kept_away}
        assert _seqs(plan.back) == set(back)
        assert _seqs(plan.away) == away
        takers = {each.stored.commit.lsn for each in in_force if _takes(each, away, sids)}
        assert set(plan.taken_by) >= takers
        assert bool(plan.taken_by) == bool(away)
        self.counts["named twice"] += any(below <= seq < end for seq in away)
        if not back and (step.taken or _point(step) in undone):
            return
        step.returned |= back.keys()
        self.records = self.records | back
        if step.stored.commit.kind is not CommitKind.DELETE:
            self.floors = (plan.bounds.first_seq, plan.bounds.evict_floor)
        self.head = plan.bounds.head_seq
        self._commit(CommitKind.RESTORE, restored=plan.restored)
        self.steps[-1].brought = frozenset(back)
        assert self.floors[0] <= min(back, default=self.head + 1)
        if all(each.stored.commit.kind in {CommitKind.COMPACT, CommitKind.CONFIG} for each in later):
            assert (self.records, self.floors, self.head) == (step.records, step.floors, step.before.bounds.head_seq)

    def _plan(self, step: _Step, later: list[Commit]) -> UndoPlan:
        is_whole = step.cut is None or step.stored.commit.truncate_from is not None
        before = step.before if is_whole or step.cut is None else cut(step.before, step.cut)
        return plan_undo("t", before, step.stored, later, self.now, self.live)

    # ------------------------------------------------------------ parts

    def live(self, view: SegmentView) -> BitMap:
        held = self.objects[view.ref.sid]
        assert len(held) < view.ref.last_seq - view.ref.first_seq + 1  # a whole segment needs no request (UNDO-5)
        return BitMap(seq - view.ref.first_seq for seq in held)

    def check(self) -> None:
        """Compare what a reader gets with the model."""
        found = {}
        for seq, sid in visible(self.now).items():
            held = self.objects[Sid(sid)]
            if seq in held:
                found[seq] = held[seq]
        assert found == self.records
        assert self.now.bounds == Bounds(self.floors[0], self.head, self.floors[1])
        for view in self.now.segments:
            self._check_count(view)

    def _check_count(self, view: SegmentView) -> None:
        """The numbers that `offload.read.delete_effects.count_live` takes from the commits are right."""
        if view.is_whole and view.deleted is not None:
            held = BitMap(seq - view.ref.first_seq for seq in self.objects[view.ref.sid])
            assert BitMap.deserialize(view.deleted) <= held
            live = len(held - BitMap.deserialize(view.deleted))
            assert live == view.ref.live_records - len(BitMap.deserialize(view.deleted))

    def _take(self, gone: Held, kind: CommitKind, below: int = 1, start: int = 2**64, **fields: object) -> None:
        records = dict(self.records)
        self.records = {seq: record for seq, record in self.records.items() if seq not in gone}
        self._commit(kind, **fields)
        step = self.steps[-1]
        step.taken, step.below, step.start, step.records = gone, below, start, records

    def _commit(self, kind: CommitKind, **fields: object) -> None:
        self.numbers += 1
        commit = Commit(
            vid=self.now.vid,
            lsn=self.now.lsn + 1,
            kind=kind,
            bounds=Bounds(self.floors[0], self.head, self.floors[1]),
            parent_hash=self.now.head_hash,
            nonce=self.numbers.to_bytes(16, "big"),
            created_at_ms=ts_of(self.numbers),
            writer_id="test",
            epoch=1,
            at_seq=max(self.head, self.now.bounds.head_seq),
            at_ts_ms=ts_of(self.numbers),
            **fields,  # type: ignore[arg-type]
        )
        stored = decode_commit(encode_commit(commit)[0], "here")
        assert stored == StoredCommit(commit, commit_hash(commit))
        before, self.now = self.now, fold(self.now, [stored])
        first_seq, evict_floor = before.bounds.first_seq, before.bounds.evict_floor
        after = (dict(self.records), self.floors)
        self.steps.append(_Step(stored, before, dict(self.records), (first_seq, evict_floor), after))
        if self.rng.random() < 0.3:  # the same state, from a checkpoint
            checkpoint = checkpoint_of(self.now, now_ms=0)
            assert checkpoint.views is not None
            assert from_checkpoint(stored, checkpoint, decode_views(checkpoint.views, "here")) == self.now

    def _object(self, first: int, last: int, held: Held) -> SegmentRef:
        self.numbers += 1
        ref = replace(segment(first, last, self.numbers), live_records=len(held))
        self.objects[ref.sid] = held
        return ref

    def _number(self) -> int:
        self.numbers += 1
        return self.numbers


def _takes(step: _Step, seqs: set[int], sids: Mapping[int, bytes]) -> bool:
    return any(seq < step.below or seq >= step.start or (Sid(sids[seq]), seq) in step.named for seq in seqs)


def _point(step: _Step) -> ForkPoint:
    return ForkPoint(step.stored.commit.vid, step.stored.commit.lsn)


def _seqs(taken: Sequence[Taken]) -> set[int]:
    found: set[int] = set()
    for each in taken:
        for first, last in each.ranges():
            found |= set(range(first, last + 1))
        assert len(each.entries) == sum(last - first + 1 for first, last in each.ranges())
    return found


_ACTS = {
    World.offload: 8,
    World.delete_by_tag: 4,
    World.delete_below: 2,
    World.evict: 1,
    World.truncate: 1,
    World.compact: 4,
    World.branch: 1,
    World.branch_in_the_past: 1,
    World.undo: 5,
}


def _live(seed: str) -> Counter[str]:
    """Live one history, check the state after each step, and count the undone commits, also those that another one
    kept records from.
    """
    world = World(random.Random(seed))
    for act in world.rng.choices(list(_ACTS), list(_ACTS.values()), k=24):
        act(world)
        world.check()
    world.counts["undone"] = sum(step.stored.commit.kind is CommitKind.RESTORE for step in world.steps)
    return world.counts


def test_parts_that_lie_in_two_objects_come_back_whole() -> None:
    assert _live("3145998424 738")["undone"] > 0


@pytest.mark.long
@work.amounts(100, all=4_000, soak=60_000, part=8)
def test_an_undo_brings_back_what_the_commit_took_and_changes_nothing_else(amount: int) -> None:
    seed = work.seed_of("undo plan")
    counts = sum((_live(f"{seed} {number}") for number in range(amount)), Counter[str]())
    work.tell(f"undo: {amount:,} histories, {counts['undone']:,} undone commits, {counts['named twice']:,} met others")
    assert counts["undone"] > amount // 2
    assert counts["named twice"] > amount // 20
