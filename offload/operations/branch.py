"""Branches of a topic: `seglog branch ...`. A past state becomes one in offload.operations.restore."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any

from offload.errors import Misuse
from offload.moment import Moment
from offload.operations.command import (
    About,
    Command,
    Directory,
    DryRun,
    PlainTopicName,
    Reason,
    Yes,
    always,
    dry,
    without_main,
)
from offload.operations.printing import Output, WouldTake, check_meant, counted, lines, rows, taking_lines, would
from offload.operations.result_json import HIDDEN, MERGED
from offload.reports import Side
from seglog.base.dataclasses import dataclass

if TYPE_CHECKING:
    from catalog import Branch, Vid
    from catalog.refs.branch import Distance
    from offload.archive import Archive

Name = Annotated[str, About("The branch.", names="branch")]


@dataclass(frozen=True, slots=True)
class BranchAt:
    """A branch under the name that it has now."""

    branch: str
    volume: str


@dataclass(frozen=True, slots=True)
class BranchDeleted:
    branch: str
    volume: str
    deleted_at: Moment


@dataclass(frozen=True, slots=True)
class BranchParent:
    """The point of the parent where a branch starts. `seq` is None if the branch has the whole commit."""

    volume: str
    lsn: int
    seq: int | None


@dataclass(frozen=True, slots=True)
class BranchPromoted:
    """A branch that is main now. The former main is the branch `former`.

    `after_fork` says what the former main got above `shared_seq`, which both have. Both are None if this call only
    ended an earlier promotion. The `carried` records begin at `carried_from_seq` in the new main.
    """

    topic: str
    promoted: str
    volume: str
    former: str
    shared_seq: int | None
    after_fork: Side | None
    carried: int
    carried_from_seq: int | None


@dataclass(frozen=True, slots=True)
class BranchListed:
    """A row of the list of branches. In a tree, `depth` is the distance from the root.

    `parent_name` is None if the parent is not in the list.
    """

    topic: str
    branch: str
    volume: str
    created_at: Moment
    parent: BranchParent | None
    ahead: int
    behind: int
    deleted_at: Moment | None
    depth: int = field(metadata=HIDDEN)
    parent_name: str | None = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class BranchSide:
    """One of two branches, and the last seq that both share."""

    branch: str
    shared_seq: int
    side: Side = field(metadata=MERGED)


def list_branches(
    archive: Archive,
    topic: PlainTopicName,
    deleted: Annotated[bool, About("Also list deleted branches that can come back.")] = False,
    as_tree: Annotated[bool, About("Show a tree: each branch below its parent.", "--tree")] = False,
) -> Iterator[BranchListed]:
    """List the branches of a topic in the remote. It says how far each branch and its parent went since the fork."""
    branches = archive.branches.list(topic, deleted=deleted)
    rows = list(zip(branches, archive.branches.distances(branches), strict=True))
    names = {branch.vid: branch.branch for branch in branches}
    for depth, (branch, distance) in _tree(rows) if as_tree else ((0, row) for row in rows):
        parent = branch.parent
        yield BranchListed(
            topic=branch.topic,
            branch=branch.branch,
            volume=str(branch.vid),
            created_at=Moment(branch.created_at_ms),
            parent=BranchParent(str(parent.vid), parent.lsn, parent.seq) if parent else None,
            ahead=distance.ahead,
            behind=distance.behind,
            deleted_at=Moment(branch.deleted_at_ms) if branch.deleted_at_ms is not None else None,
            depth=depth,
            parent_name=names.get(parent.vid) if parent else None,
        )


def delete(
    directory: Directory,
    topic: PlainTopicName,
    name: Name,
    message: Reason = "",
    dry_run: DryRun = False,
    yes: Yes = False,
) -> BranchDeleted | WouldTake:
    """Delete a branch. `undelete` brings it back until GC deletes the objects that only this branch had."""
    check_meant(f"this deletes the branch {topic}@{name}", yes=yes, dry_run=dry_run)
    archive = directory.archive
    if dry_run:
        return would("branch delete", f"{topic}@{name}", archive.previews.branch(topic, name))
    gone = archive.branches.delete_branch(topic, name, message=message)
    return BranchDeleted(f"{topic}@{name}", str(gone.vid), Moment(gone.deleted_at_ms or 0))


def undelete(archive: Archive, topic: PlainTopicName, name: Name) -> BranchAt:
    """Bring a deleted branch back."""
    return BranchAt(f"{topic}@{name}", str(archive.branches.undelete_branch(topic, name).vid))


def rename(
    archive: Archive, topic: PlainTopicName, name: Name, new: Annotated[str, About("Its new name.")]
) -> BranchAt:
    """Give a branch another name."""
    return BranchAt(f"{topic}@{new}", str(archive.branches.rename_branch(topic, name, new).vid))


def promote(
    directory: Directory,
    topic: PlainTopicName,
    name: Name,
    keep: Annotated[
        str | None, About("The name of the former main.", shown_default="before-promote- and the time")
    ] = None,
    carry: Annotated[bool, About("Append records that only main has to the branch first, with new seqs.")] = False,
    leave: Annotated[bool, About("Leave the records that only main has in the former main.")] = False,
    message: Annotated[str, About("Why, for the oplog.", "-m --message")] = "",
) -> BranchPromoted:
    """Make a branch the topic's main. The former main stays, as another branch, and `undo` takes the change back.

    If main has records that the branch lacks, nothing changes without --carry or --leave. Deletes that only main has do
    not count, and are not carried. This directory drops its hot copies of both, once they are read back from the
    remote. Another directory that writes one of them is stopped, and keeps what it did not offload: `seglog reset TOPIC
    --as NAME` there.
    Example: seglog branch promote orders before-the-delete
    """
    if carry and leave:
        raise Misuse("--carry and --leave exclude each other")
    with directory.counting(f"branch promote {topic}"):
        branches = directory.archive.branches
        done = branches.promote_branch(topic, name, keep=keep, carry=carry, leave=leave, message=message)
    after = done.after_fork
    return BranchPromoted(
        topic=topic,
        promoted=f"{topic}@{name}",
        volume=str(done.vid),
        former=f"{topic}@{done.keep}",
        shared_seq=after.shared_seq if after else None,
        after_fork=after.left if after else None,
        carried=len(done.carried),
        carried_from_seq=done.carried.start if done.carried else None,
    )


def diff(
    archive: Archive,
    left: Annotated[str, About("TOPIC or TOPIC@BRANCH.", clean=without_main, metavar="LEFT", names="topic")],
    right: Annotated[str, About("The one to compare with.", clean=without_main, metavar="RIGHT", names="topic")],
) -> Iterator[BranchSide]:
    """Count the records that only one of two branches has. It also counts the shared records that one has deleted.

    Records that are not offloaded yet do not count.
    """
    difference = archive.history.diff(left, right)
    yield BranchSide(left, difference.shared_seq, difference.left)
    yield BranchSide(right, difference.shared_seq, difference.right)


def _tree(rows: Sequence[tuple[Branch, Distance]]) -> Iterator[tuple[int, tuple[Branch, Distance]]]:
    """Yield each branch with its depth. A branch follows the branch that it was forked from."""
    vids = {branch.vid for branch, _ in rows}

    def below(parent: Vid | None, depth: int) -> Iterator[tuple[int, tuple[Branch, Distance]]]:
        for row in rows:
            origin = row[0].parent.vid if row[0].parent and row[0].parent.vid in vids else None
            if origin == parent:
                yield depth, row
                yield from below(row[0].vid, depth + 1)

    return below(None, 0)


def branch_text(row: BranchListed) -> str:
    parent = row.parent
    name = "  " * row.depth + ("- " if row.depth else "") + row.branch
    origin = ""
    if parent is not None:
        cut = f" seq {parent.seq}" if parent.seq else ""
        origin = f"from {row.parent_name or parent.volume} lsn {parent.lsn}{cut}, +{row.ahead} -{row.behind}"
    gone = f"deleted {row.deleted_at}" if row.deleted_at is not None else ""
    return f"{name:<24} {row.volume}  {row.created_at}  {origin}  {gone}".rstrip()


def _branch_row(row: BranchListed) -> Sequence[str | Moment]:
    parent = row.parent
    origin = f"{row.parent_name or parent.volume} {_point(parent.lsn, parent.seq)}" if parent else ""
    moved = (f"+{row.ahead}", f"-{row.behind}") if parent else ("", "")
    name = f"{'  ' * row.depth}{row.branch}"
    return (name, row.created_at, origin, *moved, "" if row.deleted_at is None else row.deleted_at)


def _point(lsn: int, seq: int | None) -> str:
    return f"lsn {lsn}" if seq is None else f"lsn {lsn} seq {seq}"


def branch_deleted_text(gone: BranchDeleted) -> str:
    topic, _, name = gone.branch.partition("@")
    return f"{gone.branch} is deleted; `seglog branch undelete {topic} {name}` brings it back"


def _print_renamed(output: Output, results: Iterator[BranchAt], values: Mapping[str, Any]) -> None:
    for renamed in results:
        output.show(renamed, f"{values['topic']}@{values['name']} is {renamed.branch} now")


def promoted_text(done: BranchPromoted) -> str:
    texts = [f"{done.topic} is what {done.promoted} was; the former main is {done.former}"]
    side = done.after_fork
    if side is not None and (side.appended or side.deleted):
        parts = [f"has {counted(side.appended)}, seq {side.first_seq} to {side.last_seq}"] if side.appended else []
        parts += [f"deleted {counted(side.deleted)} up to seq {done.shared_seq}"] if side.deleted else []
        texts.append(f"  {'' if done.carried else 'only '}{done.former} {' and '.join(parts)}")
    if done.carried:
        texts.append(f"  carried {counted(done.carried)} to {done.topic}, from seq {done.carried_from_seq} on")
    texts.append("  undo: `seglog undo`")
    return "\n".join(texts)


def side_text(branch_side: BranchSide) -> str:
    side = branch_side.side
    seqs = f", seq {side.first_seq} to {side.last_seq}" if side.appended else ""
    changes = f"appended {counted(side.appended)}{seqs}; deleted {counted(side.deleted)}"
    return f"{branch_side.branch:<24} {changes} of those up to seq {branch_side.shared_seq}"


_print_branch = rows(("branch", "made", "from", "ahead", "behind", "deleted"), _branch_row, branch_text)


BRANCH_LIST = Command("branch/list", list_branches, _print_branch, reads=always, role="read")
BRANCH_DELETE = Command("branch/delete", delete, taking_lines(branch_deleted_text), reads=dry, takes=always)
BRANCH_UNDELETE = Command("branch/undelete", undelete, lines(lambda back: f"{back.branch} is back"))
BRANCH_RENAME = Command("branch/rename", rename, _print_renamed)
BRANCH_PROMOTE = Command("branch/promote", promote, lines(promoted_text))
BRANCH_DIFF = Command("branch/diff", diff, lines(side_text), reads=always, role="read")
