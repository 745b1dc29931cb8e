"""The decoders of bytes from object storage, as functions of any bytes.

For valid bytes a target returns. For other bytes it raises an error with a place: `ObjectDamaged` with key and offset,
or `FormatUnsupported` with the key. Any other error is a fault of seglog. The targets make the checksums fit, so that
the bytes reach the code behind the checks.

`tests.offload.fuzz` runs one under a coverage-guided fuzzer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from blake3 import blake3
from pyroaring import BitMap
from xxhash import xxh3_64_intdigest

from catalog.format.commit import Codec
from offload.errors import FormatUnsupported, ObjectDamaged
from offload.format.block import BLOCK_HEADER_LENGTH, decode_block_header
from offload.format.codec import decode_chunk
from offload.format.index import decode_head, decode_ledger_index
from offload.format.metadata import decode_bitmap
from offload.format.streamed import decode_streamed_block_header, decode_streamed_index
from offload.format.trailer import decode_directory, decode_lengths, decode_trailer
from offload.read.cold_reader import records_of_chunk
from tests.offload.samples import KEY, TOPIC_ID, EncodedObject, Sample, encode_object, frames_of_samples

__all__ = ["SEEDS", "TARGETS", "run"]


@functools.cache
def _made(codec: Codec) -> EncodedObject:
    samples = [
        Sample(b"value %d" % number, tag=["eu", "us", None][number % 3], node="n" if number % 5 else None)
        for number in range(60)
    ]
    return encode_object(frames_of_samples(samples), codec, block_size=2_500, chunk_bytes=400)


def block_header(data: bytes) -> None:
    decode_block_header(data, KEY, 7)


def streamed_block_header(data: bytes) -> None:
    decode_streamed_block_header(data, KEY, 7)


def index_object(data: bytes) -> None:
    decode_ledger_index(data, KEY)
    decode_head(data, KEY, blake3(data).digest())


def index_bitmaps(data: bytes) -> None:
    index = decode_head(_made(Codec.NONE).index.body, KEY)
    bitmap = decode_bitmap(data, index, KEY)
    # The decoded bitmap must be safe to use.
    len(bitmap & BitMap(range(index.count)))
    len(bitmap | BitMap(range(index.count)))
    list(bitmap)


def streamed_index(data: bytes) -> None:
    decode_streamed_index(data, KEY)


def trailer(data: bytes) -> None:
    decode_trailer(data, _made(Codec.ZSTD).summary.chunks, KEY, 9)


def trailer_directory(data: bytes) -> None:
    decode_directory(data, len(_made(Codec.ZSTD).summary.chunks), KEY, 9)


def entry_lengths(data: bytes) -> None:
    made = _made(Codec.ZSTD)
    at, body = made.index.head_length, made.index.body
    ref = decode_directory(body[at:], len(made.summary.chunks), KEY, at)[0]
    fitting = replace(ref, stored_length=len(data), xxh3=xxh3_64_intdigest(data))
    decode_lengths(data, fitting, made.summary.chunks[0], KEY, at)


def chunk_none(data: bytes) -> None:
    _chunk(data, Codec.NONE)


def chunk_zstd(data: bytes) -> None:
    _chunk(data, Codec.ZSTD)


def _chunk(data: bytes, codec: Codec) -> None:
    first = _made(codec).summary.chunks[0]
    raw_length = len(data) if codec is Codec.NONE else first.raw_length
    chunk = replace(first, stored_length=len(data), raw_length=raw_length, xxh3=xxh3_64_intdigest(data))
    raw = decode_chunk(data, chunk, codec, KEY)
    for _ in records_of_chunk(raw, chunk, TOPIC_ID, KEY, chunk.first_seq, chunk.last_seq):
        pass


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    target.__name__: target
    for target in (
        block_header,
        chunk_none,
        chunk_zstd,
        entry_lengths,
        index_bitmaps,
        index_object,
        streamed_block_header,
        streamed_index,
        trailer,
        trailer_directory,
    )
}


def _seeds() -> Mapping[str, tuple[bytes, ...]]:
    none, packed = _made(Codec.NONE), _made(Codec.ZSTD)
    whole, heads, trailers = [], [], []
    for made in (none, packed):
        whole.append(made.index.body)
        heads.append(made.index.body[: made.index.head_length])
        trailers.append(made.index.body[made.index.head_length :])
    index = decode_head(packed.index.body, KEY)
    refs = decode_directory(trailers[1], len(packed.summary.chunks), KEY, 0)
    chunks = {
        codec: tuple(made.data[chunk.offset : chunk.offset + chunk.stored_length] for chunk in made.summary.chunks[:2])
        for codec, made in ((Codec.NONE, none), (Codec.ZSTD, packed))
    }
    golden = {path.name: path.read_bytes() for path in (Path(__file__).parents[1] / "golden").glob("pulsar_v*")}
    headers = (none.data[:BLOCK_HEADER_LENGTH], packed.data[:BLOCK_HEADER_LENGTH])
    dense, runs = BitMap(range(0, 60, 2)), BitMap(range(10, 50))
    runs.run_optimize()
    return {
        "block_header": headers,
        "chunk_none": chunks[Codec.NONE],
        "chunk_zstd": chunks[Codec.ZSTD],
        "entry_lengths": (trailers[1][refs[0].offset : refs[0].offset + refs[0].stored_length],),
        "index_bitmaps": (index.live, *(index.tags or {}).values(), dense.serialize(), runs.serialize()),
        "index_object": (
            golden["pulsar_v1.index"],
            *whole,
            *(made.index.body[: made.index.head_length] for made in (none, packed)),
        ),
        "streamed_block_header": (golden["pulsar_v2.data"][:BLOCK_HEADER_LENGTH],),
        "streamed_index": (golden["pulsar_v2.index"],),
        "trailer": tuple(trailers),
        "trailer_directory": tuple(trailers),
    }


SEEDS = _seeds()


def run(name: str, data: bytes) -> bool:
    """Return True if the target accepts the data. Raise an error for a fault of seglog."""
    try:
        TARGETS[name](data)
    except ObjectDamaged as error:
        if error.key != KEY or error.offset < 0:
            raise AssertionError(f"not located: {error}") from error
        return False
    except FormatUnsupported as error:
        if error.key != KEY:
            raise AssertionError(f"not located: {error}") from error
        return False
    return True
