"""The changes of branches and tags, and the way back: `seglog oplog` and `seglog undo`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import field, replace
from itertools import islice
from typing import TYPE_CHECKING, Annotated

from offload.errors import Misuse
from offload.moment import Moment
from offload.operations.command import About, Command, Directory, Reason, always, dry, without_main
from offload.operations.printing import counted, format_bytes, lines, rows
from offload.operations.result_json import OPTIONAL
from seglog.base.arguments import WHOLE_MAX
from seglog.base.dataclasses import dataclass
from seglog.base.lazy import pattern

if TYPE_CHECKING:
    from catalog import Vid
    from catalog.refs.oplog import NumberedEntry
    from offload.archive import Archive
    from offload.services.undoing import Undone

_LSN = pattern(r"lsn:([0-9]+)(?:@(.+))?", re.ASCII)
_DELETE = pattern(r"delete:([0-9]+)", re.ASCII)
_DIGITS = 19


@dataclass(frozen=True, slots=True)
class Operation:
    """A change of a branch or a tag. `subject` is its key in the remote.

    `is_preview` says that `undo` would take it back.
    """

    number: int
    at: Moment
    operation: str
    subject: str
    writer: str
    message: str
    is_preview: bool | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class CommitUndone:
    """The commit `undone` of a topic, taken back by the commit `lsn`, which is None for a preview.

    `target` means that commit and no other, so `undo` with it does what the preview showed, also if it is repeated.

    `records` came back, from `first_seq` to `last_seq`. `gone` are in no object any more. `stay_away` were taken by the
    later commits `taken_by` as well. The topic shows so many `objects` again, of so many bytes. `is_earlier` says that
    an earlier call has made the commit. A preview names it, too. `is_replica` says that this directory does not write
    the topic, so that the undo stops the writer.
    """

    topic: str
    target: str
    undone: int
    undone_kind: str
    lsn: int | None
    records: int
    first_seq: int | None
    last_seq: int | None
    gone: int
    stay_away: int
    taken_by: tuple[int, ...]
    objects: int
    bytes: int
    is_earlier: bool
    is_replica: bool


@dataclass(frozen=True, slots=True)
class DeleteUndone:
    """The delete number `undone` of a topic, which no commit has. `is_preview` says that it is not undone yet.

    The other fields are those of `CommitUndone`. `gone` also counts records of which the log cannot tell whether an
    earlier delete took them.
    """

    topic: str
    target: str
    undone: int
    is_preview: bool
    records: int
    first_seq: int | None
    last_seq: int | None
    gone: int
    stay_away: int


def oplog(
    archive: Archive, limit: Annotated[int, About("At most so many.", "-n --limit", least=1)] = 50
) -> Iterator[Operation]:
    """Show who changed which branch or tag. The newest change is the first. `undo` reverts a change by its number."""
    return map(_operation, islice(archive.history.operations(), limit))


def undo(
    directory: Directory,
    change: Annotated[
        str | None,
        About("The number of a change in `oplog`, or a topic.", clean=without_main, is_argument=True, names="topic"),
    ] = None,
    commit: Annotated[
        str | None,
        About(
            "With a topic: the delete, eviction or truncation to undo, as lsn:N or lsn:N@VOLUME. Or delete:N for one"
            " without a commit; the newest of these is the default.",
            is_argument=True,
            names="target",
        ),
    ] = None,
    partial: Annotated[bool, About("Bring back what is left, if some of the records are gone.")] = False,
    message: Reason = "",
    dry_run: Annotated[bool, About("Show what would come back, and change nothing.")] = False,
) -> Operation | CommitUndone | DeleteUndone:
    """Undo a removal of records, or a change of names. It is the last change of a branch or tag, the change with that
    number, or one delete, eviction or truncation.

    Each `undo` without arguments goes one change of a name further back, and no record changes. If records of that
    topic were taken away since, it asks which of the two is meant. It does not look at other topics. It takes no branch
    away that alone shows records: `seglog branch delete` shows them, and deletes it. `undo TOPIC lsn:N` brings back the
    records that a delete, an eviction or a truncation took. They have their seqs and times again, and all else stays.
    The command first offloads the topic. The directory that writes it writes on; a truncation costs it the hot copies.
    From another directory, the writer is stopped, and keeps what it did not offload: `seglog reset TOPIC --as NAME`
    there. `undo TOPIC` brings back what the newest delete took that no commit has, and `undo TOPIC delete:N` what that
    one took. Without a remote this works as long as the segments are there. Example: seglog undo orders lsn:7
    """
    if change is not None and not (change.isdecimal() and commit is None):
        waiting = _DELETE.fullmatch(commit or "")
        if commit is None or waiting is not None:
            number = None if waiting is None else _number(waiting[1])
            return _undo_delete(directory, change, number, partial=partial, message=message, dry_run=dry_run)
        return _undo_commit(directory, change, commit, partial=partial, message=message, dry_run=dry_run)
    if partial or message:
        raise Misuse("--partial and --message go with a topic")
    number = None if change is None else _number(change)
    if number is None and directory.maybe_archive is None:
        raise Misuse("without a remote no name has changed: `seglog undo TOPIC` takes back a delete")
    with directory.counting("undo"):
        if number is None:
            operation = _last_operation(directory.archive)
            _check_newest(directory, operation)
            number = operation.number
        done = _operation(directory.archive.history.undo(number, preview=dry_run))
        return replace(done, is_preview=True) if dry_run else done


def _undo_delete(
    directory: Directory, topic: str, number: int | None, *, partial: bool, message: str, dry_run: bool
) -> CommitUndone | DeleteUndone:
    archive, log = directory.maybe_archive, directory.log
    with directory.counting(f"undo {topic}"):
        if archive is not None and (not log.has_topic(topic) or log.topic(topic).config.keep_history):
            if not dry_run:
                return _commit_undone(
                    topic, archive.history.undo_delete(topic, number, partial=partial, message=message)
                )
            seen = archive.history.preview_undo_delete(topic, number)
        else:
            seen = log.get_topic(topic).undo(number, partial=partial, preview=dry_run)
    return DeleteUndone(
        topic=topic,
        target=f"delete:{seen.delete}",
        undone=seen.delete,
        is_preview=dry_run,
        records=len(seen.back),
        first_seq=seen.back.first or None,
        last_seq=seen.back.end - 1 if seen.back else None,
        gone=len(seen.gone),
        stay_away=len(seen.stay),
    )


def _undo_commit(
    directory: Directory, topic: str, commit: str, *, partial: bool, message: str, dry_run: bool
) -> CommitUndone:
    lsn = _LSN.fullmatch(commit)
    if lsn is None:
        raise Misuse(
            f"{commit!r} is neither lsn:N nor delete:N: `seglog log {topic} --kind delete,evict,truncate` lists commits"
        )
    number, vid = _number(lsn[1]), _volume(lsn[2])
    history = directory.archive.history
    with directory.counting(f"undo {topic}"):
        undone = (
            history.preview_undo(topic, number, vid)
            if dry_run
            else history.undo_removal(topic, number, vid, partial=partial, message=message)
        )
    return _commit_undone(topic, undone)


def _commit_undone(topic: str, undone: Undone) -> CommitUndone:
    return CommitUndone(
        topic=topic,
        target=f"lsn:{undone.undone.lsn}@{undone.undone.vid}",
        undone=undone.undone.lsn,
        undone_kind=undone.kind,
        lsn=undone.lsn,
        records=undone.records,
        first_seq=undone.first_seq or None,
        last_seq=undone.last_seq or None,
        gone=undone.gone,
        stay_away=undone.away,
        taken_by=undone.taken_by,
        objects=undone.objects,
        bytes=undone.size_bytes,
        is_earlier=undone.is_earlier,
        is_replica=undone.is_replica,
    )


def _number(text: str) -> int:
    number = int(text[:_DIGITS])
    if not 1 <= number <= WHOLE_MAX or len(text) > _DIGITS:
        raise Misuse(f"{text}: these numbers are from 1 to {WHOLE_MAX}")
    return number


def _volume(text: str | None) -> Vid | None:
    from catalog import Vid
    from catalog.errors import InvalidKey

    try:
        return None if text is None else Vid.parse(text)
    except InvalidKey:
        raise Misuse(f"{text} is no volume: `seglog log` shows them") from None


def _last_operation(archive: Archive) -> NumberedEntry:
    from catalog.errors import NotUndone

    try:
        return archive.history.last_operation()
    except NotUndone as nothing:
        nothing.hint = "`seglog undo TOPIC` takes back a delete, and `seglog undo TOPIC lsn:N` one that has its commit"
        raise


def _check_newest(directory: Directory, newest: NumberedEntry) -> None:
    """Raise `NotUndone` if records were taken from the topic after the operation. The operator may mean that."""
    from catalog.errors import Missing, NotUndone
    from catalog.format.control import full_name
    from catalog.format.keys import named_by

    archive, log = directory.archive, directory.log
    for subject in sorted({change.subject for change in newest.entry.changes}):
        names = named_by(subject)
        if names is None:
            continue
        topic, branch = names
        for name in (topic, full_name(topic, branch)) if subject.startswith("refs/") else (topic,):
            way_back = f"`seglog undo {newest.number}` takes back the {newest.entry.operation} before it"
            waiting = log.topic(name).inner.delete_ops() if log.has_topic(name) else ()
            if waiting and waiting[-1].ts_ms > newest.entry.at_ms:
                reason = f"the newest change of {name} is delete {waiting[-1].op}, which no commit has yet"
                raise NotUndone(newest.number, reason, f"`seglog undo {name}` takes that back, {way_back}")
            with suppress(Missing):
                past = archive.history.newest_removal(name)
                if past is not None and past.commit.created_at_ms > newest.entry.at_ms:
                    target = archive.history.commits(name).target_of(past.commit)
                    change = f"{past.commit.kind.name.lower()}, lsn {past.commit.lsn}"
                    raise NotUndone(
                        newest.number,
                        f"the newest change of {name} is a commit of kind {change}",
                        f"`seglog undo {name} {target}` takes that back, {way_back}",
                    )


def _operation(operation: NumberedEntry) -> Operation:
    entry = operation.entry
    return Operation(
        number=operation.number,
        at=Moment(entry.at_ms),
        operation=entry.operation,
        subject=entry.subject,
        writer=entry.writer_id,
        message=entry.message,
    )


def _operation_row(entry: Operation) -> Sequence[str | Moment]:
    return str(entry.number), entry.at, entry.writer, entry.operation, _subject(entry.subject), entry.message


def operation_text(entry: Operation) -> str:
    return (
        f"{entry.number:<6} {entry.at}  {entry.writer:<16} {entry.operation:<16} "
        f"{_subject(entry.subject)}  {entry.message}"
    ).rstrip()


def undone_text(done: Operation | CommitUndone | DeleteUndone) -> str:
    if isinstance(done, Operation) and done.is_preview:
        return f"would take back: {operation_text(done)}{_stops(done)}\n  do it: `seglog undo {done.number}`"
    if isinstance(done, Operation):
        return f"undone: {operation_text(done)}"
    if isinstance(done, DeleteUndone):
        return _delete_text(done)
    subject = f"lsn {done.undone} of {done.topic}, of kind {done.undone_kind}"
    seqs = f", seq {done.first_seq} to {done.last_seq}" if done.records else ""
    if done.is_earlier:
        texts = [f"{subject}, is undone already (lsn {done.lsn}): nothing more comes back"]
    elif done.lsn is None:
        texts = [f"undo of {subject}, would bring back {counted(done.records)}{seqs}"]
        texts.append(f"  do it: `seglog undo {done.topic} {done.target}`")
        if done.objects:
            texts.append(f"  shows {counted(done.objects, 'object')} of {format_bytes(done.bytes)} again")
        if done.is_replica:
            stopped = (
                f"  stops the directory that writes {done.topic}, because this one does not: what it did not offload"
            )
            texts.append(f"{stopped} stays there, and `seglog reset {done.topic} --as NAME` keeps it")
    else:
        texts = [f"undone: {subject}: {counted(done.records)} {_are(done.records)} back{seqs} (lsn {done.lsn})"]
        if done.is_replica:
            texts.append("  reads go to the remote, and the next append here takes the topic over")
    if not (done.records or done.gone or done.stay_away or done.is_earlier):
        texts.append("  its records stay away: earlier deletes took them as well")
    if done.gone:
        texts.append(f"  {counted(done.gone)} {_are(done.gone)} in no object any more")
    if done.stay_away:
        by = ", ".join(f"lsn {lsn}" for lsn in done.taken_by)
        texts.append(f"  {counted(done.stay_away)} {_are(done.stay_away)} still away: {by} took them as well")
    return "\n".join(texts)


def _stops(change: Operation) -> str:
    return "\n  stops the other directories that write the two branches" if change.operation == "branch promote" else ""


def _delete_text(done: DeleteUndone) -> str:
    subject = f"delete {done.undone} of {done.topic}"
    seqs = f", seq {done.first_seq} to {done.last_seq}" if done.records else ""
    if done.is_preview:
        texts = [f"undo of {subject}, would bring back {counted(done.records)}{seqs}"]
        texts.append(f"  do it: `seglog undo {done.topic} {done.target}`")
    else:
        texts = [f"undone: {subject}: {counted(done.records)} {_are(done.records)} back{seqs}"]
    if done.gone:
        texts.append(f"  {counted(done.gone)} {_are(done.gone)} gone for good")
    if done.stay_away:
        texts.append(f"  {counted(done.stay_away)} {_are(done.stay_away)} still away: other deletes took them as well")
    return "\n".join(texts)


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _subject(key: str) -> str:
    """Return the subject of an operation as the command line names it."""
    kind, _, path = key.partition("/")
    topic, _, name = path.partition("/")
    return {"refs": f"{topic}@{name}", "tags": f"{topic} tag:{name}"}.get(kind, key)


_print_operation = rows(("number", "time", "writer", "operation", "subject", "message"), _operation_row, operation_text)


OPLOG = Command("oplog", oplog, _print_operation, reads=always, role="read", is_long=True, section="names")
UNDO = Command("undo", undo, lines(undone_text), reads=dry, section="time travel")
