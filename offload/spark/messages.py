"""The messages between a Spark driver and its planner process. Protocol version 2.

The driver starts `python -m offload.spark.planner`. Both sides write messages to the standard input of the other. A
message is a length (4 bytes, big-endian), then so many bytes of JSON in UTF-8: one object. JSON from the planner has no
spaces, and its names ascend. A reader passes over names that it does not know.

    from     message
    planner  {"hello": {"protocol": 2, "python": "3.11", "seglog": "0.1.0"}}; its first message
    driver   {"hello": {"protocol": 2, "seglog": "0.1.0"}}; its first message
    driver   {"id": 1, "call": "pin", "options": {NAME: TEXT}}
    planner  {"id": 1, "pin": PIN, "columns": [{"name": "seq", "type": "bigint"}, …]}
    driver   {"id": 2, "call": "plan", "options": …, "pin": PIN, "columns": [NAME, …], "filters": [FILTER, …],
             "limit": 10 or null, "parallelism": 8 or null}
    planner  {"id": 2, "plan": {"bytes": 99, "exact": true, "rows": 9, "segments": 1, "tasks": 2}}
    planner  {"id": 2, "task": TASK}; as many as the plan says, ascending by topic and seq;
             in a feed, by LSN
    driver   {"id": 3, "call": "aggregate", "options": …, "pin": PIN, "filters": […],
             "aggregates": [{"op": "count"}, {"op": "min", "column": "seq"}, {"op": "max", "column": "seq"}]}
    planner  {"id": 3, "values": [9, 1, 9]}; or null in place of the list
    driver   {"id": 4, "call": "stream_latest", "options": …, "start": OFFSET, "target": PIN or null, "limited": true}
    planner  {"id": 4, "offset": OFFSET}
    driver   {"id": 5, "call": "stream_plan", "options": …, "start": OFFSET, "end": OFFSET, "columns": […],
             "filters": […], "limit": null, "parallelism": 8 or null}; the answer is that of a plan
    driver   {"id": 6, "call": "groups", "by": ["topic", "tag"], …}; the rest as in the call "aggregate"
    planner  {"id": 6, "rows": [["orders", null, 3, 1, 7], ["orders", "eu", 6, 2, 9]]}; or null in place of the list
    driver   {"id": 7, "call": "credentials", "options": {}}
    planner  {"id": 7, "credentials": {"access_key": "…", "expires_at_ms": 1700000000000 or null, "secret_key": "…",
             "session_token": "…" or null}}
    driver   {"id": 8, "call": "listing", "of": "tags", "options": …}; see offload.spark.listings
    planner  {"id": 8, "columns": [{"name": "tag", "type": "string"}, …], "parts": 1}
    planner  {"id": 8, "rows": [["audit", …], …]}; as many as the answer has parts
    driver   {"id": 9, "call": "load", "columns": [["value", "string"], …], "options": …}; before the rows are computed
    planner  {"id": 9, "most_value_bytes": 67108749}; or "done": true, if a load with the key is there (LOAD-3)
    planner  {"id": 3, "error": {"type": "NoSuchTopic", "message": "…", "hint": "…" or null}}

`options` are the user's, unparsed. PIN is an object of the planner's own, which the driver hands back unchanged.
`columns` in a plan names the columns that the query needs. The types are Spark's: string, bigint, int, timestamp,
binary. `parallelism` is how many tasks the cluster runs at a time. `rows` counts the rows, and is the exact number if
`exact` is true. Otherwise it is the most that there can be. `bytes` counts the decompressed chunks.

OFFSET is the text of an offset: see offload.spark.offsets. A new stream begins with the text "{}". `target` is a pin:
the newest version that the stream may go to. `limited` tells whether the limits of the options count.

A FILTER is {"column": …, "op": …, "values": […]}. A query's filters all hold at once.

    column      values                   ops
    seq, lsn    integers                 eq in lt le gt ge
    timestamp   microseconds since 1970  eq in lt le gt ge
    topic, tag  texts                    eq in prefix
    any                                  isnull notnull, without values

A TASK is {"pieces": [PIECE, …], "url": the remote, "verify": "chunk", "record" or "none"}. A PIECE has these names:

    topic, lsn         the columns of these names, the same for all rows
    topic_id           the topic id that every frame carries
    segment            the segment's id, as text
    data, index        keys of both objects: the object's URL is url + "/" + key
    codec              "none" or "zstd"
    block_size         bytes of a block: a chunk lies in block offset / block_size + 1
    segment_first_seq  entry id = seq - segment_first_seq
    first, last        the first and the last seq to show
    rows               the number of rows before `filters`
    chunks             base64 of packed chunks, ascending, 56 bytes each, big-endian: number among the segment's chunks
                       (u32), offset (u64), stored length (u32), raw length (u32), first seq (u64), count (u32), least
                       and greatest time in ms (i64, i64), XXH3-64 of the stored bytes (u64)
    chunk_count        the number of chunks of the whole segment
    trailer_offset     the trailer's place in the index object, and its length
    trailer_length
    hidden             null, or base64 of a portable Roaring bitmap of the entry ids not to show
    filters            conditions that each row has to meet. timestamp: ge le in. tag: in prefix isnull notnull
    needs              "data", or "nothing" if the piece answers the query without a read
    change             only in a feed: the columns _change and _lsn, the same for all rows, as in
    change_lsn         offload.spark.change_feed

MSG-1  The rows of a piece are the seqs of its chunks, from `first` to `last`, without the entries in `hidden`.
    Its `filters` then choose among them. A frame that is marked as deleted is no row either.
MSG-2  The tasks give exactly the rows that the query's filters choose. With a limit, they give at least so many rows,
    or all.
MSG-3  A piece whose `needs` is "nothing" has no filters. The reader makes its rows without a read.
    They have topic, seq, lsn, segment, block, and the offset of the chunk.
    If its `change` is delete, truncate or evict, the rows are removals: they have topic, seq, _change and _lsn, and
    null in any other column. Its chunks are then ranges of seqs, and its keys are not for reading.
MSG-4  If `values` or `rows` is null, the planner would have to read too much for the answer (AGG-2): the driver scans.
MSG-5  Each side refuses another protocol number. The planner then answers {"id": null, "error": …} and ends.
MSG-6  An error can come in place of any answer, also after some of the tasks or parts. Then the call has no result.
MSG-7  Only the answer to `credentials` carries credentials: those that boto3 finds for the driver.
    The driver keeps them in memory, and asks again shortly before they expire.

A wrong call gets an error, and the planner reads the next one. A message that is cut or too long ends the planner,
because nothing tells where the next one begins. Golden files in tests/golden/spark hold the bytes.
This module does no I/O of its own.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

from catalog.format.commit import Codec
from offload.errors import OffloadError
from offload.format.block import ChunkRef
from offload.spark.options import Verify
from offload.spark.task import Change, ChangeKind, Filter, Needs, NumberedChunk, Op, Piece, Task
from seglog.base.errors import Misuse

PROTOCOL = 2
MAX_BYTES = 64 * 1024 * 1024

_LENGTH = struct.Struct(">I")
_CHUNK = struct.Struct(">IQIIQIqqQ")
_VALUES: Mapping[Op, int | None] = {Op.IN: None, Op.IS_NULL: 0, Op.NOT_NULL: 0}  # None: any number; otherwise 1
_KINDS: Mapping[str, type] = {"seq": int, "lsn": int, "timestamp": int, "topic": str, "tag": str}
_ORDERS = frozenset({Op.LT, Op.LE, Op.GT, Op.GE})
_AS_IT_IS = (
    "topic", "topic_id", "lsn", "segment", "data", "index", "block_size", "segment_first_seq", "first", "last", "rows",
    "chunk_count", "trailer_offset", "trailer_length",
)  # fmt: skip
_CODECS = {codec.name.lower(): codec for codec in Codec}

Json = dict[str, Any]


class InvalidMessage(Misuse, OffloadError):
    """A message between a Spark driver and its planner process is not one of this version's."""

    reason: str
    hint: str | None = None
    message = "a message of the planner: {reason}"


def encode_message(message: Mapping[str, Any]) -> bytes:
    """Return the message with its length. Raises `InvalidMessage` if it is too long."""
    body = json.dumps(message, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
    if len(body) > MAX_BYTES:
        raise InvalidMessage(f"it has {len(body)} bytes, more than {MAX_BYTES}", hint="lower maxPartitionBytes")
    return _LENGTH.pack(len(body)) + body


def read_message(stream: BinaryIO) -> bytes | None:
    """Return the body of the next message; None if the stream has ended. Raises `InvalidMessage` for a cut one."""
    head = stream.read(_LENGTH.size)
    if not head:
        return None
    if len(head) < _LENGTH.size:
        raise InvalidMessage(f"it ends within its length, after {len(head)} bytes")
    (length,) = _LENGTH.unpack(head)
    if length > MAX_BYTES:
        raise InvalidMessage(f"its length says {length} bytes, more than {MAX_BYTES}")
    body = stream.read(length)
    if len(body) < length:
        raise InvalidMessage(f"it ends after {len(body)} bytes of {length}")
    return body


def decode_message(body: bytes) -> Json:
    """Return the object in `body`. Raises `InvalidMessage`."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidMessage(f"it is no JSON: {error}") from error
    if not isinstance(message, dict):
        raise InvalidMessage("it is no JSON object")
    return message


def encode_filter(condition: Filter) -> Json:
    return {"column": condition.column, "op": condition.op.value, "values": list(condition.values)}


def decode_filter(message: Any) -> Filter:
    """Return the filter in a decoded message. Raises `InvalidMessage`."""
    try:
        column, op, values = message["column"], Op(message["op"]), tuple(message.get("values", ()))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidMessage(f"{message!r} is no filter") from error
    count = _VALUES.get(op, 1)
    if count is not None and len(values) != count:
        raise InvalidMessage(f"{message!r} is a filter with {len(values)} values, not {count}")
    kind = _KINDS.get(column) if isinstance(column, str) else None
    if kind is None or not all(type(value) is kind for value in values):
        raise InvalidMessage(f"{message!r} is a filter on another column or of another type than the planner knows")
    if (op is Op.PREFIX and kind is not str) or (op in _ORDERS and kind is not int):
        raise InvalidMessage(f"{message!r} is a filter that does not fit its column")
    return Filter(column, op, values)


def encode_task(task: Task) -> Json:
    pieces = [_encode_piece(piece) for piece in task.pieces]
    return {"pieces": pieces, "url": task.url, "verify": task.verify.value}


def decode_task(message: Json) -> Task:
    """Return the task in a decoded message. Raises `InvalidMessage`."""
    try:
        pieces = tuple(_decode_piece(piece) for piece in message["pieces"])
        return Task(message["url"], Verify(message["verify"]), pieces)
    except (AttributeError, KeyError, TypeError, ValueError, struct.error, binascii.Error) as error:
        raise InvalidMessage(f"its task does not decode: {error!r}") from error


def _encode_piece(piece: Piece) -> Json:
    return {
        **{name: getattr(piece, name) for name in _AS_IT_IS},
        "codec": piece.codec.name.lower(),
        "chunks": _text(b"".join(_pack(chunk) for chunk in piece.chunks)),
        "hidden": None if piece.hidden is None else _text(piece.hidden),
        "filters": [encode_filter(condition) for condition in piece.filters],
        "needs": piece.needs.value,
        **({} if piece.change is None else {"change": piece.change.kind.value, "change_lsn": piece.change.lsn}),
    }


def _decode_piece(message: Json) -> Piece:
    packed = base64.b64decode(message["chunks"], validate=True)
    return Piece(
        **{name: message[name] for name in _AS_IT_IS},
        codec=_CODECS[message["codec"]],
        chunks=tuple(_unpacked(*fields) for fields in _CHUNK.iter_unpack(packed)),
        hidden=None if message["hidden"] is None else base64.b64decode(message["hidden"], validate=True),
        filters=tuple(decode_filter(condition) for condition in message["filters"]),
        needs=Needs(message["needs"]),
        change=Change(ChangeKind(message["change"]), message["change_lsn"]) if "change" in message else None,
    )


def _pack(chunk: NumberedChunk) -> bytes:
    ref = chunk.ref
    lengths = (ref.offset, ref.stored_length, ref.raw_length)
    return _CHUNK.pack(chunk.number, *lengths, ref.first_seq, ref.count, ref.min_ts_ms, ref.max_ts_ms, ref.xxh3)


def _unpacked(
    number: int, offset: int, stored: int, raw: int, first_seq: int, count: int, min_ts: int, max_ts: int, xxh3: int
) -> NumberedChunk:
    return NumberedChunk(number, ChunkRef(offset, stored, raw, first_seq, first_seq + count - 1, min_ts, max_ts, xxh3))


def _text(body: bytes) -> str:
    return base64.b64encode(body).decode("ascii")
