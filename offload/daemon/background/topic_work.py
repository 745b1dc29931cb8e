"""The daemon's record of each topic's offload, in memory only. After a restart it tries every topic without a wait."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection, Iterable

from catalog.errors import Diverged
from offload.daemon.background.triggers import is_over
from offload.errors import OtherRemote
from offload.settings import Backoff, OffloadSettings
from seglog.base.dataclasses import dataclass

_log = logging.getLogger("seglog.daemon")
_GONE_MAX = 20


@dataclass(slots=True)
class TopicWork:
    """The state of one topic's offload."""

    is_running: bool = False
    failures: int = 0
    failed_at_ms: int = 0
    delay_ms: int = 0
    last_error: str | None = None
    hint: str | None = None
    unsealed_since_ms: int | None = None
    unsealed_from_seq: int = 0
    succeeded_at_ms: int | None = None
    sync_error: Exception | None = None  # of a topic whose last look at the remote failed
    looked_at_ms: int = 0  # of the last look at the remote that succeeded
    asked_at_ms: int = 0  # when a follower of this proxy last asked for news

    def wait_ms(self, now_ms: int) -> int:
        """Return the time until the next try, or 0 if the next try is due."""
        is_due = is_over(self.failed_at_ms, self.delay_ms, now_ms)
        return 0 if is_due else self.failed_at_ms + self.delay_ms - now_ms


class TopicWorks:
    """The states of all topics, by name. For several threads."""

    def __init__(self, settings: Callable[[], OffloadSettings], now_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._now_ms = now_ms
        self._works: dict[str, TopicWork] = {}

    def of(self, name: str) -> TopicWork:
        return self._works.setdefault(name, TopicWork())

    def succeeded_at_ms(self, name: str) -> int | None:
        """Return the time of the topic's last offload that succeeded; None before the first one."""
        work = self._works.get(name)
        return None if work is None else work.succeeded_at_ms

    def keep(self, topics: Collection[str], replicas: Callable[[], Iterable[str]]) -> None:
        """Forget the topics that are gone, once there are some. `topics` are those of the log."""
        if len(self._works) <= len(topics) + _GONE_MAX:
            return
        names = {*topics, *replicas()}
        for name, work in list(self._works.items()):
            if name not in names and not work.is_running:
                self._works.pop(name, None)

    def retry(self, name: str) -> None:
        """Let the daemon try the topic at its next look, whatever the number of failures."""
        work = self.of(name)
        work.failures, work.delay_ms = 0, 0

    def put_off(self, name: str, error: Exception) -> None:
        """Record a failed offload of a topic, and how long the topic waits before the next try (DAEMON-2)."""
        work, settings = self.of(name), self._settings()
        work.failures += 1
        backoff = Backoff(settings.retry_min_s * 1000, settings.retry_max_s * 1000)
        delay_ms = backoff.delay_ms(work.failures, random.random())
        work.failed_at_ms, work.delay_ms = self._now_ms(), delay_ms
        self.warn(name, f"offload failed, next try in {delay_ms / 1000:.1f} s", error)
        work.last_error, work.hint = str(error), getattr(error, "hint", None)

    def warn(self, name: str, result: str, error: Exception) -> None:
        """Log a failure, and what it means for the topic. A divergence lasts, so the daemon logs it once.

        The same holds for a name that leads to no volume or to another one.
        """
        if isinstance(error, (Diverged, OtherRemote)):
            work = self.of(name)
            if work.last_error == str(error):
                return
            work.last_error = str(error)
        hint = getattr(error, "hint", None)
        _log.warning("%s: %s: %s%s", name, result, error, f". {hint}" if hint else "")
