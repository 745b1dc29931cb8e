"""Take the oldest records of a topic away: `seglog evict`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from offload.commands.directory import Directory
from offload.commands.parameters import About, TopicName
from offload.commands.results import HIDDEN
from offload.commands.units import parse_duration_ms
from offload.errors import BadParameter

if TYPE_CHECKING:
    from seglog import Topic

__all__ = ["RecordsEvicted", "check", "evict"]


@dataclass(frozen=True, slots=True)
class RecordsEvicted:
    """`evicted` is None if the number is unknown. `waits_for` says why the commit in the remote comes later."""

    topic: str
    evicted: int | None
    earliest_seq: int
    lsn: int | None
    waits_for: str | None = field(metadata=HIDDEN)


def check(*, before: int | None, older: str | None, **_: object) -> None:
    if (before is None) == (older is None):
        raise BadParameter("give a bound: --before SEQ or --older-than AGE")
    if older is not None and parse_duration_ms(older) is None:
        raise BadParameter("--older-than takes a duration such as 12h or 90d")


def evict(
    place: Directory,
    topic: TopicName,
    before: Annotated[int | None, About("Evict the records below this seq.", least=1)] = None,
    older: Annotated[str | None, About("Evict the records that are older, such as 90d.")] = None,
) -> RecordsEvicted:
    """Evict the oldest records of a topic, in the remote too. A reader that starts below gets a gap.

    Retention (`seglog topic set --ttl`, caps) frees the local disk only. The remote keeps those records, and `read
    --at` shows them. `evict` removes them from the remote as well, with a commit. Within the window, `seglog restore
    TOPIC --to head~1 --as NAME` makes a branch of the state before it. After the window, `seglog gc` deletes the
    objects. Example: seglog evict access --older-than 365d
    """
    from offload.read.deletes import count_hot

    check(before=before, older=older)
    archive = place.maybe_archive
    handle = place.log.get_topic(topic if archive is None else archive.open_for_append(topic).name)
    if before is None:
        assert older is not None  # noqa: S101 - checked above
        if archive is not None:
            archive.upkeep.check_clock(f"nothing of {topic} was evicted")
        before = _first_younger_than(handle, older)
    if archive is None:
        taken = count_hot(handle, before, None)
        handle.evict(before)
        return RecordsEvicted(topic, taken, handle.earliest_seq, None, None)
    done = archive.evict(topic, before)
    return RecordsEvicted(topic, done.records, handle.earliest_seq, done.lsn, done.waits_for)


def _first_younger_than(topic: Topic, age: str) -> int:
    """Return the first seq that is not older than `age`."""
    return topic.seq_at(max(0, int(time.time() * 1000) - (parse_duration_ms(age) or 0)))
