from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from seglog.engine.tail import Tail
from seglog.format.dtypes import ROWS
from seglog.format.index import Entry

groups = st.lists(st.tuples(st.integers(1, 3), st.lists(st.integers(46, 500), min_size=1, max_size=5)), max_size=8)


@given(groups, st.integers(0, 40), st.integers(0, 200), st.integers(50, 2000))
def test_it_knows_what_a_list_would_know(
    parts: list[tuple[int, list[int]]], dropped: int, gap_max: int, bytes_max: int
) -> None:
    tail = Tail(5)
    model: list[tuple[int, Entry]] = []
    offset = 0
    for number, (file, lengths) in enumerate(parts):
        offset += 100
        tail.extend(file, offset, lengths, number)
        for length in lengths:
            model.append((file, Entry(offset, length, number, 0)))
            offset += length
    dropped = min(dropped, len(model))
    tail.drop(dropped)
    del model[:dropped]
    assert (tail.first_seq, len(tail)) == (5 + dropped, len(model))
    assert tail.bytes == sum(entry.length for _, entry in model)
    start = 0
    while start < len(model):
        file, found = tail.near(start, len(model), gap_max, bytes_max)
        entries = [Entry(*one[:4]) for one in found.tolist()]
        assert [(file, entry) for entry in entries] == model[start : start + len(entries)]
        assert entries
        last = entries[-1]
        assert len(entries) == 1 or last.offset + last.length - entries[0].offset <= bytes_max
        start += len(entries)


def test_a_record_costs_24_bytes() -> None:
    assert ROWS.itemsize == 24


@settings(deadline=None)
@given(st.lists(st.integers(46, 500), min_size=1, max_size=200), st.integers(0, 2**32 - 100_000))
def test_many_records_at_once_are_those_of_one_after_the_other(lengths: list[int], offset: int) -> None:
    at_once, each = Tail(5), Tail(5)
    at_once.extend(3, offset, lengths, 99)
    for length in lengths:
        each.add(3, offset, length, 99)
        offset += length
    assert at_once.rows(0, len(lengths)).tolist() == each.rows(0, len(lengths)).tolist()
    assert (at_once.bytes, at_once.end_seq) == (each.bytes, each.end_seq) == (sum(lengths), 5 + len(lengths))
    for one in (at_once, each):
        one.cut(5 + len(lengths) // 2)
        one.lose(2, 100)
    assert at_once.rows(0, len(at_once)).tolist() == each.rows(0, len(each)).tolist()
    assert at_once.kept_seq == (4 + len(lengths) // 2 if len(lengths) > 1 else 6)
