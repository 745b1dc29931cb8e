"""Stores with one cold topic in them, for the benchmarks of cold reads, and plain GETs of its data object.

moto is not among the stores: its time for a ranged GET grows with the object.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import boto3

import offload
import seglog
from benchmarks.minio import PASSWORD, USER, serving_minio
from benchmarks.offload import fill
from benchmarks.range_server import serving
from catalog import SegmentView
from catalog.format import keys
from catalog.objects.object_store import ObjectStore
from offload import ColdSettings
from offload.read.chunk_fetcher import in_order
from offload.read.cold_reader import ColdReader
from offload.wiring import open_store

__all__ = [
    "BUCKET",
    "FIRST_BYTE_MS",
    "MB_PER_S",
    "RECORD_BYTES",
    "Cold",
    "at_endpoint",
    "cold_topic",
    "plain_gets",
    "stores",
]

TOPIC = "bench"
RECORD_BYTES = 1024
FIRST_BYTE_MS, MB_PER_S = 30, 85
BUCKET = "bench"


@dataclass(frozen=True, slots=True)
class Cold:
    """A topic of `count` records, all in the one data object of `view`, codec none."""

    directory: Path
    view: SegmentView
    count: int

    @property
    def key(self) -> keys.Key:
        return keys.data_key(self.view.vid, self.view.ref.sid)

    @contextmanager
    def reader(self, store: ObjectStore) -> Iterator[ColdReader]:
        """Yield a reader without a disk cache, so that every read goes to the store."""
        with closing(ColdReader(store, ColdSettings(cache_bytes=0))) as reader:
            reader.index(self.view)
            yield reader


def cold_topic(place: Path, size_mib: int) -> Cold:
    """Make a cold topic in `place`/remote, in the layout of `file://`."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    with seglog.open(place / "log") as log:
        count = fill(log, TOPIC, RECORD_BYTES, size_mib << 20)
        log.configure(TOPIC, seglog.TopicConfig(keep_history=True, attributes={"codec": "none"}))
        with offload.attach(log, (place / "remote").as_uri()) as archive:
            archive.offload(TOPIC)
            [view] = archive.history.snapshot(TOPIC).segments
    return Cold(place / "remote", view, count)


@contextmanager
def stores(cold: Cold) -> Iterator[dict[str, ObjectStore]]:
    """Yield the stores by name: a directory, our bare HTTP server, the same one shaped, and MinIO if it is on PATH."""
    with ExitStack() as stack:
        found = {"file://": stack.enter_context(closing(open_store(cold.directory.as_uri())))}
        bare = stack.enter_context(serving(cold.directory))
        found["bare HTTP"] = stack.enter_context(closing(_s3(bare)))
        shaped = stack.enter_context(serving(cold.directory, FIRST_BYTE_MS, MB_PER_S))
        found[f"{FIRST_BYTE_MS} ms, {MB_PER_S} MB/s"] = stack.enter_context(closing(_s3(shaped)))
        minio = shutil.which("minio")
        if minio:
            endpoint = stack.enter_context(serving_minio(minio, cold.directory.parent / "minio"))
            _copy_to(endpoint, cold)
            found["MinIO"] = stack.enter_context(closing(_s3(endpoint)))
        yield found


def plain_gets(store: ObjectStore, cold: Cold, length: int, size_bytes: int, at_a_time: int) -> int:
    """Get the first `length` bytes of the data object by ranged GETs, in order, and nothing else.

    Return how many came.
    """
    work: list[Callable[[], bytes]] = [
        partial(store.get_range, cold.key, start, min(size_bytes, length - start))
        for start in range(0, length, size_bytes)
    ]
    if at_a_time == 1:
        return sum(len(one()) for one in work)
    return sum(map(len, in_order(work, at_a_time, "bench")))


def _s3(endpoint: str) -> ObjectStore:
    """Open a client. It keeps the endpoint and the credentials of the moment of opening."""
    with at_endpoint(endpoint):
        return open_store(f"s3://{BUCKET}")


@contextmanager
def at_endpoint(endpoint: str) -> Iterator[None]:
    """Let the AWS environment of this process point to a server on loopback."""
    before = dict(os.environ)
    os.environ.update(
        AWS_ENDPOINT_URL=endpoint,
        AWS_ACCESS_KEY_ID=USER,
        AWS_SECRET_ACCESS_KEY=PASSWORD,
        AWS_DEFAULT_REGION="us-east-1",
    )
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _copy_to(endpoint: str, cold: Cold) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=USER,
        aws_secret_access_key=PASSWORD,
        region_name="us-east-1",
    )
    client.create_bucket(Bucket=BUCKET)
    for key in (cold.key, keys.index_key(cold.view.vid, cold.view.ref.sid)):
        client.upload_file(str(cold.directory / key), BUCKET, key)
    client.close()
