"""The records of a segment that a delete reaches, found by range and by the segment's .tags file.

A search does not read the data of a sealed segment that has its .tags file.

    sealed     has a .tags file, written when it is sealed. If the file is missing or damaged, it is rebuilt from .data
    unsealed   keeps no tags in memory or on disk. The tagged records are read, of one segment at most

TAGS-1  A .tags file is durable before a manifest says that its segment is sealed. The file is removed with the segment,
    and also when a truncation makes the segment the active one again. So no .tags file of an earlier segment has its
    name.

seglog.format.tag_index has the format.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any

from seglog.base.lazy import logger
from seglog.errors import FileCorrupt, InvalidEntry
from seglog.files.file_system import Files, OpenFile, ReadOnlyFiles
from seglog.format.arrays import NDArray, np
from seglog.format.frame import HAS_TAG
from seglog.format.tag_index import encode_tag_index, read_directory, read_head, read_positions
from seglog.segments.batch import FRAME_BATCH_MAX_RECORDS
from seglog.segments.segment import SegmentFiles, SegmentInfo
from seglog.values.deletes import MergedDeletes
from seglog.values.layout import Layout

_logger = logger("seglog.segments.tags")
_HEAD_BYTES = 4096


def reached_seqs(
    files: Files,
    layout: Layout,
    segment: SegmentFiles,
    info: SegmentInfo,
    reach: MergedDeletes,
    *,
    known_below: int = 0,
) -> Sequence[int]:
    """Return the seqs of the segment's records that the deletes reach, ascending. Some may be deleted already.

    All records below `known_below` are deleted already. Below it, only selective deletes add seqs.

    Raises `FileCorrupt`.
    """
    below = range(max(info.first_seq, known_below), min(info.last_seq + 1, reach.below))
    if not reach.is_selective or reach.top <= max(info.first_seq, reach.below):
        return below
    first_seq = info.first_seq
    reached = {*below, *reach.seqs_within(first_seq, info.last_seq)}
    if not reach.has_tags:
        return sorted(reached)

    def wants(tag: bytes) -> bool:
        return reach.may_reach_tag(tag.decode(), first_seq)

    for tag, positions in _positions(files, layout, segment, info, wants).items():
        seqs = [first_seq + position for position in positions]
        kept = reach.kept(seqs, [tag.decode()] * len(seqs)) if seqs else None
        reached.update(seq for seq, is_kept in zip(seqs, kept or (), strict=bool(kept)) if not is_kept)
    return sorted(reached)


def write_tags(files: Files, layout: Layout, segment: SegmentFiles, info: SegmentInfo) -> bool:
    """Write the .tags file of a segment that is being sealed. Return False if no record has a tag.

    The file is durable after `sync_dir` of the topic's directory.
    """
    positions = _read_tags(segment, info)
    if positions:
        _store(files, layout, segment, info, positions)
    return bool(positions)


def drop_tags(files: Files, layout: Layout, topic_id: int, first_seq: int) -> None:
    """Unlink the .tags file if it exists."""
    with contextlib.suppress(FileNotFoundError):
        files.unlink(layout.part("tags", topic_id, first_seq))


def listed_tags(
    files: Files, layout: Layout, topic_id: int, first_seq: int, records: int, wants: Callable[[bytes], bool]
) -> dict[bytes, list[int]]:
    """Return the positions that the .tags file lists for each tag that `wants` accepts.

    Raises `FileNotFoundError`. Raises `InvalidEntry` or `FileCorrupt` if the file is not whole or is another segment's.
    """
    file = OpenFile(files, layout.part("tags", topic_id, first_seq), os.O_RDONLY)
    raw = file.read(_HEAD_BYTES, 0)
    head = read_head(raw)
    if (head.topic_id, head.first_seq, head.records) != (topic_id, first_seq, records):
        raise InvalidEntry(0, "these are the tags of another segment")
    if head.directory_end > len(raw):
        raw = file.read_exactly(min(head.directory_end, file.size()), 0)
    return {
        tag: read_positions(file.read_exactly(place.length, place.offset), place).tolist()
        for tag, place in read_directory(raw, head).items()
        if wants(tag)
    }


def _positions(
    files: Files, layout: Layout, segment: SegmentFiles, info: SegmentInfo, wants: Callable[[bytes], bool]
) -> dict[bytes, list[int]]:
    """Return the positions of the records with the wanted tags, and perhaps with others."""
    if not info.sealed:
        return _read_tags(segment, info)
    try:
        return listed_tags(files, layout, segment.topic_id, info.first_seq, info.records, wants)
    except FileNotFoundError:
        pass
    except (InvalidEntry, FileCorrupt) as error:
        # A view may read the file while the writer writes it.
        if not isinstance(files, ReadOnlyFiles):
            _logger.warning("%s is rebuilt: %s", layout.part("tags", segment.topic_id, info.first_seq), error)
    positions = _read_tags(segment, info)
    if positions and not isinstance(files, ReadOnlyFiles):
        try:
            _store(files, layout, segment, info, positions)
        except OSError as error:
            _logger.warning("the tags of %s cannot be kept: %s", segment.data.path, error)
    return positions


def _read_tags(segment: SegmentFiles, info: SegmentInfo) -> dict[bytes, list[int]]:
    """Read the tags of the records from .idx and .data. Raises `FileCorrupt`.

    Records whose bytes were reclaimed are left out. Runs without tags are not read.
    """
    tags: dict[bytes, list[int]] = {}
    seq = info.first_seq
    while seq <= info.last_seq:
        last = min(info.last_seq, seq + FRAME_BATCH_MAX_RECORDS - 1)
        tagged = _tagged(segment.entries(seq, last))
        if not len(tagged):
            seq = last + 1
            continue
        batch = segment.batch(seq + int(tagged[0]), last)
        for record in batch.records(_tagged(batch.entries)):
            if record.tag is not None:
                tags.setdefault(record.tag.encode(), []).append(record.seq - info.first_seq)
        seq = batch.last_seq + 1
    return tags


def _tagged(entries: NDArray[Any]) -> NDArray[np.intp]:
    """Return the indices of the entries with a tag whose bytes are still there.

    Deleted records are included. Their flag may not be durable yet, and a checkpoint that sets it again must find them.
    """
    return np.flatnonzero((entries["flags"] & HAS_TAG != 0) & (entries["length"] != 0))


def _store(
    files: Files, layout: Layout, segment: SegmentFiles, info: SegmentInfo, positions: dict[bytes, list[int]]
) -> None:
    path = layout.part("tags", segment.topic_id, info.first_seq)
    file = OpenFile(files, path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    file.write(encode_tag_index(segment.topic_id, info.first_seq, info.records, positions), 0)
    file.datasync()
