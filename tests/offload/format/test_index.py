from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from catalog import SegmentView
from catalog import schema_pb2 as pb
from catalog.format.commit import Codec
from catalog.format.keys import index_key
from catalog.objects import MemoryStore
from offload.errors import FormatUnsupported, InvalidIndex, OffloadError
from offload.format.block import BlockRef
from offload.format.index import ENTRY, HEADER, decode_head, decode_ledger_index, encode_index
from offload.read.cold_reader import IndexCache
from tests.catalog.samples import segment, vid
from tests.offload.samples import Sample, codecs, encode_object, frames_of_samples, sample_lists

SMALL = encode_object(frames_of_samples([Sample(b"x" * 80, "eu")] * 12), Codec.NONE, block_size=900, chunk_bytes=300)


@given(sample_lists, codecs, st.integers(800, 3000))
def test_a_head_comes_back_from_itself_and_from_the_whole_object(samples, codec, block_size):
    made = encode_object(frames_of_samples(samples), codec, block_size=block_size, chunk_bytes=300)
    head = made.index.body[: made.index.head_length]
    assert blake3(head).digest() == made.index.head_hash
    found = decode_head(head, "k", made.index.head_hash)
    assert found == decode_head(made.index.body, "k", made.index.head_hash)
    assert (found.topic, found.codec, found.chunks, found.data_hash) == (
        "orders",
        codec,
        made.summary.chunks,
        made.summary.data_hash,
    )
    assert len(made.index.body) == made.index.head_length + made.index.trailer_length


@given(sample_lists, codecs, st.integers(800, 3000))
def test_every_block_has_an_index_entry_with_its_part(samples, codec, block_size):
    made = encode_object(frames_of_samples(samples), codec, block_size=block_size, chunk_bytes=300)
    entries = decode_ledger_index(made.index.body, "k").entries
    for number, block in enumerate(made.blocks):
        (first_entry_id,) = struct.unpack_from(">Q", block, 20)
        assert BlockRef(first_entry_id, number + 1, number * block_size) in entries
    if codec is Codec.ZSTD:
        assert len(entries) == len(made.blocks)
    else:
        assert [entry.offset + 128 for entry in entries] == [chunk.offset for chunk in made.summary.chunks]


def test_the_ledger_metadata_is_what_bookkeepers_readers_ask_for():
    ledger = decode_ledger_index(SMALL.index.body, "k").ledger
    assert (ledger.quorum_size, ledger.ensemble_size, ledger.ack_quorum_size) == (1, 1, 1)
    assert (ledger.state, ledger.digest_type, ledger.last_entry_id) == (pb.CLOSED, pb.CRC32C, 11)
    assert ledger.length == SMALL.summary.frame_bytes - 4 * 12
    assert ledger.ctime == 1_700_000_000_500
    assert [(list(s.ensemble_member), s.first_entry_id) for s in ledger.segment] == [(["seglog:0"], 0)]
    assert not ledger.HasField("password")
    assert [item.key for item in ledger.custom_metadata] == ["seglog"]


def test_with_the_commits_hash_every_flipped_bit_and_every_truncation_of_a_head_is_found():
    head = SMALL.index.body[: SMALL.index.head_length]
    damaged = [head[:n] for n in range(len(head))]
    damaged += [head[:n] + bytes([head[n] ^ 1 << n % 8]) + head[n + 1 :] for n in range(len(head))]
    for body in damaged:
        with pytest.raises((InvalidIndex, FormatUnsupported)) as found:
            decode_head(body, "k", SMALL.index.head_hash)
        assert found.value.key == "k"


def test_without_a_hash_a_damaged_head_is_an_error_or_decodes_to_a_table_that_holds_together():
    head = SMALL.index.body[: SMALL.index.head_length]
    for position in range(len(head)):
        for value in (0, 1, 127, 128, 255):
            try:
                found = decode_head(head[:position] + bytes([value]) + head[position + 1 :], "k")
            except OffloadError:
                continue
            assert sum(chunk.count for chunk in found.chunks) == found.count


@given(st.binary(max_size=200))
def test_random_bytes_are_an_error(body):
    with pytest.raises(OffloadError):
        decode_head(body, "k")
    with pytest.raises(OffloadError):
        decode_head(struct.pack(">I", 0xDE47DE47) + body, "k")


@given(st.binary(max_size=200), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_lengths_that_lie_are_found_before_anything_is_made_of_them(body, entry_count, ledger_length):
    with pytest.raises(OffloadError):
        decode_head(HEADER.pack(0xDE47DE47, 2**32 - 1, 10_000, 128, entry_count, ledger_length) + body, "k")


def test_an_index_object_of_pulsars_own_decodes_and_has_no_segment():
    ledger = pb.LedgerMetadata(
        quorum_size=1,
        ensemble_size=1,
        length=300,
        last_entry_id=9,
        state=pb.CLOSED,
        custom_metadata=[pb.CustomMetadata(key="application", value=b"pulsar")],
    ).SerializeToString()
    entries = ENTRY.pack(0, 1, 0) + ENTRY.pack(5, 2, 5_242_880)
    body = HEADER.pack(0xDE47DE47, 32 + len(ledger) + 40, 5_243_100, 128, 2, len(ledger)) + ledger + entries
    found = decode_ledger_index(body, "k")
    assert found.entries == (BlockRef(0, 1, 0), BlockRef(5, 2, 5_242_880))
    assert (found.segment, found.ledger.last_entry_id, found.head_length) == (None, 9, len(body))
    with pytest.raises(FormatUnsupported, match="without our segment metadata"):
        decode_head(body, "k")


def test_an_index_object_of_pulsars_streaming_offload_is_told_as_such():
    with pytest.raises(FormatUnsupported, match="streaming"):
        decode_head(bytes.fromhex("3d1fb0bc") + bytes(60), "k")


def test_index_entries_that_do_not_follow_from_the_chunk_table_are_refused():
    head = bytearray(SMALL.index.body[: SMALL.index.head_length])
    entry_id, part, offset = ENTRY.unpack_from(head, len(head) - ENTRY.size)
    ENTRY.pack_into(head, len(head) - ENTRY.size, entry_id, part + 1, offset)
    with pytest.raises(InvalidIndex, match="not those of its chunk table"):
        decode_head(bytes(head), "k")


@pytest.mark.parametrize("more", [-1, 1])
def test_a_ledger_of_more_or_fewer_entries_than_seqs_is_refused(more):
    head = SMALL.index.body[: SMALL.index.head_length]
    *first, ledger_length = HEADER.unpack_from(head)
    end = HEADER.size + ledger_length
    ledger = pb.LedgerMetadata.FromString(head[HEADER.size : end])
    ledger.last_entry_id += more
    body = ledger.SerializeToString(deterministic=True)
    with pytest.raises(InvalidIndex, match="seqs, but entries up to"):
        decode_head(HEADER.pack(*first, len(body)) + body + head[end:], "k")


def test_a_data_object_of_another_length_does_not_fit_the_table():
    summary = replace(SMALL.summary, data_length=SMALL.summary.data_length - 1)
    with pytest.raises(InvalidIndex, match="overlaps another or the end"):
        decode_head(encode_index(summary, topic="t", created_at_ms=1).body, "k")


def test_without_a_name_the_software_is_this_one():
    found = decode_head(encode_index(SMALL.summary, topic="t", created_at_ms=1).body, "k")
    assert found.software.startswith("seglog ")


def test_the_cache_of_indexes_takes_only_the_one_that_the_commit_names():
    ref = replace(segment(1, 9), index_head_length=SMALL.index.head_length, index_head_hash=SMALL.index.head_hash)
    view = SegmentView(ref, vid(1), 1, 1, 9)
    store = MemoryStore()
    store.put(index_key(vid(1), ref.sid), SMALL.index.body, {})
    assert IndexCache(store, 1 << 20).get(view).chunks == SMALL.summary.chunks
    with pytest.raises(InvalidIndex, match="not the one that the commit names"):
        IndexCache(store, 1 << 20).get(replace(view, ref=replace(ref, index_head_hash=bytes(32))))
