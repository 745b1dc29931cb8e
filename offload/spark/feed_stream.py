"""The stream of a feed of changes (CHANGE-5). Its offset names the commit that it has come to, and the volume of it."""

from __future__ import annotations

from dataclasses import replace

from catalog.format.commit import ForkPoint
from offload.spark.offsets import InvalidOffset, Offset, Position, name_of, offset_text
from offload.spark.pin import Pin, PinnedTopic
from offload.spark.plan import Plan, Query, Remote
from offload.spark.stream import Stream
from offload.spark.stream_options import StreamOptions


def stream_of(options: StreamOptions) -> Stream:
    """Return the stream that the options ask for."""
    return Stream(options) if options.read.feed is None else _FeedStream(options)


class _FeedStream(Stream):
    def __init__(self, options: StreamOptions) -> None:
        self._read = options.read
        super().__init__(replace(options, read=replace(options.read, feed=None)))  # the start counts once

    def latest(self, remote: Remote, start: Offset, target: Pin | None, *, limited: bool) -> Offset:  # noqa: ARG002
        """Return the offset of the newest commit. Raises `InvalidOffset`, and what pinning a version raises."""
        [topic] = (target or (self._newest(remote) if _checked(start) else remote.pin(self._read))).topics
        name, newest = name_of(topic.topic, topic.branch), topic.point
        before = start.get(name)
        if before is None:
            return {name: Position(newest.vid, newest.lsn, 0, since=topic.since)}
        if before.vid == newest.vid and newest.lsn <= before.lsn:  # a LIST may be late
            return start
        return {name: Position(newest.vid, newest.lsn, 0)}

    def plan(self, remote: Remote, start: Offset, end: Offset, query: Query) -> Plan:
        """Return the tasks of the changes between two offsets. Raises as `Remote.plan`, and `InvalidOffset`."""
        [(name, position)] = _checked(end).items()
        before = _checked(start).get(name)
        since = position.since if before is None else ForkPoint(before.vid, before.lsn)
        if since is None:
            raise InvalidOffset(offset_text(end), f"{name} is new in it, and has no since")
        topic, _, branch = name.partition("@")
        pinned = PinnedTopic(topic, branch, ForkPoint(position.vid, position.lsn), since)
        return remote.plan(self._read, Pin(0, (pinned,)), query)


def _checked(offset: Offset) -> Offset:
    if any(position.next_seq for position in offset.values()):
        raise InvalidOffset(offset_text(offset), "it is of a stream of records, and this one is of changes")
    return offset
