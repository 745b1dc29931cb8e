"""A branch of a past state: `seglog restore`, and `seglog branch create`. No record is copied."""

from __future__ import annotations

from typing import Annotated

from offload.moment import Moment
from offload.operations.command import About, Command, Directory, TopicName
from offload.operations.printing import counted, lines
from seglog.base.dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BranchMade:
    """A new branch of a past state. Without records, `last_seq` is 0 and `last_time` is None."""

    branch: str
    volume: str
    records: int
    last_seq: int
    last_time: Moment | None


def create(
    directory: Directory,
    topic: TopicName,
    name: Annotated[str, About("The new branch.")],
    at: Annotated[
        str, About("Where to start: seq:N, lsn:N, head, head~N, tag:NAME, or a time.", names="target")
    ] = "head",
    message: Annotated[str, About("Why, for the oplog.", "-m --message")] = "",
) -> BranchMade:
    """Make a branch. It costs a few small objects, whatever the size of the topic.

    Read the branch as TOPIC@NAME. The branch that it came from does not see its appends and deletes.
    """
    return _made(directory, "branch create", topic, name, at, message)


def restore(
    directory: Directory,
    topic: TopicName,
    to: Annotated[
        str, About("seq:N (right after record N), lsn:N, head, head~N, tag:NAME, or a time.", "--to", names="target")
    ],
    as_branch: Annotated[str, About("The name of the branch to make.", "--as")],
    message: Annotated[str, About("Why, for the oplog.", "-m --message")] = "",
) -> BranchMade:
    """Bring a past state back as a branch. Nothing is overwritten and no data is copied.

    To bring only the records of one delete, eviction or truncation back, without a branch: `seglog undo TOPIC lsn:N`.
    Examples: seglog restore orders --to head~1 --as before-the-delete;
    seglog restore orders --to 2026-11-21T09:30:00Z --as morning; seglog restore orders --to "15 minutes ago" --as back
    """
    return _made(directory, "restore", topic, as_branch, to, message)


def _made(directory: Directory, command: str, topic: str, name: str, at: str, message: str) -> BranchMade:
    with directory.counting(f"{command} {topic}"):
        fork = directory.archive.restore(topic, to=at, name=name, message=message)
    last_time = Moment(fork.last_ts_ms) if fork.last_seq else None
    return BranchMade(f"{topic.partition('@')[0]}@{name}", str(fork.vid), fork.records, fork.last_seq, last_time)


def branch_made_text(branch: BranchMade) -> str:
    last = f", the last one seq {branch.last_seq} of {branch.last_time}" if branch.last_seq else ""
    return f"{branch.branch} holds {counted(branch.records)}{last}"


_print_branch_made = lines(branch_made_text)


RESTORE = Command("restore", restore, _print_branch_made, is_slow=True, section="time travel")
BRANCH_CREATE = Command("branch/create", create, _print_branch_made)
