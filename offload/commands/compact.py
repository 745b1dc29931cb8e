"""Fewer and cleaner objects in the remote: `seglog compact`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

from offload.commands.directory import Directory
from offload.commands.parameters import About
from offload.commands.results import HIDDEN
from offload.errors import BadParameter

__all__ = ["NothingRewritten", "Rewritten", "check", "compact"]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A new object in the place of others, and its commit."""

    topic: str
    lsn: int
    first_seq: int
    last_seq: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class NothingRewritten:
    topic: str = field(metadata=HIDDEN)


def check(*, topic: str | None, every: bool, **_: object) -> None:
    if (topic is None) == (not every):
        raise BadParameter("name a TOPIC, or give --all")


def compact(
    place: Directory,
    topic: Annotated[str | None, About("TOPIC or TOPIC@BRANCH.")] = None,
    every: Annotated[bool, About("Every topic of this data directory.")] = False,
    erase: Annotated[bool, About("Instead, rid objects of deleted records.")] = False,
) -> Iterator[Rewritten | NothingRewritten]:
    """Merge the small objects that frequent offloads leave in the remote, as a commit; no past state changes.

    With --erase: each object that holds deleted records is put anew without them. The old one goes by GC once the
    window has passed; `log` tells until when.

    What counts as small, and how many make a merge, the settings merge_below_bytes and merge_count say.
    """
    check(topic=topic, every=every)
    archive = place.archive
    for name in place.log.topics() if topic is None else [topic]:
        published = archive.upkeep.erase(name) if erase else archive.upkeep.compact(name)
        for each in published:
            segment = each.segment
            assert segment is not None  # noqa: S101 - a merge has one
            yield Rewritten(name, each.lsn, segment.first_seq, segment.last_seq, segment.data_length)
        if not published:
            yield NothingRewritten(name)
