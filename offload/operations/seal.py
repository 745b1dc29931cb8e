"""Close the segment that is being written: `seglog seal`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from offload.operations.parameters import TopicName

if TYPE_CHECKING:
    from seglog import Log

__all__ = ["Sealed", "seal"]


@dataclass(frozen=True, slots=True)
class Sealed:
    """`segments` counts the sealed segments on this disk."""

    topic: str
    sealed_seq: int
    segments: int


def seal(log: Log, topic: TopicName) -> Sealed:
    """Seal the newest segment, so that all records so far can be offloaded."""
    handle = log.get_topic(topic)
    handle.seal()
    segments = [segment for segment in handle.segments() if segment.sealed]
    return Sealed(topic, handle.sealed_seq, len(segments))
