"""The parts that the background tasks of one service share, and the settings among them that a reload replaces."""

from __future__ import annotations

from collections.abc import Callable

from offload.daemon.background.topic_work import TopicWorks
from offload.daemon.events import Events
from offload.daemon.metrics import Metrics
from offload.daemon.offload_outcomes import Runs
from offload.daemon.stopping import StopEvent
from offload.daemon.threads import Threads
from offload.settings import CatalogSettings, OffloadSettings, ServeSettings, Settings, TenantSettings
from seglog import InvalidSetting, Log
from seglog.base.dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LiveSettings:
    """One version of the settings that a reload replaces. All others bind at the start."""

    serve: ServeSettings
    offload: OffloadSettings
    catalog: CatalogSettings
    tenant: TenantSettings
    disk_reject_bytes: int  # of the section [log], whose other settings bind at the start

    @classmethod
    def of(cls, settings: Settings) -> LiveSettings:
        """Return them. Raise `InvalidSetting` if a value of one is not allowed."""
        if settings.serve.proxy and settings.catalog.sync_interval_s == "never":
            raise InvalidSetting("catalog.sync_interval_s", "never is not for serve.proxy: its readers need news")
        return cls(settings.serve, settings.offload, settings.catalog, settings.tenant, settings.log.disk_reject_bytes)


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
