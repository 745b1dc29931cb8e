"""The errors of streams. Each has the status and the headers of its answer.

Refused
└── StreamRefused
    ├── InvalidStreamPath      400
    ├── InvalidStreamRequest   400   a header, the query or the body
    ├── NoSuchStream           404
    ├── StreamExists           409   with another configuration, or as a topic that is no stream
    ├── StreamConflict         409   content type, Stream-Seq
    ├── StreamClosed           409   with Stream-Closed and the last offset
    ├── StreamGone             410   deleted, but forks need it
    ├── OffsetGone             410   a truncation took the record before it
    ├── StaleProducer          403   with the current epoch
    ├── SkippedBatch           409   with the expected number
    ├── StreamUnknown          500   its newest entry is unreadable
    └── NoForks                501   without a remote
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


class InvalidStreamPath(StreamRefused):
    def __init__(self, reason: str) -> None:
        super().__init__(400, f"this is no path of a stream: {reason}")


class InvalidStreamRequest(StreamRefused):
    def __init__(self, name: str, reason: str) -> None:
        super().__init__(400, f"{name}: {reason}")


class NoSuchStream(StreamRefused):
    def __init__(self, path: str) -> None:
        super().__init__(404, f"there is no stream {path}", hint="make it with PUT")


class StreamExists(StreamRefused):
    def __init__(self, path: str, reason: str) -> None:
        super().__init__(409, f"the stream {path} cannot be made: {reason}")


class StreamConflict(StreamRefused):
    def __init__(self, path: str, reason: str) -> None:
        super().__init__(409, f"the append to {path} is refused: {reason}")


class StreamClosed(StreamRefused):
    def __init__(self, path: str, offset: str) -> None:
        headers = {"stream-closed": "true", "stream-next-offset": offset}
        super().__init__(409, f"the stream {path} is closed", headers=headers)


class StreamGone(StreamRefused):
    def __init__(self, path: str) -> None:
        super().__init__(410, f"the stream {path} was deleted, and forks still need its records")


class OffsetGone(StreamRefused):
    def __init__(self, offset: str) -> None:
        super().__init__(410, f"the record before {offset} was truncated", hint="read from -1")


class StaleProducer(StreamRefused):
    def __init__(self, epoch: int) -> None:
        text = f"another producer of this id has begun epoch {epoch}"
        super().__init__(403, text, headers={"producer-epoch": str(epoch)})


class SkippedBatch(StreamRefused):
    def __init__(self, expected: int, received: int) -> None:
        headers = {"producer-expected-seq": str(expected), "producer-received-seq": str(received)}
        super().__init__(409, f"the next batch of this producer is {expected}, not {received}", headers=headers)


class StreamUnknown(StreamRefused):
    def __init__(self, path: str, topic: str, seq: int) -> None:
        super().__init__(
            500,
            f"the state of the stream {path} is unknown: record {seq} of {topic} is no entry of this version",
            hint="serve the directory with the version that wrote the record",
        )


class NoForks(StreamRefused):
    def __init__(self) -> None:
        super().__init__(501, "a fork is a branch in the remote, and this daemon has none", hint="set `remote`")
