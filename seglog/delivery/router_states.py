"""The routers of a log, in memory and in `_seglog.routers` (seglog.delivery.router): how each of them finds its place.

Four actors: the *worker* of a router, which copies; a *command*, which makes, pauses or deletes a router, or truncates
a topic; the source S; and the destination D. Whoever copies, or changes a state, holds the lock of that router.

    1  A command makes D, if it is not there, and then the first pair: a place in S, and the head of D. The router
       exists from that record on, and clients append to D no more.
    2  The worker asks for its place (`resume`). If an epoch, or the directory, is another one than in the newest pair,
       a new pair is durable before anything is copied.
    3  The worker reads a page of S. Neighbours that match and have equal labels become one append to D, as batch
       (epoch of S, seq of the last of them) of the router's producer, at the head that D had. So copies and place are
       one unit of the WAL, and an append that fails fails all those behind it.
    4  A long way without a match, a minute, or a loss makes a pair: places move without copies, too. Then step 3 again.
    5  `seglog truncate` of S or D takes the lock, and makes a pair that says what it will cut. Then it truncates, and
       makes the pair of the new epoch. No copy comes in between.

    what happened                          what the next `resume` finds
    a crash before step 1 is durable       no router; an empty D
    a crash in step 2, or between pairs    the producer in D, whose number is the place; a pair behind that is newer
    a crash in step 3                      the batches that are durable, the first ones of the page
    a crash in step 4                      the former pair and the producer: the way without matches is gone again
    D forgot the producer, or a recovery   the newest pair that D has. The records of D behind it count the copies, and
    from a remote, which knows none        the place is behind so many matches in S
    a crash in step 5                      the epoch of the pair, and nothing is cut; or the next one, whose cut it has
    S was truncated                        its epoch is higher, and so the place is before the cut. The copies stay, and
                                           what comes in the place of their originals is copied: (epoch, seq) is new
    S was truncated before a recovery      the place in the history of S, if no copy is in doubt; else ROUTER-4
    D was truncated                        the producer, or the pair of step 2: D is not filled again
    S lost records before their turn       a gap, which the router passes over and counts
    S or D was deleted, made again, or     another incarnation in the same log: the router has ended, and says so. A new
    replaced by a branch                   one may begin anywhere (`create --at`)
    the router was deleted and made again  another id, and so another producer: it begins where `create` says
    a pause, and a restart                 the state says "paused"; the place is found when it goes on

ROUTER-1  Each match of S is in D once, in the order of S, whatever crashes in between.
ROUTER-2  What another shard of the WAL has of S is synced before its copy, and of D before a pair. Ephemeral records
    are never copied, and no pair is beyond what the WAL knows: after a crash, others may get their seqs.
ROUTER-3  A recovered S counts up to the records that it had when this directory took it over. Those behind are new,
    and are copied, whatever stood there before.
ROUTER-4  A place that would be a guess stops the router with a reason. It neither doubles a record nor skips one: for
    example if records are missing in S between the pair and the place, or if S was truncated while nothing that knows
    routers had the log open, as `seglog.Topic.truncate` may.
ROUTER-5  States are records of a keyed topic, durable before they count. A compaction and a change wait for each other.

Thread-safe: the event loop of a daemon and the threads of its commands share the object of their log (`of`). What takes
a lock, or writes, blocks.
"""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import field, replace
from itertools import pairwise

from seglog.base.arguments import WHOLE_MAX
from seglog.base.dataclasses import dataclass
from seglog.base.errors import Conflict, Corrupt, Missing
from seglog.delivery.keyed_topic import KeyedTopic, UnreadableState, compact
from seglog.delivery.router import TOPIC, Pair, Router, check_graph, decode_router, encode_router
from seglog.errors import AppendsHeld, DiskFull, NoSuchTopic, SeglogError
from seglog.log import Log
from seglog.topic import Topic
from seglog.values.record import Gap, Record

MOST_ROUTERS = 100
"""The routers of one log. Each is a task, and a label of metrics."""

_HINT_OF_UNREADABLE = "use the directory with the version that wrote the record"

Cut = Callable[[str, int], int | None]
"""Takes a topic and a time. Returns the lowest seq that a truncation since then took, by its history, or None.

It is 1, too, if nobody can say.
"""
Takeovers = Callable[[str, int], int]
"""Takes a topic and a time. Returns how many directories have taken the topic over since then, by its history."""
FitsOf = Callable[[Router], Callable[[Record], bool]]
"""Takes a router. Returns what says whether a record matches its filter."""


_LEFT_FOR_LATER = (SeglogError, OSError)
"""What stops one router, whose worker finds and tells the same, but no truncation and no other router."""


@dataclass(slots=True)
class Live:
    """What the worker of a router says of now: its place, and why it does not copy."""

    seq: int | None = None
    trouble: str | None = None
    passed_over: int = 0


@dataclass(slots=True)
class _Sight:
    """What the layers above know: filters, and the histories of topics."""

    fits: FitsOf = field(default=lambda _router: lambda _record: True)
    cut: Cut = field(default=lambda _topic, _since_ms: None)
    takeovers: Takeovers = field(default=lambda _topic, _since_ms: 0)


class RouterStates:
    """The routers of one log."""

    def __init__(self, log: Log) -> None:
        self._log = weakref.proxy(log)  # the register of `of` ends with the log
        self._states: dict[str, Router] = {}  # replaced, and never changed, so that a look takes no lock
        self._into: dict[str, list[Router]] = {}
        self._keyed = KeyedTopic(TOPIC, _keyed_router, lambda _: None)
        self._closed: dict[str, str] = {}  # the destinations of routers that are unreadable, or were
        self._sight = _Sight()
        self._writing = threading.RLock()
        self._locks: dict[str, threading.Lock] = {}
        self._changes, self._is_first = 0, False
        self.live: dict[str, Live] = {}
        self.on_change: Callable[[], None] = lambda: None
        self.is_loaded = False

    @classmethod
    def of(cls, log: Log) -> RouterStates:
        """Return the object that all users of an open log share."""
        with _making:
            found = _by_log.get(log)
            if found is None:
                found = _by_log[log] = cls(log)
            return found

    def load(
        self,
        report: Callable[[str], None],
        fits: FitsOf,
        cut: Cut,
        takeovers: Takeovers,
        records: Callable[[], Iterable[Record]] | None = None,
        *,
        is_whole: bool = True,
    ) -> None:
        """Take the newest state of each router, once, from the topic or from `records`. Blocks, maybe for the store.

        Records that are not the whole topic, or of a topic that this directory does not write, add to what is known.
        Then the next call takes all anew.
        """
        while not self.is_loaded:  # the lock is not held for the store: others load what is on the disk
            changes, topic = self._changes, self._log.topic(TOPIC)
            is_own = topic.exists
            states = {} if is_whole else {**self._states}
            closed: dict[str, str] = {}

            def decoded(record: Record, closed: dict[str, str] = closed) -> tuple[str, Router]:
                try:
                    return _keyed_router(record)
                except UnreadableState as error:
                    if error.key is not None:
                        closed[error.key] = _destination_of(record.value)
                    raise

            keyed = KeyedTopic(TOPIC, decoded, report)

            def take(router: Router, states: dict[str, Router] = states) -> None:
                states[router.name] = router

            def forget(name: str, states: dict[str, Router] = states) -> None:
                states.pop(name, None)

            read = topic.read if records is None else records
            keyed.replay(read() if is_own or records is not None else (), take, forget)
            with self._writing:
                if self._changes == changes and not self.is_loaded:  # else a record came meanwhile
                    self._keyed, self._sight, self._closed = keyed, _Sight(fits, cut, takeovers), closed
                    self._take({name: router for name, router in states.items() if not router.is_deleted})
                    self.is_loaded = is_own and is_whole
                    self._is_first = not is_own and records is None  # the next record is the first one
                    return

    def _take(self, states: dict[str, Router]) -> None:
        into: dict[str, list[Router]] = {}
        for router in states.values():
            into.setdefault(router.destination, []).append(router)  # also those that have ended
        self._states, self._into = states, into
        self.live = {name: self.live.get(name, Live()) for name in states}

    # ------------------------------------------------------------ looks

    def all(self) -> list[Router]:
        """Return the routers by their names."""
        return [router for _, router in sorted(self._states.items())]

    def find(self, name: str) -> Router:
        """Return a router. Raise `Missing`, and `Corrupt` for an unreadable state."""
        if name in self._keyed.unreadable:
            raise Corrupt(self._text_of_unreadable(name), hint=_HINT_OF_UNREADABLE)
        router = self._states.get(name)
        if router is None:
            raise Missing(f"there is no router {name}", hint="`seglog router list` lists them")
        return router

    def has(self, name: str) -> bool:
        """Return whether there is such a router, also one whose state is unreadable."""
        return name in self._keyed.unreadable or name in self._states

    def unreadable(self) -> list[tuple[str, str, str]]:
        """Return name, destination and reason of each router that this version cannot read. It keeps its destination.

        The destination is empty if the record names none.
        """
        return [(name, self._closed.get(name, ""), self._text_of_unreadable(name)) for name in self._keyed.unreadable]

    def _text_of_unreadable(self, name: str) -> str:
        record = f"record {self._keyed.unreadable[name]} of {TOPIC}"
        return f"the state of the router {name} is unknown: {record} is no router of this version"

    def check_appends(self, topic: str) -> None:
        """Raise `Conflict` if a router alone appends to the topic."""
        for _, destination, reason in self.unreadable():
            if destination == topic:
                raise Conflict(f"topic {topic} takes the records of a router alone: {reason}", hint=_HINT_OF_UNREADABLE)
        for router in self._into.get(topic, ()):
            if self.end_of(router) is not None:
                continue
            text = f"topic {topic} takes the records of router {router.name} alone, which copies from {router.source}"
            raise Conflict(text, hint=f"append to {router.source}, or end it with `seglog router delete {router.name}`")

    def end_of(self, router: Router) -> str | None:
        """Return why a router has ended; None for one that goes on."""
        for name, then in ((router.source, router.source_is), (router.destination, router.destination_is)):
            try:
                here = self._log.topic(name).inner.known_incarnation()
            except NoSuchTopic:
                if _log_of(then) == self._log_id():
                    return f"topic {name} was deleted"
                continue
            if here is not None and here != then and _log_of(here) == _log_of(then):
                return f"topic {name} is another one than it was: it was deleted, or replaced by a branch"
        return None

    def _log_id(self) -> str | None:
        with suppress(NoSuchTopic):
            return _log_of(self._log.topic(TOPIC).inner.known_incarnation() or "")
        return None

    def is_here(self, router: Router) -> bool:
        """Return whether this directory writes both topics, and the states."""
        return all(self._log.has_topic(name) for name in (TOPIC, router.source, router.destination))

    # ------------------------------------------------------------ changes

    def lock_of(self, name: str) -> threading.Lock:
        """Return the lock of a router, for whoever copies or changes its state."""
        return self._locks.setdefault(name, threading.Lock())

    def create(self, router: Router) -> Router:
        """Add a router, durably. Raise `Conflict` for one that the graph does not take, or a name that is taken."""
        with self._writing:
            self.check_new(router.name, router.source, router.destination)
            return self.put(router)

    def check_new(self, name: str, source: str, destination: str) -> None:
        """Raise `Conflict` if a router cannot be added to those that there are."""
        if self.has(name):
            raise Conflict(f"there is a router {name} already", hint="take another name, or delete it first")
        for _, _, reason in self.unreadable():
            raise Conflict(f"nobody can say whether a router {name} may be: {reason}", hint=_HINT_OF_UNREADABLE)
        if len(self._states) >= MOST_ROUTERS:
            text = f"this directory has {MOST_ROUTERS} routers, and takes no more"
            raise Conflict(text, hint="`seglog router delete NAME` deletes one")
        check_graph((each for each in self.all() if self.end_of(each) is None), source, destination)

    def put(self, router: Router) -> Router:
        """Append the state of a router, durably, and let it count. The caller holds its lock, or makes it."""
        with self._writing:
            self._log.topic(TOPIC).append([encode_router(router)], tag=router.name, durability="fsync")
            self._keyed.records += 1
            self._changes += 1
            self.is_loaded = self.is_loaded or self._is_first
            others = {name: each for name, each in self._states.items() if name != router.name}
            self._take(others if router.is_deleted else {**others, router.name: router})
        self.on_change()
        return router

    def note(self, router: Router, seq: int) -> None:
        """Add a pair: the router has come to `seq`, in the epochs of its newest pair. The caller holds its lock."""
        source, destination = self._log.topic(router.source), self._log.topic(router.destination)
        router = replace(router, passed_over=router.passed_over + self.live[router.name].passed_over)
        pair = self.pair(source, destination, seq)
        if (pair.epoch, pair.to_epoch) == (router.newest.epoch, router.newest.to_epoch):
            self._store(router.at(pair))  # else a truncation came in between, and `resume` makes the pair for it

    def _store(self, router: Router) -> Router:
        if router != self._states.get(router.name):
            self.put(router)
            self.live[router.name].passed_over = 0
        return router

    def keep_up(self, delete: Callable[[int], object]) -> None:
        """Make the pairs that truncations ask for (step 2), and compact the topic if it is time.

        `delete` takes the first seq that stays. Without room, a later call does so.
        """
        if not self.is_loaded or not self._log.has_topic(TOPIC):
            return
        with suppress(AppendsHeld, DiskFull):
            for router in self.all():
                lock = self.lock_of(router.name)
                if self._is_outdated(router) and lock.acquire(blocking=False):  # whoever has it makes the pair
                    try:
                        with suppress(*_LEFT_FOR_LATER):
                            self.resume(router.name)
                    finally:
                        lock.release()
            with self._writing:
                if self._keyed.is_outdated(len(self._states)):
                    try:
                        states = [(encode_router(router), router.name) for router in self.all()]
                        compact(self._log.topic(TOPIC), states, delete)
                    finally:
                        self._keyed.records = len(self._states)  # also after an error: the next try is not at once

    @contextmanager
    def truncating(self, topic: str, seq: int) -> Iterator[None]:
        """Let the block truncate a topic. Its routers wait meanwhile, and their places are known after any crash.

        Each says before what the block will cut (step 5), and has a pair for it after that. Without room they wait.
        """
        routers = [router for router in self.all() if topic in {router.source, router.destination}]
        there = self._log.topic(topic)
        epoch, is_fit = there.epoch, max(1, there.inner.evict_floor) <= seq <= there.head_seq
        with ExitStack() as locks:
            for router in routers:
                locks.enter_context(self.lock_of(router.name))
            for router in routers if is_fit else ():  # else it will be refused, and changes nothing
                with suppress(*_LEFT_FOR_LATER):
                    now, place = self.resume(router.name)
                    pair = self.pair(self._log.topic(now.source), self._log.topic(now.destination), place)
                    cut = seq if now.source == topic else 0, seq if now.destination == topic else 0
                    self.put(replace(now.at(pair), cut=cut))
            try:
                yield
            finally:
                for router in routers if is_fit or there.epoch != epoch else ():
                    with suppress(*_LEFT_FOR_LATER):
                        self.resume(router.name)

    def _is_outdated(self, router: Router) -> bool:
        """Return whether the newest pair is of other epochs than those of now."""
        if not self.is_here(router) or self.end_of(router) is not None:
            return False
        epochs = self._log.topic(router.source).epoch, self._log.topic(router.destination).epoch
        return self._is_foreign(router) or epochs != (router.newest.epoch, router.newest.to_epoch)

    # ------------------------------------------------------------ places

    def resume(self, name: str) -> tuple[Router, int]:
        """Return a router and the last seq of its source that is copied or passed over. The caller holds its lock.

        Its newest pair is of the epochs of now (step 2). Raise `Conflict` (ROUTER-4), `Missing`, and what reads raise.
        """
        router = self.find(name)
        if (end := self.end_of(router)) is not None:
            raise Conflict(f"it has ended: {end}", hint=f"`seglog router delete {name}`, and make another one")
        source, destination = self._log.topic(router.source), self._log.topic(router.destination)
        if not router.newest.to_epoch:
            destination.inner.sync()  # an append that was on its way when the router was made is there now
        is_foreign, epochs = self._is_foreign(router), (source.epoch, destination.epoch)
        seq = self.place_of(router)
        pair = self.pair(source, destination, seq)
        if epochs != (pair.epoch, pair.to_epoch):
            return self.resume(name)  # truncated meanwhile
        if is_foreign:
            router = replace(
                router,
                source_is=source.incarnation(),
                destination_is=destination.incarnation(),
                pairs=(pair,),
            )
        elif epochs != (router.newest.epoch, router.newest.to_epoch):
            router = router.at(pair)
        elif router.cut is not None:
            router = replace(router, cut=None)  # the truncation was refused, or a crash came before it
        elif self._has_foreign(router, destination):
            router = router.at(pair)
        router = self._store(router)
        self.live[name].seq = seq  # a place of the epoch before must not be in a later pair
        return router, seq

    def place_of(self, router: Router, *, is_quick: bool = False) -> int:
        """Return the last seq of the source that is copied or passed over. Raise as `resume` does, and change nothing.

        If `is_quick`, nothing is read, and the result may be too low.
        """
        source, destination = self._log.topic(router.source), self._log.topic(router.destination)
        if self._is_foreign(router):
            return (
                min(router.newest.seq, source.head_seq)
                if is_quick
                else self._foreign_place(router, source, destination)
            )
        return self._place(router, source, destination, is_quick=is_quick)

    def _is_foreign(self, router: Router) -> bool:
        """Return whether the newest pair is of another directory."""
        topics = ((router.source, router.source_is), (router.destination, router.destination_is))
        return any(self._log.topic(name).inner.known_incarnation() != then for name, then in topics)

    def _has_foreign(self, router: Router, destination: Topic) -> bool:
        """Return whether the head of the destination is no copy, and no pair says so: a pair tells them apart."""
        producer, head = destination.inner.known_producer(router.producer), destination.head_seq
        newest = producer.batches[-1].seqs.stop - 1 if producer is not None else router.newest.to_head
        return head > max(newest, router.newest.to_head)

    def pair(self, source: Topic, destination: Topic, seq: int) -> Pair:
        """Return the pair of now, which is true after any crash (ROUTER-2)."""
        epoch, to_epoch = source.epoch, destination.epoch
        source_ms, destination_ms = source.last_ts_ms, destination.last_ts_ms
        if self._log.settings.wal_shards > 1:
            source.inner.sync()
            destination.inner.sync()
        seq = min(seq, source.inner.logged_seq)
        return Pair(epoch, seq, source_ms, to_epoch, destination.head_seq, destination_ms)

    def _place(self, router: Router, source: Topic, destination: Topic, *, is_quick: bool) -> int:
        """Return the place of a router in the directory that made its newest pair."""
        pair, count = router.newest, 0
        epoch, seq = pair.epoch, pair.seq
        producer = destination.inner.known_producer(router.producer)
        if producer is not None:
            epoch, seq = max((epoch, seq), (producer.epoch, producer.number))
        elif pair.to_epoch:
            is_cut = router.cut is not None and router.cut[1] > 0 and destination.epoch == pair.to_epoch + 1
            if destination.epoch != pair.to_epoch and not is_cut:
                raise _unknown(router, f"{router.destination} was truncated since, and does not know its producer")
            count = 0 if is_cut else destination.head_seq - pair.to_head
        end = source.head_seq
        _, cut = source.inner.changed_since(epoch)
        if cut is not None:
            if router.cut is not None and router.cut[0] > 0 and (epoch, source.epoch) == (pair.epoch, pair.epoch + 1):
                cut = router.cut[0]
            elif not source.inner.knows_since(epoch):
                raise _unknown(router, f"{router.source} was truncated while nothing looked, in epoch {epoch} or later")
            end = cut - 1
        return self._counted(router, source, seq, count, end)[0] if count > 0 and not is_quick else min(seq, end)

    def _foreign_place(self, router: Router, source: Topic, destination: Topic) -> int:
        """Return the place of a router of another directory, as after a recovery (ROUTER-3)."""
        end, head = source.first_seq - 1, destination.first_seq - 1  # when this directory took them over
        if source.head_seq < end or destination.head_seq < head:
            raise _unknown(router, "a truncation came right after the recovery")
        known = [place for place, pair in enumerate(router.pairs) if pair.to_head <= head]
        if not known:
            raise _unknown(router, f"{router.destination} is older than all that is known of it")
        pairs = router.pairs[: known[-1] + 1]
        for before, after in pairwise(pairs):
            for topic, last, is_cut, since_ms, until_ms in (
                (source, end, before.epoch != after.epoch, before.ts_ms, after.ts_ms),
                (destination, head, before.to_epoch != after.to_epoch, before.to_ts_ms, after.to_ts_ms),
            ):
                is_known = not is_cut or self._sight.cut(topic.name, since_ms) is not None
                if not is_known and not _is_later(topic, last, until_ms):
                    raise _unknown(router, f"a truncation of {topic.name} before the recovery is not in the remote")
        pair, former = pairs[-1], pairs[-2] if len(pairs) > 1 else None
        is_first = former is None or former.epoch != pair.epoch
        count, cut = head - pair.to_head, self._cut_since(router.source, pair.ts_ms, pair.seq, is_first=is_first)
        is_first = former is None or former.to_epoch != pair.to_epoch
        if self._cut_since(router.destination, pair.to_ts_ms, pair.to_head, is_first=is_first) is not None:
            raise _unknown(router, f"{router.destination} may have been truncated before the recovery")
        if cut == 1 or (cut is not None and count > 0):
            raise _unknown(router, f"{router.source} may have been truncated before the recovery")
        is_copy = router.source in self._into  # so lost records come again from there, and their copies are here
        if is_copy and end < pair.seq:
            raise _unknown(router, f"{router.source}, a copy itself, came back with fewer records than were copied")
        if count <= 0:
            return min(pair.seq, end, WHOLE_MAX if cut is None else cut - 1)
        if self._sight.takeovers(router.destination, pair.to_ts_ms) > 1:
            raise _unknown(router, f"{router.destination} was recovered twice since the router last told its place")
        seq, missing = self._counted(router, source, pair.seq, count, end)
        if is_copy and missing:
            raise _unknown(router, f"{router.source}, a copy itself, came back with fewer records than were copied")
        return seq

    def _cut_since(self, topic: str, ts_ms: int, seq: int, *, is_first: bool) -> int | None:
        """Return the lowest seq that a truncation since a pair took, by the history of the topic.

        The first pair of its epoch is made for a truncation, whose time it has if no append came in between.
        """
        later, cut = self._sight.cut(topic, ts_ms + 1), self._sight.cut(topic, ts_ms)
        return later if is_first and (cut is None or cut > seq) else cut

    def _counted(self, router: Router, source: Topic, seq: int, count: int, end: int) -> tuple[int, int]:
        """Return the seq of match number `count` behind `seq`, or `end` if it comes first; and how many are missing."""
        fits = self._sight.fits(router)
        for item in source.read(seq + 1, end, gaps=True) if seq < end else ():
            if isinstance(item, Gap) or item.seq != seq + 1:
                raise _unknown(router, f"records of {router.source} behind seq {seq} are gone since they were copied")
            seq = item.seq
            if fits(item) and not source.inner.ephemeral_seqs(seq, seq):
                count -= 1
                if not count:
                    return seq, 0
        if seq < end:
            raise _unknown(router, f"records of {router.source} behind seq {seq} are gone since they were copied")
        return end, count


def _is_later(topic: Topic, seq: int, ts_ms: int) -> bool:
    """Return whether a record is there and later than a time."""
    return any(record.ts_ms > ts_ms for record in (topic.read(seq, seq) if seq >= topic.earliest_seq > 0 else ()))


def _unknown(router: Router, why: str) -> Conflict:
    hint = (
        f"look what {router.destination} has, then `seglog router delete {router.name}`, and make it again with"
        " `--at seq:N`: it copies what is behind N"
    )
    return Conflict(f"its place in {router.source} is unknown: {why}", hint=hint)


def _keyed_router(record: Record) -> tuple[str, Router]:
    router = decode_router(record.value, record.tag)
    return router.name, router


def _destination_of(value: bytes) -> str:
    """Return the destination that a record of a later version keeps for its router; an empty text for none."""
    try:
        members = json.loads(value)
        return "" if members["state"] == "deleted" else str(members["to"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def _log_of(incarnation: str) -> str:
    """Return the id of the log in an incarnation."""
    return incarnation.partition("-")[0]


_making = threading.Lock()
_by_log: weakref.WeakKeyDictionary[Log, RouterStates] = weakref.WeakKeyDictionary()
