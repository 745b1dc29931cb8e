"""Decide when to give back the bytes of deleted records, and how fast. seglog.segments.rewrite rewrites a segment.

    look     After each checkpoint, the reclaimer finds sealed segments with enough deleted bytes: at least
             `reclaim_dead_percent` of all bytes.
    copy     It copies live records without a lock of the log, at `reclaim_bytes_per_s`.
    swap     If no delete reached the segment meanwhile, it swaps the files under the checkpoint lock. Then readers look
             again.

RECLAIM-1  The reclaimer skips topics with `keep_history`. Their bytes go to the archive first, and then the segment is
    released as a whole. A checkpoint drops dead segments at the front, without a copy (CKPT-4).
RECLAIM-2  Reclaim changes nothing that a reader sees, and may stop or be skipped at any time. Records that a delete
    reached stay flagged. The reclaimer looks for them again after the next checkpoint and after the next opening.
RECLAIM-3  Before the log releases its directory, it waits until no copy runs. The next owner writes copies under the
    same names.
RECLAIM-4  If a swap fails half-way, it poisons the writer, as every failure does that leaves the files in an unknown
    state.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable

from seglog.base.ownership import Owned
from seglog.engine.engine import Engine
from seglog.engine.state import TopicState, reclaimable
from seglog.errors import CalledWithin, LogClosed
from seglog.process import OwnLock
from seglog.segments.rewrite import discard_rewrite, rewrite_segment
from seglog.segments.segment import SegmentFiles, SegmentInfo

__all__ = ["Reclaimer"]

_logger = logging.getLogger("seglog.maintenance.reclaim")


class _Stopped(Exception):
    """The log is closing."""


class Reclaimer(Owned):
    """The reclaimer of one log. `run` is the work of its own Upkeep; `stop` ends a running copy."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._stopping = threading.Event()
        self._lock = OwnLock()
        # Segments whose rewrite failed, as they then were. A segment is tried again only after its info changes.
        self._failed: set[tuple[int, SegmentInfo]] = set()

    def stop(self) -> None:
        self._stopping.set()

    def check_apart(self) -> None:
        """Raise `CalledWithin` if `join` would wait for this thread."""
        if self._lock.is_mine:
            raise CalledWithin

    def join(self) -> None:
        """Wait, after `stop`, until no copy runs."""
        with self._lock.exclusive:
            pass

    def run(self) -> None:
        """Reclaim all candidates, at the pace of `reclaim_bytes_per_s`. Do nothing if that is 0."""
        self._engine.has_dead = False
        if self._engine.settings.reclaim_bytes_per_s:
            with contextlib.suppress(_Stopped):
                self._run(self._pace)

    def run_now(self) -> None:
        """Reclaim all candidates at full speed, for a caller that waits. Raises `LogClosed`."""
        try:
            self._run(self._at_once)
        except _Stopped as error:
            raise LogClosed from error

    def _run(self, pace: Callable[[int], None]) -> None:
        """Rewrite each candidate. A failure is logged, and the segment stays unchanged."""
        with self._lock.exclusive:
            for state, info in self._candidates():
                if self._stopping.is_set():
                    raise _Stopped
                self._try(state, info, pace)

    def _try(self, state: TopicState, info: SegmentInfo, pace: Callable[[int], None]) -> None:
        try:
            self._rewrite(state, info, pace)
        except _Stopped:
            raise
        except Exception as error:
            self._failed.add((state.topic_id, info))
            _logger.warning("%s: deleted records keep their bytes: %s", state.name, error)

    def _candidates(self) -> list[tuple[TopicState, SegmentInfo]]:
        engine = self._engine
        if engine.is_closed or engine.committer.is_poisoned:
            return []
        return [
            (state, info)
            for state in list(engine.topics.values())
            for info in reclaimable(state, engine.settings.reclaim_dead_percent)
            if (state.topic_id, info) not in self._failed
        ]

    def _rewrite(self, state: TopicState, info: SegmentInfo, pace: Callable[[int], None]) -> None:
        engine, topic_id = self._engine, state.topic_id
        segment = engine.segments.get(topic_id, info)
        if segment.data.size() != info.data_bytes:
            # A rewrite swapped the files, and a crash came before the next manifest (REWRITE-5).
            with engine.checkpoint_lock:
                self._publish(state, info, segment.counted(info))
            return
        try:
            data_bytes = rewrite_segment(engine.files, engine.layout, segment, info, pace)
        except BaseException:
            discard_rewrite(engine.files, engine.layout, topic_id, info.first_seq)
            raise
        with engine.checkpoint_lock:
            if self._is_as_it_was(state, info):
                self._swap(segment)
                self._publish(state, info, info._replace(data_bytes=data_bytes, dead_bytes=0))
            else:
                discard_rewrite(engine.files, engine.layout, topic_id, info.first_seq)

    def _is_as_it_was(self, state: TopicState, info: SegmentInfo) -> bool:
        """Return whether the segment is unchanged: not deleted from, cut, released or relocated.

        The caller holds the checkpoint lock.
        """
        engine = self._engine
        if engine.is_closed or engine.committer.is_poisoned or state.is_gone or state.config.keep_history:
            return False
        return info in state.sealed

    def _swap(self, segment: SegmentFiles) -> None:
        engine = self._engine
        try:
            engine.segments.swap(segment.topic_id, segment.first_seq, segment)
            engine.files.sync_dir(engine.layout.topic(segment.topic_id))
        except BaseException as error:
            engine.committer.poison(error)
            raise

    def _publish(self, state: TopicState, old: SegmentInfo, new: SegmentInfo) -> None:
        with self._engine.committer.lock:
            state.replace_segment(old, new)

    def _at_once(self, _size_bytes: int) -> None:
        if self._stopping.is_set():
            raise _Stopped

    def _pace(self, size_bytes: int) -> None:
        if self._stopping.wait(size_bytes / self._engine.settings.reclaim_bytes_per_s):
            raise _Stopped
