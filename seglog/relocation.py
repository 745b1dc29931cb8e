"""Which sealed segments leave the hot tier, and how one does so that no crash loses it.

    state    what is true                                        step that follows
    HOT      the hot copy is whole; in cold there may be a part  copy: put, and read back every byte
    COPIED   both are whole and equal                            flip: the pointer says cold, durably
    FLIPPED  the pointer says cold                               delete the hot copy
    COLD     the hot copy is gone, or half of it is              -

A crash leaves one of these states, `relocate` finds out which, and goes on from there.

M1  The hot copy goes only after the pointer is durable, and the pointer is flipped only after a read-back.
M2  The pointer belongs to whoever keeps the topic's metadata: `flip` is theirs, makes it durable, and may be called
    again for a segment that has it already.
M3  While a segment is on its way, nobody changes flags in its idx: whoever flags holds off the relocator.

Source: topics engine architecture, section 3.6, and the knobs of its layout section.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from seglog.errors import InvalidSetting, NoSuchSegment, SegmentCut
from seglog.segment import SegmentInfo
from seglog.store import Part, SegmentId, SegmentStore
from seglog.topic_tier import TopicTier, is_whole

__all__ = ["HotRetention", "relocate", "to_relocate"]

_COMPARE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class HotRetention:
    """How many of the newest sealed segments stay hot, and how many bytes of data; the stricter one counts.

    `hot_retain_bytes` 0: no bound by bytes.
    """

    hot_retain_segments: int = 4
    hot_retain_bytes: int = 0

    def __post_init__(self) -> None:
        for key in ("hot_retain_segments", "hot_retain_bytes"):
            if getattr(self, key) < 0:
                raise InvalidSetting(key, f"{getattr(self, key)} is below 0")


def to_relocate(hot: Sequence[SegmentInfo], retention: HotRetention) -> list[SegmentId]:
    """Of a topic's hot segments, ascending, those that have to go, oldest first. The active one stays in any case."""
    sealed = [segment for segment in hot if segment.sealed]
    kept, kept_bytes = 0, 0
    for segment in reversed(sealed):
        kept_bytes += segment.data_bytes
        is_over = retention.hot_retain_bytes and kept_bytes > retention.hot_retain_bytes
        if kept == retention.hot_retain_segments or is_over:
            break
        kept += 1
    return [SegmentId(segment.first_seq) for segment in sealed[: len(sealed) - kept]]


def relocate(tier: TopicTier, segment: SegmentId, flip: Callable[[SegmentId], None]) -> None:
    """From hot to cold, as far as it has not got yet; when it returns, only the cold copy is there.

    Raises `NoSuchSegment` if it is whole in neither, `SegmentCut` if what comes back from cold is not what went there,
    and whatever the stores raise: the hot copy is there then, or the pointer says cold.
    """
    if tier.cold is None:
        raise InvalidSetting("cold", "there is no cold store")
    if is_whole(tier.hot, segment):
        _copy(tier.hot, tier.cold, segment)
    elif not is_whole(tier.cold, segment):
        raise NoSuchSegment(segment)
    flip(segment)
    tier.hot.delete(segment)


def _copy(hot: SegmentStore, cold: SegmentStore, segment: SegmentId) -> None:
    bodies = {part: hot.read_range(segment, part, 0, hot.length(segment, part)) for part in Part}
    if is_whole(cold, segment) and _first_difference(cold, segment, bodies) is None:
        return
    cold.put(segment, bodies[Part.DATA], bodies[Part.IDX])
    difference = _first_difference(cold, segment, bodies)
    if difference is not None:
        part, offset = difference
        raise SegmentCut(segment, part.value, offset, len(bodies[part]))


def _first_difference(store: SegmentStore, segment: SegmentId, bodies: dict[Part, bytes]) -> tuple[Part, int] | None:
    """Where what is stored is not `bodies`, to within a piece."""
    for part, body in bodies.items():
        if store.length(segment, part) != len(body):
            return part, min(store.length(segment, part), len(body))
        for offset in range(0, len(body), _COMPARE_BYTES):
            wanted = body[offset : offset + _COMPARE_BYTES]
            if store.read_range(segment, part, offset, len(wanted)) != wanted:
                return part, offset
    return None
