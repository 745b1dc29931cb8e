"""The stream of a feed of changes (CHANGE-5). Its offset names the commit that it has come to, and the volume of it."""

from __future__ import annotations

from dataclasses import replace

from catalog.format.commit import ForkPoint
from offload.errors import InvalidOption
from offload.spark.change_feed import check_feed
from offload.spark.offsets import Offset, Position, check_kind, invalid_offset, name_of, offset_text
from offload.spark.option_texts import moment_ms
from offload.spark.pin import Pin, PinnedTopic
from offload.spark.query_plan import Plan, Query, Remote
from offload.spark.stream import Stream
from offload.spark.stream_options import StreamOptions
from seglog.files.clock import SystemClock


def stream_of(options: StreamOptions) -> Stream:
    """Return the stream that the options ask for."""
    return Stream(options) if options.read.feed is None else _FeedStream(options)


class _FeedStream(Stream):
    def __init__(self, options: StreamOptions) -> None:
        self._read = options.read
        super().__init__(replace(options, read=replace(options.read, feed=None)))  # the start counts once

    def latest(self, remote: Remote, start: Offset, target: Pin | None, *, limited: bool) -> Offset:  # noqa: ARG002
        """Return the offset of the newest commit. Checks where a new stream begins, before a checkpoint has it.

        Raises `Misuse`, and what pinning a version and `check_feed` raise.
        """
        name = self._checked(start)
        [topic] = (target or (self._newest(remote) if start else remote.pin(self._read))).topics
        newest, before = topic.point, start.get(name)
        if before is None:
            self._check_beginning(remote, topic)
            return {name: Position(newest.vid, newest.lsn, 0, since=topic.since)}
        if before.vid == newest.vid and newest.lsn <= before.lsn:  # a LIST may be late
            return start
        return {name: Position(newest.vid, newest.lsn, 0)}

    def plan(self, remote: Remote, start: Offset, end: Offset, query: Query) -> Plan:
        """Return the tasks of the changes between two offsets. Raises as `Remote.plan`, and `Misuse`."""
        self._checked(start)
        name = self._checked(end)
        position, before = end[name], start.get(name)
        since = position.since if before is None else ForkPoint(before.vid, before.lsn)
        if since is None:
            raise invalid_offset(offset_text(end), f"{name} is new in it, and has no since")
        options = self._read if before is None else replace(self._read, starting_time=None)
        topic, _, branch = name.partition("@")
        pinned = PinnedTopic(topic, branch, ForkPoint(position.vid, position.lsn), since)
        return remote.plan(options, Pin(0, (pinned,)), query)

    def _checked(self, offset: Offset) -> str:
        """Return the name of the topic. Raises `Misuse` if the offset is of another one, or of records."""
        check_kind(offset, of_changes=True)
        [pattern] = self._read.topics
        name = name_of(pattern.text, pattern.branch)
        if {*offset} - {name}:
            raise invalid_offset(offset_text(offset), f"it is of {', '.join(offset)}, and this stream is of {name}")
        return name

    def _check_beginning(self, remote: Remote, topic: PinnedTopic) -> None:
        since, starting = topic.since, self._read.starting_time
        assert since is not None  # noqa: S101 - the pin of a feed has it
        check_feed(self._read, topic.topic, since, topic.point, remote.volumes)
        now_ms = SystemClock().now_ms()
        if since == topic.point and starting is not None and moment_ms(starting, now_ms) > now_ms:
            hint = "begin the stream then, because all commits from now on are in it"
            raise InvalidOption("startingTimestamp", "it lies in the future", hint=hint)
