"""A topic from a state of another one: `Archive.copy`.

Within a remote, a copy of all records is a fork under another topic: four small objects, and no bytes. Any other copy
moves bytes:

    step                                                            what a crash after it leaves
    1 put data and index objects with the chosen records            objects that no commit names, for GC
    2 put the Control of their volume                               a volume without a name, for GC
    3 put a commit that names all objects, and one with the         the same
      configuration of the topic
    4 put the Ref, if there is none                                 the copy

Whoever sees the name sees all records, because the name comes last. A record keeps its frame, and with it its seq,
time, tag and node. A record that is left out becomes a tombstone, as in a compaction, and the past of the new topic has
none of them. The commits have the mark of a load, so the first append takes the topic over (LOAD-4). The copy has to be
made within GC's grace, as a load has. Otherwise it ends with `HistoryCollected`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import groupby

from catalog import MAIN, Branches, Commit, CommitKind, SegmentRef, Sid, Snapshot, Vid, Volumes
from catalog.errors import BranchExists, CatalogError
from catalog.format import keys
from catalog.format.commit import LoadMark
from catalog.format.control import Control
from catalog.format.encoding import StoredCommit, encode_commit, load_nonce
from catalog.objects.object_store import ObjectStore
from catalog.snapshot import empty, fold
from offload.errors import Misuse
from offload.format.topic_config import config_of
from offload.services.archive_parts import OfArchive
from offload.services.restoring import offloaded_point
from offload.services.results import Copied
from offload.settings import codec_named
from offload.write.segment_upload import UploadJob, delete_segment, remote_frames, upload_segment
from seglog import Record
from seglog.base import progress
from seglog.errors import TopicExists
from seglog.format.frame import DELETED, read_header, record_of, tombstone
from seglog.format.frames import Frames, take_apart


class Copying(OfArchive):
    """Copies states of topics, within the remote of an archive or to another one."""

    def run(
        self, source: str, new: str, at: str, where: Callable[[Record], bool] | None, into: ObjectStore | None, why: str
    ) -> Copied:
        """Make the topic `new` of a state of `source`. `where` chooses records, and `into` is another remote.

        Raises `TopicExists`, `Misuse` if no record is chosen, and what `Archive.restore` raises.
        """
        context = self._context
        context.log.check_writable()
        names = context.branches if into is None else Branches(Volumes(into), context.writer_id)

        def check() -> None:
            if into is None and context.log.has_topic(new):
                raise TopicExists(new)
            names.check_free(new, MAIN)

        with _as_topic(new):
            check()
            point = offloaded_point(self._parts, source, at, check)
            state = context.volumes.snapshot(point.vid, point.lsn, point.seq)
            if where is None and into is None:
                count, last = self._parts.states.count(state)
                vid = names.create(new, MAIN, point, now_ms=self._clock.now_ms(), message=why)
                copied = Copied(vid, count, last.seq if last else 0, last.ts_ms if last else 0, 0)
            else:
                control = Control(Vid.new(self._clock.now_ms()), None, self._clock.now_ms(), new, MAIN)
                copied = self._moved(control, state, where, into or context.store, f"copy of {source}")
                names.give(control, message=why)
        if into is None:
            context.handles.follow(new)  # so that the next append here takes the copy over, and makes no other topic
        return copied

    def _moved(
        self, control: Control, state: Snapshot, where: Callable[[Record], bool] | None, store: ObjectStore, told: str
    ) -> Copied:
        """Fill a new volume, which has no name yet."""
        volumes, vid, settings = Volumes(store), control.vid, self._parts.offloader.settings
        config = config_of(state.config, keys.commit_key(state.vid, state.lsn or 1))
        codec = codec_named(config.attributes.get("codec", settings.codec))
        live, segments, sids = _Live(), list[SegmentRef](), list[Sid]()
        try:
            for first_seq, frames in groupby(live.passing(self._frames(state, where)), _Run(settings.max_object_bytes)):
                sids.append(Sid.new(self._clock.now_ms()))
                job = UploadJob(control.topic, vid, sids[-1], first_seq, 0, codec, settings)
                segments.append(upload_segment(store, job, frames, on_upload_id=lambda _: None))
        except BaseException:
            for sid in sids:
                with suppress(CatalogError):  # GC deletes what an error leaves
                    delete_segment(store, vid, sid)
            raise
        if where is not None and not segments:
            raise Misuse(f"no record is chosen, so {control.topic} was not made")
        volumes.create(control)
        offload = self._commit(empty(vid), state, CommitKind.OFFLOAD, message=told, segments=tuple(segments))
        body, commit_hash = encode_commit(offload)
        volumes.publish(vid, 1, body)
        if state.config:
            now = fold(empty(vid), [StoredCommit(offload, commit_hash)])
            volumes.publish(
                vid, 2, encode_commit(self._commit(now, state, CommitKind.CONFIG, message=told, config=state.config))[0]
            )
        return Copied(vid, live.records, live.last_seq, live.last_ts_ms, sum(ref.data_length for ref in segments))

    def _commit(self, after: Snapshot, state: Snapshot, kind: CommitKind, **content: object) -> Commit:
        """Return a commit right after a state of the new volume, whose bounds are those of the copied state."""
        mark = LoadMark("", os.urandom(16))
        return Commit(
            vid=after.vid,
            lsn=after.lsn + 1,
            kind=kind,
            bounds=state.bounds,
            parent_hash=after.head_hash,
            nonce=load_nonce(mark),
            created_at_ms=self._clock.now_ms(),
            writer_id=self._context.writer_id,
            epoch=empty(after.vid).next_epoch,
            at_seq=state.bounds.head_seq,
            at_ts_ms=state.max_ts_ms,
            load=mark,
            form=self._context.log.form,
            **content,  # type: ignore[arg-type]
        )

    def _frames(self, state: Snapshot, where: Callable[[Record], bool] | None) -> Iterator[Frames]:
        """Yield the frames of the chosen records, with tombstones between them. A segment without any is left out."""
        reader = self._context.reader
        for view in state.segments:
            if where is None:
                yield from remote_frames(reader, [view])
            elif any(map(where, reader.records(state, view.first, view.last))):
                yield from (_chosen(frames, where) for frames in remote_frames(reader, [view]))


class _Live:
    """Counts the live records that pass, and keeps the seq and time of the last one."""

    records = last_seq = last_ts_ms = 0

    def passing(self, batches: Iterable[Frames]) -> Iterator[Frames]:
        for frames in batches:
            live = frames.headers[frames.headers["flags"] & DELETED == 0]
            if len(live):
                self.records += len(live)
                self.last_seq, self.last_ts_ms = int(live["seq"][-1]), int(live["ts_ms"][-1])
            progress.count("copying", frames.size_bytes, "bytes")
            yield frames


class _Run:
    """Tells of each batch of frames the first seq of its data object: dense seqs, of one log, up to `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._first_seq = self._size_bytes = 0
        self._next = (0, 0)

    def __call__(self, frames: Frames) -> int:
        seq, topic_id = int(frames.headers["seq"][0]), int(frames.headers["topic_id"][0])
        if (seq, topic_id) != self._next or self._size_bytes + frames.size_bytes > self._max_bytes:
            self._first_seq, self._size_bytes = seq, 0
        self._size_bytes += frames.size_bytes
        self._next = seq + len(frames), topic_id
        return self._first_seq


def _chosen(frames: Frames, where: Callable[[Record], bool]) -> Frames:
    """Return the frames, with tombstones in place of the records that are not chosen."""
    pieces = []
    for frame in frames:
        header = read_header(frame)
        is_kept = header.flags & DELETED or where(record_of(frame, 0, header))
        pieces.append(frame if is_kept else tombstone(header))
    return take_apart(pieces)


@contextmanager
def _as_topic(new: str) -> Iterator[None]:
    """Say of the main branch of the new topic that the topic exists."""
    try:
        yield
    except BranchExists as error:
        raise (TopicExists(new) if error.branch == MAIN else error) from None
