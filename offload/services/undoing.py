"""The undo of one delete, eviction or truncation of a topic, by a commit of kind restore (catalog.undo_plan).

    step                                                              state after a crash in this step
    1 The directory offloads what it has of the topic.                the same topic, further in the remote
    2 It puts a pin on the state before the commit.                   the same, with a pin that expires
    3 It plans, and asks the store for each object that the newest    the same
      state does not show.
    4 The writer of the topic puts the commit on record, and then     the undo is pending: the next call or offload
      right after the state of step 3. Its log shows the records      completes it
      again (PUBLISH-5), and nothing else in it changes.

Another directory, and the writer that undoes a truncation, take these steps instead:

    4 It drops its own topic, as a reset does.                        a replica of the topic
    5 It puts the commit right after the state of step 3, with a      the same, or the undo; the next sync moves the
      higher epoch. If another commit is there, it begins again.      replica
    6 Its replica moves to the commit. A directory that wrote the     the undo, whole; this is a replica that knows its
      topic takes it over again, with its producers and keys.         producers and keys, until `seglog takeover`

BACK-1  A record that is appended meanwhile is not lost. Step 4 then fails with the log's `ConcurrentModification`, and
    the steps begin again. A writer in another directory is fenced by step 5, and keeps what it did not offload.
BACK-2  The pin is there before the plan is made, so GC refuses it or keeps each object of the state. The pin stays
    until it expires. A GC run that read the commits before step 5 may still delete, but it reads the pins again.
BACK-3  A second call after a crash or a lost answer finds the commit, and changes nothing.
BACK-4  Before step 1, the plan is made from the newest state in the remote. So a call that is refused changes nothing.
BACK-5  The LSN is looked up once, before step 1. A commit of step 1 or 5 may get the LSN of an inherited one. So the
    result names the volume, and a caller that repeats the call, or has seen a preview, gives it. Without it, the call
    is refused if the LSN means a commit of the branch, and an earlier undo took back an inherited one.
BACK-6  The writer drops its topic, too, if a reclaim took the bytes of a record that comes back, or if the records are
    in more ranges than a frame has. The remote has the whole segments.
BACK-7  A record that two commits took is back once both are undone, in either order. If the commit kept records away
    from earlier undos, these are repeated after its own, and those that they kept away from others: each as steps 1 to
    6, and a second call completes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial as given

from pyroaring import BitMap

from catalog import CommitKind, ForkPoint, PastCommit, SegmentView, Sid, Snapshot, Vid, timeline
from catalog.errors import CatalogError, NoSuchObject, NotUndone, OutOfWindow, RecordsGone
from catalog.format import keys
from catalog.format.encoding import StoredCommit
from catalog.history import History, retry_if_collected
from catalog.objects.store_timeout import carried
from catalog.refs.kept_points import check_kept
from catalog.refs.state_names import HeldPin, Pins
from catalog.undo_plan import TAKES_AWAY, Taken, UndoPlan, count, first_ranges, plan_undo
from offload.errors import OffloadError
from offload.format.metadata import decode_bitmap
from offload.handles import split_name
from offload.read.delete_effects import shown_seqs
from offload.services.archive_parts import ArchiveParts, OfArchive
from offload.services.direct_commits import DirectCommits
from offload.write.publisher import Published
from seglog import ConcurrentModification, UpgradeNeeded
from seglog.base import progress
from seglog.base.dataclasses import dataclass
from seglog.values.seq_set import SEQ_RANGES_MAX

PIN_MS = 7 * 24 * 3_600_000
"""The lease on the state before the commit (BACK-2). A GC run ends sooner."""

_ROUNDS = 20
_FORM = 2  # from which a volume takes commits of kind restore
_CONCURRENT_HEADS = 16
_NAMED_RANGES = 5


@dataclass(frozen=True, slots=True)
class Undone:
    """The result of an undo of the commit `undone`. `lsn` is the commit of kind restore, or None for a preview.

    `records` came back, from `first_seq` to `last_seq`, which are 0 without any. `gone` counts records in objects that
    are missing. `away` counts records that the later commits `taken_by` took as well. `objects` counts the segments
    that the topic shows again, with `size_bytes` of data. `is_earlier` says that an earlier call made the commit, and
    `is_replica` that this directory does not write the topic: then the undo fences the writer.
    """

    kind: str
    undone: ForkPoint
    lsn: int | None
    records: int
    first_seq: int
    last_seq: int
    gone: int
    away: int
    taken_by: tuple[int, ...]
    objects: int
    size_bytes: int
    is_earlier: bool = False
    is_replica: bool = False


@dataclass(frozen=True, slots=True)
class _Removal:
    """A commit to undo in the history of a topic: the commits after it, oldest first, and the newest state."""

    past: PastCommit
    later: tuple[PastCommit, ...]
    now: Snapshot

    @property
    def point(self) -> ForkPoint:
        """Return the state right before the commit."""
        return ForkPoint(self.past.commit.vid, self.past.commit.lsn - 1)


class Undoing(OfArchive):
    """Undoes commits that took records away. `run` holds the lock of the topic."""

    def __init__(self, parts: ArchiveParts) -> None:
        super().__init__(parts)
        self._pins = Pins(self._context.volumes)
        self._direct = DirectCommits(parts)

    def preview(self, name: str, lsn: int, vid: Vid | None) -> Undone:
        """Return what an undo would bring back. Raises as `run` does, except `RecordsGone`.

        If an earlier call has made the commit, return what `run` returns.
        """
        split_name(name)
        removal, plan = self._look(name, lsn, vid)
        if _is_undone(plan):
            return _earlier(removal, plan)
        if not plan.gone:
            _check(name, lsn, plan, partial=True)
        done = replace(_undone(removal, plan, None), is_replica=not self._log.has_topic(name))
        for earlier in self._undone_before(name, removal, set()):
            others = tuple(past for past in earlier.later if past.hash != removal.past.hash)
            with suppress(OutOfWindow):
                check_kept(self._volumes, earlier.point)
                done = _joined(done, _undone(earlier, self._plan(name, replace(earlier, later=others)), None))
        return done

    def run(self, name: str, lsn: int, vid: Vid | None, *, partial: bool, message: str) -> Undone:
        """Undo the commit with that LSN in the topic's history, of the volume `vid` if it is given (BACK-5).

        Raises `NotUndone`, `RecordsGone` unless `partial`, `OutOfWindow` if the state before the commit is gone, and
        what `Archive.offload` raises. After an error, the caller repeats the call.
        """
        self._log.check_writable()
        split_name(name)
        with self._context.locks.of(name):
            done, removal = self._run(name, lsn, vid, partial=partial, message=message)
            for earlier in self._undone_before(name, removal, set()):  # (BACK-7)
                commit = earlier.past.commit
                with suppress(OutOfWindow):
                    more, _ = self._run(name, commit.lsn, commit.vid, partial=True, message=message)
                    done = done if more.is_earlier else _joined(done, more)
            return done

    def _undone_before(self, name: str, removal: _Removal, seen: set[ForkPoint]) -> Iterator[_Removal]:
        """Yield the earlier commits that were undone while this one was in force, and so on from each of them."""
        later = [past.commit for past in removal.later]
        points = dict.fromkeys(commit.restored.undone for commit in later if commit.restored is not None)
        for commit in (removal.past.commit, *later):
            points.pop(ForkPoint(commit.vid, commit.lsn), None)
        for point in points:
            if point in seen:
                continue
            seen.add(point)
            find = given(self._find, name, point.lsn, point.vid)
            with suppress(OutOfWindow):
                earlier = retry_if_collected(lambda: self._history(name), find)
                yield earlier
                yield from self._undone_before(name, earlier, seen)

    def _run(self, name: str, lsn: int, vid: Vid | None, *, partial: bool, message: str) -> tuple[Undone, _Removal]:
        """Undo one commit. The caller holds the lock. Return the commit, too, with those that came after it."""
        self._complete(name)
        removal, plan = self._look(name, lsn, vid)  # once before anything changes (BACK-4)
        if _is_undone(plan):
            self._follow(name)
            return replace(_earlier(removal, plan), is_replica=not self._log.has_topic(name)), removal
        _check(name, lsn, plan, partial=partial)
        vid = removal.past.commit.vid
        pin: HeldPin | None = None
        is_here = self._log.has_topic(name)
        for _ in range(_ROUNDS):
            self._direct.offload(name)
            if self._log.has_topic(name) and removal.past.commit.truncate_from is None:
                self._parts.publisher.fast_forward(self._handles.of(name))
            pin, removal, plan = self._plan_under_pin(name, lsn, vid, pin, partial=partial)
            if self._stays(name, plan) and removal.past.commit.truncate_from is None:
                if (published := self._publish_here(name, removal, plan, message)) is not None:
                    return _undone(removal, plan, published.lsn), removal
                continue
            if self._direct.drop(name) and (undo_lsn := self._publish(name, removal, plan, message)) is not None:
                if is_here:
                    self._direct.take_back(name)
                else:
                    self._follow(name)
                done = _undone(removal, plan, undo_lsn)
                return replace(done, is_replica=not self._log.has_topic(name)), removal
        raise ConcurrentModification(name)

    def _look(self, name: str, lsn: int, vid: Vid | None) -> tuple[_Removal, UndoPlan]:
        """Return a plan from the newest state in the remote.

        Raises `NotUndone` if this directory has new records with the seqs of truncated ones.
        """
        removal, plan = retry_if_collected(lambda: self._history(name), lambda now: self._planned(name, lsn, vid, now))
        cut = removal.past.commit.truncate_from
        if cut is not None and not plan.undone_by and self._head_here(name) >= cut:
            raise NotUndone.of_commit(
                name,
                lsn,
                f"new records have the seqs from {cut} on",
                f"`seglog restore {name} --to lsn:{lsn - 1} --as NAME` makes a branch with the old ones",
            )
        if removal.now.form < _FORM and not _is_undone(plan):
            raise UpgradeNeeded("an undo", f"the volume of {name}", removal.now.form, _FORM)
        return removal, plan

    def _head_here(self, name: str) -> int:
        return self._log.topic(name).head_seq if self._log.has_topic(name) else 0

    def _plan_under_pin(
        self, name: str, lsn: int, vid: Vid, pin: HeldPin | None, *, partial: bool
    ) -> tuple[HeldPin, _Removal, UndoPlan]:
        """Hold the pin, then plan (BACK-2). If the undo is refused, release the pin."""
        now_ms = self._clock.now_ms()
        removal = retry_if_collected(lambda: self._history(name), lambda past: self._find(name, lsn, vid, past))
        if pin is None:
            pin = self._pins.hold(removal.point, f"undo of lsn {lsn} of {name}", ttl_ms=PIN_MS, now_ms=now_ms)
        else:
            pin = self._pins.renew(pin, ttl_ms=PIN_MS, now_ms=now_ms)
        try:
            plan = self._plan(name, removal)
            _check(name, lsn, plan, partial=partial)
        except (CatalogError, OffloadError):
            self._pins.release(pin, now_ms=self._clock.now_ms())
            raise
        return pin, removal, plan

    def _history(self, name: str) -> tuple[Snapshot, History]:
        """Return the newest state in the remote, and its commits."""
        now = self._volumes.snapshot(self._handles.resolve(name))
        return now, self._volumes.history(now.vid, now.lsn)

    def _find(self, name: str, lsn: int, vid: Vid | None, newest: tuple[Snapshot, History]) -> _Removal:
        now, history = newest
        past = _meant(name, lsn, history) if vid is None else history.at(vid, lsn)
        if past is None:
            raise OutOfWindow(f"{timeline.Lsn(lsn, vid)} of {name}", timeline.window(history))
        return _Removal(past, tuple(_later(history, past))[::-1], now)

    def _planned(
        self, name: str, lsn: int, vid: Vid | None, newest: tuple[Snapshot, History]
    ) -> tuple[_Removal, UndoPlan]:
        removal = self._find(name, lsn, vid, newest)
        check_kept(self._volumes, removal.point)
        return removal, self._plan(name, removal)

    def _plan(self, name: str, removal: _Removal) -> UndoPlan:
        """Return the plan. Objects that are not in the store count as missing."""
        commit, point = removal.past.commit, removal.point
        cut_seq = None if commit.truncate_from is not None else removal.past.cut_seq
        before = self._volumes.snapshot(point.vid, point.lsn, cut_seq)
        stored = StoredCommit(commit, removal.past.hash)
        later = [past.commit for past in removal.later]
        shown_sids = {view.ref.sid for view in removal.now.segments}
        missing: set[Sid] = set()

        def live(view: SegmentView) -> BitMap:
            try:
                index = self._context.reader.index(view)
                progress.count("reading indexes", 1, "indexes")
            except NoSuchObject:
                if view.ref.sid in shown_sids:
                    raise
                missing.add(view.ref.sid)
                return BitMap(range(view.ref.last_seq - view.ref.first_seq + 1))
            return decode_bitmap(index.live, index, keys.index_key(view.vid, view.ref.sid))

        while True:
            absent = frozenset(missing)
            plan = plan_undo(name, before, stored, later, removal.now, live, missing=absent)
            missing |= self._missing(plan.shown_again)
            if missing == absent:
                return plan

    def _missing(self, views: tuple[SegmentView, ...]) -> set[Sid]:
        """Return the segments of which the store lacks an object."""
        if not views:
            return set()
        with ThreadPoolExecutor(min(_CONCURRENT_HEADS, len(views)), "undo-head") as pool:
            missing: set[Sid] = set()
            for view, is_here in zip(views, pool.map(carried(self._is_here), views), strict=True):
                progress.count("looking for objects", 2, "objects")
                if not is_here:
                    missing.add(view.ref.sid)
            return missing

    def _is_here(self, view: SegmentView) -> bool:
        ref = view.ref
        try:
            data = self._store.head(keys.data_key(view.vid, ref.sid)).size
            index = self._store.head(keys.index_key(view.vid, ref.sid)).size
        except NoSuchObject:
            return False
        return (data, index) == (ref.data_length, ref.index_length)

    def _complete(self, name: str) -> None:
        """Publish the commit that an earlier call left pending (BACK-3)."""
        handle = self._handles.find(name)
        if handle is not None and handle.pending_body is not None and self._handles.is_writer(handle):
            self._parts.offloader.settle(name)

    def _stays(self, name: str, plan: UndoPlan) -> bool:
        """Return whether the log has the topic, and can show the records again (BACK-6)."""
        if not self._log.has_topic(name) or self._log.form < _FORM:
            return False
        seqs = shown_seqs(plan.restored.views, self._context.reader)
        return seqs.range_count <= SEQ_RANGES_MAX and self._log.topic(name).inner.has_bytes(seqs)

    def _publish_here(self, name: str, removal: _Removal, plan: UndoPlan, message: str) -> Published | None:
        """Put the commit as the writer of the topic. Return None if it is not right after the state of the plan."""
        publisher, handle, now = self._parts.publisher, self._handles.of(name), removal.now
        if (handle.vid, handle.lsn) != (now.vid, now.lsn):
            return None
        commit = publisher.commit(
            handle,
            self._handles.tip(handle),
            CommitKind.RESTORE,
            at_seq=plan.bounds.head_seq,
            at_ts_ms=max(self._clock.now_ms(), now.max_ts_ms),
            bounds=plan.bounds,
            message=message,
        )
        return publisher.publish(publisher.prepare(handle, replace(commit, restored=plan.restored)))

    def _publish(self, name: str, removal: _Removal, plan: UndoPlan, message: str) -> int | None:
        """Put the commit right after the state of the plan. Return its LSN, or None if another commit is there."""
        return self._direct.put_after(
            name,
            removal.now,
            CommitKind.RESTORE,
            message,
            at_ts_ms=max(self._clock.now_ms(), removal.now.max_ts_ms),
            bounds=plan.bounds,
            restored=plan.restored,
        )

    def _follow(self, name: str) -> None:
        """Let this directory's replica of the topic move to the newest commit."""
        handle = self._handles.find(name)
        if handle is not None and not self._log.has_topic(name):
            self._parts.replicas.forward(self._handles.relocate(handle))


def _meant(name: str, lsn: int, history: History) -> PastCommit | None:
    """Return the commit that an LSN without its volume means (BACK-5). Raises `NotUndone` if that may be two."""
    own = history.at_lsn(lsn)
    if own is None or sum(span.first_lsn <= lsn <= span.last_lsn for span in history.spans) == 1:
        return own
    undone = {past.commit.restored.undone for past in history if past.commit.restored is not None}
    inherited = (history.at(point.vid, lsn) for point in undone if point.lsn == lsn and point.vid != own.commit.vid)
    candidates = [past for past in (own, *inherited) if past is not None and past.commit.kind in TAKES_AWAY]
    if len(candidates) > 1:
        commands = (f"`seglog undo {name} lsn:{lsn}@{past.commit.vid}`" for past in candidates)
        reason = "an earlier undo took back the commit of that number that the branch inherited"
        raise NotUndone.of_commit(name, lsn, reason, f"{' or '.join(commands)} says which of them is meant")
    return candidates[0] if candidates else own


def _later(history: History, past: PastCommit) -> Iterator[PastCommit]:
    """Yield the commits after `past`, newest first."""
    for candidate in history:
        if (candidate.commit.vid, candidate.commit.lsn) == (past.commit.vid, past.commit.lsn):
            return
        yield candidate


def _check(name: str, lsn: int, plan: UndoPlan, *, partial: bool) -> None:
    """Raise `RecordsGone` unless the caller takes a part, and `NotUndone` if no record comes back."""
    gone = count(plan.gone)
    if gone and not (partial and plan.back):
        raise RecordsGone(name, lsn, gone, first_ranges(plan.gone, _NAMED_RANGES), is_all=not plan.back)
    if plan.back:
        return
    if plan.away:
        by = ", ".join(f"lsn {taker}" for taker in plan.taken_by)
        raise NotUndone.of_commit(name, lsn, f"{by} took its records as well", f"first undo {by}")
    if plan.undone_by or not plan.names_records:
        raise NotUndone.of_commit(name, lsn, "the topic shows all its records")


def _is_undone(plan: UndoPlan) -> bool:
    """Return whether an earlier undo brought back all that there is."""
    return bool(plan.undone_by) and not plan.back


def _earlier(removal: _Removal, plan: UndoPlan) -> Undone:
    return replace(_undone(removal, plan, plan.undone_by), is_earlier=True)


def _undone(removal: _Removal, plan: UndoPlan, lsn: int | None) -> Undone:
    return Undone(
        kind=removal.past.commit.kind.name.lower(),
        undone=ForkPoint(removal.past.commit.vid, removal.past.commit.lsn),
        lsn=lsn,
        records=plan.records,
        first_seq=min(map(_first_seq, plan.back), default=0),
        last_seq=max(map(_last_seq, plan.back), default=0),
        gone=count(plan.gone),
        away=count(plan.away),
        taken_by=plan.taken_by if plan.away else (),
        objects=len(plan.shown_again),
        size_bytes=sum(view.ref.data_length for view in plan.shown_again),
    )


def _joined(done: Undone, more: Undone) -> Undone:
    """Return the result of an undo, with what an earlier undo brings back now (BACK-7)."""
    if not more.records:
        return done
    return replace(
        done,
        records=done.records + more.records,
        first_seq=min(done.first_seq or more.first_seq, more.first_seq),
        last_seq=max(done.last_seq, more.last_seq),
        gone=done.gone + more.gone,
        away=done.away + more.away,
        taken_by=tuple(sorted({*done.taken_by, *more.taken_by})),
        objects=done.objects + more.objects,
        size_bytes=done.size_bytes + more.size_bytes,
    )


def _first_seq(taken: Taken) -> int:
    return taken.view.ref.first_seq + taken.entries.min()


def _last_seq(taken: Taken) -> int:
    return taken.view.ref.first_seq + taken.entries.max()
