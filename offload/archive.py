"""A log with its cold tier: offload, reads over both tiers, deletes that can be undone, branches and restore.

    log = seglog.open("data")
    archive = offload.attach(log, "s3://bucket/acme")
    archive.offload("orders")
    archive.restore("orders", to="seq:42", name="half")

A topic of the log has a *handle* in the local catalog. The handle names the volume in the remote that carries the
topic's history, and the newest commit of it that this directory knows. `TOPIC@BRANCH` names a branch; plain `TOPIC` is
the branch `main`.

Appends and hot reads make no call here, so that a slow or dead store touches neither. The first append to a branch or a
replica is the exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Unpack

from catalog.format import keys
from catalog.format.commit import Codec
from catalog.objects.object_store import ObjectStore
from offload.context import ArchiveContext, part
from offload.errors import NoRemote
from offload.format.block import largest_entry
from offload.services.archive_parts import ArchiveParts, ColdTier
from offload.services.results import Copied, OffloadResult, Removed, Restored, TopicRemoved
from offload.settings import OffloadSettings, Settings, read_settings
from offload.wiring import check_remote_apart, open_store, source_of
from offload.write.uploader import Uploader
from seglog import Log, Record, Topic
from seglog.base.arguments import checked
from seglog.base.ownership import Owned, is_foreign
from seglog.errors import InvalidSetting
from seglog.files.clock import Clock, SystemClock
from seglog.format.frame import LABEL_MAX_BYTES, MIN_FRAME_BYTES
from seglog.interrupts import closing_after
from seglog.values.config import SETTINGS_FILE
from seglog.values.deletes import where_of
from seglog.values.names import check_topic_name
from seglog.values.protocols import DeleteArguments

if TYPE_CHECKING:
    import pyarrow as pa

    from offload.services.collection import CollectionService
    from offload.services.history import HistoryService
    from offload.services.names import BranchService, PinService, TagService
    from offload.services.previews import PreviewService
    from offload.services.replication import ReplicationService
    from offload.services.status import StatusService
    from offload.services.upkeep import UpkeepService
    from seglog import RecordArrays

__all__ = ["Archive", "Copied", "OffloadResult", "Removed", "Restored", "attach"]

_FRAME_OVERHEAD_BYTES = MIN_FRAME_BYTES + 2 * LABEL_MAX_BYTES


class Archive(Owned):
    """The history of one log in object storage: what is offloaded, deleted, restored and branched.

        >>> archive.restore("orders", to="seq:2", name="half").records
        2
        >>> [record.value for record in archive.read("orders@half")]
        [b'book', b'lamp']

    The everyday calls are here. The others are in `branches`, `tags`, `pins`, `history`, `previews`, `replication`,
    `upkeep`, `collection` and `status`. A context manager: closing the archive leaves the log open.
    """

    def __init__(self, context: ArchiveContext, settings: OffloadSettings, uploader: Uploader | None) -> None:
        """Attach to the log of `context`. Without an `uploader`, the offloading thread uploads.

        Raises `Conflict`.
        """
        self._context = context
        self._is_closed = False
        self._parts = ArchiveParts(context, settings, uploader)
        self._parts.replicas.mark_all()
        context.log.topic_defaults = replace(context.log.topic_defaults, keep_history=True)
        # Last: an archive that was not made leaves the log as it is.
        context.log.attach_cold(ColdTier(self._parts))

    def __repr__(self) -> str:
        if is_foreign(self):
            return "<Archive of another process>"
        log = self._context.log
        state = "closed" if self._is_closed else f"topics: {len(log.topics())}"
        return f"<Archive of {log.path}: {state}, remote {self.url}>"

    @part
    def branches(self) -> BranchService:
        from offload.services.names import BranchService

        return BranchService(self._parts)

    @part
    def collection(self) -> CollectionService:
        from offload.services.collection import CollectionService

        return CollectionService(self._parts)

    @part
    def tags(self) -> TagService:
        from offload.services.names import TagService

        return TagService(self._parts)

    @part
    def history(self) -> HistoryService:
        from offload.services.history import HistoryService

        return HistoryService(self._parts)

    @part
    def pins(self) -> PinService:
        from offload.services.names import PinService

        return PinService(self._parts)

    @part
    def previews(self) -> PreviewService:
        from offload.services.previews import PreviewService

        return PreviewService(self._parts)

    @part
    def replication(self) -> ReplicationService:
        from offload.services.replication import ReplicationService

        return ReplicationService(self._parts)

    @part
    def upkeep(self) -> UpkeepService:
        from offload.services.upkeep import UpkeepService

        return UpkeepService(self._parts)

    @part
    def status(self) -> StatusService:
        from offload.services.status import StatusService

        return StatusService(self._parts)

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with closing_after(error):
            self.close()

    def close(self) -> None:
        """Close the archive. Reads of the log end at its hot floor from now on. Idempotent.

        >>> archive.close()
        """
        if is_foreign(self) or self._is_closed:
            return
        self._is_closed = True
        self._parts.close()
        self._context.log.detach_cold()
        self._context.close()

    @property
    def url(self) -> str:
        return self._context.store.url

    @checked
    def offload(
        self,
        name: str,
        *,
        up_to: int | None = None,
        drop_hot: bool = False,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> OffloadResult:
        """Upload what is sealed of a topic, publish it with its deletes, and release hot copies that are due.

            >>> log.topic("orders").append([b"sofa"])
            range(4, 5)
            >>> log.topic("orders").seal()
            >>> archive.offload("orders").offloaded_seq
            4

        The unsealed tail stays on this disk; `Topic.seal` prepares it for the next offload.

        Args:
            name: The topic, or a branch that this directory writes.
            up_to: Stop at the last segment that ends at or before this seq.
            drop_hot: Waive the deletion lag for the published segments, never the read-back.
            on_bytes: Called now and then with the number of frame bytes that the offload has just read.

        Returns:
            The last seq in the remote, the last one whose hot copy went, and the number of records that are not sealed.

        Raises:
            NoSuchTopic: The log has no such topic.
            Diverged, Fenced: Another directory writes the topic now. `replication.reset` keeps what is only here as a
                branch.
            OtherRemote, RemoteBehind: The remote is another one than before, or was set back. All hot copies stay.
            SeglogError: What the store raises. Nothing is lost: repeat the call, which resumes.
        """
        return self._parts.writer.offload(name, up_to=up_to, drop_hot=drop_hot, on_bytes=on_bytes)

    @checked
    def release(self, name: str, *, at_once: bool = False) -> int:
        """Delete the hot copies that are due, after reading the remote copies back.

            >>> archive.release("orders", at_once=True)
            3

        Args:
            name: The topic.
            at_once: Waive the deletion lag.

        Returns:
            The last seq whose hot copy is gone, or 0.

        Raises:
            NoSuchObject, InvalidObject: The remote copy is gone or damaged. The hot copy stays.
            SeglogError: What the store raises. The hot copy stays.
        """
        return self._parts.writer.release(name, at_once=at_once)

    @checked
    def read(
        self, name: str, start: int | None = None, end: int | None = None, *, at: str | None = None
    ) -> Iterator[Record]:
        """Return the live records of a topic or branch, hot or cold, of now or of a past state.

            >>> [record.value for record in archive.read("orders", 2)]
            [b'lamp', b'desk']
            >>> [record.value for record in archive.read("orders", at="seq:1")]
            [b'book']

        The call seals, offloads and changes nothing. Records that no commit has yet come from the log. The newest state
        hides records past the topic's ttl. A past state shows them as long as the window keeps them.

        Args:
            name: The topic, or TOPIC@BRANCH.
            start: The first seq; None is the first live record.
            end: The last seq, inclusive; None is the head.
            at: The state: `seq:N`, `lsn:N`, `head`, `head~N`, `tag:NAME`, `pin:NAME`, or a time such as
                `20 minutes ago`. None is the newest.

        Raises:
            NoSuchTopic, NoSuchBranch: There is none here and in the remote.
            InvalidTarget, NoSuchTag, NoSuchPin, PinLost: `at` names no state.
            NotOffloaded: The state is one that no commit has yet.
            OutOfWindow: GC keeps that state no longer.
            SeqOutOfRange: `start` lies outside the state.
            Evicted: Retention took the records at `start`.
        """
        return self._parts.states.read(name, start, end, at=at)

    @checked
    def read_arrays(
        self, name: str, start: int | None = None, end: int | None = None, *, at: str | None = None
    ) -> Iterator[RecordArrays]:
        """Return the records of `read` as arrays (`Topic.read_arrays`), which is much faster for many of them.

            >>> [arrays.last_seq for arrays in archive.read_arrays("orders")]
            [3]

        Raises:
            SeglogError: As `read` does.
        """
        return self._parts.states.read_arrays(name, start, end, at=at)

    @checked
    def read_arrow(
        self,
        name: str,
        start: int | None = None,
        end: int | None = None,
        *,
        at: str | None = None,
        tag: str | None = None,
        text: bool = False,
    ) -> pa.RecordBatchReader:
        """Return the records of `read` in Apache Arrow, of a topic, a branch, or a past state of it.

            >>> archive.read_arrow("orders", at="seq:2").read_all().num_rows
            2

        `Topic.read_arrow` describes the columns.

        Args:
            name: The topic, or TOPIC@BRANCH.
            start: The first seq; None is the first live record.
            end: The last seq, inclusive; None is the head.
            at: The state, as in `read`.
            tag: Only records with this tag; a trailing `*` makes it a prefix.
            text: Give the values as strings.

        Returns:
            A `pyarrow.RecordBatchReader`, which reads as it is asked.

        Raises:
            NotInstalled: pyarrow is missing: the extra `arrow` installs it.
            SeglogError: As `read` does.
        """
        from seglog.format.arrow import read_as_arrow
        from seglog.values.arrow import check_arrow

        check_arrow("Archive.read_arrow")
        return read_as_arrow(name, self._parts.states.read_arrays(name, start, end, at=at), tag, text=text)

    @checked
    def open_for_append(self, name: str) -> Topic:
        """Return the topic of the log that takes appends for `name`. A branch is taken over first.

            >>> restored = archive.restore("orders", to="seq:2", name="half")
            >>> archive.open_for_append("orders@half").append([b"sofa"])
            range(3, 4)

        A replica is taken over, too, which fences its writer (offload.replication.takeover). If a plain topic does not
        exist, its first append makes it.

        Raises:
            NoSuchBranch: There is no such branch.
            InvalidName: The name is none.
            Fenced: Another takeover came first.
            SeglogError: What the store raises.
        """
        return self._parts.takeover.topic(check_topic_name(name))

    @checked
    def delete(self, name: str, *, message: str = "", **conditions: Unpack[DeleteArguments]) -> Removed:
        """Delete the records that meet each given condition. Readers stop seeing them at once.

            >>> archive.delete("orders", tag="e*").lsn
            2
            >>> [record.value for record in archive.read("orders")]
            [b'lamp']
            >>> archive.history.undo_removal("orders", 2).records
            2

        Once every record that was appended before the delete is offloaded, the delete becomes a commit of its own, and
        the state before it can be restored. The delete holds as soon as it is in the log: if the remote cannot be
        reached now, the call still succeeds, and the next `offload` publishes the delete.

        Args:
            name: The topic.
            message: What the commit says, if the call makes it.
            start: The first seq.
            end: The last seq, inclusive.
            before: The seq behind the last one.
            seqs: Single seqs, in any order.
            epoch: The epoch in which you looked them up.
            tag: The exact tag, or a prefix with a trailing `*`.
            since_ms: The first time, in ms since the epoch.
            until_ms: The last time, itself included.
            grep: A regular expression that the value has.

        Returns:
            The number of records, and the LSN of the commit. Without a commit yet, it says what the delete `waits_for`.

        Raises:
            SeglogError: As `Topic.delete` does.
        """
        log = self._context.log
        epoch = log.topic(name).epoch if log.has_topic(name) else None
        where = where_of(
            conditions, epoch, lambda ts_ms: self.previews.seq_at(name, ts_ms), lambda *seqs: self.read(name, *seqs)
        )
        return self._parts.writer.delete(name, where, message)

    @checked
    def evict(self, name: str, before: int, *, message: str = "") -> Removed:
        """Evict the records below seq `before`, also from the archive, where retention takes nothing.

            >>> archive.evict("orders", 3).records
            2

        Readers get a notice that the records are lost. In all else the call is like `delete`: the state before it can
        be restored.

        Args:
            name: The topic.
            before: The first seq that stays.
            message: What the commit says.

        Raises:
            NoSuchTopic: The log has no such topic.
        """
        return self._parts.writer.evict(name, before, message)

    @checked
    def truncate(self, name: str, seq: int, *, message: str = "") -> Removed:
        """Remove the records from `seq` on. Later appends use these seqs again.

            >>> archive.truncate("orders", 3).records
            1
            >>> log.topic("orders").append([b"sofa"])
            range(3, 4)

        If the remote has any of these records, the call first offloads the records that the remote lacks. The
        truncation then becomes a commit, and the state before it can be restored. If only this log has the records, no
        copy of them remains. The truncation holds as soon as it is in the log: if the remote cannot be reached after
        that, the call still succeeds, and the next `offload` publishes the commit.

        Args:
            name: The topic.
            seq: The first seq that goes.
            message: What the commit says.

        Raises:
            NoSuchTopic: The log has no such topic.
            NotTruncatable, SeqOutOfRange: There is nothing to cut there.
            ConcurrentModification: Appends never pause.
            SeglogError: As `offload` does. If the remote refuses, nothing was removed.
        """
        return self._parts.writer.truncate(name, seq, message)

    @checked
    def delete_topic(
        self, name: str, *, detach: bool = False, discard: bool = False, message: str = ""
    ) -> TopicRemoved:
        """Delete a topic of the log that has nothing in the remote, or with `detach` delete it only here.

            >>> removed = archive.delete_topic("orders", detach=True)
            >>> log.topics()
            []
            >>> archive.replication.take_over("orders").head_seq  # it was only deleted here
            3

        A topic with nothing in the remote is gone for good, with all its records. With `detach`, the call first
        offloads the whole topic, and reads back the objects that replace its hot copies, so that `replication.sync` or
        `replication.take_over` brings it back. Of a replica it only ends the following.

        Args:
            name: The topic.
            detach: The topic has a history in the remote, which stays.
            discard: Drop the local changes, instead of offloading them.
            message: What the oplog says, if the topic has a history in the remote.

        Raises:
            NoSuchTopic: The log has no such topic.
            TopicAttached: The topic has a history in the remote, and `detach` was not given.
            Diverged: Another directory writes the topic now.
            SeglogError: As `offload` does. Repeat the call, which resumes.
        """
        return self._parts.writer.delete_topic(name, detach=detach, discard=discard, message=message)

    @checked
    def restore(self, topic: str, *, to: str, name: str, message: str = "") -> Restored:
        """Create the branch `name` with the state of the topic at `to`. It overwrites nothing and copies no data.

            >>> archive.restore("orders", to="seq:2", name="half").records
            2

        If the remote lacks that state, the call seals and offloads the topic once.

        Args:
            topic: The topic, or a branch of it as TOPIC@BRANCH.
            to: The state: `seq:N`, `lsn:N`, `head~N`, `tag:NAME` or a time such as `20 minutes ago`.
            name: The name of the branch.
            message: What the oplog says.

        Returns:
            The number of records of the branch, and the seq and time of the last one.

        Raises:
            BranchExists: Choose another name.
            NoSuchTopic, NoSuchTag, InvalidTarget, OutOfWindow: As `history.point` does.
            SeglogError: As `offload` does.
        """
        from offload.services.restoring import restore

        return restore(self._parts, topic, to, name, message)

    @checked
    def copy(
        self,
        source: str,
        topic: str,
        *,
        at: str = "head",
        where: Callable[[Record], bool] | None = None,
        into: str | None = None,
        store: ObjectStore | None = None,
        message: str = "",
    ) -> Copied:
        """Make a new topic of a state of a topic or branch. Its records keep their seqs, times, tags and nodes.

            >>> copied = archive.copy("orders", "orders-before", at="seq:2")
            >>> [record.value for record in archive.read("orders-before")]
            [b'book', b'lamp']
            >>> copied = archive.copy("orders", "orders-eu", where=lambda record: record.tag == "eu")

        Within the remote and without `where`, the call moves no bytes, and costs four small objects. The name comes
        last, so that readers see all of the copy or none. The next append to the new topic takes it over, as with a
        branch.

        Args:
            source: The topic or branch.
            topic: The name of the new topic.
            at: The state, as `to` of `restore`.
            where: Chooses the records. Then the call copies bytes.
            into: The URL of another remote, for example `s3://partner/archive`.
            store: The store of that remote, in place of its URL.
            message: What the oplog says.

        Raises:
            TopicExists: Choose another name.
            Misuse: No record was chosen.
            InvalidRemote: `into` is no URL of a remote.
            SeglogError: As `restore` does. Repeat the call; GC deletes what the first one left.
        """
        from offload.services.copying import Copying

        keys.check_name("topic", topic)
        if into is None:
            return Copying(self._parts).run(source, topic, at, where, store, message)
        with closing(open_store(into, offload=self._parts.offloader.settings)) as opened:
            return Copying(self._parts).run(source, topic, at, where, opened, message)

    def cache_counts(self) -> Iterator[tuple[str, int, int]]:
        """Return the name, hits and misses of each cache of cold reads, counted since the archive was attached.

        >>> len(list(archive.read("orders", at="seq:2")))
        2
        >>> for name, hits, misses in archive.cache_counts():
        ...     print(name, hits + misses > 0)
        index True
        chunk True
        """
        return self._context.reader.cache_counts()

    @checked
    def change_settings(self, settings: OffloadSettings) -> None:
        """Use `settings` for every offload that begins from now on."""
        self._parts.change_settings(settings)


@checked
def attach(
    log: Log,
    url: str | None = None,
    *,
    store: ObjectStore | None = None,
    settings: Settings | None = None,
    clock: Clock | None = None,
    uploader: Uploader | None = None,
) -> Archive:
    """Give `log` its archive, so that its history goes to object storage and its reads continue there.

        >>> archive = offload.attach(log, "file:///tmp/remote")
        >>> archive.url
        'file:///tmp/remote'

    It makes no request yet. If the log is open for reading only, the archive refuses every change, here and in the
    remote, with `ReadOnly`.

    Args:
        log: The log.
        url: `s3://bucket/prefix` or `file:///path`. None is what the settings say.
        store: A store of the caller, in place of the URL.
        settings: The settings, in place of the log's seglog.toml.
        clock: The source of the times of commits; the system's by default.
        uploader: Makes the objects of an offload; by default the offloading thread does.

    Raises:
        NoRemote: Neither the call nor the settings have a URL.
        InvalidRemote, InvalidSetting: The URL or a section of the settings is wrong. Nothing was opened.
        Conflict: The log has an archive already.
    """
    settings = settings or read_settings(log.path / SETTINGS_FILE)
    # Read every part: a wrong section is refused before anything is opened.
    offload, cold, catalog = settings.offload, settings.cold, settings.catalog
    is_chosen = url is not None and settings.url is not None and url.rstrip("/") != settings.url.rstrip("/")
    url = url or settings.url
    if store is None:
        if not url:
            raise NoRemote(log.path)
        check_remote_apart(url, log.path)
        store = open_store(url, cold, offload, source_of(settings, url))
    largest = min(largest_entry(offload.block_size, codec) for codec in Codec)
    if log.settings.max_record_bytes + _FRAME_OVERHEAD_BYTES > largest:
        raise InvalidSetting(
            "offload.block_size",
            f"a record of log.max_record_bytes ({log.settings.max_record_bytes}) would not fit one",
        )
    context = ArchiveContext(log, store, cold, catalog, clock or SystemClock(), is_chosen=is_chosen)
    try:
        return Archive(context, offload, uploader)
    except BaseException as error:
        with closing_after(error):
            context.close_here()
        raise
