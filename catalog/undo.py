"""Taking back a change of a name: what the oplog has as the former state becomes the state again.

Only names: what was collected does not come back, and data is never changed by this. A tag that was deleted comes back
if its point is still kept.
"""

from __future__ import annotations

from catalog.branch import Branches
from catalog.control import OplogEntry
from catalog.errors import KeyChanged, NotUndone, OutOfWindow
from catalog.keys import Key
from catalog.oplog import NumberedEntry, Oplog
from catalog.small_objects import decode_ref, decode_tag
from catalog.tag import Tags
from catalog.volume import Volumes

__all__ = ["undo"]


def undo(volumes: Volumes, number: int | None = None, *, writer_id: str = "", now_ms: int) -> NumberedEntry:
    """Take back operation `number` of the oplog; None: the newest one that can be. Returns it.

    Raises `NotUndone` if its subject is no name, or has changed since, and `NoSuchObject` for a number there is not.
    """
    oplog = Oplog(volumes.store, writer_id)
    if number is None:
        names = (each for each in oplog.entries() if _is_of_a_name(each.entry) and each.entry.operation != "undo")
        found = next(names, None)
        if found is None:
            raise NotUndone(0, "no name was ever changed")
    else:
        found = NumberedEntry(number, oplog.entry(number))
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
    return entry.subject.startswith(("refs/", "tags/"))


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
