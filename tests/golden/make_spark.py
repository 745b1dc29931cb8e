"""Writes the golden messages of the planner: `python -m tests.golden.make_spark`.

`spark/*.bin` are messages, with their lengths. The tasks in `plan_answer.bin` read the golden objects beside that
directory: a key in them is the name of a file here. `spark/rows.jsonl` has the rows that the tasks give, in order.
Every reader, in any language, has to decode the tasks, and give exactly these rows.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyroaring import BitMap

from catalog.format.commit import Codec
from offload.format.block import ChunkRef
from offload.format.index import decode_ledger_index
from offload.spark.messages import PROTOCOL, encode_filter, encode_message, encode_task
from offload.spark.options import Verify
from offload.spark.task import Change, ChangeKind, Filter, Needs, NumberedChunk, Op, Piece, Task
from tests.golden.make_offload import DIRECTORY as OBJECTS
from tests.golden.make_offload import SAMPLES

DIRECTORY = OBJECTS / "spark"
URL = "file:///golden"
OPTIONS = {"path": URL, "topic": "orders", "versionasof": "7"}
PIN = {
    "made_at_ms": 1_700_000_000_000,
    "topics": [{"branch": "main", "lsn": 7, "seq": None, "topic": "orders", "vid": "74ggYyz7JdDoDHW5FRqmYc"}],
}
OFFSET = '{"orders@main": {"first_seq": 1001, "lsn": 7, "next_seq": 1046, "vid": "5rMH4TvfXM-3sm2JuJW2wogZ"}}'
CREDENTIALS = {
    "access_key": "key of an example",
    "expires_at_ms": 1_700_000_000_000,
    "secret_key": "secret of an example",
    "session_token": None,
}
COLUMNS = [{"name": "seq", "type": "bigint"}, {"name": "value", "type": "binary"}]
LISTED = [{"name": "tag", "type": "string"}, {"name": "lsn", "type": "bigint"}, {"name": "seq", "type": "bigint"}]
FILTERS = [
    Filter("seq", Op.GE, (1001,)),
    Filter("timestamp", Op.IN, (1_700_000_000_000_000, 1_700_000_000_007_000)),
    Filter("tag", Op.PREFIX, ("gr\u00fc",)),
    Filter("topic", Op.EQ, ("orders",)),
    Filter("tag", Op.NOT_NULL),
]
FIRST_SEQ, FIRST_MS = 1001, 1_700_000_000_000


def _piece(
    codec: Codec, first: int, last: int, hidden: list[int], *filters: Filter, needs: Needs = Needs.DATA
) -> Piece:
    name = f"offload_{codec.name.lower()}"
    index = decode_ledger_index((OBJECTS / f"{name}.index").read_bytes(), name)
    segment = index.segment
    assert segment is not None
    chunks = [NumberedChunk(n, ref) for n, ref in enumerate(segment.chunks) if ref.last_seq >= first]
    return Piece(
        topic="orders",
        topic_id=segment.topic_id,
        lsn=7 if codec is Codec.ZSTD else 8,
        segment="74ggYyz7JeBq2yZEhhLkqM",
        data=f"{name}.data",
        index=f"{name}.index",
        codec=codec,
        block_size=segment.block_size,
        segment_first_seq=FIRST_SEQ,
        first=first,
        last=last,
        rows=last + 1 - first - len(hidden),
        chunks=tuple(chunk for chunk in chunks if chunk.ref.first_seq <= last),
        chunk_count=len(segment.chunks),
        trailer_offset=index.head_length,
        trailer_length=index.index_length - index.head_length,
        hidden=bytes(BitMap(hidden).serialize()) if hidden else None,
        filters=filters,
        needs=needs,
    )


def _without_a_chunk(piece: Piece) -> Piece:
    """Return `piece` without its second chunk, as a planner prunes it."""
    gone = piece.chunks[1]
    kept = (piece.chunks[0], *piece.chunks[2:])
    values = {name: getattr(piece, name) for name in Piece.__slots__}
    return Piece(**(values | {"chunks": kept, "rows": piece.rows - gone.ref.count}))


TASKS = [
    Task(URL, Verify.RECORD, (_piece(Codec.ZSTD, 1001, 1045, [4, 10, 11]), _piece(Codec.NONE, 1003, 1030, [4]))),
    Task(
        URL,
        Verify.CHUNK,
        (
            _without_a_chunk(_piece(Codec.ZSTD, 1002, 1045, [4])),
            _piece(Codec.ZSTD, 1001, 1040, [4], Filter("tag", Op.IN, ("eu", "")), Filter("tag", Op.NOT_NULL)),
            _piece(Codec.NONE, 1001, 1045, [4], Filter("timestamp", Op.GE, (FIRST_MS * 1000 + 5000,))),
            _piece(Codec.NONE, 1001, 1045, [4], Filter("timestamp", Op.LE, (FIRST_MS * 1000 + 5999,))),
            _piece(Codec.ZSTD, 1001, 1045, [4], Filter("timestamp", Op.IN, (FIRST_MS * 1000, FIRST_MS * 1000 + 1))),
            _piece(Codec.ZSTD, 1001, 1045, [4], Filter("tag", Op.PREFIX, ("gr\u00fc",))),
            _piece(Codec.NONE, 1001, 1020, [4], Filter("tag", Op.IS_NULL)),
        ),
    ),
    Task(URL, Verify.NONE, (_piece(Codec.ZSTD, 1004, 1045, [4, 44], needs=Needs.NOTHING),)),
]
FEED = Task(
    URL,
    Verify.RECORD,
    (
        replace(_piece(Codec.ZSTD, 1001, 1045, [4]), change=Change(ChangeKind.APPEND, 7)),
        replace(
            _piece(Codec.ZSTD, 1002, 1045, [4], needs=Needs.NOTHING),
            chunks=(NumberedChunk(0, ChunkRef(0, 0, 0, 1002, 1045, min_ts_ms=0, max_ts_ms=0, xxh3=0)),),
            chunk_count=0,
            change=Change(ChangeKind.TRUNCATE, 8),
        ),
    ),
)


def rows(task: Task) -> Iterator[dict[str, Any]]:
    """Yield the rows of a task, from the samples: a second opinion on what the messages mean."""
    for piece in task.pieces:
        hidden = BitMap.deserialize(piece.hidden) if piece.hidden else BitMap()
        for chunk in piece.chunks:
            for seq in range(max(piece.first, chunk.ref.first_seq), min(piece.last, chunk.ref.last_seq) + 1):
                sample = SAMPLES[seq - FIRST_SEQ]
                micros = (FIRST_MS + (seq - FIRST_SEQ) // 2) * 1000
                if seq - FIRST_SEQ in hidden or not all(_meets(f, micros, sample.tag) for f in piece.filters):
                    continue
                row = {"topic": piece.topic, "seq": seq, "lsn": piece.lsn}
                if piece.needs is Needs.DATA:
                    value = base64.b64encode(sample.value).decode()
                    row |= {"timestamp": micros, "node": sample.node, "tag": sample.tag, "value": value}
                yield row


def _meets(condition: Filter, micros: int, tag: str | None) -> bool:
    found = micros if condition.column == "timestamp" else tag
    match condition.op:
        case Op.IS_NULL:
            return found is None
        case Op.NOT_NULL:
            return found is not None
        case Op.IN:
            return found in condition.values
        case Op.GE:
            return found >= condition.values[0]  # type: ignore[operator]
        case Op.LE:
            return found <= condition.values[0]  # type: ignore[operator]
        case Op.PREFIX:
            return isinstance(found, str) and found.startswith(str(condition.values[0]))
        case _:
            raise AssertionError(f"a piece has no filter {condition.op}")


def messages() -> dict[str, list[dict[str, Any]]]:
    """Return the messages of each golden file."""
    counts = {"tasks": len(TASKS), "segments": 2, "exact": all(task.is_exact for task in TASKS)}
    header = {"rows": sum(task.rows for task in TASKS), "bytes": sum(task.raw_bytes for task in TASKS)}
    filters = [encode_filter(condition) for condition in FILTERS]
    call = {"options": OPTIONS, "pin": PIN, "filters": filters}
    aggregates = [{"op": "count"}, {"op": "min", "column": "seq"}, {"op": "max", "column": "seq"}]
    plan = call | {"id": 2, "call": "plan", "columns": ["seq", "value"], "limit": None, "parallelism": 8}
    stream_plan = plan | {"id": 5, "call": "stream_plan", "start": "{}", "end": OFFSET}
    del stream_plan["pin"]
    error = {"type": "NoSuchTopic", "message": "no topic orders", "hint": None}
    return {
        "planner_hello": [{"hello": {"protocol": PROTOCOL, "python": "3.11", "seglog": "0.1.0"}}],
        "driver_hello": [{"hello": {"protocol": PROTOCOL, "seglog": "0.1.0"}}],
        "pin_call": [{"id": 1, "call": "pin", "options": OPTIONS}],
        "pin_answer": [{"id": 1, "pin": PIN, "columns": COLUMNS}],
        "plan_call": [plan],
        "plan_answer": [{"id": 2, "plan": counts | header}, *({"id": 2, "task": encode_task(t)} for t in TASKS)],
        "aggregate_call": [call | {"id": 3, "call": "aggregate", "aggregates": aggregates}],
        "aggregate_answer": [{"id": 3, "values": [9, 1, 9]}],
        "aggregate_unknown": [{"id": 3, "values": None}],
        "stream_latest_call": [
            {"id": 4, "call": "stream_latest", "options": OPTIONS, "start": "{}", "target": PIN, "limited": True}
        ],
        "stream_latest_answer": [{"id": 4, "offset": OFFSET}],
        "stream_plan_call": [stream_plan],
        "stream_plan_answer": [
            {"id": 5, "plan": counts | {"tasks": 1, "rows": TASKS[2].rows, "bytes": TASKS[2].raw_bytes}},
            {"id": 5, "task": encode_task(TASKS[2])},
        ],
        "groups_call": [call | {"id": 6, "call": "groups", "by": ["topic", "tag"], "aggregates": aggregates}],
        "groups_answer": [{"id": 6, "rows": [["orders", None, 3, 1, 7], ["orders", "eu", 6, 2, 9]]}],
        "groups_unknown": [{"id": 6, "rows": None}],
        "credentials_call": [{"id": 7, "call": "credentials", "options": {}}],
        "credentials_answer": [{"id": 7, "credentials": CREDENTIALS}],
        "listing_call": [{"id": 8, "call": "listing", "of": "tags", "options": {"path": URL, "topic": "orders"}}],
        "listing_answer": [
            {"id": 8, "columns": LISTED, "parts": 2},
            {"id": 8, "rows": [["audit", 7, None]]},
            {"id": 8, "rows": [["before", 3, 17]]},
        ],
        "load_call": [{"id": 9, "call": "load", "columns": {"value": "string"}, "options": OPTIONS}],
        "load_answer": [{"id": 9, "most_value_bytes": 66847494}],
        "feed_answer": [
            {"id": 9, "plan": counts | {"tasks": 1, "rows": FEED.rows, "bytes": FEED.raw_bytes}},
            {"id": 9, "task": encode_task(FEED)},
        ],
        "error": [{"id": 2, "error": error}],
    }


if __name__ == "__main__":
    DIRECTORY.mkdir(exist_ok=True)
    for name, found in messages().items():
        (DIRECTORY / f"{name}.bin").write_bytes(b"".join(map(encode_message, found)))
    lines = [json.dumps(row, ensure_ascii=False, sort_keys=True) for task in TASKS for row in rows(task)]
    Path(DIRECTORY / "rows.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
