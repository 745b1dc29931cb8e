"""Mistakes that somebody could make. The simulation finds each: what it does not find, it does not prove."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from unittest import mock

import tests.simulation.tasks
import tests.simulation.writing
from catalog import checkpointer
from catalog.checkpointer import Mark
from catalog.commit import Checkpoint
from catalog.encoding import decode_commit_at
from catalog.errors import Diverged, KeyTaken
from catalog.gid import Vid
from catalog.keys import commit_key
from catalog.snapshot import Snapshot, checkpoint_of
from catalog.volume import Volumes

__all__ = ["MUTANTS"]


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


MUTANTS: dict[str, Callable[[], contextlib.AbstractContextManager[object]]] = {
    "a refusal is a lost race": lambda: mock.patch.object(Volumes, "publish", _takes_a_refusal_for_a_lost_race),
    "a mark comes before its checkpoint": lambda: _checkpoints_are(_marks_before_it_rewrites),
    "a checkpoint forgets deletes": lambda: mock.patch.object(checkpointer, "checkpoint_of", _forgets_deletes),
}


@contextlib.contextmanager
def _checkpoints_are(make: Callable[..., Mark]) -> Iterator[None]:
    with (
        mock.patch.object(tests.simulation.tasks, "make_checkpoint", make),
        mock.patch.object(tests.simulation.writing, "make_checkpoint", make),
    ):
        yield
