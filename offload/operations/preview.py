"""Show what a command would take away: the result of `--dry-run`, and the text before the question."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from offload.errors import InvalidParameters
from offload.moment import Moment
from offload.operations.directory import Directory

if TYPE_CHECKING:
    from offload.services.previews import Preview

__all__ = ["WouldTake", "check_meant", "would", "would_take"]


@dataclass(frozen=True, slots=True)
class WouldTake:
    """Records that `command` would take away, of about `of_records` live ones.

    `bytes` is about the size of the records. `deletes` counts local deletes that would go as well. `shown_by` are the
    branches and tags that would still show some of the records, or keep the objects of an erasure.
    """

    topic: str
    command: str
    records: int
    of_records: int
    bytes: int
    first_seq: int | None
    last_seq: int | None
    first_time: Moment | None
    last_time: Moment | None
    deletes: int
    shown_by: tuple[str, ...]

    @property
    def is_most(self) -> bool:
        """Return whether more than half of the records would go."""
        return 2 * self.records > self.of_records


def check_meant(what: str, *, yes: bool, dry_run: bool) -> None:
    """Raise `InvalidParameters` if the caller gives neither --yes nor --dry-run."""
    if not yes and not dry_run:
        raise InvalidParameters(f"{what}; say --yes to do it, or --dry-run to see what would go")


def would_take(
    place: Directory,
    command: str,
    topic: str,
    *,
    start: int = 1,
    before: int | None = None,
    tag: str | None = None,
    age_ms: int | None = None,
) -> WouldTake:
    """Return the preview for the records from `start` on, below `before`, with the tag, older than `age_ms`."""
    from offload.services.previews import preview_here

    archive = place.maybe_archive
    oldest_ms = None if age_ms is None else max(0, int(time.time() * 1000) - age_ms)
    if archive is None:
        handle = place.log.get_topic(topic)
        before = before if oldest_ms is None else handle.seq_at(oldest_ms)
        return would(command, topic, preview_here(handle, start, before, tag))
    before = before if oldest_ms is None else archive.previews.seq_at(topic, oldest_ms)
    return would(command, topic, archive.previews.removal(topic, start=start, before=before, tag=tag))


def would(command: str, topic: str, found: Preview) -> WouldTake:
    """Return the result of `--dry-run`."""
    going = found.going
    first, last = going.first or (None, None), going.last or (None, None)
    return WouldTake(
        topic=topic,
        command=command,
        records=going.records,
        of_records=found.of_records,
        bytes=going.size_bytes,
        first_seq=first[0],
        last_seq=last[0],
        first_time=None if first[1] is None else Moment(first[1]),
        last_time=None if last[1] is None else Moment(last[1]),
        deletes=found.deletes,
        shown_by=found.shown_by,
    )
