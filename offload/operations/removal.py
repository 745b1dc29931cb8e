"""Remove records of a topic: `seglog delete`, `evict` and `truncate`."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import field, replace
from itertools import islice, starmap
from typing import TYPE_CHECKING, Annotated

from xxhash import xxh3_64_hexdigest

from offload.errors import InvalidOption, Misuse
from offload.moment import Moment
from offload.operations.command import About, Command, Directory, DryRun, Reason, TopicName, Yes, always, dry
from offload.operations.matching import Fixed, Match, Pattern, Since, Tag, Until, conditions
from offload.operations.printing import (
    SeqRange,
    WouldTake,
    check_meant,
    counted,
    parse_span_ms,
    taking_lines,
    would,
    would_take,
)
from offload.operations.read import matching_seqs
from offload.operations.result_json import HIDDEN, OPTIONAL
from seglog.base.arguments import WHOLE_MAX
from seglog.base.dataclasses import dataclass
from seglog.base.lazy import pattern
from seglog.errors import ConcurrentModification, NotTruncatable, SeqOutOfRange
from seglog.values.deletes import DeleteWhere
from seglog.values.seq_set import SeqSet

if TYPE_CHECKING:
    from offload.archive import Removed

_RANGES_TOLD = 100
_PREVIEW = pattern(r"([0-9]{1,18})-([0-9]{1,18})-[0-9a-f]{16}", re.ASCII)


@dataclass(frozen=True, slots=True)
class RecordsDeleted:
    """`deleted` is None if the number is unknown. `waits_for` says why the commit in the remote comes later.

    `undo` is the way back. A commit has one up to the time `until`. `number` names a delete that has no commit.
    """

    topic: str
    deleted: int | None
    lsn: int | None
    number: int | None = field(metadata=OPTIONAL)
    undo: str | None = field(metadata=OPTIONAL)
    until: Moment | None = field(metadata=OPTIONAL)
    waits_for: str | None = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class RecordsEvicted:
    """`evicted` is None if the number is unknown. The other fields are those of `RecordsDeleted`."""

    topic: str
    evicted: int | None
    earliest_seq: int
    lsn: int | None
    number: int | None = field(metadata=OPTIONAL)
    undo: str | None = field(metadata=OPTIONAL)
    until: Moment | None = field(metadata=OPTIONAL)
    waits_for: str | None = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class RecordsRemoved:
    """`lsn` is None without a commit in the remote. The other fields are those of `RecordsDeleted`."""

    topic: str
    removed: int
    head_seq: int
    epoch: int
    lsn: int | None
    undo: str | None = field(metadata=OPTIONAL)
    until: Moment | None = field(metadata=OPTIONAL)
    waits_for: str | None = field(metadata=HIDDEN)


def delete(
    directory: Directory,
    topic: TopicName,
    start: Annotated[int | None, About("The first seq to delete.", "--from", least=1)] = None,
    end: Annotated[int | None, About("The last seq to delete.", "--to", least=1)] = None,
    before: Annotated[int | None, About("Delete the records below this seq.")] = None,
    since: Since = None,
    until: Until = None,
    tag: Tag = None,
    grep: Pattern = None,
    fixed: Fixed = False,
    seqs: Annotated[str | None, About("Only these seqs, such as 17,4711-4720.", metavar="SEQS")] = None,
    epoch: Annotated[int | None, About("The epoch that the seqs are of. Else, delete nothing.")] = None,
    preview: Annotated[
        str | None, About("The `preview` of a dry run: delete just its records, or none.", metavar="PREVIEW")
    ] = None,
    message: Reason = "",
    dry_run: DryRun = False,
    yes: Yes = False,
) -> RecordsDeleted | WouldTake:
    """Delete records by seq, time, tag or content. `read` shows the same records with the same conditions. Readers no
    longer see them.

    Try it with `read`, then say `delete`: seglog read orders --since 14:02 --until 14:20 --tag "web*".
    All of the records go, or none after a crash. With a remote, the delete becomes a commit: at once, or with the next
    offload if older records wait for it. `seglog undo` brings the records back: a commit as `lsn:N`, and a delete
    without one as `delete:N`. Without a remote this works as long as the segments of the records are there.
    """
    from offload.services.writer import take_here

    if all(condition is None for condition in (start, end, before, since, until, tag, grep, seqs)):
        raise Misuse("name the records: --from, --to, --before, --since, --until, --tag, --grep or --seqs")
    check_meant(f"this deletes records of {topic}", yes=yes, dry_run=dry_run)
    archive = directory.maybe_archive
    for seq in (start, before):
        _check_within(directory, topic, seq)
    match = conditions(directory, since, until, tag, grep, fixed=fixed)
    if epoch is None and directory.log.has_topic(topic):
        epoch = directory.log.topic(topic).epoch
    chosen = DeleteWhere(before, tag, start, end, None if seqs is None else _seqs_of(seqs), epoch)
    where = _where(directory, topic, chosen, match, preview)
    if dry_run:
        return _would_delete(directory, topic, where)
    if preview is not None and _would_delete(directory, topic, where).preview != preview:
        raise ConcurrentModification(topic)
    if where is None:
        return RecordsDeleted(topic, 0, None, None, None, None, None)
    if archive is None:
        handle = directory.log.get_topic(topic)
        done = take_here(handle, where, lambda: handle.inner.delete(where))
    else:
        done = archive.delete(
            topic,
            before=where.before,
            tag=where.tag,
            start=where.start,
            end=where.end,
            seqs=where.seqs,
            epoch=epoch,
            message=message,
        )
    way_back = _way_back(directory, topic, done, is_eviction=False)
    return RecordsDeleted(topic, done.records, done.lsn, *way_back, _waits(done, message))


def _where(
    directory: Directory, topic: str, where: DeleteWhere, match: Match, preview: str | None
) -> DeleteWhere | None:
    """Return the conditions with seqs in the place of times and of a pattern; None if no record meets them.

    Times become seqs because they never descend. The seqs of a preview stand for the times that it had.
    """
    start, end = where.start or 1, WHOLE_MAX if where.end is None else where.end
    if preview is not None:
        first, last = _span_of(preview)
        start, end = first if match.since_ms is not None else start, min(end, last)
    else:
        if match.since_ms is not None:
            start = max(start, _seq_at(directory, topic, match.since_ms))
        if match.until_ms is not None:
            end = min(end, _seq_at(directory, topic, match.until_ms + 1) - 1)
    if end < start:
        return None
    if match.has_pattern is None:
        return replace(where, start=start, end=None if end == WHOLE_MAX else end)
    last = end if where.before is None else min(end, where.before - 1)
    plain = replace(match, since_ms=None, until_ms=None)
    seqs = matching_seqs(directory, topic, None if start == 1 else start, None if last == WHOLE_MAX else last, plain)
    if where.seqs is not None:
        seqs = SeqSet.of(part for first, last in where.seqs.ranges() for part in seqs.within(first, last).ranges())
    return DeleteWhere(seqs=seqs, epoch=where.epoch) if seqs else None


def _seq_at(directory: Directory, topic: str, ts_ms: int) -> int:
    """Return the first seq of that time or later."""
    archive = directory.maybe_archive
    return directory.log.get_topic(topic).seq_at(ts_ms) if archive is None else archive.previews.seq_at(topic, ts_ms)


def _would_delete(directory: Directory, topic: str, where: DeleteWhere | None) -> WouldTake:
    """Return the preview of a delete. Its `preview` has the span of the seqs and a hash of them: 17-4711-5f2d…."""
    from offload.services.previews import preview_here

    archive = directory.maybe_archive
    where = DeleteWhere(seqs=SeqSet.of(())) if where is None else where
    if archive is None:
        found = preview_here(directory.log.get_topic(topic), where)
    else:
        found = archive.previews.removal(
            topic, start=where.start or 1, before=where.before, tag=where.tag, end=where.end, seqs=where.seqs
        )
    taking = would("delete", topic, found)
    seqs = SeqSet.of_seqs(found.going.seqs)
    if not seqs:
        return taking
    ranges = tuple(starmap(SeqRange, islice(seqs.ranges(), _RANGES_TOLD)))
    digest = xxh3_64_hexdigest(json.dumps([where.epoch, *seqs.to_json()]).encode())
    more = seqs.range_count - len(ranges)
    return replace(taking, ranges=ranges, more_ranges=more or None, preview=f"{seqs.first}-{seqs.end - 1}-{digest}")


def _seqs_of(text: str) -> SeqSet:
    """Return the seqs of a text such as 17,4711-4720. An empty text names none. Raises `InvalidOption`."""
    form = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", re.ASCII)
    parts = [form.fullmatch(part.strip()) for part in text.split(",")] if text else []
    ranges = [(int(part[1]), int(part[2] or part[1])) for part in parts if part]
    if len(ranges) < len(parts) or any(last < first for first, last in ranges):
        raise InvalidOption("seqs", f"{text[:100]!r} has no such form: 17,4711-4720")
    return SeqSet.of(sorted(ranges))


def _span_of(preview: str) -> tuple[int, int]:
    """Return the first and the last seq of a preview. Raises `InvalidOption`."""
    form = _PREVIEW.fullmatch(preview)
    if form is None:
        raise InvalidOption("preview", f"{preview!r} is none: a dry run of the delete tells it")
    return int(form[1]), int(form[2])


def evict(
    directory: Directory,
    topic: TopicName,
    before: Annotated[int | None, About("Evict the records below this seq.", least=1)] = None,
    older: Annotated[str | None, About("Evict the records that are older, such as 90d.", "--older-than")] = None,
    message: Reason = "",
    dry_run: DryRun = False,
    yes: Yes = False,
) -> RecordsEvicted | WouldTake:
    """Evict the oldest records of a topic. It evicts them in the remote, too. A reader that starts below gets a gap.

    Retention (`seglog topic set --ttl`, caps) frees the local disk only. The remote keeps those records, and `read
    --at` shows them. `evict` removes them from the remote as well, with a commit. Within the window, `seglog undo TOPIC
    lsn:N` brings them back. After the window, `seglog gc` deletes the objects. Example: seglog evict access
    --older-than 365d
    """
    from offload.services.writer import take_here

    if (before is None) == (older is None):
        raise Misuse("give a bound: --before SEQ or --older-than AGE")
    age_ms = 0 if older is None else parse_span_ms("--older-than", older)
    check_meant(f"this evicts records of {topic}", yes=yes, dry_run=dry_run)
    archive = directory.maybe_archive
    if before is None and archive is not None:
        archive.upkeep.check_clock(f"nothing of {topic} was evicted")
    if dry_run:
        return would_take(directory, "evict", topic, before=before, age_ms=None if older is None else age_ms)
    handle = directory.log.get_topic(topic if archive is None else archive.open_for_append(topic).name)
    bound = before if before is not None else handle.seq_at(max(0, int(time.time() * 1000) - age_ms))
    if archive is None:
        done = take_here(handle, DeleteWhere(bound), lambda: handle.inner.delete(DeleteWhere(bound), evicts=True))
    else:
        done = archive.evict(topic, bound, message=message)
    way_back = _way_back(directory, topic, done, is_eviction=True)
    return RecordsEvicted(topic, done.records, handle.earliest_seq, done.lsn, *way_back, _waits(done, message))


def truncate(
    directory: Directory,
    topic: TopicName,
    start: Annotated[int, About("The first seq to remove.", "--from")],
    message: Reason = "",
    dry_run: DryRun = False,
    yes: Yes = False,
) -> RecordsRemoved | WouldTake:
    """Remove the records from a seq on. Later appends use their seqs again.

    If the remote has any of the records, the command first offloads all of them. The truncation is then a commit. As
    long as no append uses the seqs again, `seglog undo TOPIC lsn:N` brings the records back. Later, `seglog restore
    TOPIC --to head~1 --as NAME` makes a branch of the state before it. If only this directory has the records, there is
    no way back. Example: seglog truncate orders --from 4711 --yes
    """
    from offload.operations.router import truncating
    from offload.services.writer import truncate_here

    check_meant(f"this removes the records of {topic} from {start} on", yes=yes, dry_run=dry_run)
    archive = directory.maybe_archive
    if dry_run:
        _check_within(directory, topic, start)
        _check_floor(directory, topic, start)
        return would_take(directory, "truncate", topic, start=start)
    with truncating(directory.log, archive, topic, start):
        if archive is None:
            done = truncate_here(directory.log.get_topic(topic), start)
        else:
            done = archive.truncate(topic, start, message=message)
    handle = directory.log.topic(topic)
    way_back = _way_back(directory, topic, done, is_eviction=False)
    return RecordsRemoved(
        topic, done.records or 0, handle.head_seq, handle.epoch, done.lsn, *way_back[1:], _waits(done, message)
    )


def _check_within(directory: Directory, topic: str, seq: int | None) -> None:
    """Raise `SeqOutOfRange` if `seq` is above the seq that the next record gets. The log refuses a number too large."""
    if seq is None or seq > WHOLE_MAX:
        return
    archive = directory.maybe_archive
    if archive is None or directory.log.has_topic(topic):
        handle = directory.log.get_topic(topic)
        first, head_seq = handle.first_seq, handle.head_seq
    else:
        bounds = archive.history.snapshot(topic).bounds
        first, head_seq = bounds.first_seq, bounds.head_seq
    if seq > head_seq + 1:
        raise SeqOutOfRange(topic, seq, first, head_seq)


def _check_floor(directory: Directory, topic: str, seq: int) -> None:
    """Raise `NotTruncatable` if a truncation of a topic of the log may not begin at `seq` (TRUNC-5)."""
    if not directory.log.has_topic(topic):
        return
    handle = directory.log.get_topic(topic)
    if seq and handle.config.keep_history and handle.config.ttl_ms:
        return  # `evict_floor` counts expired records, below which a topic with history may be truncated
    floor = (
        handle.inner.evict_floor
        if handle.config.keep_history
        else max(handle.inner.hot_floor, handle.inner.evict_floor)
    )
    if seq < floor:
        raise NotTruncatable(topic, seq, floor)


def _way_back(
    directory: Directory, topic: str, done: Removed, *, is_eviction: bool
) -> tuple[int | None, str | None, Moment | None]:
    """Return the number of a delete without a commit, the command that takes the removal back, and until when."""
    archive = directory.maybe_archive
    if archive is not None and done.lsn is not None:
        until = int(time.time() * 1000) + archive.history.window_ms(topic)
        return None, f"seglog undo {topic} lsn:{done.lsn}", Moment(until)
    is_listed = archive is not None and directory.log.topic(topic).config.keep_history
    has_undo = is_listed or (directory.log.form > 1 and not is_eviction)
    if not done.number or done.records == 0 or not has_undo:
        return None, None, None
    return done.number, f"seglog undo {topic} delete:{done.number}", None


def _waits(done: Removed, message: str) -> str | None:
    """Return why the commit comes later. A later commit has no message."""
    if done.waits_for is None or not message:
        return done.waits_for
    return f"{done.waits_for}; its commit will not have the message"


def deleted_text(done: RecordsDeleted) -> str:
    count = "records" if done.deleted is None else counted(done.deleted)
    return f"deleted {count} of {done.topic}{_commit(done.lsn)}{_undo(done)}"


def evicted_text(done: RecordsEvicted) -> str:
    count = "records" if done.evicted is None else counted(done.evicted)
    begin = f"which begins with seq {done.earliest_seq} now{_commit(done.lsn)}"
    return f"evicted {count} of {done.topic}, {begin}{_undo(done)}"


def truncated_text(done: RecordsRemoved) -> str:
    end = f"which ends with seq {done.head_seq} now{_commit(done.lsn)}"
    return f"removed {counted(done.removed)} of {done.topic}, {end}{_undo(done)}"


def waiting_note(verb: str) -> Callable[[RecordsDeleted | RecordsEvicted | RecordsRemoved], str]:
    """Return a function that says why the commit in the remote comes later. It returns "" if there is no reason."""

    def told(done: RecordsDeleted | RecordsEvicted | RecordsRemoved) -> str:
        reason = done.waits_for
        return f"{verb} here; the remote learns of it later, it waits for: {reason}" if reason else ""

    return told


def _commit(lsn: int | None) -> str:
    return f" (lsn {lsn})" if lsn else ""


def _undo(done: RecordsDeleted | RecordsEvicted | RecordsRemoved) -> str:
    until = f", until {done.until}" if done.until else ""
    return f"\n  undo: `{done.undo}`{until}" if done.undo else ""


_print_deleted = taking_lines(deleted_text, waiting_note("deleted"))
_print_truncated = taking_lines(truncated_text, waiting_note("truncated"))


DELETE = Command("delete", delete, _print_deleted, reads=dry, takes=always, section="everyday")
EVICT = Command("evict", evict, taking_lines(evicted_text, waiting_note("evicted")), reads=dry, takes=always)
TRUNCATE = Command("truncate", truncate, _print_truncated, reads=dry, takes=always)
