"""Delete records: `seglog delete`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from offload.commands.directory import Directory
from offload.commands.parameters import About, TopicName
from offload.commands.results import HIDDEN
from offload.errors import BadParameter

__all__ = ["RecordsDeleted", "check", "delete"]


@dataclass(frozen=True, slots=True)
class RecordsDeleted:
    """`deleted` is None if the number is unknown. `waits_for` says why the commit in the remote comes later."""

    topic: str
    deleted: int | None
    lsn: int | None
    waits_for: str | None = field(metadata=HIDDEN)


def check(*, before: int | None, tag: str | None, **_: object) -> None:
    if before is None and tag is None:
        raise BadParameter("name the records: --before SEQ, --tag TAG, or both")


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
    from offload.read.deletes import count_hot

    check(before=before, tag=tag)
    if place.maybe_archive is None:
        taken = count_hot(place.log.get_topic(topic), before, tag)
        place.log.topic(topic).delete(before=before, tag=tag)
        return RecordsDeleted(topic, taken, None, None)
    done = place.archive.delete(topic, before=before, tag=tag)
    return RecordsDeleted(topic, done.records, done.lsn, done.waits_for)
