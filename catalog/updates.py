"""Updates of a volume: the commits that are not known here yet, and their meaning for the volume's writer.

SYNC-1  A follower finds commits by name: it gets the next LSN until one is absent. Then it reads the boundary. A commit
    below the boundary does not count, whatever is under its key (VOL-6). So a follower that GC has passed continues
    from the newest commit of all. A follower may need only the state, and not each commit. Once there are many commits,
    it asks for the newest one by a LIST, and continues from the newest checkpoint. So the number of requests is
    bounded, however far behind it is.
SYNC-2  Maintenance is the set of changes that others may make to a volume under its writer. These are commits of kind
    config and compact, which do not change the bounds. Their epoch is no higher than the writer's (0 while it has
    none). A writer continues after them.

SYNC-3  A proxy may answer in place of the store (`Forward`). The state here stays if its answer is older than what is
    known here: a lower LSN, or a lower boundary than this process heard before. It also stays if the answer's LSN is
    below its own boundary, because such a commit does not count (VOL-6).

Source: Graft RFC 0001 (Pull & Fetch Volume).
"""

from __future__ import annotations

from catalog.errors import BranchCollected, InvalidObject
from catalog.format.commit import Bounds, CommitKind
from catalog.format.control import DEAD
from catalog.format.encoding import StoredCommit
from catalog.format.ids import Vid
from catalog.format.keys import commit_key
from catalog.objects.object_store import Forward
from catalog.snapshot import Snapshot
from catalog.volume import Volumes
from seglog.base.dataclasses import dataclass

_MANY = 15  # commits, as four batches of GETs give
MAINTENANCE = frozenset({CommitKind.CONFIG, CommitKind.COMPACT})


@dataclass(frozen=True, slots=True)
class Updates:
    """The updates of `vid` after `since`: commits up to `lsn`, oldest first.

    If GC has passed `since`, the commits are gone. If there are too many, not all were fetched. In both cases, `newest`
    is the state that they add up to.
    """

    vid: Vid
    since: int
    commits: tuple[StoredCommit, ...] = ()
    newest: Snapshot | None = None

    @property
    def lsn(self) -> int:
        if self.newest is not None:
            return self.newest.lsn
        return self.commits[-1].commit.lsn if self.commits else self.since

    @property
    def is_empty(self) -> bool:
        return self.lsn == self.since

    @property
    def config(self) -> str:
        """Return the topic's configuration if the commits change it; otherwise empty."""
        if self.newest is not None:
            return self.newest.config
        configs = [stored.commit.config for stored in self.commits if stored.commit.config]
        return configs[-1] if configs else ""

    def fenced_by(self, epoch: int) -> tuple[int, int] | None:
        """Return LSN and epoch of the first commit with a higher epoch than `epoch`; None if there is none."""
        if self.newest is not None:
            return (self.newest.lsn, self.newest.epoch) if self.newest.epoch > epoch else None
        commits = (stored.commit for stored in self.commits)
        return next(((commit.lsn, commit.epoch) for commit in commits if commit.epoch > epoch), None)

    def is_maintenance(self, bounds: Bounds, epoch: int) -> bool:
        """Tell whether all updates are maintenance (SYNC-2) for a writer of `epoch` that left `bounds`."""
        # An epoch has one writer. The writer knows every commit of its epoch except those two kinds. But several may
        # begin an empty volume with epoch 1: the one that commits first is the writer.
        own = epoch if self.since else 0
        if self.newest is not None:
            return self.newest.epoch <= own and self.newest.bounds == bounds
        return all(
            stored.commit.kind in MAINTENANCE and stored.commit.epoch <= own and stored.commit.bounds == bounds
            for stored in self.commits
        )


def pull(
    volumes: Volumes, vid: Vid, lsn: int, head_hash: bytes, *, each: bool = True, forward: Forward | None = None
) -> Updates:
    """Return the updates after the commit at `lsn`, whose hash is `head_hash`. On return, the local copy has them.

    Without `each`, the updates may be only the newest state, if there are many commits and a checkpoint covers them.
    `forward` is the answer of a proxy, which is taken in place of requests.

    Raise `BranchCollected` if GC has deleted the whole volume, and `InvalidObject` if the commits do not continue the
    one at `lsn`. Raise the store's errors too.
    """
    damage: InvalidObject | None = None
    commits: tuple[StoredCommit, ...] = ()
    if forward is not None:
        return _forwarded(volumes, vid, lsn, head_hash, forward)
    try:
        commits = volumes.next_commits(vid, lsn, None if each else _MANY)
    except InvalidObject as error:
        damage = error
    boundary = volumes.boundary(vid)
    if boundary == DEAD:
        raise BranchCollected(volumes.full_name(vid), str(vid))
    if boundary > lsn + 1:
        volumes.forget(vid, lsn + 1, boundary)
        return Updates(vid, lsn, newest=volumes.snapshot(vid, max(boundary, volumes.newest_lsn(vid))))
    if damage is not None:
        raise damage
    if commits and commits[0].commit.parent_hash != head_hash:
        raise InvalidObject(commit_key(vid, lsn + 1), f"it does not continue lsn {lsn}: the parent hash is another")
    if each or len(commits) < _MANY:
        return Updates(vid, lsn, commits)
    last = commits[-1]
    newest = _jump(volumes, vid, last.commit.lsn)
    if newest is not None:
        return Updates(vid, lsn, newest=newest)
    later = pull(volumes, vid, last.commit.lsn, last.hash)
    return Updates(vid, lsn, commits + later.commits, later.newest)


def _forwarded(volumes: Volumes, vid: Vid, lsn: int, head_hash: bytes, forward: Forward) -> Updates:
    if forward.boundary == DEAD:
        raise BranchCollected(volumes.full_name(vid), str(vid))
    is_refused = forward.lsn < forward.boundary
    if volumes.falls(vid, forward.boundary) or not forward.bodies or is_refused or forward.lsn <= lsn:
        return Updates(vid, lsn)
    commits = volumes.take_forward(vid, lsn, head_hash, forward)
    return Updates(vid, lsn, commits, None if commits else volumes.snapshot(vid, forward.lsn))


def _jump(volumes: Volumes, vid: Vid, lsn: int) -> Snapshot | None:
    """Return the newest state if there is a checkpoint above `lsn`; otherwise None."""
    listed = volumes.newest_lsn(vid)
    last_mark = volumes.newest_checkpoints(vid).marks[-1:]
    if not last_mark or last_mark[0].lsn <= lsn:
        return None
    at = max(listed, last_mark[0].lsn)
    volumes.snapshot(vid, at)
    return volumes.snapshot(vid, at + len(volumes.next_commits(vid, at)))  # the LIST may be behind
