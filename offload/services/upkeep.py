"""`archive.upkeep`: it keeps the remote small by merging, erasing, GC and the removal of failed uploads.

It also drops the copies of commits in the local catalog that no handle needs. That deletes no record and no object.

A handle needs the commits from which its newest state is built. Within its volume, these begin at the newest checkpoint
at or below its LSN. If the volume has no such checkpoint, the handle needs all commits of the volume. It then also
needs the parent's commits, by the same rule from the fork point, and so on.

LGC-1  Every copy can be fetched again, so a dropped copy costs a request and no data. A read of an older state, or of
    the history, fetches the commits that it needs.
LGC-2  A missing or damaged copy counts as no checkpoint and as no parent.
LGC-3  Handles and attempts, with their pending commits, are not copies. They stay.

Source: Graft RFC 0001 (Local garbage collection).
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from catalog import CommitKind, ForkPoint, Handle, LocalCatalog, SegmentView, Vid, encode_commit
from catalog.errors import AccessDenied, Corrupt, Diverged, NoSuchObject, StoreUnreachable
from catalog.format import keys
from catalog.format.control import DEAD
from catalog.format.encoding import decode_commit_at
from catalog.format.keys import checkpoints_key
from catalog.format.small_objects import decode_control_of, decode_down_to
from catalog.gc.policy import GcReport, unwatched
from catalog.history import History
from catalog.objects.store_time import check_clock, earliest_ms
from offload.format.topic_config import PAUSED
from offload.handles import Tip, split_name
from offload.services.archive_parts import OfArchive
from offload.services.erasure_dates import Erasures, Holder, Piece, collected_after_ms
from seglog import ConcurrentModification, TopicConfig
from seglog.base import forms
from seglog.base.arguments import checked
from seglog.base.dataclasses import dataclass
from seglog.base.ownership import Owned

if TYPE_CHECKING:
    from offload.write.publisher import Published

_ROUNDS = 8
_ORPHAN_AGE_MS = 24 * 3600 * 1000  # longer than any upload takes


def _drop_copies(local: LocalCatalog) -> int:
    """Drop the copies of commits that no handle needs. Return how many were dropped. Makes no request."""
    needed: dict[Vid, int] = {}  # the first LSN to keep
    for handle in local.handles():
        for vid, first_lsn in _path(local, handle.vid, handle.lsn):
            needed[vid] = min(first_lsn, needed.get(vid, first_lsn))
    dropped = 0
    for vid in local.volumes():
        dropped += local.drop_commits(vid, needed[vid]) if vid in needed else local.drop_volume(vid)
    return dropped


def _path(local: LocalCatalog, vid: Vid, lsn: int) -> list[tuple[Vid, int]]:
    path: list[tuple[Vid, int]] = []
    while True:
        first_lsn = _checkpoint(local, vid, lsn)
        path.append((vid, first_lsn or 1))
        parent = None if first_lsn else _parent(local, vid)
        if parent is None or parent[0] in {ancestor for ancestor, _ in path}:
            return path
        vid, lsn = parent


def _checkpoint(local: LocalCatalog, vid: Vid, lsn: int) -> int:
    """Return the LSN of the newest checkpoint at or below `lsn`.

    Returns 0 if there is none, or if the checkpoint list or the checkpoint's commit is missing here or damaged.
    """
    body = local.object(checkpoints_key(vid))
    if body is None:
        return 0
    try:
        mark = decode_down_to(lsn, body, vid).at_or_below(lsn)
        bodies = {} if mark is None else local.commit_bodies(vid, mark.lsn, mark.lsn)
        is_here = any(decode_commit_at(stored, vid, at).checkpoint is not None for at, stored in bodies.items())
    except Corrupt:
        return 0
    return mark.lsn if mark is not None and is_here else 0


def _parent(local: LocalCatalog, vid: Vid) -> tuple[Vid, int] | None:
    body = local.control(vid)
    try:
        parent = None if body is None else decode_control_of(body, vid).parent
    except Corrupt:
        return None
    return None if parent is None else (parent.vid, parent.lsn)


@dataclass(frozen=True, slots=True)
class VolumeForm:
    """The form of the volume of a topic or branch (seglog.base.forms), and the LSN of the commit that raised it.

    `lsn` is None without a commit. `is_elsewhere` says that another directory writes the volume, which then stays as it
    is.
    """

    name: str
    form: int
    lsn: int | None = None
    is_elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class OrphanUpload:
    """A multipart upload that no process continues. It costs money and holds no data that is needed."""

    key: keys.Key
    upload_id: str
    age_ms: int


class UpkeepService(OfArchive, Owned):
    """The calls that the daemon and the operator make from time to time."""

    @checked
    def compact(self, name: str, *, on_bytes: Callable[[int], None] = lambda _: None) -> tuple[Published, ...]:
        """Merge runs of small segments in the remote, with a commit for each range. No past state changes.

            >>> archive.upkeep.compact("orders")
            ()

        `merge_below_bytes` and `merge_count` select the ranges. After an error, repeat the call, which resumes.

        Args:
            name: The topic.
            on_bytes: Called now and then with the number of frame bytes that the call has just read.

        Raises:
            NoSuchTopic: The log has no such topic.
            Diverged: Another directory writes the topic now.
            SeglogError: What the store raises. Nothing is lost.
        """
        return self._rewritten(name, lambda: self._parts.offloader.merge(name, on_bytes=on_bytes))

    @checked
    def erase(
        self, name: str, *, on_bytes: Callable[[int], None] = lambda _: None, message: str = ""
    ) -> tuple[Published, ...]:
        """Rewrite each object of the topic that holds deleted records, with a commit for each object.

            >>> removed = archive.delete("orders", tag="eu")
            >>> len(archive.upkeep.erase("orders"))
            1

        GC deletes the old objects when the window has passed them. `erasures` tells when.

        Args:
            name: The topic.
            on_bytes: Called now and then with the number of frame bytes that the call has just read.
            message: What the commits say.

        Raises:
            SeglogError: As `compact` does.
        """
        return self._rewritten(name, lambda: self._parts.offloader.erase(name, on_bytes=on_bytes, message=message))

    @checked
    def bytes_to_rewrite(self, name: str, *, erase: bool = False) -> int:
        """Return about how many bytes of frames `compact` will read, or with `erase`, `erase`; for their progress."""
        handle = self._handles.find(name)
        return 0 if handle is None else self._parts.offloader.bytes_to_rewrite(handle, erase=erase)

    def _rewritten(self, name: str, rewrite: Callable[[], Iterable[Published]]) -> tuple[Published, ...]:
        self._log.check_writable()
        with self._locks.of(name):
            self._log.get_topic(name)  # under the lock: a topic that is detached meanwhile has no handle either
            if self._handles.find(name) is None:
                return ()
            self._parts.takeover.open(name)
            return tuple(rewrite())

    @checked
    def upgrade(self, name: str, *, dry_run: bool = False) -> VolumeForm:
        """Give the volume of a topic or branch the newest form, by a commit that changes nothing else.

            archive.upkeep.upgrade("orders")

        Returns:
            The form before. A volume without a commit, of the newest form, or that another directory writes stays as it
            is. After an error, the caller repeats the call.

        Raises:
            NoSuchTopic: The remote does not have it.
            ConcurrentModification: Other commits came first, again and again.
        """
        from offload.load import is_free

        if not dry_run:
            self._log.check_writable()
        with self._locks.of(name):
            handle = self._handles.find(name)
            is_writer = handle is not None and self._handles.is_writer(handle)
            if handle is not None and is_writer:
                self._handles.check_remote(handle)
            vid = handle.vid if handle is not None and is_writer else self._handles.resolve(name)
            for _ in range(_ROUNDS):
                state = self._context.volumes.snapshot(vid)
                is_own = is_writer and handle is not None and handle.epoch >= state.epoch  # nobody took it over
                is_elsewhere = not (is_own or is_free(state))
                if dry_run or is_elsewhere or state.form in (0, forms.NEWEST):
                    return VolumeForm(name, state.form, is_elsewhere=is_elsewhere)
                commit = self._parts.publisher.commit(
                    Handle(name, vid, state.lsn),
                    Tip(state.bounds, state.head_hash, forms.NEWEST),
                    CommitKind.CONFIG,
                    at_seq=state.bounds.head_seq,
                    at_ts_ms=state.max_ts_ms,
                    epoch=state.epoch,
                    message=f"upgrade to form {forms.NEWEST}",
                )
                try:
                    self._context.volumes.publish(vid, commit.lsn, encode_commit(commit)[0])
                except Diverged:
                    continue
                if handle is not None and is_writer and handle.pending_body is None:
                    self._parts.publisher.fast_forward(handle)
                return VolumeForm(name, state.form, commit.lsn)
        raise ConcurrentModification(name)

    @checked
    def erasures(self, name: str, history: History, *, beside: Erasures | None = None) -> Erasures:
        """Return when the deleted records of a topic or branch are gone for good (`offload.services.erasure_dates`).

        Args:
            name: The topic, or TOPIC@BRANCH.
            history: Its commits.
            beside: The erasures of another branch of the topic, which know the names.
        """

        def state_at(point: ForkPoint) -> tuple[Sequence[SegmentView], int]:
            try:
                snapshot = self._context.volumes.snapshot(point.vid, point.lsn, point.seq)
            except NoSuchObject:  # GC has passed the point
                snapshot = self._parts.states.newest(name)
            return snapshot.segments, collected_after_ms(self._context, name, snapshot)

        vids = [span.vid for span in history.spans]
        holders = cache(lambda: [*self._holders(split_name(name)[0], vids)]) if beside is None else beside.holders
        return Erasures(name, history, state_at, holders)

    def _holders(self, topic: str, vids: Sequence[Vid]) -> Iterator[Holder]:
        """Yield the states that the branches, tags and leases of a topic hold, and what GC cannot read and so keeps.

        Each state is read once, whole: GC keeps what lies behind its cut, too.
        """
        from catalog.gc.policy import HeldBy
        from catalog.gc.roots import read_roots

        volumes = self._context.volumes
        roots = read_roots(self._store, self._clock.now_ms(), topic, vids)
        states: dict[tuple[Vid, int | None], list[str]] = defaultdict(list)
        for vid in sorted({*roots.refs, *roots.deleted_refs}):
            deleted = [f"{name} (deleted)" for name, _ in roots.deleted_refs.get(vid, ())]
            names = [holder.name for holder in roots.refs.get(vid, ())] or deleted
            try:
                boundary = volumes.boundary(vid)  # above 1 the volume holds no state of its parent
                parent = ForkPoint(vid, boundary) if boundary > 1 else volumes.control(vid).parent
            except (Corrupt, NoSuchObject):
                yield names, None
            else:
                if boundary < DEAD:
                    states[(vid, None) if parent is None else (parent.vid, parent.lsn)] += names
        for point, holders in roots.points.items():
            for holder in holders:
                is_tag = holder.kind is HeldBy.TAG
                states[point].append(f"tag:{holder.name.rpartition('/')[2]}" if is_tag else f"lease {holder.name}")
        for damage in (*roots.doubtful_topics.values(), *roots.doubtful_volumes.values()):
            yield (str(damage),), None
        for (vid, lsn), names in states.items():
            yield names, self._pieces(vid, lsn)

    def _pieces(self, vid: Vid, lsn: int | None) -> Sequence[Piece] | None:
        try:
            views = self._context.volumes.snapshot(vid, lsn).segments
        except (Corrupt, NoSuchObject):
            return None
        return [(view.vid, view.lsn, view.ref.first_seq, view.ref.last_seq, view.ref.sid) for view in views]

    @checked
    def collect(
        self,
        *,
        dry_run: bool = False,
        retain_s: int | None = None,
        grace_s: int | None = None,
        watch: Callable[[str, int, int | None, str], None] = unwatched,
    ) -> GcReport:
        """Run GC once over everything under the remote's prefix (`catalog.gc.collector`).

            >>> archive.upkeep.collect(dry_run=True).deleted_bytes
            0

        After an error, the next run continues.

        Args:
            dry_run: Say what would go, and delete nothing.
            retain_s: A window in seconds, in place of every topic's own.
            grace_s: In place of the setting.
            watch: Gets the progress: the phase, the part done, the total or None, the unit.

        Returns:
            What was deleted and what is kept. The report lists damage.

        Raises:
            ClocksDisagree: The clocks of this machine and of the store differ. Set them first.
            SeglogError: What the store raises. The rest waits for the next run.
        """
        from offload.services.collection import collector_of

        if not dry_run:
            self._log.check_writable()
        collector = collector_of(self._context, retain_s=retain_s, grace_s=grace_s, watch=watch)
        return collector.run(dry_run=dry_run)

    @checked
    def check_clock(self, what: str) -> None:
        """Raise `ClocksDisagree` if the clocks of this machine and of the store differ. `what` names the action that is
        then refused.

        If the store cannot be reached or denies access, the call returns without a check.
        """
        with contextlib.suppress(AccessDenied, StoreUnreachable):
            check_clock(self._store, self._clock.now_ms, what)

    @checked
    def orphan_uploads(self, min_age_ms: int = _ORPHAN_AGE_MS) -> list[OrphanUpload]:
        """Return the multipart uploads in the remote that no attempt on record here names, and that are old enough.

        Other data directories may upload under the same prefix, so a minimum age protects their uploads. The age is the
        age of the segment's id. If this machine's clock is ahead, no upload looks older (TIME-3). If the uploader's
        clock is behind, its upload looks older than it is. If such an upload is aborted, its uploader sends it again.
        """
        now_ms = earliest_ms(self._store, self._clock.now_ms())
        own_sids = {attempt.sid for attempt in self._local.attempts()}
        orphans = []
        for key, upload_id in self._store.list_uploads(""):
            sid = keys.sid_of(key)
            if sid is None or sid in own_sids:
                continue
            age_ms = now_ms - sid.created_ms
            if age_ms >= min_age_ms:
                orphans.append(OrphanUpload(key, upload_id, age_ms))
        return orphans

    @checked
    def abort(self, upload: OrphanUpload) -> None:
        """Abort the upload, so that the store drops its parts. Idempotent."""
        self._log.check_writable()
        self._store.abort_upload(upload.key, upload.upload_id)

    def drop_copies(self) -> int:
        """Drop the copies of commits that no handle here needs. Return how many were dropped."""
        return _drop_copies(self._local)

    @checked
    def pause(self, name: str, *, paused: bool = True) -> None:
        """Make the daemon leave the topic alone, or with `paused=False` end that. Durable on return.

        An `offload` by hand works as before.
        """

        def changed(config: TopicConfig) -> TopicConfig:
            attributes = {key: text for key, text in config.attributes.items() if key != PAUSED}
            return replace(config, attributes={**attributes, PAUSED: "yes"} if paused else attributes)

        self._log.reconfigure(name, changed)
