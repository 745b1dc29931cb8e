"""Apache Pulsar's own reader reads, over HTTP, objects that our archive offloaded."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from pathlib import Path

import boto3
import pytest

import offload
import seglog
from catalog.format import keys
from offload.format.index import ENTRY, HEADER, MAGIC
from offload.settings import MIN_BLOCK_SIZE, OffloadSettings
from seglog import LogSettings
from tests.interop.judge import Answer, Judge, JudgeRefused
from tests.s3_server import AS_HARNESS

pytestmark = [pytest.mark.pulsar, pytest.mark.timeout(600)]

MIB = 1 << 20
SIZES = [size * 1000 for size in random.Random(3).choices(range(50), k=260)]


@dataclass(frozen=True, slots=True)
class Offloaded:
    """A topic in a bucket. `frames` are the expected contents of its entries, in order."""

    bucket: str
    data_key: str
    index_key: str
    frames: tuple[bytes, ...]

    def expected(self) -> list[dict[str, object]]:
        return [
            {"id": number, "length": len(frame) - 4, "sha256": hashlib.sha256(frame[4:]).hexdigest()}
            for number, frame in enumerate(self.frames)
        ]


def offloaded(path: Path, remote: str, codec: str, sizes: list[int], *, block_size: int = MIN_BLOCK_SIZE) -> Offloaded:
    """Append records of the given sizes and offload them as one data object."""
    noise = random.Random(5).randbytes(max(sizes) + len(sizes))
    with (
        seglog.open(path, settings=LogSettings(max_record_bytes=MIB)) as log,
        offload.attach(
            log, remote, settings=offload.Settings().with_parts(OffloadSettings(codec=codec, block_size=block_size))
        ) as archive,
    ):
        orders = log.topic("orders")
        for number, size in enumerate(sizes):
            orders.append([noise[number : number + size]], tag="eu" if number % 3 else None, node="n1")
        orders.seal()
        frames = tuple(orders.inner.frames(1, len(sizes)))
        archive.offload("orders")
        [view] = archive.history.snapshot("orders").segments
    bucket, _, prefix = remote.removeprefix("s3://").partition("/")
    data_key, index_key = keys.data_key(view.vid, view.ref.sid), keys.index_key(view.vid, view.ref.sid)
    return Offloaded(bucket, f"{prefix}/{data_key}", f"{prefix}/{index_key}", frames)


def read(judge: Judge, made: Offloaded, order: str, *, index_key: str | None = None) -> Answer:
    return judge.ask("read", made.bucket, made.data_key, index_key or made.index_key, MIB, order)


def with_block_entries_alone(made: Offloaded, block_size: int) -> str:
    """Put an index object beside ours, with one entry for each block as Pulsar itself writes it. Return its key."""
    client = boto3.client("s3", **AS_HARNESS)
    got = client.get_object(Bucket=made.bucket, Key=made.index_key)
    body = got["Body"].read()
    _, _, data_length, header_length, count, ledger_length = HEADER.unpack_from(body)
    ledger_end = HEADER.size + ledger_length
    dense = list(ENTRY.iter_unpack(body[ledger_end : ledger_end + ENTRY.size * count]))
    kept = b"".join(ENTRY.pack(*entry) for entry in dense if entry[2] % block_size == 0)
    assert len(kept) < ENTRY.size * len(dense)
    header = HEADER.pack(
        MAGIC, ledger_end + len(kept), data_length, header_length, len(kept) // ENTRY.size, ledger_length
    )
    key = f"{made.index_key}-sparse"
    client.put_object(
        Bucket=made.bucket, Key=key, Body=header + body[HEADER.size : ledger_end] + kept, Metadata=got["Metadata"]
    )
    client.close()
    return key


def test_it_reads_every_entry_forwards_backwards_and_at_random(judge: Judge, s3_remote: str, tmp_path: Path) -> None:
    made = offloaded(tmp_path, s3_remote, "none", SIZES)
    assert sum(map(len, made.frames)) > MIN_BLOCK_SIZE  # so there are two blocks
    expected = made.expected()
    for step in (1, 7, len(SIZES)):
        found = read(judge, made, f"forwards:{step}")
        assert found.entries == expected
    assert (found.end["last_entry_id"], found.end["closed"]) == (len(SIZES) - 1, True)
    assert found.end["length"] == sum(len(frame) - 4 for frame in made.frames)
    assert read(judge, made, "backwards").entries == expected[::-1]
    at_random = read(judge, made, "random:11:60").entries
    assert len(at_random) == 60
    assert at_random == [expected[int(str(entry["id"]))] for entry in at_random]


def test_entries_of_every_length_up_to_a_few_hundred_bytes_are_read(
    judge: Judge, s3_remote: str, tmp_path: Path
) -> None:
    made = offloaded(tmp_path, s3_remote, "none", list(range(300)))
    assert read(judge, made, "forwards:300").entries == made.expected()
    assert read(judge, made, "backwards").entries == made.expected()[::-1]


def test_dense_index_entries_spare_it_the_way_through_a_block(judge: Judge, s3_remote: str, tmp_path: Path) -> None:
    made = offloaded(tmp_path, s3_remote, "none", SIZES * 2, block_size=64 * MIB)
    sparse_key = with_block_entries_alone(made, 64 * MIB)
    dense = read(judge, made, "random:7:12")
    sparse = read(judge, made, "random:7:12", index_key=sparse_key)
    assert dense.entries == sparse.entries == [made.expected()[entry["id"]] for entry in dense.entries]
    print(f"12 entries of {sum(map(len, made.frames)):,} bytes at random, in one block, 1 MiB a request")
    for name, end in (("an index entry a chunk", dense.end), ("an index entry a block", sparse.end)):
        print(f"  {name}: {end['requests']} requests, {end['bytes']:,} bytes")
    assert dense.end["requests"] <= 2 * 12  # an entry near a chunk's end may lie across two buffers
    assert sparse.end["requests"] > 2 * dense.end["requests"]
    assert sparse.end["bytes"] > 2 * dense.end["bytes"]


def test_it_refuses_our_zstd_objects_by_their_version(judge: Judge, s3_remote: str, tmp_path: Path) -> None:
    made = offloaded(tmp_path, s3_remote, "zstd", SIZES)
    with pytest.raises(JudgeRefused, match=r"Invalid object version null .*, expect 1"):
        read(judge, made, "forwards:1")
