"""The producer of the plain client: threads send its batches, and the outbox decides (seglog.client.batches)."""

from __future__ import annotations

import functools
import random
import threading
import time
from types import TracebackType

from seglog.base.arguments import checked
from seglog.client.batches import IN_FLIGHT, NumberedBatch, Outbox, answered, sent, written
from seglog.client.driver import Driver
from seglog.client.requests import AppendLabels
from seglog.errors import Misuse


class RemoteProducer:
    """A producer of a topic, made by `RemoteTopic.producer`. Safe for many threads.

    As a context manager it flushes at the end. If the block raises, it leaves out the records that have no number yet.
    """

    def __init__(self, driver: Driver, outbox: Outbox, durability: str | None) -> None:
        self._driver = driver
        self._outbox = outbox
        self._durability = durability
        self._news = threading.Condition()
        self._senders: list[threading.Thread] = []
        self._is_closed = False

    def __enter__(self) -> RemoteProducer:
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self._end()

    def __repr__(self) -> str:
        return f"<RemoteProducer {self._outbox.window.producer} of {self._outbox.window.topic}>"

    @property
    def acked(self) -> int:
        """Return the number of records that are in."""
        return self._outbox.window.acked

    @property
    def last_seq(self) -> int | None:
        """Return the highest seq of the records that are in, or None before there is one."""
        return self._outbox.window.last_seq

    @property
    def early(self) -> int:
        """Return how many times a batch came to the log before a lower one, and was sent again (CLIENT-7)."""
        return self._outbox.window.early

    @checked
    def send(
        self, value: bytes, *, tag: str | None = None, node: str | None = None, unterminated: bool = False
    ) -> None:
        """Give the producer a record. Wait only while five batches lack their answers and another one is full.

        Raise the error of an earlier batch that was refused or given up, and `Misuse` after `close`.
        """
        labels = AppendLabels(tag, node, unterminated, self._durability)
        with self._news:
            self._check()
            while not self._outbox.takes(value, labels):
                self._outbox.close_batch(time.monotonic())
                self._news.notify_all()
                self._news.wait()
                self._check()
            if self._outbox.add(value, labels, time.monotonic()):
                self._start_sender()
                self._news.notify_all()

    def flush(self) -> None:
        """Wait until all records so far are in. Raise the error of the first batch that is refused or given up.

        `AppendUnknown` names the first batch whose outcome is unknown.
        """
        with self._news:
            outbox = self._outbox
            last = outbox.window.next_number + outbox.has_values
            outbox.close_batch(time.monotonic())
            self._news.notify_all()
            while outbox.lacks_answers(last):
                self._news.wait()
            if outbox.error is not None:
                raise outbox.error

    def close(self) -> None:
        """Flush, and end the threads. The producer takes no record after this."""
        try:
            if not self._is_closed:
                self.flush()
        finally:
            self._end()

    def _end(self) -> None:
        with self._news:
            self._is_closed = True
            self._news.notify_all()
        for sender in self._senders:
            sender.join()

    def _check(self) -> None:
        if self._is_closed:
            raise Misuse("the producer is closed")
        if self._outbox.error is not None:
            raise self._outbox.error

    def _start_sender(self) -> None:
        """Start a thread if there are more batches than threads."""
        if len(self._senders) < min(IN_FLIGHT, self._outbox.senders):
            sender = threading.Thread(target=self._send, name="seglog-producer", daemon=True)
            self._senders.append(sender)
            sender.start()

    def _send(self) -> None:
        while True:
            with self._news:
                batch = self._next()
                if batch is None:
                    return
                self._outbox.window, request = sent(self._outbox.window, batch.number, time.monotonic())
            outcome = self._driver.exchange(request, functools.partial(self._written, batch.number))
            with self._news:
                self._outbox.window = answered(
                    self._outbox.window, batch.number, outcome, time.monotonic(), random.random()
                )
                self._news.notify_all()

    def _written(self, number: int) -> None:
        with self._news:
            self._outbox.window = written(self._outbox.window, number)
            self._news.notify_all()

    def _next(self) -> NumberedBatch | None:
        """Wait for a batch that is due, and return it. Return None when the producer is closed."""
        while not self._is_closed:
            now_s, number = time.monotonic(), self._outbox.window.next_number
            batch = self._outbox.step(now_s)
            if self._outbox.window.next_number != number:
                self._news.notify_all()  # the open batch is empty now
            if batch is not None:
                return batch
            self._news.wait(self._outbox.wait_s(now_s))
        return None
