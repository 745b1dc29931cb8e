"""Remove records of a topic: `seglog delete`, `evict` and `truncate`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Annotated

from offload.commands.directory import Directory
from offload.commands.parameters import About, TopicName
from offload.commands.results import HIDDEN
from offload.commands.units import parse_span_ms
from offload.errors import BadParameter

__all__ = [
    "RecordsDeleted",
    "RecordsEvicted",
    "RecordsRemoved",
    "delete",
    "evict",
    "truncate",
]


@dataclass(frozen=True, slots=True)
class RecordsDeleted:
    """`deleted` is None if the number is unknown. `waits_for` says why the commit in the remote comes later."""

    topic: str
    deleted: int | None
    lsn: int | None
    waits_for: str | None = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class RecordsEvicted:
    """`evicted` is None if the number is unknown. `waits_for` says why the commit in the remote comes later."""

    topic: str
    evicted: int | None
    earliest_seq: int
    lsn: int | None
    waits_for: str | None = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class RecordsRemoved:
    """`lsn` is None without a commit in the remote. `waits_for` says why the commit comes later."""

    topic: str
    removed: int
    head_seq: int
    epoch: int
    lsn: int | None
    waits_for: str | None = field(metadata=HIDDEN)


def delete(
    place: Directory,
    topic: TopicName,
    before: Annotated[int | None, About("Delete the records below this seq.")] = None,
    tag: Annotated[str | None, About("Delete the records with this tag; a `*` at its end matches any rest.")] = None,
) -> RecordsDeleted:
    """Delete records by seq, by tag, or by both together. Readers no longer see them.

    With a remote, the delete becomes a commit: at once, or with the next offload if older records wait for it. After
    that commit, `seglog restore TOPIC --to head~1 --as NAME` makes a branch of the state before it. Without a remote
    there is no way back.
    """
    from offload.services.removal import take_here

    if before is None and tag is None:
        raise BadParameter("name the records: --before SEQ, --tag TAG, or both")
    if place.maybe_archive is None:
        handle = place.log.get_topic(topic)
        done = take_here(handle, before, tag, lambda: handle.delete(before=before, tag=tag))
    else:
        done = place.archive.delete(topic, before=before, tag=tag)
    return RecordsDeleted(topic, done.records, done.lsn, done.waits_for)


def evict(
    place: Directory,
    topic: TopicName,
    before: Annotated[int | None, About("Evict the records below this seq.", least=1)] = None,
    older: Annotated[str | None, About("Evict the records that are older, such as 90d.", "--older-than")] = None,
) -> RecordsEvicted:
    """Evict the oldest records of a topic, in the remote too. A reader that starts below gets a gap.

    Retention (`seglog topic set --ttl`, caps) frees the local disk only. The remote keeps those records, and `read
    --at` shows them. `evict` removes them from the remote as well, with a commit. Within the window, `seglog restore
    TOPIC --to head~1 --as NAME` makes a branch of the state before it. After the window, `seglog gc` deletes the
    objects. Example: seglog evict access --older-than 365d
    """
    from offload.services.removal import take_here

    if (before is None) == (older is None):
        raise BadParameter("give a bound: --before SEQ or --older-than AGE")
    age_ms = 0 if older is None else parse_span_ms("--older-than", older)
    archive = place.maybe_archive
    handle = place.log.get_topic(topic if archive is None else archive.open_for_append(topic).name)
    if before is None and archive is not None:
        archive.upkeep.check_clock(f"nothing of {topic} was evicted")
    bound = before if before is not None else handle.seq_at(max(0, int(time.time() * 1000) - age_ms))
    if archive is None:
        done = take_here(handle, bound, None, lambda: handle.evict(bound))
    else:
        done = archive.evict(topic, bound)
    return RecordsEvicted(topic, done.records, handle.earliest_seq, done.lsn, done.waits_for)


def truncate(
    place: Directory,
    topic: TopicName,
    start: Annotated[int, About("The first seq to remove.", "--from", least=1)],
    yes: Annotated[bool, About("Do it.")] = False,
) -> RecordsRemoved:
    """Remove the records from a seq on. Later appends use their seqs again.

    If the remote has any of the records, the command first offloads all of them. The truncation is then a commit, and
    `seglog restore TOPIC --to head~1 --as NAME` makes a branch of the state before it. If only this directory has the
    records, there is no way back. Example: seglog truncate orders --from 4711 --yes
    """
    from offload.services.removal import truncate_here

    if not yes:
        raise BadParameter(f"this removes the records of {topic} from {start} on; say --yes to do it")
    if place.maybe_archive is None:
        done = truncate_here(place.log.get_topic(topic), start)
    else:
        done = place.archive.truncate(topic, start)
    handle = place.log.topic(topic)
    return RecordsRemoved(topic, done.records or 0, handle.head_seq, handle.epoch, done.lsn, done.waits_for)
