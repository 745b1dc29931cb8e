from __future__ import annotations

import io
import json
from typing import Any

import pytest

from offload.spark.messages import (
    MAX_BYTES,
    InvalidMessage,
    decode_filter,
    decode_message,
    decode_task,
    encode_filter,
    encode_message,
    encode_task,
    read_message,
)
from offload.spark.offsets import decode_offset, offset_text
from offload.spark.task import Filter, Op
from tests.golden.make_spark import DIRECTORY, FEED, FILTERS, OFFSET, TASKS, messages, rows


def golden(name: str) -> list[dict[str, Any]]:
    stream = io.BytesIO((DIRECTORY / f"{name}.bin").read_bytes())
    return [decode_message(body) for body in iter(lambda: read_message(stream), None)]


@pytest.mark.parametrize("name", messages())
def test_old_messages_are_read_and_are_still_written_so(name: str):
    assert golden(name) == messages()[name]
    assert b"".join(map(encode_message, messages()[name])) == (DIRECTORY / f"{name}.bin").read_bytes()


def test_old_tasks_are_read():
    for name, expected in (("plan_answer", TASKS), ("feed_answer", [FEED])):
        _, *tasks = golden(name)
        assert [decode_task(message["task"]) for message in tasks] == expected
        assert [encode_task(task) for task in expected] == [message["task"] for message in tasks]


def test_old_filters_are_read():
    [call] = golden("plan_call")
    assert [decode_filter(found) for found in call["filters"]] == FILTERS


def test_old_offsets_are_read_and_are_still_written_so():
    [answer] = golden("stream_latest_answer")
    assert offset_text(decode_offset(answer["offset"])) == answer["offset"] == OFFSET


def test_the_golden_rows_are_those_that_the_messages_mean():
    lines = (DIRECTORY / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [row for task in TASKS for row in rows(task)]


def test_a_message_cut_at_any_length_is_refused():
    whole = encode_message({"id": 1, "call": "pin"})
    assert read_message(io.BytesIO(whole)) == whole[4:]
    assert read_message(io.BytesIO(b"")) is None
    for length in range(1, len(whole)):
        with pytest.raises(InvalidMessage, match="it ends"):
            read_message(io.BytesIO(whole[:length]))


def test_a_length_beyond_the_limit_is_refused_before_memory_is_taken():
    with pytest.raises(InvalidMessage, match="4294967295 bytes"):
        read_message(io.BytesIO(b"\xff\xff\xff\xff{}"))
    with pytest.raises(InvalidMessage, match=f"more than {MAX_BYTES}"):
        encode_message({"a": "x" * MAX_BYTES})


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"7", b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_json_object_is_refused(body: bytes):
    with pytest.raises(InvalidMessage, match="JSON"):
        decode_message(body)


@pytest.mark.parametrize(
    "found",
    [
        None,
        {},
        {"column": "seq", "op": "eq"},
        {"column": "seq", "op": "eq", "values": [1, 2]},
        {"column": "seq", "op": "eq", "values": ["1"]},
        {"column": "seq", "op": "eq", "values": [True]},
        {"column": "seq", "op": "prefix", "values": [1]},
        {"column": "seq", "op": "isnull", "values": [1]},
        {"column": "tag", "op": "le", "values": ["a"]},
        {"column": "value", "op": "eq", "values": ["a"]},
        {"column": [], "op": "eq", "values": ["a"]},
        {"column": "tag", "op": "like", "values": ["a"]},
    ],
)
def test_a_filter_that_the_planner_does_not_know_is_refused(found: Any):
    with pytest.raises(InvalidMessage, match="filter"):
        decode_filter(found)


def test_every_filter_survives():
    for condition in [*FILTERS, Filter("tag", Op.IN, ()), Filter("lsn", Op.LT, (-(2**63),))]:
        assert decode_filter(json.loads(json.dumps(encode_filter(condition)))) == condition


def test_a_task_with_any_name_missing_or_of_another_type_is_refused():
    [first, *_] = [encode_task(task) for task in TASKS]
    for name in first["pieces"][0]:
        pieces = [{key: value for key, value in first["pieces"][0].items() if key != name}]
        with pytest.raises(InvalidMessage, match=name):
            decode_task({**first, "pieces": pieces})
    for name, value in (("chunks", "AAAA"), ("chunks", "*"), ("codec", "lz4"), ("hidden", 5), ("needs", "lengths")):
        with pytest.raises(InvalidMessage):
            decode_task({**first, "pieces": [{**first["pieces"][0], name: value}]})
    with pytest.raises(InvalidMessage, match="verify"):
        decode_task({name: value for name, value in first.items() if name != "verify"})
