"""A stream without Spark, and the remote that it follows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from offload.spark.change_feed_stream import stream_of
from offload.spark.messages import decode_task, encode_task
from offload.spark.offsets import decode_offset, offset_text
from offload.spark.pin import Pin
from offload.spark.query_plan import Query, Remote
from offload.spark.scan import scan
from offload.spark.stream_options import parse_stream_options
from tests.offload.samples import Sample
from tests.offload.spark.queries import arrow_schema

__all__ = ["Follower", "orders", "remote", "samples", "url"]


class Follower:
    """A stream that reads: it has the offsets that Spark would keep in a checkpoint."""

    def __init__(self, remote: Remote, **options: object) -> None:
        self.texts = {"path": remote.volumes.store.url, "topic": "orders", "headCacheMs": "0"}
        self.texts |= {name: str(value) for name, value in options.items()}
        self.remote = remote
        self.target: Pin | None = None
        self.offsets: list[str] = ["{}"]
        self.restart()

    def restart(self) -> None:
        """Forget all but the offsets."""
        self.options = parse_stream_options(self.texts)
        self.stream = stream_of(self.options)

    def advance(self, *, limited: bool = True) -> str:
        """Return the next offset, as it goes into the checkpoint."""
        start = decode_offset(self.offsets[-1])
        end = offset_text(self.stream.latest(self.remote, start, self.target, limited=limited))
        if end != self.offsets[-1]:
            self.offsets.append(end)
        return end

    def rows(self, number: int = -1) -> list[tuple[str, int]]:
        """Return topic and seq of each row of a micro-batch."""
        return [(row["topic"], row["seq"]) for row in self.whole_rows(number, ["topic", "seq"])]

    def whole_rows(self, number: int = -1, columns: list[str] | None = None) -> list[dict[str, Any]]:
        """Return the rows of a micro-batch, in all columns by default."""
        start, end = decode_offset(self.offsets[number - 1]), decode_offset(self.offsets[number])
        schema = arrow_schema(self.options.read, columns)
        plan = self.stream.plan(self.remote, start, end, Query(frozenset({*schema.names, "value"})))
        tasks = [decode_task(encode_task(task)) for task in plan.tasks]
        return [row for task in tasks for batch in scan(task, schema) for row in batch.to_pylist()]

    def seqs(self, number: int = -1) -> list[int]:
        return [seq for _, seq in self.rows(number)]

    def read_all(self) -> list[list[tuple[str, int]]]:
        """Return the rows of each micro-batch until the offset stays."""
        found: list[list[tuple[str, int]]] = []
        while (known := len(self.offsets)) and self.advance() and len(self.offsets) > known:
            found.append(self.rows())
        return found

    def next_seqs(self) -> dict[str, int]:
        return {name: position["next_seq"] for name, position in json.loads(self.offsets[-1]).items()}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "remote").as_uri()


@pytest.fixture
def remote(url: str) -> Iterator[Remote]:
    Path(url.removeprefix("file://")).mkdir()
    remote = Remote.open(url)
    yield remote
    remote.close()


def samples(count: int) -> list[Sample]:
    return [Sample(b"%d" % n, tag="even" if n % 2 == 0 else None) for n in range(count)]


def orders(first: int, last: int) -> list[tuple[str, int]]:
    return [("orders", seq) for seq in range(first, last + 1)]
