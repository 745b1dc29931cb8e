"""The places of each topic's records, as this directory knows them: `seglog status`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

from offload.moment import Moment, format_time
from offload.operations.command import About, Command, Directory, Work, always
from offload.operations.cursor import TOPIC as CURSORS_TOPIC
from offload.operations.cursor import CursorListed, lag_text, listed, loaded_states
from offload.operations.printing import Output, counted, fitted, format_bytes, lines, shown_time, span_text
from offload.operations.result_json import HIDDEN, MERGED, OPTIONAL
from offload.operations.topic import TopicPlaces, places_of
from offload.reports import Lag, RunStatus, TopicStatus
from seglog import NoSuchTopic, SystemClock
from seglog.base import forms
from seglog.base.dataclasses import dataclass
from seglog.base.lazy import LazyModule

if TYPE_CHECKING:
    import shutil

    from offload.archive import Archive
    from seglog import Topic
else:
    shutil = LazyModule("shutil")

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
class OlderForm:
    """The form of the directory, if it is not the newest one (docs/operate/upgrades.md)."""

    form: int
    newest: int


@dataclass(frozen=True, slots=True)
class Ahead:
    """The time by which the newest record of a topic is ahead of the clock. Small times do not count."""

    ahead_ms: int
    newest: Moment = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class LocalTopic:
    """A topic of a directory without a remote. The records of one that is `ephemeral` are in memory alone.

    `delivery_paused` says why its followers get nothing new now; None if they do, and without a daemon.
    """

    name: str
    places: TopicPlaces = field(metadata=MERGED)
    ahead: Ahead | None = field(metadata=MERGED)
    is_ephemeral: bool = field(default=False, metadata=HIDDEN)
    cursors: tuple[CursorListed, ...] | None = field(default=None, metadata=OPTIONAL)
    delivery_paused: str | None = field(default=None, metadata=OPTIONAL)


@dataclass(frozen=True, slots=True)
class ArchivedTopic:
    """A topic of a directory with a remote. `work` is None without a daemon, `runs` if the caller did not ask.

    `lag` is None for a replica. `kept_from` is the time from which GC keeps each state, None without a volume.
    `next_step` is the command that the operator may want next.
    `delivery_paused` is that of a `LocalTopic`.
    """

    status: TopicStatus = field(metadata=MERGED)
    lag: Lag | None = field(metadata=MERGED)
    kept_from: Moment | None
    next_step: str | None
    work: Work | None = field(metadata=MERGED)
    runs: tuple[RunStatus, ...] | None = field(metadata=OPTIONAL)
    ahead: Ahead | None = field(metadata=MERGED)
    is_ephemeral: bool = field(default=False, metadata=HIDDEN)
    cursors: tuple[CursorListed, ...] | None = field(default=None, metadata=OPTIONAL)
    delivery_paused: str | None = field(default=None, metadata=OPTIONAL)


def status(
    directory: Directory,
    topic: Annotated[str | None, About("One topic; all without it.", is_argument=True, names="topic")] = None,
    runs: Annotated[bool, About("Each offloaded range of segments, too.")] = False,
    watch: Annotated[bool, About("Show it again every two seconds, until an interrupt.")] = False,  # noqa: ARG001 - the command line asks again
) -> Iterator[DirectoryShown | OlderForm | DiskLow | LocalTopic | ArchivedTopic]:
    """Show what is safe, and what is wrong.

    A topic has a line: how many records there are, up to which one they are safe in the remote, when its newest commit
    was made, and how many are only on this disk. Deleted records count as long as they stand between others. Then come
    the troubles, each with what to do: a disk that gets full, a remote that fails, another writer. With -v there are
    hot and cold ranges, bounds, epochs and waiting work, too. The command asks only this directory, never the remote
    or the warm store, so it answers without a network.
    """
    log, archive = directory.log, directory.maybe_archive
    names = _names(directory, topic)
    yield DirectoryShown(str(log.path.resolve()), archive.url if archive else None)
    disk, reject_bytes = os.statvfs(log.path), log.settings.disk_reject_bytes
    free_bytes = disk.f_bavail * disk.f_frsize
    if free_bytes < _LOW_FACTOR * reject_bytes:
        yield DiskLow(free_bytes, reject_bytes)
    if log.form < forms.NEWEST:
        yield OlderForm(log.form, forms.NEWEST)
    for name in names:
        if archive is None:
            local = log.topic(name)
            paused, cursors = _delivery_paused(directory, name), _cursors(directory, name)
            yield LocalTopic(name, places_of(local), _ahead(local), _is_ephemeral(local), cursors, paused)
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
    from offload.handles import retry_if_moved

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
            is_ephemeral=log.has_topic(name) and _is_ephemeral(log.topic(name)),
            cursors=_cursors(directory, name),
            delivery_paused=_delivery_paused(directory, name),
        )

    return retry_if_moved(look, lambda: log.topic(name).epoch, NoSuchTopic)


def _cursors(directory: Directory, name: str) -> tuple[CursorListed, ...] | None:
    """Return the cursors of a topic; None without any, and if a look at them may have to ask the remote."""
    log, topic = directory.log, directory.log.topic(CURSORS_TOPIC)
    if not topic.exists:
        return None
    from seglog.delivery.cursor_states import CursorStates  # imported late: most directories have no cursor

    if not CursorStates.of(log).is_loaded and topic.inner.hot_floor > topic.earliest_seq:
        return None
    return tuple(listed(log, loaded_states(log, directory.maybe_archive), name)) or None


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


def _delivery_paused(directory: Directory, name: str) -> str | None:
    """Return why the daemon pauses the followers of a topic, or None. Only a negative priority is ever paused."""
    log, archive = directory.log, directory.maybe_archive
    is_replica = archive is not None and not log.has_topic(name)
    config = archive.replication.config(name) if archive and is_replica else log.topic(name).config
    return directory.host.delivery_pause(config.priority, is_replica) if config.priority < 0 else None


def _is_ephemeral(topic: Topic) -> bool:
    return topic.config.durability == "ephemeral"


def _ahead(topic: Topic) -> Ahead | None:
    """Return the time by which the newest record is ahead of the clock, or None if that is under a minute."""
    ahead_ms = topic.last_ts_ms - SystemClock().now_ms()
    return Ahead(ahead_ms, Moment(topic.last_ts_ms)) if ahead_ms > _TOLD_FROM_MS else None


_NAME_CELLS = 24
_NAMES_SHOWN = 3

Shown = DirectoryShown | OlderForm | DiskLow | LocalTopic | ArchivedTopic


def print_status(output: Output, results: Iterator[Shown], values: Mapping[str, Any]) -> None:
    if output.is_json:
        lines(lambda _: "")(output, results, values)
    else:
        output.remark(status_text(output, results))


def status_text(output: Output, results: Iterable[Shown]) -> str:
    """Return a line for each topic, and two for each kind of trouble: what it is, and what to do."""
    texts, remote, troubles = [], "", []
    topics: list[LocalTopic | ArchivedTopic] = []
    for result in results:
        match result:
            case DirectoryShown():
                remote = result.remote or ""
                texts.append(f"{result.path}, remote {remote or 'none'}")
            case DiskLow():
                troubles.append(_disk_trouble(result))
            case OlderForm():
                troubles.append(_form_trouble(result))
            case _:
                topics.append(result)
    width = max([len(_name(topic)) for topic in topics if len(_name(topic)) <= _NAME_CELLS], default=4) + 2
    counts = [counted(_records(topic)) + "," for topic in topics]
    if output.is_rich:
        digits = max([count.index(" ") for count in counts], default=0)
        counts = [" " * (digits - count.index(" ")) + count for count in counts]
        counts = [count.ljust(max(map(len, counts))) for count in counts]
    for place in (f" in {remote}", f" in {remote.partition(':')[0]}://…", ""):  # the first line has all of it
        found = [(topic, count, _places(output, topic, place)) for topic, count in zip(topics, counts, strict=True)]
        longest = max([width + len(f"{count} {places}") for _, count, places in found], default=0)
        if not output.is_rich or longest <= shutil.get_terminal_size().columns:
            break
    for topic, count, places in found:
        texts.append(_line(output, _name(topic), f"{count} {places}" if _records(topic) else "no records", width))
        details = _details(topic) if output.is_verbose else []
        details += map(_describe_run, (isinstance(topic, ArchivedTopic) and topic.runs) or ())
        texts += [fitted(output, f"  {detail}", 2) for detail in details]
    for text, todo in (*troubles, *_troubles(topics)):
        texts += [fitted(output, text, 2), fitted(output, f"  to do: {todo}", 2)]
    return "\n".join(texts)


def _line(output: Output, name: str, text: str, width: int) -> str:
    """Return the line of a topic. On a terminal it is wrapped behind the name, and a long name has its own line."""
    if not output.is_rich:
        return f"{name}: {text}"
    columns = shutil.get_terminal_size().columns
    if len(name) + 2 > width:
        own = name if len(name) <= columns else f"{name[: columns - 1]}…"
        return f"{own}\n{fitted(output, ' ' * width + text)}"
    return fitted(output, f"{name:{width}}{text}", width)


def _name(topic: LocalTopic | ArchivedTopic) -> str:
    return topic.name if isinstance(topic, LocalTopic) else topic.status.name


def _records(topic: LocalTopic | ArchivedTopic) -> int:
    """Return the number of seqs from the first live record on."""
    places = topic.places if isinstance(topic, LocalTopic) else topic.status
    return max(0, places.head_seq - places.earliest_seq + 1)


def _places(output: Output, topic: LocalTopic | ArchivedTopic, place: str) -> str:
    """Return where the records of a topic are safe."""
    if isinstance(topic, LocalTopic) or topic.status.diverged_lsn == 0 or not topic.status.offloaded_seq:
        return "only in memory" if topic.is_ephemeral else "only on this disk"
    state = topic.status
    text = f"safe{place} up to {state.offloaded_seq:,}"
    if state.committed_at_ms is not None:
        text += f" ({shown_time(output, Moment(state.committed_at_ms))})"
    if topic.lag is not None and topic.lag.lag_records:
        text += f", {topic.lag.lag_records:,} only on this disk"
    return f"{text}, written elsewhere" if state.is_replica else text


def _disk_trouble(low: DiskLow) -> tuple[str, str]:
    state = "refuses appends" if low.free_bytes < low.disk_reject_bytes else "gets full"
    return (
        f"DISK: {state}, with {format_bytes(low.free_bytes)} free: below {format_bytes(low.disk_reject_bytes)} "
        "(log.disk_reject_bytes) no append is taken",
        "free some space: `seglog offload --all --drop-hot`, `seglog delete`, or files of other programs",
    )


def _form_trouble(older: OlderForm) -> tuple[str, str]:
    return (
        f"FORM: the directory has form {older.form}, and this seglog knows form {older.newest}",
        "`seglog upgrade --dry-run` shows the way; until then, older versions of seglog can use it",
    )


def _troubles(topics: Sequence[LocalTopic | ArchivedTopic]) -> Iterator[tuple[str, str]]:
    """Yield each kind of trouble once, with the topics that have it, and what to do for the first of them."""
    found: dict[str, tuple[list[str], str, str]] = {}
    for topic in topics:
        for text, todo in (*_trouble(topic), *_ahead_trouble(topic), *_delivery_trouble(topic)):
            kind = todo.partition("`")[0] if text.startswith("FAILED") else text  # the hint: each error has its own key
            names, *_ = found.setdefault(kind, ([], text, todo))
            names.append(_name(topic))
    for names, text, todo in found.values():
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        yield f"{', '.join(names[:_NAMES_SHOWN])}{more}: {text}", todo


def _trouble(topic: LocalTopic | ArchivedTopic) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the offload of a topic, and what to do."""
    if isinstance(topic, LocalTopic):
        return
    state, work = topic.status, topic.work
    step = f"`{topic.next_step}`"
    if state.fenced_epoch is not None:
        yield (
            f"FENCED at lsn {state.diverged_lsn}: another writer took it over (epoch {state.fenced_epoch}); offload is "
            "stopped, and what is appended stays here",
            step,
        )
    elif state.diverged_lsn == 0:
        yield (
            "COLLECTED: it was deleted in the remote, and its volume is gone; offload is stopped, and what is here "
            "stays here",
            step,
        )
    elif state.diverged_lsn is not None:
        yield f"DIVERGED at lsn {state.diverged_lsn}: another writer committed there; offload is stopped", step
    elif state.is_paused:
        yield "PAUSED: the daemon does not offload it", step
    elif work is not None and work.failures:
        times = "once" if work.failures == 1 else f"{work.failures} times in a row"
        wait = span_text(timedelta(seconds=work.retry_in_s or 0))
        hint = f"{work.hint}. Then " if work.hint else ""
        todo = f"{hint}`seglog retry {state.name}` tries at once, the daemon in {wait}"
        yield f"FAILED: the offload failed {times}: {work.last_error}", todo
    elif work is None and (state.pending_lsn is not None or state.unfinished_attempts):
        yield "UNFINISHED: an offload stopped on its way", f"{step} takes it up again"


def _ahead_trouble(topic: LocalTopic | ArchivedTopic) -> Iterator[tuple[str, str]]:
    if topic.ahead is not None:
        yield (
            f"AHEAD: its newest record has the time {topic.ahead.newest}, as the clock was wrong or is: until then its "
            "records all get that time, and none is sealed, offloaded or evicted by age",
            f"`seglog seal {_name(topic)}` and `seglog offload {_name(topic)}` do it now",
        )


def _delivery_trouble(topic: LocalTopic | ArchivedTopic) -> Iterator[tuple[str, str]]:
    if topic.delivery_paused is not None:
        name = _name(topic)
        is_replica = isinstance(topic, ArchivedTopic) and topic.status.is_replica  # its config is its writer's
        end = f"`seglog topic set {name} --priority 0` ends the pause"
        ends = "its followers go on by themselves" if is_replica else end
        todo = f"`seglog read {name}` has its records; {ends}"
        yield f"FOLLOWERS WAIT: {topic.delivery_paused}", todo


def _bytes(hot: int, relocated: int) -> str:
    """Return the hot bytes as text, with the relocated bytes if there are any."""
    return f"{format_bytes(hot)} hot, {format_bytes(relocated)} relocated" if relocated else format_bytes(hot)


def _floors(earliest_seq: int, evict_floor: int) -> list[str]:
    """Return a line with the first live record, or no line if the topic still begins with seq 1."""
    if earliest_seq == 1:
        return []
    evicted = f", evicted below seq {evict_floor:,}" if evict_floor > 1 else ""
    return [f"the first live record is seq {earliest_seq:,} or later{evicted}"]


def _describe_run(run: RunStatus) -> str:
    state = "complete" if run.complete else "not complete"
    hot = "hot copy gone" if run.hot_deleted else "hot copy there"
    return f"{run.sid}  seq {run.first_seq}-{run.last_seq}  {state}, {hot}, begun {format_time(run.timestamp_ms)}"


def _erasure(state: TopicStatus) -> list[str]:
    """Return lines about deleted records that the remote still holds, or no line if it holds none."""
    texts = []
    if state.unerased_objects:
        texts.append(
            f"deleted records are still in {counted(state.unerased_objects, 'object')} of the remote: the daemon "
            f"takes them out, or `seglog compact {state.name} --erase`"
        )
    if state.erased_by_ms is not None:
        deleted = "what else stays deleted" if state.unerased_objects else "what stays deleted"
        texts.append(
            f"{deleted} is gone for good by {format_time(state.erased_by_ms)}, unless a tag, a lease or "
            "another branch keeps it"
        )
    return texts


def _details(topic: LocalTopic | ArchivedTopic) -> list[str]:
    """Return the lines of --verbose: bounds, epochs, and the work that waits."""
    if isinstance(topic, LocalTopic):
        places = topic.places
        hot = f"hot {places.hot_first_seq}-{places.head_seq} ({_bytes(places.hot_bytes, places.relocated_bytes)})"
        floors = _floors(places.earliest_seq, places.evict_floor)
        return [f"{hot}, epoch {places.epoch}", *floors, *_cursor_texts(topic)]
    state, hot = topic.status, "nothing hot"
    if state.head_seq >= state.hot_first_seq:
        hot = f"hot {state.hot_first_seq}-{state.head_seq} ({_bytes(state.hot_bytes, state.relocated_bytes)})"
    cold = f"cold up to {state.offloaded_seq} (lsn {state.lsn})" if state.lsn else "nothing offloaded"
    epochs = f"epoch {state.epoch}, writer epoch {state.writer_epoch}"
    texts = [f"{hot}, {cold}, {state.state}, {epochs}", *_floors(state.earliest_seq, state.evict_floor)]
    if state.pending_lsn is not None:
        texts.append(f"lsn {state.pending_lsn} is sent but not confirmed: `seglog offload {state.name}` settles it")
    if state.unfinished_attempts:
        them = "it" if state.unfinished_attempts == 1 else "them"
        attempts = counted(state.unfinished_attempts, "unfinished attempt")
        texts.append(f"{attempts}: `seglog offload {state.name}` takes {them} up again")
    if state.waiting_deletes:
        wait, them = ("waits", "it") if state.waiting_deletes == 1 else ("wait", "them")
        deletes = counted(state.waiting_deletes, "delete")
        texts.append(f"{deletes} {wait} for the records before {them} to be offloaded")
    texts += _erasure(state)
    if state.sealed_seq > state.offloaded_seq:
        texts.append(f"seq {state.offloaded_seq + 1}-{state.sealed_seq} is sealed and not offloaded yet")
    texts += _cursor_texts(topic)
    if topic.work is not None and topic.work.is_offloading:
        texts.append("an offload runs")
    if topic.kept_from is not None:
        texts.append(f"a restore goes back to {topic.kept_from}")
    return [*texts, f"next: `{topic.next_step}`"] if topic.next_step else texts


def _cursor_texts(topic: LocalTopic | ArchivedTopic) -> list[str]:
    return [f"cursor {each.cursor}: acked up to {each.floor}, {lag_text(each)}" for each in topic.cursors or ()]


STATUS = Command("status", status, print_status, reads=always, role="read", section="everyday")
