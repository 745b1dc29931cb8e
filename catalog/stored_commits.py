"""The commits and small objects of volumes, as they are stored: fetched, verified, and kept in the local catalog.

STORED-1  A method verifies everything that it returns: envelope, commit hash, identity with the key. If it reads
    several commits, it verifies each parent's hash too.
STORED-2  Commits and controls never change, so a reader uses the local copy first. If the local copy is damaged, the
    reader fetches the object again. If the list of checkpoints names a commit that was no checkpoint when it was
    copied, the reader fetches that commit again. The reader reads the list only if the commits since its newest
    checkpoint are not all here. It reads only the list's beginning, unless the wanted state lies before that.
STORED-3  If a commit is missing below one that is there, that is `InvalidObject`, because history is dense (COMMIT-1).
    If it lies below the current boundary, GC collected it, and that is `NoSuchObject`.
STORED-4  An epoch that falls is `InvalidObject` (COMMIT-5).
STORED-5  If a LIST costs by the number of keys, the newest commit is searched from the newest checkpoint on. History is
    dense (COMMIT-1), and the kept part begins with a checkpoint. The result may be behind what GC has passed, as the
    result of a LIST may be.
STORED-6  A list of segments that came damaged is read once more, past the cache of a proxy.

Source: Graft RFC 0001 (visibility_path, remote_commit, checkpoints).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from blake3 import blake3

from catalog.errors import Corrupt, InvalidObject, NoSuchObject
from catalog.format.commit import Commit
from catalog.format.control import Boundary, CheckpointSet, Control, full_name
from catalog.format.encoding import StoredCommit, decode_commit, decode_commit_at
from catalog.format.envelope import MessageType, unwrap
from catalog.format.ids import LsnNumber, Vid
from catalog.format.keys import (
    Key,
    boundary_key,
    checkpoints_key,
    commit_key,
    commits_prefix,
    control_key,
    forward_key,
    list_key,
    lsn_of,
)
from catalog.format.small_objects import (
    NEWEST_BYTES,
    decode_boundary,
    decode_checkpoint_set,
    decode_control_of,
    decode_newest_checkpoints,
    encode_boundary,
    encode_checkpoint_set,
)
from catalog.local_catalog import LocalCatalog
from catalog.objects.object_store import AT_ONCE, ObjectStore, each_of, first_valid_key, is_behind_proxy, past_cache
from catalog.snapshot import Snapshot
from seglog.base.arguments import checked
from seglog.base.lazy import logger
from seglog.base.progress import count

FAR = 64  # commits: from this distance on, a checkpoint may be nearer than the known state
_LSNS = 2**63  # the first LSN that a local catalog cannot hold
_log = logger(__name__)


class StoredCommits:
    """What the store has of the volumes under one prefix. `cache`, if given, keeps what was read."""

    def __init__(self, store: ObjectStore, cache: LocalCatalog | None = None) -> None:
        self.store = store
        self.cache = cache
        self._last_marks: dict[Vid, int] = {}
        self._forwards: dict[Vid, StoredCommit | None] = {}

    @checked
    def control(self, vid: Vid) -> Control:
        """Return the volume's control. Raise `NoSuchObject` if it is absent."""
        cached = self.cache.control(vid) if self.cache else None
        if cached is not None:
            try:
                return decode_control_of(cached, vid)
            except Corrupt as damage:
                _log.warning("local copy is damaged, fetching it again: %s", damage)
        body = self.store.get(control_key(vid))
        control = decode_control_of(body, vid)
        if self.cache:
            self.cache.put_control(vid, body)
        return control

    @checked
    def full_name(self, vid: Vid) -> str:
        """Return the branch's name for messages: `topic@branch`, or the topic alone for its main branch.

        The name comes from the control, which may be gone with the volume.
        """
        try:
            control = self.control(vid)
        except NoSuchObject:
            return "a branch"
        return full_name(control.topic, control.branch)

    @checked
    def newest_lsn(self, vid: Vid) -> int:
        """Return the LSN of the newest commit in the store; 0 if there is none yet.

        One LIST, or a search by name (STORED-5).
        """
        if not self.store.is_ordered:
            with contextlib.suppress(Corrupt):  # callers that need the checkpoints report damage
                return self._searched_newest(vid)
        return first_valid_key(self.store, commits_prefix(vid), lsn_of) or 0

    @checked
    def is_there(self, vid: Vid) -> bool:
        """Tell whether the store has the volume, with commits or without. One HEAD."""
        return self._has(control_key(vid))

    @checked
    def has_commit(self, vid: Vid, lsn: LsnNumber) -> bool:
        """Tell whether the commit is in the store. One HEAD."""
        return self._has(commit_key(vid, lsn))

    def _has(self, key: Key) -> bool:
        try:
            self.store.head(key)
        except NoSuchObject:
            return False
        return True

    @checked
    def next_commits(self, vid: Vid, lsn: LsnNumber, enough: int | None = None) -> tuple[StoredCommit, ...]:
        """Return the commits after `lsn`, oldest first, until one is absent, or there are `enough`.

        This takes no LIST. It takes a GET for each commit that is not here yet, and GETs that find none.
        """
        commits = self._cached_run(vid, lsn)
        width = 1
        while enough is None or len(commits) < enough:
            lsns = range(lsn + len(commits) + 1, lsn + len(commits) + 1 + width)
            bodies = list(itertools.takewhile(lambda body: body is not None, self._fetch(vid, lsns)))
            fetched = [(at, body) for at, body in zip(lsns, bodies, strict=False) if body is not None]
            commits.extend(decode_commit_at(body, vid, at) for at, body in fetched)
            if self.cache and fetched:
                self.cache.put_commits(vid, fetched)
            if len(fetched) < width:
                break
            width = min(width * 2, AT_ONCE)
        check_chain(commits)
        return tuple(commits)

    @checked
    def boundary(self, vid: Vid) -> int:
        """Return the lowest LSN that GC retains. Commits below it are rejected. 0 before the first collection."""
        return self._stored_boundary(vid).lsn

    @checked
    def checkpoints(self, vid: Vid) -> CheckpointSet:
        """Return all checkpoints that readers may start from."""
        try:
            body = self.store.get(checkpoints_key(vid))
        except NoSuchObject:
            body = encode_checkpoint_set(CheckpointSet(vid))
        self.remember_checkpoints(vid, body)
        return decode_checkpoint_set(body, vid)

    @checked
    def newest_checkpoints(self, vid: Vid) -> CheckpointSet:
        """Return the newest checkpoints. The cost is the same whatever their number is."""
        try:
            body = self.store.get_range(checkpoints_key(vid), 0, NEWEST_BYTES)
        except NoSuchObject:
            body = encode_checkpoint_set(CheckpointSet(vid))
        return self.remember_checkpoints(vid, body)

    @checked
    def remember_checkpoints(self, vid: Vid, body: bytes) -> CheckpointSet:
        """Remember `body`, the current list of checkpoints or its beginning. Return the newest ones in it."""
        newest = decode_newest_checkpoints(body[:NEWEST_BYTES], vid)
        if self.cache:
            cached = self.cache.object(checkpoints_key(vid))
            if cached is None or len(body) > NEWEST_BYTES or cached[:NEWEST_BYTES] != body:
                self.cache.put_object(checkpoints_key(vid), body)
        self._last_marks[vid] = newest.marks[-1].lsn if newest.marks else 0
        return newest

    @checked
    def last_checkpoint(self, vid: Vid) -> int:
        """Return the LSN of the newest checkpoint as last read; 0 without any. The store may have newer ones."""
        if vid not in self._last_marks:
            self.newest_checkpoints(vid)
        return self._last_marks[vid]

    @checked
    def commits(self, vid: Vid, first_lsn: LsnNumber, last_lsn: LsnNumber) -> tuple[StoredCommit, ...]:
        """Return the commits `first_lsn` to `last_lsn`, both included, oldest first, joined by their hashes.

        Raise `NoSuchObject` if `last_lsn` is absent, or GC collected the first ones.
        """
        check_lsn(vid, last_lsn)
        return self._load(vid, first_lsn, last_lsn) if first_lsn <= last_lsn else ()

    def _searched_newest(self, vid: Vid) -> int:
        """Return the newest LSN, by a GET and some HEADs.

        The number of HEADs is twice the binary logarithm of the number of commits since the checkpoint.
        """
        marks = self.newest_checkpoints(vid).marks
        newest, step = marks[-1].lsn if marks else 0, 1
        while self.has_commit(vid, newest + step):
            newest, step = newest + step, 2 * step
        absent = newest + step
        while absent - newest > 1:
            middle = (newest + absent) // 2
            newest, absent = (middle, absent) if self.has_commit(vid, middle) else (newest, middle)
        return newest

    def _stored_boundary(self, vid: Vid) -> Boundary:
        try:
            body = self.store.get(boundary_key(vid))
        except NoSuchObject:
            body = encode_boundary(Boundary(vid, 0))
        boundary = decode_boundary(body, vid)
        if self.cache:
            self.cache.put_object(boundary_key(vid), body)
        return boundary

    def _last_read(self, vid: Vid, decode: Callable[[bytes, Vid], CheckpointSet]) -> CheckpointSet | None:
        """Return the list of checkpoints as last read; None if it was not read as far as `decode` needs."""
        body = self.cache.object(checkpoints_key(vid)) if self.cache else None
        try:
            return None if body is None else decode(body, vid)
        except Corrupt as damage:
            _log.warning("the local copy is damaged, or only its beginning is here: %s", damage)
            return None

    def _load(self, vid: Vid, first_lsn: int, last_lsn: int) -> tuple[StoredCommit, ...]:
        cached = self._cached(vid, first_lsn, last_lsn)
        if last_lsn - first_lsn - len(cached) > FAR and last_lsn not in cached and not self.has_commit(vid, last_lsn):
            raise NoSuchObject(commit_key(vid, last_lsn))  # checked before so many are fetched
        missing = [lsn for lsn in range(first_lsn, last_lsn + 1) if lsn not in cached]
        fetched = dict(zip(missing, self._fetch(vid, missing), strict=True))
        absent = next((lsn for lsn in missing if fetched[lsn] is None), None)
        if absent is not None:
            is_gap = absent < last_lsn and fetched.get(last_lsn, b"") is not None
            if is_gap and absent >= self.boundary(vid):
                raise InvalidObject(commit_key(vid, absent), f"it is missing, though lsn {last_lsn} is there")
            raise NoSuchObject(commit_key(vid, absent if is_gap else last_lsn))
        bodies = {lsn: body for lsn, body in fetched.items() if body is not None}
        cached.update((lsn, decode_commit_at(body, vid, lsn)) for lsn, body in bodies.items())
        loaded = tuple(cached[lsn] for lsn in range(first_lsn, last_lsn + 1))
        check_chain(loaded)
        if self.cache and bodies:
            self.cache.put_commits(vid, bodies.items())
        return loaded

    def _cached_run(self, vid: Vid, lsn: int) -> list[StoredCommit]:
        """Return the commits after `lsn` that are here, up to the first gap."""
        newest = self.cache.newest_lsn(vid) if self.cache else 0
        commits = self._cached(vid, lsn + 1, newest)
        return [commits[at] for at in itertools.takewhile(commits.__contains__, range(lsn + 1, newest + 1))]

    def _cached(self, vid: Vid, first_lsn: int, last_lsn: int) -> dict[int, StoredCommit]:
        commits: dict[int, StoredCommit] = {}
        bodies = self.cache.commit_bodies(vid, first_lsn, last_lsn) if self.cache else {}
        for lsn, body in bodies.items():
            try:
                commits[lsn] = decode_commit_at(body, vid, lsn)
            except Corrupt as damage:
                _log.warning("local copy is damaged, fetching it again: %s", damage)
        if vid not in self._forwards:
            stored = self._forwarded(vid)
            self._forwards[vid] = stored and replace(stored, checkpoint=None)
        forward = self._forwards[vid]
        if forward is not None and first_lsn <= forward.commit.lsn <= last_lsn:
            commits.setdefault(forward.commit.lsn, forward)
        return commits

    def _forwarded(self, vid: Vid) -> StoredCommit | None:
        """Return the commit that a proxy gave as the newest, from the local copy; None without one, or for a bucket."""
        body = self.cache.object(forward_key(vid)) if self.cache and is_behind_proxy(self.store) else None
        try:
            return None if body is None else decode_commit(body, forward_key(vid))
        except Corrupt as damage:
            _log.warning("the local copy is damaged, and the store has its own: %s", damage)
            return None

    def _fetch(self, vid: Vid, lsns: Sequence[int]) -> Iterator[bytes | None]:
        return _counted(each_of(self.store, lsns, functools.partial(self._get_commit, vid)))

    def _get_commit(self, vid: Vid, lsn: int) -> bytes | None:
        try:
            return self.store.get(commit_key(vid, lsn))
        except NoSuchObject:
            return None

    def _list(self, vid: Vid, lsn: int, digest: bytes) -> bytes:
        key = list_key(vid, lsn, digest)
        cached = self.cache.object(key) if self.cache else None
        if cached is not None and blake3(cached).digest() == digest:
            return cached
        try:
            views = _read_list(self.store, key, digest)
        except Corrupt as damage:
            if not is_behind_proxy(self.store):
                raise
            _log.warning("fetching it past the cache of the proxy: %s", damage)
            views = _read_list(past_cache(self.store), key, digest)
        if self.cache:
            self.cache.put_object(key, views)
        return views


def _read_list(store: ObjectStore, key: Key, digest: bytes) -> bytes:
    views = unwrap(MessageType.SEGMENT_LIST, store.get(key), key)
    if blake3(views).digest() != digest:
        raise InvalidObject(key, "its content does not match its name")
    return views


def check_chain(commits: Sequence[StoredCommit]) -> None:
    for before, after in itertools.pairwise(commits):
        if after.commit.parent_hash != before.hash:
            key = commit_key(after.commit.vid, after.commit.lsn)
            raise InvalidObject(key, f"it does not continue lsn {before.commit.lsn}: the parent hash is another")
        check_rise(before.commit, after)


def check_rise(before: Commit | Snapshot, after: StoredCommit) -> None:
    """Raise `InvalidObject` if epoch or form fall (COMMIT-5, COMMIT-6)."""
    commit = after.commit
    key = commit_key(commit.vid, commit.lsn)
    if commit.epoch < before.epoch:
        raise InvalidObject(key, f"its epoch is {commit.epoch}, after a commit of epoch {before.epoch}")
    if commit.form < before.form:
        raise InvalidObject(key, f"its form is {commit.form}, after a commit of form {before.form}")


def check_lsn(vid: Vid, lsn: int) -> None:
    """Raise `NoSuchObject` for an LSN that no local catalog can hold, before any work that grows with it."""
    if lsn >= _LSNS:
        raise NoSuchObject(commit_key(vid, lsn))


def _counted(bodies: Iterable[bytes | None]) -> Iterator[bytes | None]:
    """Yield the bodies of commits, and count them for the watcher."""
    for body in bodies:
        count("reading commits", 0 if body is None else 1, "commits")
        yield body
