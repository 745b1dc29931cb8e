"""The driver of the plain client: it sends, waits and sends again as the core decides.

The core is `seglog.client.retries` and `seglog.client.reading`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from seglog.client.answers import bounds_of, fit
from seglog.client.commands import Asking, delete_of
from seglog.client.connections import Answer, Broken, Connections, Lost, Outcome, Request
from seglog.client.following import FollowingTopics
from seglog.client.reading import ArrowReading, Following, Lookup, Reading, is_looked_up_here
from seglog.client.requests import bounds_request
from seglog.client.retries import Call, Retries, after, is_reached
from seglog.errors import Misuse
from seglog.values.protocols import DeleteArguments, Removed

if TYPE_CHECKING:
    import pyarrow as pa

_Result = TypeVar("_Result")


class Driver:
    """Sends the requests of one client. Safe for many threads."""

    def __init__(self, connections: Connections, address: str, retries: Retries) -> None:
        self.address = address
        self.retries = retries
        self._connections = connections
        self.is_reached = False  # a daemon got a request

    def close(self) -> None:
        self._connections.close()

    def ask(self, request: Request) -> Answer:
        """Send a request, repeat it as `seglog.client.retries` says, and return its answer."""
        call = self._begin(request)
        while True:
            outcome = self._connections.exchange(call.request)
            if isinstance(outcome, Answer) and outcome.status < 400:
                self.is_reached = True
                return fit(call.request, outcome)
            call = self._next_try(call, outcome)

    def result(self, asking: Asking[_Result]) -> _Result:
        """Run a command, and return its result. Raise its error."""
        return asking.result(self.ask(asking.request))

    def delete(self, topic: str, conditions: DeleteArguments, message: str = "") -> Removed:
        """Delete records. Look for a pattern here if the daemon does not take it, or may read it in another way."""
        asking = delete_of(topic, conditions, message)
        if not is_looked_up_here(conditions):
            try:
                return self.result(asking)
            except Misuse:
                if conditions.get("grep") is None:
                    raise
        request = bounds_request(topic)
        lookup = Lookup(topic, conditions, bounds_of(request, self.ask(request)))
        takes = lookup.takes
        found = lookup.found([item.seq for item in self.items(lookup.reading) if takes(item)])
        return self.result(delete_of(topic, found, message))

    def exchange(self, request: Request, on_written: Callable[[], None]) -> Outcome:
        """Send a request once. Call `on_written` when all of it went to the daemon, unless that fails."""
        outcome = self._connections.exchange(request, on_written)
        self.is_reached |= is_reached(outcome)
        return outcome

    def batches(self, source: ArrowReading) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a read by pages."""
        while not source.is_done:
            source, batches = source.fed(self.ask(source.request))
            yield from batches

    def _begin(self, request: Request) -> Call:
        """Return the call of a request, whose time begins now."""
        return Call.begun(request, self.address, self.retries, time.monotonic(), is_reached=self.is_reached)

    def _next_try(self, call: Call, outcome: Outcome) -> Call:
        """Wait, and return the next try of the call. Raise the error that ends the call."""
        self.is_reached |= is_reached(outcome)
        again = after(call, outcome, time.monotonic(), random.random())
        time.sleep(again.wait_s)
        return again.call

    def items(self, source: Reading | Following | FollowingTopics, *, timeout_s: float | None = None) -> Generator[Any]:
        """Yield the items of a read or a follower. After a lost connection, resume it (CLIENT-4).

        End after `timeout_s` without an item.
        """
        call = self._begin(source.request)
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not source.is_done:
            outcome: Outcome = Lost("the daemon ended the answer", is_sent=True)
            try:
                with self._connections.stream(source.request) as stream:
                    if stream.answer.status >= 400:
                        outcome = stream.whole()
                    else:
                        self.is_reached = True
                        source = source.begun(stream.answer)
                        for piece in stream.pieces(end_s):
                            source, items, error, is_progress = source.fed(piece)
                            yield from items
                            if items and timeout_s is not None:
                                end_s = stream.end_s = time.monotonic() + timeout_s
                            if error is not None:
                                raise error
                            if is_progress or not call.failures:
                                call = self._begin(source.request)
                        if source.ends_with_answer:
                            return
            except Broken as broken:
                outcome = broken.lost
            if end_s is not None and time.monotonic() >= end_s:
                return
            call = self._next_try(call, outcome)
