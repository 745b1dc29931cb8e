"""Conversion of the small objects beside the commits: protobuf (catalog/schema.proto) in the envelope.

Every decoder raises `InvalidObject` and `FormatUnsupported`, which name the `key`.
Source: Graft RFC 0001 (Control, Fork); the others are ours. No I/O: bytes in, bytes out.

**The list of a volume's checkpoints** has an object of its own kind. All integers little-endian.

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
from catalog.format.control import Boundary, CheckpointSet, Control, Fork, Mark, NameChange, OplogEntry, Pin, Ref, Tag
from catalog.format.envelope import (
    MessageType,
    fields_of,
    fork_point,
    fork_point_message,
    parse,
    serialized,
    timestamp,
    unwrap,
    wrap,
)
from catalog.format.ids import Vid
from catalog.format.keys import boundary_key, check_key, check_name, checkpoints_key, control_key
from catalog.format.lazy_imports import pb

_NONCE_SIZE = 16


def encode_control(control: Control) -> bytes:
    message = pb.Control(
        vid=control.vid.raw,
        parent=None if control.parent is None else fork_point_message(control.parent),
        created_at=timestamp(control.created_at_ms),
        topic=control.topic,
        branch=control.branch,
    )
    return wrap(MessageType.CONTROL, serialized(message))


def decode_control(body: bytes, key: str) -> Control:
    message = parse(pb.Control(), MessageType.CONTROL, body, key)
    with fields_of(key):
        check_name("topic", message.topic)
        check_name("branch", message.branch)
        return Control(
            vid=Vid(message.vid),
            parent=fork_point(message.parent) if message.HasField("parent") else None,
            created_at_ms=message.created_at.ToMilliseconds(),
            topic=message.topic,
            branch=message.branch,
        )


def decode_control_of(body: bytes, vid: Vid) -> Control:
    """Return the control of `vid`. Raise `InvalidObject` too if `body` is another volume's control."""
    key = control_key(vid)
    control = decode_control(body, key)
    if control.vid != vid:
        raise InvalidObject(key, f"it belongs to volume {control.vid}")
    return control


def encode_fork(fork: Fork) -> bytes:
    return wrap(
        MessageType.FORK, serialized(pb.Fork(fork_vid=fork.fork_vid.raw, parent=fork_point_message(fork.parent)))
    )


def decode_fork(body: bytes, key: str) -> Fork:
    message = parse(pb.Fork(), MessageType.FORK, body, key)
    with fields_of(key):
        return Fork(Vid(message.fork_vid), fork_point(message.parent))


def encode_ref(ref: Ref) -> bytes:
    message = pb.Ref(
        vid=ref.vid.raw,
        created_at=timestamp(ref.created_at_ms),
        deleted_at=None if ref.deleted_at_ms is None else timestamp(ref.deleted_at_ms),
        nonce=ref.nonce,
    )
    return wrap(MessageType.REF, serialized(message))


def decode_ref(body: bytes, key: str) -> Ref:
    message = parse(pb.Ref(), MessageType.REF, body, key)
    with fields_of(key):
        return Ref(
            Vid(message.vid),
            message.created_at.ToMilliseconds(),
            message.deleted_at.ToMilliseconds() if message.HasField("deleted_at") else None,
            message.nonce,
        )


def encode_tag(tag: Tag) -> bytes:
    message = pb.Tag(
        point=fork_point_message(tag.point),
        branch=tag.branch,
        created_at=timestamp(tag.created_at_ms),
        message=tag.message,
        deleted_at=None if tag.deleted_at_ms is None else timestamp(tag.deleted_at_ms),
        nonce=tag.nonce,
    )
    return wrap(MessageType.TAG, serialized(message))


def decode_tag(body: bytes, key: str) -> Tag:
    message = parse(pb.Tag(), MessageType.TAG, body, key)
    with fields_of(key):
        if message.branch:  # a tag of a point has none
            check_name("branch", message.branch)
        return Tag(
            fork_point(message.point),
            message.branch,
            message.created_at.ToMilliseconds(),
            message.message,
            message.deleted_at.ToMilliseconds() if message.HasField("deleted_at") else None,
            message.nonce,
        )


def encode_pin(pin: Pin) -> bytes:
    message = pb.Pin(
        point=fork_point_message(pin.point), expires_at=timestamp(pin.expires_at_ms), holder=pin.holder, nonce=pin.nonce
    )
    return wrap(MessageType.PIN, serialized(message))


def decode_pin(body: bytes, key: str) -> Pin:
    message = parse(pb.Pin(), MessageType.PIN, body, key)
    with fields_of(key):
        return Pin(fork_point(message.point), message.expires_at.ToMilliseconds(), message.holder, message.nonce)


def encode_boundary(boundary: Boundary) -> bytes:
    message = pb.Boundary(vid=boundary.vid.raw, lsn=boundary.lsn, closing=boundary.is_closing, nonce=boundary.nonce)
    return wrap(MessageType.BOUNDARY, serialized(message))


def decode_boundary(body: bytes, vid: Vid) -> Boundary:
    """Return the boundary of `vid`. Raise `InvalidObject` too if `body` is another volume's boundary."""
    key = boundary_key(vid)
    message = parse(pb.Boundary(), MessageType.BOUNDARY, body, key)
    if message.vid != vid.raw:
        raise InvalidObject(key, "it belongs to another volume")
    return Boundary(vid, message.lsn, message.closing, message.nonce)


def encode_oplog_entry(entry: OplogEntry) -> bytes:
    """Return the object of `entry`. Raise `ValueError` if its nonce does not have 16 bytes."""
    if len(entry.nonce) != _NONCE_SIZE:
        raise ValueError(f"{len(entry.nonce)} bytes where {_NONCE_SIZE} belong")
    message = pb.OplogEntry(
        at=timestamp(entry.at_ms),
        writer_id=entry.writer_id,
        operation=entry.operation,
        subject=entry.subject,
        former=entry.former,
        value=entry.value,
        nonce=entry.nonce,
        message=entry.message,
        others=[pb.NameChange(subject=name.subject, former=name.former, value=name.value) for name in entry.others],
    )
    return wrap(MessageType.OPLOG_ENTRY, serialized(message))


def decode_oplog_entry(body: bytes, key: str) -> OplogEntry:
    message = parse(pb.OplogEntry(), MessageType.OPLOG_ENTRY, body, key)
    if len(message.nonce) != _NONCE_SIZE:
        raise InvalidObject(key, f"a nonce of {len(message.nonce)} bytes")
    with fields_of(key):
        for subject in (message.subject, *(change.subject for change in message.others)):
            check_key(subject)
        return OplogEntry(
            at_ms=message.at.ToMilliseconds(),
            writer_id=message.writer_id,
            operation=message.operation,
            subject=message.subject,
            former=message.former if message.HasField("former") else None,
            value=message.value if message.HasField("value") else None,
            nonce=message.nonce,
            message=message.message,
            others=tuple(
                NameChange(
                    change.subject,
                    change.former if change.HasField("former") else None,
                    change.value if change.HasField("value") else None,
                )
                for change in message.others
            ),
        )


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
    key = checkpoints_key(vid)
    data = unwrap(MessageType.CHECKPOINT_SET, body, key)
    if len(data) != _NEWEST.size:
        raise InvalidObject(key, f"its first part has {len(body)} bytes, not {NEWEST_BYTES}")
    raw_vid, count, floor, nonce = _HEAD.unpack_from(data)
    if raw_vid != vid.raw:
        raise InvalidObject(key, "it belongs to another volume")
    newest = min(count, _NEWEST_MARKS)
    end = _HEAD.size + newest * _MARK.size
    if any(data[end:]):
        raise InvalidObject(key, f"{count} marks are followed by other bytes than zeros")
    return CheckpointSet(vid, _marks(data[_HEAD.size : end], key), count - newest, floor, nonce)


def decode_checkpoint_set(body: bytes, vid: Vid) -> CheckpointSet:
    """Return the set with all marks, from the whole object. Raise as `decode_newest_checkpoints` does."""
    key = checkpoints_key(vid)
    newest = decode_newest_checkpoints(body[:NEWEST_BYTES], vid)
    older_part = body[NEWEST_BYTES:]
    older = unwrap(MessageType.OLDER_CHECKPOINTS, older_part, key) if older_part or newest.older else b""
    if len(older) != newest.older * _MARK.size:
        raise InvalidObject(key, f"{len(older)} bytes where {newest.older} marks belong")
    marks = _marks(older, key) + newest.marks
    _check_order(marks[newest.older - 1 : newest.older + 1] if newest.older else (), key)
    return replace(newest, marks=marks, older=0)


def decode_down_to(lsn: int, body: bytes, vid: Vid) -> CheckpointSet:
    """Return as many marks as it takes to find the newest one at or below `lsn`.

    `body` may be the object's beginning only. Then the result may lack that mark.
    """
    newest = decode_newest_checkpoints(body[:NEWEST_BYTES], vid)
    is_enough = not newest.older or newest.at_or_below(lsn) is not None
    return newest if is_enough or len(body) == NEWEST_BYTES else decode_checkpoint_set(body, vid)


def _marks(raw: bytes, key: str) -> tuple[Mark, ...]:
    """Return the marks in `raw`, ascending. Raise `InvalidObject` if they are not in order."""
    marks = tuple(map(Mark._make, _MARK.iter_unpack(raw)))[::-1]
    if marks and marks[0].lsn == 0:
        raise InvalidObject(key, "its LSNs do not ascend from 1")
    _check_order(marks, key)
    return marks


def _check_order(marks: tuple[Mark, ...], key: str) -> None:
    lsns = [mark.lsn for mark in marks]
    if not all(map(operator.lt, lsns, lsns[1:])):
        raise InvalidObject(key, "its LSNs do not ascend from 1")
