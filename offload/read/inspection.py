"""Descriptions of seglog's files and objects as plain values, for people and for `seglog inspect`.

The first bytes identify an envelope, an index object or a data object. The name identifies a file of the log. Objects
of Apache Pulsar have the same magic words and are described too. This module does no I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import PurePath
from typing import Any

from pyroaring import BitMap

from catalog.format.commit import Deletions
from catalog.format.encoding import decode_commit
from catalog.format.envelope import HEADER as ENVELOPE
from catalog.format.envelope import MAGIC as ENVELOPE_MAGIC
from catalog.format.envelope import MessageType
from catalog.format.ids import Gid
from catalog.format.small_objects import decode_control, decode_fork, decode_ref
from offload.format.block import BLOCK_MAGIC, BlockHeader, decode_block_header
from offload.format.index import MAGIC as INDEX_MAGIC
from offload.format.index import decode_ledger_index
from offload.format.streamed import BLOCK_MAGIC as STREAMED_BLOCK_MAGIC
from offload.format.streamed import MAGIC as STREAMED_MAGIC
from offload.format.streamed import StreamedBlockHeader, decode_streamed_block_header, decode_streamed_index
from seglog.base.errors import Misuse
from seglog.errors import InvalidFrame
from seglog.format.frame import FrameType, read_header
from seglog.format.index import read_entries
from seglog.values.layout import number_in

_BLOCK_MAGICS = {magic.to_bytes(4, "big") for magic in BLOCK_MAGIC.values()}
_INDEX_MAGIC = INDEX_MAGIC.to_bytes(4, "big")
_STREAMED_MAGIC = STREAMED_MAGIC.to_bytes(4, "big")
_STREAMED_BLOCK_MAGIC = STREAMED_BLOCK_MAGIC.to_bytes(4, "big")
_DECODERS = {
    MessageType.CONTROL: decode_control,
    MessageType.FORK: decode_fork,
    MessageType.COMMIT: decode_commit,
    MessageType.REF: decode_ref,
}


def inspect_bytes(body: bytes, source: str) -> dict[str, Any]:
    """Return the contents of `body` as JSON values. `source` is the file or key that the caller read.

    Raises `Misuse`, and what the decoder raises.
    """
    magic = body[:4]
    name = PurePath(source).name
    if magic[:3] == ENVELOPE_MAGIC[:3]:
        return _envelope(body, source)
    if magic == _INDEX_MAGIC:
        return _index(body, source)
    if magic == _STREAMED_MAGIC:
        return _streamed_index(body, source)
    if magic == _STREAMED_BLOCK_MAGIC:
        return _data_object("streamed data object", body, source, decode_streamed_block_header)
    if magic in _BLOCK_MAGICS:
        return _data_object("data object", body, source, decode_block_header)
    if (first_seq := number_in("idx", name)) is not None:
        return _idx(body, first_seq)
    if number_in("data", name) is not None or number_in("wal", name) is not None:
        return _frames(body)
    hint = "name a file below topics/ or wal/, or an object: s3://bucket/key, file:///path/to/object"
    raise Misuse(f"{source} is not a file or object of seglog", hint=hint)


def _envelope(body: bytes, source: str) -> dict[str, Any]:
    kind = ENVELOPE.unpack_from(body.ljust(ENVELOPE.size, b"\0"))[2]
    # Decode an unknown type as a Control: the decoder's error names the type that it found.
    message_type = MessageType(kind) if kind in list(MessageType) else MessageType.CONTROL
    value = _plain(_DECODERS[message_type](body, source))
    return {"kind": message_type.name.lower(), **value}


def _index(body: bytes, source: str) -> dict[str, Any]:
    index = decode_ledger_index(body, source)
    ledger = index.ledger
    described: dict[str, Any] = {
        "kind": "index object",
        "bytes": index.index_length,
        "head_bytes": index.head_length,
        "trailer_bytes": index.index_length - index.head_length,
        "bytes_behind_it": len(body) - index.index_length,
        "data_bytes": index.data_length,
        "ledger": {"length": ledger.length, "last_entry_id": ledger.last_entry_id, "ctime_ms": ledger.ctime},
        "entries": _plain(index.entries),
    }
    if index.segment is not None:
        segment = _plain(index.segment)
        segment["live"] = len(BitMap.deserialize(index.segment.live))
        tags = index.segment.tags
        segment["tags"] = None if tags is None else {tag: len(BitMap.deserialize(bits)) for tag, bits in tags.items()}
        described["segment"] = segment
    return described


def _streamed_index(body: bytes, source: str) -> dict[str, Any]:
    index = decode_streamed_index(body, source)
    return {
        "kind": "streamed index object",
        "bytes": index.index_length,
        "bytes_behind_it": len(body) - index.index_length,
        "data_bytes": index.data_length,
        "ledgers": [
            {
                "ledger_id": ledger.ledger_id,
                "entries_in_all": ledger.info.entries,
                "length_in_all": ledger.info.size,
                "timestamp_ms": ledger.info.timestamp,
                "entries": _plain(ledger.entries),
            }
            for ledger in index.ledgers
        ],
    }


def _data_object(
    kind: str, body: bytes, source: str, decode: Callable[[bytes, str, int], BlockHeader | StreamedBlockHeader]
) -> dict[str, Any]:
    """Describe a data object by the headers of its blocks."""
    blocks: list[dict[str, Any]] = []
    offset = 0
    while offset < len(body):
        header = decode(body[offset : offset + 128], source, offset)
        blocks.append({"offset": offset, **_plain(header)})
        offset += header.length
    return {"kind": kind, "bytes": len(body), "blocks": blocks}


def _idx(body: bytes, first_seq: int) -> dict[str, Any]:
    entries = read_entries(body, first_seq)
    return {
        "kind": "segment idx",
        "records": len(entries),
        "entries": [{"seq": seq, **entry._asdict()} for seq, entry in enumerate(entries, first_seq)],
    }


def _frames(body: bytes) -> dict[str, Any]:
    """Describe the frames from the start up to the first unsound frame."""
    counts: Counter[str] = Counter()
    offset, reason = 0, None
    first = last = None
    while offset < len(body):
        try:
            header = read_header(body, offset)
        except InvalidFrame as error:
            reason = "zeros: reserved space" if not any(body[offset:]) else error.reason
            break
        kind = FrameType(header.type)
        counts[kind.name.lower()] += 1
        if kind is FrameType.APPEND:
            first, last = first or header.seq, header.seq
        offset += header.frame_bytes
    return {
        "kind": "frames",
        "bytes": len(body),
        "sound_bytes": offset,
        "what_follows": reason,
        "frames": dict(counts),
        "first_append_seq": first,
        "last_append_seq": last,
    }


def _plain(value: Any) -> Any:
    """Return a value of seglog as JSON has it: ids as text, bytes as hex, bitmaps as their size."""
    match value:
        case Gid():
            return str(value)
        case Enum():
            return value.name.lower()
        case bytes():
            return value.hex()
        case Deletions():
            bitmaps = {str(sid): len(BitMap.deserialize(bits)) for sid, bits in value.bitmaps.items()}
            return {"before_seq": value.before_seq, "records_by_sid": bitmaps}
        case tuple() | list():
            return [_plain(item) for item in value]
        case _ if is_dataclass(value):
            return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        case _:
            return value
