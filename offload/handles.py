"""Handles. A handle names the volume in the remote that carries a topic's history, and the newest known commit.

HANDLE-1  A plain name is the branch main of its topic. That branch has no other name.
HANDLE-2  A topic joins an existing volume only if its first seq follows the volume's head seq.
    So every record here is newer than every record there.
HANDLE-3  If a handle has epoch 0, or the log no longer has its topic, the handle is a replica's and follows the volume.
    To write, a replica takes the volume over first (offload.replication.takeover). Only a volume without commits needs
    no takeover.
HANDLE-4  Before the first commit of a process, the remote's own ref must name the handle's volume.
    If it does not, the remote is another one, or was restored from elsewhere. A commit there would tear the history in
    two. The remote must also have the newest commit that this directory knows, unless GC deleted it. An older copy of
    the remote lacks that commit, and a new commit there would stand above a hole.
HANDLE-5  Once this directory hears that the volume was collected, it puts this on record for good.
    From then on this directory has the only copy of its records, so it deletes no hot copy.
HANDLE-6  If the caller chooses another remote than seglog.toml, a handle and the copies of commits may be of the other
    one. Before the directory shows them as this remote's, the check of HANDLE-4 comes first.
HANDLE-7  A replica follows its name. If a promotion gave the name to another volume of this remote, the replica's
    handle moves there. A writer's handle stays: the promotion has fenced it, and `reset` moves it. A proxy that names
    another volume may only lag, so the ref decides.

MOVED-1  A look-up takes no lock of the topic, so an offload, a reset, a takeover or a promotion may run beside it. It
    then looks in the old place, and fails. So it looks again if it failed and the place is another one since.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from catalog import MAIN, Bounds, Handle, Vid
from catalog.errors import BranchCollected, CatalogError, Diverged, InvalidName, NoSuchBranch, NoSuchObject, NoSuchTopic
from catalog.format import keys
from catalog.format.control import DEAD
from catalog.objects.object_store import Forward, is_behind_proxy
from offload.errors import NameDeleted, NeverWritten, OtherRemote, RemoteBehind
from seglog import Log, TruncateOp
from seglog.base.dataclasses import dataclass
from seglog.files.clock import Clock

if TYPE_CHECKING:
    from catalog import Branches, LocalCatalog, Volumes
    from catalog.updates import Updates

T = TypeVar("T")

_ROUNDS = 5


def retry_if_moved(look: Callable[[], T], position: Callable[[], object], *errors: type[Exception]) -> T:
    """Return what `look` returns. After one of the `errors`, look again if `position` returns another value since.

    `look` may change something, if a caller may repeat it after these errors.
    """
    for _ in range(_ROUNDS - 1):
        before = position()
        try:
            return look()
        except errors:
            if position() == before:
                raise
    return look()


@dataclass(frozen=True, slots=True)
class Tip:
    """The newest state of a volume, on which the next commit builds. `made_at_ms` is None without a commit.

    `form` is 0 if neither the volume nor its parent has a commit.
    """

    bounds: Bounds
    hash: bytes
    form: int
    made_at_ms: int | None = None


def split_name(name: str) -> tuple[str, str]:
    """Return ("orders", "fix") for `orders@fix`, and ("orders", "main") for `orders`.

    Raises `InvalidName`, also for `orders@main` (HANDLE-1).
    """
    topic, at, branch = name.partition("@")
    if at and branch == MAIN:
        raise InvalidName("topic", name)
    return keys.check_name("topic", topic), keys.check_name("branch", branch) if at else MAIN


class Handles:
    """The handles of one log and one remote. The caller lets one thread at a time open a handle."""

    def __init__(
        self, log: Log, volumes: Volumes, branches: Branches, local: LocalCatalog, clock: Clock, *, is_chosen: bool
    ) -> None:
        self._log = log
        self._volumes = volumes
        self._branches = branches
        self._local = local
        self._clock = clock
        self._is_chosen = is_chosen
        self._checked: set[str] = set()
        self._tips: dict[Vid, tuple[int, Tip]] = {}

    def find(self, name: str) -> Handle | None:
        """Return the handle that is on record, or None. Makes no request."""
        return self._local.handle(name)

    def of(self, name: str) -> Handle:
        """Return the handle of a topic that the caller has opened. Makes no request."""
        handle = self.find(name)
        assert handle is not None, f"{name} has no handle"  # noqa: S101 - the caller opens it first
        return handle

    def open(self, name: str) -> Handle:
        """Return the handle of a topic of the log. The first call creates or joins its volume (HANDLE-2).

        Raises `Diverged`, `BranchCollected`, `OtherRemote`, `RemoteBehind`, `NeverWritten`, and what the store raises.
        """
        if self._log.topic(name).config.durability == "ephemeral":
            raise NeverWritten(name)
        self.keep_deletes(name)
        handle = self.find(name)
        if handle is None:
            handle = self._join(name)
            self._local.save(handle=handle)
        elif not self.is_writer(handle):
            self.check_fits(handle)
            return handle  # a takeover asks the remote first
        elif name not in self._checked:
            self._check_remote(handle)
        self._checked.add(name)
        return handle

    def is_writer(self, handle: Handle) -> bool:
        """Return whether the handle belongs to the topic that the log has under its name. Makes no request."""
        if handle.epoch == 0 or not self._log.has_topic(handle.name):
            return False
        return self._log.topic(handle.name).inner.topic_id == handle.topic_id

    def follow(self, name: str) -> Handle:
        """Return the handle on record, or else a new handle of a replica, at the newest commit.

        Raises `NoSuchTopic`, `NoSuchBranch`, and what the store raises.
        """
        handle = self.find(name)
        if handle is None:
            snapshot = self._volumes.snapshot(self.resolve(name))
            if not (self._log.is_read_only or self._log.has_topic(name)):
                self._log.mark_elsewhere(name, self._log.known_appends(name))
            handle = Handle(name, snapshot.vid, snapshot.lsn, config=snapshot.config)
            self._local.save(handle=handle)
        return handle

    def forward(self, handle: Handle) -> Forward | None:
        """Return what a proxy knows after the handle's commit; None if the remote is no proxy that follows the name."""
        store = self._volumes.store
        return store.forward(handle.name, handle.lsn) if is_behind_proxy(store) else None

    def forget(self, name: str) -> None:
        """Delete the handle from the record, with all that this process knows of it. Makes no request."""
        handle = self.find(name)
        self._local.delete_handle(name)
        self._checked.discard(name)
        if handle is not None:
            self._tips.pop(handle.vid, None)
            self._volumes.let_go(handle.vid)

    def check_remote(self, handle: Handle) -> None:
        """Check that the remote has the handle's history (HANDLE-4).

        Raises `OtherRemote`, `RemoteBehind`, `BranchCollected`.
        """
        if handle.name not in self._checked:
            self._check_remote(handle)
            self._checked.add(handle.name)

    def check_volume(self, handle: Handle) -> None:
        """Check the same for a caller that gives up the handle: another name may lead to its volume now (HANDLE-7)."""
        try:
            self.check_remote(handle)
        except OtherRemote:
            self._check_here(handle)

    def check_chosen(self, handle: Handle) -> None:
        """Check the handle if the caller chose another remote than seglog.toml (HANDLE-6).

        Raises as `check_remote` does. With the remote of seglog.toml it makes no request.
        """
        if self._is_chosen:
            self.check_remote(handle)

    def relocate(self, handle: Handle, *, must_lead: bool = False, forward: Forward | None = None) -> Handle:
        """Return the handle of a replica on the volume that its name leads to now (HANDLE-7). The move is on record.

        If the name leads nowhere, the handle stays. With `must_lead`, that is `NameDeleted`, also if this process knew
        the name before. `forward` is the answer of a proxy, which is taken in place of requests while it is about the
        handle's own volume. Raises as `check_remote` does, and what the store raises.
        """
        if forward is not None and forward.vid != handle.vid:
            forward = None
        if forward is not None and forward.lsn >= handle.lsn:
            self._checked.add(handle.name)
            return handle
        try:
            vid = self.resolve(handle.name) if forward is None else forward.vid
        except (NoSuchTopic, NoSuchBranch):
            if must_lead:
                self._checked.discard(handle.name)
            self.check_remote(handle)
            return handle
        if vid == handle.vid:
            if handle.name not in self._checked:
                self._check_known(handle)
        else:
            self._check_here(handle)
            snapshot = self._volumes.snapshot(vid)
            handle = Handle(handle.name, vid, snapshot.lsn, config=snapshot.config)
            self._local.save(handle=handle)
        self._checked.add(handle.name)
        return handle

    def _check_here(self, handle: Handle) -> None:
        """Raise `OtherRemote` if the remote lacks the handle's volume, and `BranchCollected`."""
        self.check_alive(handle)
        if not self._is_here(handle):
            raise OtherRemote(handle.name, self._volumes.store.url, str(handle.vid))

    def _is_here(self, handle: Handle) -> bool:
        """Return whether the remote has the handle's volume."""
        if handle.lsn == 0:
            return self._volumes.is_there(handle.vid)
        return self._volumes.has_commit(handle.vid, handle.lsn) or handle.lsn < self._volumes.boundary(handle.vid)

    def _check_known(self, handle: Handle) -> None:
        """Raise `RemoteBehind` if the remote lacks the newest commit that is known here, and GC has not passed it."""
        lsn, vid = handle.lsn, handle.vid
        if lsn == 0 or self._volumes.has_commit(vid, lsn) or lsn < self._volumes.boundary(vid):
            return
        raise RemoteBehind(handle.name, self._volumes.store.url, str(vid), lsn)

    def fetch_updates(self, handle: Handle, *, each: bool = True, forward: Forward | None = None) -> Updates:
        """Return what the volume has and this directory does not know (`catalog.updates.pull`).

        Raises `BranchCollected` (HANDLE-5).
        """
        from catalog.updates import pull

        if handle.is_collected:
            self.check_alive(handle)
        try:
            return pull(self._volumes, handle.vid, handle.lsn, self.tip(handle).hash, each=each, forward=forward)
        except (BranchCollected, NoSuchObject):
            self.check_alive(handle)
            raise

    def check_alive(self, handle: Handle) -> None:
        """Raise `BranchCollected` if the volume was collected (HANDLE-5). Makes no request if that is on record."""
        if not handle.is_collected:
            if self._volumes.boundary(handle.vid) != DEAD:
                return
            # The volume refuses the pending commit for good.
            self._local.save(
                handle=replace(handle, pending_lsn=None, pending_body=None, diverged_lsn=0, fenced_epoch=None)
            )
        raise BranchCollected(handle.name, str(handle.vid))

    def advanced(self, handle: Handle, updates: Updates) -> Handle:
        """Return the handle as it is after `updates`. Puts nothing on record."""
        return replace(handle, lsn=updates.lsn, config=updates.config or handle.config)

    def resolve(self, name: str) -> Vid:
        """Return the volume that the remote has under a name. Raises `NoSuchTopic`, `NoSuchBranch`."""
        topic, branch = split_name(name)
        try:
            return self._branches.resolve(topic, branch)
        except NoSuchTopic:
            if branch == MAIN:
                raise
            raise NoSuchBranch(topic, branch) from None

    def tip(self, handle: Handle) -> Tip:
        """Return the newest state of the volume that this directory knows. Only the first call may make a request."""
        lsn_and_tip = self._tips.get(handle.vid)
        if lsn_and_tip is None or lsn_and_tip[0] != handle.lsn:
            lsn_and_tip = self._tips[handle.vid] = (handle.lsn, _find_tip(self._volumes, handle))
        return lsn_and_tip[1]

    def is_tip_here(self, handle: Handle) -> bool:
        """Return whether `tip` makes no request: the copies of its commits are on this disk, and whole."""
        lsn_and_tip = self._tips.get(handle.vid)
        if lsn_and_tip is None or lsn_and_tip[0] != handle.lsn:
            try:
                self._tips[handle.vid] = (handle.lsn, _find_tip(self._volumes.offline(), handle))
            except CatalogError:
                return False
        return True

    def offloaded_seq(self, name: str) -> int:
        """Return the last seq that a commit of this topic has, or from which the branch started; 0 if none."""
        handle = self.find(name)
        if handle is None:
            return self._log.topic(name).first_seq - 1 if self._log.has_topic(name) else 0
        return self.common_seq(handle)

    def common_seq(self, handle: Handle) -> int:
        """Return the last seq of the volume, as known here, that no truncation here has removed since."""
        if handle.is_collected and self._log.has_topic(handle.name):
            return self._log.topic(handle.name).inner.hot_floor - 1  # its volume is on record as collected (HANDLE-5)
        waiting = self.waiting_truncations(handle)
        return waiting[-1].seq - 1 if waiting else self.tip(handle).bounds.head_seq

    def waiting_truncations(self, handle: Handle) -> tuple[TruncateOp, ...]:
        """Return the topic's truncations that remove records of the volume and have no commit yet; oldest first."""
        if handle.is_collected or not self.is_writer(handle):
            return ()
        head_seq = self.tip(handle).bounds.head_seq
        return tuple(op for op in self._log.topic(handle.name).inner.truncate_ops() if op.seq <= head_seq)

    def _join(self, name: str) -> Handle:
        topic, branch = split_name(name)
        try:
            vid = self.resolve(name)
            self._branches.check_open(topic, branch, vid, now_ms=self._clock.now_ms())
        except (NoSuchTopic, NoSuchBranch):
            if branch != MAIN:
                raise
            vid = self._branches.create(topic, now_ms=self._clock.now_ms())
        snapshot = self._volumes.snapshot(vid)
        if snapshot.bounds.head_seq + 1 != self._log.topic(name).first_seq:
            raise Diverged(name, str(vid), snapshot.lsn)
        epoch, topic_id = 0 if snapshot.lsn else 1, self._log.topic(name).inner.topic_id
        return Handle(name, vid, snapshot.lsn, epoch=epoch, config=snapshot.config, topic_id=topic_id)

    def check_fits(self, handle: Handle) -> None:
        """Check that a topic made beside the handle of a replica follows its volume (HANDLE-2). Raises `Diverged`."""
        if self.tip(handle).bounds.head_seq + 1 != self._log.topic(handle.name).first_seq:
            raise Diverged(handle.name, str(handle.vid), handle.lsn)

    def _check_remote(self, handle: Handle) -> None:
        try:
            vid: Vid | None = self.resolve(handle.name)
        except (NoSuchTopic, NoSuchBranch):
            vid = None
        if vid != handle.vid:
            self.check_alive(handle)
            if not self._is_fenced_there(handle):
                raise self._parted(handle, vid)
        self._check_known(handle)

    def _parted(self, handle: Handle, other_vid: Vid | None) -> OtherRemote:
        """Return the error for a handle whose name leads to another volume, or nowhere."""
        name, url, vid, is_writer = handle.name, self._volumes.store.url, str(handle.vid), self.is_writer(handle)
        if self._is_here(handle):
            if other_vid is not None:
                text = f"{name} leads to volume {other_vid} in {url} now, and this directory has volume {vid}"
                keep = "and `--as NAME` keeps what only this directory has as a branch"
                hint = f"`seglog reset {name}` follows it there, {keep}"
                hint = hint if is_writer else f"`seglog sync {name}` follows it there"
                return OtherRemote(name, url, vid, f"{text}; nothing was sent", hint)
            if split_name(name)[1] != MAIN:
                return NameDeleted(name, url, vid, is_writer=is_writer)
        return OtherRemote(name, url, vid)

    def _is_fenced_there(self, handle: Handle) -> bool:
        """Return whether the volume is in this remote, and another writer has fenced this one, as a promotion does."""
        newest_lsn = self._volumes.newest_lsn(handle.vid) if handle.epoch else 0
        return newest_lsn > handle.lsn and self._volumes.snapshot(handle.vid, newest_lsn).epoch > handle.epoch

    def keep_deletes(self, name: str) -> None:
        """Configure the topic so that every delete stays listed until the remote knows it."""
        if not self._log.topic(name).config.keep_history:
            self._log.reconfigure(name, lambda config: replace(config, keep_history=True))


def _find_tip(volumes: Volumes, handle: Handle) -> Tip:
    if handle.lsn > 0:
        [last] = volumes.commits(handle.vid, handle.lsn, handle.lsn)
        # Before the first writer, GC may have fenced the volume. Its commit does not choose the form.
        form = last.commit.form if last.commit.epoch else volumes.snapshot(handle.vid, 0).form
        return Tip(last.commit.bounds, last.hash, form, last.commit.created_at_ms)
    start = volumes.snapshot(handle.vid, 0)
    return Tip(start.bounds, start.head_hash, start.form)
