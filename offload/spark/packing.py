"""Tasks by bytes: selections of segments in, tasks out. This module does no I/O.

PACK-1  Tasks keep the order: each task's records follow the records of the one before. A chunk is in one task.
PACK-2  A task has at most the wanted bytes, or one chunk. So a large segment makes many tasks.
PACK-3  A segment counts as up to 1 MiB more than its chunks, because it costs two requests.
    So many small segments make one task, and the task is not endless.
PACK-4  While there are fewer tasks than wanted, and chunks enough, the bytes of a task are halved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from pyroaring import BitMap

from catalog.format import keys
from offload.spark.options import Verify
from offload.spark.selection import SelectedChunk, Selection
from offload.spark.task import ROW_BYTES, Filter, Needs, Piece, Task
from seglog.base.dataclasses import dataclass

_MIB = 1024 * 1024
_SEGMENT_BYTES = _MIB
_SMALLEST_TASK_BYTES = 32 * _MIB  # below that, a task's fixed cost weighs more than what it gains


@dataclass(frozen=True, slots=True)
class TaskSize:
    """The wanted size of tasks. `parallelism` is how many tasks run at a time."""

    max_bytes: int
    min_tasks: int
    parallelism: int


def packed(selections: Sequence[Selection], size: TaskSize, url: str, verify: Verify, needs: Needs) -> list[Task]:
    """Return the tasks for `selections`. `needs` says whether the query needs data objects."""
    costed = list(_costed(selections, needs, min(_SEGMENT_BYTES, size.max_bytes // 128)))
    total = sum(weighed.cost for weighed in costed)
    # A share has room for one chunk more. So there are at most `parallelism` tasks, unless `max_bytes` makes more.
    share = total // size.parallelism + max((weighed.cost for weighed in costed), default=0)
    limit = min(size.max_bytes, max(_SMALLEST_TASK_BYTES, share))
    groups = _grouped(costed, limit)
    while len(groups) < min(size.min_tasks, len(costed)):
        limit = min(limit // 2, total // size.min_tasks)
        groups = _grouped(costed, limit)
    return [Task(url, verify, tuple(_pieces(group, needs))) for group in groups]


@dataclass(frozen=True, slots=True)
class _Costed:
    """A chunk of a selection, and the bytes that it counts for."""

    selection: Selection
    chunk: SelectedChunk
    cost: int


def _costed(selections: Iterable[Selection], needs: Needs, segment_bytes: int) -> Iterator[_Costed]:
    for selection in selections:
        share = segment_bytes // len(selection.chunks)
        for chunk in selection.chunks:
            is_read = selection.is_read(needs) or chunk.filters
            cost = chunk.chunk.ref.raw_length if is_read else chunk.rows * ROW_BYTES
            yield _Costed(selection, chunk, cost + share)


def _grouped(costed: Sequence[_Costed], limit: int) -> list[list[_Costed]]:
    """Return the chunks of each task."""
    groups: list[list[_Costed]] = []
    used = 0
    for weighed in costed:
        if not groups or used + weighed.cost > limit:
            groups.append([])
            used = 0
        groups[-1].append(weighed)
        used += weighed.cost
    return groups


def _pieces(group: Iterable[_Costed], needs: Needs) -> Iterator[Piece]:
    """Yield the pieces of a task. A segment has one, or several if only some of its chunks have to be read."""
    for _, costed in groupby(group, key=lambda weighed: id(weighed.selection)):
        of_segment = list(costed)
        selection, chunks = of_segment[0].selection, [weighed.chunk for weighed in of_segment]
        if selection.is_read(needs):
            filters = tuple(dict.fromkeys(condition for chunk in chunks for condition in chunk.filters))
            yield _piece(selection, chunks, filters, needs)
            continue
        for filters, alike in groupby(chunks, key=lambda chunk: chunk.filters):
            yield _piece(selection, list(alike), filters, Needs.DATA if filters else Needs.NOTHING)


def _piece(selection: Selection, chunks: list[SelectedChunk], filters: tuple[Filter, ...], needs: Needs) -> Piece:
    view = selection.view
    base = view.ref.first_seq
    first = max(selection.first, chunks[0].chunk.ref.first_seq)
    last = min(selection.last, chunks[-1].chunk.ref.last_seq)
    hidden = BitMap()
    for selected in chunks:
        begin, end = max(first, selected.chunk.ref.first_seq) - base, min(last, selected.chunk.ref.last_seq) + 1 - base
        if selected.rows < end - begin:
            hidden |= BitMap(range(begin, end)) - selection.shown
    return Piece(
        topic=selection.topic,
        topic_id=selection.topic_id,
        lsn=view.lsn,
        segment=str(view.ref.sid),
        data=keys.data_key(view.vid, view.ref.sid),
        index=keys.index_key(view.vid, view.ref.sid),
        codec=selection.codec,
        block_size=selection.block_size,
        segment_first_seq=base,
        first=first,
        last=last,
        rows=sum(selected.rows for selected in chunks),
        chunks=tuple(selected.chunk for selected in chunks),
        chunk_count=selection.chunk_count,
        trailer_offset=view.ref.index_head_length,
        trailer_length=view.ref.index_trailer_length,
        hidden=bytes(hidden.serialize()) if hidden else None,
        filters=filters,
        needs=needs,
        change=selection.change,
    )
