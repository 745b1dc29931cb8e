"""The workers of routers, in the event loop of one service: one task for each, which copies from topic to topic.

`seglog.delivery.router_states` has the protocol as a timeline; this is its step 3.

    1  At the head of its source, the worker waits at the feed of the topic (offload.daemon.feeds). Behind the head, it
       reads for itself. Both takes a slot, like the page of any follower.
    2  Under the lock of the router it looks whether all is as it was: the router, and the epochs of both topics.
    3  It appends the matches of the page, all runs of equal labels at once: they share the syncs of group commit. Each
       is for the head at which the run before it ends. So if one fails, those behind it fail as well.

WORKER-1  A copy follows the ack of its record, and no append waits for a router.
WORKER-2  Above pressure 0.8 a router waits one band lower than its source. It is not paused, unless its source is.
WORKER-3  After an error the worker finds its place anew, and tries again after a while: 50 ms, then twice that, up to
    10 s. `router list` has the error.
WORKER-4  Copies count for the quotas of the tenant as appends do. Over a quota, the router waits.
WORKER-5  No client appends to the destination of a router, over any door. The check is repeated right before the append
    reaches the log, so that none is under way when the worker looks at the head for the first time.
    No append waits for the store because of routers. So until the first look of the background has read them all, a
    router that has no record on the disk refuses nothing, as right after a recovery.
WORKER-6  A record that comes after a silence is copied at once. While more come, a router takes them four times a
    second, so that ten routers of a busy topic do not make ten small appends of each append.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from itertools import groupby
from typing import TYPE_CHECKING, Final

from offload.daemon.quota import Hold, frame_bytes
from offload.daemon.scheduler.pressure import PAUSE
from offload.daemon.threads import in_threads
from offload.errors import Stopping
from offload.operations.cursor import deletion
from offload.operations.router import TOPIC, fits_of, loaded_states
from seglog import Gap, HeadMoved, ProducerBatch, Record, Topic, Truncated
from seglog.base.dataclasses import dataclass
from seglog.errors import SeglogError
from seglog.format.lines import total_bytes

if TYPE_CHECKING:
    from offload.daemon.service import Service
    from seglog.delivery.router import Router
    from seglog.delivery.router_states import RouterStates

COLLECT_S: Final = 0.25
"""So long after a copy a router takes the next page (WORKER-6)."""
PAIR_RECORDS: Final = 10_000
"""So far behind its newest pair a router makes the next one."""
PAIR_S: Final = 60.0
"""Or so long after it, if its place has moved."""
_BAND = 250
_PAGE_RECORDS, _PAGE_BYTES = 4096, 1 << 20
_RUNS: Final = 256
"""So many appends of a router are under way at once."""
_RETRY_S, _RETRY_MOST_S = 0.05, 10.0
_log = logging.getLogger("seglog.daemon")


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbours of one page that match and have equal labels. `seq` is that of the last one in the source."""

    seq: int
    values: list[bytes]
    tag: str | None
    node: str | None
    unterminated: bool

    @property
    def size_bytes(self) -> int:
        return frame_bytes(self.values, self.tag, self.node)


class Routers:
    """The routers of one service. Commands share their states (`RouterStates.of`)."""

    def __init__(self, service: Service, pool: ThreadPoolExecutor) -> None:
        self._service = service
        self._pool = pool  # its own, because threads of the others wait for the locks that a worker holds
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by the id of the router
        self._waiting: set[str] = set()  # those that wait at a feed
        self._noted_s: dict[str, float] = {}
        self._states: RouterStates | None = None
        self._loading, self._looking = asyncio.Lock(), asyncio.Lock()
        self._has_looked = False

    def start(self) -> None:
        """Begin with the first look of the background, and keep up with the routers."""
        self._service.repeat("routers", self._look)

    async def close(self) -> None:
        """End the workers. What they append just now is in, or not, as after a crash."""
        tasks, self._tasks = tuple(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._states is not None and self._states.is_loaded:
            for router in self._states.all():  # so that the next start need not count copies
                with suppress(SeglogError, OSError):
                    await self._note_if_free(self._states, router)

    async def check_appends(self, topic: str) -> None:
        """Raise `Conflict` if a router alone appends to the topic.

        The first call reads the records of routers that are on the disk. It waits for the store only if the append
        does so, too, because this directory does not write the topic yet.
        """
        service = self._service
        if self._states is None and service.sync.has_topic(TOPIC):
            async with self._looking:  # one reads, and all others wait for it
                if not self._has_looked:
                    look = functools.partial(loaded_states, may_wait=False)
                    await in_threads(service.local, look, service.sync, service.archive)
                    self._has_looked = True
        elif self._states is None and not service.sync.has_topic(topic.removesuffix("@main")):
            await self._follow()
        self.check_now(topic)

    async def _follow(self) -> None:
        """Take the routers of another directory, as after a recovery that takes over nothing: to refuse."""
        archive = self._service.archive
        if archive is not None and await in_threads(self._service.local, archive.replication.is_replica, TOPIC):
            await self._loaded()

    def check_now(self, topic: str) -> None:
        """Do the same without a wait, for an append that `check_appends` let pass (WORKER-5)."""
        states = self._states
        if states is None and self._service.sync.has_topic(TOPIC):  # a command has made the first router just now
            from seglog.delivery.router_states import RouterStates  # imported late: most daemons have no router

            states = RouterStates.of(self._service.sync)
        if states is not None:
            states.check_appends(topic.removesuffix("@main"))

    async def topics_of(self, name: str) -> list[str]:
        """Return the source and the destination of a router, for the check of a role; none if there is no such one."""
        if not self._service.sync.has_topic(TOPIC):
            return []
        found = [router for router in (await self._loaded()).all() if router.name == name]
        return [topic for router in found for topic in (router.source, router.destination)]

    async def name_at(self, topic: str) -> str | None:
        """Return the name of a router that copies from or to the topic; None without one."""
        if not self._service.sync.has_topic(TOPIC):
            return None
        states = await self._loaded()
        ends = ((each.name, (each.source, each.destination)) for each in states.all() if states.end_of(each) is None)
        return next((name for name, topics in ends if topic in topics), None)

    async def _loaded(self) -> RouterStates:
        service = self._service
        async with self._loading:
            states = self._states
            if states is None or (service.sync.has_topic(TOPIC) and not states.is_loaded):
                loop = asyncio.get_running_loop()
                states = await in_threads(service.cold_reads, loaded_states, service.sync, service.archive)

                def changed() -> None:
                    with suppress(RuntimeError):  # the loop has ended
                        loop.call_soon_threadsafe(self._begin)

                states.on_change, self._states = changed, states
        return states

    async def _look(self) -> None:
        """Start the workers that may work, and make the pairs that are due."""
        service = self._service
        if not service.sync.has_topic(TOPIC):
            if self._states is None:
                await self._follow()
            return
        states = await self._loaded()
        self._begin()
        await in_threads(service.cold_reads, states.keep_up, deletion(service.sync, service.archive, TOPIC))
        for router in states.all():
            now_s = time.monotonic()
            late_s = now_s - self._noted_s.setdefault(router.name, now_s)
            if late_s >= PAIR_S:
                await self._note_if_free(states, router)

    async def _note_if_free(self, states: RouterStates, router: Router) -> None:
        """Make a pair of the router's place, if it has moved and nobody has the lock."""
        lock = states.lock_of(router.name)
        if not lock.acquire(blocking=False):
            return
        try:
            now = self._same(states, router)  # None if it was paused, or deleted, meanwhile
            if now is not None and (seq := states.live[now.name].seq) is not None and seq > now.newest.seq:
                await self._note(states, now.name)
        finally:
            lock.release()

    def _begin(self) -> None:
        """Start a worker for each router that may work, and wake those that wait and may not."""
        states, service = self._states, self._service
        if states is None or service.stopping.is_set():
            return
        able = {router.id: router for router in states.all() if self._may_work(states, router)}
        for key, router in able.items():
            if key not in self._tasks:
                task = asyncio.create_task(self._work(states, router), name=f"seglog-router-{router.name}")
                self._tasks[key] = task
                task.add_done_callback(functools.partial(self._ended, key))
        for key in self._waiting - able.keys():
            self._tasks[key].cancel()

    def _may_work(self, states: RouterStates, router: Router) -> bool:
        return not router.is_paused and states.is_here(router) and states.end_of(router) is None

    def _ended(self, key: str, _task: asyncio.Task[None]) -> None:
        if self._tasks.pop(key, None) is not None:  # else the service closes
            self._begin()

    async def _work(self, states: RouterStates, router: Router) -> None:
        """Copy until the router is paused, ends, or is another one."""
        pause_s = _RETRY_S
        while (now := self._same(states, router)) is not None:
            live = states.live[router.name]
            try:
                await self._copy(states, now)
            except Stopping:
                return
            except Exception as error:
                if self._same(states, router) is None:  # it was deleted, or paused, meanwhile
                    return
                if live.trouble is None:  # it copied since
                    pause_s = _RETRY_S
                if live.trouble != str(error):
                    _log.warning("router %s does not copy, and tries again: %s", router.name, error)
                live.trouble = str(error)
                await asyncio.sleep(pause_s)
                pause_s = min(_RETRY_MOST_S, 2 * pause_s)

    def _same(self, states: RouterStates, router: Router) -> Router | None:
        """Return the state of a router as it is now; None if it should not go on."""
        now = next((each for each in states.all() if each.name == router.name), None)
        return now if now is not None and now.id == router.id and self._may_work(states, now) else None

    async def _copy(self, states: RouterStates, router: Router) -> None:
        """Find the place, and copy from there on. Return if the place has to be found again."""
        service, name = self._service, router.name
        async with self._held(states, name):
            router, seq = await in_threads(self._pool, states.resume, name)
            source, destination = service.sync.topic(router.source), service.sync.topic(router.destination)
            live, head = states.live[name], destination.head_seq
        fits, pair = fits_of(router), router.newest
        copied_s, is_full = -math.inf, False
        while True:
            items: Sequence[Record | Gap] | None = None
            end = seq
            if source.head_seq <= seq:
                live.trouble = None
                self._waiting.add(router.id)
                try:
                    page = await service.feeds.wait(source, pair.epoch, seq + 1)
                finally:
                    self._waiting.discard(router.id)
                if page is not None and page.next_seq <= seq + 1:
                    continue  # the feed is behind, for a follower that is
                if page is not None and time.monotonic() >= copied_s + COLLECT_S:
                    items, end = page.items, page.next_seq - 1
            if items is None and not is_full:
                await asyncio.sleep(max(0.0, copied_s + COLLECT_S - time.monotonic()))
            async with self._slot(name, source, seq + 1):
                if items is None:
                    pool = service.read_threads(source, seq + 1)
                    try:
                        items, end, is_full = await in_threads(pool, _read, source, pair.epoch, seq + 1)
                    except Truncated:
                        return
                runs = await in_threads(self._pool, _runs, router, fits, source, seq, items)
            size_bytes = sum(run.size_bytes for run in runs)
            with await service.quota.take_append(size_bytes, is_first=False) as hold:  # it may wait: without the lock
                async with self._held(states, name):
                    is_same = (source.epoch, destination.epoch) == (pair.epoch, pair.to_epoch)
                    if self._same(states, router) is None or not is_same:
                        return
                    head, copied_s = await self._append(states, router, head, runs, hold), time.monotonic()
                    gaps = [item for item in _behind(seq, items) if isinstance(item, Gap)]
                    lost = sum(gap.gap_to - max(gap.gap_from, seq + 1) + 1 for gap in gaps)
                    live.passed_over += lost
                    live.seq, live.trouble = end, None
                    seq = end
                    if lost or seq - states.find(name).newest.seq >= PAIR_RECORDS:
                        await self._note(states, name)

    async def _append(self, states: RouterStates, router: Router, head: int, runs: Sequence[_Run], hold: Hold) -> int:
        """Append the copies of a page behind the head, and return the new one.

        Raise the first error; then the copies before it are in.
        """
        if not runs:
            return head
        service, topic = self._service, self._service.log.topic(router.destination)
        if service.sync.settings.wal_shards > 1:
            await in_threads(self._pool, service.sync.topic(router.source).inner.sync)  # before its copies (ROUTER-2)
        epoch = router.newest.epoch
        for part in (runs[first : first + _RUNS] for first in range(0, len(runs), _RUNS)):
            appends = []
            for run in part:
                batch = ProducerBatch(router.producer, epoch, run.seq, gaps=True)
                appends.append(
                    topic.append_once(
                        run.values,
                        tag=run.tag,
                        node=run.node,
                        unterminated=run.unterminated,
                        producer=batch,
                        if_head=head,
                    )
                )
                head += len(run.values)
            for run, done in zip(part, await asyncio.gather(*appends, return_exceptions=True), strict=True):
                if isinstance(done, HeadMoved):  # a foreign append: a pair says that it is no copy
                    await self._note(states, router.name)
                if isinstance(done, BaseException):
                    raise done
                states.live[router.name].seq = run.seq
                hold.appended(run.size_bytes)
                service.metrics.appended_records.inc(len(run.values))
                service.metrics.appended_bytes.inc(total_bytes(run.values))
        return head

    async def _note(self, states: RouterStates, name: str) -> None:
        """Make a pair of the router's place. The caller holds its lock."""
        router, seq = states.find(name), states.live[name].seq
        if seq is not None:
            await in_threads(self._pool, states.note, router, seq)
            self._noted_s[name] = time.monotonic()

    @asynccontextmanager
    async def _held(self, states: RouterStates, name: str) -> AsyncIterator[None]:
        """Hold the lock of a router, which a command may have."""
        lock = states.lock_of(name)
        wait_s = 0.001
        while not lock.acquire(blocking=False):
            await asyncio.sleep(wait_s)
            wait_s = min(0.1, 2 * wait_s)
        try:
            yield
        finally:
            lock.release()

    @asynccontextmanager
    async def _slot(self, name: str, source: Topic, first: int) -> AsyncIterator[None]:
        """Hold a slot for a page of the source (WORKER-2)."""
        feeds, config = self._service.feeds, source.config
        ready = feeds.cold_ready if first < source.inner.hot_floor else feeds.ready
        boost = ready.boost(source.name) if config.auto_priority else 0
        fall = _BAND if ready.pressure > PAUSE else 0
        await ready.take(("router", name), config.priority, boost - fall, lambda: source.config.priority)
        try:
            yield
        finally:
            ready.give_back()


def _read(source: Topic, epoch: int, first: int) -> tuple[list[Record | Gap], int, bool]:
    """Return the next items of a topic, the last seq that they reach, and whether there are more.

    Blocks. Raises what a read raises.
    """
    follower = source.inner.follower(first, gaps=True, epoch=epoch)
    items, size_bytes = list[Record | Gap](), 0
    for item in follower.new_items():
        items.append(item)
        size_bytes += len(item.value) if isinstance(item, Record) else 0
        if len(items) == _PAGE_RECORDS or size_bytes >= _PAGE_BYTES:
            return items, follower.seq - 1, True
    return items, follower.seq - 1, False


def _behind(seq: int, items: Iterable[Record | Gap]) -> Iterator[Record | Gap]:
    """Yield the items behind a seq: the page of a feed may begin before it."""
    return (item for item in items if (item.gap_to if isinstance(item, Gap) else item.seq) > seq)


def _runs(
    router: Router, fits: Callable[[Record], bool], source: Topic, seq: int, items: Sequence[Record | Gap]
) -> list[_Run]:
    """Return the matches behind a seq in runs of equal labels. Ephemeral records match nothing (ROUTER-2)."""
    records = [item for item in _behind(seq, items) if isinstance(item, Record) and fits(item)]
    if not records:
        return []
    ephemeral = source.inner.ephemeral_seqs(records[0].seq, records[-1].seq)
    kept = [record for record in records if record.seq not in ephemeral] if ephemeral else records

    def labels(record: Record) -> tuple[str | None, str | None, bool]:
        tag = None if router.drop_tag else record.tag
        return tag, None if router.drop_node else record.node, record.unterminated

    runs = []
    for (tag, node, unterminated), group in groupby(kept, labels):
        run = list(group)
        runs.append(_Run(run[-1].seq, [record.value for record in run], tag, node, unterminated))
    return runs
