"""Decoding many frames at once gives the same result as decoding them one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.errors import InvalidFrame
from seglog.format.frame import HAS_TAG, FrameType, encode, read_header
from seglog.format.frames import gathered, joined_headers, read_frames, scatter, take_apart

values = st.lists(st.binary(max_size=80), min_size=1, max_size=20)


def frame(seq: int, data: bytes = b"", kind: FrameType = FrameType.APPEND, tag: bytes = b"") -> bytes:
    return encode(kind, topic_id=7, seq=seq, ts_ms=seq, data=data, tag=tag, flags=HAS_TAG if tag else 0)


def frames_of(data: list[bytes]) -> list[bytes]:
    return [frame(seq, one, tag=b"eu" if seq % 3 == 0 else b"") for seq, one in enumerate(data, 1)]


@given(values)
def test_frames_come_back_whole_and_in_parts(data: list[bytes]) -> None:
    whole = frames_of(data)
    frames = take_apart(whole)
    assert list(frames) == whole
    assert (len(frames), frames.size_bytes) == (len(whole), sum(map(len, whole)))
    assert frames.headers.tolist() == [tuple(read_header(one)) for one in whole]
    assert frames.bodies == [one[4:-8] for one in whole]
    assert frames.checksums.tolist() == [int.from_bytes(one[-8:], "little") for one in whole]


@given(values, st.data())
def test_a_part_is_what_it_would_be_alone(data: list[bytes], drawn: st.DataObject) -> None:
    whole = frames_of(data)
    stop = drawn.draw(st.integers(1, len(whole)))
    start = drawn.draw(st.integers(0, stop - 1))
    part, alone = take_apart(whole).part(start, stop), take_apart(whole[start:stop])
    assert list(part) == list(alone) == whole[start:stop]
    assert part.bodies == alone.bodies
    assert part.size_bytes == alone.size_bytes
    both = joined_headers([take_apart(whole).part(0, start), part] if start else [part])
    assert both.tolist() == take_apart(whole[:stop]).headers.tolist()


class Noted(bytes):
    """A buffer that counts the pieces that are cut out of it one by one."""

    cuts = 0

    def __getitem__(self, key: Any) -> Any:
        self.cuts += 1
        return super().__getitem__(key)


@pytest.mark.parametrize(("last", "cuts"), [(b"x" * 20, 0), (b"x" * 21, 100)], ids=["one length", "two lengths"])
def test_bodies_of_one_length_are_cut_at_once(last: bytes, cuts: int) -> None:
    frames_before = [frame(seq, b"x" * 20) for seq in range(1, 100)]
    whole = [b"another", *frames_before, frame(100, last), b"and another"]
    ends = np.cumsum([*map(len, whole)])
    starts = ends - [*map(len, whole)]
    buffer = Noted(b"".join(whole))
    frames = read_frames(buffer, starts[1:-1], ends[1:-1])
    assert frames is not None
    assert frames.bodies == [one[4:-8] for one in whole[1:-1]]
    assert buffer.cuts == cuts


def test_no_flipped_bit_passes_among_frames_of_one_length() -> None:
    whole = [frame(seq, b"x") for seq in range(1, 5)]
    body = b"".join(whole)
    starts = np.arange(4) * len(whole[0])
    for place in range(len(body)):
        damaged = bytearray(body)
        damaged[place] ^= 1 << place % 8
        assert read_frames(bytes(damaged), starts, starts + len(whole[0])) is None


def test_no_flipped_bit_and_no_cut_passes() -> None:
    whole = frames_of([b"one", b"two", b"three"])
    body = b"".join(whole)
    ends = np.cumsum([*map(len, whole)])
    starts = ends - [*map(len, whole)]
    assert read_frames(body, starts, ends) is not None
    for place in range(len(body)):
        damaged = bytearray(body)
        damaged[place] ^= 1 << place % 8
        assert read_frames(bytes(damaged), starts, ends) is None
        assert read_frames(body[:place], starts, ends) is None


@pytest.mark.parametrize(
    "second",
    [
        frame(2, kind=FrameType.DELETE),
        frame(2, b"abc")[:-1],
        frame(2) + b"\0",
        frame(2)[:40],
        frame(2) + frame(3),
        b"",
    ],
)
def test_what_is_not_one_sound_append_is_refused(second: bytes) -> None:
    with pytest.raises(InvalidFrame):
        take_apart([frame(1), second, frame(4)])


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=9), st.integers(0, 7))
def test_what_is_scattered_is_gathered(numbers: list[int], gap: int) -> None:
    values = np.array(numbers, "<u4")
    places = np.arange(len(numbers)) * (4 + gap) + gap
    buffer = bytearray(b"\xaa" * ((4 + gap) * len(numbers) + gap))
    before = bytes(buffer)
    scatter(values, buffer, places)
    assert gathered(bytes(buffer), values.dtype, places).tolist() == numbers
    written = {place + byte for place in places.tolist() for byte in range(4)}
    assert all(buffer[at] == before[at] for at in range(len(buffer)) if at not in written)
