"""Helpers for all encodings of catalog messages: protobuf in the envelope, times, fork points."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp

from catalog import schema_pb2 as pb
from catalog.errors import InvalidKey, InvalidName, InvalidObject
from catalog.format.commit import ForkPoint
from catalog.format.envelope import MessageType, unwrap
from catalog.format.gid import Vid

__all__ = ["fields_of", "fork_point", "fork_point_message", "parse", "serialized", "timestamp"]

_Message = TypeVar("_Message", bound=Message)


def fork_point_message(point: ForkPoint) -> pb.VolumeRef:
    return pb.VolumeRef(vid=point.vid.raw, lsn=point.lsn, seq=point.seq)


def fork_point(message: pb.VolumeRef) -> ForkPoint:
    """Return the fork point in `message`. Raise `InvalidKey` if its vid is not one."""
    return ForkPoint(Vid(message.vid), message.lsn, message.seq if message.HasField("seq") else None)


def timestamp(ms: int) -> Timestamp:
    stamp = Timestamp()
    stamp.FromMilliseconds(ms)
    return stamp


def serialized(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)


def parse(message: _Message, message_type: MessageType, body: bytes, place: str) -> _Message:
    """Fill `message` from `body`, and return it. Raise `InvalidObject` and `FormatUnsupported`, which name `place`."""
    try:
        message.ParseFromString(unwrap(message_type, body, place))
    except DecodeError as cause:
        raise InvalidObject(place, f"it is not a protobuf message of its type: {cause}") from None
    return message


@contextmanager
def fields_of(place: str) -> Iterator[None]:
    """Turn an error of the block into `InvalidObject`, which names `place`.

    The block makes a value of a message's fields. The error is a field that does not fit.
    """
    try:
        yield
    except (InvalidKey, InvalidName, ValueError) as cause:
        raise InvalidObject(place, f"a field is out of range: {cause}") from None
