"""Names: which volume a topic's branch is, and how a branch comes to be, changes its name and goes.

A topic's own history is its branch `main`. A branch is made in an order that a crash may end anywhere:

    step                                            what a crash after it leaves
    1 Control, in the new volume                    a volume without a name, for GC
    2 Fork, in the parent (if any)                  the same; the parent's commits are held for it
    3 is the fork point still kept? (B3)            the same
    4 OplogEntry                                    the same, and an entry whose change never came
    5 Ref, if absent or that of a deleted branch    the branch
    6 does GC take the volume for dead? (B3)        the branch

B1  Of any number of racing creators of a name one wins. Those who want an empty `main` adopt the winner's volume, as
    they want the same; all others get `BranchExists`, as what they forked from may differ.
B2  A fork whose ref got no answer is `OutcomeUnknown`, with the volume by which it can be told from another's: a
    repetition would have another volume, and takes no branch for its own.
B3  GC raises a volume's boundary and looks at forks and refs again before it deletes. Whoever makes a branch writes
    first and looks at the boundary then: at the parent's after step 2, at its own after step 5. One sees the other, so
    there is no branch whose parent, or whose own volume, is gone.
B4  A deleted branch keeps its ref, which says when. Until GC has taken its volume it can be had back, under its name.
B5  A ref is never removed, only changed by compare-and-swap, each time with a new nonce; what it was is in the oplog.

Source: Graft RFC 0001.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from catalog.change import change
from catalog.commit import ForkPoint
from catalog.control import MAIN, Control, Ref
from catalog.errors import (
    BranchExists,
    KeyChanged,
    NoSuchBranch,
    NoSuchBucket,
    NoSuchObject,
    NoSuchTopic,
    OutcomeUnknown,
    OutOfWindow,
    Unavailable,
    UnnamableBranch,
)
from catalog.gid import Vid
from catalog.holds import check_kept
from catalog.keys import Key, branch_of, ref_key, refs_prefix, topic_of
from catalog.oplog import Oplog
from catalog.small_objects import decode_ref, encode_ref
from catalog.volume import DEAD, Volumes

__all__ = ["Branch", "Branches", "Distance"]

_CONCURRENT_GETS = 16
_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Branch:
    """A named volume. `parent` is None for one that was not forked, `deleted_at_ms` for one that is alive."""

    topic: str
    branch: str
    vid: Vid
    parent: ForkPoint | None
    created_at_ms: int
    deleted_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Distance:
    """Commits of a branch since its fork point, and those of its parent since then."""

    ahead: int
    behind: int


class Branches:
    """The names under one prefix. Safe to use from many threads. Every method may raise `InvalidName`."""

    def __init__(self, volumes: Volumes, writer_id: str = "") -> None:
        self._volumes = volumes
        self._store = volumes.store
        self._oplog = Oplog(volumes.store, writer_id)

    def resolve(self, topic: str, branch: str = MAIN) -> Vid:
        """Raises `NoSuchTopic`, or `NoSuchBranch` if the topic has other branches."""
        ref = self._ref(topic, branch)
        if ref is not None and ref.deleted_at_ms is None:
            return ref.vid
        if any(self._store.list(refs_prefix(topic), limit=1)):
            raise NoSuchBranch(topic, branch)
        raise NoSuchTopic(topic, self._store.url)

    def topics(self) -> list[str]:
        """Ascending."""
        return sorted({topic_of(key) for key in self._store.list(refs_prefix())})

    def names(self) -> list[tuple[str, str]]:
        """Topic and branch of every name, ascending; deleted ones too. One LIST."""
        return sorted((topic_of(key), branch_of(key)) for key in self._store.list(refs_prefix()))

    def branches(self, topic: str, *, deleted: bool = False) -> list[Branch]:
        """Ascending by name; with `deleted`, those too that are deleted and can be had back. Raises `NoSuchTopic`."""
        names = [branch_of(key) for key in self._store.list(refs_prefix(topic))]
        if not names:
            raise NoSuchTopic(topic, self._store.url)
        found = self._each(names, lambda name: self._branch(topic, name))
        return [each for each in found if each is not None and (deleted or each.deleted_at_ms is None)]

    def distances(self, branches: Sequence[Branch]) -> list[Distance]:
        """Of each: how far it and its parent went since the fork. Two LISTs for each."""
        return self._each(branches, self._distance)

    def create(
        self,
        topic: str,
        branch: str = MAIN,
        parent: ForkPoint | None = None,
        *,
        now_ms: int,
        message: str = "",
    ) -> Vid:
        """Make the branch, at `parent` or empty; returns its volume. For an empty `main`, the one that it has already.

        Raises `BranchExists`, `NoSuchObject` if the fork point's commit is not there, `OutOfWindow` if its state is not
        kept any more, and `OutcomeUnknown`.
        """
        found = self._ref(topic, branch)
        if found is not None and found.deleted_at_ms is None:
            if branch != MAIN or parent is not None:
                raise BranchExists(topic, branch)
            return found.vid
        control = Control(Vid.new(now_ms), parent, now_ms, topic, branch)
        self._volumes.create(control)
        if parent is not None:
            check_kept(self._volumes, parent)
        return self._name(control, message)

    def delete(self, topic: str, branch: str, *, now_ms: int) -> Branch:
        """The name leads nowhere from now on. `undelete` brings it back until GC has taken what it named.

        Raises `NoSuchBranch`, `NoSuchTopic`, and `UnnamableBranch` for `main`, which is the topic itself.
        """
        if branch == MAIN:
            raise UnnamableBranch(topic, "be deleted")
        self.resolve(topic, branch)

        def deleted(ref: Ref | None) -> Ref | None:
            if ref is None:
                raise NoSuchBranch(topic, branch)
            return ref if ref.deleted_at_ms is not None else replace(ref, deleted_at_ms=now_ms)

        self._change("branch delete", topic, branch, deleted, now_ms=now_ms)
        return self._existing(topic, branch)

    def undelete(self, topic: str, branch: str, *, now_ms: int) -> Branch:
        """Bring a deleted branch back. Raises `NoSuchBranch`, and `OutOfWindow` if GC has taken its volume."""

        def alive(ref: Ref | None) -> Ref | None:
            if ref is None:
                raise NoSuchBranch(topic, branch)
            return replace(ref, deleted_at_ms=None)

        vid = self._change("branch undelete", topic, branch, alive, now_ms=now_ms).vid
        self._check_alive(topic, branch, vid, now_ms)
        return self._existing(topic, branch)

    def rename(self, topic: str, branch: str, new: str, *, now_ms: int) -> Branch:
        """The volume has the name `new` from now on. A crash may leave both names: repeat it, and the old one goes.

        Raises `NoSuchBranch`, `NoSuchTopic`, `BranchExists`, and `UnnamableBranch` for `main`.
        """
        if MAIN in {branch, new}:
            raise UnnamableBranch(topic, "be renamed" if branch == MAIN else "be the new name of a branch")
        vid = self.resolve(topic, branch)

        def named(ref: Ref | None) -> Ref | None:
            if ref is not None and ref.deleted_at_ms is None and ref.vid != vid:
                raise BranchExists(topic, new)
            return Ref(vid, now_ms) if ref is None or ref.deleted_at_ms is not None else ref

        self._change("branch rename", topic, new, named, now_ms=now_ms, message=f"was {branch}")
        self._change(
            "branch rename",
            topic,
            branch,
            lambda ref: ref if ref is None else replace(ref, deleted_at_ms=now_ms),
            now_ms=now_ms,
            message=f"is {new}",
        )
        return self._existing(topic, new)

    def put_back(self, key: Key, former: Ref | None, value: Ref, *, now_ms: int, message: str) -> Ref:
        """Undo: what was `value` becomes `former` again, or deleted if it was nothing. Raises `KeyChanged`."""
        topic, branch = topic_of(key), branch_of(key)

        def as_before(ref: Ref | None) -> Ref | None:
            if ref is None or replace(ref, nonce=b"") != replace(value, nonce=b""):
                raise KeyChanged(key)
            return replace(value, deleted_at_ms=now_ms) if former is None else former

        ref = self._change("undo", topic, branch, as_before, now_ms=now_ms, message=message)
        if ref.deleted_at_ms is None:
            self._check_alive(topic, branch, ref.vid, now_ms)
        return ref

    # ------------------------------------------------------------ inside

    def _name(self, control: Control, message: str) -> Vid:
        topic, branch, parent = control.topic, control.branch, control.parent

        def named(ref: Ref | None) -> Ref | None:
            if ref is None or ref.deleted_at_ms is not None:
                return Ref(control.vid, control.created_at_ms)
            if ref.vid != control.vid and (branch != MAIN or parent is not None):
                raise BranchExists(topic, branch)
            return ref

        operation = "branch create" if parent else "topic create"
        try:
            vid = self._change(operation, topic, branch, named, now_ms=control.created_at_ms, message=message).vid
        except OutcomeUnknown as unknown:
            if parent is None or unknown.key != ref_key(topic, branch):
                raise
            raise OutcomeUnknown(unknown.key, unknown.cause, _unknown_fork(control)) from unknown
        try:
            self._check_alive(topic, branch, vid, control.created_at_ms)
        except (Unavailable, NoSuchBucket) as trouble:
            raise OutcomeUnknown(ref_key(topic, branch), str(trouble), _unknown_fork(control)) from trouble
        return vid

    def _change(
        self,
        operation: str,
        topic: str,
        branch: str,
        make: Callable[[Ref | None], Ref | None],
        *,
        now_ms: int,
        message: str = "",
    ) -> Ref:
        """Put the change down in the oplog, and make it. `make` gives what the ref shall be, or the ref to leave it."""
        key = ref_key(topic, branch)
        before = self._body(key)
        wanted = _changed(key, before, make)
        if wanted is not None:
            self._oplog.note(operation, key, before, wanted, now_ms=now_ms, message=message)

        def made(body: bytes | None) -> bytes | None:
            if body == before:
                return wanted
            if body != wanted and _changed(key, body, make) is not None:
                raise KeyChanged(key)
            return None

        found = change(self._store, key, made)
        if found is None:
            raise NoSuchBranch(topic, branch)
        return decode_ref(found, key)

    def _check_alive(self, topic: str, branch: str, vid: Vid, now_ms: int) -> None:
        """B3, step 6."""
        if self._volumes.boundary(vid) == DEAD:
            self._change(
                "branch delete",
                topic,
                branch,
                lambda ref: ref if ref is None or ref.vid != vid else replace(ref, deleted_at_ms=now_ms),
                now_ms=now_ms,
                message="its volume was collected",
            )
            raise OutOfWindow(f"{topic}@{branch}", "nothing of its volume, which was collected")

    def _ref(self, topic: str, branch: str) -> Ref | None:
        key = ref_key(topic, branch)
        body = self._body(key)
        return None if body is None else decode_ref(body, key)

    def _body(self, key: Key) -> bytes | None:
        try:
            return self._store.get(key)
        except NoSuchObject:
            return None

    def _existing(self, topic: str, branch: str) -> Branch:
        found = self._branch(topic, branch)
        if found is None:
            raise NoSuchBranch(topic, branch)
        return found

    def _branch(self, topic: str, branch: str) -> Branch | None:
        ref = self._ref(topic, branch)
        if ref is None:
            return None
        try:
            control = self._volumes.control(ref.vid)
        except NoSuchObject:
            if ref.deleted_at_ms is None:
                raise
            return None  # deleted, and collected
        return Branch(topic, branch, ref.vid, control.parent, control.created_at_ms, ref.deleted_at_ms)

    def _distance(self, branch: Branch) -> Distance:
        ahead = self._volumes.newest_lsn(branch.vid)
        parent = branch.parent
        return Distance(ahead, 0 if parent is None else self._volumes.newest_lsn(parent.vid) - parent.lsn)

    def _each(self, items: Sequence[_T], ask: Callable[[_T], _R]) -> list[_R]:
        if len(items) < 2:
            return [ask(item) for item in items]
        with ThreadPoolExecutor(min(_CONCURRENT_GETS, len(items)), "catalog-get") as pool:
            return list(pool.map(ask, items))


def _changed(key: Key, body: bytes | None, make: Callable[[Ref | None], Ref | None]) -> bytes | None:
    """What `make` wants in the place of `body`, with a new nonce; None if it is as it wants it."""
    ref = None if body is None else decode_ref(body, key)
    made = make(ref)
    if made is None or made == ref:
        return None
    return encode_ref(replace(made, nonce=os.urandom(16)))


def _unknown_fork(control: Control) -> str:
    return (
        f"if `seglog branch list {control.topic}` shows {control.branch} with volume {control.vid}, it was made; "
        "if it does not show it, run the same command again"
    )
