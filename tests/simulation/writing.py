"""How a simulated process writes to a volume: as `offload` does, with appends, deletes, truncations and merges.

    1 the attempt is put on record, then data and index object are sent
    2 the commit is put on record, then published; the same bytes again until the answer is definite
    3 it is done, or another's, or too late: then what is there is looked up, and the next one builds on that

Several may write to one volume. Who loses an LSN sends its records anew, under new ids: what it had sent is garbage.
Now and then one takes the volume over, by a commit of a higher epoch: the others write nothing more until they do.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from blake3 import blake3
from pyroaring import BitMap

from catalog import (
    Attempt,
    Bounds,
    CheckpointPolicy,
    Codec,
    Commit,
    CommitKind,
    Deletions,
    ForkPoint,
    Handle,
    SegmentRef,
    SegmentView,
    Sid,
    Snapshot,
    Vid,
    Volumes,
    checkpoint_due,
    encode_commit,
    keys,
    make_checkpoint,
)
from catalog.control import DEAD
from catalog.encoding import decode_commit_at
from catalog.errors import Diverged, Fenced, InvalidObject, Missing, Unavailable
from catalog.objects.base import ObjectStore
from tests.simulation.local import LocalMemory
from tests.simulation.model import Broken, Entry, Model, Op, State, records_of
from tests.simulation.schedule import Schedule

__all__ = ["Writing", "newest_lsn"]

_ACCOUNTS = 4
_INDEX = b"an index object"
_TAKEOVER_RATE = 0.05
POLICY = CheckpointPolicy(commits=4)


@dataclass(slots=True)
class Writing:
    """One process' hold on the volume `vid`, by the handle `name` in `local`."""

    schedule: Schedule
    model: Model
    store: ObjectStore
    volumes: Volumes
    local: LocalMemory
    name: str
    vid: Vid
    behind_ms: int = 0
    """By how much the clock is that gives segments their ids."""
    collected_before_ms: int = 0
    epoch: int = 1

    def once(self) -> None:
        """One commit more, of some kind. Raises `Diverged` if another's came first, and what the store raises."""
        handle = self._settled()
        tip = self._newest(handle)
        self.collected_before_ms = tip.collected_before_ms
        random = self.schedule.random
        if self.schedule.chance(_TAKEOVER_RATE):
            self.epoch = tip.epoch + 1
            self._commit(tip, CommitKind.CONFIG, lambda state: state)
            return
        if self._is_fenced(tip):
            return
        drawn = random.random()
        if drawn < 0.6 or not tip.segments:
            self._append(tip, random.randrange(1, 4))
            return
        try:
            if drawn < 0.75:
                self._merge(tip)
            else:
                self._take_away(tip, records_of(self.store, tip), drawn)
        except Missing as error:
            if self.model.is_promised(ForkPoint(self.vid, tip.lsn)):
                raise Broken(f"lsn {tip.lsn} of {self.vid} cannot be read: {error}") from error

    def _is_fenced(self, tip: Snapshot) -> bool:
        return tip.epoch > self.epoch

    def _settled(self) -> Handle:
        handle = self.local.handle(self.name) or Handle(self.name, self.vid, 0, epoch=1)
        self.epoch = handle.epoch
        if handle.pending_body is not None:
            handle = self._publish(handle)
        return handle

    def _newest(self, handle: Handle) -> Snapshot:
        newest = newest_lsn(self.volumes, self.vid, handle.lsn)
        try:
            snapshot = self.volumes.snapshot(self.vid, newest)
        except Missing:
            # GC has passed what this process knew of.
            self.volumes = Volumes(self.store)
            snapshot = self.volumes.snapshot(self.vid)
        self.local.save(handle=replace(handle, lsn=snapshot.lsn))
        return snapshot

    # ------------------------------------------------------------ what a commit does

    def _append(self, tip: Snapshot, transfers: int) -> None:
        """Debits in one segment, credits in the next one."""
        first, random = tip.bounds.head_seq + 1, self.schedule.random
        base_ms = max(tip.max_ts_ms + 1, self.schedule.now_ms - 2 * transfers)
        amounts = [random.randrange(1, 100) for _ in range(transfers)]
        debits, credits_ = [], []
        for number, amount in enumerate(amounts):
            giver, taker = random.sample(range(_ACCOUNTS), 2)
            left, right = first + number, first + transfers + number
            debits.append(Entry(left, base_ms + number, giver, -amount, right, first))
            credits_.append(Entry(right, base_ms + transfers + number, taker, amount, left, first))
        refs = (self._send(debits), self._send(credits_))
        added = {entry.seq: entry for entry in (*debits, *credits_)}
        last = credits_[-1]
        self._commit(
            tip,
            CommitKind.OFFLOAD,
            lambda state: state | added,
            bounds=replace(tip.bounds, head_seq=last.seq),
            at_seq=last.seq,
            at_ts_ms=last.ts_ms,
            segments=refs,
        )

    def _merge(self, tip: Snapshot) -> None:
        whole = [view for view in tip.segments if view.vid == self.vid]
        whole = [view for view in whole if (view.first, view.last) == (view.ref.first_seq, view.ref.last_seq)]
        run = whole[:3]
        if len(run) < 2 or any(left.last + 1 != right.first for left, right in pairwise(run)):
            return
        kept = list(records_of(self.store, replace(tip, segments=tuple(run))).values())
        ref = self._send(kept, (run[0].first, run[-1].last), (run[0].ref.min_ts_ms, run[-1].ref.max_ts_ms))
        self._commit(
            tip,
            CommitKind.COMPACT,
            lambda state: state,
            segments=(ref,),
            removed_sids=tuple(view.ref.sid for view in run),
        )

    def _take_away(self, tip: Snapshot, shown: State, drawn: float) -> None:
        pairs = [entry for entry in shown.values() if entry.partner in shown]
        if not pairs:
            return
        entry = pairs[self.schedule.random.randrange(len(pairs))]
        at_ts_ms = max(tip.max_ts_ms + 1, self.schedule.now_ms)
        if drawn < 0.9:
            gone = {entry.seq, entry.partner}
            bitmaps = {view.ref.sid: _bitmap(view, gone) for view in tip.segments if _shows(view, gone)}
            self._commit(
                tip,
                CommitKind.DELETE,
                lambda state: {seq: each for seq, each in state.items() if seq not in gone},
                at_ts_ms=at_ts_ms,
                deletions=Deletions(0, bitmaps),
            )
        elif drawn < 0.95:
            self._commit(
                tip,
                CommitKind.DELETE,
                lambda state: {seq: each for seq, each in state.items() if seq >= entry.batch},
                at_ts_ms=at_ts_ms,
                deletions=Deletions(entry.batch),
            )
        elif entry.batch > tip.bounds.first_seq:
            self._commit(
                tip,
                CommitKind.TRUNCATE,
                lambda state: {seq: each for seq, each in state.items() if seq < entry.batch},
                bounds=replace(tip.bounds, head_seq=entry.batch - 1),
                at_ts_ms=at_ts_ms,
                truncate_from=entry.batch,
            )

    def _send(
        self, records: Sequence[Entry], seqs: tuple[int, int] | None = None, times: tuple[int, int] | None = None
    ) -> SegmentRef:
        """`seqs` and `times` are those of a segment that keeps its place though records of it went."""
        now_ms = self.schedule.now_ms
        first, last = seqs or (records[0].seq, records[-1].seq)
        from_ms, to_ms = times or (records[0].ts_ms, records[-1].ts_ms)
        sid = self._new_sid(now_ms)
        self.local.save(attempt=Attempt(sid, self.name, self.vid, first, last, "planned", now_ms))
        body = b"".join(entry.packed() for entry in records)
        self.store.put(keys.data_key(self.vid, sid), body, {})
        self.store.put(keys.index_key(self.vid, sid), _INDEX, {})
        return SegmentRef(
            sid=sid,
            first_seq=first,
            last_seq=last,
            min_ts_ms=from_ms,
            max_ts_ms=to_ms,
            data_length=len(body),
            data_hash=blake3(body).digest(),
            index_head_length=len(_INDEX),
            index_trailer_length=0,
            index_head_hash=blake3(_INDEX).digest(),
            codec=Codec.NONE,
            frame_bytes=len(body),
            live_records=len(records),
        )

    def _new_sid(self, now_ms: int) -> Sid:
        return Sid.new(max(now_ms - self.behind_ms, self.collected_before_ms))

    # ------------------------------------------------------------ the commit

    def _commit(
        self,
        tip: Snapshot,
        kind: CommitKind,
        op: Op,
        *,
        bounds: Bounds | None = None,
        at_seq: int | None = None,
        at_ts_ms: int | None = None,
        segments: tuple[SegmentRef, ...] = (),
        removed_sids: tuple[Sid, ...] = (),
        deletions: Deletions | None = None,
        truncate_from: int | None = None,
    ) -> None:
        commit = Commit(
            vid=self.vid,
            lsn=tip.lsn + 1,
            kind=kind,
            bounds=bounds or tip.bounds,
            parent_hash=tip.head_hash,
            nonce=os.urandom(16),
            created_at_ms=self.schedule.now_ms,
            writer_id=self.name,
            epoch=self.epoch,
            at_seq=tip.bounds.head_seq if at_seq is None else at_seq,
            at_ts_ms=tip.max_ts_ms if at_ts_ms is None else at_ts_ms,
            segments=segments,
            removed_sids=removed_sids,
            deletions=deletions or Deletions(),
            truncate_from=truncate_from,
        )
        body, digest = encode_commit(commit)
        self.model.intents[digest] = op
        handle = Handle(self.name, self.vid, tip.lsn, commit.lsn, body, epoch=self.epoch)
        self.local.save(handle=handle)
        self._publish(handle)

    def _publish(self, handle: Handle) -> Handle:
        lsn, body = handle.pending_lsn, handle.pending_body
        assert lsn is not None
        assert body is not None
        ours = decode_commit_at(body, self.vid, lsn)
        done = Handle(self.name, self.vid, handle.lsn, epoch=handle.epoch)
        try:
            self.volumes.publish(self.vid, lsn, body)
        except Diverged as lost:
            self.model.refused(self.vid, ours, is_fenced=isinstance(lost, Fenced))
            self.local.save(handle=done)
            self._forget()
            raise
        self.model.ack(self.vid, ours)
        done = replace(done, lsn=lsn)
        self.local.save(handle=done, commit=(self.vid, lsn, body))
        self._forget()
        try:
            due = checkpoint_due(self.volumes, self.vid, lsn, POLICY)
            if due is not None:
                make_checkpoint(self.volumes, self.vid, due, now_ms=self.schedule.now_ms)
        except (Unavailable, Missing):
            pass
        return done

    def _forget(self) -> None:
        for attempt in self.local.attempts(self.name):
            self.local.delete_attempt(attempt.sid)


def newest_lsn(volumes: Volumes, vid: Vid, known: int = 0) -> int:
    """As `catalog.sync` finds it: what lies below the boundary does not count, whatever is under its key."""
    listed = max(volumes.newest_lsn(vid), known)
    damage: InvalidObject | None = None
    newest = listed
    try:
        newest += len(volumes.next_commits(vid, listed))
    except InvalidObject as error:
        damage = error
    boundary = volumes.boundary(vid)
    if listed + 1 < boundary < DEAD:
        return max(boundary, volumes.newest_lsn(vid))
    if damage is not None:
        raise damage
    return newest


def _shows(view: SegmentView, seqs: set[int]) -> bool:
    return any(view.first <= seq <= view.last for seq in seqs)


def _bitmap(view: SegmentView, seqs: set[int]) -> bytes:
    return BitMap([seq - view.ref.first_seq for seq in seqs if view.first <= seq <= view.last]).serialize()
