"""Loads for the tests: the steps of a driver and its tasks, one after the other in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace

from catalog import Volumes
from catalog.objects.object_store import ObjectStore
from catalog.refs.branch import Branches
from offload.load import Load, Loaded, LoadedPart, LoadRequest, open_load, publish_load, write_part
from offload.read.cold_reader import ColdReader
from seglog import Record
from seglog.format.frames import Frames, take_apart
from tests.offload.samples import Sample, frame_of

__all__ = ["NOW_MS", "begin", "finish", "load", "part", "records", "values"]

NOW_MS = 1_700_000_000_000
Partitions = Sequence[Sequence[bytes]]
_TO_ORDERS = LoadRequest("orders")


def begin(store: ObjectStore, partitions: Partitions, request: LoadRequest = _TO_ORDERS, now_ms: int = NOW_MS) -> Load:
    """Open a load of these values. The driver has counted the rows of each partition."""
    rows = tuple((number, len(found)) for number, found in enumerate(partitions) if found)
    return open_load(Volumes(store), replace(request, rows=rows), writer_id="test", now_ms=now_ms)


def part(store: ObjectStore, load: Load, partition: int, values: Sequence[bytes]) -> LoadedPart:
    """Run the task of a partition."""
    return write_part(store, load, partition, _frames(load, partition, values), now_ms=lambda: load.start_ms)


def finish(store: ObjectStore, load: Load, parts: Sequence[LoadedPart]) -> Loaded:
    return publish_load(Volumes(store), load, parts, writer_id="test", now_ms=load.start_ms)


def load(store: ObjectStore, partitions: Partitions, request: LoadRequest = _TO_ORDERS, now_ms: int = NOW_MS) -> Loaded:
    """Run a whole load."""
    begun = begin(store, partitions, request, now_ms)
    return finish(store, begun, [part(store, begun, number, found) for number, found in enumerate(partitions)])


def records(store: ObjectStore, topic: str = "orders", branch: str = "main") -> list[Record]:
    """Return what the newest state of a branch shows, every byte of it verified."""
    volumes = Volumes(store)
    snapshot = volumes.snapshot(Branches(volumes).resolve(topic, branch))
    with closing(ColdReader(store)) as reader:
        return [record for view in snapshot.segments for record in reader.segment_records(view, view.first, view.last)]


def values(store: ObjectStore, topic: str = "orders", branch: str = "main") -> list[bytes]:
    return [record.value for record in records(store, topic, branch)]


def _frames(load: Load, partition: int, values: Sequence[bytes]) -> Iterator[Frames]:
    first_seq = load.first_seq_of(partition)
    for number, value in enumerate(values):
        yield take_apart([frame_of(Sample(value), first_seq + number, load.start_ms)])
