"""Rows of Arrow as frames: every column, times, labels, and the rows that are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from offload.errors import InvalidOption
from offload.load import InvalidRow
from offload.spark.row_frames import RowFrames, check_columns
from seglog import Record
from seglog.format.frame import read_header, record_of
from seglog.format.frames import Frames, take_apart

START_MS, NEWEST_MS = 1_700_000_000_000, 1_600_000_000_000


def batch(**columns: Sequence[Any]) -> pa.RecordBatch:
    kinds = {"timestamp": pa.timestamp("us", tz="Asia/Kathmandu"), "seq": pa.int64(), "value": pa.binary()}
    arrays = [pa.array(values, kinds.get(name, pa.string())) for name, values in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def found(*batches: pa.RecordBatch, next_seq: int = 5) -> list[Record]:
    maker = RowFrames("orders", next_seq, START_MS, NEWEST_MS)
    records: list[Record] = []
    for frames in maker.frames(batches):
        whole = list(frames)
        again = take_apart(whole)  # each frame is whole and valid
        assert again.bodies == frames.bodies
        assert (again.headers == frames.headers).all()
        assert (again.checksums == frames.checksums).all()
        records += [record_of(frame, 0, read_header(frame)) for frame in whole]
    return records


def test_each_column_becomes_a_part_of_the_record() -> None:
    records = found(
        batch(
            tag=["a", None, ""], value=[b"one", b"", b"\x00" * 300], node=[None, "n", "ü"],
            timestamp=[NEWEST_MS * 1000, NEWEST_MS * 1000 + 999, None], seq=[5, 6, 7], topic=["orders"] * 3,
        ),
        batch(value=[b"next"]),
    )  # fmt: skip
    assert records == [
        Record(5, NEWEST_MS, b"one", "a", None),
        Record(6, NEWEST_MS, b"", None, "n"),
        Record(7, START_MS, b"\x00" * 300, "", "ü"),
        Record(8, START_MS, b"next"),
    ]


def test_the_case_of_a_name_does_not_count_and_a_column_of_nulls_is_absent() -> None:
    check_columns([("Value", "binary"), ("TAG", "void"), ("timestamp", "void")])
    columns = [pa.array([b"one"], pa.binary()), pa.nulls(1), pa.nulls(1)]
    rows = pa.RecordBatch.from_arrays(columns, names=["Value", "TAG", "timestamp"])
    assert found(rows) == [Record(5, START_MS, b"one")]
    with pytest.raises(InvalidOption, match="two columns have the same name"):
        check_columns([("value", "binary"), ("Value", "binary")])
    with pytest.raises(InvalidOption, match="two columns have the same name"):
        check_columns([("value", "binary"), ("tag", "string"), ("tag", "string")])


def test_a_first_row_before_1970_is_refused_for_that() -> None:
    maker = RowFrames("orders", 1, START_MS, 0)
    with pytest.raises(InvalidRow, match="timestamp is before 1970"):
        list(maker.frames([batch(value=[b"a", b"b"], timestamp=[-1, 0])]))


def test_strings_are_values_too_and_slices_and_empty_batches_are_taken() -> None:
    texts = pa.RecordBatch.from_arrays([pa.array(["a", "ü", "c"])], names=["value"])
    assert [record.value for record in found(texts.slice(1), texts.slice(0, 0))] == ["ü".encode(), b"c"]


def test_large_values_are_taken_some_at_a_time() -> None:
    maker = RowFrames("orders", 1, START_MS, NEWEST_MS)
    sizes = [
        len(frames) for frames in maker.frames([batch(value=[bytes(3 << 20)] * 3 + [b"x"] * 5 + [bytes(9 << 20)])])
    ]
    assert sizes == [1, 1, 6, 1]
    assert maker.next_seq == 10


@pytest.mark.parametrize(
    ("columns", "seq", "message"),
    [
        ({"value": [b"a", None]}, 6, "value is null"),
        ({"value": [b"a", b"b"], "seq": [5, 5]}, 6, "seq is not the seq"),
        ({"value": [b"a"], "seq": [None]}, 5, "seq is not the seq"),
        ({"value": [b"a", b"b"], "topic": ["orders", "events"]}, 6, "topic is not orders"),
        ({"value": [b"a"], "topic": [None]}, 5, "topic is not orders"),
        ({"value": [b"a", b"b"], "tag": [None, "x" * 65_536]}, 6, "tag has more than 65535 bytes"),
        ({"value": [b"a", b"b"], "node": ["ü" * 40_000, None]}, 5, "node has more than 65535 bytes"),
        ({"value": [b"a"], "timestamp": [NEWEST_MS * 1000 - 1]}, 5, "timestamp is before"),
        ({"value": [b"a", b"b"], "timestamp": [None, NEWEST_MS * 1000]}, 6, "timestamp is before"),
    ],
)
def test_a_row_that_no_record_can_hold_is_refused(columns: dict[str, Any], seq: int, message: str) -> None:
    with pytest.raises(InvalidRow, match=message) as refusal:
        found(batch(**columns))
    assert refusal.value.seq == seq


def test_times_may_stand_still_and_do_not_fall_from_one_batch_to_the_next() -> None:
    later = batch(value=[b"a", b"b"], timestamp=[START_MS * 1000 + 2000] * 2)
    assert {record.ts_ms for record in found(later, later)} == {START_MS + 2}
    with pytest.raises(InvalidRow, match="timestamp is before"):
        found(later, batch(value=[b"c"]))


def test_a_large_batch_has_dense_seqs() -> None:
    records = found(batch(value=[b"%d" % n for n in range(10_000)]), next_seq=1)
    assert np.array_equal([record.seq for record in records], np.arange(1, 10_001))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "there is no column value"),
        ({"value": "int"}, "value is int"),
        ({"value": "void"}, "value is null in each row"),
        ({"value": "string", "lsn": "bigint"}, "no record has a column lsn"),
        ({"value": "string", "timestamp": "timestamp_ntz"}, "timestamp is timestamp_ntz"),
    ],
)
def test_a_schema_that_no_record_can_hold_is_refused(columns: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        check_columns([*columns.items()])


@pytest.mark.parametrize("kind", [pa.binary(), pa.string()])
def test_a_value_is_as_long_as_a_block_takes_and_no_longer(kind: pa.DataType) -> None:
    def frames(*values: str) -> list[Frames]:
        rows = pa.RecordBatch.from_arrays([pa.array(values, kind)], names=["value"])
        return list(RowFrames("orders", 5, START_MS, NEWEST_MS, most_value_bytes=4).frames([rows]))

    assert len(frames("four", "", "üü")) == 1
    too_long = r"record 6: value has more than 4 bytes, with tag and node; nothing was written"
    with pytest.raises(InvalidRow, match=too_long) as caught:
        frames("four", "üüü")
    assert caught.value.hint == "split it, or keep it elsewhere and write its place"
    labelled = pa.RecordBatch.from_pydict({"value": ["a", "abc"], "tag": [None, "t"], "node": ["nnn", None]})
    for most, match in ((4, ""), (3, r"record 5: value has more than 3 bytes")):
        maker = RowFrames("orders", 5, START_MS, NEWEST_MS, most_value_bytes=most)
        if match:
            with pytest.raises(InvalidRow, match=match):
                list(maker.frames([labelled]))
        else:
            assert len(list(maker.frames([labelled]))) == 1
