"""Conversion between the list of a volume's checkpoints and its object. All integers little-endian.

    offset  size        field
    0       8           beginning of an envelope (`catalog.format.envelope`), type 3
    8       16          vid
    24      8           n, the number of marks
    32      8           floor: below it, only the run of GC that drew the nonce adds marks
    40      16          nonce, drawn each time that GC removes marks (VCKPT-3)
    56      40 * 24     the newest marks, newest first, and zeros after the last one; each
                          8 lsn, from 1 · 8 max_ts: the latest at_ts of any commit up to that one, ms
                          · 8 max_seq: the highest seq that the topic ever had up to that commit
    1016    8           xxh3 of that envelope
    1024    (n-40)*24   in an envelope of type 24, if n > 40: the other marks, in the same order

CKSET-1  The first 1,024 bytes are whole in themselves. A reader that opens a volume reads no more, however long its
    history is. A reader that asks for a state or a time before the marks in there reads the whole object.
CKSET-2  LSNs descend, without duplicates.

Source: Graft RFC 0001 (CheckpointSet); the layout is ours. No I/O: bytes in, bytes out.
"""

from __future__ import annotations

import operator
import struct
from dataclasses import replace
from itertools import islice, starmap

from catalog.errors import InvalidObject
from catalog.format.control import CheckpointSet, Mark
from catalog.format.envelope import MessageType, unwrap, wrap
from catalog.format.ids import Vid
from catalog.format.keys import checkpoints_key

__all__ = [
    "NEWEST_BYTES",
    "decode_checkpoint_set",
    "decode_down_to",
    "decode_newest_checkpoints",
    "encode_checkpoint_set",
]

NEWEST_BYTES = 1024
_HEAD = struct.Struct("<16sQQ16s")
_MARK = struct.Struct("<QQQ")
_NEWEST_MARKS = 40
_NEWEST = struct.Struct(f"<{_HEAD.size + _NEWEST_MARKS * _MARK.size}s")


def encode_checkpoint_set(checkpoints: CheckpointSet) -> bytes:
    """Return the object of `checkpoints`. Raise `ValueError` if the set lacks its older marks."""
    if checkpoints.older:
        raise ValueError(f"{checkpoints.older} marks are missing")
    marks = starmap(_MARK.pack, reversed(checkpoints.marks))
    head = _HEAD.pack(checkpoints.vid.raw, len(checkpoints.marks), checkpoints.floor, checkpoints.nonce)
    newest = head + b"".join(islice(marks, _NEWEST_MARKS))
    older = b"".join(marks)
    body = wrap(MessageType.CHECKPOINT_SET, _NEWEST.pack(newest))
    return body + wrap(MessageType.OLDER_CHECKPOINTS, older) if older else body


def decode_newest_checkpoints(body: bytes, vid: Vid) -> CheckpointSet:
    """Return the set with the newest marks, from the object's first `NEWEST_BYTES`.

    Raise `FormatUnsupported` and `InvalidObject`, the latter also for another volume's list.
    """
    place = checkpoints_key(vid)
    data = unwrap(MessageType.CHECKPOINT_SET, body, place)
    if len(data) != _NEWEST.size:
        raise InvalidObject(place, f"its first part has {len(body)} bytes, not {NEWEST_BYTES}")
    raw_vid, count, floor, nonce = _HEAD.unpack_from(data)
    if raw_vid != vid.raw:
        raise InvalidObject(place, "it belongs to another volume")
    here = min(count, _NEWEST_MARKS)
    end = _HEAD.size + here * _MARK.size
    if any(data[end:]):
        raise InvalidObject(place, f"{count} marks are followed by other bytes than zeros")
    return CheckpointSet(vid, _marks(data[_HEAD.size : end], place), count - here, floor, nonce)


def decode_checkpoint_set(body: bytes, vid: Vid) -> CheckpointSet:
    """Return the set with all marks, from the whole object. Raise as `decode_newest_checkpoints` does."""
    place = checkpoints_key(vid)
    newest = decode_newest_checkpoints(body[:NEWEST_BYTES], vid)
    rest = body[NEWEST_BYTES:]
    older = unwrap(MessageType.OLDER_CHECKPOINTS, rest, place) if rest or newest.older else b""
    if len(older) != newest.older * _MARK.size:
        raise InvalidObject(place, f"{len(older)} bytes where {newest.older} marks belong")
    marks = _marks(older, place) + newest.marks
    _check_order(marks[newest.older - 1 : newest.older + 1] if newest.older else (), place)
    return replace(newest, marks=marks, older=0)


def decode_down_to(lsn: int, body: bytes, vid: Vid) -> CheckpointSet:
    """Return as many marks as it takes to find the newest one at or below `lsn`.

    `body` may be the object's beginning only. Then the result may lack that mark.
    """
    newest = decode_newest_checkpoints(body[:NEWEST_BYTES], vid)
    is_enough = not newest.older or newest.at_or_below(lsn) is not None
    return newest if is_enough or len(body) == NEWEST_BYTES else decode_checkpoint_set(body, vid)


def _marks(raw: bytes, place: str) -> tuple[Mark, ...]:
    """Return the marks in `raw`, ascending. Raise `InvalidObject` if they are not in order."""
    marks = tuple(map(Mark._make, _MARK.iter_unpack(raw)))[::-1]
    if marks and marks[0].lsn == 0:
        raise InvalidObject(place, "its LSNs do not ascend from 1")
    _check_order(marks, place)
    return marks


def _check_order(marks: tuple[Mark, ...], place: str) -> None:
    lsns = [mark.lsn for mark in marks]
    if not all(map(operator.lt, lsns, lsns[1:])):
        raise InvalidObject(place, "its LSNs do not ascend from 1")
