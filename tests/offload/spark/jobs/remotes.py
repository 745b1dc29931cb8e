"""A remote for the jobs: several topics, a branch, deleted and erased records. And a driver that dies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from catalog.format.commit import Codec, ForkPoint
from offload.spark.jobs.topics import job_options, pinned
from seglog import Record
from tests.offload.samples import Sample
from tests.offload.spark.archives import TopicArchive

__all__ = ["MIDNIGHT_MS", "kill_after", "make_remote", "records_of"]

TAGS = (None, "", "eu", "us")
MIDNIGHT_MS = 1_700_006_400_000


def make_remote(url: str) -> None:
    """Make `orders` with six segments, its branch `half`, `events` over a midnight, `one`, and `empty`."""
    orders = TopicArchive(url)
    first = orders.add(
        [Sample(b"x" * (n % 90), TAGS[n % 4], deleted=n % 7 == 3) for n in range(60)], Codec.NONE, block_size=4096
    )
    for number in range(5):
        orders.add([Sample(b"y" * n, TAGS[n % 3]) for n in range(number, number + 20)])
    half = TopicArchive(url, branch="half", parent=ForkPoint(orders.vid, 2, 70))
    half.add([Sample(b"half %d" % n, TAGS[n % 4]) for n in range(30)])
    orders.delete(first, [5, *range(20, 40)])
    orders.delete(before_seq=4)
    events = TopicArchive(url, "events")
    events.add([Sample(b"event", "us")] * 9)
    events.add([Sample(b"event")] * 9, first_ts_ms=MIDNIGHT_MS - 2)
    TopicArchive(url, "one").add([Sample(b"", "")])
    TopicArchive(url, "empty")


def records_of(url: str, topic: str = "*", version: str | int | None = None) -> dict[str, list[Record]]:
    """Return the records of each topic, as the archive itself reads them."""
    with pinned(job_options(url, topic, version=version)) as found:
        snapshots = {each.topic: found.snapshot(each) for each in found.topics}
        reader = found.remote.reader
        return {name: list(reader.records(each, 1, each.bounds.head_seq)) for name, each in snapshots.items()}


class Killed(BaseException):
    """The driver died."""


def kill_after(times: int, run: Callable[[], object], put_on_record: Any, name: str) -> None:
    """Kill the driver of a job once it has put work on record so many times. Nothing catches that."""
    left = [times]
    before = getattr(put_on_record, name)

    def dying(*args: Any, **named: Any) -> None:
        before(*args, **named)
        left[0] -= 1
        if not left[0]:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(put_on_record, name, dying)
        with pytest.raises(Killed):
            run()
