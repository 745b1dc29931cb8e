"""The Java decoders beside the Python ones: the same rows, or the same error."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import zstandard
from xxhash import xxh3_64_intdigest

from catalog.format.commit import Codec
from offload.format.index import decode_head
from offload.format.trailer import decode_directory, decode_lengths, encode_trailer
from offload.spark.options import Verify
from tests.offload.samples import Sample, encode_object, frames_of_samples
from tests.offload.spark.decoder_cases import DATA, INDEX, Case, are_same, b64, case_of
from tests.offload.spark.judge import Judge
from tests.offload.spark.session import SPARK
from tests.work import amounts

pytestmark = pytest.mark.long  # because all tests of the judge share a JVM of their own


def test_xxh3_is_the_same_for_every_length(judge: Judge):
    data = np.random.default_rng(14).bytes(3_000_001)
    lengths = [*range(2_049), 4_095, 4_096, 4_097, 65_536, 1_000_003, len(data)]
    expected = [str(xxh3_64_intdigest(data[:length])) for length in lengths]
    assert judge.ask(op="xxh3", data=b64(data), lengths=lengths)["hashes"] == expected


def test_labels_that_repeat_and_push_each_other_out_keep_their_text(judge: Judge):
    """There are more labels than the cache has places."""
    labels = [("\u00fc" * (n % 9) + str(n % 6000)).encode() for n in range(9000)] + [b"", b"\x00", b"\x00\x00"]
    labels += [labels[7], b"\xff", b"\xff", labels[8] + b"\xc3", labels[8]]
    expected = [None if label.endswith((b"\xff", b"\xc3")) else label.decode() for label in labels]
    assert judge.ask(op="labels", labels=[b64(label) for label in labels])["texts"] == expected


@pytest.mark.parametrize("codec", Codec)
def test_the_rows_are_those_of_the_python_reader(judge: Judge, codec: Codec):
    case = case_of(codec)
    assert len(case.chunks) > 2
    found = judge.ask(**case.question())
    assert found == case.expected()
    assert [row[0] for row in found["rows"]] == [7, 8, 10, 11, 12, 13]


@pytest.mark.parametrize("codec", Codec)
def test_every_flipped_byte_and_every_cut_of_a_data_object_gives_the_same(judge: Judge, codec: Codec):
    case = case_of(codec)
    judge.ask(**case.question())
    refused = 0
    for at in range(len(case.data)):
        damaged = bytearray(case.data)
        damaged[at] ^= 1 << at % 8
        expected = case.expected(data=bytes(damaged))
        found = judge.ask(op="damage", key=DATA, at=at, flip=1 << at % 8)
        assert are_same(found, expected), (at, found, expected)
        refused += "error" in found
        cut = judge.ask(op="damage", key=DATA, at=at)
        assert are_same(cut, expected := case.expected(data=case.data[:at])), (at, cut, expected)
    assert refused == sum(chunk.stored_length for chunk in case.chunks)


@pytest.mark.parametrize("codec", Codec)
def test_every_flipped_byte_and_every_cut_of_a_trailer_gives_the_same(judge: Judge, codec: Codec):
    case = case_of(codec)
    judge.ask(**case.question())
    for at in range(len(case.trailer)):
        damaged = bytearray(case.trailer)
        damaged[at] ^= 1 << at % 8
        expected = case.expected(trailer=bytes(damaged))
        found = judge.ask(op="damage", key=INDEX, at=at, flip=1 << at % 8)
        assert "error" in found
        assert are_same(found, expected), (at, found, expected)
        cut = judge.ask(op="damage", key=INDEX, at=at)
        assert are_same(cut, expected := case.expected(trailer=case.trailer[:at])), (at, cut, expected)


@amounts(200, soak=1 << 16, part=9)
@pytest.mark.parametrize("verify", [Verify.CHUNK, Verify.NONE])
@pytest.mark.parametrize("codec", Codec)
def test_fewer_checks_let_the_same_damage_through(judge: Judge, codec: Codec, verify: Verify, amount: int):
    """Bits of both objects are changed, spread over all places. The objects are also cut there."""
    if verify is Verify.NONE and SPARK < (4, 0):
        pytest.skip("its zstd takes a changed bit that the newer one of Python refuses")
    case = case_of(codec)
    judge.ask(**case.question())
    shown, whole = 0, case.expected()["rows"]
    places = [(name, at, bit) for name in (DATA, INDEX) for at in range(len(case.body(name))) for bit in range(8)]
    for name, at, bit in places[:: max(1, len(places) // amount)]:
        flipped = bytearray(case.body(name))
        flipped[at] ^= 1 << bit
        for asked, body in (({"flip": 1 << bit}, bytes(flipped)), ({}, case.body(name)[:at])):
            part = {"data": body} if name == DATA else {"trailer": body}
            found = judge.ask(op="damage", key=name, at=at, verify=verify.name, **asked)
            expected = case.expected(**part, verify=verify)
            assert are_same(found, expected), (name, at, bit, found, expected)
            shown += "rows" in found and found["rows"] != whole
    assert shown == 0 or verify is Verify.NONE
    assert shown > 0 or verify is Verify.CHUNK or codec is Codec.ZSTD


def _with_chunk(case: Case, number: int, stored: bytes, raw_length: int | None = None) -> Case:
    """Return a case of one chunk with other bytes, under a checksum that fits them."""
    chunk = case.chunks[number]
    changed = replace(
        chunk,
        offset=0,
        stored_length=len(stored),
        raw_length=len(stored) if case.codec is Codec.NONE else raw_length or chunk.raw_length,
        xxh3=xxh3_64_intdigest(stored),
    )
    refs = decode_directory(case.trailer, len(case.chunks), INDEX, 0)
    piece = case.trailer[refs[number].offset : refs[number].offset + refs[number].stored_length]
    lengths = decode_lengths(piece, refs[number], chunk, INDEX, 0)
    return Case(stored, encode_trailer([lengths]), (changed,), case.codec)


def _stored(case: Case, number: int) -> bytes:
    chunk = case.chunks[number]
    return case.data[chunk.offset : chunk.offset + chunk.stored_length]


@pytest.mark.parametrize("codec", Codec)
def test_damage_behind_a_chunks_checksum_gives_the_same(judge: Judge, codec: Codec):
    """Each byte of each chunk is changed in three ways. The chunk's checksum then fits, so later checks decide."""
    case = case_of(codec)
    reasons = set()
    for number in range(len(case.chunks)):
        stored = _stored(case, number)
        for at in range(len(stored)):
            for flip in (1 << at % 8, 0x80, 0xFF):
                damaged = bytearray(stored)
                damaged[at] ^= flip
                changed = _with_chunk(case, number, bytes(damaged))
                found, expected = judge.ask(**changed.question()), changed.expected()
                assert are_same(found, expected), (number, at, flip, found, expected)
                if "error" in found:
                    reasons.add(found["error"][1].rpartition(" has ")[2])
    if codec is Codec.NONE:
        assert {"another entry length", "another entry id", "lengths that contradict each other"} <= reasons


def test_damage_behind_a_records_checksum_gives_the_same(judge: Judge):
    """Each byte of a record is changed, and its checksum and the chunk's fit. So only places and texts decide."""
    case = case_of(Codec.NONE)
    [lengths] = [_lengths(case, 0)]
    stored = _stored(case, 0)
    end = 12 + int(lengths[0])
    for at in range(end - 8):
        for flip in (1 << at % 8, 0xFF):
            damaged = bytearray(stored)
            damaged[at] ^= flip
            damaged[end - 8 : end] = xxh3_64_intdigest(bytes(damaged[12 : end - 8])).to_bytes(8, "little")
            changed = _with_chunk(case, 0, bytes(damaged))
            found, expected = judge.ask(**changed.question()), changed.expected()
            assert are_same(found, expected), (at, flip, found, expected)


def _lengths(case: Case, number: int) -> np.ndarray:
    ref = decode_directory(case.trailer, len(case.chunks), INDEX, 0)[number]
    stored = case.trailer[ref.offset : ref.offset + ref.stored_length]
    return decode_lengths(stored, ref, case.chunks[number], INDEX, 0)


def test_odd_frames_of_zstd_give_the_same(judge: Judge):
    case = case_of(Codec.ZSTD)
    stored = _stored(case, 0)
    raw = zstandard.ZstdDecompressor().decompress(stored)
    empty = zstandard.ZstdCompressor().compress(b"")
    skippable = bytes.fromhex("502a4d1804000000") + b"skip"
    unknown = zstandard.ZstdCompressor(write_content_size=False).compress(raw)
    for odd in (
        stored + b"\x00",
        stored + empty,
        stored + skippable,
        skippable + stored,
        skippable,
        empty,
        unknown,
        b"",
        stored[:-1],
        stored[:5],
        zstandard.ZstdCompressor().compress(raw + b"more"),
        zstandard.ZstdCompressor().compress(raw[:-1]),
        zstandard.ZstdCompressor(level=19, write_checksum=True).compress(raw),
    ):
        changed = _with_chunk(case, 0, odd)
        found, expected = judge.ask(**changed.question()), changed.expected()
        assert are_same(found, expected), (odd, found, expected)


def test_odd_entry_lengths_give_the_same(judge: Judge):
    case = case_of(Codec.NONE)
    chunk = case.chunks[0]
    lengths = _lengths(case, 0).tolist()
    assert len(lengths) > 2
    for odd in (
        lengths[:-1],
        [*lengths, 42],
        [lengths[0] + 1, lengths[1] - 1, *lengths[2:]],
        [41, sum(lengths[:2]) - 41, *lengths[2:]],
        [2**32 - 1, *lengths[1:]],
        [0, lengths[0] + lengths[1], *lengths[2:]],
    ):
        trailer = encode_trailer([np.array(odd, dtype=np.uint32)])
        changed = Case(_stored(case, 0), trailer, (replace(chunk, offset=0),), Codec.NONE)
        found, expected = judge.ask(**changed.question()), changed.expected()
        assert "error" in found
        assert are_same(found, expected), (odd, found, expected)


@pytest.mark.parametrize(
    "text",
    ["a", "\u00fc", "\u20ac", "\ud7ff", "\ue000", "\U00010000", "\U0010ffff", "abc\u00fcdef"],
)
def test_whole_texts_are_texts_and_their_cut_or_changed_forms_give_the_same(judge: Judge, text: str):
    tag = text.encode()
    odd = [tag, *(tag[:cut] for cut in range(len(tag))), tag + b"\x80", b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80"]
    odd += [b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xff", b"\xc3(", b"\xe2\x82("]
    for body in odd:
        frames = frames_of_samples([Sample(b"v", "t" * len(body))])
        made = encode_object(frames, Codec.NONE)
        index = decode_head(made.index.body, INDEX)
        case = Case(made.data, made.index.body[made.index.head_length :], index.chunks, Codec.NONE)
        stored = bytearray(_stored(case, 0))
        stored[46 : 46 + len(body)] = body
        stored[-8:] = xxh3_64_intdigest(bytes(stored[12:-8])).to_bytes(8, "little")
        stored[4:12] = bytes(8)
        changed = _with_chunk(case, 0, bytes(stored))
        question = changed.question()
        question["piece"].update(segment_first_seq=1, first=1, last=1)
        found = judge.ask(**question)
        assert ("error" in found) == (not _is_utf8(body)), (body, found)


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
