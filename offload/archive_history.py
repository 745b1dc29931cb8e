"""The calls of an archive that find a point of a topic's past, and what there was."""

from __future__ import annotations

from collections.abc import Iterator

from catalog import ForkPoint, History, Snapshot, timeline
from catalog.errors import OutOfWindow
from catalog.history import NO_HISTORY, asked
from offload.archive_offload import OffloadCalls
from offload.deletes import count_live, last_live_seq
from offload.diff import BranchDiff, diff_of
from offload.handles import split_name
from seglog import DeleteOp, Record, Topic
from seglog.errors import Evicted, SeqOutOfRange
from seglog.frame import read_header

__all__ = ["HistoryCalls"]


class HistoryCalls(OffloadCalls):
    """Mixed into `offload.archive.Archive`."""

    def read(
        self, name: str, start: int | None = None, end: int | None = None, *, at: str | None = None
    ) -> Iterator[Record]:
        """Live records from seq `start` to seq `end`, both included, hot or cold; with `at`, as they were then.

        Raises `SeqOutOfRange` when `start` lies outside what there is, `Evicted` below what was evicted, `NoSuchTopic`,
        `NoSuchBranch`, `OutOfWindow`.
        """
        if at is None and self._log.has_topic(name):
            return self._log.topic(name).read(start, end)
        snapshot = self.snapshot(name, at)
        first, last = snapshot.bounds.first_seq, snapshot.bounds.head_seq
        start = first if start is None else start
        if 1 <= start < snapshot.bounds.evict_floor:
            raise Evicted(name, start, snapshot.bounds.evict_floor - 1)
        if not first <= start <= last + 1:
            raise SeqOutOfRange(name, start, first, last)
        return self._reader.records(snapshot, start, last if end is None else end)

    def snapshot(self, name: str, at: str | None = None) -> Snapshot:
        """The remote state of a topic or branch: the newest, or at a point in time."""
        if at is None:
            return self._newest(name)
        point = self.point(name, at)
        return self._volumes.snapshot(point.vid, point.lsn, point.seq)

    def history(self, name: str) -> History:
        """The commits that made the topic or branch what it is, through its fork points, as far as they are kept."""
        handle = self._handles.find(name)
        if handle is not None:
            return self._volumes.history(handle.vid, handle.lsn)
        return self._volumes.history(self._handles.resolve(name))

    def point(self, name: str, target: str) -> ForkPoint:
        """The exact point that `target` names: `seq:N`, `lsn:N`, `head`, `head~N`, `tag:NAME` or a time.

        Offloads first what the target needs and the remote does not have. Raises `InvalidTarget`, `OutOfWindow`,
        `NoSuchTag`.
        """
        now_ms = self._clock.now_ms()
        wanted = timeline.parse_target(target, now_ms=now_ms)
        if isinstance(wanted, timeline.Named):
            return self._tags.get(split_name(name)[0], wanted.name).point
        if not self._log.has_topic(name):
            return self._found(name, wanted)
        with self._turn(name):
            return self._found(name, self._brought(self._log.topic(name), wanted, now_ms))

    def _brought(self, topic: Topic, wanted: timeline.Target, now_ms: int) -> timeline.Target:
        """The target that the remote can tell, after one seal and one offload of the records that it needs.

        Records and deletes that come later take no part: a second look might never end.
        Raises `OutOfWindow` for a time in the future, and what `offload` raises.
        """
        name = topic.name
        if isinstance(wanted, timeline.Time) and wanted.ms > max(now_ms, topic.last_ts_ms):
            raise OutOfWindow(f"{wanted}, which is in the future", timeline.window(self._past(name, wanted)))
        if self._needs_offload(name, wanted):
            topic.seal()
            self.offload(name)
        if isinstance(wanted, timeline.Time) and self._handles.find(name) is not None:
            is_quiet_since = self.snapshot(name).max_ts_ms <= wanted.ms
            return timeline.Head() if is_quiet_since else wanted
        return wanted

    def _found(self, name: str, wanted: timeline.Target) -> ForkPoint:
        return asked(
            lambda: self._past(name, wanted),
            lambda past: timeline.resolve(wanted, past, self._reader.last_seq_at),
        )

    def _past(self, name: str, wanted: timeline.Target) -> History:
        handle = self._handles.find(name)
        if handle is None and self._log.has_topic(name):
            return NO_HISTORY
        past = self.history(name)
        if handle and past.is_passed and not isinstance(wanted, timeline.Lsn) and self._takes_in(handle):
            past = self.history(name)
        return past

    def diff(self, left: str, right: str) -> BranchDiff:
        """What two branches of a topic show differently, as far as the remote knows."""

        def compared(past: History) -> BranchDiff:
            return diff_of(self.snapshot(left), past, self.snapshot(right), self.history(right), self._reader)

        return asked(lambda: self.history(left), compared)

    def count(self, snapshot: Snapshot) -> tuple[int, Record | None]:
        """How many live records there are, and the last one, which is read.

        The commits tell how many: a few requests, however many segments there are (`count_live` says when it is more).
        """
        counts = [count_live(view, self._reader) for view in snapshot.segments]
        last = next((view for view, live in zip(snapshot.segments[::-1], counts[::-1], strict=True) if live), None)
        if last is None:
            return 0, None
        last_seq = last_live_seq(last, self._reader)
        return sum(counts), next(self._reader.records(snapshot, last_seq, last_seq))

    def _needs_offload(self, name: str, wanted: timeline.Target) -> bool:
        """Whether the target may lie above what is in the remote. An LSN and `head~N` count what is there already."""
        topic = self._log.topic(name)
        offloaded_seq, waiting = self._handles.offloaded_seq(name), topic.delete_ops()
        behind = topic.head_seq > offloaded_seq or bool(waiting) or bool(self._waiting_truncations(name))
        match wanted:
            case timeline.Seq(seq):
                return offloaded_seq < seq <= topic.head_seq or any(op.at_seq < seq for op in waiting)
            case timeline.Time(ms):
                return behind and ms >= self._first_unknown_ms(topic, offloaded_seq, waiting)
            case timeline.Head(0):
                return behind
            case _:
                return self._handles.find(name) is None and behind

    def _first_unknown_ms(self, topic: Topic, offloaded_seq: int, waiting: tuple[DeleteOp, ...]) -> int:
        """The time of the first record, delete or truncation that the remote does not know."""
        times = [op.ts_ms for op in waiting] + [op.ts_ms for op in self._waiting_truncations(topic.name)]
        if topic.head_seq > offloaded_seq:
            [frame] = topic.frames(offloaded_seq + 1, offloaded_seq + 1)
            times.append(read_header(frame).ts_ms)
        return min(times)
