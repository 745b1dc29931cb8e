"""Answers over HTTP that do not end by themselves, for tests of followers."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.offload.daemon.events_of import Event, EventDecoder

__all__ = ["EventStream", "LineStream", "opened"]

_TIMEOUT_S = 60


class LineStream:
    """A follower of JSON lines."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.answer = answer

    def next(self) -> dict[str, Any] | None:
        """Return the next line, or None after the last one."""
        line = self.answer.readline()
        return json.loads(line) if line else None


class EventStream:
    """A follower of server-sent events. `raw` is all that came."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.answer = answer
        self.raw = b""
        self._decoder = EventDecoder()
        self._ready: list[Event] = []

    def next(self) -> Event | None:
        """Return the next event, or None at the end of the stream."""
        while not self._ready:
            line = self.answer.readline()
            if not line:
                return None
            self.raw += line
            self._ready += self._decoder.feed(line)
        return self._ready.pop(0)

    def take(self, count: int) -> list[Event]:
        found = [self.next() for _ in range(count)]
        return [each for each in found if each is not None]


@contextmanager
def opened(port: int, path: str, headers: Mapping[str, str] | None = None) -> Iterator[http.client.HTTPResponse]:
    """Yield the answer to a GET, whose body the test reads."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    connection.request("GET", path, headers=dict(headers or {}))
    try:
        yield connection.getresponse()
    finally:
        connection.close()
