"""Test a task's work without Spark: tasks as the planner makes them, and their batches."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from catalog.errors import NoSuchObject
from catalog.format.commit import Codec
from catalog.format.keys import data_key, index_key
from offload.errors import InvalidChunk, InvalidIndex
from offload.spark.options import ReadOptions, parse_options
from offload.spark.query_plan import pin
from offload.spark.scan import scan
from offload.spark.source import SeglogReader, schema_of
from offload.spark.task import Needs
from tests.golden.make_spark import DIRECTORY, TASKS
from tests.offload.samples import Sample
from tests.offload.spark.archives import TopicArchive
from tests.offload.spark.queries import arrow_schema, planned


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "remote").as_uri()


def options_of(url: str, **more: str) -> ReadOptions:
    return parse_options({"path": url, "topic": "orders", **more})


def batches(url: str, **more: str) -> list[pa.RecordBatch]:
    options = options_of(url, **more)
    return [batch for task in planned(options).tasks for batch in scan(task, arrow_schema(options))]


def seqs(url: str) -> list[int]:
    return [seq for batch in batches(url) for seq in batch["seq"].to_pylist()]


@pytest.mark.parametrize("codec", Codec)
def test_every_batch_has_exactly_the_schema_that_spark_checks_only_once(url: str, codec: Codec):
    TopicArchive(url).add([Sample(b"v" * 90, "t" if n % 2 else None) for n in range(100)], codec)
    found = batches(url)
    assert len(found) > 5
    wanted = arrow_schema(options_of(url))
    assert all(batch.schema.equals(wanted, check_metadata=True) for batch in found)
    assert all(batch.validate(full=True) is None for batch in found)


def test_no_empty_batch_comes_of_a_chunk_whose_records_are_all_deleted(url: str):
    archive = TopicArchive(url)
    ref = archive.add([Sample(b"v" * 90)] * 100)
    archive.delete(ref, range(20, 80))
    assert seqs(url) == [*range(1, 21), *range(81, 101)]
    assert all(len(batch) for batch in batches(url))


@pytest.mark.long
def test_a_long_trailer_is_read_in_parts(url: str):
    # These lengths do not compress. The trailer outgrows the first read, so a task fetches its own part.
    sizes = [(n * 7919) % 997 for n in range(45_000)]
    archive = TopicArchive(url)
    ref = archive.add([Sample(bytes(size)) for size in sizes], block_size=1 << 24, chunk_bytes=1 << 16)
    assert ref.index_trailer_length > 64 * 1024
    assert [len(value) for batch in batches(url) for value in batch["value"].to_pylist()] == sizes


def test_sparks_stand_in_for_no_partitions_reads_as_nothing(url: str):
    TopicArchive(url).add([Sample(b"a")])
    options = options_of(url)
    reader = SeglogReader(options, pin(options), StructType(schema_of(options).fields))
    assert list(reader.read(InputPartition(None))) == []


def _damage(path: Path, position: int) -> None:
    body = bytearray(path.read_bytes())
    body[position] ^= 1
    path.write_bytes(body)


def test_damage_is_an_error_with_the_objects_key(url: str):
    archive = TopicArchive(url)
    ref = archive.add([Sample(b"v" * 90)] * 100)
    root = Path(url.removeprefix("file://"))
    data, index = data_key(archive.vid, ref.sid), index_key(archive.vid, ref.sid)

    _damage(root / data, 140)
    with pytest.raises(InvalidChunk, match=str(data)):
        batches(url)
    _damage(root / data, 140)

    _damage(root / index, ref.index_head_length + 12)
    with pytest.raises(InvalidIndex, match=str(index)):
        batches(url)
    _damage(root / index, ref.index_head_length + 12)

    _damage(root / index, 40)
    with pytest.raises(InvalidIndex, match="the hash differs"):
        planned(options_of(url))
    _damage(root / index, 40)
    assert len(seqs(url)) == 100


def test_a_missing_data_object_is_an_error_unless_the_query_needs_none(url: str):
    archive = TopicArchive(url)
    ref = archive.add([Sample(b"v"), Sample(b"", deleted=True), Sample(b"v", "eu")])
    (Path(url.removeprefix("file://")) / data_key(archive.vid, ref.sid)).unlink()
    for options in ({}, {"columns": "seq", "verify": "record"}, {"columns": "seq,tag"}):
        with pytest.raises(NoSuchObject):
            batches(url, **options)
    for options, rows in (({}, [1, 3]), ({"tag": "eu"}, [3]), ({"verify": "chunk", "startingSeq": "2"}, [3])):
        found = [row for batch in batches(url, columns="lsn,seq,topic", **options) for row in batch.to_pylist()]
        assert found == [{"lsn": 1, "seq": seq, "topic": "orders"} for seq in rows]


def test_the_golden_tasks_give_the_golden_rows():
    wanted = [json.loads(line) for line in (DIRECTORY / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    found: list[dict[str, object]] = []
    for task in TASKS:
        here = replace(task, url=DIRECTORY.parent.as_uri())
        is_plain = any(piece.needs is Needs.NOTHING for piece in task.pieces)
        schema = arrow_schema(options_of("file:///x"), ["topic", "seq", "lsn"] if is_plain else None)
        for row in (row for batch in scan(here, schema) for row in batch.to_pylist()):
            if not is_plain:
                row["timestamp"] = round(row["timestamp"].timestamp() * 1_000_000)
                row["value"] = base64.b64encode(row["value"]).decode()
            found.append(row)
    assert found == wanted


def test_each_level_of_checks_sees_the_damage_that_it_looks_for(url: str):
    archive = TopicArchive(url)
    ref = archive.add([Sample(b"v" * 90)] * 100, Codec.NONE)
    _damage(Path(url.removeprefix("file://")) / data_key(archive.vid, ref.sid), 200)  # within a value
    for level in ("record", "chunk"):
        with pytest.raises(InvalidChunk, match="its checksum does not match"):
            batches(url, verify=level)
    found = [value for batch in batches(url, verify="none") for value in batch["value"].to_pylist()]
    assert [len(value) for value in found] == [90] * 100
    assert sum(value != b"v" * 90 for value in found) == 1


def test_damaged_lengths_in_a_chunk_are_an_error_at_every_level(url: str):
    archive = TopicArchive(url)
    ref = archive.add([Sample(b"v" * 90)] * 100, Codec.NONE)
    path = Path(url.removeprefix("file://")) / data_key(archive.vid, ref.sid)
    for position in range(128, 128 + 12 + 30):
        body = path.read_bytes()
        _damage(path, position)
        try:
            found = [value for batch in batches(url, verify="none") for value in batch["value"].to_pylist()]
        except InvalidChunk:
            continue
        else:
            assert sum(map(len, found)) <= 100 * 90
        finally:
            path.write_bytes(body)
