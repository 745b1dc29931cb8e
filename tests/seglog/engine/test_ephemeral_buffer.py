"""Chunks of records in memory: finding records, and counting their bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seglog import DeleteOp
from seglog.engine.tail import EphemeralBuffer, Memory, held_bytes
from seglog.format.appends import encode_appends
from seglog.format.frame import DELETED

TOPIC_ID = 7


def _add(
    ephemeral_buffer: EphemeralBuffer, memory: Memory, first: int, count: int, ts_ms: int = 5, tag: str | None = None
) -> None:
    values = [b"%d" % (first + index) * 10 for index in range(count)]
    pieces, lengths, _ = encode_appends(
        TOPIC_ID, range(first, first + count), ts_ms, values, tag=tag, node=None, unterminated=False, durable=False
    )
    ephemeral_buffer.add(memory, first, b"".join(pieces), lengths, ts_ms, tag)


def _values(ephemeral_buffer: EphemeralBuffer, first: int, last: int) -> list[tuple[int, bytes]]:
    found = []
    while first <= last:
        batch = ephemeral_buffer.batch(TOPIC_ID, first, last)
        if batch is None:
            first += 1
            continue
        found += [(batch.first_seq + index, batch.record(index).value) for index in range(len(batch))]
        first = batch.last_seq + 1
    return found


def _expected(*seqs: int) -> list[tuple[int, bytes]]:
    return [(seq, b"%d" % seq * 10) for seq in seqs]


def test_records_are_found_by_seq_and_by_time_and_others_are_not() -> None:
    ephemeral_buffer, memory = EphemeralBuffer(), Memory(1 << 20)
    _add(ephemeral_buffer, memory, 3, 2, ts_ms=10)
    _add(ephemeral_buffer, memory, 5, 1, ts_ms=20)
    _add(ephemeral_buffer, memory, 9, 2, ts_ms=30)
    assert len(ephemeral_buffer.chunks) == 2
    assert _values(ephemeral_buffer, 1, 12) == _expected(3, 4, 5, 9, 10)
    assert _values(ephemeral_buffer, 4, 9) == _expected(4, 5, 9)
    assert [ephemeral_buffer.first_from(seq) for seq in (1, 3, 5, 6, 10, 11)] == [3, 3, 5, 9, 10, None]
    assert [ephemeral_buffer.ts_ms_from(seq) for seq in (1, 5, 6, 11)] == [10, 20, 30, None]
    assert [ephemeral_buffer.first_seq_at(ts_ms) for ts_ms in (0, 11, 21, 31)] == [3, 5, 9, None]


def test_a_chunk_takes_an_eighth_of_the_memory_at_most_but_for_one_append() -> None:
    ephemeral_buffer, memory = EphemeralBuffer(), Memory(8 * 200)
    for seq in range(1, 21):
        _add(ephemeral_buffer, memory, seq, 1)
    assert len(ephemeral_buffer.chunks) > 5
    assert all(len(chunk.frames) <= 200 for chunk in ephemeral_buffer.chunks)
    _add(ephemeral_buffer, memory, 21, 50)
    assert len(ephemeral_buffer.chunks[-1].index) == 50
    assert _values(ephemeral_buffer, 1, 70) == _expected(*range(1, 71))


def test_a_delete_marks_what_it_reaches() -> None:
    ephemeral_buffer, memory = EphemeralBuffer(), Memory(1 << 20)
    _add(ephemeral_buffer, memory, 1, 2, tag="eu-1")
    _add(ephemeral_buffer, memory, 3, 2, tag="us")
    ephemeral_buffer.delete(DeleteOp(0, 3, 9, None, "us"))
    ephemeral_buffer.delete(DeleteOp(0, 4, 9, 2, "eu*"))
    batch = ephemeral_buffer.batch(TOPIC_ID, 1, 4)
    assert batch is not None
    assert batch.entries["flags"].tolist() == [DELETED, 0, DELETED, 0]


@given(st.lists(st.tuples(st.sampled_from(["add", "skip", "cut", "below", "oldest"]), st.integers(1, 30)), max_size=30))
def test_what_is_held_is_counted_whatever_happens(steps: list[tuple[str, int]]) -> None:
    ephemeral_buffer, memory = EphemeralBuffer(), Memory(8 * 300)
    head, there = 0, dict[int, bytes]()
    for step, number in steps:
        if step == "add":
            _add(ephemeral_buffer, memory, head + 1, number)
            there |= dict(_expected(*range(head + 1, head + number + 1)))
            head += number
        elif step == "skip":
            head += number
        elif step == "cut":
            head = min(head, number)
            ephemeral_buffer.cut(head + 1)
            there = {seq: value for seq, value in there.items() if seq <= head}
        elif step == "below":
            ephemeral_buffer.drop_below(number)
        elif ephemeral_buffer.chunks:
            ephemeral_buffer.drop_oldest()
        first = ephemeral_buffer.first_from(1) or head + 1
        there = {seq: value for seq, value in there.items() if seq >= first}
        assert _values(ephemeral_buffer, 1, head) == sorted(there.items())
        held = sum(held_bytes(len(chunk.frames), len(chunk.index)) for chunk in ephemeral_buffer.chunks)
        assert memory.used_bytes == ephemeral_buffer.held_bytes == held
        assert ephemeral_buffer.frame_bytes == sum(chunk.index.bytes for chunk in ephemeral_buffer.chunks)
    ephemeral_buffer.clear()
    assert memory.used_bytes == 0


def test_a_delete_reaches_the_last_record_below_its_end() -> None:
    for before, left in ((None, []), (5, []), (4, []), (3, [3]), (2, [2, 3]), (1, [1, 2, 3])):
        ephemeral_buffer = EphemeralBuffer()
        _add(ephemeral_buffer, Memory(10_000), 1, 3)
        ephemeral_buffer.delete(DeleteOp(1, 3, 5, before))
        batch = ephemeral_buffer.batch(TOPIC_ID, 1, 3)
        assert batch is not None
        assert [seq for seq, flags in enumerate(batch.entries["flags"].tolist(), 1) if not flags & DELETED] == left
