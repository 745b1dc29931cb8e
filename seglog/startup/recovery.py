"""Recovery: from the files on the disk to the state of the log.

Recovery finds all that was acked, and nothing that was never written.

    0 names      Sync the directories. A process that was killed may have left a manifest or a CURRENT that is visible
                 and not durable yet. No later step may build on such a file.
    1 manifest   Load the newest one, and report damage there.
    2 WAL files  Unlink each shard's files that lie before the manifest's place. Unlink a blank file above CURRENT too
                 (WAL-2).
    3 segments   List each topic's directory once, and go by the names there. Unlink or cut the files of segments that
                 are released, relocated or deleted, or that go beyond the manifest. The WAL has the bytes beyond the
                 manifest (MANIFEST-3). End a rewrite (REWRITE-2). Report a missing file. The manifest tells all that is
                 needed of sealed segments. So recovery opens none of them, and asks no warm store.
    4 replay     Apply all frames from the manifest's places on, shard by shard, in order.
    5 tail       Look behind the last whole frame of the active WAL file. Zeros are reserved space. Cut a torn write.
                 Report bytes that were durable once (below). Then sync the file. So a cut is durable
                 before its place is used again. That also holds for the cut of an earlier recovery that was killed.

REC-1  Recovery never cuts bytes that were durable. `FileCorrupt` names file, offset and reason, and the log does not
    open.
REC-2  Each step is idempotent, and changes only what can be derived again. So a crash in recovery is like any other
    crash.
REC-3  The time of recovery grows with the frames that no checkpoint absorbed, and with the topics. Of a sealed segment,
    recovery reads only the names of its files. The first opening of a segment checks that its files fit the manifest
    (seglog.segments.segment).

If recovery replayed any frame, the opening makes a checkpoint. The checkpoint writes the records once more, so that
they stay.
After a failed fsync, the page cache shows bytes that the disk does not have. A second fsync of the WAL would not write
them.

**The bytes behind the last whole frame** (step 5). A torn write is cut, and bytes that were durable once are damage:

    invalid frame                               verdict                                         rule of seglog.wal.wal
    in a WAL file that is not active            damage: it was whole and durable                WAL-1
    whole, of an unknown type or with unknown   another version wrote it: `FormatUnsupported`
    flags
    in the active file, a sync mark follows     damage: all before the mark was durable         WAL-3
    in the active file, past the end of the     damage: somebody cut the file                   WAL-8
    file
    in the active file, anything else           torn: no part of it was ever acked at fsync

If a torn write begins within a batch of a producer, or an append under a key, recovery cuts all of it (BATCHFRAME-2).

Source: topics engine architecture, section 4.
"""

from __future__ import annotations

from seglog.base.dataclasses import dataclass
from seglog.base.lazy import logger
from seglog.engine.known_appends import Keys, Producers
from seglog.engine.state import TopicState
from seglog.engine.tail import Tail
from seglog.errors import FileCorrupt, InvalidFrame
from seglog.files.file_system import Files, OpenFile, ReadOnlyFiles
from seglog.maintenance.removal import remove_leftovers, remove_topics, segment_names
from seglog.segments.rewrite import NEW, settle_rewrite
from seglog.segments.segment import SegmentFiles, SegmentInfo, cut
from seglog.segments.tags import drop_tags
from seglog.startup.replay import Replay
from seglog.values.deletes import DeleteList
from seglog.values.last_deletes import LastDeletes
from seglog.values.layout import SEGMENT_PARTS, Layout, WalFolder, number_in
from seglog.values.written_elsewhere import Elsewhere
from seglog.wal.manifest import ActiveMeta, LogManifest, TopicMeta, WalPosition, load
from seglog.wal.scan import check_begin, check_known, check_not_cut, scan
from seglog.wal.wal import durable_after, foreign_mark, is_blank, read_current

_logger = logger("seglog.startup.recovery")


@dataclass(frozen=True, slots=True)
class Recovered:
    """The result of recovery. `checkpointed`, `wal_ends` and `older_files` have one item for each shard.

    `older_files` are the WAL files beside the active one that are still needed.
    """

    topics: dict[str, TopicState]
    next_topic_id: int
    manifest_number: int
    checkpointed: tuple[WalPosition, ...]
    wal_ends: tuple[WalPosition, ...]
    older_files: tuple[tuple[int, ...], ...]
    deleted: tuple[int, ...]
    epoch_floor: int
    pending_warm_deletes: tuple[tuple[int, int], ...]
    mark_secret: int
    elsewhere: dict[str, Elsewhere]
    kept_elsewhere: tuple[tuple[str, Elsewhere], ...]
    form: int


def recover(files: Files, layout: Layout, *, files_max: int | None = None) -> Recovered:
    """Recover the state of the log. The caller has locked the directory, or reads through `ReadOnlyFiles`.

    With `files_max`, replay only so many WAL files of a shard, or a few more up to a truncation that the manifest
    names. The state is then that at the beginning of the next file.
    Raises `FileCorrupt`, `FormatUnsupported`.
    """
    for directory in (layout.meta, layout.wal, layout.topics):
        if not files.is_dir(directory):
            raise FileCorrupt(directory, 0, "the folder is missing")
    for directory in (layout.meta, layout.wal):
        files.sync_dir(directory)
    number, manifest = load(files, layout)
    folders = layout.wal_folders(len(manifest.wal))
    wal_files = [_wal_files(files, folder, begin) for folder, begin in zip(folders, manifest.wal, strict=True)]
    replay = Replay(files, layout, manifest, _load_topics(files, layout, manifest))
    for shard, numbers in enumerate(wal_files):
        replay.begin_shard(shard)
        for index, wal_number in enumerate(numbers):
            if files_max is not None and index >= files_max and not replay.ahead:
                replay.begin_file(wal_number)
                break
            _replay_file(files, replay, wal_number, is_active=wal_number == numbers[-1])
    replay.check_end()
    topics = replay.by_name()
    for state in topics.values():
        state.settle_front()
        state.reset_assigned()
    return Recovered(
        topics=topics,
        next_topic_id=replay.next_topic_id,
        manifest_number=number,
        checkpointed=manifest.wal,
        wal_ends=tuple(replay.ends),
        older_files=tuple(
            tuple(number for number in numbers if number < end.file)
            for numbers, end in zip(wal_files, replay.ends, strict=True)
        ),
        deleted=tuple(replay.deleted),
        epoch_floor=replay.epoch_floor,
        pending_warm_deletes=tuple(replay.pending_warm_deletes),
        mark_secret=manifest.mark_secret,
        elsewhere=replay.elsewhere,
        kept_elsewhere=manifest.elsewhere,
        form=replay.form,
    )


def _wal_files(files: Files, folder: WalFolder, begin: WalPosition) -> list[int]:
    """Return the numbers of the files to replay, ascending (steps 0 and 2). The last file is the active one."""
    first = begin.file
    try:
        files.sync_dir(folder.path)
        active = number_in("wal", read_current(files, folder))
    except FileNotFoundError as error:
        raise FileCorrupt(folder.current, 0, "the file is missing") from error
    numbers = [number for name in files.list_dir(folder.path) if (number := number_in("wal", name)) is not None]
    if active is None or active not in numbers or active < first:
        raise FileCorrupt(folder.current, 0, "it names no WAL file that is there and not absorbed")
    if first not in numbers:
        raise FileCorrupt(folder.wal_file(first), 0, "the file is missing, and the manifest begins there")
    for number in numbers:
        if number < first:
            files.unlink(folder.wal_file(number))
        elif number > active:
            _remove_blank(files, folder, number)
    return [number for number in numbers if first <= number <= active]


def _remove_blank(files: Files, folder: WalFolder, number: int) -> None:
    file = OpenFile(files, folder.wal_file(number))
    if not is_blank(file, 0, file.size()):
        raise FileCorrupt(file.path, 0, f"it holds data, but {folder.current} names an older file")
    files.unlink(file.path)


def _load_topics(files: Files, layout: Layout, manifest: LogManifest) -> dict[int, TopicState]:
    """Load the topics of the manifest, and put their directories in order (step 3)."""
    remove_topics(files, layout, manifest.deleted)
    remove_leftovers(files, layout)
    topic_ids = {topic.topic_id for topic in manifest.topics}
    present: set[int] = set()
    for name in files.list_dir(layout.topics):
        topic_id = number_in("topic", name)
        if topic_id is None:
            continue
        present.add(topic_id)
        if topic_id in topic_ids:
            continue
        if topic_id < manifest.next_topic_id:
            raise FileCorrupt(layout.topics / name, 0, "the manifest knows no such topic")
        _remove_segments(files, layout, topic_id, segment_names(files, layout, topic_id))
    for topic in manifest.topics:
        _settle_directory(files, layout, topic, is_there=topic.topic_id in present)
    return {topic.topic_id: _load_topic(files, layout, topic) for topic in manifest.topics}


def _settle_directory(files: Files, layout: Layout, meta: TopicMeta, *, is_there: bool) -> None:
    """Put a topic's directory in order by the names in it, and remove files that are left over.

    Raises `FileCorrupt` if a segment is missing.
    """
    directory = layout.topic(meta.topic_id)
    names = files.list_dir(directory) if is_there else []
    firsts = [info.first_seq for info in meta.sealed if info.warm_check is None]
    sealed = len(firsts)
    if meta.active is not None:
        firsts.append(meta.active.first_seq)
    files_of_segments = layout.segment_files(firsts)
    if names == files_of_segments:  # both ascend, and a list is compared faster than a set is made
        return
    present, expected = {*names}, {*files_of_segments}
    tags = {f"{layout.segment(first)}.tags" for first in firsts[:sealed]}
    others = present - expected - tags
    if others:
        _settle_others(files, layout, meta, others)
        if expected - present:
            present = {*files.list_dir(directory)}  # a missing file may have its name again
    for name in sorted(expected - present):
        raise FileCorrupt(directory / name, 0, "the segment is missing")


def _settle_others(files: Files, layout: Layout, meta: TopicMeta, names: set[str]) -> None:
    """Put in order the files that are no part of a segment in the manifest.

    The .new files of a rewrite get their names or go. Files of segments that are gone are unlinked.
    """
    end = meta.sealed_seq if meta.active is None else meta.active.first_seq
    warm = {info.first_seq for info in meta.warm}
    parts = [
        (kind, number_in(kind, name)) for name in sorted(names) if (kind := name.partition(".")[2]) in SEGMENT_PARTS
    ]
    segments = [(kind, number) for kind, number in parts if number is not None]
    gone = [key for key in segments if not meta.hot_floor <= key[1] <= end or key[1] in warm]
    _remove_segments(files, layout, meta.topic_id, gone)
    for first_seq in sorted({number for kind, number in segments if kind in NEW and (kind, number) not in gone}):
        is_sealed = meta.active is None or first_seq != meta.active.first_seq
        settle_rewrite(files, layout, meta.topic_id, first_seq, is_sealed=is_sealed)
    if meta.active is not None and ("tags", meta.active.first_seq) in segments:
        drop_tags(files, layout, meta.topic_id, meta.active.first_seq)


def _last_deletes(meta: TopicMeta) -> LastDeletes:
    if meta.last_deletes is not None:
        return meta.last_deletes
    return LastDeletes() if meta.next_op == 1 else LastDeletes(unknown_below=meta.head_seq + 1)  # (LAST-3)


def _load_topic(files: Files, layout: Layout, meta: TopicMeta) -> TopicState:
    active = None if meta.active is None else _load_active(files, layout, meta.topic_id, meta.active)
    end = meta.sealed_seq if active is None else active.last_seq
    return TopicState(
        topic_id=meta.topic_id,
        name=meta.name,
        epoch=meta.epoch,
        config=meta.config,
        first_seq=meta.first_seq,
        hot_floor=meta.hot_floor,
        last_ts_ms=meta.last_ts_ms,
        tail=Tail(max(end, meta.head_seq) + 1),
        sealed=meta.sealed,
        warm=meta.warm,
        active=active,
        ops=DeleteList(meta.ops),
        warm_ops=DeleteList(meta.warm_ops),
        truncate_ops=meta.truncate_ops,
        last_deletes=_last_deletes(meta),
        next_op=meta.next_op,
        is_published=True,
        floors=meta.floors,
        selective_below=_selective_below(meta, active),
        # Right after a truncation, the manifest does not say which deletes are in the flags. Setting a flag twice is
        # harmless.
        pending=DeleteList(meta.ops if meta.is_ahead else ()),
        producers=Producers(meta.producers) if meta.producers else None,
        keys=Keys(meta.keys) if meta.keys else None,
    )


def _selective_below(meta: TopicMeta, active: SegmentInfo | None) -> int:
    """Return a seq above all that selective deletes have reached. A segment does not say which took its records."""
    if meta.next_op == 1:
        return 1
    segments = reversed(meta.sealed if active is None else (*meta.sealed, active))
    flagged = next((info.last_seq + 1 for info in segments if info.dead_records), 1)
    return max(flagged, 1, *(op.below for op in (*meta.ops, *meta.warm_ops) if not op.is_prefix))


def _load_active(files: Files, layout: Layout, topic_id: int, active: ActiveMeta) -> SegmentInfo:
    """Load the active segment, and cut its files where the manifest says that it ends."""
    segment = SegmentFiles(files, layout, topic_id, active.first_seq)
    cut(segment, active.records, active.data_bytes)
    info = segment.info(active.records, sealed=False)
    if info.data_bytes != active.data_bytes:
        raise FileCorrupt(
            segment.idx.path, 0, f"{info.data_bytes} bytes in .data, and {active.data_bytes} by the manifest"
        )
    return info._replace(dead_records=active.dead_records, dead_bytes=active.dead_bytes)


def _remove_segments(files: Files, layout: Layout, topic_id: int, segments: list[tuple[str, int]]) -> None:
    for kind, first_seq in segments:
        files.unlink(layout.part(kind, topic_id, first_seq))


def _replay_file(files: Files, replay: Replay, number: int, *, is_active: bool) -> None:
    """Replay one WAL file (steps 4 and 5)."""
    file = OpenFile(files, replay.folder.wal_file(number))
    start = replay.begin_file(number)
    size = file.size()
    check_begin(file, start, size)
    try:
        for stretch in scan(file, start, size):
            for part in stretch.parts():
                replay.apply(part)
    except InvalidFrame as error:
        _cut_torn_tail(file, number, error, size, replay, is_active=is_active, is_view=isinstance(files, ReadOnlyFiles))
        replay.drop_batch()
    if replay.batch is not None:
        replay.batch.open.check_not_cut(file, size, size)
    if is_active:
        file.datasync()


def _cut_torn_tail(
    file: OpenFile, number: int, error: InvalidFrame, size: int, replay: Replay, *, is_active: bool, is_view: bool
) -> None:
    """Judge the bytes behind the last whole frame of a WAL file, and cut a torn write.

    In a view, a torn write may be one that the writer is making.

    Raises `FileCorrupt`, `FormatUnsupported`.
    """
    check_known(file, error, size)
    if not is_active:
        raise FileCorrupt(file.path, error.offset, error.reason) from error
    batch, secret = replay.batch, replay.mark_secret
    if batch is not None:
        batch.open.check_not_cut(file, error.offset, size)
    elif is_blank(file, error.offset, size):
        return
    mark = durable_after(file, number, error.offset, size, secret)
    if mark is not None:
        raise FileCorrupt(file.path, error.offset, f"{error.reason}; the bytes up to {mark} were durable") from error
    if foreign_mark(file, number, error.offset, size, secret) is not None:
        raise FileCorrupt(file.path, error.offset, f"{error.reason}; the bytes are those of another file") from error
    check_not_cut(file, error, size)
    begin = error.offset if batch is None else batch.open.begin
    tell = _logger.debug if is_view else _logger.warning
    tell("%s ends at offset %d, where a torn write begins: %s", file.path, begin, error.reason)
    file.truncate(begin)
