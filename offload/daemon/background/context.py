"""The parts that the background tasks of one service share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from offload.daemon.background.topic_work import TopicWorks
from offload.daemon.events import Events
from offload.daemon.live_settings import LiveSettings
from offload.daemon.metrics import Metrics
from offload.daemon.runs import Runs
from offload.daemon.stopping import StopEvent
from offload.daemon.threads import Threads
from seglog import Log

__all__ = ["TaskContext"]


@dataclass(frozen=True, slots=True)
class TaskContext:
    """The shared parts. `settings` returns the newest ones."""

    log: Log
    settings: Callable[[], LiveSettings]
    now_ms: Callable[[], int]
    stopping: StopEvent
    threads: Threads
    metrics: Metrics
    events: Events
    runs: Runs
    works: TopicWorks
