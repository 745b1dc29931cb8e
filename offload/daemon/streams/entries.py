"""The entry of a stream in the topic `_streams`: what a PUT fixed, and how far its deletion is.

    state    the stream is                                             a request gets
    making   being made: its branch or its first records may be absent 404
    live     there                                                     its answer
    soft     deleted, and forks need its records                       410, a PUT 409
    dying    deleted, and its records are about to go                  404
    gone     deleted; its topic stays, as the remote has it            404

The entry of a path in the newest record holds. So a stream exists from one record on, and ends with one. But an entry
`gone` holds for its topic alone: a fork of the path, which has a topic of another name, stays as it is.

DENTRY-1  A record that is no entry changes no stream of another path. If it names its path, the state of that stream is
    unknown: an earlier entry does not hold again, because the daemon might then delete the topic.

No I/O.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from enum import Enum

from offload.daemon.streams.errors import StreamRefused, stream_exists
from offload.daemon.streams.messages import base_type
from offload.daemon.streams.requests import Create, Fork, expires_ms
from seglog.base.dataclasses import dataclass
from seglog.delivery.keyed_topic import UnreadableState


class State(Enum):
    MAKING = "making"
    LIVE = "live"
    SOFT = "soft"
    DYING = "dying"
    GONE = "gone"


class UnreadableEntry(UnreadableState):
    """A record of `_streams` is no entry. Its key is the path of the stream that it names, or None."""

    def __init__(self, value: bytes, path: str | None) -> None:
        super().__init__(f"this is no entry of a stream: {value[:100]!r}", path)


@dataclass(frozen=True, slots=True)
class Entry:
    """A stream. Its data are the records of `topic` above `base`. Those up to `own` are inherited from its source."""

    path: str
    topic: str
    content_type: str
    ttl_s: int | None
    expires_at: str | None
    base: int
    own: int
    fork: Fork | None
    state: State

    @property
    def is_fork(self) -> bool:
        return self.fork is not None

    def end_ms(self, used_ms: int) -> int | None:
        """Return when the stream expires; None: never. `used_ms` is the time of the last read or write."""
        if self.expires_at is not None:
            return expires_ms(self.expires_at)
        return None if self.ttl_s is None else used_ms + self.ttl_s * 1000


def encode_entry(entry: Entry) -> bytes:
    members = asdict(entry) | {"state": entry.state.value}
    return json.dumps({name: value for name, value in members.items() if value is not None}).encode()


def decode_entry(value: bytes) -> Entry:
    """Return the entry. Raise `UnreadableEntry` for a record that is none."""
    members = None
    try:
        members = json.loads(value)
        fork = members.get("fork")
        entry = Entry(
            members["path"],
            members["topic"],
            members["content_type"],
            members.get("ttl_s"),
            members.get("expires_at"),
            members["base"],
            members["own"],
            None if fork is None else Fork(fork["source"], fork["offset"], fork["skip"]),
            State(members["state"]),
        )
        _check_types(entry)
        if entry.expires_at is not None:
            expires_ms(entry.expires_at)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, StreamRefused) as error:
        path = members.get("path") if isinstance(members, dict) else None
        raise UnreadableEntry(value, path if isinstance(path, str) else None) from error
    return entry


def _check_types(part: Entry | Fork) -> None:
    """Raise `TypeError` if a field has a value of another type than its annotation says."""
    for field in fields(part):
        member, names = getattr(part, field.name), str(field.type).split(" | ")
        if type(member).__name__ not in names and not (member is None and "None" in names):
            raise TypeError(field.name)
    if isinstance(part, Entry) and part.fork is not None:
        _check_types(part.fork)


def check_same(entry: Entry, request: Create, *, is_closed: bool) -> None:
    """Raise `StreamRefused` if a PUT asks for another configuration than the stream has."""
    is_inherited = request.fork is not None and request.ttl_s is None and request.expires_at is None
    if request.fork is not None and request.fork != entry.fork:
        raise stream_exists(entry.path, "it exists, and is no fork of that source at that offset")
    if (request.fork is None or request.content_type is not None) and (
        base_type(request.type_or_default) != base_type(entry.content_type)
    ):
        raise stream_exists(entry.path, f"it exists with the content type {entry.content_type}")
    if not is_inherited and (request.ttl_s != entry.ttl_s or _time(request.expires_at) != _time(entry.expires_at)):
        raise stream_exists(entry.path, "it exists with another expiry")
    if request.is_closed != is_closed:
        raise stream_exists(entry.path, "it exists and is closed" if is_closed else "it exists and is open")


def _time(text: str | None) -> int | None:
    return None if text is None else expires_ms(text)
