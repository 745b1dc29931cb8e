"""The topics that a job works on: the versions that it is pinned to, and what a dry run tells of them.

TOPICS-1  A job is pinned to one version of each topic, as a load of the source is (`offload.spark.pin`).
TOPICS-2  A job begins with the first seq that was not evicted, because no job brings evicted records back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Annotated, TypeAlias

from catalog.snapshot import Snapshot
from offload.spark.options import ReadOptions, parse_options
from offload.spark.pin import Pin, PinnedTopic
from offload.spark.query_plan import Remote
from seglog.base.arguments import WHOLE_MAX, Within
from seglog.base.dataclasses import dataclass

AtLeastOne: TypeAlias = Annotated[int, Within(1, WHOLE_MAX)]


@dataclass(frozen=True, slots=True)
class TopicToRead:
    """A topic that a job would read: its version, its seqs, and its segments with their stored bytes."""

    topic: str
    branch: str
    lsn: int
    first_seq: int
    last_seq: int
    segments: int
    stored_bytes: int


@dataclass(frozen=True, slots=True)
class DryRun:
    """The result of a dry run: it read commits only, and changed nothing."""

    rows: tuple[TopicToRead, ...]


@dataclass(frozen=True, slots=True)
class PinnedRemote:
    """A remote that is open on the driver, and the versions of its topics."""

    remote: Remote
    pin: Pin

    @property
    def topics(self) -> tuple[PinnedTopic, ...]:
        """The pinned topics, ascending by name."""
        return self.pin.topics

    def snapshot(self, topic: PinnedTopic) -> Snapshot:
        """Return the pinned version of a topic."""
        [found] = self.remote.snapshots([topic])
        return found


def job_options(
    remote: str,
    topic: str,
    branch: str | None = None,
    version: str | int | None = None,
    as_of: str | None = None,
    kms_key_id: str = "",
) -> ReadOptions:
    """Return the options of the source for a job. Raises `InvalidOption`."""
    texts = {"path": remote, "topic": topic, "startingSeq": "earliest"}
    if branch is not None:
        texts["branch"] = branch
    if version is not None:
        texts["versionAsOf"] = str(version)
    if as_of is not None:
        texts["timestampAsOf"] = as_of
    if kms_key_id:
        texts["kmsKeyId"] = kms_key_id
    return parse_options(texts)


@contextmanager
def pinned(options: ReadOptions) -> Iterator[PinnedRemote]:
    """Open the remote, and pin its topics. Raises as `offload.spark.pin.pin_topics`."""
    with closing(Remote.open(options.url, options.kms_key_id)) as remote:
        yield PinnedRemote(remote, remote.pin(options))


def dry_run_of(options: ReadOptions) -> DryRun:
    """Return what a job would read."""
    with pinned(options) as found:
        return DryRun(tuple(_to_read(topic, found.snapshot(topic)) for topic in found.topics))


def _to_read(topic: PinnedTopic, snapshot: Snapshot) -> TopicToRead:
    bounds = snapshot.bounds
    sizes = {view.ref.sid: view.ref.data_length for view in snapshot.segments}
    return TopicToRead(
        topic.topic, topic.branch, topic.point.lsn, bounds.first_seq, bounds.head_seq, len(sizes), sum(sizes.values())
    )
