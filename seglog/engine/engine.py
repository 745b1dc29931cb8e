"""The parts of an open log, joined. `Log` and `Topic` are its public interface."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec, TypeVar

from seglog.base.ownership import Owned
from seglog.engine.room import HINT, Room
from seglog.engine.state import TopicState
from seglog.engine.tail import Memory
from seglog.engine.upkeep import Background, Upkeep
from seglog.errors import AppendsHeld, DiskFull, LogClosed, NoSuchTopic, ReadOnly
from seglog.files.clock import Clock, ClockWatch
from seglog.files.port import Files
from seglog.process import Reentrant, exclusive, new_lock, owned, try_lock
from seglog.segments.segment import SegmentCache, SegmentInfo, SegmentReader
from seglog.tiers.cold_tier import ColdTier
from seglog.tiers.warm_stores import WarmStores
from seglog.values.config import LogSettings, TopicConfig
from seglog.values.elsewhere import Elsewhere
from seglog.values.layout import Layout
from seglog.wal.committer import Committer
from seglog.wal.manifest import Encoder, WalPosition
from seglog.wal.wal import Wals

__all__ = ["Engine", "change"]

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


@dataclass(slots=True, eq=False)
class Engine(Owned):
    """The parts of an open log and the state that they share.

    `topics` includes topics whose creation is in flight. `state` and `find` return published topics only.
    `checkpointed` has, for each shard, the end of the WAL that the newest manifest covers.
    The code that opens the log sets `upkeep`, `reclaim`, `relocator` and `syncer`. `syncer` syncs records that were
    acked at `disk`. `has_dead` says that `reclaim` has work.
    `creating` has the ids of topics whose creation is in flight.
    `changed` has, by id, the topics that may differ from the newest manifest. `aging` is a heap of the other topics, by
    the time at which a checkpoint seals their active segment for its age. The second value of an item is unique,
    so that the heap never compares topics.
    `topics_being_deleted` has the topics whose deletion is in flight. `deleted` has the ids of deleted topics whose
    directories still exist. `epoch_floor` is the highest epoch of any deleted topic.
    `pending_warm_deletes` has (topic id, first seq) of segments that the relocator must delete from the warm stores. It
    deletes them before it moves other segments there.
    If `wants_checkpoint` is set, the upkeep makes a checkpoint. `append_block_reason` is the reason for which the log
    refuses appends now: that of a caller, which is `hold_reason`, or that of `room`. `log_id` is the log's own id, once
    a caller has asked for it.
    `elsewhere` has the topics that another directory writes, and `kept_elsewhere` what the newest manifest has of them.
    Only the thread that holds the checkpoint lock uses `encoder`.
    """

    layout: Layout
    files: Files
    clock: Clock
    settings: LogSettings
    topics: dict[str, TopicState]
    next_topic_id: int
    manifest_number: int
    checkpointed: tuple[WalPosition, ...]
    wals: Wals
    segments: SegmentCache
    committer: Committer = field(init=False)
    clock_watch: ClockWatch = field(init=False)
    memory: Memory = field(init=False)
    room: Room = field(init=False)
    upkeep: Upkeep = field(init=False)
    syncer: Upkeep = field(init=False)
    relocator: Upkeep = field(init=False)
    reclaim: Upkeep = field(init=False)
    _checkpoint_lock: Reentrant = field(default_factory=new_lock)
    _retention_lock: Reentrant = field(default_factory=new_lock)
    cold: ColdTier | None = None
    warm_stores: WarmStores | None = None
    pending_warm_deletes: tuple[tuple[int, int], ...] = ()
    topic_defaults: TopicConfig = field(default_factory=TopicConfig)
    encoder: Encoder = field(default_factory=Encoder)
    creating: set[int] = field(default_factory=set[int])
    changed: dict[int, TopicState] = field(default_factory=dict[int, TopicState])
    aging: list[tuple[int, int, TopicState]] = field(default_factory=list[tuple[int, int, TopicState]])
    topics_being_deleted: dict[int, TopicState] = field(default_factory=dict[int, TopicState])
    deleted: tuple[int, ...] = ()
    epoch_floor: int = 0
    mark_secret: int = 0
    has_dead: bool = False
    is_closed: bool = False
    is_read_only: bool = False
    wants_checkpoint: bool = False
    append_block_reason: str | None = None
    hold_reason: str | None = None
    log_id: str | None = None
    elsewhere: dict[str, Elsewhere] = field(default_factory=dict[str, Elsewhere])
    kept_elsewhere: tuple[tuple[str, Elsewhere], ...] = ()

    def __post_init__(self) -> None:
        self.memory = Memory(self.settings.ephemeral_max_bytes)
        self.committer = Committer(self.wals, new_lock(), self._reset_assigned)
        self.clock_watch = ClockWatch(self.clock)
        self.room = Room(self.files, self.layout, self.settings, self.wals, self.settle_block)

    @property
    def retention_lock(self) -> Reentrant:
        """Return the lock for a `with` statement. A thread takes it before the checkpoint lock and the committer's.

        Raises `CalledWithin` if this thread holds one of the three.
        """
        exclusive(self._checkpoint_lock)
        self.committer.check_apart()
        return exclusive(self._retention_lock)

    @property
    def checkpoint_lock(self) -> Reentrant:
        """Return the lock for a `with` statement. A thread takes it before the committer's lock.

        Raises `CalledWithin` if this thread holds one of the two.
        """
        self.committer.check_apart()
        return exclusive(self._checkpoint_lock)

    def takes_checkpoint_lock(self) -> bool:
        """Take the checkpoint lock if it is free, and return whether it was. `leave_checkpoint` releases it."""
        return try_lock(self._checkpoint_lock)

    def takes_retention_lock(self) -> bool:
        """Take the retention lock if it is free, and return whether it was. `leave_retention` releases it.

        A thread that holds the checkpoint lock does not get it, because the retention lock comes first in the order.
        """
        return not owned(self._checkpoint_lock) and try_lock(self._retention_lock)

    def leave_checkpoint(self) -> None:
        self._checkpoint_lock.release()

    def leave_retention(self) -> None:
        self._retention_lock.release()

    def check_apart(self) -> None:
        """Raise `CalledWithin` if this thread is within another call. Call this before closing the log."""
        exclusive(self.retention_lock)
        for upkeep in (self.upkeep, self.syncer, self.relocator, self.reclaim):
            if isinstance(upkeep, Background):
                upkeep.check_apart()

    def _leave_to_parent(self) -> None:
        """In a forked child, make active readers look at their next record again.

        The readers then find that the log is the parent's.
        """
        for state in (*self.topics.values(), *self.topics_being_deleted.values()):
            state.generation += 1

    def states(self) -> list[TopicState]:
        """Return the states of all topics that exist at the published end of the WAL. The caller holds the lock."""
        return [state for state in (*self.topics.values(), *self.topics_being_deleted.values()) if state.is_published]

    def find(self, name: str) -> TopicState | None:
        state = self.topics.get(name)
        return state if state is not None and state.is_published else None

    def state(self, name: str) -> TopicState:
        """Return the state of a published topic. Raises `LogClosed` or `NoSuchTopic`."""
        self.check_open()
        state = self.find(name)
        if state is None:
            raise NoSuchTopic(name)
        return state

    def segment(self, topic_id: int, info: SegmentInfo) -> SegmentReader:
        """Return a reader of the segment. For a relocated segment, wait for its store.

        Raises `FileNotFoundError` if the files of a hot segment are gone.
        """
        if info.is_hot or self.warm_stores is None:
            return self.segments.get(topic_id, info)
        return self.warm_stores.segment(topic_id, info)

    def wake_relocator(self) -> None:
        """Wake the relocator after a checkpoint, without the checkpoint lock. It may have segments to relocate."""
        if self.warm_stores is not None:
            self.relocator.wake()

    def is_being_deleted(self, name: str) -> bool:
        """Return whether the deletion of a topic of that name is in flight.

        Until the deletion is durable, no topic in another shard may take the name.
        """
        return bool(self.topics_being_deleted) and any(
            state.name == name for state in self.topics_being_deleted.values()
        )

    def check_open(self) -> None:
        if self.is_closed:
            raise LogClosed

    def check_writable(self) -> None:
        """Raise `ReadOnly` if the log is open for reading only."""
        if self.is_read_only:
            raise ReadOnly(self.layout.root)

    def settle_block(self) -> None:
        """Recompute `append_block_reason`, after a change of `hold_reason` or of `room`."""
        self.append_block_reason = self.hold_reason or self.room.refusal

    def check_appends(self) -> None:
        """Raise `AppendsHeld` if appends are refused. If the disk was the reason, look at it once more."""
        if self.hold_reason is None:
            self.room.look()
        if self.append_block_reason is not None:
            raise self.held()

    def held(self) -> AppendsHeld:
        """Return the error for an append that is refused now."""
        return AppendsHeld(self.append_block_reason or "", hint=HINT if self.hold_reason is None else None)

    def close(self) -> None:
        """Close the files. Active readers end with `LogClosed`, and followers end without an error."""
        with self.committer.lock:
            self.is_closed = True
            self.wals.forget()
            for state in self.states():
                state.wake()
        self.segments.clear()

    def _reset_assigned(self) -> None:
        self.creating.clear()
        for name, state in list(self.topics.items()):
            state.reset_assigned()
            if not state.is_published:
                del self.topics[name]
        for state in self.topics_being_deleted.values():
            state.reset_assigned()
            self.topics[state.name] = state
        self.topics_being_deleted.clear()


def change(
    function: Callable[Concatenate[Engine, _Given], _Result],
) -> Callable[Concatenate[Engine, _Given], _Result]:
    """Decorate a function that enqueues and finishes entries. An interrupt of it leaves no other thread waiting.

    On a full disk, give up the ballast and call the function again, unless it makes a topic. Then a `DiskFull` has the
    name of the function.
    """
    operation = function.__name__.lstrip("_").replace("_", " ")
    is_upkeep = operation != "create topic"

    @functools.wraps(function)
    def guarded(engine: Engine, /, *given: _Given.args, **named: _Given.kwargs) -> _Result:
        engine.committer.check_apart()
        while True:
            try:
                return function(engine, *given, **named)
            except DiskFull as error:
                engine.committer.leave(error)
                if not is_upkeep or not engine.room.give_up():
                    raise error.named(operation) from error
            except BaseException as error:
                engine.committer.leave(error)
                raise

    return guarded
