"""A prefix in memory with writers, branches, tags and pins. It computes by itself what GC must keep and may keep.

It works on commits and objects only. It remembers what each commit showed when it was made. It uses no code of GC.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, pairwise

from blake3 import blake3
from pyroaring import BitMap

from catalog.checkpointer import make_checkpoint
from catalog.errors import Diverged, InvalidObject, NoSuchObject, NotUndone, OutOfWindow
from catalog.format.commit import Codec, Commit, CommitKind, Deletions, ForkPoint, SegmentRef, SegmentView
from catalog.format.control import DEAD, Control, Fork, Mark, Pin, Ref, Tag
from catalog.format.encoding import encode_commit
from catalog.format.ids import Sid, Vid
from catalog.format.keys import (
    Key,
    boundary_key,
    commit_key,
    control_key,
    data_key,
    fork_key,
    index_key,
    list_of,
    lsn_of,
    pin_key,
    pins_prefix,
    ref_key,
    sid_of,
    tag_key,
    tags_prefix,
    volume_of,
)
from catalog.format.small_objects import (
    decode_boundary,
    decode_pin,
    decode_ref,
    decode_tag,
    encode_control,
    encode_fork,
    encode_pin,
    encode_ref,
    encode_tag,
)
from catalog.gc.collector import Collector
from catalog.gc.policy import GcPolicy, GcReport
from catalog.objects import MemoryStore, ObjectStore
from catalog.objects.settled_writes import change
from catalog.objects.store_time import MOST_OFF_MS, latest_ms
from catalog.refs.kept_points import check_kept, keep_open
from catalog.snapshot import Snapshot, checkpoint_of
from catalog.timeline import Head, Target, Time, resolve, span
from catalog.undo_plan import TAKES_AWAY, plan_undo
from catalog.undo_plan import count as count_of
from catalog.volume import Volumes
from tests.faults.store import UnorderedStore
from tests.seams.catalog import list_mark, rewrite_as_checkpoint

__all__ = ["HOUR_MS", "TOPIC", "Branch", "World", "fork", "grown", "settle"]

HOUR_MS = 3_600_000
START_MS = 1_763_111_523_000
TOPIC = "orders"


@dataclass(slots=True)
class Branch:
    """A branch as its writer knows it, by LSN.

    `shown` holds the snapshot of each state when it was made. `at_ms` holds the time by which everything in the state
    had happened.
    """

    name: str
    vid: Vid
    parent: ForkPoint | None
    tip: Snapshot
    shown: dict[int, Snapshot] = field(default_factory=dict)
    holds: dict[int, dict[int, int]] = field(default_factory=dict)
    """For each state, the record at each seq, computed by the model alone. A number identifies each record."""
    heads: dict[int, int] = field(default_factory=dict)
    at_ms: dict[int, int] = field(default_factory=dict)


class World:
    def __init__(self, seed: int = 0, *, window_ms: int = 6 * HOUR_MS) -> None:
        self.random = random.Random(seed)
        self.true_ms = START_MS  # the store's clock
        self.off_ms = 0  # how far the machines' clocks are ahead of the store's clock
        self.store = (UnorderedStore if seed % 2 else MemoryStore)(lambda: self.true_ms)
        self.everything = MemoryStore()  # a copy of all controls and commits, in which no object is ever deleted
        self.window_ms = window_ms
        self.latest_ms = START_MS  # the latest time that any GC run has seen
        self.branches: dict[Vid, Branch] = {}
        self._numbers = count(1)
        self._records = count(1)
        self.contents: dict[Sid, list[int]] = {}  # the records of each segment, in order
        self.attempts: dict[Sid, Vid] = {}  # unfinished uploads that the local catalog beside GC records
        self.refused = 0
        self.unsure: set[str] = set()  # tags and pins whose maker may still delete them
        self._back: dict[bytes, set[int]] = {}  # the seqs that each undo brings back, by its nonce
        self.undeleting: dict[str, int] = {}  # names whose undelete is not acked yet, with the time of their delete

    @property
    def now_ms(self) -> int:
        """Return the time of the machines' clocks. Setting it moves the store's clock too."""
        return self.true_ms + self.off_ms

    @now_ms.setter
    def now_ms(self, ms: int) -> None:
        self.true_ms = ms - self.off_ms

    # ------------------------------------------------------------ ids

    def vid(self) -> Vid:
        return Vid(
            bytes([Vid.TYPE]) + self.now_ms.to_bytes(6, "big") + b"\x80" + next(self._numbers).to_bytes(8, "big")
        )

    def sid(self) -> Sid:
        return Sid(
            bytes([Sid.TYPE]) + self.now_ms.to_bytes(6, "big") + b"\x80" + next(self._numbers).to_bytes(8, "big")
        )

    def nonce(self) -> bytes:
        return next(self._numbers).to_bytes(16, "big")

    # ------------------------------------------------------------ writers

    def root(self, name: str = "main") -> Branch:
        for _ in self.fork_steps(name, None):
            pass
        return next(each for each in self.branches.values() if each.name == name)

    def upload(self, vid: Vid, first: int, last: int, records: Sequence[int] = ()) -> SegmentRef:
        """Upload a segment of `records`, or of new records if none are given."""
        sid = self.sid()
        self.contents[sid] = list(records) or [next(self._records) for _ in range(first, last + 1)]
        assert len(self.contents[sid]) == last - first + 1
        for key in (data_key(vid, sid), index_key(vid, sid)):
            self.store.put_new(key, sid.raw)
        digest = blake3(sid.raw).digest()
        return SegmentRef(
            sid,
            first,
            last,
            self.now_ms,
            self.now_ms,
            len(sid.raw),
            digest,
            len(sid.raw),
            0,
            digest,
            Codec.NONE,
            8 * (last - first + 1),
            last - first + 1,
        )

    def commit(self, branch: Branch, kind: CommitKind, **fields: object) -> Commit:
        tip = branch.tip
        bounds = fields.pop("bounds", tip.bounds)
        at_ms = max(self.now_ms, tip.max_ts_ms) if kind is not CommitKind.COMPACT else tip.max_ts_ms
        return Commit(
            vid=branch.vid,
            lsn=tip.lsn + 1,
            kind=kind,
            bounds=bounds,  # type: ignore[arg-type]
            parent_hash=tip.head_hash,
            nonce=self.nonce(),
            created_at_ms=self.now_ms,
            writer_id="world",
            epoch=max(1, tip.epoch),
            at_seq=fields.pop("at_seq", bounds.head_seq),  # type: ignore[arg-type, attr-defined]
            at_ts_ms=at_ms,
            **fields,  # type: ignore[arg-type]
        )

    def publish(self, branch: Branch, commit: Commit) -> bool:
        """Publish the commit. Return False if another commit has its LSN: the writer must catch up first."""
        volumes = Volumes(self.store)
        try:
            volumes.publish(branch.vid, commit.lsn, encode_commit(commit)[0])
        except Diverged:
            self.refused += 1
            return False
        self.catch_up(branch)
        return True

    def remember(self, key: Key) -> None:
        self.everything.put(key, self.store.get(key), {})

    def catch_up(self, branch: Branch) -> None:
        """Apply the commits that GC or the writer itself made since."""
        volumes = Volumes(self.store)
        for stored in volumes.next_commits(branch.vid, branch.tip.lsn):
            lsn = stored.commit.lsn
            self.remember(commit_key(branch.vid, lsn))
            branch.tip = branch.shown[lsn] = Volumes(self.store).snapshot(branch.vid, lsn)
            branch.at_ms[lsn] = branch.tip.max_ts_ms
            self._model(branch, stored.commit)

    def _model(self, branch: Branch, commit: Commit) -> None:
        """Compute the records after `commit` without any code of the product."""
        holds, head = dict(branch.holds[commit.lsn - 1]), branch.heads[commit.lsn - 1]
        if commit.kind is CommitKind.OFFLOAD:
            for ref in commit.segments:
                holds.update(zip(range(ref.first_seq, ref.last_seq + 1), self.contents[ref.sid], strict=True))
                head = ref.last_seq
        elif commit.kind is CommitKind.DELETE:
            assert commit.deletions is not None
            gone = {
                self.contents[sid][at]
                for sid, offsets in commit.deletions.bitmaps.items()
                for at in BitMap.deserialize(offsets)
            }
            below = commit.deletions.before_seq
            holds = {seq: record for seq, record in holds.items() if seq >= below and record not in gone}
        elif commit.kind is CommitKind.TRUNCATE:
            assert commit.truncate_from is not None
            head = commit.truncate_from - 1
            holds = {seq: record for seq, record in holds.items() if seq <= head}
        elif commit.kind is CommitKind.RESTORE:
            assert commit.restored is not None
            before = branch.holds[commit.restored.undone.lsn - 1]
            holds.update({seq: record for seq, record in before.items() if seq in self._back[commit.nonce]})
            head = commit.bounds.head_seq
        else:
            assert commit.kind in {CommitKind.COMPACT, CommitKind.CONFIG}
        branch.holds[commit.lsn], branch.heads[commit.lsn] = holds, head

    def modelled(self, point: ForkPoint) -> tuple[dict[int, int], int]:
        """Return the records that a point shows, and its head seq."""
        branch = self.branches[point.vid]
        head = branch.heads[point.lsn] if point.seq is None else min(point.seq, branch.heads[point.lsn])
        return {seq: record for seq, record in branch.holds[point.lsn].items() if seq <= head}, head

    def read(self, found: Snapshot) -> dict[int, int]:
        """Return the records that a state shows. Check that the objects it names are there."""
        shown: dict[int, int] = {}
        for view in found.segments:
            sid, records = view.ref.sid, self.contents[view.ref.sid]
            assert self.store.get(data_key(view.vid, sid)) == self.store.get(index_key(view.vid, sid)) == sid.raw
            gone = BitMap() if view.deleted is None else BitMap.deserialize(view.deleted)
            for seq in range(view.first, view.last + 1):
                if seq - view.ref.first_seq not in gone:
                    assert seq not in shown
                    shown[seq] = records[seq - view.ref.first_seq]
        return shown

    def offload(self, branch: Branch, records: int = 10, *, prepare_only: bool = False) -> Commit:
        self.catch_up(branch)
        head = branch.tip.bounds.head_seq
        ref = self.upload(branch.vid, head + 1, head + records)
        began_ms = branch.tip.max_ts_ms or self.now_ms
        ref = replace(ref, min_ts_ms=began_ms, max_ts_ms=max(self.now_ms, began_ms))
        bounds = replace(branch.tip.bounds, head_seq=head + records)
        commit = self.commit(branch, CommitKind.OFFLOAD, bounds=bounds, segments=(ref,))
        if not prepare_only:
            self.publish(branch, commit)
        return commit

    def delete(self, branch: Branch) -> None:
        self.catch_up(branch)
        tip = branch.tip
        if not tip.segments:
            return
        view = self.random.choice(tip.segments)
        if self.random.random() < 0.3:
            deletions = Deletions(before_seq=view.first + 1)
        else:
            seq = self.random.randint(view.first, view.last)
            deletions = Deletions(0, {view.ref.sid: BitMap([seq - view.ref.first_seq]).serialize()})
        self.publish(branch, self.commit(branch, CommitKind.DELETE, deletions=deletions))

    def truncate(self, branch: Branch) -> None:
        self.catch_up(branch)
        head = branch.tip.bounds.head_seq
        if head < 2:
            return
        first = self.random.randint(max(2, head - 15), head)
        bounds = replace(branch.tip.bounds, head_seq=first - 1)
        self.publish(branch, self.commit(branch, CommitKind.TRUNCATE, bounds=bounds, at_seq=head, truncate_from=first))

    def merge(self, branch: Branch) -> None:
        self.catch_up(branch)
        own = [view for view in branch.tip.segments if view.vid == branch.vid and view.deleted is None]
        runs = [(one, two) for one, two in pairwise(own) if one.ref.sid != two.ref.sid and two.first == one.last + 1]
        sids = [view.ref.sid for view in own]
        runs = [run for run in runs if all(sids.count(view.ref.sid) == 1 for view in run)]
        if not runs:
            return
        one, two = self.random.choice(runs)
        records = [
            record
            for view in (one, two)
            for record in self.contents[view.ref.sid][view.first - view.ref.first_seq :][: view.last - view.first + 1]
        ]
        ref = replace(
            self.upload(branch.vid, one.first, two.last, records),
            min_ts_ms=one.ref.min_ts_ms,
            max_ts_ms=two.ref.max_ts_ms,
        )
        removed = (one.ref.sid, two.ref.sid)
        self.publish(branch, self.commit(branch, CommitKind.COMPACT, segments=(ref,), removed_sids=removed))

    def checkpoint(self, branch: Branch) -> None:
        lsns = [lsn for lsn in branch.shown if lsn and lsn >= max(self.boundary(branch.vid), 1)]
        if lsns and self.boundary(branch.vid) != DEAD:
            make_checkpoint(Volumes(self.store), branch.vid, self.random.choice(lsns), now_ms=self.now_ms)

    def checkpoint_steps(self, vid: Vid, lsn: int) -> Iterator[str]:
        """Do the steps of `make_checkpoint`. The caller may stall before the mark."""
        volumes = Volumes(self.store)
        try:
            checkpoint = checkpoint_of(volumes.snapshot(vid, lsn), now_ms=self.now_ms)
            rewrite_as_checkpoint(volumes, vid, lsn, checkpoint)
        except NoSuchObject:
            self.refused += 1
            return
        yield "rewritten"
        try:
            list_mark(volumes, vid, Mark(lsn, checkpoint.max_ts_ms, checkpoint.max_seq))
        except OutOfWindow:
            self.refused += 1

    # ------------------------------------------------------------ names: the caller may stall for days after each step

    def fork_steps(self, name: str, point: ForkPoint | None) -> Iterator[str]:
        """Create a branch by the steps of `catalog.refs.branch`. After each write, check the boundaries (GC-2)."""
        control = Control(self.vid(), point, self.now_ms, TOPIC, name)
        self.store.put_new(control_key(control.vid), encode_control(control))
        self.remember(control_key(control.vid))
        yield "control"
        if point is not None:
            key = fork_key(point.vid, control.vid)
            self.store.put_new(key, encode_fork(Fork(control.vid, point)))
            yield "fork"
            if not self.is_good(point):
                self.refused += 1
                return
            yield "looked"
        self.store.put_new(ref_key(TOPIC, name), encode_ref(Ref(control.vid, self.now_ms)))
        yield "ref"
        if not keep_open(self.store, control.vid):
            self.delete_ref(name)
            self.refused += 1
            return
        start = Volumes(self.store).snapshot(control.vid, 0)
        holds, head = ({}, 0) if point is None else self.modelled(point)
        self.branches[control.vid] = Branch(
            name, control.vid, point, start, {0: start}, {0: holds}, {0: head}, {0: start.max_ts_ms}
        )

    def pin_steps(self, name: str, point: ForkPoint, ttl_ms: int) -> Iterator[str]:
        key = pin_key(point.vid, name)
        self.unsure.add(key)
        self.store.put_new(
            key, encode_pin(Pin(point, latest_ms(self.store, self.now_ms) + ttl_ms, "world", self.nonce()))
        )
        yield "pin"
        if not self.is_good(point):
            self.store.delete(key)
            self.refused += 1
        self.unsure.discard(key)

    def undo_steps(self, branch: Branch, name: str) -> Iterator[str]:
        """Undo a delete or a truncation of the branch. The pin stays until it expires, as the command leaves it."""
        self.catch_up(branch)
        lowest = max(self.boundary(branch.vid), 1)
        lsns = [lsn for lsn in branch.shown if lsn > lowest - (lowest == 1) and self._takes_away(branch, lsn)]
        if not lsns:
            return
        lsn = self.random.choice(lsns)
        point = ForkPoint(branch.vid, lsn - 1)
        yield from self.pin_steps(name, point, 10 * HOUR_MS)
        try:
            pin = decode_pin(self.store.get(pin_key(point.vid, name)), name)
        except NoSuchObject:
            return
        if self.boundary(branch.vid) == DEAD or pin.expires_at_ms <= latest_ms(self.store, self.now_ms):
            self.refused += 1
            return
        self.catch_up(branch)
        volumes = Volumes(self.store)
        undone, *later = volumes.commits(branch.vid, lsn, branch.tip.lsn)
        before = volumes.snapshot(branch.vid, lsn - 1)
        try:
            plan = plan_undo("t", before, undone, [each.commit for each in later], branch.tip, _all_live)
        except NotUndone:
            return
        if count_of(plan.back):
            commit = self.commit(branch, CommitKind.RESTORE, bounds=plan.bounds, restored=plan.restored)
            self._back[commit.nonce] = {
                seq for each in plan.back for first, last in each.ranges() for seq in range(first, last + 1)
            }
            self.publish(branch, commit)

    def _takes_away(self, branch: Branch, lsn: int) -> bool:
        [stored] = Volumes(self.everything).commits(branch.vid, lsn, lsn)
        return stored.commit.kind in TAKES_AWAY

    def tag_steps(self, name: str, point: ForkPoint) -> Iterator[str]:
        key = tag_key(TOPIC, name)
        self.unsure.add(key)
        self.store.put_new(key, encode_tag(Tag(point, "main", self.now_ms, nonce=self.nonce())))
        yield "tag"
        if not self.is_good(point):
            self.delete_tag(key)
            self.refused += 1
        self.unsure.discard(key)

    def is_good(self, point: ForkPoint) -> bool:
        """Return True if the state at `point` is kept. The maker of a fork, tag or pin asks this after its write."""
        try:
            check_kept(Volumes(self.store), point)
        except OutOfWindow:
            return False
        return True

    def delete_ref(self, name: str) -> None:
        def deleted(body: bytes | None) -> bytes | None:
            assert body is not None
            ref = decode_ref(body, name)
            deleted_at_ms = latest_ms(self.store, self.now_ms)
            return (
                None if ref.deleted_at_ms else encode_ref(replace(ref, deleted_at_ms=deleted_at_ms, nonce=self.nonce()))
            )

        change(self.store, ref_key(TOPIC, name), deleted)

    def undelete_steps(self, name: str) -> Iterator[str]:
        key = ref_key(TOPIC, name)
        ref = decode_ref(self.store.get(key), key)
        if ref.deleted_at_ms is None or name in self.undeleting:
            return
        self.undeleting[name] = ref.deleted_at_ms
        body = encode_ref(replace(ref, deleted_at_ms=None, nonce=self.nonce()))
        change(self.store, key, lambda _: body)
        yield "ref"
        if not keep_open(self.store, ref.vid):
            gone = encode_ref(replace(ref, nonce=self.nonce()))
            change(self.store, key, lambda _: gone)
            self.refused += 1
        del self.undeleting[name]

    def is_deleted(self, name: str) -> bool:
        """Return True if the name is deleted, or its undelete is not acked yet."""
        return name in self.undeleting or self.ref(name).deleted_at_ms is not None

    def ref(self, name: str) -> Ref:
        return decode_ref(self.store.get(ref_key(TOPIC, name)), name)

    def drop_a_tag(self) -> None:
        keys = [key for key in self.store.list(tags_prefix()) if self.tag(key).deleted_at_ms is None]
        if keys:
            self.delete_tag(Key(self.random.choice(keys)))

    def delete_tag(self, key: Key) -> None:
        deleted = replace(self.tag(key), deleted_at_ms=self.now_ms, nonce=self.nonce())
        self.store.put(key, encode_tag(deleted), {})

    def tag(self, key: str) -> Tag:
        return decode_tag(self.store.get(Key(key)), key)

    def boundary(self, vid: Vid) -> int:
        try:
            return decode_boundary(self.store.get(boundary_key(vid)), vid).lsn
        except NoSuchObject:
            return 0

    # ------------------------------------------------------------ GC, and the states that it must keep

    def collect(
        self, grace_s: int = 0, store: ObjectStore | None = None, attempts: Callable[[], tuple[Sid, ...]] = tuple
    ) -> GcReport:
        is_right = abs(self.off_ms) <= MOST_OFF_MS
        if is_right:
            self.latest_ms = max(self.latest_ms, self.now_ms)
        policy = GcPolicy(self.window_ms // 1000, grace_s, skew_s=0)
        collector = Collector(store or self.store, policy, clock=lambda: self.now_ms, writer_id="gc", attempts=attempts)
        try:
            report = collector.run()
            assert is_right, f"gc ran with a clock that is {self.off_ms} ms off"
            return report
        finally:
            for branch in list(self.branches.values()):
                with contextlib.suppress(InvalidObject):
                    if self.boundary(branch.vid) != DEAD:
                        self.catch_up(branch)

    def held(self) -> Iterator[tuple[Branch, int]]:
        """Yield every state that GC must keep."""
        since_ms = self.latest_ms - self.window_ms
        for branch in self.named():
            lsns = sorted(branch.shown)
            for lsn, after in zip(lsns, [*lsns[1:], None], strict=True):
                if after is None or branch.at_ms[after] > since_ms:
                    yield branch, lsn
        for point in self.points(sure=True):
            if point.vid in self.branches:
                yield self.branches[point.vid], point.lsn

    def named(self) -> Iterator[Branch]:
        for branch in self.branches.values():
            ref = self.ref(branch.name)
            deleted_at_ms = self.undeleting.get(branch.name, ref.deleted_at_ms)
            is_kept = deleted_at_ms is None or deleted_at_ms + self.window_ms > self.latest_ms
            if ref.vid == branch.vid and is_kept:
                yield branch

    def points(self, *, sure: bool = False) -> Iterator[ForkPoint]:
        """Yield the points of tags and pins. If `sure`, leave out each one whose maker has not checked it yet."""
        unsure = self.unsure if sure else ()
        for key in self.store.list(tags_prefix()):
            tag = self.tag(key)
            if tag.deleted_at_ms is None and key not in unsure:
                yield tag.point
        for key in self.store.list(pins_prefix()):
            pin = decode_pin(self.store.get(Key(key)), key)
            if pin.expires_at_ms > self.latest_ms and key not in unsure:
                yield pin.point

    def objects(self) -> dict[str, bytes]:
        """Return every object that a LIST shows."""
        return {key: self.store.get(Key(key)) for key in self.store.list("")}

    def check(self) -> int:
        """Check that every state that GC must keep reads as before and has all its objects. Return their number.

        Also check that no volume with a name is dead.
        """
        for branch in self.named():
            assert self.boundary(branch.vid) != DEAD, branch.name
        held = {(branch.vid, lsn) for branch, lsn in self.held()}
        volumes, last = Volumes(self.store), None
        for vid, lsn in sorted(held):
            if vid != last or self.random.random() < 0.1:
                volumes, last = Volumes(self.store), vid  # a reader that has cached nothing
            found = volumes.snapshot(vid, lsn)
            branch = self.branches[vid]
            assert found == branch.shown[lsn], (branch.name, lsn)
            assert (self.read(found), found.bounds.head_seq) == self.modelled(ForkPoint(vid, lsn)), (branch.name, lsn)
        for sid, vid in self.attempts.items():
            for key in (data_key(vid, sid), index_key(vid, sid)):
                self.store.get(key)
        return len(held)

    def drill(self, branch: Branch, target: Target) -> bool:
        """Return True if the target can be restored.

        If so, check that all its objects are there. Check that its records equal those of a store where no object was
        ever deleted.
        """
        kept, whole = Volumes(self.store), Volumes(self.everything)
        try:
            expected = resolve(target, whole.history(branch.vid, branch.tip.lsn), last_seq_at)
        except OutOfWindow:
            expected = None
        try:
            point = resolve(target, kept.history(branch.vid), last_seq_at)
        except OutOfWindow:
            assert expected is None or not self.is_due(branch, target, expected), (target, expected)
            return False
        if expected is None:
            # If a fork cut the state, a cut history may begin with a time later than its last record.
            history = whole.history(branch.vid, branch.tip.lsn)
            known = span(history)
            assert known is not None
            assert isinstance(target, Time)
            assert known.last_ms is not None
            assert target.ms > known.last_ms
            expected = resolve(Head(), history, last_seq_at)
        found = kept.snapshot(point.vid, point.lsn, point.seq)
        other = whole.snapshot(expected.vid, expected.lsn, expected.seq)
        assert (found.bounds, live_seqs(found)) == (other.bounds, live_seqs(other)), target
        assert (self.read(found), found.bounds.head_seq) == self.modelled(expected), target
        return True

    def is_due(self, branch: Branch, target: Target, expected: ForkPoint) -> bool:
        """Return True if the target must be restorable, because it lies within the window of the branch that made it.

        A target that `branch` inherited must be restorable if its own branch is kept, and if the history of `branch`
        still goes back to the fork.
        """
        since_ms = self.latest_ms - self.window_ms
        first = max((lsn for lsn, at_ms in branch.at_ms.items() if at_ms <= since_ms), default=0)
        if expected.vid != branch.vid:
            parent = None if branch.parent is None else self.branches.get(branch.parent.vid)
            is_kept = parent is not None and first == 0 and any(each is parent for each in self.named())
            return is_kept and parent is not None and self.is_due(parent, target, expected)
        if expected.lsn < first:
            return False
        return target.ms >= since_ms if isinstance(target, Time) else expected.lsn > first

    def left_over(self) -> list[str]:
        """Return the objects that GC should have deleted, given a grace of 0 and no unfinished work."""
        since_ms = self.latest_ms - self.window_ms
        commits: set[tuple[Vid, int]] = set()
        volumes: set[Vid] = set()
        firsts: dict[Vid, int] = {}
        for branch in self.named():
            passed = [lsn for lsn, at_ms in branch.at_ms.items() if at_ms <= since_ms]
            first = max(
                [lsn for lsn in passed if all(branch.at_ms[at] <= since_ms for at in range(lsn + 1))], default=0
            )
            firsts[branch.vid] = first
            volumes.add(branch.vid)
            commits.update((branch.vid, lsn) for lsn in branch.shown if lsn >= first)
        todo = [point for point in self.points() if point.vid in self.branches]
        todo += [branch.parent for branch in self.named() if branch.parent and firsts[branch.vid] <= 1]
        while todo:
            point = todo.pop()
            volumes.add(point.vid)
            commits.add((point.vid, point.lsn))
            parent = self.branches[point.vid].parent
            if point.lsn == 0 and parent is not None:
                todo.append(parent)
        sids = {
            (view.vid, view.ref.sid)
            for vid, lsn in commits
            if lsn in self.branches[vid].shown
            for view in self.branches[vid].shown[lsn].segments
        }
        # A fork object stays as long as its volume does. It keeps the control of its parent.
        with_fork = {volume_of(key) for key in self.store.list("5") if "/forks/" in key}
        return [key for key in self.store.list("5") if not self._may_be(key, volumes | with_fork, commits, sids)]

    def _may_be(
        self, key: str, volumes: set[Vid | None], commits: set[tuple[Vid, int]], sids: set[tuple[Vid, Sid]]
    ) -> bool:
        vid = volume_of(key)
        assert vid is not None
        kind = key.split("/")[1]
        if kind == "boundary":
            return True
        if kind == "log":
            return (vid, lsn_of(key)) in commits
        if kind == "lists":
            found = list_of(key)
            return found is not None and (vid, found[0]) in commits
        if kind == "segments":
            sid = sid_of(key.removesuffix(".index"))
            return sid is not None and (vid, sid) in sids
        if kind == "forks":
            return self.boundary(Vid.parse(key.rpartition("/")[2])) != DEAD or any(
                self.store.list(control_key(Vid.parse(key.rpartition("/")[2])))
            )
        return vid in volumes or any(owner == vid for owner, _ in sids)


def last_seq_at(_: Vid, ref: SegmentRef, ms: int) -> int:
    """Return the last seq at `ms`, given records that are spread evenly over the time of their segment."""
    return ref.first_seq + (ms - ref.min_ts_ms) * (ref.last_seq - ref.first_seq) // (ref.max_ts_ms - ref.min_ts_ms)


def _all_live(_: SegmentView) -> BitMap:
    raise AssertionError("every segment of these worlds is whole")


def live_seqs(snapshot: Snapshot) -> BitMap:
    """Return the live seqs. A merge or a commit of GC changes the segments but not the live seqs."""
    live = BitMap()
    for view in snapshot.segments:
        seqs = BitMap(range(view.first, view.last + 1))
        if view.deleted is not None:
            seqs -= BitMap.deserialize(view.deleted).shift(view.ref.first_seq)
        live |= seqs
    return live


def grown(world: World, commits: int = 10) -> Branch:
    """Return the main branch of a new topic with one commit each hour."""
    branch = world.root()
    for _ in range(commits):
        world.offload(branch)
        world.now_ms += HOUR_MS
    return branch


def settle(world: World) -> None:
    """Collect until a run changes nothing."""
    before = None
    for _ in range(20):
        if before == (before := world.objects()):
            return
        world.now_ms += 1
        assert not world.collect().blocked
    raise AssertionError("each run of GC changes something")


def fork(world: World, name: str, point: ForkPoint) -> Branch:
    for _ in world.fork_steps(name, point):
        pass
    return next(branch for branch in world.branches.values() if branch.name == name)
