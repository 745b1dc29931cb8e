"""Send sealed segments to the remote, and steer the daemon's offload: `seglog offload`, `pause`, `resume`, `retry`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from offload.errors import InvalidParameters
from offload.operations.directory import Directory
from offload.operations.parameters import About, TopicName
from offload.operations.results import HIDDEN

if TYPE_CHECKING:
    from offload.archive import Archive
    from seglog import Topic

__all__ = [
    "Offloaded",
    "Paused",
    "Retried",
    "TopicFailed",
    "WouldSend",
    "offload",
    "pause",
    "resume",
    "retry",
]


@dataclass(frozen=True, slots=True)
class Offloaded:
    """The commits of one topic's offload. `released_seq` is 0 if no hot copy was deleted."""

    topic: str
    offloaded_seq: int
    lsns: tuple[int, ...]
    frame_bytes: int
    stored_bytes: int
    released_seq: int
    unsealed_records: int
    has_segments: bool = field(metadata=HIDDEN)
    url: str = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class WouldSend:
    """The bytes of sealed segments that an offload of the topic would send."""

    topic: str
    would_send_bytes: int
    url: str = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class TopicFailed:
    """The error of one of several topics. It does not stop the others."""

    topic: str = field(metadata=HIDDEN)
    error: str = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class Paused:
    topic: str
    is_paused: bool


@dataclass(frozen=True, slots=True)
class Retried:
    """A topic whose offload the daemon tries at its next look."""

    topic: str
    retry: bool


def offload(
    place: Directory,
    topic: Annotated[str | None, About("TOPIC or TOPIC@BRANCH.", is_argument=True, names="topic")] = None,
    every: Annotated[bool, About("Every topic of this data directory.", "--all")] = False,
    up_to: Annotated[int | None, About("Only segments that end at this seq or before.")] = None,
    drop_hot: Annotated[
        bool, About("Delete the hot copy now, after reading the remote one back, instead of after the lag.")
    ] = False,
    dry_run: Annotated[bool, About("Only show how much would be sent.")] = False,
) -> Iterator[Offloaded | WouldSend | TopicFailed]:
    """Send sealed segments to the remote, one commit a run, and the deletes that came after them.

    After a failure, repeat the command: it continues where it stopped. The unsealed tail stays, and `seglog seal` seals
    it.
    """
    if (topic is None) == (not every):
        raise InvalidParameters("name a TOPIC, or give --all")
    archive = place.archive
    if topic is not None:
        yield _offload(place, archive, topic, up_to, drop_hot=drop_hot, dry_run=dry_run)
        return
    failed: Exception | None = None
    for name in [name for name in place.log.topics() if _is_written(place.log.topic(name))]:
        try:
            yield _offload(place, archive, name, up_to, drop_hot=drop_hot, dry_run=dry_run)
        except Exception as error:
            failed = error
            yield TopicFailed(name, str(error))
    if failed is not None:
        raise failed  # the last error gives the command its exit code


def pause(archive: Archive, topic: TopicName) -> Paused:
    """Stop the daemon's offload of a topic until `resume`. `seglog offload` still works."""
    archive.upkeep.pause(topic, paused=True)
    return Paused(topic, is_paused=True)


def resume(archive: Archive, topic: TopicName) -> Paused:
    """Let the daemon offload a paused topic again."""
    archive.upkeep.pause(topic, paused=False)
    return Paused(topic, is_paused=False)


def retry(place: Directory, topic: TopicName) -> Retried:
    """Let the daemon retry a failed offload of a topic now, instead of after its pause."""
    _ = place.archive  # without a remote there is no offload to try
    name = place.log.get_topic(topic).name
    place.host.retry(name)
    return Retried(name, retry=True)


def _is_written(topic: Topic) -> bool:
    return topic.config.durability != "ephemeral"


def _offload(
    place: Directory, archive: Archive, name: str, up_to: int | None, *, drop_hot: bool, dry_run: bool
) -> Offloaded | WouldSend:
    waiting_bytes = archive.status.waiting_bytes(name, up_to)
    if dry_run:
        return WouldSend(name, waiting_bytes, archive.url)
    with place.host.progress(f"offload {name}", waiting_bytes) as advance:
        result = archive.offload(name, up_to=up_to, drop_hot=drop_hot, on_bytes=advance)
    segments = [published.segment for published in result.published if published.segment]
    return Offloaded(
        topic=name,
        offloaded_seq=result.offloaded_seq,
        lsns=tuple(published.lsn for published in result.published),
        frame_bytes=sum(segment.frame_bytes for segment in segments),
        stored_bytes=sum(segment.data_length for segment in segments),
        released_seq=result.released_seq,
        unsealed_records=result.unsealed_records,
        has_segments=bool(segments),
        url=archive.url,
    )
