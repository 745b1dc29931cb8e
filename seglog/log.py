"""An open data directory: topics over one write-ahead log."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Annotated, TypeAlias

from seglog.base.arguments import WHOLE_MAX, Within, checked
from seglog.base.lazy import logger
from seglog.base.ownership import Owned, is_foreign
from seglog.engine.engine import Engine, doing
from seglog.engine.work_thread import Background, UpkeepFactory
from seglog.errors import Conflict, DiskFull, NotADataDirectory, WarmStoreFailed
from seglog.files.clock import Clock, SystemClock
from seglog.files.directory import DirectoryLock
from seglog.files.file_system import Files, OsFiles, enter, leave
from seglog.interrupts import OwnLock, closing_after, uninterrupted
from seglog.lazy_imports import changes, checkpoint, checkpoint_plan, eviction, relocation
from seglog.open_engine import import_now, make_root, opened, opened_to_look, plain_errors
from seglog.startup import opening
from seglog.tiers.cold_tier import ColdTier
from seglog.tiers.segment_store import SegmentStores
from seglog.topic import Topic
from seglog.values.config import LogSettings, TopicConfig
from seglog.values.layout import Layout
from seglog.values.names import check_topic_name
from seglog.values.written_elsewhere import Elsewhere

if TYPE_CHECKING:
    from seglog.maintenance.checkpoint import Reclaimer
    from seglog.maintenance.checkpoint_plan import Retention

_logger = logger("seglog.log")
_PATIENCE_S = 1.0

#: At most half of all seqs: the other half stays for appends.
FirstSeq: TypeAlias = Annotated[int, Within(1, WHOLE_MAX // 2)]
#: At most the end of the year 9999. Every record gets a time from the floor on, and calendars end there.
TimeFloor: TypeAlias = Annotated[int, Within(0, 253_402_300_799_999)]


@checked
def open(
    path: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    clock: Clock | None = None,
    files: Files | None = None,
    settings: LogSettings | None = None,
    upkeep: UpkeepFactory = Background,
    warm_stores: SegmentStores | None = None,
) -> Log:
    """Open the data directory at `path`: lock it, recover it, and make it if it is not there.

        >>> with seglog.open("data") as log:
        ...     log.topic("orders").append([b"book", b"lamp"])
        range(1, 3)

    With `read_only`, the log shows the directory as recovery would find it at this moment. Nothing is made, locked or
    changed, and a running writer is not disturbed (see seglog.read_only_view). A call that would change something
    raises `ReadOnly`, and a read raises `ViewOutdated` if the data has gone since the opening.

    Args:
        path: The data directory.
        create: Make the directory if there is none.
        read_only: Look only.
        clock: The source of the records' times; the system's by default.
        files: The file system; the system's by default. Tests of crashes give another one.
        settings: The settings, in place of those in the directory's seglog.toml.
        upkeep: Makes checkpoints when the write-ahead log has grown. `InCaller` makes them in the calling thread,
            without a second thread.
        warm_stores: The stores that older sealed segments go to, instead of the setting `cold_dir`: a store for each
            topic, given its id. Give the same ones at every opening.

    Returns:
        The log, which is also a context manager that closes it.

    Raises:
        NotADataDirectory: There is no data directory, and `create` is false; or the path is another thing.
        DirectoryInUse: It is open already. A daemon serves it to other programs: `seglog.connect("unix:data")`.
        DirectoryNotWritable, Unavailable: The operating system refuses it.
        DiskFull: There is no room to recover.
        InvalidSetting: seglog.toml has a wrong value.
        WarmStoreRequired: Older segments are in a warm store, and none was given.
        WarmDirectoryTaken, WarmDirectoryNotApart: The warm directory belongs to another log, or is a part of this one.
        TooManyOpenFiles, InvalidArgument: The process has no file descriptor left, or the path is too long.
        FileCorrupt, FormatUnsupported: Nothing was changed.
    """
    port = OsFiles() if files is None else files
    layout = Layout(Path(path).absolute())
    clock = SystemClock() if clock is None else clock
    if not read_only:
        import_now()
    with plain_errors(layout.root, read_only=read_only):
        if create and not read_only:
            make_root(port, layout.root)
        elif not opening.is_data_directory(port, layout):
            opening.check_never_used(port, layout)
            raise NotADataDirectory(layout.root)
        enter(port, layout.root)
        try:
            if read_only:
                return Log(port, opened_to_look(port, layout, clock, settings, warm_stores))
            return opened(partial(Log, port), port, layout, clock, settings, upkeep, warm_stores)
        except BaseException:
            leave(port, layout.root)
            raise


class Log(Owned):
    """An open data directory, with its topics. `seglog.open` returns it. Safe for many threads.

    >>> with seglog.open("data") as log:
    ...     log.topics()
    []
    """

    def __init__(
        self, port: Files, engine: Engine, lock: DirectoryLock | None = None, reclaimer: Reclaimer | None = None
    ) -> None:
        """Take the parts of an open log. Without `lock`, the log is read-only and reclaims nothing."""
        self._port = port
        self._engine = engine
        self._reclaimer = reclaimer
        self._lock = lock
        self._closing = OwnLock()

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with closing_after(error):
            self.close()

    def __repr__(self) -> str:
        if is_foreign(self):
            return "<Log of another process>"
        engine = self._engine
        if engine.is_closed:
            return f"<Log of {self.path}: closed>"
        traits = [f"topics: {len(engine.topics)}"]
        traits += ["read-only"] * engine.is_read_only + [str(engine.cold)] * (engine.cold is not None)
        return f"<Log of {self.path}: {', '.join(traits)}>"

    @property
    def path(self) -> Path:
        return self._engine.layout.root

    @property
    def is_read_only(self) -> bool:
        return self._engine.is_read_only

    def check_writable(self) -> None:
        """Raise `ReadOnly` if the log is read-only. Upper layers call this before they change anything of their own."""
        self._engine.check_writable()

    @property
    def settings(self) -> LogSettings:
        return self._engine.settings

    @property
    def topic_defaults(self) -> TopicConfig:
        """Return the configuration of a topic that its first append makes."""
        return self._engine.topic_defaults

    @topic_defaults.setter
    @checked
    def topic_defaults(self, config: TopicConfig) -> None:
        self._engine.topic_defaults = config

    @property
    def is_poisoned(self) -> bool:
        """Return whether a write or sync failed. Then the log takes no change until it is opened again."""
        return self._engine.committer.is_poisoned

    @property
    def wal_bytes(self) -> int:
        """Return the bytes in the WAL files, without the reserved space."""
        return self._engine.wals.used_bytes

    @property
    def form(self) -> int:
        """Return the form of the directory (docs/operate/upgrades.md). A new directory has the newest one."""
        return self._engine.kept_form

    def topic(self, name: str) -> Topic:
        """Return the topic of that name, whether it exists yet or not. No I/O.

            >>> log.topic("orders").exists
            False

        Raises:
            InvalidName: A name has letters, digits, `.`, `_` and `-`: 128 at most. A branch is TOPIC@BRANCH.
        """
        return Topic(self._engine, check_topic_name(name))

    def get_topic(self, name: str) -> Topic:
        """Return the topic of that name, which has to exist.

            >>> log.create_topic("orders").append([b"book"])
            range(1, 2)
            >>> log.get_topic("orders").head_seq
            1

        Raises:
            NoSuchTopic: There is none.
            InvalidName: The name is none.
        """
        topic = self.topic(name)
        self._engine.state(name)
        return topic

    def topics(self) -> list[str]:
        """Return the names of the topics, ascending.

        >>> log.topic("orders").append([b"book"])
        range(1, 2)
        >>> log.topics()
        ['orders']
        """
        return sorted(name for name, state in list(self._engine.topics.items()) if state.is_published)

    @checked
    def has_topic(self, name: str) -> bool:
        return self._engine.find(name) is not None

    @checked
    def create_topic(
        self,
        name: str,
        config: TopicConfig | None = None,
        first_seq: FirstSeq = 1,
        ts_floor_ms: TimeFloor = 0,
        *,
        is_taken_over: bool = False,
    ) -> Topic:
        """Make a topic before its first append, with a configuration of its own. Durable on return.

            >>> log.create_topic("audit", seglog.TopicConfig(durability="fsync"))
            <Topic audit of ...: no records>

        The records below `first_seq` of a branch, and of a topic with `keep_history`, are in the cold tier. Any other
        topic has none there, and reads begin at `first_seq`.

        Args:
            name: The name.
            config: The configuration; None is the log's `topic_defaults`.
            first_seq: The seq of the first record.
            ts_floor_ms: No record gets a time below this one, in ms since the epoch.
            is_taken_over: This directory writes the topic from now on, and the mark of another one ends.

        Raises:
            InvalidName, InvalidArgument: Nothing was made.
            TopicExists: There is such a topic.
            WrittenElsewhere: Another directory writes the topic (`mark_elsewhere`).
        """
        topic = self.topic(name)
        config = self.topic_defaults if config is None else config
        changes.create_topic(
            self._engine, name, config, first_seq=first_seq, ts_floor_ms=ts_floor_ms, is_taken_over=is_taken_over
        )
        return topic

    @property
    def elsewhere(self) -> Mapping[str, Elsewhere]:
        """Return the marks of the topics that another directory writes, by name."""
        return MappingProxyType(self._engine.elsewhere)

    @checked
    def mark_elsewhere(self, name: str, mark: Elsewhere | None) -> None:
        """Put on record that another directory writes the topic, durably on return. None ends the mark.

        Appends to it raise `WrittenElsewhere` from now on (seglog.values.written_elsewhere). Raise `InvalidName`.
        """
        changes.mark_elsewhere(self._engine, check_topic_name(name), mark)

    @checked
    def known_appends(self, name: str) -> Elsewhere:
        """Return a mark with the producers and keys that the log knows of a topic, which may be elsewhere now."""
        mark, state = self._engine.elsewhere.get(name, Elsewhere()), self._engine.find(name)
        if state is None:
            return mark
        with self._engine.committer.lock:
            return replace(
                mark,
                producers=() if state.producers is None else state.producers.all(),
                keys=() if state.keys is None else state.keys.all(),
            )

    @checked
    def configure(self, name: str, config: TopicConfig) -> None:
        """Replace the configuration of a topic, durably, for later appends.

            >>> topic = log.create_topic("audit")
            >>> log.configure("audit", seglog.TopicConfig(ttl_ms=3_600_000))
            >>> topic.config.ttl_ms
            3600000

        Raises:
            NoSuchTopic: There is none.
            WrittenElsewhere: This directory follows the topic (`mark_elsewhere`).
            InvalidName: The name is none.
        """
        changes.configure(self._engine, check_topic_name(name), lambda _: config)

    @checked
    def reconfigure(self, name: str, change: Callable[[TopicConfig], TopicConfig]) -> TopicConfig:
        """Change single settings of a topic by a function of its present configuration. Durable on return.

            >>> import dataclasses
            >>> topic = log.create_topic("audit")
            >>> log.reconfigure("audit", lambda config: dataclasses.replace(config, ttl_ms=3_600_000)).ttl_ms
            3600000

        So two callers who change different settings at once lose neither. The function runs again if another change
        comes first, and must not call the log.

        Returns:
            The new configuration.

        Raises:
            NoSuchTopic: There is none.
            WrittenElsewhere: This directory follows the topic (`mark_elsewhere`).
            InvalidName: The name is none.
            Exception: What the function raises.
        """
        return changes.configure(self._engine, check_topic_name(name), change)

    @checked
    def delete_topic(self, name: str, *, position: tuple[int, int, int] | None = None) -> None:
        """Delete the topic and all its records, durably. The next checkpoint frees the space. There is no undo.

            >>> log.topic("orders").append([b"book"])
            range(1, 2)
            >>> log.delete_topic("orders")
            >>> log.topics()
            []

        The name is free after that. A later topic of that name has a new id and a higher epoch. `Archive.delete_topic`
        deletes a topic that an archive keeps.

        Args:
            name: The name.
            position: Of a topic with `keep_history`, whose history the caller has secured: the position that the topic
                had at that time (`Topic.inner.position`).

        Raises:
            NoSuchTopic: There is none.
            Misuse: The topic has `keep_history`, and no `position` was given.
            ConcurrentModification: The topic has another position now. Nothing was done.
        """
        changes.delete_topic(self._engine, name, position)

    @checked
    def attach_cold(self, tier: ColdTier) -> None:
        """Send reads below a topic's hot floor to `tier` from now on.

        Raise `Conflict` if there is a cold tier already.
        """
        if self._engine.cold is not None:
            hint = "close the attached archive, then attach the other one"
            raise Conflict("the log has a cold tier already", hint=hint)
        self._engine.cold = tier

    def detach_cold(self) -> None:
        """Detach the cold tier. From now on, reads below a topic's hot floor raise `ColdTierRequired`."""
        self._engine.cold = None

    @checked
    def hold_appends(self, reason: str | None) -> None:
        """Refuse appends from now on with `AppendsHeld`, which gives the reason. With None, accept them again.

        Other changes still work: deletes, releases and checkpoints make room. So do repetitions of a batch or a key.
        """
        self._engine.hold_reason = reason
        self._engine.settle_block()

    @property
    def disk_reject_bytes(self) -> int:
        """Return the free space below which the log refuses appends, in bytes: the setting of that name at first."""
        return self._engine.room.reject_bytes

    @disk_reject_bytes.setter
    @checked
    def disk_reject_bytes(self, size_bytes: Annotated[int, Within(0, WHOLE_MAX)]) -> None:
        self._engine.room.reject_bytes = size_bytes
        self._engine.room.look()

    def make_room(self) -> None:
        """Give up the log's ballast if its disk is full (seglog.engine.engine). Otherwise do nothing.

        An upper layer calls this before it writes into the data directory.
        """
        self._engine.room.make_room()

    @checked
    def append_upkeep(self, name: str, value: bytes) -> None:
        """Append a record that an upper layer needs to free space, such as the note of a deletion.

        The record is durable on return. This also works while appends are held, and on a full disk it gives up the
        ballast. Raise what `Topic.append` does, except `AppendsHeld`.
        """
        changes.append_upkeep(self._engine, check_topic_name(name), value)

    @checked
    def seal(self, names: Iterable[str]) -> None:
        """Seal the segments of several topics, as `Topic.seal` does for one, with one write of the manifest for all.

        >>> log.topic("orders").append([b"book"])
        range(1, 2)
        >>> log.seal(["orders", "unknown"])  # a topic that does not exist is left out
        """
        self.check_writable()
        own_names = [name for name in dict.fromkeys(names) if self.has_topic(name)]
        requests = [checkpoint_plan.CheckpointRequest(name, seal=True) for name in own_names]
        if requests:
            with doing("seal"):
                checkpoint.checkpoint(self._engine, *requests)

    def versions(self) -> dict[str, tuple[object, ...]]:
        """Return a value for each topic. As long as it stays, the topic has the same records, deletes and segments.

        A change of its configuration changes the value as well. Costs much less than a look at each topic.
        """
        self._engine.check_open()
        return {
            name: (state.topic_id, state.epoch, state.head_seq, state.next_op, state.generation, state.config)
            for name, state in list(self._engine.topics.items())
            if state.is_published
        }

    def checkpoint(self) -> None:
        """Copy the records in the WAL to segments, and remove the WAL files that are not needed any more.

            >>> log.checkpoint()

        The log does this by itself when the WAL has grown.

        Raises:
            DiskFull: The records are as safe as before. Make room, and call it again.
        """
        checkpoint.checkpoint(self._engine)

    def enforce_retention(self) -> list[Retention]:
        """Seal segments that are old enough, and evict records past the ttl or a cap, in all topics.

            >>> log.enforce_retention()
            []

        The caller repeats this call now and then; a daemon does. Appends enforce the caps on their own.

        Returns:
            A result for each topic that had something due: the evicted records, or the records that wait for the
            archive.
        """
        self._engine.check_open()
        return eviction.enforce_all(self._engine)

    def upgrade(self) -> None:
        """Give the directory the newest form, durably. Older versions of seglog cannot open it from then on.

            log.upgrade()

        Raises:
            DiskFull: The form is as it was. Make room, and call it again.
            ReadOnly: The log is open for reading only.
        """
        checkpoint.upgrade(self._engine)

    def reclaim(self) -> None:
        """Give the bytes of deleted records back at once, in every sealed segment that is due for reclaiming.

            >>> log.reclaim()

        Return when that is done. If a segment cannot be read or written, that is logged, and the segment stays
        unchanged. Records in the WAL or in an unsealed segment keep their bytes. So do the records of a topic with
        `keep_history`.
        """
        self._engine.check_open()
        checkpoint.checkpoint(self._engine)
        if self._reclaimer is not None:
            self._reclaimer.run_now()

    def remove(self) -> None:
        """Remove the log from the disk, every topic with all its records, and close it. There is no undo.

            >>> log.remove()

        seglog.toml stays, and so do files that are not the log's.

        Raises:
            Misuse: An archive keeps a topic. Nothing was changed.
            WarmStoreFailed, OSError: The log has fewer topics now. Repeat the call.
        """
        engine = self._engine
        self.check_writable()
        names = self.topics()
        for name in names:
            if engine.state(name).config.keep_history:
                raise changes.history_kept(name)
        for name in names:
            self.delete_topic(name)
        checkpoint.checkpoint(engine)
        relocation.relocate_due(engine)
        if engine.pending_warm_deletes:
            topic_id, first_seq = engine.pending_warm_deletes[0]
            raise WarmStoreFailed(engine.layout.data(topic_id, first_seq), "it does not delete it")
        self._close(then=partial(_erase, engine))

    def close(self) -> None:
        """Make everything durable, and release the directory, even if an error is raised. Idempotent.

            >>> log.close()

        If a warm store does not answer, `close` waits for it for a second at most.

        Raises:
            CalledWithin: A call of this thread is under way. The log stays open.
            DiskFull: The WAL keeps what the last checkpoint could not copy.
        """
        self._close(then=lambda: None)

    def _close(self, *, then: Callable[[], None]) -> None:
        """Close the log. Call `then` while the directory is still locked."""
        if is_foreign(self) or self._engine.is_closed:
            return
        if self._lock is None or self._reclaimer is None:
            self._engine.close()
            leave(self._port, self._engine.layout.root)
            return
        self._engine.check_apart()
        self._reclaimer.check_apart()
        with self._closing.exclusive:
            if not self._engine.is_closed:
                self._close_once(self._lock, self._reclaimer, then)

    def _close_once(self, lock: DirectoryLock, reclaimer: Reclaimer, then: Callable[[], None]) -> None:
        try:
            reclaimer.stop()
            try:
                if not self._engine.relocator.close(_PATIENCE_S):
                    _logger.warning("the warm store has not answered yet: what is on its way there stays hot")
            finally:
                # The directory is released next, so an interrupt waits for all threads that write. Only the warm store
                # may hang.
                uninterrupted(lambda: self._end_work(reclaimer))
            if not self._engine.committer.is_poisoned:
                self._checkpoint_last()
            self._close_engine()
            then()
        finally:
            self._close_engine()
            if self._engine.warm_stores is not None:
                self._engine.warm_stores.release()
            lock.release()
            leave(self._port, self._engine.layout.root)

    def _end_work(self, reclaimer: Reclaimer) -> None:
        """Wait until no thread of the log works, and sync. After an interrupt `close` calls this again."""
        reclaimer.join()
        for upkeep in (self._engine.reclaim, self._engine.upkeep, self._engine.syncer):
            upkeep.close()
        self._engine.committer.close()

    def _checkpoint_last(self) -> None:
        """Make the last checkpoint. On a full disk, first give the space back that the WAL has reserved."""
        with doing("close"):
            try:
                checkpoint.checkpoint(self._engine)
            except DiskFull:
                self._engine.wals.release_space()
                checkpoint.checkpoint(self._engine)
        self._engine.wals.release_space()

    def _close_engine(self) -> None:
        # Under this lock, no relocation is between its flip and the deletion of its hot copy.
        with self._engine.checkpoint_lock:
            self._engine.close()


def _erase(engine: Engine) -> None:
    opening.erase(engine.files, engine.layout)
    if engine.warm_stores is not None:
        engine.warm_stores.give_up()
