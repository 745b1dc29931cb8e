"""The errors of streams. Each has the status and the headers of its answer.

Refused
└── StreamRefused              what no other class tells: 400 for a request, 403 for a lower epoch, 501 without a remote
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


def invalid_request(name: str, reason: str) -> StreamRefused:
    """Return the error of a path, a header, a query or a body. `name` is that of the part."""
    return StreamRefused(400, f"{name}: {reason}")
