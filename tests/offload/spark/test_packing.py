"""Test the pieces of tasks on one object of 100 chunks of 1 MiB."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from catalog.format.commit import Codec, SegmentView
from catalog.format.ids import Sid, Vid
from offload.format.index import decode_head
from offload.format.metadata import SegmentIndex
from offload.spark.messages import encode_task
from offload.spark.options import Verify
from offload.spark.packing import TaskSize, packed
from offload.spark.selection import Conditions, select
from offload.spark.task import Needs, Piece, Task
from offload.write.segment_upload import segment_ref
from tests.offload.samples import EncodedObject, Sample, encode_object, frames_of_samples

MIB = 1 << 20
VID, SID = Vid.new(1), Sid.new(2)


def view_of(made: EncodedObject, first: int, last: int, deleted: BitMap | None = None) -> SegmentView:
    ref = segment_ref(SID, made.summary, made.index)
    return SegmentView(ref, VID, 5, first, last, bytes(deleted.serialize()) if deleted else None)


def big_object() -> EncodedObject:
    """Return an object of 100 chunks of about 1 MiB, an entry each, from seq 11."""
    frames = frames_of_samples([Sample(bytes(MIB - 100))] * 100, first_seq=11)
    return encode_object(frames, Codec.ZSTD, block_size=5 * MIB, chunk_bytes=MIB)


BIG = big_object()
BIG_INDEX: SegmentIndex = decode_head(BIG.index.body, "k")


def tasks_of(view: SegmentView, max_mib: int = 32, min_tasks: int = 1, parallelism: int = 1) -> list[Task]:
    selection = select("orders", view, BIG_INDEX, Conditions())
    size = TaskSize(max_mib * MIB, min_tasks, parallelism)
    return packed([selection] if selection else [], size, "file:///r", Verify.RECORD, Needs.DATA)


def pieces_of(view: SegmentView) -> list[Piece]:
    return [piece for task in tasks_of(view) for piece in task.pieces]


def test_a_task_holds_the_wanted_bytes():
    found = tasks_of(view_of(BIG, 11, 110))
    assert [len(task.pieces[0].chunks) for task in found] == [31, 31, 31, 7]  # the segment counts as 256 KiB more
    assert all(task.raw_bytes <= 32 * MIB for task in found)


@pytest.mark.parametrize(
    ("max_mib", "min_tasks", "parallelism", "tasks"),
    [(128, 1, 1, 1), (128, 1, 2, 2), (128, 1, 64, 4), (128, 50, 1, 50), (128, 1000, 1, 100), (1, 1, 1, 100)],
)
def test_tasks_follow_the_cluster_and_the_options(max_mib: int, min_tasks: int, parallelism: int, tasks: int):
    found = tasks_of(view_of(BIG, 11, 110), max_mib, min_tasks, parallelism)
    assert tasks <= len(found) <= 2 * tasks
    assert all(len(task.pieces) == 1 for task in found)


@given(st.integers(11, 110), st.integers(0, 99))
def test_every_visible_seq_is_in_exactly_one_piece_with_its_chunk(first: int, more: int):
    last = min(110, first + more)
    found = pieces_of(view_of(BIG, first, last))
    assert [seq for piece in found for seq in range(piece.first, piece.last + 1)] == list(range(first, last + 1))
    for piece in found:
        assert all(each.ref == BIG_INDEX.chunks[each.number] for each in piece.chunks)
        assert piece.chunks[0].ref.first_seq <= piece.first <= piece.last <= piece.chunks[-1].ref.last_seq


def test_a_piece_carries_the_deletes_of_its_own_chunks_only():
    small = encode_object(frames_of_samples([Sample(b"x" * 90)] * 100, first_seq=11), Codec.ZSTD)
    index = decode_head(small.index.body, "k")
    deleted = BitMap([0, 31, 99])
    selection = select("orders", view_of(small, 11, 110, deleted), index, Conditions())
    assert selection is not None
    found = packed([selection], TaskSize(2000, 1, 1), "file:///r", Verify.RECORD, Needs.DATA)
    pieces = [piece for task in found for piece in task.pieces]
    assert len(pieces) > 3
    hidden = [BitMap.deserialize(piece.hidden) if piece.hidden else BitMap() for piece in pieces]
    assert BitMap.union(*hidden) == deleted
    for piece, bits in zip(pieces, hidden, strict=True):
        assert all(piece.first <= 11 + bit <= piece.last for bit in bits)
        assert piece.rows == piece.last + 1 - piece.first - len(bits)


def test_a_chunk_of_deleted_records_only_is_not_read():
    found = pieces_of(view_of(BIG, 11, 110, BitMap([*range(32, 64), 70])))
    numbers = [each.number for piece in found for each in piece.chunks]
    assert numbers == [*range(32), *range(64, 70), *range(71, 100)]
    assert [(piece.rows, piece.hidden) for piece in found] == [(31, None), (31, None), (5, None)]


def test_a_segment_that_shows_nothing_makes_no_task():
    assert tasks_of(view_of(BIG, 11, 110, BitMap(range(100)))) == []


def test_a_task_is_small():
    for task in tasks_of(view_of(BIG, 11, 110, BitMap([3]))):
        assert len(json.dumps(encode_task(task))) < 10_000
