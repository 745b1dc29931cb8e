"""Volumes on object storage: their commits, what those add up to, and how one more is published.

V1  Nothing is returned unverified: envelope, commit hash, identity with the key, and the parent's hash, which for the
    first commit of a fork is the hash of the commit at its fork point.
V2  Commits and controls are immutable, so the local copy is used first; one that is damaged is fetched again.
V3  The newest snapshot of each volume is kept in memory, so the next one costs the commits since, not the history.
V4  A commit that is missing below one that is there is `InvalidObject`, for history is dense (C1).

Source: Graft RFC 0001 (visibility_path, remote_commit).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from catalog.commit import NO_PARENT
from catalog.control import MAIN, Control, Fork
from catalog.encoding import (
    StoredCommit,
    decode_commit_at,
    decode_control_of,
    encode_control,
    encode_fork,
)
from catalog.errors import Corrupt, Diverged, InvalidKey, InvalidObject, NoSuchObject
from catalog.gid import Vid
from catalog.keys import Key, commit_key, commits_prefix, control_key, fork_key, lsn_of
from catalog.local import LocalCatalog
from catalog.objects.base import ObjectStore
from catalog.put_once import put_once
from catalog.snapshot import Snapshot, cut, empty, fold, fork
from catalog.timeline import PastCommit

__all__ = ["Volumes"]

_CONCURRENT_GETS = 16
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Leg:
    """The part of a branch's path that lies in one volume: its commits from 1 to `lsn`, cut at `seq`."""

    vid: Vid
    lsn: int
    seq: int | None


class Volumes:
    """The volumes under one prefix. `cache`, if there is one, keeps what was read. Safe to use from many threads.

    Every method may raise `Unavailable`, `InvalidObject` and `FormatUnsupported`.
    """

    def __init__(self, store: ObjectStore, cache: LocalCatalog | None = None) -> None:
        self.store = store
        self._cache = cache
        self._known: dict[Vid, Snapshot] = {}

    # ------------------------------------------------------------ reading

    def control(self, vid: Vid) -> Control:
        """Raises `NoSuchObject`."""
        cached = self._cache.control(vid) if self._cache else None
        if cached is not None:
            try:
                return decode_control_of(cached, vid)
            except Corrupt as damage:
                _log.warning("local copy is damaged, fetching it again: %s", damage)
        body = self.store.get(control_key(vid))
        control = decode_control_of(body, vid)
        if self._cache:
            self._cache.put_control(vid, body)
        return control

    def newest_lsn(self, vid: Vid) -> int:
        """Of the commits in the store, by one LIST; 0 if there is none yet."""
        for key in self.store.list(commits_prefix(vid), limit=1):
            try:
                return lsn_of(key)
            except InvalidKey:
                raise InvalidObject(key, "it is not a commit, and lies among them") from None
        return 0

    def commits(self, vid: Vid, first_lsn: int, last_lsn: int) -> tuple[StoredCommit, ...]:
        """Commits `first_lsn` to `last_lsn`, that one included, oldest first, each joined to its parent by the hash.

        Raises `NoSuchObject` if `last_lsn` is not there.
        """
        if last_lsn < first_lsn:
            return ()
        if first_lsn > 1:  # one more, whose hash the first must name
            return self._load(vid, first_lsn - 1, last_lsn)[1:]
        loaded = self._load(vid, 1, last_lsn)
        if loaded[0].commit.parent_hash != self._origin_hash(vid):
            raise InvalidObject(commit_key(vid, 1), "it does not continue the commit that its volume was forked from")
        return loaded

    def snapshot(self, vid: Vid, lsn: int | None = None, seq: int | None = None) -> Snapshot:
        """What `vid` shows at `lsn` (None: the newest), cut at `seq`; parents included."""
        shown: Snapshot | None = None
        for leg in reversed(self._path(vid, self.newest_lsn(vid) if lsn is None else lsn, seq)):
            shown = self._shown_by(leg, shown)
        assert shown is not None  # noqa: S101 - a path has one leg at least
        return shown

    def _shown_by(self, leg: _Leg, parent: Snapshot | None) -> Snapshot:
        known = self._known.get(leg.vid)
        if known is not None and known.lsn <= leg.lsn:
            base = known
        else:
            base = empty(leg.vid) if parent is None else fork(parent, leg.vid)
        whole = fold(base, self.commits(leg.vid, base.lsn + 1, leg.lsn))
        if known is None or known.lsn < whole.lsn:
            self._known[leg.vid] = whole
        return whole if leg.seq is None else cut(whole, leg.seq)

    def history(self, vid: Vid, lsn: int | None = None) -> tuple[PastCommit, ...]:
        """The commits that `vid` stands on at `lsn` (None: the newest), newest first, parents' up to the forks."""
        past: list[PastCommit] = []
        cut_seq: int | None = None
        for leg in self._path(vid, self.newest_lsn(vid) if lsn is None else lsn, None):
            cut_seq = min((seq for seq in (cut_seq, leg.seq) if seq is not None), default=None)
            stored = self.commits(leg.vid, 1, leg.lsn)
            past.extend(PastCommit(each.commit, each.hash, cut_seq) for each in reversed(stored))
        return tuple(past)

    def _path(self, vid: Vid, lsn: int, seq: int | None) -> list[_Leg]:
        """From the volume itself to the root it was once forked from."""
        legs = [_Leg(vid, lsn, seq)]
        seen = {vid}
        while (parent := self.control(legs[-1].vid).parent) is not None:
            if parent.vid in seen:
                raise InvalidObject(control_key(legs[-1].vid), f"its parent {parent.vid} is a fork of it")
            seen.add(parent.vid)
            legs.append(_Leg(parent.vid, parent.lsn, parent.seq))
        return legs

    def _origin_hash(self, vid: Vid) -> bytes:
        parent = self.control(vid).parent
        if parent is None:
            return NO_PARENT
        if parent.lsn == 0:
            return self._origin_hash(parent.vid)
        return self._load(parent.vid, parent.lsn, parent.lsn)[0].hash

    def _load(self, vid: Vid, first_lsn: int, last_lsn: int) -> tuple[StoredCommit, ...]:
        found = self._cached(vid, first_lsn, last_lsn)
        missing = [lsn for lsn in range(first_lsn, last_lsn + 1) if lsn not in found]
        fetched = dict(zip(missing, self._fetch(vid, missing), strict=True))
        absent = next((lsn for lsn in missing if fetched[lsn] is None), None)
        if absent is not None:
            if absent < last_lsn and fetched.get(last_lsn, b"") is not None:
                raise InvalidObject(commit_key(vid, absent), f"it is missing, though lsn {last_lsn} is there")
            raise NoSuchObject(commit_key(vid, last_lsn))
        bodies = {lsn: body for lsn, body in fetched.items() if body is not None}
        found.update((lsn, decode_commit_at(body, vid, lsn)) for lsn, body in bodies.items())
        loaded = tuple(found[lsn] for lsn in range(first_lsn, last_lsn + 1))
        _check_chain(loaded)
        if self._cache and bodies:
            self._cache.put_commits(vid, bodies.items())
        return loaded

    def _cached(self, vid: Vid, first_lsn: int, last_lsn: int) -> dict[int, StoredCommit]:
        found: dict[int, StoredCommit] = {}
        bodies = self._cache.commit_bodies(vid, first_lsn, last_lsn) if self._cache else {}
        for lsn, body in bodies.items():
            try:
                found[lsn] = decode_commit_at(body, vid, lsn)
            except Corrupt as damage:
                _log.warning("local copy is damaged, fetching it again: %s", damage)
        return found

    def _fetch(self, vid: Vid, lsns: Sequence[int]) -> Iterator[bytes | None]:
        if len(lsns) < 2:
            yield from (self._get_commit(vid, lsn) for lsn in lsns)
            return
        with ThreadPoolExecutor(min(_CONCURRENT_GETS, len(lsns)), "catalog-get") as pool:
            yield from pool.map(lambda lsn: self._get_commit(vid, lsn), lsns)

    def _get_commit(self, vid: Vid, lsn: int) -> bytes | None:
        try:
            return self.store.get(commit_key(vid, lsn))
        except NoSuchObject:
            return None

    # ------------------------------------------------------------ writing

    def create(self, control: Control) -> None:
        """Make the volume: its control, then the fork in its parent. No name leads to it yet (`catalog.branch`).

        Raises `NoSuchObject` if the fork point's commit is not there.
        """
        if control.parent is not None and control.parent.lsn > 0:
            self._load(control.parent.vid, control.parent.lsn, control.parent.lsn)
        self._put_own(control_key(control.vid), encode_control(control))
        if control.parent is not None:
            fork_body = encode_fork(Fork(control.vid, control.parent))
            self._put_own(fork_key(control.parent.vid, control.vid), fork_body)

    def publish(self, vid: Vid, lsn: int, body: bytes) -> None:
        """Put the commit `body` at `lsn`, or find that it is there already. Repeat it with the identical bytes only.

        Returns when the commit is the one at `lsn`. Raises `Diverged` if another's is there, `OutcomeUnknown` if nobody
        can say now (it may still land: neither drop it nor use another LSN), and `StoreUnreachable`, `AccessDenied` or
        `NoSuchBucket` if this call certainly wrote nothing.
        """
        ours = decode_commit_at(body, vid, lsn)
        found = put_once(self.store, commit_key(vid, lsn), body)
        if found == body:
            return
        # Hashes, not bytes: a commit that became a checkpoint meanwhile has other bytes and the same hash.
        if decode_commit_at(found, vid, lsn).hash != ours.hash:
            control = self.control(vid)
            raise Diverged(_full_name(control), str(vid), lsn)

    def _put_own(self, key: Key, body: bytes) -> None:
        if put_once(self.store, key, body) != body:
            raise InvalidObject(key, "another object has this new id")


def _check_chain(commits: Sequence[StoredCommit]) -> None:
    for before, after in itertools.pairwise(commits):
        if after.commit.parent_hash != before.hash:
            key = commit_key(after.commit.vid, after.commit.lsn)
            raise InvalidObject(key, f"it does not continue lsn {before.commit.lsn}: the parent hash is another")


def _full_name(control: Control) -> str:
    return control.topic if control.branch == MAIN else f"{control.topic}@{control.branch}"
