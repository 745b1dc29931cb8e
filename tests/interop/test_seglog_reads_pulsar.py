"""Our reader reads, over HTTP, objects of Apache Pulsar's own offloader: whole ledgers, and streams of several."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import boto3
import pytest

from catalog.format import keys
from catalog.objects.object_store import ObjectStore
from offload.errors import ObjectDamaged
from offload.read.inspection import inspect_bytes
from offload.read.ledger import OffloadedLedgers, open_ledgers
from offload.settings import MIN_BLOCK_SIZE
from offload.wiring import open_store
from tests.interop.judge import Answer, Judge
from tests.offload.ledgers import Ledger
from tests.s3_server import AS_HARNESS, own_prefixes

pytestmark = [pytest.mark.pulsar, pytest.mark.timeout(600)]

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.fixture
def bucket(s3_environment: str) -> str:
    name = f"test-{uuid.uuid4().hex[:12]}"
    client = boto3.client("s3", **AS_HARNESS)
    client.create_bucket(Bucket=name)
    client.close()
    own_prefixes(s3_environment, **{name: [""]})
    return name


@pytest.fixture
def store(bucket: str) -> Iterator[ObjectStore]:
    with closing(open_store(f"s3://{bucket}")) as store:
        yield store


def opened(store: ObjectStore, answer: Answer) -> OffloadedLedgers:
    data_key, index_key = (keys.check_key(answer.end[name]) for name in ("data_key", "index_key"))
    return open_ledgers(store, data_key, store.get(index_key), index_key)


def test_a_ledger_that_it_offloaded_is_read_whole_and_in_part(judge: Judge, bucket: str, store: ObjectStore) -> None:
    ledger = Ledger(1234, 0, 300, 500)
    assert ledger.length > MIN_BLOCK_SIZE  # so there are two blocks
    made = judge.ask("offload", bucket, uuid.uuid4(), MIN_BLOCK_SIZE, ledger)
    found = opened(store, made)
    assert [(entry.entry_id, entry.data) for entry in found.entries()] == ledger.entries()
    for first, last in ((0, 0), (150, 250), (299, 299), (280, 400)):
        part = [(entry.entry_id, entry.data) for entry in found.entries(first, last)]
        assert part == ledger.entries()[first : last + 1]
    index = inspect_bytes(store.get(keys.check_key(made.end["index_key"])), "index")
    assert (index["kind"], index["ledger"]["last_entry_id"]) == ("index object", 299)
    assert [entry["part"] for entry in index["entries"]] == [1, 2]
    blocks = inspect_bytes(store.get(keys.check_key(made.end["data_key"])), "data")["blocks"]
    assert [block["offset"] for block in blocks] == [0, MIN_BLOCK_SIZE]


def test_ledgers_that_it_streamed_into_one_object_are_read(judge: Judge, bucket: str, store: ObjectStore) -> None:
    ledgers = [Ledger(21, 17, 280, 50), Ledger(22, 0, 40, 50), Ledger(30, 0, 3, 50)]
    block_size = 2 * max(ledger.length for ledger in ledgers)
    made = judge.ask("stream", bucket, uuid.uuid4(), block_size, " ".join(map(str, ledgers)))
    found = opened(store, made)
    assert found.ledger_ids == (21, 22, 30)
    read = [(entry.ledger_id, entry.entry_id, entry.data) for entry in found.entries()]
    assert read == [(ledger.id, *entry) for ledger in ledgers for entry in ledger.entries()]
    index = inspect_bytes(store.get(keys.check_key(made.end["index_key"])), "index")
    assert sorted(ledger["ledger_id"] for ledger in index["ledgers"]) == [21, 22, 30]
    blocks = inspect_bytes(store.get(keys.check_key(made.end["data_key"])), "data")["blocks"]
    assert {block["length"] for block in blocks} == {block_size}


def test_a_block_that_it_streamed_beyond_the_length_it_says_is_told(
    judge: Judge, bucket: str, store: ObjectStore
) -> None:
    # Pulsar leaves out the first entry when it adds up a full block. So the index is wrong from the next block on.
    ledger = Ledger(21, 0, 280, 50)
    found = opened(store, judge.ask("stream", bucket, uuid.uuid4(), ledger.length // 4, ledger))
    read = []
    with pytest.raises(ObjectDamaged) as raised:
        read.extend((entry.entry_id, entry.data) for entry in found.entries())
    assert read == ledger.entries()[: len(read)]
    assert 0 < raised.value.offset < ledger.length


def test_a_ledger_that_it_cut_at_an_entry_larger_than_a_block_is_told(
    judge: Judge, bucket: str, store: ObjectStore
) -> None:
    ledger = Ledger(5, 0, 10, 150_000)  # entry 6 has 36 * 150,000 + 1 bytes, more than a block takes
    assert ledger.size_of(6) > MIN_BLOCK_SIZE
    found = opened(store, judge.ask("offload", bucket, uuid.uuid4(), MIN_BLOCK_SIZE, ledger))
    read = []
    with pytest.raises(ObjectDamaged, match="it ends before entry 6 of 9"):
        read.extend((entry.entry_id, entry.data) for entry in found.entries())
    assert read == ledger.entries()[:6]


def test_its_streams_and_builders_still_give_the_golden_files(judge: Judge, tmp_path: Path) -> None:
    judge.ask("golden", tmp_path)
    for name in ("pulsar_v1.data", "pulsar_v1.index", "pulsar_v2.data", "pulsar_v2.index"):
        assert (tmp_path / name).read_bytes() == (GOLDEN / name).read_bytes()
