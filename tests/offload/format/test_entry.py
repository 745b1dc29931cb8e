from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.format.commit import Codec
from offload.errors import InvalidChunk
from offload.format.entry import ENTRY, entries, entry_head
from seglog.format.frame import HEADER
from tests.offload.samples import Sample, encode_object, frames_of, frames_of_samples, sample_lists


def raw_of(samples: list[Sample]) -> bytes:
    [block] = encode_object(frames_of_samples(samples), Codec.NONE, chunk_bytes=1 << 20).blocks
    return block[128:]


def test_the_head_of_an_entry_is_the_one_that_the_docstring_tells():
    fixed = [("length", 0), ("entry_id", 4), ("type", 12), ("flags", 13), ("topic_id", 14), ("seq", 22), ("ts_ms", 30)]
    fixed += [("node_len", 38), ("tag_len", 40), ("data_len", 42)]
    head = entry_head()
    assert [(name, head.fields[name][1]) for name in head.names] == fixed
    assert head.itemsize == 46 == ENTRY.size + HEADER.size - 4


@given(sample_lists)
def test_entries_are_the_frames_without_their_length_field(samples):
    raw = raw_of(samples)
    frames = frames_of_samples(samples)
    assert [(entry_id, bytes(data)) for entry_id, data in entries(raw, "k", 128)] == [
        (number, frame[4:]) for number, frame in enumerate(frames)
    ]
    assert list(frames_of(raw, "k", 128)) == frames


def test_every_truncation_is_an_error_with_the_place_or_a_whole_number_of_entries():
    raw = raw_of([Sample(b"a", "t", "n"), Sample(b""), Sample(b"ccc")])
    ends = {0}
    for _, data in entries(raw, "k", 128):
        ends.add(max(ends) + ENTRY.size + len(data))
    for length in range(len(raw)):
        if length in ends:
            assert len(list(entries(raw[:length], "k", 128))) == sorted(ends).index(length)
            continue
        with pytest.raises(InvalidChunk) as cut:
            list(entries(raw[:length], "k", 128))
        assert (cut.value.key, cut.value.offset, cut.value.exit_code) == ("k", 128, 5)


@given(st.binary(max_size=400))
def test_random_bytes_are_entries_or_an_error(raw):
    with contextlib.suppress(InvalidChunk):
        assert sum(ENTRY.size + len(data) for _, data in entries(raw, "k", 0)) == len(raw)
