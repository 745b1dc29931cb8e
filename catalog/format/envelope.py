"""The envelope around every message in object storage.

    offset  size  field     meaning
    0       3     magic     "SGL"
    3       1     version   an ASCII digit: of a commit the form of its volume (seglog.base.forms), of others "1"
    4       3     padding   zeros
    7       1     type      1 Control, 2 Fork, 3 CheckpointSet, 4 Commit, 16 Ref, 17 Tag, 18 Pin, 19 Boundary,
                            20 OplogEntry, 21 GcPlan, 22 SegmentList, 23 GcPage, 24 OlderCheckpoints
    8       n     data      the protobuf message; of 3 and 24, what `catalog.format.small_objects` says
    8+n     8     xxh3      XXH3-64 of [0, 8+n), little-endian

ENV-1  A decoder checks an envelope in this order: magic, version, checksum, padding and type.
ENV-2  Another digit than the decoder knows is another format version. The decoder then looks at nothing else.
ENV-3  Any other difference from the written bytes is `InvalidObject`: no byte reaches a caller unverified.

XXH3 is not a MAC: it finds damage, not malice. The commit hash (`catalog.format.encoding`) ties a history together.
Source: Graft RFC 0001 (ProtobufEnvelope); version and checksum are ours. No I/O: bytes in, bytes out.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import xxhash

from catalog.errors import FormatUnsupported, InvalidKey, InvalidName, InvalidObject
from catalog.format.commit import ForkPoint
from catalog.format.ids import Vid
from catalog.format.lazy_imports import pb, protobuf, timestamps

MAGIC = b"SGL1"
HEADER = struct.Struct("<4s3sB")
TRAILER = struct.Struct("<Q")
_PADDING = bytes(3)
_Message = TypeVar("_Message", bound="protobuf.Message")


class MessageType(enum.IntEnum):
    CONTROL = 1
    FORK = 2
    CHECKPOINT_SET = 3
    COMMIT = 4
    REF = 16
    TAG = 17
    PIN = 18
    BOUNDARY = 19
    OPLOG_ENTRY = 20
    GC_PLAN = 21
    SEGMENT_LIST = 22
    GC_PAGE = 23
    OLDER_CHECKPOINTS = 24


def wrap(message_type: MessageType, data: bytes, version: int = 1) -> bytes:
    body = HEADER.pack(_magic(version), _PADDING, message_type) + data
    return body + TRAILER.pack(xxhash.xxh3_64_intdigest(body))


def version_of(body: bytes) -> int:
    """Return the version of an object that `unwrap` took."""
    return int(body[len(MAGIC) - 1 : len(MAGIC)])


def _magic(version: int) -> bytes:
    return MAGIC[:-1] + str(version).encode() if version > 1 else MAGIC


def unwrap(message_type: MessageType, body: bytes, key: str, newest: int = 1) -> bytes:
    """Return the data inside `body`. `key` names the object in errors. Versions up to `newest` are known.

    Raise `FormatUnsupported` for another format version. Raise `InvalidObject` for bytes that `wrap` would not produce
    for `message_type`.
    """
    if len(body) < HEADER.size + TRAILER.size:
        raise InvalidObject(key, f"{len(body)} bytes are too few for an envelope")
    magic, padding, found_type = HEADER.unpack_from(body)
    if magic not in map(_magic, range(1, newest + 1)):
        if magic[:3] == MAGIC[:3] and magic[3:].isdigit():
            raise FormatUnsupported(key, magic[3:].decode("ascii"), newest if newest == 1 else f"1 to {newest}")
        raise InvalidObject(key, f"magic is {magic.hex()}, not {MAGIC.hex()}")
    data_end = len(body) - TRAILER.size
    (checksum,) = TRAILER.unpack_from(body, data_end)
    if checksum != xxhash.xxh3_64_intdigest(memoryview(body)[:data_end]):
        raise InvalidObject(key, "its checksum does not match")
    if padding != _PADDING:
        raise InvalidObject(key, f"padding is {padding.hex()}, not zeros")
    if found_type != message_type:
        raise InvalidObject(key, f"message type is {found_type}, not {message_type:d} ({message_type.name.lower()})")
    return body[HEADER.size : data_end]


def fork_point_message(point: ForkPoint) -> pb.VolumeRef:
    return pb.VolumeRef(vid=point.vid.raw, lsn=point.lsn, seq=point.seq)


def fork_point(message: pb.VolumeRef) -> ForkPoint:
    """Return the fork point in `message`. Raise `InvalidKey` if its vid is not one."""
    return ForkPoint(Vid(message.vid), message.lsn, message.seq if message.HasField("seq") else None)


def timestamp(ms: int) -> timestamps.Timestamp:
    stamp = timestamps.Timestamp()
    stamp.FromMilliseconds(ms)
    return stamp


def serialized(message: protobuf.Message) -> bytes:
    return message.SerializeToString(deterministic=True)


def parse(message: _Message, message_type: MessageType, body: bytes, key: str, newest: int = 1) -> _Message:
    """Fill `message` from `body`, and return it. Raise `InvalidObject` and `FormatUnsupported`, which name `key`."""
    try:
        message.ParseFromString(unwrap(message_type, body, key, newest))
    except protobuf.DecodeError as cause:
        raise InvalidObject(key, f"it is not a protobuf message of its type: {cause}") from None
    return message


@contextmanager
def fields_of(key: str) -> Iterator[None]:
    """Turn an error of the block into `InvalidObject`, which names `key`.

    The block makes a value of a message's fields. The error is a field that does not fit.
    """
    try:
        yield
    except (InvalidKey, InvalidName, ValueError) as cause:
        raise InvalidObject(key, f"a field is out of range: {cause}") from None
