"""The versions that a read is pinned to: one for each topic. load() pins them once, and every action uses them.

PIN-1  The newest version needs no lease: GC keeps every state for as long as the PITR window lasts. A tag holds its
    version itself. A lease holds any other past version, if the role may write one.
PIN-2  A version by time of a topic that the options name is inside its history. A topic that only a glob names may have
    been idle since that time, and then its newest version counts; or it may be younger, and then it is left out.
PIN-3  A pin has the time when it was made. Times such as `2 hours ago`, and the ttl of records, count from there. So
    every plan of a pin gives the same rows.
PIN-4  A pin of a feed of changes has its last commit, and the state before its first one. It takes no lease. A plan
    checks that GC still keeps them.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from catalog.errors import AccessDenied, Missing, NoSuchTopic
from catalog.format.commit import ForkPoint
from catalog.format.control import full_name
from catalog.format.ids import Vid
from catalog.history import History, retry_if_collected
from catalog.refs.branch import Branches
from catalog.refs.state_names import Pins, Tags
from catalog.timeline import Head, Lsn, Target, Time, resolve, span
from catalog.volume import Volumes
from offload.errors import InvalidOption
from offload.read.chunk_fetcher import in_order
from offload.read.cold_reader import ColdReader
from offload.spark.change_feed import feed_range
from offload.spark.messages import InvalidMessage
from offload.spark.option_texts import moment_ms
from offload.spark.options import ReadOptions, TopicPattern
from seglog.base.dataclasses import dataclass

_TOPICS_AT_A_TIME = 16
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PinnedTopic:
    """A topic at a version. In a feed of changes, `since` is the state before its first commit."""

    topic: str
    branch: str
    point: ForkPoint
    since: ForkPoint | None = None

    @property
    def full_name(self) -> str:
        return full_name(self.topic, self.branch)


@dataclass(frozen=True, slots=True)
class Pin:
    """The pinned topics, ascending by name."""

    made_at_ms: int
    topics: tuple[PinnedTopic, ...]


def encode_pin(pin: Pin) -> dict[str, Any]:
    """Return the pin as an object of a message."""
    topics = [
        {
            "topic": topic.topic,
            "branch": topic.branch,
            **encode_point(topic.point),
            **({} if topic.since is None else {"since": encode_point(topic.since)}),
        }
        for topic in pin.topics
    ]
    return {"made_at_ms": pin.made_at_ms, "topics": topics}


def encode_point(point: ForkPoint) -> dict[str, Any]:
    return {"lsn": point.lsn, "seq": point.seq, "vid": str(point.vid)}


def decode_point(message: Any) -> ForkPoint:
    return ForkPoint(Vid.parse(message["vid"]), message["lsn"], message["seq"])


def decode_pin(message: Any) -> Pin:
    """Return the pin in a message. Raises `InvalidMessage`."""
    try:
        topics = tuple(
            PinnedTopic(
                topic["topic"],
                topic["branch"],
                decode_point(topic),
                decode_point(topic["since"]) if "since" in topic else None,
            )
            for topic in message["topics"]
        )
        return Pin(int(message["made_at_ms"]), topics)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidMessage(f"its pin does not decode: {error!r}") from error


def pin_topics(options: ReadOptions, volumes: Volumes, reader: ColdReader, now_ms: int) -> Pin:
    """Return the versions that `options` mean now.

    Raises `NoSuchTopic`, `NoSuchBranch`, `NoSuchTag`, `OutOfWindow`, and `InvalidOption` for a topic that an option
    names and the read lacks.
    """
    work = [partial(_pinned, options, volumes, reader, now_ms, pattern) for pattern in named_topics(options, volumes)]
    pinned = list(in_order(work, _TOPICS_AT_A_TIME, "seglog-pin")) if len(work) > 1 else [task() for task in work]
    topics = {topic.topic: topic for topic in pinned if topic is not None}
    for name, positions in (("startingSeq", options.starting), ("endingSeq", options.ending)):
        for topic in positions.by_topic:
            if topic not in topics:
                raise InvalidOption(name, f"it names {topic}, which is none of the topics that are read")
    for pattern in options.topics:
        if pattern.is_glob and not any(fnmatchcase(topic, pattern.text) for topic in topics):
            when = "" if options.as_of is None else f" at {options.as_of}"
            raise NoSuchTopic(f"{pattern.text}{when}", volumes.store.url)
    return Pin(now_ms, tuple(topics[name] for name in sorted(topics)))


def named_topics(options: ReadOptions, volumes: Volumes) -> Iterator[TopicPattern]:
    """Yield the topics that the options name, each once. A topic by its own name precedes those of a glob."""
    names = {pattern.text for pattern in options.topics if not pattern.is_glob}
    yield from (pattern for pattern in options.topics if not pattern.is_glob)
    globs = [pattern for pattern in options.topics if pattern.is_glob]
    for topic, branch in Branches(volumes).names() if globs else ():
        for pattern in globs:
            if topic not in names and branch == pattern.branch and fnmatchcase(topic, pattern.text):
                names.add(topic)
                yield TopicPattern(topic, branch)


def _pinned(
    options: ReadOptions, volumes: Volumes, reader: ColdReader, now_ms: int, pattern: TopicPattern
) -> PinnedTopic | None:
    """Return the pinned topic. None if a glob found a name that was deleted, or that is younger than the version."""
    is_named = pattern in options.topics
    try:
        vid = Branches(volumes).resolve(pattern.text, pattern.branch)
    except Missing:
        if is_named:
            raise
        return None
    if options.feed is not None:
        since, end = feed_range(options, volumes, vid, now_ms)
        return PinnedTopic(pattern.text, pattern.branch, end, since)
    point = _point(options, volumes, reader, now_ms, pattern.text, vid, is_named=is_named)
    return None if point is None else PinnedTopic(pattern.text, pattern.branch, point)


def _point(
    options: ReadOptions, volumes: Volumes, reader: ColdReader, now_ms: int, topic: str, vid: Vid, *, is_named: bool
) -> ForkPoint | None:
    if options.tag_name is not None:
        return Tags(volumes).get(topic, options.tag_name).point
    if options.is_newest:
        return ForkPoint(vid, volumes.newest_lsn(vid))
    target = _target(options, now_ms)

    def resolved(history: History) -> ForkPoint | None:
        effective = target
        if isinstance(target, Time) and not is_named:
            covered = span(history)
            first_ms = None if covered is None else covered.first_ms
            if not history.is_cut and (first_ms is None or target.ms < first_ms):
                return None
            if covered is not None and covered.last_ms is not None and covered.last_ms < target.ms <= now_ms:
                effective = Head()
        return resolve(effective, history, reader.last_seq_at)

    point = retry_if_collected(lambda: volumes.history(vid), resolved)
    if point is not None and options.pin_seconds:
        _hold(volumes, point, options.pin_seconds, now_ms)
    return point


def _target(options: ReadOptions, now_ms: int) -> Target:
    """Return the past version that the options give as an LSN or a time."""
    if options.as_of is not None:
        return Time(moment_ms(options.as_of, now_ms))
    assert options.version is not None  # noqa: S101 - `is_newest` is false
    return Lsn(options.version)


def _hold(volumes: Volumes, point: ForkPoint, seconds: int, now_ms: int) -> None:
    try:
        Pins(volumes).hold(point, f"spark on {socket.gethostname()}", ttl_ms=seconds * 1000, now_ms=now_ms)
    except AccessDenied as refusal:
        _log.warning("lsn %d is read without a lease, for the role may not write one: %s", point.lsn, refusal)
