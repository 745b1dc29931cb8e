"""Catalog values as objects, and back: protobuf (catalog/schema.proto) in the envelope of `catalog.envelope`.

Commit hash: blake3 (32 bytes) over the following bytes, all integers little-endian. It stands in the commit itself,
and as `parent_hash` in the next one.

    size    field
    4       "SGC1", which no other hashed thing of ours begins with
    16      vid
    8       lsn
    32      parent_hash
    8       bounds: first_seq
    8       bounds: head_seq
    8       bounds: evict_floor
    16      nonce
    1       kind
    8       created_at, ms
    8       epoch
    8       at_seq
    8       at_ts, ms
    1       1 if truncate_from is there, else 0
    8       truncate_from, or 0
    4 + n   writer_id: length of its UTF-8, then that
    4 + n   message: the same
    4       number of segments, then for each in the order of the commit (ascending by first_seq):
              16 sid · 32 data_hash · 8 first_seq · 8 last_seq · 8 min_ts, ms · 8 max_ts, ms · 8 data_length
              · 4 index_head_length · 4 index_trailer_length · 32 index_head_hash · 1 codec · 8 frame_bytes
    8       deletions: before_seq
    4       deletions: number of bitmaps, then for each, ascending by sid: 16 sid · 4 length · bitmap
    4       number of removed sids, then 16 bytes for each in the order of the commit

H1  Every field of `Commit` is in it, at a fixed place or with its length before it, so no two commits share the bytes.
H2  checkpoint_ts is not: becoming a checkpoint changes no hash.
H3  A decoder trusts in this order: envelope, protobuf, sizes and enums, commit hash, identity with the key.

Source: Graft RFC 0001 (Commit hash); the parent and all but the first fields are ours. No I/O: bytes in, bytes out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from blake3 import blake3
from google.protobuf.message import DecodeError, Message
from google.protobuf.timestamp_pb2 import Timestamp
from pyroaring import BitMap

from catalog import schema_pb2 as pb
from catalog.commit import Bounds, Codec, Commit, CommitKind, Deletions, ForkPoint, SegmentRef
from catalog.control import Control, Fork, Ref
from catalog.envelope import MessageType, unwrap, wrap
from catalog.errors import InvalidKey, InvalidObject
from catalog.gid import Sid, Vid
from catalog.keys import commit_key, control_key

__all__ = [
    "StoredCommit",
    "commit_hash",
    "decode_commit",
    "decode_commit_at",
    "decode_control",
    "decode_control_of",
    "decode_fork",
    "decode_ref",
    "encode_commit",
    "encode_control",
    "encode_fork",
    "encode_ref",
]

_HASH_MAGIC = b"SGC1"
_HASH_HEAD = struct.Struct("<4s16sQ32sQQQ16sBQQQQBQ")
_HASH_SEGMENT = struct.Struct("<16s32sQQQQQII32sBQ")
_U64 = struct.Struct("<Q")
_U32 = struct.Struct("<I")
_HASH_SIZE = 32
_NONCE_SIZE = 16


@dataclass(frozen=True, slots=True)
class StoredCommit:
    """A commit together with its hash, which was verified."""

    commit: Commit
    hash: bytes


def commit_hash(commit: Commit) -> bytes:
    """The 32 bytes described above. Raises `ValueError` for a commit that no object could hold."""
    if commit.lsn < 1:
        raise ValueError(f"LSN {commit.lsn}: they count from 1")
    hasher = blake3()
    try:
        for piece in _hashed_pieces(commit):
            hasher.update(piece)
    except struct.error as cause:
        raise ValueError(f"commit {commit.lsn} has a number out of range: {cause}") from None
    return hasher.digest()


def _hashed_pieces(commit: Commit) -> Iterator[bytes]:
    bounds = commit.bounds
    yield _HASH_HEAD.pack(
        _HASH_MAGIC,
        commit.vid.raw,
        commit.lsn,
        _sized(commit.parent_hash, _HASH_SIZE),
        bounds.first_seq,
        bounds.head_seq,
        bounds.evict_floor,
        _sized(commit.nonce, _NONCE_SIZE),
        commit.kind,
        commit.created_at_ms,
        commit.epoch,
        commit.at_seq,
        commit.at_ts_ms,
        commit.truncate_from is not None,
        commit.truncate_from or 0,
    )
    yield from _with_length(commit.writer_id.encode())
    yield from _with_length(commit.message.encode())
    yield _U32.pack(len(commit.segments))
    for ref in commit.segments:
        yield _HASH_SEGMENT.pack(
            ref.sid.raw,
            _sized(ref.data_hash, _HASH_SIZE),
            ref.first_seq,
            ref.last_seq,
            ref.min_ts_ms,
            ref.max_ts_ms,
            ref.data_length,
            ref.index_head_length,
            ref.index_trailer_length,
            _sized(ref.index_head_hash, _HASH_SIZE),
            ref.codec,
            ref.frame_bytes,
        )
    yield _U64.pack(commit.deletions.before_seq)
    yield _U32.pack(len(commit.deletions.bitmaps))
    for sid, bitmap in sorted(commit.deletions.bitmaps.items()):
        yield sid.raw
        yield from _with_length(bitmap)
    yield _U32.pack(len(commit.removed_sids))
    for sid in commit.removed_sids:
        yield sid.raw


def _with_length(piece: bytes) -> Iterator[bytes]:
    yield _U32.pack(len(piece))
    yield piece


def _sized(value: bytes, size: int) -> bytes:
    if len(value) != size:
        raise ValueError(f"{len(value)} bytes where {size} belong")
    return value


# ---------------------------------------------------------------- commits


def encode_commit(commit: Commit) -> tuple[bytes, bytes]:
    """The object's body, and the commit hash in it. Raises `ValueError` for a commit that no object could hold."""
    digest = commit_hash(commit)
    bounds = commit.bounds
    message = pb.Commit(
        snapshot=pb.Snapshot(
            vid=commit.vid.raw,
            lsn=commit.lsn,
            first_seq=bounds.first_seq,
            head_seq=bounds.head_seq,
            evict_floor=bounds.evict_floor,
        ),
        hash=digest,
        segments=[_segment_message(ref) for ref in commit.segments],
        kind=pb.CommitKind.Name(commit.kind),
        parent_hash=commit.parent_hash,
        nonce=commit.nonce,
        created_at=_timestamp(commit.created_at_ms),
        writer_id=commit.writer_id,
        epoch=commit.epoch,
        message=commit.message,
        removed_sids=[sid.raw for sid in commit.removed_sids],
        deletions=_deletions_message(commit.deletions),
        truncate_from=commit.truncate_from,
        at_seq=commit.at_seq,
        at_ts_ms=commit.at_ts_ms,
    )
    return wrap(MessageType.COMMIT, _serialized(message)), digest


def decode_commit(body: bytes, place: str) -> StoredCommit:
    """The commit in `body`, its hash verified. `place` names the object in errors.

    Raises `InvalidObject` and `FormatUnsupported`.
    """
    message = pb.Commit()
    _parse(message, MessageType.COMMIT, body, place)
    try:
        commit = _commit(message)
        digest = commit_hash(commit)
    except (InvalidKey, ValueError) as cause:
        raise InvalidObject(place, f"a field is out of range: {cause}") from None
    if message.hash != digest:
        raise InvalidObject(place, "its commit hash does not match its contents")
    return StoredCommit(commit, digest)


def decode_commit_at(body: bytes, vid: Vid, lsn: int) -> StoredCommit:
    """`decode_commit` of what lies at `vid` and `lsn`; raises `InvalidObject` too if the commit says otherwise."""
    key = commit_key(vid, lsn)
    stored = decode_commit(body, key)
    if stored.commit.vid != vid or stored.commit.lsn != lsn:
        raise InvalidObject(key, f"it is lsn {stored.commit.lsn} of volume {stored.commit.vid}, in the wrong place")
    return stored


def _commit(message: pb.Commit) -> Commit:
    snapshot = message.snapshot
    return Commit(
        vid=Vid(snapshot.vid),
        lsn=snapshot.lsn,
        kind=CommitKind(message.kind),
        bounds=Bounds(snapshot.first_seq, snapshot.head_seq, snapshot.evict_floor),
        parent_hash=message.parent_hash,
        nonce=message.nonce,
        created_at_ms=message.created_at.ToMilliseconds(),
        writer_id=message.writer_id,
        epoch=message.epoch,
        at_seq=message.at_seq,
        at_ts_ms=message.at_ts_ms,
        message=message.message,
        segments=tuple(_segment(ref) for ref in message.segments),
        removed_sids=tuple(Sid(raw) for raw in message.removed_sids),
        deletions=_deletions(message.deletions),
        truncate_from=message.truncate_from if message.HasField("truncate_from") else None,
    )


def _segment_message(ref: SegmentRef) -> pb.SegmentRef:
    return pb.SegmentRef(
        sid=ref.sid.raw,
        first_seq=ref.first_seq,
        last_seq=ref.last_seq,
        min_ts_ms=ref.min_ts_ms,
        max_ts_ms=ref.max_ts_ms,
        data_length=ref.data_length,
        data_hash=ref.data_hash,
        index_head_length=ref.index_head_length,
        index_trailer_length=ref.index_trailer_length,
        index_head_hash=ref.index_head_hash,
        codec=pb.Codec.Name(ref.codec),
        frame_bytes=ref.frame_bytes,
    )


def _segment(message: pb.SegmentRef) -> SegmentRef:
    if not 1 <= message.first_seq <= message.last_seq:
        raise ValueError(f"a segment from seq {message.first_seq} to {message.last_seq}")
    return SegmentRef(
        sid=Sid(message.sid),
        first_seq=message.first_seq,
        last_seq=message.last_seq,
        min_ts_ms=message.min_ts_ms,
        max_ts_ms=message.max_ts_ms,
        data_length=message.data_length,
        data_hash=message.data_hash,
        index_head_length=message.index_head_length,
        index_trailer_length=message.index_trailer_length,
        index_head_hash=message.index_head_hash,
        codec=Codec(message.codec),
        frame_bytes=message.frame_bytes,
    )


def _deletions_message(deletions: Deletions) -> pb.Deletions | None:
    if deletions == Deletions():
        return None
    return pb.Deletions(
        before_seq=deletions.before_seq or None,
        segments=[pb.SegmentDeletion(sid=sid.raw, bitmap=bitmap) for sid, bitmap in sorted(deletions.bitmaps.items())],
    )


def _deletions(message: pb.Deletions) -> Deletions:
    bitmaps = {Sid(entry.sid): entry.bitmap for entry in message.segments}
    if len(bitmaps) != len(message.segments):
        raise ValueError("two bitmaps for one segment")
    for sid, bitmap in bitmaps.items():
        _check_bitmap(sid, bitmap)
    return Deletions(message.before_seq, bitmaps)


def _check_bitmap(sid: Sid, bitmap: bytes) -> None:
    try:
        BitMap.deserialize(bitmap)
    except (IndexError, ValueError):
        raise ValueError(f"the deletions of segment {sid} are not a Roaring bitmap") from None


# ---------------------------------------------------------------- control, fork, ref


def encode_control(control: Control) -> bytes:
    message = pb.Control(
        vid=control.vid.raw,
        parent=None if control.parent is None else _volume_ref_message(control.parent),
        created_at=_timestamp(control.created_at_ms),
        topic=control.topic,
        branch=control.branch,
    )
    return wrap(MessageType.CONTROL, _serialized(message))


def decode_control(body: bytes, place: str) -> Control:
    """Raises `InvalidObject` and `FormatUnsupported`, which name `place`."""
    message = pb.Control()
    _parse(message, MessageType.CONTROL, body, place)
    try:
        return Control(
            vid=Vid(message.vid),
            parent=_fork_point(message.parent) if message.HasField("parent") else None,
            created_at_ms=message.created_at.ToMilliseconds(),
            topic=message.topic,
            branch=message.branch,
        )
    except (InvalidKey, ValueError) as cause:
        raise InvalidObject(place, f"a field is out of range: {cause}") from None


def decode_control_of(body: bytes, vid: Vid) -> Control:
    """`decode_control` of what lies under `vid`; raises `InvalidObject` too if the control says otherwise."""
    key = control_key(vid)
    control = decode_control(body, key)
    if control.vid != vid:
        raise InvalidObject(key, f"it belongs to volume {control.vid}")
    return control


def encode_fork(fork: Fork) -> bytes:
    return wrap(
        MessageType.FORK, _serialized(pb.Fork(fork_vid=fork.fork_vid.raw, parent=_volume_ref_message(fork.parent)))
    )


def decode_fork(body: bytes, place: str) -> Fork:
    """Raises `InvalidObject` and `FormatUnsupported`, which name `place`."""
    message = pb.Fork()
    _parse(message, MessageType.FORK, body, place)
    try:
        return Fork(Vid(message.fork_vid), _fork_point(message.parent))
    except InvalidKey as cause:
        raise InvalidObject(place, f"a field is out of range: {cause}") from None


def encode_ref(ref: Ref) -> bytes:
    return wrap(MessageType.REF, _serialized(pb.Ref(vid=ref.vid.raw, created_at=_timestamp(ref.created_at_ms))))


def decode_ref(body: bytes, place: str) -> Ref:
    """Raises `InvalidObject` and `FormatUnsupported`, which name `place`."""
    message = pb.Ref()
    _parse(message, MessageType.REF, body, place)
    try:
        return Ref(Vid(message.vid), message.created_at.ToMilliseconds())
    except (InvalidKey, ValueError) as cause:
        raise InvalidObject(place, f"a field is out of range: {cause}") from None


def _volume_ref_message(point: ForkPoint) -> pb.VolumeRef:
    return pb.VolumeRef(vid=point.vid.raw, lsn=point.lsn, seq=point.seq)


def _fork_point(message: pb.VolumeRef) -> ForkPoint:
    return ForkPoint(Vid(message.vid), message.lsn, message.seq if message.HasField("seq") else None)


# ---------------------------------------------------------------- protobuf


def _timestamp(ms: int) -> Timestamp:
    stamp = Timestamp()
    stamp.FromMilliseconds(ms)
    return stamp


def _serialized(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)


def _parse(message: Message, message_type: MessageType, body: bytes, place: str) -> None:
    try:
        message.ParseFromString(unwrap(message_type, body, place))
    except DecodeError as cause:
        raise InvalidObject(place, f"it is not a protobuf message of its type: {cause}") from None
