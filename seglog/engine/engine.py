"""The parts of an open log, joined. `Log` and `Topic` are its faces."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec, TypeVar

from seglog.engine.ephemeral_buffer import Memory
from seglog.engine.state import TopicState
from seglog.engine.upkeep import Background, Upkeep
from seglog.errors import LogClosed, NoSuchTopic, ReadOnly
from seglog.files.clock import Clock
from seglog.files.clock_watch import ClockWatch
from seglog.files.port import Files
from seglog.process.own_lock import Reentrant, new_lock, once, owned, taken
from seglog.process.ownership import Owned
from seglog.segments.cache import SegmentCache
from seglog.segments.segment import SegmentInfo, SegmentReader
from seglog.tiers.cold_stores import ColdStores
from seglog.tiers.cold_tier import ColdTier
from seglog.values.config import LogSettings, TopicConfig
from seglog.values.layout import Layout
from seglog.wal.committer import Committer
from seglog.wal.manifest import Encoder, WalPosition
from seglog.wal.shards import Wals

__all__ = ["Engine", "change"]

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


@dataclass(slots=True, eq=False)
class Engine(Owned):
    """`topics` also has those whose creation is on its way; `state` and `find` show published ones only.

    `checkpointed` are the ends of what the newest snapshot covers, one a shard. `upkeep`, `reclaim`, `relocator` and
    `syncer` for what is acked at disk are set by whoever opens; `has_dead` says that there is work for `reclaim`.
    `creating` are the ids of topics whose creation is on its way. `changed` are the topics that may be other than the
    newest snapshot says, by id; `aging` is a heap of when the others are to be sealed for their age, each with a number
    that no other has.
    `leaving` are topics whose deletion is on its way, `deleted` those whose directory is to be removed, `epoch_floor`
    is the highest epoch that a deleted topic had. `doomed` are (topic id, first seq) of segments that the relocator has
    to delete from the cold stores, before it moves others there. `wants_checkpoint` asks the upkeep for one. `held_for`
    is why appends are refused for now. `encoder` is for whoever has the checkpoint lock.
    """

    layout: Layout
    files: Files
    clock: Clock
    settings: LogSettings
    topics: dict[str, TopicState]
    next_topic_id: int
    snapshot_number: int
    checkpointed: tuple[WalPosition, ...]
    wals: Wals
    segments: SegmentCache
    committer: Committer = field(init=False)
    clock_watch: ClockWatch = field(init=False)
    memory: Memory = field(init=False)
    upkeep: Upkeep = field(init=False)
    syncer: Upkeep = field(init=False)
    relocator: Upkeep = field(init=False)
    reclaim: Upkeep = field(init=False)
    _checkpoint_lock: Reentrant = field(default_factory=new_lock)
    _retention_lock: Reentrant = field(default_factory=new_lock)
    cold: ColdTier | None = None
    cold_stores: ColdStores | None = None
    doomed: tuple[tuple[int, int], ...] = ()
    topic_defaults: TopicConfig = field(default_factory=TopicConfig)
    encoder: Encoder = field(default_factory=Encoder)
    creating: set[int] = field(default_factory=set[int])
    changed: dict[int, TopicState] = field(default_factory=dict[int, TopicState])
    aging: list[tuple[int, int, TopicState]] = field(default_factory=list[tuple[int, int, TopicState]])
    leaving: dict[int, TopicState] = field(default_factory=dict[int, TopicState])
    deleted: tuple[int, ...] = ()
    epoch_floor: int = 0
    has_dead: bool = False
    is_closed: bool = False
    is_read_only: bool = False
    wants_checkpoint: bool = False
    held_for: str | None = None

    def __post_init__(self) -> None:
        self.memory = Memory(self.settings.ephemeral_max_bytes)
        self.committer = Committer(self.wals, new_lock(), self._take_back)
        self.clock_watch = ClockWatch(self.clock)

    @property
    def retention_lock(self) -> Reentrant:
        """For `with`, before the other two. Raises `CalledWithin` if this thread has one of the three."""
        once(self._checkpoint_lock)
        self.committer.check_apart()
        return once(self._retention_lock)

    @property
    def checkpoint_lock(self) -> Reentrant:
        """For `with`, before the committer's. Raises `CalledWithin` if this thread has one of them."""
        self.committer.check_apart()
        return once(self._checkpoint_lock)

    def takes_checkpoint_lock(self) -> bool:
        """Without waiting. The caller calls `leave_checkpoint`."""
        return taken(self._checkpoint_lock)

    def takes_retention_lock(self) -> bool:
        """As `takes_checkpoint_lock`. A thread within a checkpoint does not get it: that lock comes later."""
        return not owned(self._checkpoint_lock) and taken(self._retention_lock)

    def leave_checkpoint(self) -> None:
        self._checkpoint_lock.release()

    def leave_retention(self) -> None:
        self._retention_lock.release()

    def check_apart(self) -> None:
        """Call this before the end of the log. Raises `CalledWithin` within any other call of this thread."""
        once(self.retention_lock)
        for upkeep in (self.upkeep, self.syncer, self.relocator, self.reclaim):
            if isinstance(upkeep, Background):
                upkeep.check_apart()

    def _leave_to_parent(self) -> None:
        """Readers on their way look again at their next record, and find that the log is the parent's."""
        for state in (*self.topics.values(), *self.leaving.values()):
            state.generation += 1

    def states(self) -> list[TopicState]:
        """Of all topics that the WAL up to its published end has. The lock is held."""
        return [state for state in (*self.topics.values(), *self.leaving.values()) if state.is_published]

    def find(self, name: str) -> TopicState | None:
        state = self.topics.get(name)
        return state if state is not None and state.is_published else None

    def state(self, name: str) -> TopicState:
        """Raises `LogClosed` or `NoSuchTopic`."""
        self.check_open()
        state = self.find(name)
        if state is None:
            raise NoSuchTopic(name)
        return state

    def segment(self, topic_id: int, info: SegmentInfo) -> SegmentReader:
        """Raises `FileNotFoundError` for a hot one that is gone; waits for the store of a relocated one."""
        if info.is_hot or self.cold_stores is None:
            return self.segments.get(topic_id, info)
        return self.cold_stores.segment(topic_id, info)

    def wake_relocator(self) -> None:
        """After a checkpoint, without its lock: there may be segments to relocate."""
        if self.cold_stores is not None:
            self.relocator.wake()

    def is_leaving(self, name: str) -> bool:
        """Whether a topic of that name is being deleted: until that is durable, no other shard may have the name."""
        return bool(self.leaving) and any(state.name == name for state in self.leaving.values())

    def check_open(self) -> None:
        if self.is_closed:
            raise LogClosed

    def check_writable(self) -> None:
        """Raises `ReadOnly`."""
        if self.is_read_only:
            raise ReadOnly(self.layout.root)

    def close(self) -> None:
        """Readers on their way end with `LogClosed`, followers just end."""
        with self.committer.lock:
            self.is_closed = True
            self.wals.forget()
            for state in self.states():
                state.wake()
        self.segments.clear()

    def _take_back(self) -> None:
        self.creating.clear()
        for name, state in list(self.topics.items()):
            state.take_back()
            if not state.is_published:
                del self.topics[name]
        for state in self.leaving.values():
            state.take_back()
            self.topics[state.name] = state
        self.leaving.clear()


def change(
    function: Callable[Concatenate[Engine, _Given], _Result],
) -> Callable[Concatenate[Engine, _Given], _Result]:
    """For what enqueues and finishes entries: wherever it is interrupted, nobody else is left waiting."""

    @functools.wraps(function)
    def guarded(engine: Engine, /, *given: _Given.args, **named: _Given.kwargs) -> _Result:
        engine.committer.check_apart()
        try:
            return function(engine, *given, **named)
        except BaseException as error:
            engine.committer.leave(error)
            raise

    return guarded
