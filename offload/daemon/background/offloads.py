"""The task `offload`: it looks for the topics that are due, and offloads them, some at a time.

A look at a topic takes half a millisecond. A daemon with 100,000 topics cannot look at each of them every second. So a
topic rests for which nothing was due, and nothing has changed since.

A seal writes the whole manifest of the log. So one seal of many topics costs about as much as the seal of one.

REST-1  A topic rests only after a look that found nothing due. Its rest ends with the first change of its records,
    segments or configuration, of its offload state, of the settings, or of the state of the disk.
REST-2  The caller takes the version before the look. So a change during the look ends the rest.
REST-3  A rest ends at the time at which the topic is due without a change, and if the clock goes back (TRIGGER-4).
SEALS-1  A topic is sealed when its offload begins, and not before it is among the next `_SEALS_AT_ONCE` ones. So
    few sealed segments wait.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Collection
from dataclasses import replace

from offload.archive import Archive
from offload.daemon.background.context import TaskContext
from offload.daemon.background.disk import DiskState, DiskWatch
from offload.daemon.background.topic_work import TopicWork
from offload.daemon.background.triggers import Backlog, Due, Policy, due, next_due_ms, policy_of
from offload.daemon.threads import in_threads
from offload.errors import Stopping
from offload.operations.queue import delete_acked
from seglog import Log, NoSuchTopic, Topic
from seglog.base.dataclasses import dataclass

_log = logging.getLogger("seglog.daemon")
_SEALS_AT_ONCE = 500


class Offloads:
    """The offloads of one archive that run in the background."""

    def __init__(self, context: TaskContext, archive: Archive, disk: DiskWatch) -> None:
        self._context = context
        self._archive = archive
        self._due = _DueTopics(context, archive, disk)
        self._seals = Seals()
        self._look_thread = context.threads.pool(1, "seglog-due")
        self._threads = context.threads.pool(context.settings().offload.topics_at_once, "seglog-offload")
        self._running: set[asyncio.Task[None]] = set()

    async def look(self) -> None:
        """Begin the offload of each topic that is due, and wait for none."""
        for name, offload in await in_threads(self._look_thread, self._due.find):
            if self._context.stopping.is_set():
                return
            self._context.works.of(name).is_running = True
            if offload.seal:
                self._seals.want(name)
            task = asyncio.create_task(self._offload(name, offload))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def ended(self, patience_s: float) -> None:
        """Return when no offload runs, or after `patience_s`."""
        if self._running:
            await asyncio.wait(self._running, timeout=patience_s)

    async def _offload(self, name: str, offload: Due) -> None:
        runs, works, work = self._context.runs, self._context.works, self._context.works.of(name)
        try:
            published = await in_threads(self._threads, self._run, name, offload)
            offloaded_seq = self._archive.status.offloaded_seq(name)
            if published:
                _log.info("%s: offloaded up to seq %d (%s)", name, offloaded_seq, offload.reason)
            work.failures, work.last_error = 0, None
            runs.done(name, offloaded_seq, is_published=published)
        except Stopping as stop:
            runs.failed(name, stop)
        except Exception as error:
            works.put_off(name, error)
            runs.failed(name, error)
        finally:
            work.is_running = False

    def _run(self, name: str, offload: Due) -> bool:
        """Offload the topic, and return whether that published anything."""
        log, count_bytes, up_to = self._context.log, self._context.runs.count_bytes, offload.up_to
        count_bytes(0)  # raises if the daemon stops: this offload may have waited for its thread since then
        if offload.seal:
            # The sealed segments also hold the records appended since the look. The offload takes them too.
            self._seals.seal(log, name)
            up_to = max(up_to, log.topic(name).inner.sealed_seq)
        delete_acked(log, self._archive, name)
        result = self._archive.offload(name, up_to=up_to, on_bytes=count_bytes)
        if result.published and not self._context.stopping.is_set():
            self._archive.upkeep.compact(name, on_bytes=count_bytes)
        return bool(result.published)


class _DueTopics:
    """The topics of one archive that are due. One thread at a time looks."""

    def __init__(self, context: TaskContext, archive: Archive, disk: DiskWatch) -> None:
        self._context = context
        self._archive = archive
        self._disk = disk
        self._rests = Rests()

    def find(self) -> list[tuple[str, Due]]:
        """Return each topic that is due now, with its offload. Skip a topic that rests, runs or waits."""
        context, works = self._context, self._context.works
        offloads = []
        versions, offload_versions = context.log.versions(), self._archive.status.versions()
        works.keep(versions.keys(), self._archive.replication.replicas)
        now_ms = context.now_ms()
        self._rests.begin_pass(versions.keys(), context.settings().offload, self._disk.state)
        for name, changes in sorted(versions.items()):
            version = (*changes, offload_versions.get(name, 0))
            if self._rests.lasts(name, version, now_ms):
                continue
            work = works.of(name)
            if work.is_running or work.wait_ms(context.now_ms()):
                continue
            try:
                offload = self._due(name, work, version)
            except NoSuchTopic:  # deleted meanwhile
                continue
            except Exception as error:
                works.put_off(name, error)
                continue
            if offload is not None:
                offloads.append((name, offload))
        return offloads

    def _due(self, name: str, work: TopicWork, version: tuple[object, ...]) -> Due | None:
        """Return the offload that is due. If there is none, the topic rests."""
        topic, status, now_ms = self._context.log.topic(name), self._archive.status, self._context.now_ms()
        if status.is_paused(name) or status.is_diverged(name) or topic.config.durability == "ephemeral":
            self._rests.put(name, Rest(version, now_ms, None))
            return None
        backlog, policy = self._backlog(name, topic, work), self._policy(topic)
        offload = due(backlog, policy, now_ms)
        if offload is None:
            self._rests.put(name, Rest(version, now_ms, next_due_ms(backlog, policy)))
        return offload

    def _backlog(self, name: str, topic: Topic, work: TopicWork) -> Backlog:
        status = self._archive.status
        offloaded_seq, sealed_seq, head_seq = status.offloaded_seq(name), topic.inner.sealed_seq, topic.head_seq
        if head_seq <= sealed_seq:
            work.unsealed_since_ms = None
        elif work.unsealed_since_ms is None or work.unsealed_from_seq <= sealed_seq:
            work.unsealed_since_ms, work.unsealed_from_seq = self._context.now_ms(), sealed_seq + 1
        return Backlog(
            sealed=[
                segment for segment in topic.inner.segments() if segment.sealed and segment.last_seq > offloaded_seq
            ],
            offloaded_seq=offloaded_seq,
            head_seq=head_seq,
            unsealed_since_ms=work.unsealed_since_ms,
            is_unfinished=status.is_unfinished(name),
        )

    def _policy(self, topic: Topic) -> Policy:
        policy = policy_of(self._context.settings().offload, topic.config.attributes)
        is_fine = self._disk.state is DiskState.FINE
        return policy if is_fine else replace(policy, after_ms=0, hot_bytes=0)


@dataclass(frozen=True, slots=True)
class Rest:
    """The rest of one topic, which began at `since_ms` with this version. It ends at `until_ms`; None: no time does."""

    version: tuple[object, ...]
    since_ms: int
    until_ms: int | None

    def lasts(self, version: tuple[object, ...], now_ms: int) -> bool:
        is_due = self.until_ms is not None and now_ms >= self.until_ms
        return self.version == version and self.since_ms <= now_ms and not is_due


class Rests:
    """The rests of all topics of one daemon, by name."""

    def __init__(self) -> None:
        self._rests: dict[str, Rest] = {}
        self._conditions: tuple[object, ...] = ()

    def begin_pass(self, names: Collection[str], *conditions: object) -> None:
        """Begin a pass over these topics. If a condition that all looks share has changed, every rest ends."""
        if conditions != self._conditions:
            self._conditions = conditions
            self._rests.clear()
        if len(self._rests) > len(names):
            self._rests = {name: rest for name, rest in self._rests.items() if name in names}

    def lasts(self, name: str, version: tuple[object, ...], now_ms: int) -> bool:
        rest = self._rests.get(name)
        return rest is not None and rest.lasts(version, now_ms)

    def put(self, name: str, rest: Rest) -> None:
        self._rests[name] = rest


class Seals:
    """The topics that wait for a seal, in the order of their offloads. For several threads."""

    def __init__(self) -> None:
        self._waiting: dict[str, None] = {}
        self._lock = threading.Lock()

    def want(self, name: str) -> None:
        self._waiting[name] = None

    def seal(self, log: Log, name: str) -> None:
        """Seal the topic, and the next ones that wait. If an earlier call sealed it since `want`, do nothing."""
        with self._lock:
            if name not in self._waiting:
                return
            names = [name, *(waiting for waiting in list(self._waiting) if waiting != name)][:_SEALS_AT_ONCE]
            log.seal(names)
            for waiting in names:
                self._waiting.pop(waiting, None)
