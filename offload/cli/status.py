"""The texts of `seglog status`, and its table for a terminal."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from typing import Any

from offload.cli.streams import has_reader
from offload.moment import Moment, format_time
from offload.operations.directory import Work
from offload.operations.printing import Output, lines
from offload.operations.status import Ahead, ArchivedTopic, DirectoryShown, DiskLow, LocalTopic
from offload.operations.units import ago_text, counted, format_bytes, span_text
from offload.reports import Lag, RunStatus, TopicStatus
from seglog import SystemClock

__all__ = [
    "attempts_text",
    "extent_bar",
    "print_status",
    "status_text",
    "watch_status",
]

_COLUMNS = ("topic", "cold ░▓█ hot", "hot", "offloaded", "lag", "attempts", "goes back", "state", "next step")
_ONLY_WIDE = ("offloaded", "state")
_WIDE = 100
_BAR_CELLS = 12
_WATCH_S = 2.0

Shown = DirectoryShown | DiskLow | LocalTopic | ArchivedTopic


def print_status(output: Output, results: Iterator[Shown], values: Mapping[str, Any]) -> None:
    if not output.is_rich:
        _print_lines(output, results, values)
        return
    _show_table(output, list(results))


def watch_status(output: Output, ask: Callable[[], Iterator[Shown]], values: Mapping[str, Any]) -> None:
    """Print the status again and again, on a terminal in the same place, until an interrupt or without a reader."""
    if not output.is_rich:
        while has_reader():
            _print_lines(output, ask(), values)
            output.flush()
            time.sleep(_WATCH_S)
        return
    from offload.cli.render import Screen, table

    with closing(Screen()) as shown:
        while True:
            head, rows, notes = _parts(list(ask()))
            shown.show("\n".join([head, "", table(*_filled(rows)), *notes]))
            time.sleep(_WATCH_S)


def _show_table(output: Output, found: Sequence[Shown]) -> None:
    head, rows, notes = _parts(found)
    output.remark(head)
    if rows:
        output.table(*_filled(rows))
    for note in notes:
        output.remark(note)


def _filled(rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Return the columns that have cells, and the cells. A narrow terminal gets neither LSNs nor sync states."""
    is_wide = shutil.get_terminal_size().columns >= _WIDE
    names = [name for name in _COLUMNS if is_wide or name not in _ONLY_WIDE]
    kept = [number for number in map(_COLUMNS.index, names) if any(row[number] for row in rows)]
    return [_COLUMNS[number] for number in kept], [[row[number] for number in kept] for row in rows]


def _parts(found: Sequence[Shown]) -> tuple[str, list[Sequence[str]], list[str]]:
    """Return the head line, the rows of the table, and what the rows have no room for."""
    topics = [each for each in found if not isinstance(each, DirectoryShown | DiskLow)]
    heads = [status_text(each) for each in found if isinstance(each, DirectoryShown | DiskLow)]
    notes = []
    for each in topics:
        name, (_, *more) = (
            each.name if isinstance(each, LocalTopic) else each.status.name,
            status_text(each).split("\n"),
        )
        notes += [name, *more] if more else []
    return "\n".join(heads), [_row(each) for each in topics], notes


def _row(found: LocalTopic | ArchivedTopic) -> Sequence[str]:
    if isinstance(found, LocalTopic):
        places = found.places
        size = _bytes(places.hot_bytes, places.relocated_bytes)
        return found.name, extent_bar(places.earliest_seq, 1, places.head_seq, 0), size, *[""] * 4, "no remote", ""
    state, lag = found.status, found.lag
    bar = extent_bar(state.earliest_seq, state.hot_first_seq, state.head_seq, state.offloaded_seq)
    offloaded = f"seq {state.offloaded_seq} (lsn {state.lsn})" if state.lsn else "nothing"
    hot = _bytes(state.hot_bytes, state.relocated_bytes) if state.head_seq >= state.hot_first_seq else "nothing"
    parts = attempts_text(state, found.work), _horizon(found.kept_from), state.state, found.next_step or ""
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


def status_text(found: Shown) -> str:
    match found:
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
            return _describe_local(found) + _remark(found.ahead)
        case ArchivedTopic():
            lines = [_describe(found.status, found.work), *map(_describe_run, found.runs or ())]
            return "\n".join(lines) + _remark(found.ahead)


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
    kept = _bytes(places.hot_bytes, places.relocated_bytes) if places.relocated_bytes else "all hot"
    lines = [f"{topic.name}: up to seq {places.head_seq:,}, {kept}", *_floors(places.earliest_seq, places.evict_floor)]
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
        others = "what else stays deleted" if state.unerased_objects else "what stays deleted"
        lines.append(f"  {others} is gone for good by {format_time(state.erased_by_ms)}")
    return lines


def _describe(state: TopicStatus, work: Work | None) -> str:
    if state.is_replica and state.diverged_lsn is None:
        told = f"{state.name}: replica, {state.state}: up to seq {state.head_seq:,} (lsn {state.lsn})"
        return "\n".join([told, *_erasure(state)])
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


_print_lines = lines(status_text)
