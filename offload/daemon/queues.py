"""The queues of one service, in its event loop: claims, acks, and dead letters (seglog.delivery.queue).

A worker *Ada* and a worker *Bob* share the queue `billing` of the topic `orders`. The *daemon* has its state.

    1  Ada claims. The daemon takes back leases that are over, gives her job 7 under a new lease id, and appends that
       event with durability `memory`. Then it answers.
    2  Ada works. She may extend the lease, or give the job back with a delay.
    3  Ada acks job 7 with the lease id. All acks that wait by the end of the tick become one event, which is durable
       before they are answered.
    4  If Ada dies after step 1, nothing happens until the deadline of the lease.
    5  Bob claims after that. The claim finds the lease over, and gives him job 7 under another id: delivery 2.
    6  If Ada lives and acks now, her id is unknown: she gets `LeaseLost`, and Bob's lease stands.
    7  A claim that finds a job delivered `max_deliver` times makes it dead instead. The event has the number of its
       letter, and is durable. Then the daemon appends the letter, as the batch of that number, and acks the job. A
       crash in between repeats the batch, and the log knows it.

LEASE-1  No two live leases have one job: one round at a time changes a queue, and a lease id is drawn anew.
LEASE-2  An answered ack survives a crash. A claim survives a kill. A power cut may take the newest claims: their jobs
    come again, and their deliveries may be one lower. So no record of a claim costs a sync.
LEASE-3  Each job of a call has its own outcome. If the call has no lease that lives, it is refused as a whole.
LEASE-4  Claims of one round share the jobs evenly, up to what each asks for. With a jitter, a round waits so long.
LEASE-5  Acks never wait for a read: a claim reads its records before its round, so that a store that hangs holds up
    claims alone.
LEASE-6  Events count for the tenant's quotas as appended records. Over a quota, claims and acks are refused.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeVar

from offload.daemon.dead_letters import DeadLetters
from offload.daemon.job_records import JobRecords
from offload.daemon.quota import frame_bytes
from offload.daemon.threads import in_threads
from offload.errors import Stopping
from offload.operations.cursor import deletion
from offload.operations.queue import TOPIC, OnAck, delete_acked, loaded_states
from seglog import LogClosed
from seglog.base.dataclasses import dataclass
from seglog.errors import LeaseLost, Missing

if TYPE_CHECKING:
    from offload.daemon.service import Service
    from seglog import Record
    from seglog.delivery.queue import Event, Queue, Taken
    from seglog.delivery.queue_states import QueueStates

_log = logging.getLogger("seglog.daemon")
_DELETE_MS = 60_000
_PAUSED_S = 1.0
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Job:
    """A record that a worker has until `deadline_ms`."""

    record: Record
    lease_id: int
    deliveries: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Settled:
    """The outcome of a call about jobs: the seqs for which it counted, and those whose lease was over."""

    done: list[int]
    lost: list[int]
    deadline_ms: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Claim:
    most: int
    client: str
    done: asyncio.Future[list[Job]]


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """An ack, a nack due at `until_ms`, or an extension to it: the kind of its event says which."""

    kind: int
    jobs: Sequence[tuple[int, int]]
    until_ms: int
    is_unseen: bool
    done: asyncio.Future[Settled]


@dataclass(slots=True, eq=False)
class Work:
    """What waits for one queue. While there are calls or claims, a task of each kind runs."""

    topic: str
    name: str
    records: JobRecords
    calls: list[_Call] = field(default_factory=list[_Call])
    claims: list[_Claim] = field(default_factory=list[_Claim])
    is_settling: bool = False
    is_dealing: bool = False
    is_burying: bool = False
    waiting: set[asyncio.Future[None]] = field(default_factory=set["asyncio.Future[None]"])

    def wake(self) -> None:
        """Let the claims that wait look again."""
        for each in self.waiting:
            if not each.done():
                each.set_result(None)

    @property
    def key(self) -> str:
        return f"{self.topic}/{self.name}"


class Queues:
    """The queues of one service. Commands share their states (`QueueStates.of`)."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._works: dict[str, Work] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._deleted_at_ms = service.now_ms()
        self.dead_letters = DeadLetters(service, self)

    def start(self) -> None:
        """Load the queues in the background, if there are any, so that the metrics have them. Keep up with them."""
        loop = asyncio.get_running_loop()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop is closed already
                loop.call_soon_threadsafe(self._stop)

        self._service.stopping.listen(tell)
        self._service.repeat("queues", self._look)
        if self._service.sync.has_topic(TOPIC):
            self.keep(self._load_early())

    # ------------------------------------------------------------ calls

    async def claim(self, topic: str, name: str, most: int, wait_s: float = 0.0, client: str = "") -> list[Job]:
        """Return up to `most` jobs. If there is none, wait up to `wait_s` for one.

        Raise `NoSuchTopic`, `Missing`, `Corrupt`, `Stopping`, `Conflict` for a topic that another directory writes, and
        what an append raises.
        """
        loop = asyncio.get_running_loop()
        end_s = loop.time() + wait_s
        while True:
            queue, work = await self._find(topic, name)
            head_seq, epoch = self._service.sync.topic(topic).head_seq, queue.cursor.epoch
            changed: asyncio.Future[None] = loop.create_future()
            work.waiting.add(changed)
            try:
                claim = _Claim(most, client, loop.create_future())
                work.claims.append(claim)
                self._begin_dealing(queue, work)
                jobs = await claim.done
                left_s = end_s - loop.time()
                if jobs or left_s <= 0:
                    return jobs
                await self._wait_for_job(queue, changed, (epoch, head_seq + 1), left_s)
            finally:
                work.waiting.discard(changed)

    async def ack(self, topic: str, name: str, jobs: Sequence[tuple[int, int]]) -> Settled:
        """Ack jobs by seq and lease id, durably. A repeated ack is none. Raise as `claim` does, and `LeaseLost`."""
        from seglog.delivery.queue import Kind  # imported late: most daemons have no queue

        return await self._settle(topic, name, Kind.ACKED, jobs)

    async def nack(
        self, topic: str, name: str, jobs: Sequence[tuple[int, int]], delay_ms: int = 0, *, is_unseen: bool = False
    ) -> Settled:
        """Give jobs back, to be due after a delay. Raise as `ack` does."""
        from seglog.delivery.queue import Kind

        until_ms = self._service.now_ms() + delay_ms if delay_ms else 0
        return await self._settle(topic, name, Kind.RELEASED, jobs, until_ms, is_unseen=is_unseen)

    async def extend(self, topic: str, name: str, jobs: Sequence[tuple[int, int]]) -> Settled:
        """Let the leases of jobs begin anew. Raise as `ack` does."""
        from seglog.delivery.queue import Kind

        queue, _ = await self._find(topic, name)
        return await self._settle(topic, name, Kind.EXTENDED, jobs, self._service.now_ms() + queue.settings.lease_ms)

    async def _settle(
        self, topic: str, name: str, kind: int, jobs: Sequence[tuple[int, int]], until_ms: int = 0, *,
        is_unseen: bool = False,
    ) -> Settled:  # fmt: skip
        _, work = await self._find(topic, name)
        call = _Call(kind, jobs, until_ms, is_unseen, asyncio.get_running_loop().create_future())
        work.calls.append(call)
        if not work.is_settling:
            work.is_settling = True
            self.keep(self._settle_all(work))
        settled = await call.done
        if settled.lost and not settled.done:
            raise LeaseLost(topic, name, settled.lost[0])
        return settled

    async def changed(self, topic: str, name: str, within_s: float) -> Queue:
        """Wait until calls have changed the queue, and return it, at the latest after so many seconds."""
        queue, work = await self._find(topic, name)
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        work.waiting.add(changed)
        try:
            due_ms = queue.next_ms()  # then leases are over, which nobody tells (QUEUE-3)
            if due_ms is not None:
                within_s = min(within_s, max(0.0, (due_ms - self._service.now_ms()) / 1000) + 0.001)
            await asyncio.wait({changed}, timeout=within_s)
            if self._service.stopping.is_set():
                raise Stopping
        finally:
            work.waiting.discard(changed)
        return queue

    def _stop(self) -> None:
        for work in self._works.values():
            work.wake()

    async def _wait_for_job(
        self, queue: Queue, changed: asyncio.Future[None], behind: tuple[int, int], left_s: float
    ) -> None:
        """Wait for a new record behind that place, a call that changes the queue, or the time when a job is due."""
        service, due_ms = self._service, queue.next_ms()
        if queue.paused or queue.stuck or not queue.room:  # a command may end that, which wakes nobody
            left_s = min(left_s, _PAUSED_S)
        if due_ms is not None:
            left_s = min(left_s, max(0.0, (due_ms - service.now_ms()) / 1000) + 0.001)
        news: asyncio.Future[Any] = asyncio.ensure_future(
            service.feeds.wait(service.sync.topic(queue.cursor.topic), *behind)
        )
        try:
            await asyncio.wait({news, changed}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if news.done() and isinstance(news.exception(), Stopping):
                raise Stopping
        finally:
            news.cancel()

    # ------------------------------------------------------------ acks, nacks and extensions

    async def _settle_all(self, work: Work) -> None:
        """Write the calls of a queue, as long as there are any: those of a tick together (LEASE-1)."""
        calls: list[_Call] = []
        try:
            while work.calls:
                async with self.claimed(work) as states:
                    calls, work.calls = work.calls, []
                    await self._settle_together(states, work, calls)
                work.wake()
        except BaseException as error:
            _refuse([each.done for each in (*calls, *work.calls)], error)
            work.calls = []
            if not isinstance(error, Exception):
                raise
        finally:
            work.is_settling = False

    async def _settle_together(self, states: QueueStates, work: Work, calls: Sequence[_Call]) -> None:
        from seglog.delivery.queue import Event, Kind

        queue = states.begin(work.topic, work.name)
        acked, events, outcomes = set[int](), list[Event](), list[Settled]()
        for call in calls:
            is_ack = call.kind == Kind.ACKED
            mine = {seq for seq, lease_id in call.jobs if queue.has(seq, lease_id) and (is_ack or seq not in acked)}
            again = {seq for seq, lease_id in call.jobs if is_ack and queue.was_acked(seq, lease_id)}
            if is_ack:
                acked |= mine
            elif mine:
                event = Event(Kind(call.kind), sorted(mine), int(call.is_unseen), until_ms=call.until_ms)
                queue.apply(event)
                events.append(event)
            done, seqs = mine | again, dict.fromkeys(seq for seq, _ in call.jobs)
            lost = [seq for seq in seqs if seq not in done]
            outcomes.append(Settled([seq for seq in seqs if seq in done], lost, call.until_ms))
        if acked:
            events.append(Event(Kind.ACKED, sorted(acked)))
            queue.apply(events[-1])
        await self.append(states, queue, events)
        for call, outcome in zip(calls, outcomes, strict=True):
            _answer(call.done, outcome)

    # ------------------------------------------------------------ claims

    def _begin_dealing(self, queue: Queue, work: Work) -> None:
        if not work.is_dealing:
            work.is_dealing = True
            self.keep(self._deal_all(work, queue.settings.claim_jitter_ms / 1000))

    async def _deal_all(self, work: Work, jitter_s: float) -> None:
        """Serve the claims of a queue, as long as there are any (LEASE-4)."""
        claims: list[_Claim] = []
        try:
            while work.claims:
                if jitter_s:
                    await asyncio.sleep(jitter_s)
                claims, work.claims = [each for each in work.claims if not each.done.done()], []
                await self._deal(work, claims)
        except BaseException as error:
            _refuse([each.done for each in (*claims, *work.claims)], error)
            work.claims = []
            if not isinstance(error, Exception):
                raise
        finally:
            work.is_dealing = False

    async def _deal(self, work: Work, claims: Sequence[_Claim]) -> None:
        """Take the jobs of a round, read their records without a claim on the queue (LEASE-5), and hand them out."""
        async with self.claimed(work) as states:
            queue = states.begin(work.topic, work.name)
            taken = queue.take(self._service.now_ms(), _wanted(queue, claims))
        try:
            again, last = await work.records.read(taken.seqs)
            here = taken._replace(seqs=[seq for seq in taken.seqs if seq <= last])
            count = _wanted(queue, claims) - sum(each is not None for each in again.values())
            if count > 0 and not taken.is_too_many and here == taken:
                await work.records.read_ahead(states, queue, count)
            async with self.claimed(work) as states:
                dealt: list[list[Job]] = [[] for _ in claims]
                if states.begin(work.topic, work.name) is queue:  # else it was deleted, and made again, meanwhile
                    claims = [each for each in claims if not each.done.done()]  # each card has a hand (QUEUE-2)
                    dealt = await self._deal_round(states, queue, work, claims, here, again)
        finally:
            rest = [seq for seq in (*taken.seqs, *taken.dead) if seq in queue.waiting]
            queue.put_back(rest)
            if rest:
                work.wake()  # a claim that waits may have them
        for claim, jobs in zip(claims, dealt, strict=True):
            if claim.done.cancelled():
                self.give_back(work.topic, work.name, [(job.record.seq, job.lease_id) for job in jobs], is_unseen=True)
            _answer(claim.done, jobs)
        if any(dealt) and not all(dealt) and queue.next_seq <= states.handable_seq(queue):
            work.wake()  # a page has a bound of bytes, so who got nothing asks again
        self.dead_letters.begin(queue, work)

    async def _deal_round(
        self, states: QueueStates, queue: Queue, work: Work, claims: Sequence[_Claim], taken: Taken,
        again: dict[int, Record | None],
    ) -> list[list[Job]]:  # fmt: skip
        """Hand out what a claimed queue has for these claims. Nothing awaits before all of it is applied."""
        try:
            events = _events_of_taken(queue, taken, again, self._service.now_ms())
            wanted = _wanted(queue, claims)
            found = [again.get(seq) for seq in taken.seqs if seq in queue.waiting]
            records = [each for each in found if each is not None][:wanted]
            if len(records) < wanted and not taken.is_too_many and work.records.fits(queue):
                records += work.records.take(queue, wanted - len(records), events)
            dealt = self._hand_out(queue, claims, records, events)
            await self.append(states, queue, events)
        except BaseException:
            queue.rollback()
            raise
        return dealt

    def give_back(self, topic: str, name: str, jobs: Sequence[tuple[int, int]], *, is_unseen: bool = False) -> None:
        """Give jobs back whose client has gone, in the background. If it never saw them, that is no delivery."""

        async def give() -> None:
            with suppress(LeaseLost, Stopping, LogClosed, Missing):
                await self.nack(topic, name, jobs, is_unseen=is_unseen)

        if jobs:
            self.keep(give())

    def _hand_out(
        self, queue: Queue, claims: Sequence[_Claim], records: Sequence[Record], events: list[Event]
    ) -> list[list[Job]]:
        """Deal the records to the claims, one by one in turn, and give each claim a lease."""
        from seglog.delivery.queue import Event, Kind

        hands: list[list[Record]] = [[] for _ in claims]
        turns = [*range(len(claims))]
        cards = iter(records)
        while turns:
            turns = [index for index in turns if len(hands[index]) < claims[index].most]
            for index in turns:
                card = next(cards, None)
                if card is None:
                    turns = []
                    break
                hands[index].append(card)
        now_ms, dealt = self._service.now_ms(), list[list[Job]]()
        deadline_ms = now_ms + queue.settings.lease_ms
        for claim, hand in zip(claims, hands, strict=True):
            jobs = list[Job]()
            if hand:
                lease_id, seqs = secrets.randbits(64), sorted(record.seq for record in hand)
                compact = range(seqs[0], seqs[-1] + 1) if seqs[-1] - seqs[0] == len(seqs) - 1 else seqs
                event = Event(Kind.CLAIMED, compact, lease_id, now_ms, deadline_ms, claim.client)
                _tell(queue, events, event)
                jobs = [Job(each, lease_id, queue.deliveries.get(each.seq, 1), deadline_ms) for each in hand]
            dealt.append(jobs)
        return dealt

    # ------------------------------------------------------------ the log

    async def append(self, states: QueueStates, queue: Queue, events: Sequence[Event]) -> None:
        """Append the events that were applied, all or none, and let them stand. If that fails, roll back, and raise."""
        from seglog.delivery.queue import Kind

        try:
            if not events and not queue.is_cut:
                return
            if states.is_sharded:
                await in_threads(self._service.local, states.sync_jobs, queue)
            is_safe = queue.is_cut or any(each.kind in (Kind.ACKED, Kind.DEAD, Kind.PAUSED) for each in events)
            if queue.is_cut:  # a snapshot of all jobs
                values = await in_threads(self._service.local, states.records, queue, events)
            else:
                values = states.records(queue, events)
            size_bytes = frame_bytes(values, queue.key)
            with await self._service.quota.take_append(size_bytes) as hold:
                durability = "fsync" if is_safe else "memory"
                seqs = await self._service.log.topic(TOPIC).append(values, tag=queue.key, durability=durability)
                hold.appended(size_bytes)
        except BaseException:
            queue.rollback()
            raise
        states.appended(queue, len(events), seqs.start)

    def claimed(self, work: Work) -> _Claimed:
        return _Claimed(self, work)

    async def _find(self, topic: str, name: str) -> tuple[Queue, Work]:
        service, states = self._service, await self.states()
        if service.archive is not None and not service.sync.has_topic(topic):
            await in_threads(service.cold_reads, service.archive.replication.check_not_followed, topic)
        queue = states.find(topic, name)
        work = self._works.get(queue.key)
        if work is None:
            work = self._works[queue.key] = Work(topic, name, JobRecords(service, topic))
        return queue, work

    async def states(self) -> QueueStates:
        from seglog.delivery.queue_states import QueueStates  # imported late: most daemons have no queue

        service, states = self._service, QueueStates.of(self._service.sync)
        if not states.is_loaded:
            await in_threads(service.cold_reads, loaded_states, service.sync, service.archive)
        return states

    async def claim_key(self, states: QueueStates, key: str) -> None:
        """Claim a queue for a round."""
        if not states.try_claim(key):  # a command changes it just now
            await in_threads(self._service.local, states.claim, key)

    async def _load_early(self) -> None:
        try:
            await self.states()
        except Exception as error:
            _log.warning("the queues are not loaded yet, and the first request tries again: %s", error)

    async def _look(self) -> None:
        """Append snapshots that are due, try dead letters again, and delete what was acked without a remote."""
        service = self._service
        if not service.sync.has_topic(TOPIC):
            return
        states = await self.states()
        await in_threads(service.cold_reads, states.keep_up, deletion(service.sync, service.archive, TOPIC))
        for queue in states.all():
            if queue.dying:
                _, work = await self._find(queue.cursor.topic, queue.cursor.name)
                self.dead_letters.begin(queue, work)
        now_ms = service.now_ms()
        if service.archive is None and not self._deleted_at_ms <= now_ms < self._deleted_at_ms + _DELETE_MS:
            self._deleted_at_ms = now_ms
            for queue in states.all():
                if queue.settings.on_ack == OnAck.DELETE:
                    try:
                        await in_threads(service.local, delete_acked, service.sync, None, queue.cursor.topic)
                    except Exception as error:
                        _log.warning("the acked jobs of queue %s are deleted a minute later: %s", queue.key, error)

    def keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Claimed:
    """The claim on a queue, for an `async with`."""

    def __init__(self, queues: Queues, work: Work) -> None:
        self._queues = queues
        self._key = work.key
        self._states: QueueStates | None = None

    async def __aenter__(self) -> QueueStates:
        states = await self._queues.states()
        await self._queues.claim_key(states, self._key)
        self._states = states
        return states

    async def __aexit__(self, *_: object) -> None:
        assert self._states is not None  # noqa: S101 - `__aenter__` has set it
        self._states.release(self._key)


def _wanted(queue: Queue, claims: Iterable[_Claim]) -> int:
    """Return how many jobs the claims may get whose clients are there."""
    is_paused = queue.paused or queue.stuck
    return 0 if is_paused else min(queue.room, sum(each.most for each in claims if not each.done.done()))


def _tell(queue: Queue, events: list[Event], event: Event) -> None:
    queue.apply(event)
    events.append(event)


def _events_of_taken(queue: Queue, taken: Taken, again: dict[int, Record | None], now_ms: int) -> list[Event]:
    """Apply what became of jobs that come again: dead, or without a record."""
    from seglog.delivery.queue import Event, Kind

    events = list[Event]()
    dead = sorted(seq for seq in taken.dead if seq in queue.waiting)
    if dead:
        _tell(queue, events, Event(Kind.DEAD, dead, queue.dead, now_ms, text="max_deliver"))
        if queue.settings.dead_letter is None:
            _tell(queue, events, Event(Kind.ACKED, dead))
    here = [seq for seq in taken.seqs if seq in queue.waiting]
    deleted = [seq for seq in here if again.get(seq, "evicted") is None]
    evicted = [seq for seq in here if seq not in again]
    for number, seqs in enumerate((deleted, evicted)):
        if seqs:
            _tell(queue, events, Event(Kind.PASSED, sorted(seqs), number))
    if taken.is_too_many:
        most = queue.settings.max_dead_per_minute
        text = f"more than {most} jobs died within a minute; `seglog queue set {queue.key.replace('/', ' ')} --resume`"
        _tell(queue, events, Event(Kind.PAUSED, text=f"{text} lets it go on"))
    return events


def _answer(done: asyncio.Future[_T], result: _T) -> None:
    if not done.done():
        done.set_result(result)


def _refuse(waiting: Iterable[asyncio.Future[Any]], error: BaseException) -> None:
    for done in waiting:
        if not done.done():
            done.set_exception(error if isinstance(error, Exception) else asyncio.CancelledError())
