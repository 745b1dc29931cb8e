"""What a volume has that is not known here yet, and what that means for whoever writes it.

P1  Commits are looked for by name: a GET of the LSN that follows, until one is not there. Then the boundary is read:
    what lies below it does not count, whatever is under its key (V6 of `catalog.volume`), so a follower that GC has
    passed goes on from the newest commit of all.
    Who needs the state only, and not each commit, asks for the newest commit by a LIST once there are many, and goes on
    from the newest checkpoint: the requests are bounded, however far behind it is.
P2  Maintenance is what others may do to a volume under its writer: commits of kind config and compact, of no higher
    epoch than the writer's (of epoch 0 while it has none), which leave the bounds as they are. A writer goes on after
    them.

Source: Graft RFC 0001 (Pull & Fetch Volume).
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.errors import BranchCollected, InvalidObject
from catalog.format.commit import Bounds, CommitKind
from catalog.format.control import DEAD
from catalog.format.encoding import StoredCommit
from catalog.format.gid import Vid
from catalog.format.keys import commit_key
from catalog.snapshot import Snapshot
from catalog.volume import Volumes

__all__ = ["News", "pull"]

_MANY = 15  # what four batches of GETs give
_MAINTENANCE = frozenset({CommitKind.CONFIG, CommitKind.COMPACT})


@dataclass(frozen=True, slots=True)
class News:
    """What `vid` has after `since`: commits up to `lsn`, oldest first.

    Where GC has passed `since`, the commits are not there any more, and where there are too many, not all were asked
    for: `newest` is what they add up to.
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
        """The topic's configuration, if they change it; else empty."""
        if self.newest is not None:
            return self.newest.config
        told = [stored.commit.config for stored in self.commits if stored.commit.config]
        return told[-1] if told else ""

    def fenced_by(self, epoch: int) -> tuple[int, int] | None:
        """LSN and epoch of the first commit of a higher one than `epoch`, if there is one."""
        if self.newest is not None:
            return (self.newest.lsn, self.newest.epoch) if self.newest.epoch > epoch else None
        commits = (stored.commit for stored in self.commits)
        return next(((commit.lsn, commit.epoch) for commit in commits if commit.epoch > epoch), None)

    def is_maintenance(self, bounds: Bounds, epoch: int) -> bool:
        """P2, for a writer of `epoch` that left the volume with `bounds`."""
        if self.newest is not None:
            # Of one epoch there is one writer, and every commit of its own but those two kinds is known to it.
            return self.newest.epoch <= epoch and self.newest.bounds == bounds
        return all(
            stored.commit.kind in _MAINTENANCE and stored.commit.epoch <= epoch and stored.commit.bounds == bounds
            for stored in self.commits
        )


def pull(volumes: Volumes, vid: Vid, lsn: int, head_hash: bytes, *, each: bool = True) -> News:
    """What follows the commit at `lsn`, whose hash is `head_hash`; in the local copy on return.

    Without `each`, of many commits that a checkpoint adds up it may be the state alone.

    Raises `BranchCollected` if GC has taken all of the volume, `InvalidObject` if it does not continue that one, and
    what the store raises.
    """
    damage: InvalidObject | None = None
    commits: tuple[StoredCommit, ...] = ()
    try:
        commits = volumes.next_commits(vid, lsn, None if each else _MANY)
    except InvalidObject as error:
        damage = error
    boundary = volumes.boundary(vid)
    if boundary == DEAD:
        raise BranchCollected(volumes.full_name(vid), str(vid))
    if boundary > lsn + 1:
        volumes.forget(vid, lsn + 1, boundary)
        return News(vid, lsn, newest=volumes.snapshot(vid, max(boundary, volumes.newest_lsn(vid))))
    if damage is not None:
        raise damage
    if commits and commits[0].commit.parent_hash != head_hash:
        raise InvalidObject(commit_key(vid, lsn + 1), f"it does not continue lsn {lsn}: the parent hash is another")
    if each or len(commits) < _MANY:
        return News(vid, lsn, commits)
    last = commits[-1]
    newest = _jump(volumes, vid, last.commit.lsn)
    if newest is not None:
        return News(vid, lsn, newest=newest)
    rest = pull(volumes, vid, last.commit.lsn, last.hash)
    return News(vid, lsn, commits + rest.commits, rest.newest)


def _jump(volumes: Volumes, vid: Vid, lsn: int) -> Snapshot | None:
    """The newest state, if there is a checkpoint above `lsn`."""
    listed = volumes.newest_lsn(vid)
    last_mark = volumes.newest_checkpoints(vid).marks[-1:]
    if not last_mark or last_mark[0].lsn <= lsn:
        return None
    at = max(listed, last_mark[0].lsn)
    volumes.snapshot(vid, at)
    return volumes.snapshot(vid, at + len(volumes.next_commits(vid, at)))  # the LIST may be behind
