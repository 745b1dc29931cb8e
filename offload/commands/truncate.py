"""Remove the records from a seq on: `seglog truncate`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from offload.commands.directory import Directory
from offload.commands.parameters import About, TopicName
from offload.commands.results import HIDDEN
from offload.errors import BadParameter

__all__ = ["RecordsRemoved", "check", "truncate"]


@dataclass(frozen=True, slots=True)
class RecordsRemoved:
    """`lsn` is None without a commit in the remote. `waits_for` says why the commit comes later."""

    topic: str
    removed: int
    head_seq: int
    epoch: int
    lsn: int | None
    waits_for: str | None = field(metadata=HIDDEN)


def check(*, topic: str, start: int, yes: bool, **_: object) -> None:
    if not yes:
        raise BadParameter(f"this removes the records of {topic} from {start} on; say --yes to do it")


def truncate(
    place: Directory,
    topic: TopicName,
    start: Annotated[int, About("The first seq to remove.", least=1)],
    yes: Annotated[bool, About("Do it.")] = False,
) -> RecordsRemoved:
    """Remove the records from a seq on. Later appends use their seqs again.

    If the remote has any of the records, the command first offloads all of them. The truncation is then a commit, and
    `seglog restore TOPIC --to head~1 --as NAME` makes a branch of the state before it. If only this directory has the
    records, there is no way back. Example: seglog truncate orders --from 4711 --yes
    """
    check(topic=topic, start=start, yes=yes)
    if place.maybe_archive is None:
        handle = place.log.get_topic(topic)
        removed = max(0, handle.head_seq - start + 1)
        handle.truncate(start)
        return RecordsRemoved(topic, removed, handle.head_seq, handle.epoch, None, None)
    done = place.archive.truncate(topic, start)
    handle = place.log.topic(topic)
    return RecordsRemoved(topic, done.records, handle.head_seq, handle.epoch, done.lsn, done.waits_for)
