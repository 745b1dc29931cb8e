from __future__ import annotations

import numpy as np
import pytest
from blake3 import blake3
from pyroaring import BitMap

from catalog.format.commit import Codec
from offload.format.codec import decode_chunk
from offload.format.index import decode_head, decode_ledger_index
from offload.format.trailer import decode_trailer
from tests.golden.make_offload import DIRECTORY, FRAMES, SAMPLES, make
from tests.offload.pulsar_reader import PulsarReader
from tests.offload.samples import frames_of


def golden(codec: Codec) -> tuple[bytes, bytes]:
    name = f"offload_{codec.name.lower()}"
    return (DIRECTORY / f"{name}.data").read_bytes(), (DIRECTORY / f"{name}.index").read_bytes()


@pytest.mark.parametrize("codec", Codec)
def test_old_objects_are_read(codec):
    data, body = golden(codec)
    index = decode_head(body, "golden")
    assert (index.topic, index.first_seq, index.last_seq, index.codec) == ("orders", 1001, 1045, codec)
    assert (index.data_length, index.data_hash) == (len(data), blake3(data).digest())
    found: list[bytes] = []
    for chunk in index.chunks:
        raw = decode_chunk(data[chunk.offset : chunk.offset + chunk.stored_length], chunk, codec, "golden")
        found.extend(frames_of(raw, "golden", chunk.offset))
    assert found == FRAMES


@pytest.mark.parametrize("codec", Codec)
def test_old_trailers_and_bitmaps_are_read(codec):
    _, body = golden(codec)
    index = decode_head(body, "golden")
    head_length = decode_ledger_index(body, "golden").head_length
    lengths = decode_trailer(body[head_length:], index.chunks, "golden", head_length)
    assert np.concatenate(lengths).tolist() == [len(frame) - 4 for frame in FRAMES]
    assert index.tags is not None
    assert set(index.tags) == {"", "eu", "gr\u00fc\u00df"}
    assert list(BitMap.deserialize(index.tags["eu"])) == [n for n, sample in enumerate(SAMPLES) if sample.tag == "eu"]
    assert BitMap(range(45)) - BitMap.deserialize(index.live) == BitMap([4])


def test_codec_none_still_gives_the_same_bytes():
    data, body = golden(Codec.NONE)
    made = make(Codec.NONE)
    assert made.data == data
    assert made.index.body[: made.index.head_length] == body[: made.index.head_length]


def test_pulsars_reader_reads_the_old_object():
    data, body = golden(Codec.NONE)
    assert [entry for _, entry in PulsarReader(body, data).read(0, 44)] == [frame[4:] for frame in FRAMES]
