"""The segments that a state of a topic has in the remote: `seglog segments`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from offload.operations.parameters import About, TopicName

if TYPE_CHECKING:
    from offload.archive import Archive

__all__ = ["SegmentShown", "segments"]


@dataclass(frozen=True, slots=True)
class SegmentShown:
    """A segment of a state: the seqs that the state has of it, and the commit that added it. `volume` has its objects.

    `data_bytes` is the size of its data object. A fork may have only a part of it.
    """

    topic: str
    sid: str
    volume: str
    lsn: int
    first_seq: int
    last_seq: int
    data_bytes: int


def segments(
    archive: Archive,
    topic: TopicName,
    at: Annotated[
        str | None,
        About("As it was then: seq:N, lsn:N, head, head~N, tag:NAME, or a time. Now without it.", names="target"),
    ] = None,
) -> Iterator[SegmentShown]:
    """List the segments of a topic in the remote, or of a past state of it, by seq.

    Example: seglog segments orders --at head~1
    """
    for view in archive.history.snapshot(topic, at).segments:
        yield SegmentShown(
            topic, str(view.ref.sid), str(view.vid), view.lsn, view.first, view.last, view.ref.data_length
        )
