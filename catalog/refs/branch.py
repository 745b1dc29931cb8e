"""Names: which volume a topic's branch is, and how a branch comes to be, changes its name and goes.

A topic's own history is its branch `main`. A branch is made in an order that a crash may end anywhere:

    step                                            what a crash after it leaves
    1 Control, in the new volume                    a volume without a name, for GC
    2 Fork, in the parent (if any)                  the same; the parent's commits are held for it
    3 is the fork point still kept? (B3)            the same
    4 OplogEntry                                    the same, and an entry whose change never came
    5 Ref, if absent or that of a deleted branch    the branch
    6 is the volume still open? (B3)                a name that was told to nobody

B1  Of any number of racing creators of a name one wins. Those who want an empty `main` adopt the winner's volume, as
    they want the same; all others get `BranchExists`, as what they forked from may differ.
B2  A fork whose ref got no answer is `OutcomeUnknown`, with the volume by which it can be told from another's: a
    repetition would have another volume, and takes no branch for its own.
B3  GC raises a volume's boundary and looks at forks and refs again before it deletes. Whoever makes a branch writes
    first and looks at the boundary then: at the parent's after step 2 (catalog.refs.retention_check), at its own after
    step 5
    (catalog.refs.volume_deletion), and so does whoever gives a volume a name in any other way: undelete, rename, undo,
    and who finds
    that the name is there. One sees the other, so there is no branch whose parent, or whose own volume, is gone.
B4  A deleted branch keeps its ref, which says when. Until GC has taken its volume it can be had back, under its name.
    A name whose volume was collected counts as deleted, whatever its ref says.
B5  A ref is never removed, only changed by compare-and-swap, each time with a new nonce; what it was is in the oplog.
B6  A rename gives the new name, then takes the old one, as one operation. Who finds the old name changed takes the new
    one back: of racing renames one wins. A crash may leave both names on one volume; the rename and its undo both end
    that. Undo gives the old name back first.
B7  A volume has one live name. Undelete, rename and undo refuse to give it another one (catalog.refs.one_name).

Source: Graft RFC 0001.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from catalog.arguments import checked
from catalog.errors import (
    BranchExists,
    KeyChanged,
    Missing,
    NoSuchBranch,
    NoSuchBucket,
    NoSuchObject,
    NoSuchTopic,
    OutcomeUnknown,
    OutOfWindow,
    Unavailable,
    UnnamableBranch,
    VolumeCollected,
    VolumeHasName,
)
from catalog.format.commit import ForkPoint
from catalog.format.control import DEAD, MAIN, Control, NameChange, Ref
from catalog.format.gid import Vid
from catalog.format.keys import Key, branch_of, named_by, ref_key, refs_prefix, topic_of
from catalog.format.small_objects import decode_ref, encode_ref
from catalog.objects.first_valid_key import first_known
from catalog.objects.store_time import latest_ms
from catalog.refs.one_name import check_only_name
from catalog.refs.oplog import Oplog
from catalog.refs.ref_store import Found, Naming, Planned, is_same
from catalog.refs.retention_check import check_kept
from catalog.refs.volume_deletion import keep_open
from catalog.volume import Volumes

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
        self._refs = Naming(volumes.store, Oplog(volumes.store, writer_id), encode_ref, decode_ref)

    @checked
    def resolve(self, topic: str, branch: str = MAIN) -> Vid:
        """Raises `NoSuchTopic`, or `NoSuchBranch` if the topic has other branches."""
        ref = self._refs.look(ref_key(topic, branch)).alive
        if ref is None:
            raise self._unknown(topic, branch)
        return ref.vid

    def topics(self) -> list[str]:
        """Ascending."""
        return sorted({topic for topic, _ in self.names()})

    def names(self) -> list[tuple[str, str]]:
        """Topic and branch of every name, ascending; deleted ones too. One LIST."""
        return sorted(named for key in self._store.list(refs_prefix()) if (named := named_by(key)))

    @checked
    def branches(self, topic: str, *, deleted: bool = False) -> list[Branch]:
        """Ascending by name; with `deleted`, those too that are deleted and can be had back. Raises `NoSuchTopic`."""
        names = [named[1] for key in self._store.list(refs_prefix(topic)) if (named := named_by(key))]
        if not names:
            raise NoSuchTopic(topic, self._store.url)
        found = self._each(names, lambda name: self._branch(topic, name))
        return [each for each in found if each is not None and (deleted or each.deleted_at_ms is None)]

    @checked
    def distances(self, branches: Sequence[Branch]) -> list[Distance]:
        """Of each: how far it and its parent went since the fork. Two LISTs for each."""
        return self._each(branches, self._distance)

    @checked
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
        kept any more, `VolumeCollected` if this took longer than GC's grace, and `OutcomeUnknown`.
        """
        found = self._refs.look(ref_key(topic, branch))
        if found.alive is not None and keep_open(self._store, found.alive.vid):
            if branch != MAIN or parent is not None:
                raise BranchExists(topic, branch)
            return found.alive.vid
        control = Control(Vid.new(now_ms), parent, now_ms, topic, branch)
        self._volumes.create(control)
        if parent is not None:
            check_kept(self._volumes, parent)
        return self._name(control, message, found)

    @checked
    def check_open(self, topic: str, branch: str, vid: Vid, *, now_ms: int) -> None:
        """For who found the name, which leads to `vid`, and is about to write there: who put it may never have looked.

        Raises `NoSuchBranch` if the volume was collected.
        """
        if not keep_open(self._store, vid):
            self.take_back(topic, branch, vid, now_ms=now_ms)
            raise NoSuchBranch(topic, branch)

    @checked
    def delete(self, topic: str, branch: str, *, now_ms: int) -> Branch:
        """The name leads nowhere from now on. `undelete` brings it back until GC has taken what it named.

        Raises `NoSuchBranch`, `NoSuchTopic`, and `UnnamableBranch` for `main`, which is the topic itself.
        """
        if branch == MAIN:
            raise UnnamableBranch(topic, "be deleted")
        key = ref_key(topic, branch)
        found = self._refs.look(key)
        if found.alive is None:
            raise self._unknown(topic, branch)
        # Before it is made: once it is, GC may take all of the volume at any time.
        control = self._volumes.control(found.alive.vid)
        deleted_at_ms = latest_ms(self._store, now_ms)

        def deleted(ref: Ref | None) -> Ref | None:
            if ref is None:
                raise NoSuchBranch(topic, branch)
            return ref if ref.deleted_at_ms is not None else replace(ref, deleted_at_ms=deleted_at_ms)

        ref = self._refs.change("branch delete", key, deleted, now_ms=now_ms, found=found)
        assert ref is not None  # noqa: S101 - `deleted` leaves one
        return Branch(topic, branch, ref.vid, control.parent, control.created_at_ms, ref.deleted_at_ms)

    @checked
    def undelete(self, topic: str, branch: str, *, now_ms: int) -> Branch:
        """Bring a deleted branch back.

        Raises `NoSuchBranch`, `VolumeHasName` if the branch was renamed meanwhile, and `OutOfWindow` if GC has taken
        its volume.
        """

        def alive(ref: Ref | None) -> Ref | None:
            if ref is None:
                raise NoSuchBranch(topic, branch)
            return replace(ref, deleted_at_ms=None)

        self._give("branch undelete", topic, branch, alive, now_ms=now_ms)
        return self._existing(topic, branch)

    @checked
    def rename(self, topic: str, branch: str, new: str, *, now_ms: int) -> Branch:
        """The volume has the name `new` from now on. A crash may leave both names: repeat it, and the old one goes.

        It is one operation of the oplog, and one undo. Of racing changes of the old name one wins.

        Raises `NoSuchBranch`, `NoSuchTopic`, `BranchExists`, `UnnamableBranch` for `main`, `KeyChanged` and
        `VolumeHasName` for a lost race, and `OutOfWindow` if the branch was deleted meanwhile and GC has taken its
        volume.
        """
        if MAIN in {branch, new}:
            raise UnnamableBranch(topic, "be renamed" if branch == MAIN else "be the new name of a branch")
        old_key, new_key = ref_key(topic, branch), ref_key(topic, new)
        old, there = self._refs.look(old_key), self._refs.look(new_key)
        if old.alive is None:
            raise self._unknown(topic, branch)
        if branch == new:
            return self._existing(topic, branch)
        if there.alive is not None and there.alive.vid != old.alive.vid:
            raise BranchExists(topic, new)
        former = None if there.tagged is None else there.tagged.body
        if there.alive is not None:  # by a rename that ended here: undo takes this name back all the same
            former = encode_ref(replace(there.alive, deleted_at_ms=now_ms, nonce=os.urandom(16)))
        given = Planned(new_key, there, Ref(old.alive.vid, now_ms), former)
        taken = Planned(
            old_key, old, replace(old.alive, deleted_at_ms=now_ms), None if old.tagged is None else old.tagged.body
        )
        self._move("branch rename", [given, taken], now_ms=now_ms, message=f"was {branch}")
        return self._existing(topic, new)

    @checked
    def put_back(self, key: Key, former: Ref | None, value: Ref, *, now_ms: int, message: str) -> Ref:
        """Undo: what was `value` becomes `former` again, or deleted if it was nothing.

        Raises `KeyChanged`, and `VolumeHasName` if the volume of `former` has another name now.
        """
        topic, branch = topic_of(key), branch_of(key)
        deleted_at_ms = latest_ms(self._store, now_ms) if former is None else None

        def as_before(ref: Ref | None) -> Ref | None:
            if not is_same(ref, value):
                raise KeyChanged(key)
            return replace(value, deleted_at_ms=deleted_at_ms) if former is None else former

        return self._give("undo", topic, branch, as_before, now_ms=now_ms, message=message)

    @checked
    def put_back_together(self, changes: Sequence[NameChange], *, now_ms: int, message: str) -> None:
        """Undo of one operation on several names. A name that it never came to change stays.

        Raises `KeyChanged` and `VolumeHasName`.
        """
        planned: list[Planned[Ref]] = []
        for change in changes:
            key, found = Key(change.subject), self._refs.look(Key(change.subject))
            value = None if change.value is None else decode_ref(change.value, key)
            former = None if change.former is None else decode_ref(change.former, key)
            body = None if found.tagged is None else found.tagged.body
            if value is not None and is_same(found.value, value):
                wanted = former or replace(value, deleted_at_ms=now_ms)
                planned.append(Planned(key, found, wanted, body))
            elif body != change.former and (former is None or not is_same(found.value, former)):
                raise KeyChanged(key)
        if not planned:
            raise KeyChanged(Key(changes[0].subject))
        # No name is taken away before the other is given, so a crash leaves two names at worst.
        planned.sort(key=lambda each: each.wanted.deleted_at_ms is not None)
        self._move("undo", planned, now_ms=now_ms, message=message)

    @checked
    def take_back(
        self, topic: str, branch: str, vid: Vid, *, now_ms: int, message: str = "its volume was collected"
    ) -> None:
        """The name leads no more to `vid`: a volume that is dead (E2 of `catalog.refs.volume_deletion`), or has another
        name."""

        def taken_back(ref: Ref | None) -> Ref | None:
            if ref is None or ref.vid != vid or ref.deleted_at_ms is not None:
                return None
            return replace(ref, deleted_at_ms=now_ms)

        self._refs.change("branch delete", ref_key(topic, branch), taken_back, now_ms=now_ms, message=message)

    # ------------------------------------------------------------ inside

    def _name(self, control: Control, message: str, found: Found[Ref]) -> Vid:
        """`found`, if it is alive, is the name of a volume that was collected."""
        topic, branch, parent = control.topic, control.branch, control.parent
        key, now_ms = ref_key(topic, branch), control.created_at_ms

        def named(ref: Ref | None) -> Ref | None:
            if ref is None or ref.deleted_at_ms is not None or ref == found.value:
                return Ref(control.vid, now_ms)
            if ref.vid != control.vid and (branch != MAIN or parent is not None):
                raise BranchExists(topic, branch)
            return ref

        operation = "branch create" if parent else "topic create"
        try:
            ref = self._refs.change(operation, key, named, now_ms=now_ms, message=message, found=found)
        except OutcomeUnknown as unknown:
            if parent is None or unknown.key != key:
                raise
            raise OutcomeUnknown(unknown.key, unknown.cause, _unknown_fork(control)) from unknown
        assert ref is not None  # noqa: S101 - `named` makes one
        try:
            if keep_open(self._store, ref.vid):
                return ref.vid
            self.take_back(topic, branch, ref.vid, now_ms=now_ms)
        except (Unavailable, NoSuchBucket, KeyChanged) as trouble:
            raise OutcomeUnknown(key, str(trouble), _unknown_fork(control)) from trouble
        raise VolumeCollected(topic, branch, ref.vid)

    def _give(
        self,
        operation: str,
        topic: str,
        branch: str,
        make: Callable[[Ref | None], Ref | None],
        *,
        now_ms: int,
        message: str = "",
    ) -> Ref:
        """Change a name, which may lead to a volume that had none (B3), or that has another (B7)."""
        key = ref_key(topic, branch)
        found = self._refs.look(key)
        wanted = make(found.value)
        if wanted is not None and wanted.deleted_at_ms is None:
            check_only_name(self._store, self._looks, key, wanted.vid)
        ref = self._refs.change(operation, key, make, now_ms=now_ms, message=message, found=found)
        if ref is None:
            raise NoSuchBranch(topic, branch)
        if ref.deleted_at_ms is None:
            self._check_given(key, ref.vid, now_ms=now_ms)
        return ref

    def _move(self, operation: str, planned: Sequence[Planned[Ref]], *, now_ms: int, message: str) -> None:
        """Give and take names, together (B3, B7)."""
        taken = {change.key for change in planned if change.wanted.deleted_at_ms is not None}

        def made(change: Planned[Ref]) -> None:
            if change.key not in taken:
                self._check_given(change.key, change.wanted.vid, now_ms=now_ms, taken=taken)

        self._refs.change_together(operation, planned, made, now_ms=now_ms, message=message)

    def _check_given(self, key: Key, vid: Vid, *, now_ms: int, taken: Collection[Key] = ()) -> None:
        """After `vid` got a name: take that back if the volume is dead, or has a name besides it and those `taken`."""
        topic, branch = topic_of(key), branch_of(key)
        if not keep_open(self._store, vid):
            self.take_back(topic, branch, vid, now_ms=now_ms)
            raise OutOfWindow(f"{topic}@{branch}", "nothing of its volume, which was collected")
        try:
            check_only_name(self._store, self._looks, key, vid, taken)
        except VolumeHasName as other:
            message = f"its volume has the name {other.name}"
            self.take_back(topic, branch, vid, now_ms=latest_ms(self._store, now_ms), message=message)
            raise

    def _looks(self, keys: Sequence[Key]) -> list[Found[Ref]]:
        return self._each(keys, self._refs.look)

    def _unknown(self, topic: str, branch: str) -> Missing:
        if first_known(self._store, refs_prefix(topic), named_by):
            return NoSuchBranch(topic, branch)
        return NoSuchTopic(topic, self._store.url)

    def _existing(self, topic: str, branch: str) -> Branch:
        found = self._branch(topic, branch)
        if found is None:
            raise NoSuchBranch(topic, branch)
        return found

    def _branch(self, topic: str, branch: str) -> Branch | None:
        ref = self._refs.look(ref_key(topic, branch)).value
        if ref is None:
            return None
        try:
            control = self._volumes.control(ref.vid)
        except NoSuchObject:
            if ref.deleted_at_ms is None and self._volumes.boundary(ref.vid) != DEAD:
                raise
            return None  # deleted, and collected
        return Branch(topic, branch, ref.vid, control.parent, control.created_at_ms, ref.deleted_at_ms)

    def _distance(self, branch: Branch) -> Distance:
        ahead = self._volumes.newest_lsn(branch.vid)
        parent = branch.parent
        newest = 0 if parent is None else self._volumes.newest_lsn(parent.vid)
        return Distance(ahead, 0 if parent is None else max(0, newest - parent.lsn))  # it may be gone

    def _each(self, items: Sequence[_T], ask: Callable[[_T], _R]) -> list[_R]:
        if len(items) < 2:
            return [ask(item) for item in items]
        with ThreadPoolExecutor(min(_CONCURRENT_GETS, len(items)), "catalog-get") as pool:
            return list(pool.map(ask, items))


def _unknown_fork(control: Control) -> str:
    return (
        f"if `seglog branch list {control.topic}` shows {control.branch} with volume {control.vid}, it was made; "
        "if it does not show it, run the same command again"
    )
