from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.errors import InvalidEntry
from seglog.format import index
from seglog.format.dtypes import ENTRIES
from seglog.format.frame import DELETED, HAS_TAG
from seglog.format.index import (
    ENTRY,
    Entry,
    encode_entries,
    encode_entry,
    load_entries,
    mark_deleted,
    read_entries,
)
from tests.seglog.tables import table_of

GOLDEN = bytes.fromhex("e8030000 37000000 9532fd7790010000 01 cd7de5")

entries = st.tuples(
    st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(0, 255)
)


def test_the_table_in_the_docstring_is_the_struct() -> None:
    assert ENTRY.format == "<IIQB3s"
    assert table_of("seglog.format.index") == [(0, 4), (4, 4), (8, 8), (16, 1), (17, 3)]
    assert ENTRY.size == ENTRIES.itemsize == 20
    assert [ENTRIES.fields[name][1] for name in ENTRIES.names or ()] == [0, 4, 8, 16, 17]


def test_the_bytes_are_pinned() -> None:
    assert encode_entry(258, 1000, 55, 1720000000661, HAS_TAG).hex() == GOLDEN.hex()


@given(st.integers(0, 2**63), st.lists(entries, max_size=10))
def test_what_goes_in_comes_out(first_seq: int, values: list[tuple[int, int, int, int]]) -> None:
    raw = b"".join(encode_entry(first_seq + index, *value) for index, value in enumerate(values))
    assert read_entries(raw, first_seq) == [Entry(*value) for value in values]


def test_no_flipped_bit_passes() -> None:
    raw = encode_entry(258, 1000, 55, 1720000000661, HAS_TAG)
    for position in range(len(raw)):
        for bit in range(8):
            damaged = bytearray(raw)
            damaged[position] ^= 1 << bit
            with pytest.raises(InvalidEntry):
                read_entries(bytes(damaged), 258)


@given(st.integers(0, 2**62), st.integers(0, 2**31), st.lists(st.tuples(*[st.integers(0, 255)] * 3), max_size=30))
def test_many_at_once_are_what_they_are_one_by_one(
    first_seq: int, offset: int, rows: list[tuple[int, int, int]]
) -> None:
    raw, end = b"", offset
    for position, (length, ts_ms, flags) in enumerate(rows):
        raw += encode_entry(first_seq + position, end, length, ts_ms, flags)
        end += length
    lengths, times, flags_of = np.array(rows, np.int64).reshape(-1, 3).T
    assert encode_entries(first_seq, offset, lengths, times, flags_of) == raw
    loaded = load_entries(raw, first_seq)
    assert [Entry(*one[:4]) for one in loaded.tolist()] == read_entries(raw, first_seq)


def test_no_flipped_bit_passes_among_many() -> None:
    raw = b"".join(encode_entry(5 + number, number * 55, 55, 1, 0) for number in range(20))
    for position in range(len(raw)):
        damaged = bytearray(raw)
        damaged[position] ^= 1 << position % 8
        with pytest.raises(InvalidEntry) as caught:
            load_entries(bytes(damaged), 5)
        assert caught.value.position == position // 20
    for wrong in (raw[:-1], raw[20:]):
        with pytest.raises(InvalidEntry):
            load_entries(wrong, 5)


@pytest.mark.parametrize("first_seq", [0, 1, 2**32 - 700, 2**63, 2**64 - 1400])
def test_a_thousand_entries_have_the_checks_of_each_alone(first_seq: int) -> None:
    random = np.random.default_rng(first_seq)
    lengths = random.integers(0, 2**21, 1_400)
    times, flags = random.integers(0, 2**64, 1_400, np.uint64), random.integers(0, 256, 1_400, np.uint8)
    raw = encode_entries(first_seq, 2**20, lengths, times, flags)
    offsets = np.cumsum(lengths) - lengths + 2**20
    columns = zip(offsets.tolist(), lengths.tolist(), times.tolist(), flags.tolist(), strict=True)
    assert raw == b"".join(encode_entry(seq, *one) for seq, one in enumerate(columns, first_seq))
    assert load_entries(raw, first_seq).tobytes() == raw


def test_the_checks_of_a_thousand_entries_take_no_call_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = np.full(1_400, 55)
    raw = encode_entries(1, 0, lengths, lengths, lengths * 0)
    hashed: list[bytes] = []
    monkeypatch.setattr(index, "xxh3_64_digest", hashed.append)
    assert encode_entries(1, 0, lengths, lengths, lengths * 0) == raw
    assert len(load_entries(raw, 1)) == 1_400
    assert hashed == []


def test_a_flipped_bit_among_a_thousand_is_found_at_its_entry() -> None:
    lengths = np.full(1_000, 55)
    raw = encode_entries(5, 0, lengths, lengths, lengths * 0)
    for position in range(0, len(raw), 173):
        damaged = bytearray(raw)
        damaged[position] ^= 1 << position % 8
        with pytest.raises(InvalidEntry) as caught:
            load_entries(bytes(damaged), 5)
        assert caught.value.position == position // 20


def test_no_truncation_passes() -> None:
    raw = encode_entry(1, 0, 55, 1, 0)
    for length in range(1, len(raw)):
        with pytest.raises(InvalidEntry):
            read_entries(raw[:length], 1)


def test_an_entry_in_the_place_of_another_is_found() -> None:
    raw = encode_entry(1, 0, 55, 1, 0) + encode_entry(2, 55, 55, 1, 0)
    with pytest.raises(InvalidEntry) as caught:
        read_entries(raw[20:] + raw[:20], 1)
    assert caught.value.position == 0
    with pytest.raises(InvalidEntry):
        read_entries(raw, 2)


def test_marking_one_deleted_changes_its_last_word_only() -> None:
    raw = bytearray(encode_entry(1, 0, 55, 1, HAS_TAG) + encode_entry(2, 55, 60, 2, 0))
    before = bytes(raw)
    mark_deleted(raw, 1, 2)
    assert raw[:36] == before[:36]
    assert read_entries(bytes(raw), 1) == [Entry(0, 55, 1, HAS_TAG), Entry(55, 60, 2, DELETED)]
