"""The entry of a stream in the topic `_streams`: what a PUT fixed, and how far its deletion is.

    state    the stream is                                             a request gets
    making   being made: its branch or its first records may be absent 404
    live     there                                                     its answer
    soft     deleted, and forks need its records                       410, a PUT 409
    dying    deleted, and its records are about to go                  404
    gone     deleted; its topic stays, as the remote has it            404

The entry of a path in the newest record holds. So a stream exists from one record on, and ends with one.

No I/O.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from offload.daemon.streams.requests import Fork, expires_ms

__all__ = ["Entry", "State", "decode_entry", "encode_entry"]


class State(Enum):
    MAKING = "making"
    LIVE = "live"
    SOFT = "soft"
    DYING = "dying"
    GONE = "gone"


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

    def is_expired(self, now_ms: int, used_ms: int) -> bool:
        """Return whether the stream has expired. `used_ms` is the time of the last read or write."""
        if self.expires_at is not None:
            return now_ms >= expires_ms(self.expires_at)
        return self.ttl_s is not None and now_ms >= used_ms + self.ttl_s * 1000


def encode_entry(entry: Entry) -> bytes:
    fields = asdict(entry) | {"state": entry.state.value}
    return json.dumps({name: value for name, value in fields.items() if value is not None}).encode()


def decode_entry(value: bytes) -> Entry:
    """Return the entry. Raise `ValueError` for a record that is none."""
    try:
        given: dict[str, Any] = json.loads(value)
        fork = given.get("fork")
        return Entry(
            given["path"],
            given["topic"],
            given["content_type"],
            given.get("ttl_s"),
            given.get("expires_at"),
            given["base"],
            given["own"],
            None if fork is None else Fork(fork["source"], fork["offset"], fork["skip"]),
            State(given["state"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"this is no entry of a stream: {value[:100]!r}") from error
