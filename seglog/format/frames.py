"""Batches of frames: verify thousands at once, and split them into arrays.

    frame     length (4)   body, which the checksum is over   checksum (8)
    here      `headers`    `bodies`                           `checksums`

Each body is taken out of the buffer once, to be hashed. offload.format.encoder puts frames together in another way. It
takes the bodies from here instead of taking them out and hashing them again. No I/O: bytes in, bytes out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from xxhash import xxh3_64_digest

from seglog.base.dataclasses import dataclass
from seglog.errors import InvalidFrame
from seglog.format.arrays import NDArray, dtypes, np
from seglog.format.frame import (
    CHECKSUM,
    DELETED,
    FIRST_TYPE,
    HAS_NODE,
    HAS_TAG,
    KNOWN_FLAGS,
    LAST_TYPE,
    LENGTH_BYTES,
    LOST,
    MIN_FRAME_BYTES,
    FrameType,
    read_header,
)

_APPEND = int(FrameType.APPEND)
_OVERHEAD = MIN_FRAME_BYTES - LENGTH_BYTES
_SMALL_BYTES = 640  # a frame


@dataclass(frozen=True, slots=True)
class Frames:
    """Whole, valid frames, in order. Iterating gives each frame as bytes.

    Each frame lies at [start, end) of `buffer`. `headers` has the dtype HEADERS. `checksums` are the ones that the
    frames store.
    """

    buffer: bytes
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    headers: NDArray[Any]
    bodies: Sequence[bytes | memoryview]
    checksums: NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.bodies)

    def __iter__(self) -> Iterator[bytes]:
        buffer = self.buffer
        return iter([buffer[start:end] for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True)])

    @property
    def size_bytes(self) -> int:
        return int((self.ends - self.starts).sum())

    def part(self, start: int, stop: int) -> Frames:
        """Return the frames number `start` to `stop` (exclusive)."""
        if start == 0 and stop == len(self):
            return self
        piece = slice(start, stop)
        return Frames(
            self.buffer,
            self.starts[piece],
            self.ends[piece],
            self.headers[piece],
            self.bodies[piece],
            self.checksums[piece],
        )


def read_frames(buffer: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Frames | None:
    """Return the frames that lie at [start, end) each, or None if one of them is not a whole, valid Append."""
    frames = read_any_frames(buffer, starts, ends)
    return frames if frames is not None and (frames.headers["type"] == _APPEND).all() else None


def read_any_frames(buffer: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Frames | None:
    """Return the frames that lie at [start, end) each, of any type; None if one of them is not whole and valid.

    `read_header` tells which frame is wrong, and why.
    """
    fields = _fields(buffer, starts, ends)
    if fields is None:
        return None
    headers, checksums = fields
    bodies = _bodies(buffer, starts, ends)
    is_sound = (_digests(bodies) == checksums).all()
    return Frames(buffer, starts, ends, headers, bodies, checksums) if is_sound else None


def read_headers(buffer: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[Any] | None:
    """Return only the headers, under the conditions of `read_frames`."""
    headers = read_any_headers(buffer, starts, ends)
    return headers if headers is not None and (headers["type"] == _APPEND).all() else None


def read_any_headers(buffer: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[Any] | None:
    """Return only the headers, under the conditions of `read_any_frames`."""
    fields = _fields(buffer, starts, ends)
    if fields is None:
        return None
    headers, checksums = fields
    return headers if (_digests(_bodies(buffer, starts, ends)) == checksums).all() else None


def _bodies(buffer: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> list[bytes] | list[memoryview]:
    """Return the bodies. A copy of a small body costs less than a view of it.

    If the frames have one length and lie one after the other, one call cuts all bodies out.
    """
    if len(buffer) < _SMALL_BYTES * len(starts):
        step = int(ends[0] - starts[0])
        if (ends - starts == step).all() and (starts[1:] - starts[:-1] == step).all():
            body = np.dtype((np.void, step - LENGTH_BYTES - CHECKSUM.size))
            cut: list[bytes] = np.ndarray(len(starts), body, buffer, int(starts[0]) + LENGTH_BYTES, (step,)).tolist()
            return cut
        return [buffer[start:end] for start, end in _places(starts, ends)]
    view = memoryview(buffer)
    return [view[start:end] for start, end in _places(starts, ends)]


def _places(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    return zip((starts + LENGTH_BYTES).tolist(), (ends - CHECKSUM.size).tolist(), strict=True)


def _digests(bodies: Sequence[bytes | memoryview]) -> NDArray[np.uint64]:
    return np.frombuffer(b"".join(map(xxh3_64_digest, bodies)), dtype=">u8")


def _fields(
    buffer: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[np.uint64]] | None:
    """Return headers and checksums; None if `read_header` would refuse a frame for any reason but its checksum.

    The function checks the fields of many frames as arrays. The caller then verifies the checksums in one pass.
    """
    if (ends - starts < MIN_FRAME_BYTES).any() or starts[0] < 0 or ends.max() > len(buffer):
        return None
    headers = gathered(buffer, dtypes.HEADERS, starts)
    lengths = headers["length"].astype(np.int64)
    kinds, node_lens, tag_lens, flags = headers["type"], headers["node_len"], headers["tag_len"], headers["flags"]
    sound = (
        (kinds >= FIRST_TYPE)
        & (kinds <= LAST_TYPE)
        & (lengths == ends - starts - LENGTH_BYTES)
        & (lengths == headers["data_len"].astype(np.int64) + node_lens + tag_lens + _OVERHEAD)
        & (flags & ~np.uint8(KNOWN_FLAGS) == 0)
        & (flags & (LOST | DELETED) != LOST)
        & ((tag_lens == 0) | (flags & HAS_TAG != 0))
        & ((node_lens == 0) | (flags & HAS_NODE != 0))
    )
    return (headers, gathered(buffer, np.dtype("<u8"), ends - CHECKSUM.size)) if sound.all() else None


def take_apart(pieces: Sequence[bytes]) -> Frames:
    """Return the frames, given as one byte string each, as a batch.

    Raise `InvalidFrame` for the first one that is not a whole, valid Append.
    """
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
    ends = np.cumsum(lengths)
    frames = read_frames(b"".join(pieces), ends - lengths, ends)
    if frames is not None:
        return frames
    for frame in pieces:
        header = read_header(frame)
        if header.type != FrameType.APPEND or header.frame_bytes != len(frame):
            raise InvalidFrame(0, "it is not one Append and nothing else")
    raise AssertionError("one by one, every frame was sound")


def assembled(headers: NDArray[Any], contents: Sequence[bytes]) -> Frames:
    """Return new frames: their headers, and for each its node, tag and data as one byte string.

    The caller fills the headers, except for `length`. It has checked the ranges and flags.
    """
    sizes = np.fromiter(map(len, contents), np.int64, len(contents))
    headers["length"] = sizes + _OVERHEAD
    raw, step = headers.tobytes(), dtypes.HEADERS.itemsize
    places = range(LENGTH_BYTES, len(raw), step)
    bodies = [raw[at : at + step - LENGTH_BYTES] + content for at, content in zip(places, contents, strict=True)]
    starts = np.zeros(len(bodies) + 1, np.int64)
    np.cumsum(sizes + MIN_FRAME_BYTES, out=starts[1:])
    buffer, checksums = framed(bodies, headers["length"])
    return Frames(buffer, starts[:-1], starts[1:], headers, bodies, checksums)


def framed(bodies: Sequence[bytes], lengths: NDArray[Any]) -> tuple[bytes, NDArray[np.uint64]]:
    """Return frames with these bodies and length fields, one after the other, and their checksums."""
    between = np.empty(len(bodies) + 1, dtypes.BETWEEN)
    checksums = _digests(bodies).astype(np.uint64)
    between["checksum"][1:], between["length"][:-1] = checksums, lengths
    parts = [b""] * (2 * len(bodies) + 1)
    parts[::2], parts[1::2] = cast("list[bytes]", between.view(dtypes.RAW_BETWEEN).tolist()), bodies
    parts[0], parts[-1] = parts[0][CHECKSUM.size :], parts[-1][: CHECKSUM.size]
    return b"".join(parts), checksums


def joined_headers(frames: Sequence[Frames]) -> NDArray[Any]:
    """Return the headers of all batches, one after the other."""
    return np.concatenate([batch.headers.view(dtypes.RAW_HEADERS) for batch in frames]).view(dtypes.HEADERS)


def picked_headers(headers: NDArray[Any], indices: NDArray[np.intp]) -> NDArray[Any]:
    """Return the headers at these indices."""
    return headers.view(dtypes.RAW_HEADERS)[indices].view(dtypes.HEADERS)


def gathered(buffer: bytes, kind: np.dtype[Any], places: NDArray[np.int64]) -> NDArray[Any]:
    """Return the values that begin at `places`."""
    # View the buffer as overlapping values, one at every byte. The dtype has no fields: with them it takes ten times
    # as long.
    raw = np.dtype((np.void, kind.itemsize))
    return np.ndarray(len(buffer) - kind.itemsize + 1, raw, buffer, strides=(1,))[places].view(kind)


def scatter(values: NDArray[Any], buffer: bytearray | memoryview, places: NDArray[np.int64]) -> None:
    """Write each value into `buffer` at its place: the inverse of `gathered`."""
    raw = np.dtype((np.void, values.itemsize))
    np.ndarray(len(buffer) - values.itemsize + 1, raw, buffer, strides=(1,))[places] = values.view(raw)
