"""The places of each topic's records, as this directory knows them: `seglog status`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from offload.moment import Moment
from offload.moved import retry_if_moved
from offload.operations.directory import Directory, Work
from offload.operations.parameters import About
from offload.operations.results import HIDDEN, MERGED, OPTIONAL
from offload.operations.topic import TopicPlaces, places_of
from offload.reports import Lag, RunStatus, TopicStatus
from seglog import NoSuchTopic, SystemClock

if TYPE_CHECKING:
    from offload.archive import Archive
    from seglog import Topic

__all__ = ["Ahead", "ArchivedTopic", "DirectoryShown", "DiskLow", "LocalTopic", "status"]

_TOLD_FROM_MS = 60_000
_LOW_FACTOR = 4


@dataclass(frozen=True, slots=True)
class DirectoryShown:
    """The data directory. `remote` is None if it has none."""

    path: str = field(metadata=HIDDEN)
    remote: str | None = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class DiskLow:
    """The free space of the disk, once it is less than four times the space at which the log refuses appends."""

    free_bytes: int
    disk_reject_bytes: int


@dataclass(frozen=True, slots=True)
class Ahead:
    """The time by which the newest record of a topic is ahead of the clock. Small times do not count."""

    ahead_ms: int
    newest: Moment = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class LocalTopic:
    """A topic of a directory without a remote."""

    name: str
    places: TopicPlaces = field(metadata=MERGED)
    ahead: Ahead | None = field(metadata=MERGED)


@dataclass(frozen=True, slots=True)
class ArchivedTopic:
    """A topic of a directory with a remote. `work` is None without a daemon, `runs` if the caller did not ask.

    `lag` is None for a replica. `kept_from` is the time from which GC keeps each state, None without a volume.
    `next_step` is the command that the operator may want next.
    """

    status: TopicStatus = field(metadata=MERGED)
    lag: Lag | None = field(metadata=MERGED)
    kept_from: Moment | None
    next_step: str | None
    work: Work | None = field(metadata=MERGED)
    runs: tuple[RunStatus, ...] | None = field(metadata=OPTIONAL)
    ahead: Ahead | None = field(metadata=MERGED)


def status(
    place: Directory,
    topic: Annotated[str | None, About("One topic; all without it.", is_argument=True, names="topic")] = None,
    runs: Annotated[bool, About("Each offloaded range of segments, too.")] = False,
    watch: Annotated[bool, About("Show it again every two seconds, until an interrupt.")] = False,  # noqa: ARG001 - the command line asks again
) -> Iterator[DirectoryShown | DiskLow | LocalTopic | ArchivedTopic]:
    """Show the places of each topic's records: hot and cold ranges, waiting work, and errors.

    The lag is what the remote does not have yet: records, bytes, and the age of the oldest. On a terminal, a table also
    shows open attempts, how far back a restore can go, and the next step. A first line warns of a disk that gets full,
    long before the log refuses appends. The command asks only this directory, never
    the remote or the warm store, so it answers without a network.
    """
    log, archive = place.log, place.maybe_archive
    names = _names(place, topic)
    yield DirectoryShown(str(log.path.resolve()), archive.url if archive else None)
    free_bytes, reject_bytes = shutil.disk_usage(log.path).free, log.settings.disk_reject_bytes
    if free_bytes < _LOW_FACTOR * reject_bytes:
        yield DiskLow(free_bytes, reject_bytes)
    for name in names:
        if archive is None:
            local = log.topic(name)
            yield LocalTopic(name, places_of(local), _ahead(local))
            continue
        try:
            shown = _archived(place, archive, name, runs=runs)
        except NoSuchTopic:
            if topic is not None:
                raise
            continue  # deleted since the list was made
        yield shown


def _archived(place: Directory, archive: Archive, name: str, *, runs: bool) -> ArchivedTopic:
    """Return what there is to show of a topic. It may leave the log meanwhile, or come there (MOVED-1)."""
    log = place.log

    def look() -> ArchivedTopic:
        state, work = archive.status.topic(name), place.host.work(name)
        kept_from_ms = archive.status.kept_from_ms(name)
        return ArchivedTopic(
            status=state,
            lag=archive.status.lag(name) if log.has_topic(name) else None,
            kept_from=None if kept_from_ms is None else Moment(kept_from_ms),
            next_step=_next_step(state, work),
            work=work,
            runs=tuple(archive.status.runs(name)) if runs else None,
            ahead=_ahead(log.topic(name)) if log.has_topic(name) else None,
        )

    return retry_if_moved(look, lambda: log.topic(name).epoch, NoSuchTopic)


def _next_step(state: TopicStatus, work: Work | None) -> str | None:
    """Return the command that brings the topic on, or None. A daemon seals and offloads by itself."""
    name = state.name
    if state.is_replica:
        return None if state.diverged_lsn is None else f"seglog reset {name}"
    if state.diverged_lsn is not None:
        return f"seglog reset {name} --as NAME"
    if state.is_paused:
        return f"seglog resume {name}"
    if work is not None:
        return f"seglog retry {name}" if work.failures else None
    if state.pending_lsn is not None or state.unfinished_attempts or state.sealed_seq > state.offloaded_seq:
        return f"seglog offload {name}"
    if state.head_seq > state.sealed_seq:
        return f"seglog seal {name}"
    return f"seglog compact {name} --erase" if state.unerased_objects else None


def _names(place: Directory, topic: str | None) -> list[str]:
    replicas = place.maybe_archive.replication.replicas() if place.maybe_archive else []
    if topic is None:
        return sorted({*place.log.topics(), *replicas})
    return [topic if topic in replicas else place.log.get_topic(topic).name]


def _ahead(topic: Topic) -> Ahead | None:
    """Return the time by which the newest record is ahead of the clock, or None if that is under a minute."""
    ahead_ms = topic.last_ts_ms - SystemClock().now_ms()
    return Ahead(ahead_ms, Moment(topic.last_ts_ms)) if ahead_ms > _TOLD_FROM_MS else None
