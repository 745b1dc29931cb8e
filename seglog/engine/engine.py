"""The parts of an open log, joined. `Log` and `Topic` are its public interface.

**Room on the disk.** Appends stop while some is left, and a ballast lets upkeep work when none is.

    free space                                     appends    upkeep
    `disk_reject_bytes` or more                    work       keeps the ballast: a file that reserves space
    less                                           refused    works in the space that is left
    none: a write of upkeep fails                  refused    gives up the ballast, and makes the write again
    enough for the ballast, and the bound above    work       makes the ballast again

SPACE-1  Upkeep is what frees space, or must be done first: a checkpoint, and with it seal and close, a delete, an
    eviction, a truncation, an opening, and the writes of the local catalog. An append never gives up the ballast.
SPACE-2  The ballast is for one checkpoint: one and a half times `wal_file_bytes`, because an index entry takes half as
    much as the smallest frame, and `_SPARE_BYTES` for manifests and the local catalog. A log whose write-ahead log has
    not come to the middle of its first file keeps `_SPARE_BYTES`, and one of less than that none.
SPACE-3  The log looks at the free space at its opening, after each checkpoint, and when the upkeep prepares a WAL file:
    once in half a WAL file. While it refuses appends, it looks at each of them. An append that is taken costs no look.
SPACE-4  The content of the ballast means nothing. So nothing syncs it, and a crash at any moment does no harm.
SPACE-5  The log looks only where the operating system tells the free space: with `OsFiles`. With another port it has no
    ballast, and a full disk shows at the write.

A bound that ended appends lets them begin again when a tenth more is free, so that the state does not flap.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import field
from typing import Concatenate, ParamSpec, TypeVar

from seglog.base.dataclasses import dataclass
from seglog.base.errors import format_bytes
from seglog.base.lazy import logger
from seglog.base.ownership import Owned
from seglog.engine.state import TopicState
from seglog.engine.tail import Memory
from seglog.engine.work_thread import Background, Upkeep
from seglog.errors import AppendsHeld, DiskFull, LogClosed, NoSuchTopic, ReadOnly, UpgradeNeeded
from seglog.files.clock import Clock, ClockWatch
from seglog.files.file_system import Files, OpenFile, OsFiles
from seglog.interrupts import Reentrant, exclusive, new_lock, owned, try_lock
from seglog.segments.segment import SegmentCache, SegmentInfo, SegmentReader
from seglog.tiers.cold_tier import ColdTier
from seglog.tiers.warm_stores import WarmStores
from seglog.values.config import LogSettings, TopicConfig
from seglog.values.layout import Layout
from seglog.values.written_elsewhere import Elsewhere
from seglog.wal.group_commit import Committer
from seglog.wal.manifest import Encoder, WalPosition
from seglog.wal.wal import Wals, first_ordinal

_logger = logger("seglog.engine.engine")
_SPARE_BYTES = 1024 * 1024
HINT = "free some space on its disk, or lower log.disk_reject_bytes and open the log again; appends then work again"


class Room:
    """The room on the disk of one log. `refusal` is the reason for which appends are refused now, or None.

    `reject_bytes` is the setting `disk_reject_bytes`. Whoever changes it calls `look`.
    """

    def __init__(
        self, files: Files, layout: Layout, settings: LogSettings, wals: Wals, on_change: Callable[[], None]
    ) -> None:
        self.refusal: str | None = None
        self._files = files
        self._layout = layout
        self.reject_bytes = settings.disk_reject_bytes
        self._wal_file_bytes = settings.wal_file_bytes
        self._wals = wals
        self._on_change = on_change
        self._looking = new_lock()
        self._is_used = False
        self._ballast_bytes = 0
        self._given_up_bytes = 0

    @property
    def has_given_up(self) -> bool:
        """Return whether the ballast was given up, and is not there again."""
        return bool(self._given_up_bytes)

    def begin(self, *, was_given_up: bool = False) -> None:
        """Look at the disk for the first time. `was_given_up` says that the opening had to give up the ballast."""
        self._is_used = isinstance(self._files, OsFiles)
        if self._is_used:
            self._ballast_bytes = _size(self._files, self._layout)
            self._given_up_bytes = self._wanted_bytes() if was_given_up else 0
            self.look()

    def look(self) -> None:
        """Look at the free space: refuse appends or take them again, and make the ballast if there is room for it.

        If another thread looks, do nothing.
        """
        if not self._is_used or not try_lock(self._looking):
            return
        try:
            self._look()
        finally:
            self._looking.release()

    def _look(self) -> None:
        free_bytes = self._free_bytes()
        if free_bytes is None:
            return
        reject_bytes = self.reject_bytes
        wanted_bytes = self._wanted_bytes()
        if self._ballast_bytes < wanted_bytes:
            # It takes nothing that appends may use, and leaves some space in any case.
            needed_bytes = wanted_bytes - self._ballast_bytes
            if free_bytes - needed_bytes >= max(reject_bytes + reject_bytes // 10, needed_bytes // 4):
                free_bytes -= self._make(wanted_bytes)
        name, bound_bytes = "log.disk_reject_bytes", reject_bytes
        again_bytes = self._given_up_bytes + self._given_up_bytes // 4
        if again_bytes > reject_bytes:
            name, bound_bytes = "the room for its ballast, which upkeep gave up,", again_bytes
        needed_bytes = bound_bytes + (bound_bytes // 10 if self.refusal is not None else 0)
        free, bound = format_bytes(free_bytes), format_bytes(bound_bytes)
        if free == bound:
            free, bound = f"{free_bytes:,} B", f"{bound_bytes:,} B"
        reason = f"the disk has only {free} left, and {name} is {bound}"
        self._refuse(reason if free_bytes < needed_bytes else None)

    def make_room(self) -> None:
        """Give up the ballast if the disk has no room for small writes, such as those of a database."""
        free_bytes = self._free_bytes() if self._ballast_bytes else None
        if free_bytes is not None and free_bytes < _SPARE_BYTES:
            self.give_up()

    def give_up(self) -> bool:
        """Remove the ballast, and refuse appends until it is there again. Return whether there was one."""
        if not self._ballast_bytes or not give_up_ballast(self._files, self._layout):
            return False
        _logger.warning("the disk of %s is full: %d bytes of ballast given up", self._layout.root, self._ballast_bytes)
        self._given_up_bytes, self._ballast_bytes = self._ballast_bytes, 0
        self.look()
        return True

    def _make(self, size_bytes: int) -> int:
        """Make or enlarge the ballast, and return the bytes that it took: 0 if there is no room after all."""
        path, before_bytes = self._layout.ballast, self._ballast_bytes
        try:
            ballast = OpenFile(self._files, path, os.O_RDWR | os.O_CREAT)
            self._files.allocate(ballast.fd, size_bytes)
        except OSError as error:
            _logger.debug("no ballast: %s", error)
            with suppress(OSError):
                self._files.unlink(path)
            self._ballast_bytes = 0
            return 0
        self._ballast_bytes, self._given_up_bytes = size_bytes, 0
        return size_bytes - before_bytes

    def _wanted_bytes(self) -> int:
        """Return the size of the ballast (SPACE-2)."""
        wals, file_bytes = self._wals.each, self._wal_file_bytes
        for shard, wal in enumerate(wals):
            if wal.number != first_ordinal(shard, len(wals)) or wal.offset > wal.half_bytes:
                return file_bytes + file_bytes // 2 + _SPARE_BYTES
        return _SPARE_BYTES if any(wal.offset >= _SPARE_BYTES for wal in wals) else 0

    def _refuse(self, reason: str | None) -> None:
        if reason is not None and self.refusal is None:  # no warning: each refused append raises an error that says it
            _logger.info("appends to %s are refused: %s", self._layout.root, reason)
        elif reason is None and self.refusal is not None:
            _logger.info("appends to %s work again", self._layout.root)
        self.refusal = reason
        self._on_change()

    def _free_bytes(self) -> int | None:
        try:
            disk = os.statvfs(self._layout.root)
        except OSError:
            return None
        return disk.f_bavail * disk.f_frsize


def give_up_ballast(files: Files, layout: Layout) -> bool:
    """Remove the ballast, and return whether there was one."""
    with suppress(OSError):
        files.unlink(layout.ballast)
        return True
    return False


@contextmanager
def doing(operation: str) -> Iterator[None]:
    """Give a `DiskFull` from within the name of the caller's operation."""
    try:
        yield
    except DiskFull as error:
        if error.operation == operation:
            raise
        raise error.named(operation) from error


def _size(files: Files, layout: Layout) -> int:
    try:
        return OpenFile(files, layout.ballast, os.O_RDONLY).size()
    except OSError:
        return 0


_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


@dataclass(slots=True, eq=False)
class Engine(Owned):
    """The parts of an open log and the state that they share."""

    layout: Layout
    files: Files
    clock: Clock
    settings: LogSettings
    #: By name, with topics whose creation is in flight. `state` and `find` return published topics only.
    topics: dict[str, TopicState]
    next_topic_id: int
    manifest_number: int
    #: For each shard, the end of the WAL that the newest manifest covers.
    checkpointed: tuple[WalPosition, ...]
    wals: Wals
    segments: SegmentCache
    committer: Committer = field(init=False)
    clock_watch: ClockWatch = field(init=False)
    memory: Memory = field(init=False)
    room: Room = field(init=False)
    # The code that opens the log sets these four, because they need the engine.
    upkeep: Upkeep = field(init=False)
    #: Syncs the records that were acked at `disk`.
    syncer: Upkeep = field(init=False)
    relocator: Upkeep = field(init=False)
    reclaim: Upkeep = field(init=False)
    _checkpoint_lock: Reentrant = field(default_factory=new_lock)
    _retention_lock: Reentrant = field(default_factory=new_lock)
    cold: ColdTier | None = None
    warm_stores: WarmStores | None = None
    #: (topic id, first seq) of segments that the relocator deletes from the warm stores before it moves others there.
    pending_warm_deletes: tuple[tuple[int, int], ...] = ()
    topic_defaults: TopicConfig = field(default_factory=TopicConfig)
    #: Only the thread that holds the checkpoint lock uses it.
    encoder: Encoder = field(default_factory=Encoder)
    #: The ids of topics whose creation is in flight.
    creating: set[int] = field(default_factory=set[int])
    #: By id, the topics that may differ from the newest manifest.
    changed: dict[int, TopicState] = field(default_factory=dict[int, TopicState])
    #: A heap of the other topics, by the time at which a checkpoint seals their active segment for its age. The second
    #: value of an item is unique, so that the heap never compares topics.
    aging: list[tuple[int, int, TopicState]] = field(default_factory=list[tuple[int, int, TopicState]])
    #: By id, the topics whose deletion is in flight.
    topics_being_deleted: dict[int, TopicState] = field(default_factory=dict[int, TopicState])
    #: The ids of deleted topics whose directories still exist.
    deleted: tuple[int, ...] = ()
    #: The highest epoch of any deleted topic.
    epoch_floor: int = 0
    mark_secret: int = 0
    #: Whether `reclaim` has work.
    has_dead: bool = False
    is_closed: bool = False
    is_read_only: bool = False
    #: Whether the upkeep makes a checkpoint when it wakes.
    wants_checkpoint: bool = False
    #: Why the log refuses appends now: the reason of a caller, which is `hold_reason`, or that of `room`.
    append_block_reason: str | None = None
    hold_reason: str | None = None
    #: The log's own id, once a caller has asked for it.
    log_id: str | None = None
    #: The topics that another directory writes, and what the newest manifest has of them.
    elsewhere: dict[str, Elsewhere] = field(default_factory=dict[str, Elsewhere])
    kept_elsewhere: tuple[tuple[str, Elsewhere], ...] = ()
    #: The form of the directory (seglog.base.forms) that the next manifest gets, and the form of the newest one.
    form: int = 1
    kept_form: int = 1

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

    def check_form(self, what: str, form: int) -> None:
        """Raise `UpgradeNeeded` if the directory has a lower form than `what` needs (FORM-2)."""
        if self.kept_form < form:
            raise UpgradeNeeded(what, str(self.layout.root), self.kept_form, form)

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


def change(function: Callable[Concatenate[Engine, _Given], _Result]) -> Callable[Concatenate[Engine, _Given], _Result]:
    """Decorate a function that enqueues and finishes entries. An interrupt of it leaves no other thread waiting.

    On a full disk, give up the ballast and call the function again, unless it makes a topic. Then a `DiskFull` has the
    name of the function.
    """
    operation = function.__name__.lstrip("_").replace("_", " ")
    is_upkeep = operation != "create topic"

    @functools.wraps(function)
    def guarded(engine: Engine, /, *arguments: _Given.args, **keywords: _Given.kwargs) -> _Result:
        engine.committer.check_apart()
        while True:
            try:
                return function(engine, *arguments, **keywords)
            except DiskFull as error:
                engine.committer.leave(error)
                if not is_upkeep or not engine.room.give_up():
                    raise error.named(operation) from error
            except BaseException as error:
                engine.committer.leave(error)
                raise

    return guarded
