"""Which sealed segments leave the hot tier, and how one does so that no crash loses it.

    state    what is true                                        step that follows
    HOT      the hot copy is whole; in cold there may be a part  copy: put, and read back every byte
    COPIED   both are whole and equal                            flip: the pointer says cold, durably
    FLIPPED  the pointer says cold                               delete the hot copy
    COLD     the hot copy is gone, or half of it is              -

A crash leaves one of these states, `relocate` finds out which, and goes on from there. What is in cold already is put
once more: that it is seen there does not say that it is durable, only a `put` that returned does.

M1  The hot copy goes only after the pointer is durable, and the pointer is flipped only after a read-back.
M2  The pointer belongs to whoever keeps the topic's metadata: `flip` is theirs. Entered, it has made it durable, or
    raises; until it is left nobody brings the hot copy back. It may be asked again for a segment that has it already.
M4  A hot file is never deleted that is the same file as its copy, by device and inode. Nor is one that a `put` into
    the cold store has replaced: then that store writes into the hot tier, by whatever way. A hot file that is gone
    after the `put` was truncated, evicted or deleted meanwhile: `flip` says so.
M3  Flags in the idx may change on the way: `flip` gets the XXH3-64 of the copied one, and raises if it is another now.

Source: topics engine architecture, section 3.6, and the knobs of its layout section.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias

from xxhash import xxh3_64_intdigest

from seglog.errors import InvalidSetting, NoSuchSegment, SameFile, SegmentCut
from seglog.segments.segment import SegmentInfo
from seglog.tiers.local_store import LocalSegmentStore
from seglog.tiers.segment_store import Part, SegmentId, SegmentStore
from seglog.tiers.topic_tier import TopicTier, is_whole

__all__ = ["Flip", "HotRetention", "relocate", "to_relocate"]

Flip: TypeAlias = Callable[[SegmentId, int], AbstractContextManager[None]]
"""M2 and M3."""

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


def relocate(tier: TopicTier, segment: SegmentId, flip: Flip) -> None:
    """From hot to cold, as far as it has not got yet; when it returns, only the cold copy is there.

    Raises `NoSuchSegment` if it is whole in neither, `SegmentCut` if what comes back from cold is not what went there,
    and whatever the stores raise: the hot copy is there then, or the pointer says cold.
    """
    if tier.cold is None:
        raise InvalidSetting("cold", "there is no cold store")
    if is_whole(tier.hot, segment):
        idx = _copy(tier.hot, tier.cold, segment)
    elif is_whole(tier.cold, segment):
        idx = _read(tier.cold, segment, Part.IDX)
    else:
        raise NoSuchSegment(segment)
    _check_apart(tier, segment)
    with flip(segment, xxh3_64_intdigest(idx)):
        _check_apart(tier, segment)
        tier.hot.delete(segment)


def _check_apart(tier: TopicTier, segment: SegmentId) -> None:
    """M4. Raises `SameFile`. Of a store that is no directory only its bytes are known."""
    hot, cold = tier.hot, tier.cold
    if not isinstance(hot, LocalSegmentStore) or not isinstance(cold, LocalSegmentStore):
        return
    for part in Part:
        found = hot.identity(segment, part)
        if found is not None and found == cold.identity(segment, part):
            raise SameFile(hot.path(segment, part), cold.path(segment, part))


def _identities(store: SegmentStore, segment: SegmentId) -> list[tuple[int, int] | None]:
    return [store.identity(segment, part) for part in Part] if isinstance(store, LocalSegmentStore) else []


def _read(store: SegmentStore, segment: SegmentId, part: Part) -> bytes:
    return store.read_range(segment, part, 0, store.length(segment, part))


def _copy(hot: SegmentStore, cold: SegmentStore, segment: SegmentId) -> bytes:
    """The idx."""
    bodies = {part: _read(hot, segment, part) for part in Part}
    before = _identities(hot, segment)
    cold.put(segment, bodies[Part.DATA], bodies[Part.IDX])
    if any(now not in (None, known) for now, known in zip(_identities(hot, segment), before, strict=True)):
        assert isinstance(hot, LocalSegmentStore)  # noqa: S101 - others have no identities
        raise SameFile(hot.path(segment, Part.DATA), None)
    difference = _first_difference(cold, segment, bodies)
    if difference is not None:
        part, offset = difference
        raise SegmentCut(segment, part.value, offset, len(bodies[part]))
    return bodies[Part.IDX]


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
