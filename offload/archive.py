"""A log with its cold tier: offload, reads over both tiers, deletes that can be undone, branches and restore.

    log = seglog.open("data")
    archive = offload.attach(log, "s3://bucket/acme")
    archive.offload("orders")
    archive.restore("orders", to="seq:42", name="half")

A topic of the log has a *handle* in the local catalog: the volume in the remote that carries its history, and how far
that is known here. `TOPIC@BRANCH` names a branch; plain `TOPIC` is the branch `main`.

No call here is made by an append or by a hot read, so a slow or dead store touches neither.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType

from catalog import (
    MAIN,
    Branch,
    Branches,
    Codec,
    ForkPoint,
    Handle,
    History,
    LocalCatalog,
    Snapshot,
    Vid,
    Volumes,
    keys,
    timeline,
)
from catalog.branch import Distance
from catalog.control import Tag
from catalog.encoding import decode_commit_at
from catalog.errors import CatalogError
from catalog.gc import Collector
from catalog.gc_report import GcPolicy, GcReport
from catalog.history import NO_HISTORY
from catalog.objects.base import ObjectStore
from catalog.oplog import NumberedEntry, Oplog
from catalog.retention import window_ms_of
from catalog.tag import NamedTag, Tags
from catalog.undo import undo
from offload.attempt import AttemptState
from offload.block import largest_entry
from offload.cache import open_cache
from offload.catalog_settings import CatalogSettings, load_catalog_settings
from offload.cold import ColdReader
from offload.cold_settings import ColdSettings, load_cold_settings
from offload.deletes import count_cold, count_hot, live_entries
from offload.diff import BranchDiff, diff_of
from offload.erasures import Erasures
from offload.errors import HistoryBehind, NoRemote, OffloadError, OpenBranch
from offload.handles import Handles, split_name
from offload.local_gc import drop_copies
from offload.offloader import Offloader
from offload.publisher import Published, Publisher, divergence
from offload.replica import Replicas, SyncState
from offload.reset import Reset, ResetResult
from offload.runs import RunStatus, run_statuses
from offload.sending import InThread, Sender
from offload.settings import OffloadSettings, load_archive_settings
from offload.sync import Sync, Synced
from offload.takeover import Takeover
from offload.topic_config import PAUSED
from offload.topic_status import TopicStatus, status_of, status_of_replica
from offload.wiring import open_store
from seglog import DeleteOp, Log, Record, Topic
from seglog.clock import Clock, SystemClock
from seglog.config import SETTINGS_FILE
from seglog.errors import HistoryKept, InvalidSetting, SeqOutOfRange
from seglog.frame import LABEL_MAX_BYTES, MIN_FRAME_BYTES, read_header

__all__ = ["Archive", "Deleted", "OffloadResult", "OrphanUpload", "Restored", "TopicStatus", "attach"]

_ORPHAN_AGE_MS = 24 * 3600 * 1000  # longer than any upload takes
_FRAME_OVERHEAD_BYTES = MIN_FRAME_BYTES + 2 * LABEL_MAX_BYTES


@dataclass(frozen=True, slots=True)
class OffloadResult:
    """What a call of `offload` did. `released_seq` is the last seq whose hot copy went, 0 if none did."""

    published: tuple[Published, ...]
    released_seq: int
    offloaded_seq: int
    unsealed_records: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """`records` were taken, as far as that can be counted. `lsn` is the commit that tells the remote.

    While the remote waits for it, `lsn` is None and `waits_for` says what for; `records` is None if the ones in the
    cold tier could not be counted.
    """

    op: DeleteOp
    records: int | None
    lsn: int | None
    waits_for: str | None = None


@dataclass(frozen=True, slots=True)
class Restored:
    """A branch that was made, and what it holds. `last_seq` and `last_ts_ms` are 0 for an empty one."""

    vid: Vid
    records: int
    last_seq: int
    last_ts_ms: int


@dataclass(frozen=True, slots=True)
class OrphanUpload:
    """A multipart upload that nobody goes on with: it costs money, and holds nothing that is needed."""

    key: keys.Key
    upload_id: str
    age_ms: int


def attach(
    log: Log,
    url: str | None = None,
    *,
    store: ObjectStore | None = None,
    settings: OffloadSettings | None = None,
    cold: ColdSettings | None = None,
    upkeep: CatalogSettings | None = None,
    clock: Clock | None = None,
    sender: Sender | None = None,
) -> Archive:
    """Give `log` its cold tier: from now on its reads go on below the hot floor. Makes no request yet.

    Over a log that is open for reading only, the archive changes nothing either, here or in the remote: `ReadOnly`.
    `url` is `s3://bucket/prefix` or `file:///path`; without it the `[remote]` section of seglog.toml decides. A `store`
    may be given instead. `sender` makes the objects of what is offloaded; by default the thread that offloads does.
    Raises `NoRemote`, `InvalidRemote`, `InvalidSetting`, `ColdTierAttached`.
    """
    configured_url, configured = load_archive_settings(log.path / SETTINGS_FILE)
    url = url or configured_url
    cold = cold or load_cold_settings(log.path / SETTINGS_FILE)
    upkeep = upkeep or load_catalog_settings(log.path / SETTINGS_FILE)
    settings = settings or configured
    if store is None:
        if not url:
            raise NoRemote(log.path)
        store = open_store(url, cold, settings)
    largest = min(largest_entry(settings.block_size, codec) for codec in Codec)
    if log.settings.max_record_bytes + _FRAME_OVERHEAD_BYTES > largest:
        raise InvalidSetting(
            "offload.block_size",
            f"a record of log.max_record_bytes ({log.settings.max_record_bytes}) would not fit one",
        )
    return Archive(log, store, settings, cold, upkeep, clock or SystemClock(), sender)


class Archive:
    """The cold tier of one log. A context manager; closing it leaves the log open."""

    def __init__(
        self,
        log: Log,
        store: ObjectStore,
        settings: OffloadSettings,
        cold: ColdSettings,
        upkeep: CatalogSettings,
        clock: Clock,
        sender: Sender | None,
    ) -> None:
        self._log = log
        self._store = store
        self._clock = clock
        cache_bytes = 0 if log.is_read_only else cold.cache_bytes
        self._reader = ColdReader(store, cold, open_cache(cold.place_of_cache(log.path), cache_bytes))
        try:
            log.attach_cold(_ColdTier(self._reader, self.snapshot))
        except BaseException:
            self._reader.close()
            raise
        try:
            self._local = LocalCatalog(log.path / "catalog.db", read_only=log.is_read_only)
        except BaseException:
            log.detach_cold()
            self._reader.close()
            raise
        log.topic_defaults = replace(log.topic_defaults, keep_history=True)
        self._volumes = Volumes(store, self._local)
        writer_id = socket.gethostname()
        self._branches = Branches(self._volumes, writer_id)
        self._tags = Tags(self._volumes, writer_id)
        self._writer_id = writer_id
        self._upkeep = upkeep
        self._sender = sender or InThread(store, self._reader)
        self._handles = Handles(log, self._volumes, self._branches, self._local, clock)
        self._publisher = Publisher(
            self._volumes, self._handles, self._local, upkeep.checkpoint_policy, clock, writer_id
        )
        self._offloader = Offloader(
            log,
            store,
            self._volumes,
            self._handles,
            self._local,
            self._reader,
            settings,
            self._publisher,
            clock,
            self._sender,
        )
        self._replicas = Replicas(log, self._volumes, self._handles, self._local)
        self._takeover = Takeover(log, self._volumes, self._handles, self._local, self._replicas, self._publisher)
        self._reset = Reset(
            log,
            self._volumes,
            self._branches,
            self._handles,
            self._local,
            self._replicas,
            self._offloader,
            self._publisher,
            clock,
        )
        self._sync = Sync(
            log, self._handles, self._local, self._replicas, self._offloader, self._publisher, self._reset
        )
        self._is_closed = False
        self._turns: dict[str, threading.RLock] = {}  # of each topic: its offloads and deletes take turns; reads do not

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Reads of the log end at its hot floor from now on. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._sender.close()
        self._log.detach_cold()
        self._reader.close()
        self._local.close()
        self._store.close()

    @property
    def url(self) -> str:
        return self._store.url

    def cache_counts(self) -> Iterator[tuple[str, int, int]]:
        """Name, hits and misses of each cache of cold reads, since the archive was attached."""
        return self._reader.cache_counts()

    def change_settings(self, settings: OffloadSettings) -> None:
        """For runs that begin from now on."""
        self._offloader.settings = settings

    # ------------------------------------------------------------------ offload

    def offload(
        self,
        name: str,
        *,
        up_to: int | None = None,
        drop_hot: bool = False,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> OffloadResult:
        """Ship the sealed segments of a topic, publish the deletes that follow them, release hot copies that are due.

        `up_to` stops at the last segment that ends there or before. `drop_hot` waives the deletion lag for what is
        published, never the read-back. The unsealed tail stays: `Topic.seal` makes it ready. `on_bytes` hears how
        many bytes of frames were taken, every now and then. Raises `NoSuchTopic`, `Diverged`, and what the store
        raises; repeat it to resume.
        """
        self._log.check_writable()
        topic = self._log.existing(name)
        with self._turn(name):
            self._open(name)
            published = self._offloader.run(name, up_to=up_to, on_bytes=on_bytes)
            released = self._offloader.release(name, at_once=drop_hot)
        return OffloadResult(
            published=tuple(published),
            released_seq=released,
            offloaded_seq=self._handles.offloaded_seq(name),
            unsealed_records=topic.head_seq - topic.sealed_seq,
        )

    def compact(self, name: str, *, on_bytes: Callable[[int], None] = lambda _: None) -> tuple[Published, ...]:
        """Merge runs of small remote segments, as `merge_below_bytes` and `merge_count` say; a commit for each run.

        No past state changes. `on_bytes` hears how many bytes of frames were taken. Raises
        `NoSuchTopic`, `Diverged`, and what the store raises; repeat it to resume.
        """
        self._log.check_writable()
        self._log.existing(name)
        with self._turn(name):
            if self._handles.find(name) is None:
                return ()
            self._open(name)
            return tuple(self._offloader.merge(name, on_bytes=on_bytes))

    def erase(self, name: str, *, on_bytes: Callable[[int], None] = lambda _: None) -> tuple[Published, ...]:
        """Write each object of the topic anew that holds deleted records, a commit for each. Raises as `compact` does.

        The old objects go by GC, when the window has passed them: `erasures` tells when.
        """
        self._log.check_writable()
        self._log.existing(name)
        with self._turn(name):
            if self._handles.find(name) is None:
                return ()
            self._open(name)
            return tuple(self._offloader.erase(name, on_bytes=on_bytes))

    def erasures(self, name: str) -> Erasures:
        """When the records go for good that the deletes of a topic or branch took; see `offload.erasures`."""
        upkeep, snapshot = self._upkeep, self.snapshot(name)
        config = json.dumps(self._log.topic(name).config.to_json()) if self._log.has_topic(name) else snapshot.config
        window_ms = window_ms_of(config, upkeep.pitr_window_s * 1000)
        interval_s = upkeep.gc_interval_s if isinstance(upkeep.gc_interval_s, int) else 0
        return Erasures(snapshot.segments, window_ms + (upkeep.gc_grace_s + 2 * interval_s) * 1000)

    def collect(self, *, dry_run: bool = False, retain_s: int | None = None, grace_s: int | None = None) -> GcReport:
        """One run of GC over everything under the remote's prefix: see `catalog.gc`.

        `retain_s` goes before every topic's own window, `grace_s` before the setting. Raises what the store raises; the
        next run goes on. Damage is told in the report.
        """
        self._log.check_writable()
        oplog, upkeep = Oplog(self._store, self._writer_id), self._upkeep

        def note(operation: str, subject: keys.Key, message: str) -> None:
            oplog.note(operation, subject, None, None, now_ms=self._clock.now_ms(), message=message)

        policy = GcPolicy(upkeep.pitr_window_s, upkeep.gc_grace_s if grace_s is None else grace_s, retain_s)
        collector = Collector(
            self._store,
            policy,
            clock=self._clock.now_ms,
            writer_id=self._writer_id,
            cache=self._local,
            attempts=lambda: {attempt.sid for attempt in self._local.attempts()},
            note=note,
        )
        return collector.run(dry_run=dry_run)

    def waiting_bytes(self, name: str, up_to: int | None = None) -> int:
        """Frame bytes of the sealed segments that `offload` would send."""
        offloaded = self._handles.offloaded_seq(name)
        return sum(
            segment.data_bytes
            for segment in self._log.existing(name).segments()
            if segment.sealed and segment.last_seq > offloaded and (up_to is None or segment.last_seq <= up_to)
        )

    def pause(self, name: str, *, paused: bool = True) -> None:
        """Whether the daemon leaves the topic alone; `offload` by hand works as before. Durable on return."""
        config = self._log.existing(name).config
        attributes = {key: text for key, text in config.attributes.items() if key != PAUSED}
        if paused:
            attributes[PAUSED] = "yes"
        self._log.configure(name, replace(config, attributes=attributes))

    def is_paused(self, name: str) -> bool:
        return PAUSED in self._log.topic(name).config.attributes

    def is_unfinished(self, name: str) -> bool:
        """Whether a commit, an attempt or a delete waits that needs no new records. Asks the local disk only."""
        handle = self._handles.find(name)
        offloaded_seq = self._handles.offloaded_seq(name)
        return (
            (handle is not None and handle.pending_lsn is not None)
            or any(attempt.state == AttemptState.PLANNED for attempt in self._local.attempts(name))
            or (handle is not None and any(op.at_seq <= offloaded_seq for op in self._log.topic(name).delete_ops()))
        )

    def is_diverged(self, name: str) -> bool:
        handle = self._handles.find(name)
        return handle is not None and handle.diverged_lsn is not None

    def offloaded_seq(self, name: str) -> int:
        """The last seq that is in the remote; 0 if none. Asks the local disk only."""
        return self._handles.offloaded_seq(name)

    def with_hot_copies(self) -> set[str]:
        """Names of topics that have published runs whose hot copy is still there."""
        return {each.name for each in self._local.attempts() if each.state == AttemptState.PUBLISHED}

    def release(self, name: str, *, at_once: bool = False) -> int:
        """Delete the hot copies that are due, after reading the remote ones back. The last seq that went, or 0.

        `at_once` waives the deletion lag. Raises what reading back raises: the hot copy stays.
        """
        with self._turn(name):
            handle = self._handles.find(name)
            is_writer = handle is not None and self._handles.is_writer(handle)
            return self._offloader.release(name, at_once=at_once) if is_writer else 0

    def orphan_uploads(self, min_age_ms: int = _ORPHAN_AGE_MS) -> list[OrphanUpload]:
        """Multipart uploads in the remote that no attempt on record here accounts for, and that are old enough.

        Other data directories may upload under the same prefix: hence the age, by the segment's id.
        """
        known = {attempt.sid for attempt in self._local.attempts()}
        found = []
        for key, upload_id in self._store.list_uploads(""):
            sid = keys.sid_of(key)
            if sid is None or sid in known:
                continue
            age_ms = self._clock.now_ms() - sid.created_ms
            if age_ms >= min_age_ms:
                found.append(OrphanUpload(key, upload_id, age_ms))
        return found

    def abort(self, upload: OrphanUpload) -> None:
        """The parts that it holds are gone. Idempotent."""
        self._log.check_writable()
        self._store.abort_upload(upload.key, upload.upload_id)

    def status(self, name: str) -> TopicStatus:
        """Where the topic's records are. Asks the local disk only. Raises `NoSuchTopic`."""
        handle = self._handles.find(name)
        if handle is not None and not self._log.has_topic(name):
            return status_of_replica(handle, self._handles.tip(handle), self._replicas.state(handle))
        topic = self._log.existing(name)
        return status_of(
            topic,
            handle,
            self.sync_state(name),
            self._local.attempts(name),
            offloaded_seq=self._handles.offloaded_seq(name),
            is_paused=self.is_paused(name),
        )

    def runs(self, name: str) -> tuple[RunStatus, ...]:
        """Each run of segments that is in the topic's own volume or on its way there, ascending.

        Asks the local disk only, so it has what this directory knows of. Raises `NoSuchTopic`.
        """
        topic = self._log.existing(name)
        handle = self._handles.find(name)
        if handle is None:
            return ()
        bodies = self._local.commit_bodies(handle.vid, 1, handle.lsn)
        commits = [decode_commit_at(bodies[lsn], handle.vid, lsn) for lsn in sorted(bodies)]
        before = (
            self._volumes.snapshot(handle.vid, commits[0].commit.lsn) if commits and commits[0].checkpoint else None
        )
        return run_statuses(
            [view.ref for view in before.segments if view.vid == handle.vid] if before else [],
            [stored.commit for stored in commits[1 if before else 0 :]],
            self._local.attempts(name),
            topic.hot_floor,
        )

    # ------------------------------------------------------------------ reads

    def read(
        self, name: str, start: int | None = None, end: int | None = None, *, at: str | None = None
    ) -> Iterator[Record]:
        """Live records from seq `start` to seq `end`, both included, hot or cold; with `at`, as they were then.

        Raises `SeqOutOfRange` when `start` lies outside what there is, `NoSuchTopic`, `NoSuchBranch`, `OutOfWindow`.
        """
        if at is None and self._log.has_topic(name):
            return self._log.topic(name).read(start, end)
        snapshot = self.snapshot(name, at)
        first, last = snapshot.bounds.first_seq, snapshot.bounds.head_seq
        start = first if start is None else start
        if not first <= start <= last + 1:
            raise SeqOutOfRange(name, start, first, last)
        return self._reader.records(snapshot, start, last if end is None else end)

    def snapshot(self, name: str, at: str | None = None) -> Snapshot:
        """The remote state of a topic or branch: the newest, or at a point in time."""
        if at is not None:
            point = self.point(name, at)
            return self._volumes.snapshot(point.vid, point.lsn, point.seq)
        handle = self._handles.find(name)
        if handle is not None:
            return self._volumes.snapshot(handle.vid, handle.lsn)
        return self._volumes.snapshot(self._handles.resolve(name))

    # ------------------------------------------------------------------ writes

    def writable(self, name: str) -> Topic:
        """The topic of the log that takes appends for `name`.

        A replica, or a branch that is only in the remote, is taken over first (offload.takeover).

        Raises `NoSuchBranch` for a branch that does not exist; a new plain topic is made by its first append.
        """
        self._log.check_writable()
        if self._log.has_topic(name) or not (self.is_replica(name) or split_name(name)[1] != MAIN):
            return self._log.topic(name)
        with self._turn(name):
            if not self._log.has_topic(name):
                self._takeover.run(name)
        return self._log.topic(name)

    def delete(self, name: str, *, before: int | None = None, tag: str | None = None) -> Deleted:
        """Delete records below seq `before` and/or with `tag` (a `*` at its end matches any rest). Invisible at once.

        The remote learns it as a commit of its own, once all that was appended before is offloaded; the state before
        that commit can be restored. The delete holds from the moment it is in the log, so a remote that cannot be
        reached now is no error here: the next `offload` publishes it.
        """
        topic = self._log.existing(self.writable(name).name)
        if topic.config.durability == "ephemeral":
            taken = count_hot(topic, before, tag)
            return Deleted(topic.delete(before=before, tag=tag), taken, None)
        self._handles.keep_deletes(name)
        offloaded_seq = self._handles.offloaded_seq(name)
        hot_count = count_hot(topic, before, tag, start=offloaded_seq + 1)
        earlier = topic.delete_ops()
        op = topic.delete(before=before, tag=tag)
        turn = self._turn(name)
        if not turn.acquire(blocking=False):
            return Deleted(op, None, None, waits_for="the offload that is running")
        try:
            return self._publish_delete(name, op, earlier, offloaded_seq, hot_count)
        except (CatalogError, OffloadError) as error:
            return Deleted(op, None, None, waits_for=str(error))
        finally:
            turn.release()

    # ------------------------------------------------------------------ replicas and writers

    def is_replica(self, name: str) -> bool:
        """Whether the name is followed here, and not written. Asks the local disk only."""
        return self._replicas.is_replica(name)

    def replicas(self) -> list[str]:
        """Names that are followed here. Asks the local disk only."""
        return self._replicas.names()

    def sync_state(self, name: str) -> SyncState:
        """How far this directory and the volume are apart, as far as is known here. Asks the local disk only."""
        handle = self._handles.find(name)
        if handle is None:
            topic = self._log.existing(name)
            changes = topic.head_seq - topic.first_seq + 1 + len(topic.delete_ops())
            return SyncState(topic.first_seq - 1, changes, 0, 0)
        return self._replicas.state(handle)

    def pull(self, name: str) -> SyncState:
        """Bring new commits of the volume into the local catalog; readers see what they saw.

        A name that is only in the remote becomes a replica. Raises `NoSuchTopic`, `NoSuchBranch`.
        """
        with self._turn(name):
            self._replicas.pull(self._followed(name))
        return self.sync_state(name)

    def fetch(self, name: str) -> SyncState:
        """Pull, and bring every commit that a snapshot needs here. Raises as `pull` does."""
        with self._turn(name):
            self._replicas.fetch(self._followed(name))
        return self.sync_state(name)

    def sync(self, name: str, *, on_bytes: Callable[[int], None] = lambda _: None) -> Synced:
        """Make this directory and the volume the same: follow it, or push what is sealed here (offload.sync).

        Raises `Diverged` and `Fenced` if both have changed, and what the store raises.
        """
        self._log.check_writable()
        with self._turn(name):
            if not self._log.has_topic(name):
                return self._sync.follow(name)
            self._open(name)
            return self._sync.write(name, on_bytes)

    def follow(self, name: str) -> bool:
        """What `sync` does for a name that is followed here; False, and nothing, for one that is written by now."""
        with self._turn(name):
            return self.is_replica(name) and self._sync.follow(name).commits > 0

    def drop_copies(self) -> int:
        """Drop copies of commits that no handle here needs any more (offload.local_gc). How many went."""
        return drop_copies(self._local)

    def reset(self, name: str, *, as_branch: str | None = None, discard: bool = False) -> ResetResult:
        """Drop what only this directory has of the topic, and follow the volume again (offload.reset).

        With `as_branch` it becomes a branch. Raises `LocalChangesLost` if there is something and neither is said.
        """
        self._log.check_writable()
        if as_branch is not None:
            keys.check_name("branch", as_branch)
        with self._turn(name):
            return self._reset.run(self._followed(name), as_branch=as_branch, discard=discard)

    def take_over(self, name: str) -> Topic:
        """Become the writer of the topic: whoever writes it now is fenced (offload.takeover).

        Raises `Fenced` and `Diverged` for a topic that is written here, and another writer has it.
        """
        self._log.check_writable()
        with self._turn(name):
            handle = self._open(name) if self._log.has_topic(name) else self._takeover.run(name)
            if handle.diverged_lsn is not None:
                raise divergence(handle)
        return self._log.topic(name)

    def _followed(self, name: str) -> Handle:
        handle = self._handles.follow(name)
        self._handles.check_remote(handle)
        return handle

    def _open(self, name: str) -> Handle:
        """A writer's handle for a topic of the log."""
        handle = self._handles.open(name)
        return handle if self._handles.is_writer(handle) else self._takeover.run(name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic of the log that has nothing in the remote, or follow a replica no more.

        Raises `NoSuchTopic`, `HistoryKept`.
        """
        self._log.check_writable()
        if self.is_replica(name):
            with self._turn(name):
                self._replicas.forget(name)
            return
        topic = self._log.existing(name)
        with self._turn(name):
            if self._local.handle(name) is not None:
                raise HistoryKept(name)
            self._log.configure(name, replace(topic.config, keep_history=False))
            self._log.delete_topic(name)

    # ------------------------------------------------------------------ history, branches, restore

    def history(self, name: str) -> History:
        """The commits that made the topic or branch what it is, through its fork points, as far as they are kept."""
        handle = self._handles.find(name)
        if handle is not None:
            return self._volumes.history(handle.vid, handle.lsn)
        return self._volumes.history(self._handles.resolve(name))

    def point(self, name: str, target: str) -> ForkPoint:
        """The exact point that `target` names: `seq:N`, `lsn:N`, `head`, `head~N`, `tag:NAME` or a time.

        Offloads first what the target needs and the remote does not have. Raises `InvalidTarget`, `OutOfWindow`,
        `NoSuchTag`.
        """
        wanted = timeline.parse_target(target, now_ms=self._clock.now_ms())
        if isinstance(wanted, timeline.Named):
            return self._tags.get(split_name(name)[0], wanted.name).point
        if self._log.has_topic(name):
            while self._needs_offload(name, wanted):
                self._log.topic(name).seal()
                self.offload(name)
            if isinstance(wanted, timeline.Time) and self._is_quiet_since(name, wanted.ms):
                wanted = timeline.Head()
        is_only_here = self._log.has_topic(name) and self._handles.find(name) is None
        return timeline.resolve(wanted, NO_HISTORY if is_only_here else self.history(name), self._reader.last_seq_at)

    def restore(self, topic: str, *, to: str, name: str, message: str = "") -> Restored:
        """Make the branch `name` of the topic (or of its branch, as TOPIC@BRANCH) as it was at `to`.

        Nothing is overwritten, no data is copied.
        Raises `BranchExists`, and what `point` raises.
        """
        self._log.check_writable()
        keys.check_name("branch", name)
        base, _ = split_name(topic)
        point = self.point(topic, to)
        snapshot = self._volumes.snapshot(point.vid, point.lsn, point.seq)
        # Counted before the branch is made: damage is found while there is nothing to undo.
        count, last = self.count(snapshot)
        vid = self._branches.create(base, name, point, now_ms=self._clock.now_ms(), message=message)
        return Restored(vid, count, last.seq if last else 0, last.ts_ms if last else 0)

    def branches(self, topic: str, *, deleted: bool = False) -> list[Branch]:
        """Every branch of a topic that is in the remote, by name; with `deleted`, those that can be had back too.

        Raises `NoSuchTopic`.
        """
        return self._branches.branches(topic, deleted=deleted)

    def distances(self, branches: Sequence[Branch]) -> list[Distance]:
        """How far each and its parent went since the fork."""
        return self._branches.distances(branches)

    def count(self, snapshot: Snapshot) -> tuple[int, Record | None]:
        """How many live records there are, and the last one. Reads the head of each segment's index object."""
        count, last_seq = 0, 0
        for view in self._reader.indexed(snapshot.segments):
            live = live_entries(view, self._reader)
            if live:
                count += len(live)
                last_seq = view.ref.first_seq + live.max()
        return count, next(self._reader.records(snapshot, last_seq, last_seq)) if last_seq else None

    def remote_names(self) -> list[str]:
        """Of every topic and branch in the remote, ascending; of deleted branches too."""
        return sorted(topic if branch == MAIN else f"{topic}@{branch}" for topic, branch in self._branches.names())

    def delete_branch(self, topic: str, branch: str) -> Branch:
        """Its name leads nowhere from now on. It can be had back for the PITR window. Raises `NoSuchBranch`,
        `OpenBranch` if this directory has it open for appends, and `UnnamableBranch` for main.
        """
        self._check_not_open(topic, branch)
        return self._branches.delete(topic, branch, now_ms=self._clock.now_ms())

    def undelete_branch(self, topic: str, branch: str) -> Branch:
        """Raises `NoSuchBranch`, and `OutOfWindow` if it was collected."""
        self._log.check_writable()
        return self._branches.undelete(topic, branch, now_ms=self._clock.now_ms())

    def rename_branch(self, topic: str, branch: str, new: str) -> Branch:
        """Raises `NoSuchBranch`, `BranchExists`, `OpenBranch`, and `UnnamableBranch` for main."""
        self._check_not_open(topic, branch)
        return self._branches.rename(topic, branch, new, now_ms=self._clock.now_ms())

    def diff(self, left: str, right: str) -> BranchDiff:
        """What two branches of a topic show differently, as far as the remote knows."""
        pasts = self.history(left), self.history(right)
        return diff_of(self.snapshot(left), pasts[0], self.snapshot(right), pasts[1], self._reader)

    def tag(self, topic: str, name: str, *, to: str = "head", message: str = "") -> Tag:
        """Name a point of the topic (or of its branch, as TOPIC@BRANCH): GC keeps it. Raises `TagExists`, and what
        `point` raises.
        """
        self._log.check_writable()
        base, branch = split_name(topic)
        point = self.point(topic, to)
        return self._tags.create(base, name, point, branch=branch, now_ms=self._clock.now_ms(), message=message)

    def tags(self, topic: str) -> list[NamedTag]:
        """By name."""
        return self._tags.list(topic)

    def delete_tag(self, topic: str, name: str) -> Tag:
        """Raises `NoSuchTag`."""
        self._log.check_writable()
        return self._tags.delete(topic, name, now_ms=self._clock.now_ms())

    def operations(self) -> Iterator[NumberedEntry]:
        """Who changed which name, newest first."""
        return Oplog(self._store).entries()

    def undo(self, number: int | None = None) -> NumberedEntry:
        """Take back a change of a name: the newest, or that of a number. Raises `NotUndone`."""
        self._log.check_writable()
        return undo(self._volumes, number, writer_id=self._writer_id, now_ms=self._clock.now_ms())

    # ------------------------------------------------------------------ inside

    def _check_not_open(self, topic: str, branch: str) -> None:
        self._log.check_writable()
        if branch != MAIN and self._log.has_topic(f"{topic}@{branch}"):
            raise OpenBranch(f"{topic}@{branch}")

    def _turn(self, name: str) -> threading.RLock:
        return self._turns.setdefault(name, threading.RLock())

    def _publish_delete(
        self, name: str, op: DeleteOp, earlier: tuple[DeleteOp, ...], offloaded_seq: int, hot_count: int
    ) -> Deleted:
        """Tell the remote of `op` if its turn has come; `earlier` are the deletes that waited before it."""
        handle = self._handles.find(name)
        if handle is None:
            return Deleted(op, hot_count, None, waits_for="the first offload")
        snapshot = self._volumes.snapshot(handle.vid, handle.lsn)
        records = hot_count + count_cold(op, earlier, snapshot, self._reader)
        if op.at_seq > offloaded_seq:
            return Deleted(op, records, None, waits_for="the offload of what was appended before it")
        self._open(name)
        published = self._offloader.run(name, up_to=offloaded_seq)
        return Deleted(op, records, published[-1].lsn if published else None)

    def _needs_offload(self, name: str, wanted: timeline.Target) -> bool:
        """Whether the target may lie above what is in the remote. An LSN and `head~N` count what is there already."""
        topic = self._log.topic(name)
        offloaded_seq, waiting = self._handles.offloaded_seq(name), topic.delete_ops()
        behind = topic.head_seq > offloaded_seq or bool(waiting)
        match wanted:
            case timeline.Seq(seq):
                return offloaded_seq < seq <= topic.head_seq or any(op.at_seq < seq for op in waiting)
            case timeline.Time(ms):
                return behind and ms >= self._first_unknown_ms(topic, offloaded_seq, waiting)
            case timeline.Head(0):
                return behind
            case _:
                return self._handles.find(name) is None and behind

    def _first_unknown_ms(self, topic: Topic, offloaded_seq: int, waiting: tuple[DeleteOp, ...]) -> int:
        """The time of the first record or delete that the remote does not know."""
        times = [op.ts_ms for op in waiting]
        if topic.head_seq > offloaded_seq:
            [frame] = topic.frames(offloaded_seq + 1, offloaded_seq + 1)
            times.append(read_header(frame).ts_ms)
        return min(times)

    def _is_quiet_since(self, name: str, ms: int) -> bool:
        """Whether the remote knows all that happened up to `ms`, which is not in the future: this log would know."""
        now_ms = self._clock.now_ms()  # before the look at what is missing: what comes after that is later
        if self._handles.find(name) is None:
            return False
        topic, offloaded_seq = self._log.topic(name), self._handles.offloaded_seq(name)
        waiting = topic.delete_ops()
        is_complete = topic.head_seq == offloaded_seq and not waiting
        unknown_ms = now_ms + 1 if is_complete else self._first_unknown_ms(topic, offloaded_seq, waiting)
        return self.snapshot(name).max_ts_ms <= ms < unknown_ms and ms <= now_ms


class _ColdTier:
    """What the log asks for records below its hot floor."""

    def __init__(self, reader: ColdReader, snapshot: Callable[[str], Snapshot]) -> None:
        self._reader = reader
        self._snapshot = snapshot

    def read(self, topic: str, first: int, last: int) -> Iterator[Record]:
        snapshot = self._snapshot(topic)
        if last > snapshot.bounds.head_seq:
            raise HistoryBehind(topic, last, snapshot.bounds.head_seq)
        return self._reader.records(snapshot, first, last)
