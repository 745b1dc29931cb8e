"""Mistakes that somebody could make. The simulation finds each: what it does not find, it does not prove."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import tests.simulation.tasks
import tests.simulation.writing
from catalog import checkpointer
from catalog.checkpointer import Mark
from catalog.closing import close
from catalog.commit import Checkpoint
from catalog.control import DEAD
from catalog.encoding import decode_commit_at
from catalog.errors import Diverged, KeyTaken, Outdated
from catalog.gc_execution import Execution
from catalog.gid import Sid, Vid
from catalog.keys import commit_key
from catalog.mark import Kept, Marker
from catalog.objects.base import ObjectStore
from catalog.retention import first_kept
from catalog.snapshot import Snapshot, checkpoint_of
from catalog.volume import Volumes
from tests.simulation.schedule import DAY_MS
from tests.simulation.writing import Writing

__all__ = ["MUTANTS"]

_publish = Volumes.publish


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


def _by_the_clock_alone(self: Writing, now_ms: int) -> Sid:
    return Sid.new(now_ms - self.behind_ms)


def _keeps_too_little(commits: Any, since_ms: int) -> int | None:
    return first_kept(commits, since_ms + 2 * DAY_MS)


def _closes_without_a_look(self: Execution, vids: Iterable[Vid]) -> None:
    for vid, begun in dict(self._begun(vids)).items():
        self.marker.look(vid).boundary = close(self.store, begun).lsn


def _takes_closing_for_open(store: ObjectStore, vid: Vid) -> bool:
    return Volumes(store).boundary(vid) < DEAD


def _never(*_: object) -> bool:
    return False


def _nothing(*_: object, **__: object) -> None:
    pass


MUTANTS: dict[str, Callable[[], contextlib.AbstractContextManager[object]]] = {
    "a commit below the boundary counts": lambda: mock.patch.object(Volumes, "publish", _publishes_below_the_boundary),
    "a refusal is a lost race": lambda: mock.patch.object(Volumes, "publish", _takes_a_refusal_for_a_lost_race),
    "a mark comes before its checkpoint": lambda: _checkpoints_are(_marks_before_it_rewrites),
    "a checkpoint forgets deletes": lambda: mock.patch.object(checkpointer, "checkpoint_of", _forgets_deletes),
    "gc looks once": lambda: mock.patch.object(Marker, "refresh", _nothing),
    "gc raises no boundary": lambda: mock.patch.object(Execution, "_raise_boundary", _raises_no_boundary),
    "gc shuts nobody out": lambda: mock.patch.object(Execution, "_shut_out", _shuts_nobody_out),
    "a clock that is behind is believed": lambda: mock.patch.object(Writing, "_new_sid", _by_the_clock_alone),
    "gc keeps too little": lambda: mock.patch("catalog.mark.first_kept", _keeps_too_little),
    "a fenced writer goes on": lambda: mock.patch.object(Writing, "_is_fenced", _never),
    "gc closes without a look": lambda: mock.patch.object(Execution, "_close", _closes_without_a_look),
    "a name leaves its volume closing": lambda: mock.patch("catalog.branch.keep_open", _takes_closing_for_open),
}


@contextlib.contextmanager
def _checkpoints_are(make: Callable[..., Mark]) -> Iterator[None]:
    with (
        mock.patch.object(tests.simulation.tasks, "make_checkpoint", make),
        mock.patch.object(tests.simulation.writing, "make_checkpoint", make),
    ):
        yield
