"""Bodies of control frames, which carry a topic's life through the WAL. Canonical JSON in the frame's data.

    type             seq           body
    TOPIC_CREATE     0             {"config", "epoch", "first_seq", "name"}
    TOPIC_DELETE     0             {"epoch"}                       the topic's last one
    CONFIG_UPDATE    0             {"config"}
    DELETE           at_seq        {"before", "op", "tag"}; of an eviction "evict_from" as well
    HEAD_WATERMARK   head          none: no data at all
    EVICT_WATERMARK  earliest_seq  {"evict_floor", "evict_from"}   the floors from here on
    TRUNCATE         first gone    {"epoch"}                       the topic's from here on

A body that does not fit is `InvalidFrame`: its checksum was right, so somebody else wrote it. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass

from seglog import canonical
from seglog.config import TopicConfig
from seglog.deletes import DeleteOp
from seglog.errors import InvalidFrame, SeglogError
from seglog.floors import Floors
from seglog.frame import FrameType, Header, encode

__all__ = [
    "TopicCreated",
    "encode_config",
    "encode_create",
    "encode_delete",
    "encode_evict",
    "encode_head",
    "encode_topic_delete",
    "encode_truncate",
    "read_config",
    "read_create",
    "read_delete",
    "read_epoch",
    "read_evict",
]


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """`ts_ms` is the floor of the topic's times, as the frame has it."""

    topic_id: int
    name: str
    epoch: int
    first_seq: int
    config: TopicConfig
    ts_ms: int


def encode_create(created: TopicCreated) -> bytes:
    body = {
        "config": created.config.to_json(),
        "epoch": created.epoch,
        "first_seq": created.first_seq,
        "name": created.name,
    }
    return _encode(FrameType.TOPIC_CREATE, created.topic_id, 0, created.ts_ms, body)


def encode_config(topic_id: int, ts_ms: int, config: TopicConfig) -> bytes:
    return _encode(FrameType.CONFIG_UPDATE, topic_id, 0, ts_ms, {"config": config.to_json()})


def encode_delete(topic_id: int, op: DeleteOp) -> bytes:
    body = {"before": op.before, "op": op.op, "tag": op.tag}
    if op.evict_from is not None:
        body["evict_from"] = op.evict_from
    return _encode(FrameType.DELETE, topic_id, op.at_seq, op.ts_ms, body)


def encode_evict(topic_id: int, ts_ms: int, floors: Floors) -> bytes:
    body = {"evict_floor": floors.evict_floor, "evict_from": floors.evict_from}
    return _encode(FrameType.EVICT_WATERMARK, topic_id, floors.earliest_seq, ts_ms, body)


def encode_head(topic_id: int, ts_ms: int, seq: int) -> bytes:
    return encode(FrameType.HEAD_WATERMARK, topic_id=topic_id, seq=seq, ts_ms=ts_ms)


def encode_truncate(topic_id: int, ts_ms: int, seq: int, epoch: int) -> bytes:
    return _encode(FrameType.TRUNCATE, topic_id, seq, ts_ms, {"epoch": epoch})


def encode_topic_delete(topic_id: int, ts_ms: int, epoch: int) -> bytes:
    return _encode(FrameType.TOPIC_DELETE, topic_id, 0, ts_ms, {"epoch": epoch})


def read_create(header: Header, data: bytes) -> TopicCreated:
    try:
        body = canonical.decode(data)
        config = TopicConfig.from_json(body["config"])
        return TopicCreated(header.topic_id, body["name"], body["epoch"], body["first_seq"], config, header.ts_ms)
    except (ValueError, KeyError, TypeError, SeglogError) as error:
        raise _misfit(error) from error


def read_config(data: bytes) -> TopicConfig:
    try:
        return TopicConfig.from_json(canonical.decode(data)["config"])
    except (ValueError, KeyError, TypeError, SeglogError) as error:
        raise _misfit(error) from error


def read_delete(header: Header, data: bytes) -> DeleteOp:
    try:
        body = canonical.decode(data)
        evict_from = _whole(body["evict_from"]) if "evict_from" in body else None
        return DeleteOp(body["op"], header.seq, header.ts_ms, body["before"], body["tag"], evict_from)
    except (ValueError, KeyError, TypeError) as error:
        raise _misfit(error) from error


def read_evict(header: Header, data: bytes) -> Floors:
    try:
        body = canonical.decode(data)
        return Floors(header.seq, _whole(body["evict_from"]), _whole(body["evict_floor"]))
    except (ValueError, KeyError, TypeError) as error:
        raise _misfit(error) from error


def read_epoch(data: bytes) -> int:
    """Of a TRUNCATE or TOPIC_DELETE frame."""
    try:
        return _whole(canonical.decode(data)["epoch"])
    except (ValueError, KeyError, TypeError) as error:
        raise _misfit(error) from error


def _whole(value: object) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _encode(kind: FrameType, topic_id: int, seq: int, ts_ms: int, body: object) -> bytes:
    return encode(kind, topic_id=topic_id, seq=seq, ts_ms=ts_ms, data=canonical.encode(body))


def _misfit(error: Exception) -> InvalidFrame:
    return InvalidFrame(0, f"the body of a control frame does not fit: {error!r}")
