"""The task `offload`: it looks for the topics that are due, and offloads them, some at a time."""

from __future__ import annotations

import asyncio
import logging

from offload.archive import Archive
from offload.daemon.background.context import TaskContext
from offload.daemon.background.disk_watch import DiskWatch
from offload.daemon.background.due_topics import DueTopics
from offload.daemon.background.seals import Seals
from offload.daemon.background.triggers import Due
from offload.daemon.threads import in_threads
from offload.errors import Stopping

__all__ = ["Offloads"]

_log = logging.getLogger("seglog.daemon")


class Offloads:
    """The offloads of one archive that run in the background."""

    def __init__(self, context: TaskContext, archive: Archive, disk: DiskWatch) -> None:
        self._context = context
        self._archive = archive
        self._due = DueTopics(context, archive, disk)
        self._seals = Seals()
        self._look_thread = context.threads.pool(1, "seglog-due")
        self._threads = context.threads.pool(context.settings().offload.topics_at_once, "seglog-offload")
        self._running: set[asyncio.Task[None]] = set()

    async def look(self) -> None:
        """Begin the offload of each topic that is due, and wait for none."""
        for name, wanted in await in_threads(self._look_thread, self._due.find):
            if self._context.stopping.is_set():
                return
            self._context.works.of(name).is_running = True
            if wanted.seal:
                self._seals.want(name)
            task = asyncio.create_task(self._offload(name, wanted))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def ended(self, patience_s: float) -> None:
        """Return when no offload runs, or after `patience_s`."""
        if self._running:
            await asyncio.wait(self._running, timeout=patience_s)

    async def _offload(self, name: str, wanted: Due) -> None:
        runs, works, work = self._context.runs, self._context.works, self._context.works.of(name)
        try:
            published = await in_threads(self._threads, self._run, name, wanted)
            offloaded_seq = self._archive.status.offloaded_seq(name)
            if published:
                _log.info("%s: offloaded up to seq %d (%s)", name, offloaded_seq, wanted.reason)
            work.failures, work.last_error = 0, None
            runs.done(name, offloaded_seq, is_published=published)
        except Stopping as stop:
            runs.failed(name, stop)
        except Exception as error:
            works.put_off(name, error)
            runs.failed(name, error)
        finally:
            work.is_running = False

    def _run(self, name: str, wanted: Due) -> bool:
        """Offload the topic, and return whether that published anything."""
        log, count_bytes, up_to = self._context.log, self._context.runs.count_bytes, wanted.up_to
        count_bytes(0)  # raises if the daemon stops: this offload may have waited for its thread since then
        if wanted.seal:
            # The sealed segments also hold the records appended since the look. The offload takes them too.
            self._seals.seal(log, name)
            up_to = max(up_to, log.topic(name).sealed_seq)
        result = self._archive.offload(name, up_to=up_to, on_bytes=count_bytes)
        if result.published and not self._context.stopping.is_set():
            self._archive.upkeep.compact(name, on_bytes=count_bytes)
        return bool(result.published)
