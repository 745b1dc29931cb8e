"""The texts of `seglog branch ...`, `tag ...`, `restore`, `oplog` and `undo`: names of states, and their changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from offload.cli.preview import taking_lines
from offload.operations.branch import BranchAt, BranchDeleted, BranchListed, BranchMade, BranchPromoted, BranchSide
from offload.operations.oplog import CommitUndone, Operation
from offload.operations.pin import PinListed
from offload.operations.printing import Output, lines, rows
from offload.operations.tag import TagListed
from offload.operations.units import counted, format_bytes

__all__ = [
    "print_branch",
    "print_branch_back",
    "print_branch_deleted",
    "print_branch_made",
    "print_operation",
    "print_pin",
    "print_pin_released",
    "print_promoted",
    "print_renamed",
    "print_side",
    "print_tag",
    "print_tag_deleted",
    "print_undone",
]


def branch_made_text(made: BranchMade) -> str:
    last = f", the last one seq {made.last_seq} of {made.last_time}" if made.last_seq else ""
    return f"{made.branch} holds {counted(made.records)}{last}"


def branch_text(row: BranchListed) -> str:
    parent = row.parent
    name = "  " * row.depth + ("- " if row.depth else "") + row.branch
    origin = ""
    if parent is not None:
        cut = f" seq {parent.seq}" if parent.seq else ""
        origin = f"from {row.parent_name or parent.volume} lsn {parent.lsn}{cut}, +{row.ahead} -{row.behind}"
    gone = f"deleted {row.deleted_at}" if row.deleted_at is not None else ""
    return f"{name:<24} {row.volume}  {row.created_at}  {origin}  {gone}".rstrip()


def _branch_row(row: BranchListed) -> Sequence[str]:
    parent = row.parent
    origin = f"{row.parent_name or parent.volume} {_point(parent.lsn, parent.seq)}" if parent else ""
    moved = (f"+{row.ahead}", f"-{row.behind}") if parent else ("", "")
    deleted = "" if row.deleted_at is None else str(row.deleted_at)
    return (f"{'  ' * row.depth}{row.branch}", row.volume, str(row.created_at), origin, *moved, deleted)


def _tag_row(listed: TagListed) -> Sequence[str]:
    seq = "" if listed.seq is None else str(listed.seq)
    return listed.tag, listed.branch, str(listed.lsn), seq, str(listed.created_at), listed.message


def _operation_row(found: Operation) -> Sequence[str]:
    return str(found.number), str(found.at), found.writer, found.operation, _subject(found.subject), found.message


def _point(lsn: int, seq: int | None) -> str:
    return f"lsn {lsn}" if seq is None else f"lsn {lsn} seq {seq}"


def branch_deleted_text(gone: BranchDeleted) -> str:
    topic, _, name = gone.branch.partition("@")
    return f"{gone.branch} is deleted; `seglog branch undelete {topic} {name}` brings it back"


def print_renamed(output: Output, results: Iterator[BranchAt], values: Mapping[str, Any]) -> None:
    for renamed in results:
        output.show(renamed, f"{values['topic']}@{values['name']} is {renamed.branch} now")


def promoted_text(done: BranchPromoted) -> str:
    told = [f"{done.topic} is what {done.promoted} was; the former main is {done.former}"]
    side = done.after_fork
    if side is not None and (side.appended or side.deleted):
        parts = [f"has {counted(side.appended)}, seq {side.first_seq} to {side.last_seq}"] if side.appended else []
        parts += [f"deleted {counted(side.deleted)} up to seq {done.shared_seq}"] if side.deleted else []
        told.append(f"  {'' if done.carried else 'only '}{done.former} {' and '.join(parts)}")
    if done.carried:
        told.append(f"  carried {counted(done.carried)} to {done.topic}, from seq {done.carried_from_seq} on")
    told.append("  undo: `seglog undo`")
    return "\n".join(told)


def side_text(found: BranchSide) -> str:
    side = found.side
    seqs = f", seq {side.first_seq} to {side.last_seq}" if side.appended else ""
    told = f"appended {counted(side.appended)}{seqs}; deleted {counted(side.deleted)}"
    return f"{found.branch:<24} {told} of those up to seq {found.shared_seq}"


def tag_text(listed: TagListed) -> str:
    cut = f" seq {listed.seq}" if listed.seq else ""
    place = f"{listed.branch} lsn {listed.lsn}{cut}"
    return f"{listed.tag:<24} {place:<28} {listed.created_at}  {listed.message}".rstrip()


def pin_text(found: PinListed) -> str:
    cut = f" seq {found.seq}" if found.seq else ""
    place = f"{found.topic or found.volume} lsn {found.lsn}{cut}"
    until = "expired" if found.is_expired else "until"
    return f"{found.pin:<16} {place:<28} {until} {found.expires_at}  {found.holder}"


def operation_text(found: Operation) -> str:
    return (
        f"{found.number:<6} {found.at}  {found.writer:<16} {found.operation:<16} "
        f"{_subject(found.subject)}  {found.message}"
    ).rstrip()


def undone_text(done: Operation | CommitUndone) -> str:
    if isinstance(done, Operation):
        return f"undone: {operation_text(done)}"
    what = f"lsn {done.undone} of {done.topic}, of kind {done.undone_kind}"
    seqs = f", seq {done.first_seq} to {done.last_seq}" if done.records else ""
    if done.is_earlier:
        told = [f"{what}, is undone already (lsn {done.lsn}): nothing more comes back"]
    elif done.lsn is None:
        told = [f"undo of {what}, would bring back {counted(done.records)}{seqs}"]
        told.append(f"  do it: `seglog undo {done.topic} {done.target}`")
        if done.objects:
            told.append(f"  shows {counted(done.objects, 'object')} of {format_bytes(done.bytes)} again")
    else:
        told = [f"undone: {what}: {counted(done.records)} are back{seqs} (lsn {done.lsn})"]
        told.append("  reads go to the remote, and the next append here takes the topic over")
    if done.gone:
        told.append(f"  {counted(done.gone)} are in no object any more")
    if done.stay_away:
        by = ", ".join(f"lsn {each}" for each in done.taken_by)
        told.append(f"  {counted(done.stay_away)} stay away: {by} took them as well")
    return "\n".join(told)


def _subject(key: str) -> str:
    """Return the subject of an operation as the command line names it."""
    kind, _, rest = key.partition("/")
    topic, _, name = rest.partition("/")
    return {"refs": f"{topic}@{name}", "tags": f"{topic} tag:{name}"}.get(kind, key)


print_branch_made = lines(branch_made_text)
print_operation = rows(("number", "time", "writer", "operation", "subject", "message"), _operation_row, operation_text)
print_undone = lines(undone_text)
print_branch = rows(("branch", "volume", "made", "from", "ahead", "behind", "deleted"), _branch_row, branch_text)
print_branch_deleted = taking_lines(branch_deleted_text)
print_branch_back = lines(lambda back: f"{back.branch} is back")
print_promoted = lines(promoted_text)
print_side = lines(side_text)
print_tag = rows(("tag", "branch", "lsn", "seq", "made", "message"), _tag_row, tag_text)
print_pin = lines(pin_text)
print_pin_released = lines(lambda gone: f"pin {gone.pin} is released")
print_tag_deleted = lines(lambda gone: f"tag {gone.tag} is deleted")
