"""Fewer and cleaner objects in the remote: `seglog compact`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

from offload.errors import InvalidParameters
from offload.operations.directory import Directory
from offload.operations.parameters import About
from offload.operations.preview import WouldTake, check_meant, would
from offload.operations.results import HIDDEN

__all__ = ["NothingRewritten", "Rewritten", "compact"]


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


def compact(
    place: Directory,
    topic: Annotated[str | None, About("TOPIC or TOPIC@BRANCH.", is_argument=True, names="topic")] = None,
    every: Annotated[bool, About("Every topic of this data directory.", "--all")] = False,
    erase: Annotated[bool, About("Rewrite the objects that hold deleted records instead.")] = False,
    message: Annotated[str, About("With --erase: why. The commit keeps it.", "-m --message")] = "",
    dry_run: Annotated[bool, About("With --erase: show what would go, and change nothing.")] = False,
    yes: Annotated[bool, About("With --erase: do it without a question.")] = False,
) -> Iterator[Rewritten | NothingRewritten | WouldTake]:
    """Merge the small objects that frequent offloads leave in the remote, with a commit. No past state changes.

    With --erase, rewrite each object that holds deleted records without them. GC deletes the old object when the window
    has passed. `log` shows until when.

    The settings merge_below_bytes and merge_count say which objects are small, and how many of them make a merge.
    """
    if (topic is None) == (not every):
        raise InvalidParameters("name a TOPIC, or give --all")
    if erase:
        what = "every topic" if topic is None else topic
        check_meant(f"this erases the deleted records of {what} from the remote", yes=yes, dry_run=dry_run)
    elif dry_run or message:
        raise InvalidParameters("--dry-run and -m go with --erase")
    archive = place.archive
    for name in place.log.topics() if topic is None else [topic]:
        if dry_run:
            yield would("compact --erase", name, archive.previews.erasure(name))
            continue
        total_bytes = archive.upkeep.bytes_to_rewrite(name, erase=erase)
        with place.host.progress(f"compact {name}", total_bytes) as advance:
            published = (
                archive.upkeep.erase(name, message=message, on_bytes=advance)
                if erase
                else archive.upkeep.compact(name, on_bytes=advance)
            )
        for each in published:
            segment = each.segment
            assert segment is not None  # noqa: S101 - a merge has one
            yield Rewritten(name, each.lsn, segment.first_seq, segment.last_seq, segment.data_length)
        if not published:
            yield NothingRewritten(name)
