"""The outcomes of offloads, which the background began or a client asked for. Both count alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from catalog.errors import Diverged
from offload.daemon.background.topic_work import TopicWorks
from offload.daemon.events import Events
from offload.daemon.metrics import Metrics
from offload.daemon.stopping import StopEvent
from offload.errors import Stopping
from offload.operations.command import Command
from offload.operations.offload import Offloaded, TopicFailed

_MISTAKES = (2, 3)  # exit codes: a wrong call, and a name of nothing


class Runs:
    """Counts each offload, notes the time of a topic's last one that succeeded, and publishes the events."""

    def __init__(
        self, metrics: Metrics, events: Events, stopping: StopEvent, works: TopicWorks, now_ms: Callable[[], int]
    ) -> None:
        self._runs = metrics.runs
        self._bytes = metrics.offloaded_bytes
        self._events = events
        self._stopping = stopping
        self._works = works
        self._now_ms = now_ms

    def count_bytes(self, count: int) -> None:
        """Count bytes of frames that an offload of the background reads. If the daemon stops, raise `Stopping`."""
        if self._stopping.is_set():
            raise Stopping
        self._bytes.inc(count)

    def done(self, topic: str, offloaded_seq: int, *, is_published: bool) -> None:
        self._runs.labels("published" if is_published else "nothing").inc()
        self._works.of(topic).succeeded_at_ms = self._now_ms()
        if is_published:
            self._events.publish("offloaded", topic, offloaded_seq=offloaded_seq)

    def failed(self, topic: str, error: BaseException | str) -> None:
        """Count an offload that ended with an error. If the daemon or its client stopped it, it did not fail."""
        kind = "diverged" if isinstance(error, Diverged) else "failed"
        if isinstance(error, (Stopping, BrokenPipeError)):
            self._runs.labels("stopped").inc()
            return
        self._runs.labels(kind).inc()
        self._events.publish(kind, topic, error=str(error))

    def counted(self, command: Command, values: Mapping[str, Any], results: Iterator[Any]) -> Iterator[Any]:
        """Yield the results of a command, and count the offloads among them."""
        try:
            for result in results:
                self._count(result)
                yield result
        except Exception as error:
            is_mistake = getattr(error, "exit_code", 1) in _MISTAKES
            if command.path == "offload" and values["topic"] is not None and not is_mistake:
                self.failed(values["topic"], error)
            raise

    def _count(self, result: Any) -> None:
        if isinstance(result, Offloaded):
            self._bytes.inc(result.frame_bytes)
            self.done(result.topic, result.offloaded_seq, is_published=bool(result.lsns))
        elif isinstance(result, TopicFailed):
            self.failed(result.topic, result.error)
