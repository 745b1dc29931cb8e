"""Choose the sealed segments that leave the hot tier, and move one so that no crash loses it.

    state    facts                                                next step
    HOT      the hot copy is whole; warm may have a part of one   copy: put, and read back every byte
    COPIED   both copies are whole and equal                      flip: the pointer says warm, durably
    FLIPPED  the pointer says warm                                delete the hot copy
    WARM     the hot copy is gone, or half of it is               -

A crash leaves the segment in one of these states. `relocate` finds out which, and continues from there. It puts the
segment again even if the warm store shows it already. A visible segment may not be durable yet: only a `put` that
returned makes it durable.

RELOC-1  The hot copy is deleted only after the pointer is durable. The pointer is flipped only after a read-back.
RELOC-2  The pointer belongs to the module that keeps the topic's metadata, and that module supplies `flip`. When `flip`
    is entered, the pointer is durable, or `flip` raises. Until `flip` is left, no thread brings the hot copy back.
    `relocate` may call `flip` for a segment whose pointer says warm already.
RELOC-3  Flags in the .idx may change during the copy. `flip` gets the XXH3-64 of the copied .idx, and raises if the
    current .idx has another one.
RELOC-4  `relocate` never deletes a hot file that is the same file as its warm copy, by device and inode. It also keeps
    a hot file that a `put` into the warm store has replaced. In that case the store writes into the hot tier by some
    path. If a hot file is gone after the `put`, it was truncated, evicted or deleted meanwhile, and `flip` reports it.

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
"""Flip the pointer of a segment (RELOC-2). The second argument is the XXH3-64 of the copied .idx (RELOC-3)."""

_COMPARE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class HotRetention:
    """How many of the newest sealed segments stay hot, and how many bytes of data. The stricter limit counts.

    `hot_retain_bytes` 0 means no limit by bytes.
    """

    hot_retain_segments: int = 4
    hot_retain_bytes: int = 0

    def __post_init__(self) -> None:
        for key in ("hot_retain_segments", "hot_retain_bytes"):
            if getattr(self, key) < 0:
                raise InvalidSetting(key, f"{getattr(self, key)} is below 0")


def to_relocate(hot: Sequence[SegmentInfo], retention: HotRetention) -> list[SegmentId]:
    """Return the segments that leave the hot tier, oldest first. The active segment always stays.

    `hot` are the topic's hot segments, ascending.
    """
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
    """Move a segment from hot to warm, from the state that it is in. On return, only the warm copy exists.

    Raises `NoSuchSegment` if neither store has it whole. Raises `SegmentCut` if the warm store returns other bytes than
    it got. Raises `SameFile` (RELOC-4), and any error of the stores and of `flip`. After an error, the hot copy exists
    or the pointer says warm.
    """
    if tier.warm is None:
        raise InvalidSetting("log.cold_dir", "there is no warm store")
    if is_whole(tier.hot, segment):
        idx = _copy(tier.hot, tier.warm, segment)
    elif is_whole(tier.warm, segment):
        idx = _read(tier.warm, segment, Part.IDX)
    else:
        raise NoSuchSegment(segment)
    _check_apart(tier, segment)
    with flip(segment, xxh3_64_intdigest(idx)):
        _check_apart(tier, segment)
        tier.hot.delete(segment)


def _check_apart(tier: TopicTier, segment: SegmentId) -> None:
    """Raise `SameFile` if a hot file is the same file as its warm copy (RELOC-4).

    A store that is no directory has only bytes and no file identities, so it is not checked.
    """
    hot, warm = tier.hot, tier.warm
    if not isinstance(hot, LocalSegmentStore) or not isinstance(warm, LocalSegmentStore):
        return
    for part in Part:
        found = hot.identity(segment, part)
        if found is not None and found == warm.identity(segment, part):
            raise SameFile(hot.path(segment, part), warm.path(segment, part))


def _identities(store: SegmentStore, segment: SegmentId) -> list[tuple[int, int] | None]:
    return [store.identity(segment, part) for part in Part] if isinstance(store, LocalSegmentStore) else []


def _read(store: SegmentStore, segment: SegmentId, part: Part) -> bytes:
    return store.read_range(segment, part, 0, store.length(segment, part))


def _copy(hot: SegmentStore, warm: SegmentStore, segment: SegmentId) -> bytes:
    """Put the hot segment into the warm store, read it back, and return its .idx."""
    bodies = {part: _read(hot, segment, part) for part in Part}
    before = _identities(hot, segment)
    warm.put(segment, bodies[Part.DATA], bodies[Part.IDX])
    if any(now not in (None, known) for now, known in zip(_identities(hot, segment), before, strict=True)):
        assert isinstance(hot, LocalSegmentStore)  # noqa: S101 - other stores have no identities
        raise SameFile(hot.path(segment, Part.DATA), None)
    difference = _first_difference(warm, segment, bodies)
    if difference is not None:
        part, offset = difference
        raise SegmentCut(segment, part.value, offset, len(bodies[part]))
    return bodies[Part.IDX]


def _first_difference(store: SegmentStore, segment: SegmentId, bodies: dict[Part, bytes]) -> tuple[Part, int] | None:
    """Return the first part and offset where the stored bytes differ from `bodies`, or None.

    The offset is the start of the piece of `_COMPARE_BYTES` that differs.
    """
    for part, body in bodies.items():
        if store.length(segment, part) != len(body):
            return part, min(store.length(segment, part), len(body))
        for offset in range(0, len(body), _COMPARE_BYTES):
            wanted = body[offset : offset + _COMPARE_BYTES]
            if store.read_range(segment, part, offset, len(wanted)) != wanted:
                return part, offset
    return None
