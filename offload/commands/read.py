"""Read the records of a topic, or of a past state of it: `seglog read`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

from offload.commands.directory import Directory
from offload.commands.lines import RecordBatch
from offload.commands.parameters import About, TopicName, with_branch
from offload.commands.times import time_ms
from offload.errors import BadParameter
from seglog import Gap, LogClosed, Record

if TYPE_CHECKING:
    from seglog import Topic

__all__ = ["read"]

_BATCH_RECORDS = 1024
_LISTENER_CHECK_S = 1.0
_REPLICA_LOOK_S = 1.0


def read(
    place: Directory,
    topic: TopicName,
    start: Annotated[int | None, About("The first seq.", "--from")] = None,
    end: Annotated[int | None, About("The last seq.", "--to")] = None,
    since: Annotated[
        str | None, About("Only records of this time or later, such as 2026-11-21T09:30Z.", names="time")
    ] = None,
    until: Annotated[str | None, About("Only records of this time or earlier.", names="time")] = None,
    tag: Annotated[str | None, About("Only records with this tag.")] = None,
    branch: Annotated[str | None, About("The branch; the same as TOPIC@BRANCH.", names="branch")] = None,
    at: Annotated[str | None, About("As it was then: seq:N, lsn:N, head, head~N, or a time.", names="target")] = None,
    limit: Annotated[int | None, About("At most so many records.", least=1)] = None,
    follow: Annotated[bool, About("Then wait for more, and write each record as it comes.")] = False,
    wait: Annotated[float | None, About("With --follow: end after so many seconds without one.", least=0)] = None,
) -> Iterator[RecordBatch]:
    """Write records to standard output, one line each, byte for byte.

    Without --from, the output begins with the first live record. If retention evicted records of the range, a line on
    standard error names them. With --json, an object with gap_from and gap_to does.
    With --json, a record is an object with seq, ts_ms, tag, node, and value (value_base64 if it is not UTF-8).
    Examples: seglog read orders --from 100 --limit 10; seglog read orders --at head~1
    """
    if follow and (end is not None or until is not None or at is not None):
        raise BadParameter("--follow has no end: leave out --to, --until and --at")
    since_ms, until_ms = time_ms(since), time_ms(until)
    name = with_branch(topic, branch)
    found = _followed(place, name, start, wait) if follow else _found(place, name, start, end, since_ms, until_ms, at)
    items = _limited(_wanted(found, since_ms, until_ms, tag), limit)
    while group := tuple(islice(items, 1 if follow else _BATCH_RECORDS)):
        yield RecordBatch(group)


def _found(
    place: Directory,
    name: str,
    start: int | None,
    end: int | None,
    since_ms: int | None,
    until_ms: int | None,
    at: str | None,
) -> Iterator[Record | Gap]:
    """Return the records of the range, or of a past state if `at` is given. Raises `NoRemote`."""
    if at is None and (place.maybe_archive is None or place.log.has_topic(name)):
        return place.log.get_topic(name).read(start, end, since_ms=since_ms, until_ms=until_ms, gaps=True)
    return place.archive.read(name, start, end, at=at)


def _followed(place: Directory, name: str, start: int | None, wait_s: float | None) -> Iterator[Record | Gap]:
    archive = place.maybe_archive
    if archive is not None and archive.replication.is_replica(name):
        return _follow_replica(place, name, start, wait_s)
    return _follow(place, place.log.get_topic(name), start, wait_s)


def _follow(place: Directory, topic: Topic, start: int | None, wait_s: float | None) -> Iterator[Record | Gap]:
    """Yield records until the log closes, the process stops, or `wait_s` seconds pass without a record."""
    idle_s = 0.0
    while not place.host.is_ending and (wait_s is None or idle_s < wait_s):
        slice_s = _LISTENER_CHECK_S if wait_s is None else min(_LISTENER_CHECK_S, wait_s - idle_s)
        try:
            for item in topic.follow(start, timeout_s=slice_s, gaps=True):
                start = (item.gap_to if isinstance(item, Gap) else item.seq) + 1
                idle_s = 0.0
                yield item
        except LogClosed:
            return
        idle_s += slice_s
        place.host.check_listener()


def _follow_replica(place: Directory, name: str, start: int | None, wait_s: float | None) -> Iterator[Record | Gap]:
    """Yield the records of a replica, and then the new ones after each sync.

    It ends as `_follow` does, and also if this directory becomes the writer of `name`.
    """
    archive, idle_s = place.archive, 0.0
    while archive.replication.is_replica(name):
        for record in archive.read(name, start):
            start, idle_s = record.seq + 1, 0.0
            yield record
        start = archive.history.snapshot(name).bounds.head_seq + 1
        place.host.check_listener()
        if place.host.is_ending or (wait_s is not None and idle_s >= wait_s):
            return
        time.sleep(_REPLICA_LOOK_S)
        idle_s += _REPLICA_LOOK_S
        archive.replication.follow(name)


def _wanted(
    items: Iterator[Record | Gap], since_ms: int | None, until_ms: int | None, tag: str | None
) -> Iterator[Record | Gap]:
    """Yield the gaps, and the records of the time range with the tag. End with the first record after `until_ms`."""
    for item in items:
        if isinstance(item, Gap):
            yield item
            continue
        if until_ms is not None and item.ts_ms > until_ms:
            return
        if (since_ms is None or item.ts_ms >= since_ms) and (tag is None or item.tag == tag):
            yield item


def _limited(items: Iterator[Record | Gap], limit: int | None) -> Iterator[Record | Gap]:
    """Yield items up to `limit` records. A gap does not count."""
    for item in items:
        yield item
        if limit is not None and isinstance(item, Record):
            limit -= 1
            if not limit:
                return
