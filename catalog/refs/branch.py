"""Branches: the names of volumes, and how a branch is created, renamed, promoted, deleted and brought back.

A topic's own history is its branch `main`. A crash may interrupt the creation of a branch at any step:

    step                                            what a crash after it leaves
    1 put the Control, in the new volume            a volume without a name, for GC
    2 put the Fork, in the parent (if any)          the same; the parent's commits are held for it
    3 check that the fork point is kept (BRANCH-3)  the same
    4 put the OplogEntry                            the same, and an entry without its change
    5 put the Ref, if none or a deleted one is      the branch
      there
    6 check that the volume is open (BRANCH-3)      a name that was not acked

BRANCH-1  If several callers create a name at the same time, one wins. A caller that wants an empty `main` adopts the
    winner's volume. All other callers get `BranchExists`, because their fork points may differ.

BRANCH-2  If the store does not answer the PUT of a fork's ref, `create` raises `OutcomeUnknown`. It names the new
    volume. The caller tells its branch from another's by this volume. A second call makes another volume, and never
    takes an existing branch for its own.

BRANCH-3  No branch has a collected parent or a collected volume. GC raises a boundary, then reads forks and refs again,
    then deletes. A caller writes first, and reads the boundary then. So GC sees the caller's object, or the caller sees
    GC's boundary. A caller reads two boundaries:
      after step 2 the boundary of the parent (catalog.refs.kept_points)
      after step 5 the boundary of the new volume (catalog.refs.kept_points)
    Undelete, rename, promote and undo also read the boundary of the volume, after they put a ref. If `create` finds
    that the name exists, it reads the boundary, too.

BRANCH-4  A deleted branch keeps its ref, with the time of the deletion. Undelete restores it until GC has collected its
    volume. An undo of that gives the ref back as it was, so the window of GC counts from the deletion again. A name
    whose volume was collected counts as deleted, whatever its ref says.

BRANCH-5  A ref is never removed. It changes only by compare-and-swap, with a new nonce each time. The oplog has its
    former values.

BRANCH-6  A rename gives the new name, then takes the old one away, as one operation. If the old name has changed, the
    caller takes the new name back. So if several renames race, one wins. A crash may leave both names on one volume. A
    second rename ends that, and so does undo. Undo gives the old name back first.

BRANCH-7  A volume has one live name. Undelete, rename, promote and undo refuse to give it another one
    (catalog.refs.ref_store).

Source: Graft RFC 0001.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TypeVar

from catalog.errors import (
    BranchExists,
    HistoryCollected,
    KeyChanged,
    Missing,
    NoSuchBranch,
    NoSuchBucket,
    NoSuchObject,
    NoSuchTopic,
    OutcomeUnknown,
    OutOfWindow,
    Unavailable,
    VolumeHasName,
    main_cannot,
)
from catalog.format.commit import ForkPoint
from catalog.format.control import DEAD, MAIN, Control, NameChange, Ref
from catalog.format.ids import Vid
from catalog.format.keys import Key, branch_of, named_by, ref_key, refs_prefix, topic_of
from catalog.format.small_objects import decode_ref, encode_ref
from catalog.objects.object_store import each_of, first_valid_key
from catalog.objects.store_time import latest_ms
from catalog.refs.kept_points import check_kept, keep_open
from catalog.refs.oplog import Oplog
from catalog.refs.promotion import PROMOTE, before_given, earlier_promotion, plan_promotion
from catalog.refs.ref_store import Found, Planned, RefStore, check_only_name, is_same
from catalog.volume import Volumes
from seglog.base.arguments import checked
from seglog.base.dataclasses import dataclass

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Branch:
    """A named volume. `parent` is None if it was not forked, `deleted_at_ms` is None if it is alive."""

    topic: str
    branch: str
    vid: Vid
    parent: ForkPoint | None
    created_at_ms: int
    deleted_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Distance:
    """The number of commits of a branch since its fork point, and of its parent since then."""

    ahead: int
    behind: int


class Branches:
    """The names under one prefix. Safe to use from many threads. Every method may raise `InvalidName`."""

    def __init__(self, volumes: Volumes, writer_id: str = "") -> None:
        self._volumes = volumes
        self._store = volumes.store
        self._oplog = Oplog(volumes.store, writer_id)
        self._refs = RefStore(volumes.store, self._oplog, encode_ref, decode_ref)

    @checked
    def resolve(self, topic: str, branch: str = MAIN) -> Vid:
        """Return the branch's volume. Raises `NoSuchTopic`, or `NoSuchBranch` if the topic has other branches."""
        ref = self._refs.read_current(ref_key(topic, branch)).alive
        if ref is None:
            raise self._unknown(topic, branch)
        return ref.vid

    def names(self) -> list[tuple[str, str]]:
        """Return topic and branch of every name, ascending, deleted ones included. One LIST."""
        return sorted(name for key in self._store.list(refs_prefix()) if (name := named_by(key)))

    @checked
    def branches(self, topic: str, *, deleted: bool = False) -> list[Branch]:
        """Return the branches, ascending by name.

        `deleted` adds the ones that `undelete` can restore. Raises `NoSuchTopic`.
        """
        names = [name_parts[1] for key in self._store.list(refs_prefix(topic)) if (name_parts := named_by(key))]
        if not names:
            raise NoSuchTopic(topic, self._store.url)
        branches = [*each_of(self._store, names, lambda name: self._branch(topic, name))]
        return [branch for branch in branches if branch is not None and (deleted or branch.deleted_at_ms is None)]

    @checked
    def distances(self, branches: Sequence[Branch]) -> list[Distance]:
        """Return for each branch how far it and its parent went since the fork. Two LISTs for each."""
        return [*each_of(self._store, branches, self._distance)]

    @checked
    def create(
        self, topic: str, branch: str = MAIN, parent: ForkPoint | None = None, *, now_ms: int, message: str = ""
    ) -> Vid:
        """Make the branch, empty or at `parent`, and return its volume.

        If `main` exists and `parent` is None, return the existing volume.

        Raises `BranchExists` and `OutcomeUnknown`. Raises `NoSuchObject` if the fork point's commit is not there, and
        `OutOfWindow` if its state is not kept any more. Raises `HistoryCollected` if the call took longer than GC's
        grace.
        """
        current = self._refs.read_current(ref_key(topic, branch))
        if current.alive is not None and keep_open(self._store, current.alive.vid):
            if branch != MAIN or parent is not None:
                raise BranchExists(topic, branch)
            return current.alive.vid
        control = Control(Vid.new(now_ms), parent, now_ms, topic, branch)
        self._volumes.create(control)
        if parent is not None:
            check_kept(self._volumes, parent)
        return self._name(control, message, current)

    @checked
    def give(self, control: Control, *, message: str = "") -> None:
        """Give a volume that its maker has filled the name in its `control`. It has no parent.

        Raises `BranchExists`, and `HistoryCollected` if its making took longer than GC's grace.
        """
        current = self._refs.read_current(ref_key(control.topic, control.branch))
        if self._name(control, message, current) != control.vid:
            raise BranchExists(control.topic, control.branch)

    @checked
    def check_free(self, topic: str, branch: str) -> None:
        """Raise `BranchExists` if there is such a branch. `create` looks again: another caller may be faster."""
        current = self._refs.read_current(ref_key(topic, branch))
        if current.alive is not None and keep_open(self._store, current.alive.vid):
            raise BranchExists(topic, branch)

    @checked
    def check_open(self, topic: str, branch: str, vid: Vid, *, now_ms: int) -> None:
        """Keep `vid` open. Call this before writing to a volume found by name.

        The writer of the name may have stopped before it checked that the volume is open. Raises `NoSuchBranch` if the
        volume was collected.
        """
        if not keep_open(self._store, vid):
            self.take_back(topic, branch, vid, now_ms=now_ms)
            raise NoSuchBranch(topic, branch)

    @checked
    def delete(self, topic: str, branch: str, *, now_ms: int, message: str = "") -> Branch:
        """Delete the branch. `undelete` restores it until GC has collected its volume.

        Raises `NoSuchBranch`, `NoSuchTopic`, and `Misuse` for `main`, which is the topic itself.
        """
        if branch == MAIN:
            raise main_cannot(topic, "be deleted")
        key = ref_key(topic, branch)
        current = self._refs.read_current(key)
        if current.alive is None:
            raise self._unknown(topic, branch)
        # Read the control first: after the change GC may delete the volume at any time.
        control = self._volumes.control(current.alive.vid)
        deleted_at_ms = latest_ms(self._store, now_ms)

        def deleted(ref: Ref | None) -> Ref | None:
            if ref is None:
                raise NoSuchBranch(topic, branch)
            return ref if ref.deleted_at_ms is not None else replace(ref, deleted_at_ms=deleted_at_ms)

        ref = self._refs.change("branch delete", key, deleted, now_ms=now_ms, message=message, current=current)
        assert ref is not None  # noqa: S101 - `deleted` leaves one
        return Branch(topic, branch, ref.vid, control.parent, control.created_at_ms, ref.deleted_at_ms)

    @checked
    def undelete(self, topic: str, branch: str, *, now_ms: int) -> Branch:
        """Restore a deleted branch.

        Raises `NoSuchBranch`. Raises `VolumeHasName` if the branch was renamed meanwhile, and `OutOfWindow` if GC has
        collected its volume.
        """

        def alive(ref: Ref | None) -> Ref | None:
            if ref is None:
                raise NoSuchBranch(topic, branch)
            return replace(ref, deleted_at_ms=None)

        self._give("branch undelete", topic, branch, alive, now_ms=now_ms)
        return self._existing(topic, branch)

    @checked
    def rename(self, topic: str, branch: str, new: str, *, now_ms: int) -> Branch:
        """Give the volume the name `new` in place of `branch`.

        A crash may leave both names. A second call removes the old one. A rename is one operation of the oplog, and one
        undo. If several changes of the old name race, one wins.

        Raises `NoSuchBranch`, `NoSuchTopic`, `BranchExists`, and `Misuse` for `main`. Raises `KeyChanged` and
        `VolumeHasName` for a lost race. Raises `OutOfWindow` if the branch was deleted meanwhile and GC has collected
        its volume.
        """
        if MAIN in {branch, new}:
            raise main_cannot(topic, "be renamed" if branch == MAIN else "be the new name of a branch")
        old_key, new_key = ref_key(topic, branch), ref_key(topic, new)
        old, target = self._refs.read_current(old_key), self._refs.read_current(new_key)
        if old.alive is None:
            raise self._unknown(topic, branch)
        if branch == new:
            return self._existing(topic, branch)
        if target.alive is not None and target.alive.vid != old.alive.vid:
            raise BranchExists(topic, new)
        # If another rename gave this name, or a crash left it, a lost race of this one must not delete it.
        is_there, before = target.alive is not None, before_given(target, now_ms)
        new_ref = Planned(new_key, target, Ref(old.alive.vid, now_ms), before, is_moved=is_there)
        old_ref = Planned(old_key, old, replace(old.alive, deleted_at_ms=now_ms), old.body)
        self._move("branch rename", [new_ref, old_ref], now_ms=now_ms, message=f"was {branch}")
        return self._existing(topic, new)

    @checked
    def promote(
        self, topic: str, branch: str, keep: str, vids: tuple[Vid, Vid], *, now_ms: int, message: str = ""
    ) -> Branch:
        """Make the branch main, and give the former main the name `keep`. Return the former main.

        `vids` are the volumes of main and of the branch that the caller has looked at (PROMOTE-5). A crash may leave
        some of the changes. A second call makes the others (catalog.refs.promotion). If several promotions race, at
        most one wins.

        Raises `NoSuchBranch`, `NoSuchTopic`, `BranchExists` for `keep`, and `Misuse` for `main`. Raises
        `KeyChanged` if a name leads to another volume than `vids` say. Raises it and `VolumeHasName` for a lost race.
        Raises `OutOfWindow` if GC has collected the branch.
        """
        if MAIN in {branch, keep}:
            raise main_cannot(topic, "be promoted" if branch == MAIN else "be the name of the former main")
        if branch == keep:
            raise BranchExists(topic, keep)
        main_key, branch_key = ref_key(topic, MAIN), ref_key(topic, branch)
        main, source, keep_ref = self._looks([main_key, branch_key, ref_key(topic, keep)])
        if main.alive is None or source.alive is None:
            raise self._unknown(topic, branch if source.alive is None else MAIN)
        for key, ref, vid in zip((main_key, branch_key), (main.alive, source.alive), vids, strict=True):
            if ref.vid != vid:
                raise KeyChanged(key)
        former, now_ms = main.alive, latest_ms(self._store, now_ms)
        if former.vid == source.alive.vid:  # an earlier promotion ended before its last step
            entries = self._oplog.entries()
            keep_key, former = earlier_promotion(entries, (main_key, main), branch_key)
            keep, keep_ref = branch_of(keep_key), self._refs.read_current(keep_key)
        if keep_ref.alive is not None and keep_ref.alive.vid != former.vid:
            raise BranchExists(topic, keep)
        planned = plan_promotion(
            (ref_key(topic, keep), keep_ref), (main_key, main), (branch_key, source), former, now_ms
        )
        summary = f"was {branch}, and the former main is {keep}"
        self._move(PROMOTE, planned, now_ms=now_ms, message=f"{summary}: {message}" if message else summary)
        return self._existing(topic, keep)

    @checked
    def put_back(self, key: Key, former: Ref | None, value: Ref, *, now_ms: int, message: str) -> Ref:
        """Undo: replace `value` by `former`. If `former` is None, delete the name.

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
        """Undo one operation on several names. A name that the operation did not change before a crash stays as it is.

        Raises `KeyChanged` and `VolumeHasName`.
        """
        planned: list[Planned[Ref]] = []
        unchanged: list[Planned[Ref]] = []
        for change in changes:
            key, current = Key(change.subject), self._refs.read_current(Key(change.subject))
            value = None if change.value is None else decode_ref(change.value, key)
            former = None if change.former is None else decode_ref(change.former, key)
            if value is not None and is_same(current.value, value):
                ref = former or replace(value, deleted_at_ms=now_ms)
                is_moved = current.alive is not None and ref.deleted_at_ms is None
                planned.append(Planned(key, current, ref, current.body, is_moved=is_moved))
            elif current.body != change.former and (former is None or not is_same(current.value, former)):
                raise KeyChanged(key)
            elif current.alive is not None:  # a new nonce: an operation that still runs does not take this name away
                unchanged.append(Planned(key, current, current.alive, current.body, is_moved=True))
        if not planned:
            raise KeyChanged(Key(changes[0].subject))
        # Give names before taking names away, so that a crash leaves two names at worst (PROMOTE-2).
        planned.sort(key=lambda plan: (plan.wanted.deleted_at_ms is not None, plan.is_moved))
        if any(plan.is_moved for plan in planned):
            planned = [replace(plan, is_optional=plan.wanted.deleted_at_ms is not None) for plan in planned]
        keys = [Key(change.subject) for change in changes]
        self._move("undo", [*unchanged, *planned], now_ms=now_ms, message=message, keys=keys)

    @checked
    def take_back(
        self, topic: str, branch: str, vid: Vid, *, now_ms: int, message: str = "its volume was collected"
    ) -> None:
        """Delete the name if it leads to `vid`, which is a dead volume (VDEL-2), or one with another name.

        In the oplog this undoes the operation that gave the name. So a later `undo` passes over both.
        """
        key = ref_key(topic, branch)
        current = self._refs.read_current(key)

        def taken_back(ref: Ref | None) -> Ref | None:
            if ref is None or ref.vid != vid or ref.deleted_at_ms is not None:
                return None
            return replace(ref, deleted_at_ms=now_ms)

        if taken_back(current.value) is None:
            return
        numbers = (row.number for row in self._oplog.entries() if row.entry.value_of(key) == current.body)
        number = next(numbers, None)
        message = message if number is None else f"of operation {number}: {message}"
        self._refs.change("undo", key, taken_back, now_ms=now_ms, message=message, current=current)

    # ------------------------------------------------------------ inside

    def _name(self, control: Control, message: str, current: Found[Ref]) -> Vid:
        """Put the ref of a new volume (steps 4 to 6). If `current` is alive, it is the name of a collected volume."""
        topic, branch, parent = control.topic, control.branch, control.parent
        key, now_ms = ref_key(topic, branch), control.created_at_ms

        def named(ref: Ref | None) -> Ref | None:
            if ref is None or ref.deleted_at_ms is not None or ref == current.value:
                return Ref(control.vid, now_ms)
            if ref.vid != control.vid and (branch != MAIN or parent is not None):
                raise BranchExists(topic, branch)
            return ref

        operation = "branch create" if parent else "topic create"
        try:
            ref = self._refs.change(operation, key, named, now_ms=now_ms, message=message, current=current)
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
        told = f"{topic}@{branch} was not created: GC deleted its volume {ref.vid} before the volume had a name"
        facts = {"vid": ref.vid, "lsn": 0, "boundary": DEAD, "topic": topic, "branch": branch}
        raise HistoryCollected.told(told, "run the same command again: it creates another volume", facts)

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
        """Change a name. The volume of the new value may have no name (BRANCH-3) or another name (BRANCH-7)."""
        key = ref_key(topic, branch)
        current = self._refs.read_current(key)
        new_ref = make(current.value)
        if new_ref is not None and new_ref.deleted_at_ms is None:
            check_only_name(self._store, self._looks, key, new_ref.vid)
        ref = self._refs.change(operation, key, make, now_ms=now_ms, message=message, current=current)
        if ref is None:
            raise NoSuchBranch(topic, branch)
        if ref.deleted_at_ms is None:
            self._check_given(key, ref.vid, now_ms=now_ms)
        return ref

    def _move(
        self, operation: str, planned: Sequence[Planned[Ref]], *, now_ms: int, message: str, keys: Sequence[Key] = ()
    ) -> None:
        """Give names and take names away, as one operation (BRANCH-3, BRANCH-7).

        `keys` are the names of the operation, if some have their wanted values already.
        """
        keys = keys or [plan.key for plan in planned]

        def check(change: Planned[Ref]) -> None:
            vid = change.wanted.vid
            if change.wanted.deleted_at_ms is None:
                free = {plan.key for plan in planned if plan.wanted.deleted_at_ms is not None or plan.wanted.vid != vid}
                self._check_given(change.key, vid, now_ms=now_ms, freed=free, is_moved=change.is_moved)
            if change.is_moved:
                self._check_still_named(change, keys)

        self._refs.change_together(operation, planned, check, now_ms=now_ms, message=message)

    def _check_given(
        self, key: Key, vid: Vid, *, now_ms: int, freed: Collection[Key] = (), is_moved: bool = False
    ) -> None:
        """Check a new name of `vid`, and take the name back if the check fails. The caller takes a moved name back.

        Raises `OutOfWindow` if the volume is dead. Raises `VolumeHasName` if it has another name that is not one of
        `freed`.
        """
        topic, branch = topic_of(key), branch_of(key)
        if not keep_open(self._store, vid):
            if not is_moved:
                self.take_back(topic, branch, vid, now_ms=now_ms)
            raise OutOfWindow(f"{topic}@{branch}", "nothing of its volume, which was collected")
        try:
            check_only_name(self._store, self._looks, key, vid, freed)
        except VolumeHasName as conflict:
            if not is_moved:
                message = f"its volume has the name {conflict.name}"
                self.take_back(topic, branch, vid, now_ms=latest_ms(self._store, now_ms), message=message)
            raise

    def _check_still_named(self, moved: Planned[Ref], keys: Sequence[Key]) -> None:
        """Raise `KeyChanged` if the volume that a name has left lost its other name meanwhile (PROMOTE-2).

        That name is one of `keys`.
        """
        former = moved.found.alive
        if former is None or former.vid == moved.wanted.vid:
            return
        if not any(current.alive is not None and current.alive.vid == former.vid for current in self._looks(keys)):
            raise KeyChanged(moved.key)

    def _looks(self, keys: Sequence[Key]) -> list[Found[Ref]]:
        return [*each_of(self._store, keys, self._refs.read_current)]

    def _unknown(self, topic: str, branch: str) -> Missing:
        if first_valid_key(self._store, refs_prefix(topic), named_by):
            return NoSuchBranch(topic, branch)
        return NoSuchTopic(topic, self._store.url)

    def _existing(self, topic: str, branch: str) -> Branch:
        existing = self._branch(topic, branch)
        if existing is None:
            raise NoSuchBranch(topic, branch)
        return existing

    def _branch(self, topic: str, branch: str) -> Branch | None:
        ref = self._refs.read_current(ref_key(topic, branch)).value
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
        return Distance(ahead, 0 if parent is None else max(0, newest - parent.lsn))  # the parent may be gone


def _unknown_fork(control: Control) -> str:
    return (
        f"if `seglog branch list {control.topic}` shows {control.branch} with volume {control.vid}, it was made; "
        "if it does not show it, run the same command again"
    )
