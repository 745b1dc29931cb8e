"""Frames and whole objects of the size that a test needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from catalog.format.commit import Codec
from offload.format import entry
from offload.format.block import BlockBuilder
from offload.format.encoder import SegmentEncoder, SegmentSummary
from offload.format.index import IndexObject, encode_index
from seglog.format.frame import DELETED, HAS_NODE, HAS_TAG, FrameType, encode
from seglog.format.frames import Frames, take_apart

TOPIC_ID = 0x7E57
KEY = "volume/segments/sid"


@dataclass(frozen=True, slots=True)
class Sample:
    value: bytes
    tag: str | None = None
    node: str | None = None
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class EncodedObject:
    blocks: tuple[bytearray, ...]
    summary: SegmentSummary
    index: IndexObject

    @property
    def data(self) -> bytes:
        return b"".join(self.blocks)


def frame_of(sample: Sample, seq: int, ts_ms: int) -> bytes:
    flags = (sample.tag is not None) * HAS_TAG | (sample.node is not None) * HAS_NODE | sample.deleted * DELETED
    return encode(
        FrameType.APPEND,
        topic_id=TOPIC_ID,
        seq=seq,
        ts_ms=ts_ms,
        data=sample.value,
        node=(sample.node or "").encode(),
        tag=(sample.tag or "").encode(),
        flags=flags,
    )


def frames_of_samples(
    samples: Iterable[Sample], *, first_seq: int = 1, first_ts_ms: int = 1_700_000_000_000
) -> list[bytes]:
    """Return a frame for each sample. Two records share each millisecond."""
    return [frame_of(sample, first_seq + number, first_ts_ms + number // 2) for number, sample in enumerate(samples)]


def frames_of(raw: bytes | memoryview, key: str, offset: int) -> Iterator[bytes]:
    """Yield the entries of a decoded chunk as whole frames, as the log had them. Raises `InvalidChunk`."""
    for _, data in entry.entries(raw, key, offset):
        yield entry.frame_of(data)


def encode_block(codec: Codec, first_entry_id: int, chunks: list[bytes], block_size: int | None) -> bytearray:
    """Return a whole block, padded to `block_size`; None is for the last block, which has no padding."""
    builder = BlockBuilder(codec, block_size or 0)
    for chunk in chunks:
        builder.add(chunk)
    return builder.end(first_entry_id, last=block_size is None)


def encode_object(
    frames: Sequence[bytes], codec: Codec, *, block_size: int = 1 << 16, chunk_bytes: int = 1 << 10
) -> EncodedObject:
    return encode_frames((take_apart([frame]) for frame in frames), codec, block_size, chunk_bytes)


def encode_frames(
    batches: Iterable[Frames], codec: Codec, block_size: int = 1 << 16, chunk_bytes: int = 1 << 10
) -> EncodedObject:
    encoder = SegmentEncoder(block_size=block_size, codec=codec, chunk_bytes=chunk_bytes)
    blocks = [block for frames in batches for block in encoder.add(frames)]
    last_blocks, summary = encoder.finish()
    index = encode_index(summary, topic="orders", created_at_ms=1_700_000_000_500, software="seglog test")
    return EncodedObject((*blocks, *last_blocks), summary, index)


names = st.none() | st.text(st.characters(codec="utf-8"), max_size=12)
samples = st.builds(Sample, value=st.binary(max_size=300), tag=names, node=names, deleted=st.booleans())
sample_lists = st.lists(samples, min_size=1, max_size=60)
codecs = st.sampled_from(Codec)
