"""The two objects of a segment, as the judge gets them, and what the Python decoders make of them."""

from __future__ import annotations

import base64
import re
import struct
from typing import Any

import numpy as np

from catalog.errors import InvalidObject
from catalog.format.commit import Codec
from offload.errors import FormatUnsupported, ObjectDamaged
from offload.format.block import ChunkRef
from offload.format.codec import decode_chunk
from offload.format.columns import decode_columns
from offload.format.index import decode_head
from offload.format.trailer import decode_directory, decode_lengths
from offload.spark.options import Verify
from seglog.format.frame import DELETED
from tests.offload.samples import TOPIC_ID, EncodedObject, Sample, encode_object, frames_of_samples

__all__ = ["DATA", "FIRST_SEQ", "INDEX", "SAMPLES", "Case", "are_same", "b64", "case_of", "encoded"]

DATA, INDEX = "v/segments/sid", "v/segments/sid.index"
FIRST_SEQ = 7
_ZSTD = re.compile("decompression error|unused data|content size")
_CHUNK = struct.Struct(">IQIIQIqqQ")
SAMPLES = [
    Sample(b"value 0", "eu", "n1"),
    Sample(b""),
    Sample(b"", deleted=True),
    Sample(b"\x00\xff" * 20, "gr\u00fc\u00df", ""),
    Sample(b"v" * 90, "", "\U0001f600"),
    Sample(b"value 5", None, "n"),
    Sample(b"x" * 30, "us"),
]


def b64(body: bytes) -> str:
    return base64.b64encode(body).decode()


def encoded(codec: Codec) -> EncodedObject:
    frames = frames_of_samples(SAMPLES, first_seq=FIRST_SEQ)
    return encode_object(frames, codec, block_size=700, chunk_bytes=200)


class Case:
    """The bytes of both objects, and the chunk table that a plan would have. The trailer is all of the index."""

    def __init__(self, data: bytes, trailer: bytes, chunks: tuple[ChunkRef, ...], codec: Codec) -> None:
        self.data = data
        self.trailer = trailer
        self.chunks = chunks
        self.codec = codec

    def question(self) -> dict[str, Any]:
        packed = b"".join(
            _CHUNK.pack(
                number,
                chunk.offset,
                chunk.stored_length,
                chunk.raw_length,
                chunk.first_seq,
                chunk.count,
                chunk.min_ts_ms,
                chunk.max_ts_ms,
                chunk.xxh3,
            )
            for number, chunk in enumerate(self.chunks)
        )
        piece = {
            "topic": "orders",
            "topic_id": TOPIC_ID,
            "lsn": 1,
            "segment": "sid",
            "data": DATA,
            "index": INDEX,
            "codec": self.codec.name.lower(),
            "block_size": 700,
            "segment_first_seq": FIRST_SEQ,
            "first": FIRST_SEQ,
            "last": self.chunks[-1].last_seq,
            "rows": 0,
            "chunks": b64(packed),
            "chunk_count": len(self.chunks),
            "trailer_offset": 0,
            "trailer_length": len(self.trailer),
            "hidden": None,
            "filters": [],
            "needs": "data",
        }
        return {"op": "objects", "piece": piece, "data": b64(self.data), "index": b64(self.trailer)}

    def body(self, name: str) -> bytes:
        return self.data if name == DATA else self.trailer

    def expected(
        self, data: bytes | None = None, trailer: bytes | None = None, verify: Verify = Verify.RECORD
    ) -> dict[str, Any]:
        """Return what the Python decoders make of these bytes, as the judge would say it."""
        data = self.data if data is None else data
        trailer = self.trailer if trailer is None else trailer
        try:
            return {"rows": self._rows(data, trailer, verify)}
        except (FormatUnsupported, InvalidObject, ObjectDamaged) as error:
            return {"error": [type(error).__name__, str(error)]}

    def _rows(self, data: bytes, trailer: bytes, verify: Verify) -> list[list[Any]]:
        if len(trailer) < len(self.trailer):
            raise InvalidObject(INDEX, f"it ends at byte {len(trailer)}, {len(self.trailer)} were expected")
        refs = decode_directory(trailer, len(self.chunks), INDEX, 0)
        for chunk in self.chunks:
            end = chunk.offset + chunk.stored_length
            if end > len(data):
                run = [one for one in self.chunks if one.offset // 700 == chunk.offset // 700]
                ends = max(run[0].offset, len(data))
                expected = run[-1].offset + run[-1].stored_length
                raise InvalidObject(DATA, f"it ends at byte {ends}, {expected} were expected")
        rows: list[list[Any]] = []
        for chunk, ref in zip(self.chunks, refs, strict=True):
            stored = data[chunk.offset : chunk.offset + chunk.stored_length]
            raw = decode_chunk(stored, chunk, self.codec, DATA, check=verify is not Verify.NONE)
            lengths = decode_lengths(trailer[ref.offset : ref.offset + ref.stored_length], ref, chunk, INDEX, 0)
            are_checked = verify is Verify.RECORD
            columns = decode_columns(raw, lengths, chunk, FIRST_SEQ, TOPIC_ID, DATA, check_records=are_checked)
            wanted = np.flatnonzero(columns.flags & DELETED == 0)
            labels = (columns.node(wanted).to_pylist(), columns.tag(wanted).to_pylist())
            values = columns.value(wanted).to_pylist()
            for number, row in enumerate(wanted.tolist()):
                texts = [None if label[number] is None else b64(label[number].encode()) for label in labels]
                rows.append([int(columns.seq[row]), int(columns.ts_ms[row]), *texts, b64(values[number])])
        return rows


def case_of(codec: Codec) -> Case:
    made = encoded(codec)
    index = decode_head(made.index.body, INDEX)
    return Case(made.data, made.index.body[made.index.head_length :], index.chunks, codec)


def are_same(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Compare two answers. If zstd refuses a frame, both sides choose their own words."""
    if "error" in found and "error" in expected:
        (kind, text), (other_kind, other_text) = found["error"], expected["error"]
        if _ZSTD.search(text) and _ZSTD.search(other_text):
            text, other_text = (one.partition(": ")[0] for one in (text, other_text))
        return (kind, text) == (other_kind, other_text)
    return found == expected
