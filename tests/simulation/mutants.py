"""Mistakes in the code that the simulation has to find. If it misses one, it proves nothing about that mistake."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar
from unittest import mock

from catalog import Bounds, SegmentRef, SegmentView, checkpointer, encode_commit
from catalog.checkpointer import Mark
from catalog.errors import Diverged, KeyTaken, OutcomeUnknown, Outdated
from catalog.format.commit import Checkpoint, Commit, CommitKind
from catalog.format.control import DEAD
from catalog.format.encoding import decode_commit_at
from catalog.format.ids import Sid, Vid
from catalog.format.keys import Key, commit_key
from catalog.gc.execution import Execution
from catalog.gc.mark import Kept, Marker
from catalog.gc.policy import first_kept
from catalog.local_catalog import Attempt, Handle
from catalog.objects.object_store import ObjectStore
from catalog.objects.settled_writes import change_from, read_current
from catalog.objects.wrapped import WrappedStore
from catalog.refs.kept_points import close
from catalog.refs.promotion import plan_promotion
from catalog.refs.ref_store import Planned, RefStore
from catalog.snapshot import Snapshot, checkpoint_of
from catalog.updates import Updates
from catalog.volume import Volumes
from offload.replication import reset as rescuing
from offload.replication.reset import Rescue, Reset
from offload.replication.takeover import Takeover
from offload.services.direct_commits import DirectCommits
from offload.services.promotion import Promotion
from offload.services.undoing import Undoing
from offload.write import segment_upload as sending
from offload.write.attempt import AttemptState
from offload.write.offloader import Offloader
from offload.write.publisher import Published, Publisher
from seglog import Log
from tests.simulation.collecting import Collecting
from tests.simulation.schedule import DAY_MS

__all__ = ["MUTANTS", "PROMOTION_MUTANTS", "UNDO_MUTANTS"]

T = TypeVar("T")

_publish = Volumes.publish
_publish_pending = Publisher.publish
_claim = Takeover._claim
_begin = Takeover._begin
_offload_range = Offloader._offload_range
_delete_topic = Log.delete_topic
_upload_segment = sending.upload_segment
_remote_frames = sending.remote_frames
_publish_undo = Undoing._publish


def _publishes_below_the_boundary(self: Volumes, vid: Vid, lsn: int, body: bytes) -> None:
    with contextlib.suppress(Outdated):
        _publish(self, vid, lsn, body)


def _takes_a_refusal_for_a_lost_race(self: Volumes, vid: Vid, lsn: int, body: bytes) -> None:
    try:
        self.store.put_new(commit_key(vid, lsn), body)
    except KeyTaken:
        raise Diverged("", str(vid), lsn) from None


def _marks_before_it_rewrites(volumes: Volumes, vid: Vid, lsn: int, *, now_ms: int) -> Mark:
    found = decode_commit_at(volumes.store.get(commit_key(vid, lsn)), vid, lsn).checkpoint
    made = found or checkpoint_of(volumes.snapshot(vid, lsn), now_ms=now_ms)
    mark = Mark(lsn, made.max_ts_ms, made.max_seq)
    checkpointer._list_mark(volumes, vid, mark)
    checkpointer._rewrite(volumes, vid, lsn, made)
    return mark


def _forgets_deletes(snapshot: Snapshot, *, now_ms: int) -> Checkpoint:
    views = tuple(replace(view, deleted=None) for view in snapshot.segments)
    return checkpoint_of(replace(snapshot, segments=views), now_ms=now_ms)


def _raises_no_boundary(self: Execution, kept: Kept) -> None:
    kept.boundary = max(kept.boundary, kept.first_lsn or 0)


def _shuts_nobody_out(self: Execution, kept: Kept, newest_ms: int) -> None:
    assert kept.tip is not None
    kept.tip = replace(kept.tip, collected_before_ms=newest_ms + 1)


def _planned_by_the_clock_alone(self: Offloader, handle: Handle, first_seq: int, last_seq: int) -> Attempt:
    now_ms = self._clock.now_ms()
    attempt = Attempt(
        Sid.new(now_ms), handle.name, handle.vid, first_seq, last_seq, state=AttemptState.PLANNED, created_at_ms=now_ms
    )
    self._local.save(attempt=attempt)
    return attempt


def _keeps_too_little(commits: Any, since_ms: int) -> int | None:
    return first_kept(commits, since_ms + 2 * DAY_MS)


def _closes_without_a_look(self: Execution, vids: Iterable[Vid]) -> None:
    for vid, begun in dict(self._begun(vids)).items():
        self.marker.look(vid).boundary = close(self.store, begun).lsn


def _takes_closing_for_open(store: ObjectStore, vid: Vid) -> bool:
    return Volumes(store).boundary(vid) < DEAD


def _moves_no_bounds(self: Updates, bounds: Bounds, epoch: int) -> bool:
    return all(stored.commit.bounds == bounds for stored in self.commits)


def _without_its_index(store: ObjectStore, *rest: Any, **named: Any) -> SegmentRef:
    return _upload_segment(_WithoutIndexes(store), *rest, **named)


class _WithoutIndexes(WrappedStore):
    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        return act()

    def put(self, key: Key, body: bytes | bytearray, metadata: Mapping[str, str]) -> None:
        if not key.endswith(".index"):
            super().put(key, body, metadata)


def _keeps_no_record(self: Publisher, handle: Handle, commit: Commit, attempt: Attempt | None = None) -> Handle:
    body, _ = encode_commit(commit)
    return replace(handle, pending_lsn=commit.lsn, pending_body=body)


def _makes_it_anew(self: Publisher, handle: Handle) -> Published | None:
    assert handle.pending_body is not None
    assert handle.pending_lsn is not None
    commit = decode_commit_at(handle.pending_body, handle.vid, handle.pending_lsn).commit
    return _publish_pending(self, self.prepare(handle, replace(commit, nonce=os.urandom(16)), self._attempt_of(handle)))


def _takes_a_given_up_delete_for_told(self: Publisher, handle: Handle) -> Published | None:
    published = _publish_pending(self, handle)
    lsn, body = handle.pending_lsn, handle.pending_body
    if published is not None or lsn is None or body is None:
        return published
    kind = decode_commit_at(body, handle.vid, lsn).commit.kind
    return Published(lsn, kind, None) if kind is CommitKind.DELETE else None


def _takes_unknown_for_done(self: Volumes, vid: Vid, lsn: int, body: bytes) -> None:
    with contextlib.suppress(OutcomeUnknown):
        _publish(self, vid, lsn, body)


def _claims_with_its_epoch(self: Takeover, handle: Handle, snapshot: Snapshot, epoch: int) -> Handle:
    return _claim(self, handle, snapshot, max(snapshot.epoch, 1))


def _begins_with_its_epoch(self: Takeover, handle: Handle, snapshot: Snapshot) -> Handle:
    return _begin(self, handle, replace(snapshot, epoch=max(snapshot.epoch - 1, 1)))


def _begins_too_low(self: Takeover, handle: Handle, snapshot: Snapshot) -> Handle:
    bounds = replace(snapshot.bounds, head_seq=max(snapshot.bounds.head_seq - 1, 0))
    return _begin(self, handle, replace(snapshot, bounds=bounds))


class _AlwaysInEpoch:
    """A topic whose epoch hides a truncation, also from `inner`."""

    def __init__(self, topic: Any, epoch: int) -> None:
        self._topic = topic
        self.epoch = epoch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._topic, name)


def _sends_whatever_is_cut(
    self: Offloader, handle: Handle, tip: Any, run: Any, topic: Any, epoch: int, on_bytes: Any
) -> Published | None:
    return _offload_range(self, handle, tip, run, _AlwaysInEpoch(topic, epoch), epoch, on_bytes)


def _drops_wherever_it_is(self: Log, name: str, *, position: tuple[int, int, int] | None = None) -> None:
    _delete_topic(self, name, position=None if position is None else self.topic(name).inner.position)


def _merges_what_was_deleted(reader: Any, views: Iterable[SegmentView]) -> Any:
    return _remote_frames(reader, [replace(view, deleted=None) for view in views])


def _changes_whatever_is_there(self: RefStore[Any], planned: Planned[Any]) -> None:
    change_from(
        self._store, planned.key, read_current(self._store, planned.key), lambda _: self._encode(planned.wanted)
    )


def _keeps_no_name(*given: Any) -> list[Planned[Any]]:
    return plan_promotion(*given)[1:]


def _undoes_whatever_is_there(self: Undoing, name: str, found: Any, plan: Any, message: str) -> int | None:
    now = self._volumes.snapshot(found.now.vid)
    bounds = replace(plan.bounds, head_seq=max(plan.bounds.head_seq, now.bounds.head_seq))
    return _publish_undo(self, name, replace(found, now=now), replace(plan, bounds=bounds), message)


def _drops_what_came_meanwhile(self: DirectCommits, name: str) -> bool:
    if self._log.has_topic(name):
        self._parts.reset.run(self._handles.of(name), discard=True)
    return True


def _nothing(*_: object, **__: object) -> None:
    pass


def _true(*_: object, **__: object) -> bool:
    return True


MUTANTS: dict[str, Callable[[], contextlib.AbstractContextManager[object]]] = {
    "a commit below the boundary counts": lambda: mock.patch.object(Volumes, "publish", _publishes_below_the_boundary),
    "a refusal is a lost race": lambda: mock.patch.object(Volumes, "publish", _takes_a_refusal_for_a_lost_race),
    "a mark comes before its checkpoint": lambda: _checkpoints_are(_marks_before_it_rewrites),
    "a checkpoint forgets deletes": lambda: mock.patch.object(checkpointer, "checkpoint_of", _forgets_deletes),
    "gc looks once": lambda: mock.patch.object(Marker, "refresh", _nothing),
    "gc raises no boundary": lambda: mock.patch.object(Execution, "_raise_boundary", _raises_no_boundary),
    "gc shuts nobody out": lambda: mock.patch.object(Execution, "_shut_out", _shuts_nobody_out),
    "a clock that is behind is believed": lambda: mock.patch.object(Offloader, "_planned", _planned_by_the_clock_alone),
    "gc keeps too little": lambda: mock.patch("catalog.gc.mark.first_kept", _keeps_too_little),
    "a fenced writer goes on": lambda: mock.patch.multiple(
        Updates, fenced_by=_nothing, is_maintenance=_moves_no_bounds
    ),
    "gc closes without a look": lambda: mock.patch.object(Execution, "_close", _closes_without_a_look),
    "a name leaves its volume closing": lambda: mock.patch("catalog.refs.branch.keep_open", _takes_closing_for_open),
    "a commit goes before its index object": lambda: mock.patch.object(sending, "upload_segment", _without_its_index),
    "a commit is sent before it is on record": lambda: mock.patch.object(Publisher, "prepare", _keeps_no_record),
    "a pending commit is made anew": lambda: mock.patch.object(Publisher, "publish", _makes_it_anew),
    "an unknown answer is a good one": lambda: mock.patch.object(Volumes, "publish", _takes_unknown_for_done),
    "a takeover keeps the epoch": lambda: _takeovers_keep_the_epoch(),
    "a takeover begins too low": lambda: mock.patch.object(Takeover, "_begin", _begins_too_low),
    "a LIST of names is late for gc": lambda: mock.patch.object(Collecting, "sees_names", new=False),
    "a rebase drops a delete": lambda: mock.patch.object(Publisher, "publish", _takes_a_given_up_delete_for_told),
    "deletes are not told": lambda: mock.patch("offload.write.offloader._due_delete", _nothing),
    "what is cut meanwhile is sent": lambda: mock.patch.object(Offloader, "_offload_range", _sends_whatever_is_cut),
    "a merge has what was deleted": lambda: mock.patch.object(sending, "remote_frames", _merges_what_was_deleted),
    "a hot copy goes before its read-back": lambda: mock.patch.object(Offloader, "_check_remote", _nothing),
    "a reset forgets an attempt": lambda: mock.patch.object(Reset, "_drop_attempts", _nothing),
    "a reset does not look what came meanwhile": lambda: mock.patch.object(Log, "delete_topic", _drops_wherever_it_is),
    "a reset saves nothing": lambda: _resets_save_nothing(),
}

PROMOTION_MUTANTS: dict[str, Callable[[], contextlib.AbstractContextManager[object]]] = {
    "a promotion does not compare": lambda: mock.patch.object(RefStore, "_exchange", _changes_whatever_is_there),
    "a promotion fences nobody": lambda: mock.patch.object(Promotion, "_fence", _true),
    "a promotion leaves main without a name": lambda: mock.patch("catalog.refs.branch.plan_promotion", _keeps_no_name),
}

UNDO_MUTANTS: dict[str, Callable[[], contextlib.AbstractContextManager[object]]] = {
    "an undo does not compare": lambda: mock.patch.object(Undoing, "_publish", _undoes_whatever_is_there),
    "an undo drops what comes meanwhile": lambda: mock.patch.object(DirectCommits, "drop", _drops_what_came_meanwhile),
    "the log does not show an undo": lambda: mock.patch.object(Publisher, "_show", _nothing),
    "an undo brings back what later commits took": lambda: mock.patch(
        "catalog.undo_plan._reach", return_value=(1, 2**64)
    ),
}


@contextlib.contextmanager
def _resets_save_nothing() -> Iterator[None]:
    with mock.patch.object(Rescue, "_copy", _nothing), mock.patch.object(rescuing, "_has_all", return_value=True):
        yield


@contextlib.contextmanager
def _takeovers_keep_the_epoch() -> Iterator[None]:
    with (
        mock.patch.object(Takeover, "_claim", _claims_with_its_epoch),
        mock.patch.object(Takeover, "_begin", _begins_with_its_epoch),
    ):
        yield


@contextlib.contextmanager
def _checkpoints_are(make: Callable[..., Mark]) -> Iterator[None]:
    with (
        mock.patch("tests.simulation.tasks.make_checkpoint", make),
        mock.patch("offload.write.publisher.make_checkpoint", make),
    ):
        yield
