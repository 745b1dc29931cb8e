"""Commits that a directory puts itself, past its log, and what it does with its own topic before.

A promotion and an undo put such a commit:

    1  `offload` sends all that the log has of the topic.
    2  The caller looks at the newest state in the remote.
    3  `drop` drops the topic of the log. If that has changed since step 1, the caller begins again.
    4  `put_after` puts the commit right after the state of step 2. If another commit is there, the caller begins again.
    5  If this directory wrote the topic, `take_back` makes it the writer again.

ASIDE-1  No record that this directory acked is lost: step 2 sees all of them, or step 3 or 4 fails.
ASIDE-2  The commit raises the epoch, and makes nobody the writer. If no log wrote the volume so far, it has the mark of
    a load, so that loads may go on (LOAD-4).
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace

from catalog import Bounds, CommitKind, Handle, Snapshot, encode_commit
from catalog.errors import Diverged, Fenced
from catalog.format.commit import LoadMark, Restored
from catalog.format.encoding import load_nonce
from offload.errors import LocalChangesLost
from offload.handles import Tip
from offload.load import is_free
from offload.services.archive_parts import OfArchive
from seglog import ConcurrentModification


class DirectCommits(OfArchive):
    """Commits that this directory puts into a volume itself, past its log. The caller holds the lock of the topic."""

    def offload(self, name: str) -> None:
        """Offload all that the log has of the topic. Raises what `Archive.offload` raises."""
        if self._log.has_topic(name):
            self._parts.takeover.open(name)
            self._log.topic(name).seal()
            self._parts.offloader.run(name)

    def drop(self, name: str) -> bool:
        """Drop the topic of the log, as a reset does. Return False if it has changed meanwhile."""
        if self._log.has_topic(name):
            try:
                self._parts.reset.run(self._handles.of(name), is_offloaded=True)
            except (ConcurrentModification, LocalChangesLost):
                return False
        return True

    def take_back(self, name: str) -> None:
        """Take over the topic that `drop` dropped, with its producers and keys."""
        with suppress(Fenced):  # another directory was faster: it is the writer, and this one follows it
            self._parts.takeover.run(name)

    def put_after(
        self,
        name: str,
        state: Snapshot,
        kind: CommitKind,
        message: str,
        *,
        at_ts_ms: int,
        bounds: Bounds | None = None,
        restored: Restored | None = None,
    ) -> int | None:
        """Put a commit right after a state. Its epoch fences the writer of the volume.

        Return its LSN, or None if another commit is there.
        """
        commit = self._parts.publisher.commit(
            Handle(name, state.vid, state.lsn),
            Tip(state.bounds, state.head_hash, state.form),
            kind,
            at_seq=(bounds or state.bounds).head_seq,
            at_ts_ms=at_ts_ms,
            bounds=bounds,
            epoch=state.next_epoch,
            message=message,
        )
        commit = replace(commit, restored=restored)
        if is_free(state):
            mark = LoadMark("", os.urandom(16))
            commit = replace(commit, load=mark, nonce=load_nonce(mark))
        body, _ = encode_commit(commit)
        try:
            self._volumes.publish(state.vid, commit.lsn, body)
        except Diverged:
            return None
        return commit.lsn
