"""The errors of streams. Each has the status and the headers of its answer.

Refused
└── StreamRefused              what no other class tells: 403 for a lower epoch, 501 for a fork without a remote
    ├── InvalidStreamRequest   400   the path, a header, the query or the body
    ├── NoSuchStream           404
    └── StreamGone             410   deleted, but forks need it
"""

from __future__ import annotations

from collections.abc import Mapping

from offload.errors import Refused


class StreamRefused(Refused):
    """A request about a stream that the daemon refuses. `headers` are those of the answer."""

    def __init__(
        self, status: int, message: str, *, hint: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status, "stream", message, hint=hint)
        self.headers = dict(headers or {})


class InvalidStreamRequest(StreamRefused):
    def __init__(self, name: str, reason: str) -> None:
        super().__init__(400, f"{name}: {reason}")


class NoSuchStream(StreamRefused):
    def __init__(self, path: str) -> None:
        super().__init__(404, f"there is no stream {path}", hint="make it with PUT")


class StreamGone(StreamRefused):
    def __init__(self, path: str) -> None:
        super().__init__(410, f"the stream {path} was deleted, and forks still need its records")


def offset_gone(offset: str) -> StreamRefused:
    return StreamRefused(410, f"the record before {offset} was truncated", hint="read from -1")


def stream_exists(path: str, reason: str) -> StreamRefused:
    """Return the error of a stream with another configuration, or of a topic that is no stream."""
    return StreamRefused(409, f"the stream {path} cannot be made: {reason}")
