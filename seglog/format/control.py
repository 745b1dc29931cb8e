"""The bodies of control frames, which carry changes of a topic through the WAL. Canonical JSON in the frame's data.

    type             seq           body
    TOPIC_CREATE     0             {"config", "epoch", "first_seq", "name"}
    TOPIC_DELETE     0             {"epoch"}                       the topic's last one
    CONFIG_UPDATE    0             {"config"}
    DELETE           at_seq        {"before", "op", "tag"}; an eviction has "evict_from" as well
    DELETE_SEQS      at_seq        the same, with "seqs" (seglog.values.seq_set): the distances of the bounds of ranges
    HEAD_WATERMARK   head          none: no data at all
    EVICT_WATERMARK  earliest_seq  {"evict_floor", "evict_from"}   the floors from here on
    UNDELETE         first back    {"evict_floor", "op", "seqs"}   the records that are there again; the floor, or null.
                                                                   "of" is the number of a delete that no commit has
    TRUNCATE         first gone    {"epoch"}                       the topic's epoch from here on
    BATCH, KEY       first seq     binary: seglog.format.batch_frame

An UNDELETE has a number of the deletes. A delete that is listed still reaches its records (seglog.writing.changes).

A body that does not fit raises `InvalidFrame`. The checksum was right, so another program wrote the body. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from seglog.base.dataclasses import dataclass
from seglog.errors import InvalidFrame, SeglogError
from seglog.format.frame import FrameType, Header, encode
from seglog.values import canonical
from seglog.values.canonical import record, text, whole, whole_or_none, wholes
from seglog.values.config import TopicConfig
from seglog.values.deletes import DeleteOp, Floors, UndeleteOp
from seglog.values.names import check_topic_name
from seglog.values.seq_set import SeqSet


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """The values of a TOPIC_CREATE frame. No record of the topic has a time below `ts_ms`, the time of the frame."""

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
    body = op.to_json()
    del body["at_seq"], body["ts_ms"]  # the header has them
    return _encode(FrameType.DELETE if op.seqs is None else FrameType.DELETE_SEQS, topic_id, op.at_seq, op.ts_ms, body)


def encode_evict(topic_id: int, ts_ms: int, floors: Floors) -> bytes:
    body = {"evict_floor": floors.evict_floor, "evict_from": floors.evict_from}
    return _encode(FrameType.EVICT_WATERMARK, topic_id, floors.earliest_seq, ts_ms, body)


def encode_undelete(topic_id: int, op: UndeleteOp) -> bytes:
    body = {"evict_floor": op.evict_floor, "op": op.op, "seqs": op.seqs.to_json()}
    if op.of is not None:
        body["of"] = op.of
    return _encode(FrameType.UNDELETE, topic_id, op.seqs.first, op.ts_ms, body)


def encode_head(topic_id: int, ts_ms: int, seq: int) -> bytes:
    return encode(FrameType.HEAD_WATERMARK, topic_id=topic_id, seq=seq, ts_ms=ts_ms)


def encode_truncate(topic_id: int, ts_ms: int, seq: int, epoch: int) -> bytes:
    return _encode(FrameType.TRUNCATE, topic_id, seq, ts_ms, {"epoch": epoch})


def encode_topic_delete(topic_id: int, ts_ms: int, epoch: int) -> bytes:
    return _encode(FrameType.TOPIC_DELETE, topic_id, 0, ts_ms, {"epoch": epoch})


def read_create(header: Header, data: bytes) -> TopicCreated:
    with _fitting():
        body = record(canonical.decode(data))
        config, name = TopicConfig.from_json(body["config"]), check_topic_name(text(body["name"]))
        epoch, first_seq = whole(body["epoch"], 1), whole(body["first_seq"], 1)
        return TopicCreated(header.topic_id, name, epoch, first_seq, config, header.ts_ms)


def read_config(data: bytes) -> TopicConfig:
    with _fitting():
        return TopicConfig.from_json(record(canonical.decode(data))["config"])


def read_delete(header: Header, data: bytes) -> DeleteOp:
    with _fitting():
        body = record(canonical.decode(data))
        if ("seqs" in body) != (header.type == FrameType.DELETE_SEQS):
            raise InvalidFrame(0, "a delete with seqs, and its type, do not fit each other")
        return DeleteOp.from_json({**body, "at_seq": header.seq, "ts_ms": header.ts_ms})


def read_evict(header: Header, data: bytes) -> Floors:
    with _fitting():
        body = record(canonical.decode(data))
        return Floors(header.seq, whole(body["evict_from"]), whole(body["evict_floor"]))


def read_undelete(header: Header, data: bytes) -> UndeleteOp:
    with _fitting():
        body = record(canonical.decode(data))
        seqs = SeqSet.from_json(wholes(body["seqs"]))
        if not seqs or seqs.first != header.seq:
            raise InvalidFrame(0, "the first record that is there again, and the seq of the frame, do not fit")
        of = whole(body["of"], 1) if "of" in body else None
        return UndeleteOp(whole(body["op"], 1), header.ts_ms, seqs, whole_or_none(body["evict_floor"]), of)


def read_epoch(data: bytes) -> int:
    """Return the epoch in the body of a TRUNCATE or TOPIC_DELETE frame. Raise `InvalidFrame`."""
    with _fitting():
        return whole(record(canonical.decode(data))["epoch"])


@contextmanager
def _fitting() -> Iterator[None]:
    """Raise `InvalidFrame` for an error of the block, which decodes a body."""
    try:
        yield
    except (ValueError, KeyError, SeglogError) as error:
        raise InvalidFrame(0, f"the body of a control frame does not fit: {error!r}") from error


def _encode(kind: FrameType, topic_id: int, seq: int, ts_ms: int, body: object) -> bytes:
    return encode(kind, topic_id=topic_id, seq=seq, ts_ms=ts_ms, data=canonical.encode(body))
