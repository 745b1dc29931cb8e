"""Names for points in a topic's history: `seglog tag ...`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

from offload.moment import Moment
from offload.operations.command import About, Command, PlainTopicName, TopicName, always
from offload.operations.printing import lines, rows
from seglog.base.dataclasses import dataclass

if TYPE_CHECKING:
    from catalog.format.control import Tag
    from offload.archive import Archive


@dataclass(frozen=True, slots=True)
class TagListed:
    """A tag and its point. `seq` is None if the tag names the whole commit."""

    topic: str
    tag: str
    branch: str
    volume: str
    lsn: int
    seq: int | None
    created_at: Moment
    message: str


def create(
    archive: Archive,
    topic: TopicName,
    name: Annotated[str, About("The new tag.")],
    at: Annotated[
        str, About("What to name: seq:N, lsn:N, head, head~N, tag:NAME, or a time.", names="target")
    ] = "head",
    message: Annotated[str, About("Why.", "-m --message")] = "",
) -> TagListed:
    """Name a point in the history. It stays restorable, as tag:NAME, until the tag is deleted."""
    return _listed(topic.partition("@")[0], name, archive.tags.tag(topic, name, to=at, message=message))


def list_tags(archive: Archive, topic: PlainTopicName) -> Iterator[TagListed]:
    """List the tags of a topic and its branches."""
    return (_listed(topic, tag.name, tag.tag) for tag in archive.tags.list(topic))


def delete(archive: Archive, topic: PlainTopicName, name: Annotated[str, About("The tag.", names="tag")]) -> TagListed:
    """Delete a tag. GC deletes its state if nothing else holds it; before that, `seglog undo` brings the tag back."""
    return _listed(topic, name, archive.tags.delete_tag(topic, name))


def _listed(topic: str, name: str, tag: Tag) -> TagListed:
    return TagListed(
        topic=topic,
        tag=name,
        branch=tag.branch,
        volume=str(tag.point.vid),
        lsn=tag.point.lsn,
        seq=tag.point.seq,
        created_at=Moment(tag.created_at_ms),
        message=tag.message,
    )


def _tag_row(listed: TagListed) -> Sequence[str | Moment]:
    seq = "" if listed.seq is None else str(listed.seq)
    return listed.tag, listed.branch, str(listed.lsn), seq, listed.created_at, listed.message


def tag_text(listed: TagListed) -> str:
    cut = f" seq {listed.seq}" if listed.seq else ""
    point = f"{listed.branch} lsn {listed.lsn}{cut}"
    return f"{listed.tag:<24} {point:<28} {listed.created_at}  {listed.message}".rstrip()


_print_tag = rows(("tag", "branch", "lsn", "seq", "made", "message"), _tag_row, tag_text)


TAG_CREATE = Command("tag/create", create, _print_tag)
TAG_LIST = Command("tag/list", list_tags, _print_tag, reads=always, role="read")
TAG_DELETE = Command("tag/delete", delete, lines(lambda gone: f"tag {gone.tag} is deleted"))
