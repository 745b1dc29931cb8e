"""Undo: take back a change of a name. The former value in the oplog becomes the value again.

Undo changes names only. It brings back no collected state and changes no data. A deleted tag comes back if its point is
still kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from catalog.errors import KeyChanged, NoSuchObject, NotUndone, OutOfWindow, VolumeHasName
from catalog.format.control import DEAD, MAIN, NameChange, OplogEntry
from catalog.format.ids import Vid
from catalog.format.keys import Key, branch_of, named_by, topic_of
from catalog.format.small_objects import decode_ref, decode_tag
from catalog.refs.branch import Branches
from catalog.refs.kept_points import check_kept
from catalog.refs.oplog import NumberedEntry, Oplog
from catalog.refs.ref_store import is_same
from catalog.refs.state_names import Tags
from catalog.volume import Volumes
from seglog.base.lazy import pattern

_OF_OPERATION = pattern(r"of operation ([0-9]+)")


def undo(volumes: Volumes, number: int | None = None, *, writer_id: str = "", now_ms: int) -> NumberedEntry:
    """Take back operation `number` of the oplog, and return it.

    None: take back the newest operation that is made and not taken back. So each such call goes one step further back.

    Raises `NotUndone` if the subject is no name, or has changed since. Raises `Missing` if no entry has
    the number.
    """
    return undo_found(volumes, find_operation(volumes, number), writer_id=writer_id, now_ms=now_ms)


def find_operation(volumes: Volumes, number: int | None = None) -> NumberedEntry:
    """Return the operation that `undo` takes back for `number`. Changes nothing. Raises as `undo` does."""
    oplog = Oplog(volumes.store)
    if number is not None:
        return NumberedEntry(number, oplog.entry(number))
    while True:
        first, operation = _newest(volumes, oplog)
        # An entry comes before its change. If another client has put one since, its names are no longer those that the
        # entries before it left, and an older operation would be taken back.
        if oplog.newest() == first:
            break
    if operation is None:
        raise NotUndone(None, "no change of a name is left")
    return operation


def _newest(volumes: Volumes, oplog: Oplog) -> tuple[int, NumberedEntry | None]:
    """Return the number of the newest entry, and the newest operation that is made and not taken back.

    The second counts as long as no other client puts an entry.
    """
    first = 0
    bodies: dict[str, bytes | None] = {}
    taken_back: set[int] = set()
    for operation in oplog.entries():
        first = first or operation.number
        if not _is_of_a_name(operation.entry):
            continue
        for change in operation.entry.changes:
            if change.subject not in bodies:
                bodies[change.subject] = _body(volumes, change.subject)
        if _is_last(operation, bodies, taken_back):
            return first, operation
    return first, None


def undo_found(volumes: Volumes, operation: NumberedEntry, *, writer_id: str, now_ms: int) -> NumberedEntry:
    """Undo an operation that `find_operation` returned, and return it. Raises as `undo` does."""
    with _refusals(operation):
        _put_back(volumes, operation.entry, operation.number, writer_id, now_ms)
    return operation


def check_undo(volumes: Volumes, operation: NumberedEntry) -> None:
    """Raise `NotUndone` if `undo_found` would refuse the operation now. Changes nothing."""
    with _refusals(operation):
        entry = operation.entry
        going = [_may_go(volumes, change, is_alone=not entry.others) for change in entry.changes]
        if not any(going):
            raise KeyChanged(Key(entry.subject))


def _may_go(volumes: Volumes, change: NameChange, *, is_alone: bool) -> bool:
    """Return whether the name has the value of the change. Raises `OutOfWindow` and `VolumeHasName`."""
    key, body = Key(change.subject), _body(volumes, change.subject)
    if body is None or change.value is None:
        return False
    if not change.subject.startswith("refs/"):
        tag = None if change.former is None else decode_tag(change.former, key)
        if not is_same(decode_tag(body, key), decode_tag(change.value, key)):
            return False
        if tag is not None and tag.deleted_at_ms is None:
            check_kept(volumes, tag.point)
        return True
    ref = None if change.former is None else decode_ref(change.former, key)
    if not is_same(decode_ref(body, key), decode_ref(change.value, key)):
        return False
    if ref is not None and ref.deleted_at_ms is None:
        topic, branch = topic_of(key), branch_of(key)
        names = [other.branch for other in Branches(volumes, "").branches(topic) if other.vid == ref.vid]
        if is_alone and names and branch not in names:
            raise VolumeHasName(topic, branch, names[0])
        if volumes.boundary(ref.vid) == DEAD:
            raise OutOfWindow(f"{topic}@{branch}", "nothing of its volume, which was collected")
    return True


@contextmanager
def _refusals(operation: NumberedEntry) -> Iterator[None]:
    """Check what the entry itself tells. In the block, a refusal of the names becomes `NotUndone`."""
    entry, number = operation.entry, operation.number
    if not _is_of_a_name(entry):
        raise NotUndone(number, f"{entry.operation} changes no name")
    if entry.value is None:
        raise NotUndone(number, "it removed nothing")
    if entry.operation == "topic create":
        raise NotUndone(number, "a topic's own history stays")
    if entry.operation == "branch rename" and not entry.others:
        raise NotUndone(number, "it is one half of a rename, as older versions wrote it: rename the branch back")
    try:
        yield
    except KeyChanged:
        raise NotUndone(number, f"{entry.subject} has changed since, or never had that value") from None
    except (OutOfWindow, VolumeHasName) as refused:
        raise NotUndone(number, str(refused)) from refused


def names_taken_away(entry: OplogEntry) -> list[tuple[str, str, Vid, bool]]:
    """Return topic, branch and volume of each name that an undo takes away, and whether the volume gets another name.

    No main is one of them.
    """
    lost: dict[Vid, tuple[str, str]] = {}
    named_again: set[Vid] = set()
    for change in entry.changes:
        name = named_by(change.subject)
        if name is None or not change.subject.startswith("refs/"):
            continue
        value, former = (
            None if body is None else decode_ref(body, change.subject) for body in (change.value, change.former)
        )
        if former is not None and former.deleted_at_ms is None:
            named_again.add(former.vid)
        if value is not None and value.deleted_at_ms is None:
            lost[value.vid] = name
    return [(*name, vid, vid in named_again) for vid, name in lost.items() if name[1] != MAIN]


def _is_of_a_name(entry: OplogEntry) -> bool:
    """Return whether every change is of a branch or a tag. An undo writes to no other key."""
    return all(named_by(change.subject) is not None for change in entry.changes)


def _is_last(operation: NumberedEntry, bodies: dict[str, bytes | None], taken_back: set[int]) -> bool:
    """Return True if this operation is the last one on its names that was made and not taken back.

    The caller passes the entries newest first. `bodies` are the names after this operation; on return, before it.
    After a crash, some changes of an operation on several names may be missing. An undo counts only if all its changes
    were made.
    """
    entry = operation.entry
    done = [change for change in entry.changes if change.value is not None and change.value == bodies[change.subject]]
    for change in done:
        bodies[change.subject] = change.former
    if not done or operation.number in taken_back:
        return False
    if entry.operation == "undo":
        number = _OF_OPERATION.match(entry.message)
        if number is not None and len(done) == len(entry.changes):
            taken_back.add(int(number[1]))
        return False
    return entry.operation != "topic create"


def _body(volumes: Volumes, subject: str) -> bytes | None:
    try:
        return volumes.store.get(Key(subject))
    except NoSuchObject:
        return None


def _put_back(volumes: Volumes, entry: OplogEntry, number: int, writer_id: str, now_ms: int) -> None:
    key, message = Key(entry.subject), f"of operation {number}"
    assert entry.value is not None  # noqa: S101 - `_refusals` checks it
    if entry.others:
        Branches(volumes, writer_id).put_back_together(entry.changes, now_ms=now_ms, message=message)
    elif entry.subject.startswith("refs/"):
        ref = None if entry.former is None else decode_ref(entry.former, key)
        Branches(volumes, writer_id).put_back(key, ref, decode_ref(entry.value, key), now_ms=now_ms, message=message)
    else:
        tag = None if entry.former is None else decode_tag(entry.former, key)
        Tags(volumes, writer_id).put_back(key, tag, decode_tag(entry.value, key), now_ms=now_ms, message=message)
