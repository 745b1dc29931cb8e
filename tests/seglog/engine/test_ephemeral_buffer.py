"""Chunks of records in memory: finding records, and counting their bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seglog import DeleteOp
from seglog.engine.ephemeral_buffer import Memory, Resident, held_bytes
from seglog.format.frame import DELETED, encode_appends

TOPIC_ID = 7


def _add(resident: Resident, memory: Memory, first: int, count: int, ts_ms: int = 5, tag: str | None = None) -> None:
    values = [b"%d" % (first + index) * 10 for index in range(count)]
    pieces, lengths = encode_appends(
        TOPIC_ID, first, ts_ms, values, tag=tag, node=None, unterminated=False, durable=False
    )
    resident.add(memory, first, b"".join(pieces), lengths, ts_ms, tag)


def _values(resident: Resident, first: int, last: int) -> list[tuple[int, bytes]]:
    found = []
    while first <= last:
        run = resident.run(TOPIC_ID, first, last)
        if run is None:
            first += 1
            continue
        found += [(run.first_seq + index, run.record(index).value) for index in range(len(run))]
        first = run.last_seq + 1
    return found


def _expected(*seqs: int) -> list[tuple[int, bytes]]:
    return [(seq, b"%d" % seq * 10) for seq in seqs]


def test_records_are_found_by_seq_and_by_time_and_others_are_not() -> None:
    resident, memory = Resident(), Memory(1 << 20)
    _add(resident, memory, 3, 2, ts_ms=10)
    _add(resident, memory, 5, 1, ts_ms=20)
    _add(resident, memory, 9, 2, ts_ms=30)
    assert len(resident.chunks) == 2
    assert _values(resident, 1, 12) == _expected(3, 4, 5, 9, 10)
    assert _values(resident, 4, 9) == _expected(4, 5, 9)
    assert [resident.first_from(seq) for seq in (1, 3, 5, 6, 10, 11)] == [3, 3, 5, 9, 10, None]
    assert [resident.ts_ms_from(seq) for seq in (1, 5, 6, 11)] == [10, 20, 30, None]
    assert [resident.first_seq_at(ts_ms) for ts_ms in (0, 11, 21, 31)] == [3, 5, 9, None]


def test_a_chunk_takes_an_eighth_of_the_memory_at_most_but_for_one_append() -> None:
    resident, memory = Resident(), Memory(8 * 200)
    for seq in range(1, 21):
        _add(resident, memory, seq, 1)
    assert len(resident.chunks) > 5
    assert all(len(chunk.frames) <= 200 for chunk in resident.chunks)
    _add(resident, memory, 21, 50)
    assert len(resident.chunks[-1].index) == 50
    assert _values(resident, 1, 70) == _expected(*range(1, 71))


def test_a_delete_marks_what_it_reaches() -> None:
    resident, memory = Resident(), Memory(1 << 20)
    _add(resident, memory, 1, 2, tag="eu-1")
    _add(resident, memory, 3, 2, tag="us")
    resident.delete(DeleteOp(0, 3, 9, None, "us"))
    resident.delete(DeleteOp(0, 4, 9, 2, "eu*"))
    run = resident.run(TOPIC_ID, 1, 4)
    assert run is not None
    assert run.entries["flags"].tolist() == [DELETED, 0, DELETED, 0]


@given(st.lists(st.tuples(st.sampled_from(["add", "skip", "cut", "below", "oldest"]), st.integers(1, 30)), max_size=30))
def test_what_is_held_is_counted_whatever_happens(steps: list[tuple[str, int]]) -> None:
    resident, memory = Resident(), Memory(8 * 300)
    head, there = 0, dict[int, bytes]()
    for step, number in steps:
        if step == "add":
            _add(resident, memory, head + 1, number)
            there |= dict(_expected(*range(head + 1, head + number + 1)))
            head += number
        elif step == "skip":
            head += number
        elif step == "cut":
            head = min(head, number)
            resident.cut(head + 1)
            there = {seq: value for seq, value in there.items() if seq <= head}
        elif step == "below":
            resident.drop_below(number)
        elif resident.chunks:
            resident.drop_oldest()
        first = resident.first_from(1) or head + 1
        there = {seq: value for seq, value in there.items() if seq >= first}
        assert _values(resident, 1, head) == sorted(there.items())
        held = sum(held_bytes(len(chunk.frames), len(chunk.index)) for chunk in resident.chunks)
        assert memory.used_bytes == resident.held_bytes == held
        assert resident.frame_bytes == sum(chunk.index.bytes for chunk in resident.chunks)
    resident.clear()
    assert memory.used_bytes == 0


def test_a_delete_reaches_the_last_record_below_its_end() -> None:
    for before, left in ((None, []), (5, []), (4, []), (3, [3]), (2, [2, 3]), (1, [1, 2, 3])):
        resident = Resident()
        _add(resident, Memory(10_000), 1, 3)
        resident.delete(DeleteOp(1, 3, 5, before))
        run = resident.run(TOPIC_ID, 1, 3)
        assert run is not None
        assert [seq for seq, flags in enumerate(run.entries["flags"].tolist(), 1) if not flags & DELETED] == left
