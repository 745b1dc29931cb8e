"""Replay: apply the frames of the WAL to the state of the log, step 4 of recovery (seglog.startup.recovery).

A batch of a producer, or an append under a key, is a unit. The state of its topic has its records at once.

    1  Replay reads a BATCH or a KEY frame, and notes the end of its topic.
    2  Replay adds each record to the topic.
    3  With the last record, the topic has the batch in its producers too, or the key in its keys.
    4  If the unit is torn, `drop` takes its records back. So records agree with producers and keys (BATCHFRAME-2).
"""

from __future__ import annotations

from pathlib import Path

from seglog.base.arguments import WHOLE_MAX
from seglog.engine.entries import apply_delete, apply_evict, apply_truncate, apply_undelete, new_state
from seglog.engine.state import TopicState
from seglog.errors import FileCorrupt, FormatUnsupported, InvalidFrame
from seglog.files.file_system import Files
from seglog.format.batch_frame import UNIT_TYPES, read_unit
from seglog.format.control import read_config, read_create, read_delete, read_epoch, read_evict, read_undelete
from seglog.format.frame import Buffer, FrameType, Header, data_of
from seglog.maintenance.removal import kept_part, lowest_truncation
from seglog.segments.segment import SegmentFiles, SegmentInfo, open_first
from seglog.values.layout import Layout, WalFolder
from seglog.wal.manifest import LogManifest, WalPosition
from seglog.wal.scan import Appends, OpenBatch, Stretch
from seglog.wal.wal import shard_of

# The most records that may be lost behind a record in the WAL. Each takes memory during replay. A checkpoint is due
# after far fewer (seglog.writing.append). Without such a record, no checkpoint is due, and they take no memory.
_LOST_MAX = 2**31


class Replay:
    """The state of the log during replay. Replay applies many appends at once, or frame by frame."""

    def __init__(self, files: Files, layout: Layout, manifest: LogManifest, topics: dict[int, TopicState]) -> None:
        self.files = files
        self.layout = layout
        self.topics = topics
        self.next_topic_id = max([manifest.next_topic_id, *(topic_id + 1 for topic_id in topics)])
        self.folders = layout.wal_folders(len(manifest.wal))
        self.ends = list(manifest.wal)
        self.shard = 0
        self.deleted: list[int] = []
        self.pending_warm_deletes = list(manifest.pending_warm_deletes)
        self.epoch_floor = manifest.epoch_floor
        self.mark_secret = manifest.mark_secret
        self.form = manifest.form
        self.elsewhere = dict(manifest.elsewhere)
        self.ahead = {topic.topic_id for topic in manifest.topics if topic.is_ahead}
        self.batch: _Batch | None = None

    @property
    def folder(self) -> WalFolder:
        return self.folders[self.shard]

    @property
    def end(self) -> WalPosition:
        """The place that replay has reached in its current shard."""
        return self.ends[self.shard]

    @end.setter
    def end(self, end: WalPosition) -> None:
        self.ends[self.shard] = end

    def begin_shard(self, shard: int) -> None:
        self.shard = shard

    def by_name(self) -> dict[str, TopicState]:
        """Return the topics by name. Raises `FileCorrupt` if two topics have one name.

        That happens when the files of one shard are of another time than those of another shard. The error names both
        ids. A view beside a writer looks twice, and compares the ids. Only damage has the same ids twice (VIEW-1).
        """
        topics: dict[str, TopicState] = {}
        for state in self.topics.values():
            if state.name in topics:
                ids = f"{topics[state.name].topic_id} and {state.topic_id}"
                raise FileCorrupt(self.layout.wal, 0, f"topic {state.name} is there twice, with the ids {ids}")
            topics[state.name] = state
        return topics

    def begin_file(self, number: int) -> int:
        """Return the offset in the file from which replay continues. Raises `FileCorrupt` if a file is missing."""
        if number != self.end.file:
            if number != self.end.ordinal:
                path = self.folder.wal_file(number)
                raise FileCorrupt(path, 0, f"the files before it end before frame {self.end.ordinal}: one is missing")
            self.end = WalPosition(number, 0, number)
        return self.end.offset

    def apply(self, stretch: Stretch) -> None:
        """Apply a stretch. Raises `InvalidFrame`, with the offset, after all frames before it are applied."""
        if self._append_all(stretch):
            return
        file, ordinal, end = self.end.file, self.end.ordinal, self.end.offset
        try:
            for offset, header, position in stretch:
                if header.type in UNIT_TYPES:
                    self.end = WalPosition(file, offset, ordinal)
                self._apply_one(offset, header, stretch.buffer, position)
                ordinal, end = ordinal + 1, offset + header.frame_bytes
        finally:
            self.end = WalPosition(file, end, ordinal)

    def _append_all(self, stretch: Stretch) -> bool:
        """Apply a stretch that has only appends at their right places.

        If anything else is in it, return False and change nothing. The caller then applies its frames one by one.
        """
        file, batch = self.end.file, self.batch
        groups = None if self.ahead else stretch.appends(file)
        if batch is not None and (stretch.headers is None or not batch.open.has_all(stretch.headers)):
            return False
        if groups is None:
            return False
        appends: list[tuple[TopicState, Appends]] = []
        for group in groups:
            state = self.topics.get(group.topic_id)
            is_of_shard = shard_of(group.topic_id, len(self.ends)) == self.shard
            if state is None or group.first_seq != state.head_seq + 1 or not is_of_shard:
                return False
            appends.append((state, group))
        for state, group in appends:
            state.replay(file, group.offsets, group.lengths, group.times)
        if batch is not None:
            self._take_of_batch(batch, min(batch.open.left, len(stretch)))
        self.end = WalPosition(file, stretch.end, self.end.ordinal + len(stretch))
        return True

    def _apply_one(self, offset: int, header: Header, buffer: bytes, position: int) -> None:
        try:
            self._check_place(offset, header)
            if self.ahead and header.topic_id in self.ahead and header.type != FrameType.SYNC_MARK:
                self._pass_over(header, buffer, position)
            elif header.type == FrameType.APPEND:
                self._append(offset, header)
            elif header.type in UNIT_TYPES:
                self._begin_batch(header, data_of(buffer, position, header))
            elif header.type == FrameType.TOPIC_CREATE:
                self._create(header, data_of(buffer, position, header))
            elif header.type == FrameType.CONFIG_UPDATE:
                self._topic(header).config = read_config(data_of(buffer, position, header))
            elif header.type in (FrameType.DELETE, FrameType.DELETE_SEQS):
                self._delete(header, data_of(buffer, position, header))
            elif header.type == FrameType.HEAD_WATERMARK:
                self._lose(header)
            elif header.type == FrameType.EVICT_WATERMARK:
                self._evict(header, data_of(buffer, position, header))
            elif header.type == FrameType.UNDELETE:
                self._undelete(header, data_of(buffer, position, header))
            elif header.type == FrameType.TRUNCATE:
                self._truncate(header, read_epoch(data_of(buffer, position, header)))
            elif header.type == FrameType.TOPIC_DELETE:
                self._delete_topic(header, read_epoch(data_of(buffer, position, header)))
            elif header.type != FrameType.SYNC_MARK:
                raise FormatUnsupported(self._path(), f"1 with {FrameType(header.type).name} frames")
        except _Misplaced as error:
            raise FileCorrupt(self._path(), offset, str(error)) from error
        except InvalidFrame as error:
            raise FileCorrupt(self._path(), offset, error.reason) from error

    def _path(self) -> Path:
        return self.folder.wal_file(self.end.file)

    def _check_place(self, offset: int, header: Header) -> None:
        if self.batch is not None and not self.batch.open.has(header):
            raise _Misplaced(f"the batch at offset {self.batch.open.begin} lacks {self.batch.open.left} records")
        if header.type == FrameType.SYNC_MARK:
            if (header.topic_id, header.seq) != (self.end.file, offset):
                raise _Misplaced(f"a sync mark of file {header.topic_id}, offset {header.seq}")
        elif shard_of(header.topic_id, len(self.ends)) != self.shard:
            raise _Misplaced(f"topic {header.topic_id} is of another shard")

    def _append(self, offset: int, header: Header) -> None:
        state = self._topic(header)
        if header.seq != state.head_seq + 1:
            raise _Misplaced(f"seq {header.seq} of topic {state.name} follows seq {state.head_seq}")
        state.replay_one(self.end.file, offset, header.frame_bytes, header.ts_ms)
        if self.batch is not None:
            self._take_of_batch(self.batch, 1)

    def _begin_batch(self, header: Header, data: bytes) -> None:
        state, unit = self._topic(header), read_unit(header, data)
        if header.seq != state.head_seq + 1:
            raise _Misplaced(f"a batch from seq {header.seq} of topic {state.name} follows seq {state.head_seq}")
        batch = OpenBatch(self.end.offset, header.topic_id, unit, unit.records)
        self.batch = _Batch(batch, state, self.end, header.ts_ms)

    def _take_of_batch(self, batch: _Batch, records: int) -> None:
        if batch.take(records):
            self.batch = None

    def drop_batch(self) -> None:
        """Take the records of a batch back that is not whole. Its place in the file is cut."""
        if self.batch is not None:
            self.end = self.batch.drop()
            self.batch = None

    def _lose(self, header: Header) -> None:
        """Move the head up to the seq of the frame. The seqs that the WAL lacks were those of ephemeral records.

        The manifest may have a higher head. Ephemeral records that came while the frame was on its way wait for no
        frame.
        """
        state = self._topic(header)
        if header.seq < state.head_seq and state.head_seq != state.kept_head:
            raise _Misplaced(f"topic {state.name} has handed out seq {header.seq}, and ends with {state.head_seq}")
        lost = max(header.seq - state.head_seq, 0)
        if header.seq > WHOLE_MAX or (len(state.tail) and lost > _LOST_MAX):
            raise _Misplaced(f"topic {state.name} would have lost {lost} records at once")
        state.lose(lost, header.ts_ms)

    def check_end(self) -> None:
        """Raise `FileCorrupt` if a frame is missing that was durable before the manifest was written."""
        if self.ahead:
            raise FileCorrupt(self._path(), self.end.offset, "the truncation that the manifest names is missing")

    def _pass_over(self, header: Header, buffer: Buffer, position: int) -> None:
        """Skip a frame of a topic up to its truncation.

        The manifest already has the topic in its state after that truncation (MANIFEST-1).
        """
        if header.type == FrameType.TRUNCATE:
            epoch = read_epoch(data_of(buffer, position, header))
            if epoch == self._topic(header).epoch:
                self.ahead.remove(header.topic_id)

    def _truncate(self, header: Header, epoch: int) -> None:
        state = self._topic(header)
        if not lowest_truncation(state) <= header.seq <= state.head_seq or epoch <= state.epoch:
            raise _Misplaced(f"topic {state.name} is truncated at seq {header.seq}, and ends with {state.head_seq}")
        info = state.segment_of(header.seq) if header.seq >= state.hot_floor else None
        if info is not None and not info.is_hot and info.first_seq < header.seq:
            raise _Misplaced(f"topic {state.name} is truncated in a segment that is in the warm store")
        remainder = kept_part(state, header.seq, lambda info: self._open(state, info))
        apply_truncate(state, header.seq, header.ts_ms, epoch, remainder)

    def _open(self, state: TopicState, info: SegmentInfo) -> SegmentFiles:
        may_flag = state.pending.reach.may_reach(info.first_seq)
        return open_first(self.files, self.layout, state.topic_id, info, may_flag=may_flag)

    def _delete_topic(self, header: Header, epoch: int) -> None:
        state = self._topic(header)
        if epoch > state.epoch:
            raise _Misplaced(f"topic {state.name} has epoch {state.epoch}, and is deleted in epoch {epoch}")
        self.pending_warm_deletes += ((state.topic_id, info.first_seq) for info in state.warm)
        del self.topics[header.topic_id]
        self.deleted.append(header.topic_id)
        self.epoch_floor = max(self.epoch_floor, epoch)

    def _create(self, header: Header, data: bytes) -> None:
        created = read_create(header, data)
        if created.topic_id in self.topics:
            raise _Misplaced(f"topic {created.topic_id} is created twice")
        if not 1 <= created.topic_id <= WHOLE_MAX:
            raise _Misplaced(f"no topic has the id {created.topic_id}")
        state = self.topics[created.topic_id] = new_state(created, self.elsewhere.pop(created.name, None))
        state.is_published = True
        self.next_topic_id = max(self.next_topic_id, created.topic_id + 1)

    def _delete(self, header: Header, data: bytes) -> None:
        state, op = self._topic(header), read_delete(header, data)
        if op.op != state.next_op:
            raise _Misplaced(f"delete {op.op} of topic {state.name} follows delete {state.next_op - 1}")
        is_fit = op.evict_from is None or (op.is_prefix and op.evict_from <= op.below)
        is_fit = is_fit and (op.seqs is None or op.seqs.end <= op.at_seq + 1)
        if op.at_seq > state.head_seq or not is_fit:
            raise _Misplaced(f"delete {op.op} of topic {state.name} does not fit one that ends with {state.head_seq}")
        if op.seqs is not None:
            self.form = max(self.form, 2)  # written before the manifest had a form
        apply_delete(state, op)

    def _undelete(self, header: Header, data: bytes) -> None:
        state, op = self._topic(header), read_undelete(header, data)
        if op.op != state.next_op or op.seqs.end > state.head_seq + 1:
            raise _Misplaced(f"undelete {op.op} of topic {state.name} does not fit one that ends with {state.head_seq}")
        apply_undelete(state, op)

    def _evict(self, header: Header, data: bytes) -> None:
        state, floors = self._topic(header), read_evict(header, data)
        if not floors.is_fit or floors.earliest_seq > state.head_seq + 1:
            raise _Misplaced(f"floors {floors} do not fit topic {state.name}, which ends with {state.head_seq}")
        apply_evict(state, floors)

    def _topic(self, header: Header) -> TopicState:
        state = self.topics.get(header.topic_id)
        if state is None:
            raise _Misplaced(f"topic {header.topic_id} was never created")
        return state


class _Misplaced(Exception):
    """A sound frame that cannot be at its place."""


class _Batch:
    """A unit whose first frame begins at `begin`, and whose records have the time `ts_ms`."""

    __slots__ = ("_begin", "_last_ts_ms", "_state", "_ts_ms", "open")

    def __init__(self, batch: OpenBatch, state: TopicState, begin: WalPosition, ts_ms: int) -> None:
        self.open = batch
        self._state = state
        self._begin = begin
        self._last_ts_ms, self._ts_ms = state.last_ts_ms, ts_ms

    def take(self, records: int) -> bool:
        """Count records that the topic has taken, and return whether the batch is whole now."""
        self.open.left -= records
        if not self.open.left:
            self._state.publish_unit(self.open.unit, self._ts_ms)
        return not self.open.left

    def drop(self) -> WalPosition:
        """Take the records back, and return the place of the first frame."""
        self._state.unreplay(self.open.unit.first_seq, self._last_ts_ms)
        return self._begin
