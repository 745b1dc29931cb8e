"""Conversion of the small objects beside the commits: protobuf (catalog/schema.proto) in the envelope.

Every decoder raises `InvalidObject` and `FormatUnsupported`, which name `place`.
Source: Graft RFC 0001 (Control, Fork); the others are ours. No I/O: bytes in, bytes out.
"""

from __future__ import annotations

from catalog import schema_pb2 as pb
from catalog.errors import InvalidObject
from catalog.format.control import Boundary, Control, Fork, NameChange, OplogEntry, Pin, Ref, Tag
from catalog.format.envelope import (
    MessageType,
    fields_of,
    fork_point,
    fork_point_message,
    parse,
    serialized,
    timestamp,
    wrap,
)
from catalog.format.ids import Vid
from catalog.format.keys import boundary_key, check_key, check_name, control_key

__all__ = [
    "decode_boundary",
    "decode_control",
    "decode_control_of",
    "decode_fork",
    "decode_oplog_entry",
    "decode_pin",
    "decode_ref",
    "decode_tag",
    "encode_boundary",
    "encode_control",
    "encode_fork",
    "encode_oplog_entry",
    "encode_pin",
    "encode_ref",
    "encode_tag",
]

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


def decode_control(body: bytes, place: str) -> Control:
    message = parse(pb.Control(), MessageType.CONTROL, body, place)
    with fields_of(place):
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


def decode_fork(body: bytes, place: str) -> Fork:
    message = parse(pb.Fork(), MessageType.FORK, body, place)
    with fields_of(place):
        return Fork(Vid(message.fork_vid), fork_point(message.parent))


def encode_ref(ref: Ref) -> bytes:
    message = pb.Ref(
        vid=ref.vid.raw,
        created_at=timestamp(ref.created_at_ms),
        deleted_at=None if ref.deleted_at_ms is None else timestamp(ref.deleted_at_ms),
        nonce=ref.nonce,
    )
    return wrap(MessageType.REF, serialized(message))


def decode_ref(body: bytes, place: str) -> Ref:
    message = parse(pb.Ref(), MessageType.REF, body, place)
    with fields_of(place):
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


def decode_tag(body: bytes, place: str) -> Tag:
    message = parse(pb.Tag(), MessageType.TAG, body, place)
    with fields_of(place):
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
        point=fork_point_message(pin.point),
        expires_at=timestamp(pin.expires_at_ms),
        holder=pin.holder,
        nonce=pin.nonce,
    )
    return wrap(MessageType.PIN, serialized(message))


def decode_pin(body: bytes, place: str) -> Pin:
    message = parse(pb.Pin(), MessageType.PIN, body, place)
    with fields_of(place):
        return Pin(fork_point(message.point), message.expires_at.ToMilliseconds(), message.holder, message.nonce)


def encode_boundary(boundary: Boundary) -> bytes:
    message = pb.Boundary(vid=boundary.vid.raw, lsn=boundary.lsn, closing=boundary.is_closing, nonce=boundary.nonce)
    return wrap(MessageType.BOUNDARY, serialized(message))


def decode_boundary(body: bytes, vid: Vid) -> Boundary:
    """Return the boundary of `vid`. Raise `InvalidObject` too if `body` is another volume's boundary."""
    place = boundary_key(vid)
    message = parse(pb.Boundary(), MessageType.BOUNDARY, body, place)
    if message.vid != vid.raw:
        raise InvalidObject(place, "it belongs to another volume")
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
        others=[pb.NameChange(subject=each.subject, former=each.former, value=each.value) for each in entry.others],
    )
    return wrap(MessageType.OPLOG_ENTRY, serialized(message))


def decode_oplog_entry(body: bytes, place: str) -> OplogEntry:
    message = parse(pb.OplogEntry(), MessageType.OPLOG_ENTRY, body, place)
    if len(message.nonce) != _NONCE_SIZE:
        raise InvalidObject(place, f"a nonce of {len(message.nonce)} bytes")
    with fields_of(place):
        for subject in (message.subject, *(each.subject for each in message.others)):
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
                    each.subject,
                    each.former if each.HasField("former") else None,
                    each.value if each.HasField("value") else None,
                )
                for each in message.others
            ),
        )
