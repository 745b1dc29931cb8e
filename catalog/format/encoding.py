"""Conversion between commits and objects: protobuf (catalog/schema.proto) in the envelope of `catalog.format.envelope`.

Commit hash: blake3 (32 bytes) over the following bytes, all integers little-endian. The commit itself holds the hash,
and the next commit holds it as `parent_hash`.

    size    field
    4       "SGC" and the form as a digit, which no other hashed bytes of ours begin with
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
              · 8 live_records
    8       deletions: before_seq
    4       deletions: number of bitmaps, then for each, ascending by sid: 16 sid · 4 length · bitmap
    4       number of removed sids, then 16 bytes for each in the order of the commit

and for kind config only:

    4 + n   config: length of its UTF-8, then that
    1       1 if collected_before is there, else 0
    8       collected_before, ms, or 0

and for kind restore only:

    16      vid of the commit that is undone
    8       its lsn
    8       before_seq
    4       number of views, then for each, ascending by first:
              16 vid · 8 lsn · 8 first · 8 last · the segment, as above · 4 length · bitmap of deleted seqs (length 0:
              none)

The nonce of a commit with the mark of a load is the first 16 bytes of blake3 over "SGL1", the salt and the key in
UTF-8. Software from before loads passes over the field `load`. It finds a sound commit of its kind.

The nonce of the commit of a delete is 8 random bytes, and the first 8 of blake3 over "SGD1", these bytes and the 8 of
the delete's number in its log. So the log knows its own commit after a crash.

HASH-1  The hash covers every field of `Commit`, at a fixed place or after its length. It covers `load` by the nonce. So
    no two commits share the bytes.
HASH-2  The hash does not cover the checkpoint. So a commit that becomes one keeps its hash. The list of views has a
    hash of its own.
HASH-3  A decoder checks in this order: envelope, protobuf, sizes and enums, commit hash, identity with the key.
    An unknown kind of commit is `FormatUnsupported`, because only newer software writes one. Software from before kind
    restore calls it `InvalidObject`. So no reader shows a state that lacks the commit.

Source: Graft RFC 0001 (Commit hash); the parent and all but the first fields are ours. No I/O: bytes in, bytes out.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator

from blake3 import blake3

from catalog.errors import FormatUnsupported, InvalidKey, InvalidObject
from catalog.format.commit import (
    Bounds,
    Checkpoint,
    Codec,
    Commit,
    CommitKind,
    Deletions,
    LoadedKey,
    LoadMark,
    Restored,
    SegmentRef,
    SegmentView,
)
from catalog.format.envelope import (
    MessageType,
    fields_of,
    fork_point,
    fork_point_message,
    parse,
    serialized,
    timestamp,
    version_of,
    wrap,
)
from catalog.format.ids import Sid, Vid
from catalog.format.keys import commit_key
from catalog.format.lazy_imports import pb, protobuf, pyroaring
from seglog.base import forms
from seglog.base.arguments import checked
from seglog.base.dataclasses import dataclass

_HASH_MAGIC = b"SGC%d"
_LOAD_MAGIC = b"SGL1"
_DELETE_MAGIC = b"SGD1"
_HASH_HEAD = struct.Struct("<4s16sQ32sQQQ16sBQQQQBQ")
_HASH_SEGMENT = struct.Struct("<16s32sQQQQQII32sBQQ")
_HASH_VIEW = struct.Struct("<16sQQQ")
_FLAGGED = struct.Struct("<BQ")
_U64 = struct.Struct("<Q")
_U32 = struct.Struct("<I")
_HASH_SIZE = 32
_NONCE_SIZE = 16


@dataclass(frozen=True, slots=True)
class StoredCommit:
    """A commit together with its hash, which was verified, and its checkpoint, if it is one."""

    commit: Commit
    hash: bytes
    checkpoint: Checkpoint | None = None


def load_nonce(load: LoadMark) -> bytes:
    """Return the nonce of a commit with this mark."""
    return blake3(_LOAD_MAGIC + _sized(load.salt, _NONCE_SIZE) + load.key.encode()).digest(_NONCE_SIZE)


def delete_nonce(salt: bytes, number: int) -> bytes:
    """Return the nonce of the commit of a delete that has this number in its log: 8 random bytes, and 8 made of both.

    So a log finds the commit of a delete again, which has no number.
    """
    salt = salt[: _NONCE_SIZE // 2]
    return salt + blake3(_DELETE_MAGIC + salt + _U64.pack(number)).digest(_NONCE_SIZE - len(salt))


def commit_hash(commit: Commit) -> bytes:
    """Return the 32 bytes described above. Raise `ValueError` for a commit that no object could hold."""
    if commit.lsn < 1:
        raise ValueError(f"LSN {commit.lsn}: they count from 1")
    if commit.load is not None and commit.nonce != load_nonce(commit.load):
        raise ValueError("its nonce does not match its load")
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
        _HASH_MAGIC % commit.form,
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
        yield _hashed_segment(ref)
    yield _U64.pack(commit.deletions.before_seq)
    yield _U32.pack(len(commit.deletions.bitmaps))
    for sid, bitmap in sorted(commit.deletions.bitmaps.items()):
        yield sid.raw
        yield from _with_length(bitmap)
    yield _U32.pack(len(commit.removed_sids))
    for sid in commit.removed_sids:
        yield sid.raw
    if commit.kind is CommitKind.CONFIG:
        yield from _with_length(commit.config.encode())
        yield _FLAGGED.pack(commit.collected_before_ms is not None, commit.collected_before_ms or 0)
    elif commit.config or commit.collected_before_ms is not None:
        raise ValueError(f"a commit of kind {commit.kind.name.lower()} has no configuration")
    if (commit.kind is CommitKind.RESTORE) != (commit.restored is not None):
        raise ValueError("a commit of kind restore says what it restores, and no other commit does")
    if commit.restored is not None:
        yield from _hashed_restored(commit.restored)


def _hashed_segment(ref: SegmentRef) -> bytes:
    return _HASH_SEGMENT.pack(
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
        ref.live_records,
    )


def _hashed_restored(restored: Restored) -> Iterator[bytes]:
    if restored.undone.seq is not None:
        raise ValueError("a whole commit is undone, without a seq")
    yield restored.undone.vid.raw
    yield _U64.pack(restored.undone.lsn)
    yield _U64.pack(restored.before_seq)
    yield _U32.pack(len(restored.views))
    for view in restored.views:
        yield _HASH_VIEW.pack(view.vid.raw, view.lsn, view.first, view.last)
        yield _hashed_segment(view.ref)
        yield from _with_length(view.deleted or b"")


def _with_length(piece: bytes) -> Iterator[bytes]:
    yield _U32.pack(len(piece))
    yield piece


def _sized(value: bytes, size: int) -> bytes:
    if len(value) != size:
        raise ValueError(f"{len(value)} bytes where {size} belong")
    return value


# ---------------------------------------------------------------- commits


@checked
def encode_commit(commit: Commit) -> tuple[bytes, bytes]:
    """Return the object's body, and the commit hash in it.

    Raise `ValueError` for a commit that no object could hold.
    """
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
        created_at=timestamp(commit.created_at_ms),
        writer_id=commit.writer_id,
        epoch=commit.epoch,
        message=commit.message,
        removed_sids=[sid.raw for sid in commit.removed_sids],
        deletions=_deletions_message(commit.deletions),
        truncate_from=commit.truncate_from,
        at_seq=commit.at_seq,
        at_ts_ms=commit.at_ts_ms,
        config=commit.config,
        collected_before_ms=commit.collected_before_ms,
        load=None if commit.load is None else pb.Load(key=commit.load.key, salt=commit.load.salt),
        restored=None if commit.restored is None else _restored_message(commit.restored),
    )
    return wrap(MessageType.COMMIT, serialized(message), commit.form), digest


def with_checkpoint(body: bytes, checkpoint: Checkpoint, key: str) -> bytes:
    """Return the commit in `body` as an object that is a checkpoint too. Raise as `decode_commit` does."""
    decode_commit(body, key)
    message = parse(pb.Commit(), MessageType.COMMIT, body, key, forms.NEWEST)
    message.checkpoint_ts.CopyFrom(timestamp(checkpoint.made_at_ms))
    message.checkpoint.CopyFrom(
        pb.Checkpoint(
            list=checkpoint.views,
            list_hash=checkpoint.views_hash,
            list_length=checkpoint.views_length,
            before_seq=checkpoint.before_seq,
            max_seq=checkpoint.max_seq,
            max_ts_ms=checkpoint.max_ts_ms,
            config=checkpoint.config,
            collected_before_ms=checkpoint.collected_before_ms,
            put_out_ms=checkpoint.put_out_ms,
            load_epoch=checkpoint.load_epoch,
            loaded=[pb.LoadedKey(key=loaded.key, last_seq=loaded.last_seq) for loaded in checkpoint.loaded],
        )
    )
    return wrap(MessageType.COMMIT, serialized(message), version_of(body))


def decode_commit(body: bytes, key: str) -> StoredCommit:
    """Return the commit in `body`, its hash verified. `key` names the object in errors.

    Raise `InvalidObject` and `FormatUnsupported`.
    """
    message = parse(pb.Commit(), MessageType.COMMIT, body, key, forms.NEWEST)
    if message.kind > max(CommitKind):
        raise FormatUnsupported(
            key, f"1 with commits of kind {message.kind}", "kinds up to " + str(int(max(CommitKind)))
        )
    with fields_of(key):
        commit = _commit(message, version_of(body))
        digest = commit_hash(commit)
        checkpoint = _checkpoint(message)
    if message.hash != digest:
        raise InvalidObject(key, "its commit hash does not match its contents")
    return StoredCommit(commit, digest, checkpoint)


def decode_commit_at(body: bytes, vid: Vid, lsn: int) -> StoredCommit:
    """Return the commit of `vid` at `lsn`. Raise `InvalidObject` too if `body` is another volume's or LSN's commit."""
    key = commit_key(vid, lsn)
    stored = decode_commit(body, key)
    if stored.commit.vid != vid or stored.commit.lsn != lsn:
        raise InvalidObject(key, f"it is lsn {stored.commit.lsn} of volume {stored.commit.vid}, in the wrong place")
    return stored


def _commit(message: pb.Commit, form: int) -> Commit:
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
        config=message.config,
        collected_before_ms=message.collected_before_ms if message.HasField("collected_before_ms") else None,
        load=LoadMark(message.load.key, message.load.salt) if message.HasField("load") else None,
        restored=_restored(message.restored) if message.HasField("restored") else None,
        form=form,
    )


def _checkpoint(message: pb.Commit) -> Checkpoint | None:
    if not message.HasField("checkpoint"):
        return None
    checkpoint = message.checkpoint
    views = checkpoint.list if checkpoint.HasField("list") else None
    _sized(checkpoint.list_hash, _HASH_SIZE)
    if views is not None and (len(views) != checkpoint.list_length or blake3(views).digest() != checkpoint.list_hash):
        raise ValueError("the list of its checkpoint does not match its hash")
    return Checkpoint(
        made_at_ms=message.checkpoint_ts.ToMilliseconds(),
        views=views,
        views_hash=checkpoint.list_hash,
        views_length=checkpoint.list_length,
        before_seq=checkpoint.before_seq,
        max_seq=checkpoint.max_seq,
        max_ts_ms=checkpoint.max_ts_ms,
        config=checkpoint.config,
        collected_before_ms=checkpoint.collected_before_ms,
        put_out_ms=checkpoint.put_out_ms,
        load_epoch=checkpoint.load_epoch,
        loaded=tuple(LoadedKey(loaded.key, loaded.last_seq) for loaded in checkpoint.loaded),
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
        live_records=ref.live_records,
    )


def _segment(message: pb.SegmentRef) -> SegmentRef:
    if not 1 <= message.first_seq <= message.last_seq:
        raise ValueError(f"a segment from seq {message.first_seq} to {message.last_seq}")
    if message.live_records > message.last_seq - message.first_seq + 1:
        raise ValueError(f"{message.live_records} live records, from seq {message.first_seq} to {message.last_seq}")
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
        live_records=message.live_records,
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
        pyroaring.BitMap.deserialize(bitmap)
    except (IndexError, ValueError):
        raise ValueError(f"the deletions of segment {sid} are not a Roaring bitmap") from None


def _restored_message(restored: Restored) -> pb.Restored:
    return pb.Restored(
        undone=fork_point_message(restored.undone),
        before_seq=restored.before_seq,
        views=map(_view_message, restored.views),
    )


def _restored(message: pb.Restored) -> Restored:
    return Restored(fork_point(message.undone), message.before_seq, _views(message.views))


# ---------------------------------------------------------------- lists of views


def encode_views(views: Iterable[SegmentView]) -> bytes:
    """Return the list of views as bytes.

    A checkpoint holds them, or an object of its own in the envelope (type SegmentList) does.
    """
    return serialized(pb.SegmentList(views=map(_view_message, views)))


def decode_views(raw: bytes, key: str) -> tuple[SegmentView, ...]:
    """Return the views, ascending, without overlap. Raise `InvalidObject`, which names `key`.

    The caller has compared the hash.
    """
    message = pb.SegmentList()
    try:
        message.ParseFromString(raw)
        return _views(message.views)
    except (protobuf.DecodeError, InvalidKey, ValueError) as cause:
        raise InvalidObject(key, f"its list of segments does not decode: {cause}") from None


def _views(messages: Iterable[pb.SegmentView]) -> tuple[SegmentView, ...]:
    views = tuple(map(_view, messages))
    if any(after.first <= before.last for before, after in itertools.pairwise(views)):
        raise ValueError("its views overlap")
    return views


def _view_message(view: SegmentView) -> pb.SegmentView:
    return pb.SegmentView(
        ref=_segment_message(view.ref),
        vid=view.vid.raw,
        lsn=view.lsn,
        first=view.first,
        last=view.last,
        deleted=view.deleted,
    )


def _view(message: pb.SegmentView) -> SegmentView:
    ref = _segment(message.ref)
    if not ref.first_seq <= message.first <= message.last <= ref.last_seq:
        raise ValueError(f"a view of seq {message.first} to {message.last}")
    deleted = message.deleted if message.HasField("deleted") else None
    if deleted is not None:
        _check_bitmap(ref.sid, deleted)
    return SegmentView(ref, Vid(message.vid), message.lsn, message.first, message.last, deleted)
