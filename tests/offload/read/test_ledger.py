from __future__ import annotations

import struct
from pathlib import Path

import pytest

from catalog.format import keys
from catalog.format.commit import Codec
from catalog.objects.memory import MemoryStore
from offload.errors import InvalidChunk, InvalidIndex, ObjectDamaged, OffloadError
from offload.format.block import HEADER as BLOCK_HEADER
from offload.format.block import PADDING
from offload.format.entry import ENTRY
from offload.format.index import ENTRY as INDEX_ENTRY
from offload.format.index import HEADER as INDEX_HEADER
from offload.format.index import decode_ledger_index
from offload.format.streamed import BLOCK_HEADER as STREAMED_HEADER
from offload.format.streamed import BLOCK_MAGIC
from offload.read.inspection import inspect_bytes
from offload.read.ledger import LedgerEntry, open_ledgers
from tests.golden.make_offload import FRAMES
from tests.offload.ledgers import Ledger
from tests.offload.samples import encode_block
from tests.seams.archive import drop_last_entry
from tests.worlds.index_objects import index_of

GOLDEN = Path(__file__).parents[2] / "golden"
DATA = keys.check_key("a-ledger-7")

#: The ledgers that judge.Golden of tests/interop/pulsar wrote with Apache Pulsar's code.
WHOLE = [Ledger(7, 0, 40, 1)]
STREAMED = [Ledger(8, 5, 30, 1), Ledger(9, 0, 3, 1)]
OBJECTS = {"pulsar_v1": WHOLE, "pulsar_v2": STREAMED}


def golden(name: str) -> tuple[bytes, bytes]:
    return (GOLDEN / f"{name}.data").read_bytes(), (GOLDEN / f"{name}.index").read_bytes()


def read(data: bytes, index: bytes, first: int = 0, last: int | None = None) -> list[LedgerEntry]:
    store = MemoryStore()
    store.put(DATA, data, {})
    return list(open_ledgers(store, DATA, index, "index").entries(first, last))


def expected(name: str) -> list[LedgerEntry]:
    return [
        LedgerEntry(ledger.id if name == "pulsar_v2" else None, *entry)
        for ledger in OBJECTS[name]
        for entry in ledger.entries()
    ]


@pytest.mark.parametrize("name", OBJECTS)
def test_what_pulsar_wrote_is_read(name):
    assert read(*golden(name)) == expected(name)


@pytest.mark.parametrize("name", OBJECTS)
def test_a_part_of_it_is_read(name):
    for first in range(42):
        for last in (first, first + 7, None):
            wanted = [
                entry
                for entry in expected(name)
                if first <= entry.entry_id and (last is None or entry.entry_id <= last)
            ]
            assert read(*golden(name), first, last) == wanted


@pytest.mark.parametrize("codec", Codec)
def test_our_objects_are_ledgers_too(codec):
    data, index = golden(f"offload_{codec.name.lower()}")
    assert [entry.data for entry in read(data, index)] == [frame[4:] for frame in FRAMES]
    assert [entry.entry_id for entry in read(data, index, 10, 19)] == list(range(10, 20))


def test_our_blocks_are_the_ones_that_pulsar_writes_for_the_same_entries():
    data, index = golden("pulsar_v1")
    blocks: list[bytes] = []
    firsts: list[int] = []
    chunk, first = bytearray(), 0
    for entry_id, body in WHOLE[0].entries():
        entry = ENTRY.pack(len(body), entry_id) + body
        if 128 + len(chunk) + len(entry) > 700:
            blocks.append(encode_block(Codec.NONE, first, [chunk], 700))
            firsts.append(first)
            chunk, first = bytearray(), entry_id
        chunk += entry
    blocks.append(encode_block(Codec.NONE, first, [chunk], None))
    firsts.append(first)
    assert b"".join(blocks) == data
    assert [entry.first_entry_id for entry in decode_ledger_index(index, "i").entries] == firsts


def test_an_index_object_of_pulsars_has_its_ledger():
    found = decode_ledger_index(golden("pulsar_v1")[1], "i")
    assert (found.segment, found.ledger.last_entry_id, found.ledger.length) == (None, 39, WHOLE[0].length)
    assert found.head_length == found.index_length
    assert inspect_bytes(golden("pulsar_v1")[1], "i")["bytes_behind_it"] == 0


@pytest.mark.parametrize("name", OBJECTS)
def test_bytes_behind_either_object_are_no_part_of_it(name):
    data, index = golden(name)
    assert read(data + b"\xfe\xdc garbage", index + b"garbage") == expected(name)
    assert inspect_bytes(index + b"garbage", "i")["bytes_behind_it"] == 7


@pytest.mark.parametrize("name", OBJECTS)
def test_every_cut_of_a_data_object_is_told_with_its_place(name):
    data, index = golden(name)
    for length in range(len(data)):
        with pytest.raises(ObjectDamaged) as raised:
            read(data[:length], index)
        assert raised.value.key == DATA
        assert 0 <= raised.value.offset <= len(data)


def _place_of_damage(data: bytes, index: bytes) -> tuple[int | None, list[LedgerEntry]]:
    try:
        return None, read(data, index)
    except ObjectDamaged as error:
        return error.offset, []


@pytest.mark.parametrize("name", OBJECTS)
def test_a_flipped_byte_of_a_data_object_is_told_or_lies_in_the_data_of_one_entry(name):
    data, index = golden(name)
    whole = expected(name)
    told = 0
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 0xFF
        place, found = _place_of_damage(bytes(flipped), index)
        if place is not None:
            told += 1
            assert abs(place - at) < 512  # in the same block: a wrong length shows at the next entry
            continue
        assert [(entry.ledger_id, entry.entry_id) for entry in found] == [
            (entry.ledger_id, entry.entry_id) for entry in whole
        ]
        assert sum(one != other for one, other in zip(found, whole, strict=True)) <= 1
    assert told >= 12 * len(whole) + 128 * 4  # every id and length, and every header


@pytest.mark.parametrize("name", OBJECTS)
def test_every_cut_of_an_index_object_is_told_with_its_place(name):
    data, index = golden(name)
    for length in range(len(index)):
        with pytest.raises(InvalidIndex):
            read(data, index[:length])


@pytest.mark.parametrize("name", OBJECTS)
def test_a_flipped_byte_of_an_index_object_never_gives_another_entry(name):
    data, index = golden(name)
    for at in range(len(index)):
        for bit in range(8):
            flipped = bytearray(index)
            flipped[at] ^= 1 << bit
            try:
                found = read(data, bytes(flipped))
            except OffloadError:
                continue
            assert [(entry.entry_id, entry.data) for entry in found] == [
                (entry.entry_id, entry.data) for entry in expected(name)
            ][: len(found)]


def test_entries_that_an_index_object_leaves_out_are_missed():
    data, index = golden("pulsar_v1")
    found = decode_ledger_index(index, "i")
    start = found.head_length - INDEX_ENTRY.size * len(found.entries)
    without_second = bytearray(index[: start + INDEX_ENTRY.size] + index[start + 2 * INDEX_ENTRY.size :])
    struct.pack_into(">I", without_second, 4, len(without_second))
    struct.pack_into(">I", without_second, 24, len(found.entries) - 1)
    with pytest.raises(ObjectDamaged, match="a block of 700 bytes where 1400 are"):
        read(data, bytes(without_second))


def test_a_ledger_that_pulsar_cut_gives_what_is_there_and_then_an_error():
    data, index = golden("pulsar_v1")
    found = decode_ledger_index(index, "i")
    last = found.entries[-1]
    cut = bytearray(index)
    struct.pack_into(">Q", cut, 8, last.offset)  # now the last index entry lies at the data object's end
    store = MemoryStore()
    store.put(DATA, data, {})
    read_entries: list[LedgerEntry] = []
    with pytest.raises(ObjectDamaged, match="Pulsar cuts a ledger") as raised:
        read_entries.extend(open_ledgers(store, DATA, bytes(cut), "i").entries())
    assert read_entries == expected("pulsar_v1")[: last.first_entry_id]
    assert raised.value.offset == last.offset


def test_a_ledger_that_lacks_its_last_entry_alone_is_told():
    data, index = golden("pulsar_v1")
    store = MemoryStore()
    store.put(DATA, data, {})
    ledgers = open_ledgers(store, DATA, index, "i")
    last = drop_last_entry(ledgers)
    with pytest.raises(ObjectDamaged, match=f"before entry {last} of {last}"):
        list(ledgers.entries())


def _block(first: int, entries: list[tuple[int, int, bytes]]) -> bytes:
    """Return a block of ledger 7. Each entry is (stated length, id, data)."""
    body = b"".join(ENTRY.pack(length, entry_id) + data for length, entry_id, data in entries)
    return STREAMED_HEADER.pack(BLOCK_MAGIC, 128, 128 + len(body), first, 7).ljust(128, b"\0") + body


def test_entries_that_are_missing_between_two_blocks_are_told():
    first, second = _block(0, [(1, 0, b"a"), (1, 1, b"b")]), _block(3, [(1, 3, b"d")])
    index = index_of([(7, 3, [(0, 1, 0), (3, 2, len(first))])], len(first + second))
    with pytest.raises(ObjectDamaged, match="it begins with entry 3, not 2") as raised:
        read(first + second, index)
    assert raised.value.offset == len(first)


def test_an_entry_that_goes_a_byte_beyond_its_block_is_told():
    first, second = _block(0, [(1, 0, b"a"), (2, 1, b"b")]), _block(2, [(1, 2, b"c")])
    index = index_of([(7, 3, [(0, 1, 0), (2, 2, len(first))])], len(first + second))
    with pytest.raises(ObjectDamaged, match="goes beyond its block"):
        read(first + second, index)


def test_a_block_of_another_ledger_is_told():
    data, index = golden("pulsar_v2")
    other = bytearray(data)
    struct.pack_into(">Q", other, 28, 77)
    with pytest.raises(ObjectDamaged, match="of ledger 77") as raised:
        read(bytes(other), index)
    assert raised.value.offset == 0


def test_what_is_neither_entry_nor_padding_is_told():
    data, index = golden("pulsar_v2")
    start = data.index(PADDING)
    for at in range(start, start + len(PADDING)):
        wrong = bytearray(data)
        wrong[at] ^= 1
        with pytest.raises(ObjectDamaged) as raised:
            read(bytes(wrong), index)
        assert raised.value.offset == start


def test_a_damaged_chunk_of_ours_is_told():
    data, index = golden("offload_none")
    with pytest.raises(InvalidChunk):
        read(data[:200] + b"?" + data[201:], index)


def test_a_ledger_is_fetched_a_window_at_a_time():
    asked: list[tuple[int, int]] = []

    class Counting(MemoryStore):
        def get_range(self, key: keys.Key, start: int, length: int) -> bytes:
            asked.append((start, length))
            return super().get_range(key, start, length)

    data, index = golden("pulsar_v1")
    store = Counting()
    store.put(DATA, data, {})
    ledgers = open_ledgers(store, DATA, index, "i")
    assert not asked
    list(ledgers.entries())
    assert asked == [(0, len(data))]
    asked.clear()
    [last] = ledgers.entries(39)
    assert (last.entry_id, len(asked)) == (39, 1)


def test_the_formats_of_both_versions_have_the_sizes_that_are_written_down():
    assert (BLOCK_HEADER.size, INDEX_HEADER.size, INDEX_ENTRY.size, ENTRY.size) == (28, 32, 20, 12)
