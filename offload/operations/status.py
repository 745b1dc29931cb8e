"""The places of each topic's records, as this directory knows them: `seglog status`. A terminal gets a table."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

from offload.moment import Moment, format_time
from offload.moved import retry_if_moved
from offload.operations.command import About, Command, Directory, Work, always
from offload.operations.printing import Output, ago_text, counted, format_bytes, lines, span_text
from offload.operations.results import HIDDEN, MERGED, OPTIONAL
from offload.operations.topic import TopicPlaces, places_of
from offload.reports import Lag, RunStatus, TopicStatus
from seglog import NoSuchTopic, SystemClock

if TYPE_CHECKING:
    from offload.archive import Archive
    from seglog import Topic

__all__ = [
    "STATUS",
    "Ahead",
    "ArchivedTopic",
    "DirectoryShown",
    "DiskLow",
    "LocalTopic",
    "Shown",
    "attempts_text",
    "extent_bar",
    "filled",
    "parts",
    "print_lines",
    "status",
    "status_text",
]

_TOLD_FROM_MS = 60_000
_LOW_FACTOR = 4


@dataclass(frozen=True, slots=True)
class DirectoryShown:
    """The data directory. `remote` is None if it has none."""

    path: str = field(metadata=HIDDEN)
    remote: str | None = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class DiskLow:
    """The free space of the disk, once it is less than four times the space at which the log refuses appends."""

    free_bytes: int
    disk_reject_bytes: int


@dataclass(frozen=True, slots=True)
class Ahead:
    """The time by which the newest record of a topic is ahead of the clock. Small times do not count."""

    ahead_ms: int
    newest: Moment = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class LocalTopic:
    """A topic of a directory without a remote."""

    name: str
    places: TopicPlaces = field(metadata=MERGED)
    ahead: Ahead | None = field(metadata=MERGED)


@dataclass(frozen=True, slots=True)
class ArchivedTopic:
    """A topic of a directory with a remote. `work` is None without a daemon, `runs` if the caller did not ask.

    `lag` is None for a replica. `kept_from` is the time from which GC keeps each state, None without a volume.
    `next_step` is the command that the operator may want next.
    """

    status: TopicStatus = field(metadata=MERGED)
    lag: Lag | None = field(metadata=MERGED)
    kept_from: Moment | None
    next_step: str | None
    work: Work | None = field(metadata=MERGED)
    runs: tuple[RunStatus, ...] | None = field(metadata=OPTIONAL)
    ahead: Ahead | None = field(metadata=MERGED)


def status(
    directory: Directory,
    topic: Annotated[str | None, About("One topic; all without it.", is_argument=True, names="topic")] = None,
    runs: Annotated[bool, About("Each offloaded range of segments, too.")] = False,
    watch: Annotated[bool, About("Show it again every two seconds, until an interrupt.")] = False,  # noqa: ARG001 - the command line asks again
) -> Iterator[DirectoryShown | DiskLow | LocalTopic | ArchivedTopic]:
    """Show what is safe, and what is wrong.

    The lag is what the remote does not have yet: records, bytes, and the age of the oldest. On a terminal, a table also
    shows open attempts, how far back a restore can go, and the next step. A first line warns of a disk that gets full,
    long before the log refuses appends. The command asks only this directory, never
    the remote or the warm store, so it answers without a network.
    """
    log, archive = directory.log, directory.maybe_archive
    names = _names(directory, topic)
    yield DirectoryShown(str(log.path.resolve()), archive.url if archive else None)
    free_bytes, reject_bytes = shutil.disk_usage(log.path).free, log.settings.disk_reject_bytes
    if free_bytes < _LOW_FACTOR * reject_bytes:
        yield DiskLow(free_bytes, reject_bytes)
    for name in names:
        if archive is None:
            local = log.topic(name)
            yield LocalTopic(name, places_of(local), _ahead(local))
            continue
        try:
            topic_status = _archived(directory, archive, name, runs=runs)
        except NoSuchTopic:
            if topic is not None:
                raise
            continue  # deleted since the list was made
        yield topic_status


def _archived(directory: Directory, archive: Archive, name: str, *, runs: bool) -> ArchivedTopic:
    """Return what there is to show of a topic. It may leave the log meanwhile, or come there (MOVED-1)."""
    log = directory.log

    def look() -> ArchivedTopic:
        state, work = archive.status.topic(name), directory.host.work(name)
        kept_from_ms = archive.status.kept_from_ms(name)
        return ArchivedTopic(
            status=state,
            lag=archive.status.lag(name) if log.has_topic(name) else None,
            kept_from=None if kept_from_ms is None else Moment(kept_from_ms),
            next_step=_next_step(state, work),
            work=work,
            runs=tuple(archive.status.runs(name)) if runs else None,
            ahead=_ahead(log.topic(name)) if log.has_topic(name) else None,
        )

    return retry_if_moved(look, lambda: log.topic(name).epoch, NoSuchTopic)


def _next_step(state: TopicStatus, work: Work | None) -> str | None:
    """Return the command that brings the topic on, or None. A daemon seals and offloads by itself."""
    name = state.name
    if state.is_replica:
        return None if state.diverged_lsn is None else f"seglog reset {name}"
    if state.diverged_lsn is not None:
        return f"seglog reset {name} --as NAME"
    if state.is_paused:
        return f"seglog resume {name}"
    if work is not None:
        return f"seglog retry {name}" if work.failures else None
    if state.pending_lsn is not None or state.unfinished_attempts or state.sealed_seq > state.offloaded_seq:
        return f"seglog offload {name}"
    if state.head_seq > state.sealed_seq:
        return f"seglog seal {name}"
    return f"seglog compact {name} --erase" if state.unerased_objects else None


def _names(directory: Directory, topic: str | None) -> list[str]:
    replicas = directory.maybe_archive.replication.replicas() if directory.maybe_archive else []
    if topic is None:
        return sorted({*directory.log.topics(), *replicas})
    return [topic if topic in replicas else directory.log.get_topic(topic).name]


def _ahead(topic: Topic) -> Ahead | None:
    """Return the time by which the newest record is ahead of the clock, or None if that is under a minute."""
    ahead_ms = topic.last_ts_ms - SystemClock().now_ms()
    return Ahead(ahead_ms, Moment(topic.last_ts_ms)) if ahead_ms > _TOLD_FROM_MS else None


_COLUMNS = ("topic", "cold ░▓█ hot", "hot", "offloaded", "lag", "attempts", "goes back", "state", "next step")
_ONLY_WIDE = ("offloaded", "state")
_WIDE = 100
_BAR_CELLS = 12

Shown = DirectoryShown | DiskLow | LocalTopic | ArchivedTopic


def _print_status(output: Output, results: Iterator[Shown], values: Mapping[str, Any]) -> None:
    if not output.is_rich:
        print_lines(output, results, values)
        return
    _show_table(output, list(results))


def _show_table(output: Output, results: Sequence[Shown]) -> None:
    head, rows, notes = parts(results)
    output.remark(head)
    if rows:
        output.table(*filled(rows))
    for note in notes:
        output.remark(note)


def filled(rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Return the columns that have cells, and the cells. A narrow terminal gets neither LSNs nor sync states."""
    is_wide = shutil.get_terminal_size().columns >= _WIDE
    names = [name for name in _COLUMNS if is_wide or name not in _ONLY_WIDE]
    columns = [number for number in map(_COLUMNS.index, names) if any(row[number] for row in rows)]
    return [_COLUMNS[number] for number in columns], [[row[number] for number in columns] for row in rows]


def parts(results: Sequence[Shown]) -> tuple[str, list[Sequence[str]], list[str]]:
    """Return the head line, the rows of the table, and what the rows have no room for."""
    topics = [result for result in results if not isinstance(result, DirectoryShown | DiskLow)]
    heads = [status_text(result) for result in results if isinstance(result, DirectoryShown | DiskLow)]
    notes = []
    for topic in topics:
        name, (_, *more) = (
            topic.name if isinstance(topic, LocalTopic) else topic.status.name,
            status_text(topic).split("\n"),
        )
        notes += [name, *more] if more else []
    return "\n".join(heads), [_row(topic) for topic in topics], notes


def _row(topic: LocalTopic | ArchivedTopic) -> Sequence[str]:
    if isinstance(topic, LocalTopic):
        places = topic.places
        size = _bytes(places.hot_bytes, places.relocated_bytes)
        return topic.name, extent_bar(places.earliest_seq, 1, places.head_seq, 0), size, *[""] * 4, "no remote", ""
    state, lag = topic.status, topic.lag
    bar = extent_bar(state.earliest_seq, state.hot_first_seq, state.head_seq, state.offloaded_seq)
    offloaded = f"seq {state.offloaded_seq} (lsn {state.lsn})" if state.lsn else "nothing"
    hot = _bytes(state.hot_bytes, state.relocated_bytes) if state.head_seq >= state.hot_first_seq else "nothing"
    parts = attempts_text(state, topic.work), _horizon(topic.kept_from), state.state, topic.next_step or ""
    return state.name, bar, hot, offloaded, _lag(lag), *parts


def attempts_text(state: TopicStatus, work: Work | None) -> str:
    parts = [f"{state.unfinished_attempts} unfinished"] if state.unfinished_attempts else []
    parts += ["running"] if work is not None and work.is_offloading else []
    parts += [f"{work.failures} failed"] if work is not None and work.failures else []
    return ", ".join(parts)


def _horizon(kept_from: Moment | None) -> str:
    """Return how far back a restore can go."""
    if kept_from is None:
        return ""
    return span_text(timedelta(milliseconds=max(0, SystemClock().now_ms() - kept_from)))


def _lag(lag: Lag | None) -> str:
    if lag is None or not lag.lag_records:
        return "none"
    age = "" if lag.lag_s is None else f", {ago_text(timedelta(seconds=lag.lag_s)).removesuffix(' ago')}"
    return f"{counted(lag.lag_records)}, {format_bytes(lag.lag_bytes)}{age}"


def extent_bar(first_seq: int, hot_first_seq: int, head_seq: int, offloaded_seq: int) -> str:
    """Return the extent of a topic: ░ only in the remote, ▓ in both places, █ only here."""
    count = head_seq - first_seq + 1
    if count <= 0:
        return ""
    seqs: Iterable[int] = (first_seq + (2 * cell + 1) * count // (2 * _BAR_CELLS) for cell in range(_BAR_CELLS))
    return "".join("░" if seq < hot_first_seq else "▓" if seq <= offloaded_seq else "█" for seq in seqs)


def status_text(result: Shown) -> str:
    match result:
        case DirectoryShown(path, remote):
            return f"{path}, remote {remote or 'none'}"
        case DiskLow(free_bytes, reject_bytes):
            state = "refuses appends" if free_bytes < reject_bytes else "gets full"
            return (
                f"  DISK: {state}, with {format_bytes(free_bytes)} free: below {format_bytes(reject_bytes)} "
                "(log.disk_reject_bytes) no append is taken. Free some space: `seglog offload --all --drop-hot`, "
                "`seglog delete`, or files of other programs"
            )
        case LocalTopic():
            return _describe_local(result) + _remark(result.ahead)
        case ArchivedTopic():
            lines = [_describe(result.status, result.work), *map(_describe_run, result.runs or ())]
            return "\n".join(lines) + _remark(result.ahead)


def _remark(ahead: Ahead | None) -> str:
    if ahead is None:
        return ""
    return (
        f"\n  AHEAD: its newest record has the time {ahead.newest}, as the clock was wrong or is: "
        "until then its records all get that time, and none is sealed, offloaded or evicted by age. `seglog seal` and "
        "`seglog offload` do it now"
    )


def _describe_local(topic: LocalTopic) -> str:
    places = topic.places
    sizes = _bytes(places.hot_bytes, places.relocated_bytes) if places.relocated_bytes else "all hot"
    lines = [f"{topic.name}: up to seq {places.head_seq:,}, {sizes}", *_floors(places.earliest_seq, places.evict_floor)]
    return "\n".join(lines)


def _bytes(hot: int, relocated: int) -> str:
    """Return the hot bytes as text, with the relocated bytes if there are any."""
    return f"{format_bytes(hot)} hot, {format_bytes(relocated)} relocated" if relocated else format_bytes(hot)


def _floors(earliest_seq: int, evict_floor: int) -> list[str]:
    """Return a line with the first live record, or no line if the topic still begins with seq 1."""
    if earliest_seq == 1:
        return []
    evicted = f", evicted below seq {evict_floor:,}" if evict_floor > 1 else ""
    return [f"  the first live record is seq {earliest_seq:,} or later{evicted}"]


def _describe_run(run: RunStatus) -> str:
    state = "complete" if run.complete else "not complete"
    hot = "hot copy gone" if run.hot_deleted else "hot copy there"
    return f"  {run.sid}  seq {run.first_seq}-{run.last_seq}  {state}, {hot}, begun {format_time(run.timestamp_ms)}"


def _erasure(state: TopicStatus) -> list[str]:
    """Return lines about deleted records that the remote still holds, or no line if it holds none."""
    lines = []
    if state.unerased_objects:
        lines.append(
            f"  deleted records are still in {counted(state.unerased_objects, 'object')} of the remote: the daemon "
            f"takes them out, or `seglog compact {state.name} --erase`"
        )
    if state.erased_by_ms is not None:
        deleted = "what else stays deleted" if state.unerased_objects else "what stays deleted"
        lines.append(f"  {deleted} is gone for good by {format_time(state.erased_by_ms)}")
    return lines


def _describe(state: TopicStatus, work: Work | None) -> str:
    if state.is_replica and state.diverged_lsn is None:
        text = f"{state.name}: replica, {state.state}: up to seq {state.head_seq:,} (lsn {state.lsn})"
        return "\n".join([text, *_erasure(state)])
    if state.head_seq >= state.hot_first_seq:
        hot = f"hot {state.hot_first_seq}-{state.head_seq} ({_bytes(state.hot_bytes, state.relocated_bytes)})"
    else:
        hot = "nothing hot"
    cold = f"cold up to {state.offloaded_seq} (lsn {state.lsn})" if state.lsn else "nothing offloaded"
    lines = [f"{state.name}: {hot}, {cold}, {state.state}", *_floors(state.earliest_seq, state.evict_floor)]
    if state.fenced_epoch is not None:
        lines.append(
            f"  FENCED at lsn {state.diverged_lsn}: another writer took it over (epoch {state.fenced_epoch}); "
            f"offload is stopped, and what is appended stays here: `seglog reset {state.name} --as NAME`"
        )
    elif state.diverged_lsn == 0:
        lines.append(
            "  COLLECTED: it was deleted in the remote, and its volume is gone; offload is stopped, and what is here "
            f"stays here: `seglog reset {state.name} --as NAME`"
        )
    elif state.diverged_lsn is not None:
        lines.append(f"  DIVERGED at lsn {state.diverged_lsn}: another writer committed there; offload is stopped")
    elif state.pending_lsn is not None:
        lines.append(f"  lsn {state.pending_lsn} is sent but not confirmed: `seglog offload {state.name}` settles it")
    if state.unfinished_attempts:
        them = "it" if state.unfinished_attempts == 1 else "them"
        attempts = counted(state.unfinished_attempts, "unfinished attempt")
        lines.append(f"  {attempts}: `seglog offload {state.name}` takes {them} up again")
    if state.waiting_deletes:
        wait, them = ("waits", "it") if state.waiting_deletes == 1 else ("wait", "them")
        deletes = counted(state.waiting_deletes, "delete")
        lines.append(f"  {deletes} {wait} for the records before {them} to be offloaded")
    lines += _erasure(state)
    if state.sealed_seq > state.offloaded_seq:
        lines.append(f"  seq {state.offloaded_seq + 1}-{state.sealed_seq} is sealed and not offloaded yet")
    if state.is_paused:
        lines.append(f"  paused: `seglog resume {state.name}` lets the daemon offload it again")
    if work is not None and work.last_error:
        times = "once" if work.failures == 1 else f"{work.failures} times in a row"
        lines.append(f"  offload failed {times}, next try in {work.retry_in_s} s:")
        lines.append(f"    {work.last_error}")
    return "\n".join(lines)


print_lines = lines(status_text)


STATUS = Command("status", status, _print_status, reads=always, role="read", section="everyday")
