"""Taking back a change of a name: what the oplog has as the former state becomes the state again.

Only names: what was collected does not come back, and data is never changed by this. A tag that was deleted comes back
if its point is still kept.
"""

from __future__ import annotations

from catalog.branch import Branches
from catalog.control import OplogEntry
from catalog.errors import KeyChanged, NoSuchObject, NotUndone, OutOfWindow
from catalog.keys import Key, named_by
from catalog.oplog import NumberedEntry, Oplog
from catalog.small_objects import decode_ref, decode_tag
from catalog.tag import Tags
from catalog.volume import Volumes

__all__ = ["undo"]


def undo(volumes: Volumes, number: int | None = None, *, writer_id: str = "", now_ms: int) -> NumberedEntry:
    """Take back operation `number` of the oplog; None: the newest that was made and not taken back. Returns it.

    So without a number each call goes one step further back.

    Raises `NotUndone` if its subject is no name, or has changed since, and `NoSuchObject` for a number there is not.
    """
    oplog = Oplog(volumes.store, writer_id)
    if number is not None:
        return _undone(volumes, NumberedEntry(number, oplog.entry(number)), writer_id, now_ms)
    pasts: dict[str, _Past] = {}
    for found in oplog.entries():
        subject = found.entry.subject
        if not _is_of_a_name(found.entry):
            continue
        if subject not in pasts:
            pasts[subject] = _Past(_body(volumes, subject))
        if pasts[subject].is_last(found.entry):
            return _undone(volumes, found, writer_id, now_ms)
    raise NotUndone(0, "no change of a name is left to take back")


def _undone(volumes: Volumes, found: NumberedEntry, writer_id: str, now_ms: int) -> NumberedEntry:
    entry = found.entry
    if not _is_of_a_name(entry):
        raise NotUndone(found.number, f"{entry.operation} changes no name")
    try:
        _put_back(volumes, entry, found.number, writer_id, now_ms)
    except KeyChanged:
        raise NotUndone(found.number, f"{entry.subject} has changed since, or never was that") from None
    except OutOfWindow as gone:
        raise NotUndone(found.number, str(gone)) from gone
    return found


def _is_of_a_name(entry: OplogEntry) -> bool:
    return named_by(entry.subject) is not None


class _Past:
    """What one name was, from now on backwards. `is_last` is asked of its entries, newest first."""

    def __init__(self, body: bytes | None) -> None:
        self._body = body
        self._taken_back = 0

    def is_last(self, entry: OplogEntry) -> bool:
        """Whether this is the last change of the name that was neither taken back nor never made."""
        if entry.value is None or entry.value != self._body:
            return False
        self._body = entry.former
        if entry.operation == "undo":
            self._taken_back += 1
            return False
        if self._taken_back:
            self._taken_back -= 1
            return False
        return entry.operation != "topic create"


def _body(volumes: Volumes, subject: str) -> bytes | None:
    try:
        return volumes.store.get(Key(subject))
    except NoSuchObject:
        return None


def _put_back(volumes: Volumes, entry: OplogEntry, number: int, writer_id: str, now_ms: int) -> None:
    key = Key(entry.subject)
    message = f"of operation {number}"
    if entry.value is None:
        raise NotUndone(number, "it removed nothing")
    if entry.operation == "topic create":
        raise NotUndone(number, "a topic's own history stays")
    if entry.subject.startswith("refs/"):
        ref = None if entry.former is None else decode_ref(entry.former, key)
        Branches(volumes, writer_id).put_back(key, ref, decode_ref(entry.value, key), now_ms=now_ms, message=message)
    else:
        tag = None if entry.former is None else decode_tag(entry.former, key)
        Tags(volumes, writer_id).put_back(key, tag, decode_tag(entry.value, key), now_ms=now_ms, message=message)
