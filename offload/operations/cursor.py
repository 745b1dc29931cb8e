"""Cursors: durable positions of readers in a topic, `seglog cursor ...` (seglog.delivery)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

from offload.operations.command import About, Command, Directory, TopicName, always
from offload.operations.printing import counted, format_bytes, lines, rows, span_text
from seglog.base.dataclasses import dataclass
from seglog.base.errors import Conflict, Missing
from seglog.base.lazy import logger
from seglog.errors import NoSuchTopic, SeglogError, SeqOutOfRange

if TYPE_CHECKING:
    from offload.archive import Archive
    from seglog import Log, Record, Topic
    from seglog.delivery.cursor import Cursor
    from seglog.delivery.cursor_states import CursorStates

Name = Annotated[str, About("The cursor.")]
TOPIC = "_seglog.cursors"
"""The topic of their records, here so that a look for it imports no bitmap."""
_FOREVER_MS = 2**62
_log = logger("seglog.daemon")


@dataclass(frozen=True, slots=True)
class CursorAt:
    """A cursor whose position was set: each seq up to `floor` is acked, in `epoch`."""

    topic: str
    cursor: str
    epoch: int
    floor: int


@dataclass(frozen=True, slots=True)
class CursorListed:
    """A cursor, and what its reader has not acked.

    `acked_above` counts the acked seqs above the floor. `lag_records` counts the seqs from the first live one on that
    are not acked, deleted ones between them included. `lag_bytes` is an estimate: as many times the mean frame on this
    machine; None if there is none to measure. `lag_s` is the age of the first record that is not acked. If that one is
    not on this machine, it is that of the first one here, so the true age is higher. It is None without such a record.
    """

    topic: str
    cursor: str
    epoch: int
    floor: int
    acked_above: int
    lag_records: int
    lag_bytes: int | None
    lag_s: float | None


@dataclass(frozen=True, slots=True)
class CursorDeleted:
    topic: str
    cursor: str
    floor: int


def create(
    directory: Directory,
    topic: TopicName,
    name: Annotated[str, About("The new cursor.")],
    at: Annotated[
        str,
        About(
            "Behind what it begins: earliest, head, seq:N, lsn:N, head~N, tag:NAME; or from a time on.", names="target"
        ),
    ] = "head",
) -> CursorAt:
    """Make a cursor, a durable position in a topic.

    A reader moves it with acks. The daemon answers an ack when it is durable, so a reader that comes back continues
    behind what it has acked. Example: seglog cursor create orders billing --at earliest
    """
    from catalog.format import keys
    from seglog.delivery.cursor import Cursor, key_of

    keys.check_name("cursor", name)
    if topic.startswith("_seglog."):
        raise Conflict(f"topic {topic} has the daemon's own records, so no reader acks them")
    handle = _own_topic(directory, topic)
    states = loaded_states(directory.log, directory.maybe_archive)
    incarnation, epoch = handle.incarnation(), handle.epoch
    floor = floor_of(directory, handle, at)
    with states.claimed(key_of(topic, name)):
        if states.has(topic, name):
            text = f"topic {topic} has a cursor {name} already"
            raise Conflict(text, hint=f"`seglog cursor reset {topic} {name} TARGET` moves it")
        states.check_room()
        return _at(states.put(Cursor(topic, name, incarnation, epoch, floor)))


def list_cursors(
    directory: Directory,
    topic: Annotated[str | None, About("One topic; all without it.", is_argument=True, names="topic")] = None,
) -> Iterator[CursorListed]:
    """List the cursors, and how far they are behind.

    Of each it shows the ack floor and the lag behind the head. The command asks only this directory. So the bytes are
    an estimate from the records on this machine.
    """
    log = directory.log
    if topic is not None:
        log.get_topic(topic)
    return listed(log, loaded_states(log, directory.maybe_archive), topic)


def reset(
    directory: Directory,
    topic: TopicName,
    name: Name,
    to: Annotated[
        str,
        About(
            "Behind what it continues: earliest, head, seq:N, lsn:N, head~N, tag:NAME; or from a time on.",
            metavar="TARGET",
            names="target",
        ),
    ],
) -> CursorAt:
    """Move a cursor. Each record up to the target is acked then, and no later one.

    Reset it to a lower seq to read records again. Example: seglog cursor reset orders billing "2 hours ago"
    """
    handle = _own_topic(directory, topic)
    states = loaded_states(directory.log, directory.maybe_archive)
    incarnation, epoch = states.find(topic, name).incarnation, handle.epoch
    floor = floor_of(directory, handle, to)
    with states.claimed(f"{topic}/{name}"):
        cursor = states.find(topic, name)
        return _at(states.put(cursor.at(floor, epoch, incarnation)))


def delete(directory: Directory, topic: TopicName, name: Name) -> CursorDeleted:
    """Delete a cursor. The records of the topic stay."""
    from dataclasses import replace

    _own_topic(directory, topic)
    states = loaded_states(directory.log, directory.maybe_archive)
    with states.claimed(f"{topic}/{name}"):
        cursor = states.find(topic, name)
        states.put(replace(cursor.at(cursor.floor, cursor.epoch, cursor.incarnation), is_deleted=True))
    return CursorDeleted(topic, name, cursor.floor)


def loaded_states(log: Log, archive: Archive | None) -> CursorStates:
    """Return the cursors of a log. The first call reads their records, and may wait for the store."""
    from seglog.delivery.cursor_states import CursorStates

    states = CursorStates.of(log)
    if states.is_loaded:
        return states
    is_followed = archive is not None and not log.has_topic(TOPIC) and archive.replication.is_replica(TOPIC)

    def records() -> Iterable[Record]:
        if log.has_topic(TOPIC):
            return log.topic(TOPIC).read()
        return archive.read(TOPIC) if archive is not None and is_followed else ()

    def cut(cursor: Cursor) -> int | None:
        return None if archive is None else lowest_change(archive, cursor.topic, cursor.ts_ms)

    states.load(
        records,
        _log.error,
        cut,
        None if log.is_read_only else deletion(log, archive),
        is_followed=archive is not None and not log.has_topic(TOPIC),
    )
    return states


def deletion(log: Log, archive: Archive | None, topic: str = TOPIC) -> Callable[[int], object]:
    """Return what deletes the records of the daemon's own topic before a seq."""
    if archive is None:
        return lambda seq: log.topic(topic).delete(before=seq)
    return lambda seq: archive.delete(topic, before=seq)


def lowest_change(archive: Archive, topic: str, since_ms: int) -> int | None:
    """Return the lowest seq whose record may be another one since a time of the topic; None without one.

    That is the lowest one that a truncation took. It is 1 if GC may have collected such a commit, or if another branch
    became main: nothing says how much two branches share, because a former main may itself be a fork.
    """
    from offload.services.promotion import NAME_CHANGES
    from seglog.writing.conditions import AHEAD_MS

    lowest: int | None = None
    with suppress(Missing):
        history = archive.history.commits(topic)
        if history.is_cut and ((mark := history.first_mark) is None or mark.max_ts_ms >= since_ms):
            return 1
        for past in history:
            commit = past.commit
            # A promotion has the time of the clock, which that of a record may be ahead of.
            if commit.message == NAME_CHANGES and commit.created_at_ms + AHEAD_MS >= since_ms:
                return 1
            if commit.truncate_from is not None and commit.at_ts_ms >= since_ms:
                lowest = min(lowest or commit.truncate_from, commit.truncate_from)
    return lowest


class NextTimes:
    """The times of the records that cursors wait for, as the last listing with this object found them.

    A listing reads one record for each place at which a cursor waits, but for places that the listing before had. So a
    scrape costs no read for cursors that stand still.
    """

    def __init__(self) -> None:
        self._known: dict[object, int] = {}
        self._used: dict[object, int] = {}

    def of(self, topic: Topic, seq: int) -> int | None:
        """Return the time of the first record on this machine from `seq` on; of a relocated one, of its segment."""
        seq = max(seq, topic.inner.hot_floor)
        segment = next((each for each in topic.inner.segments() if each.last_seq >= seq), None)
        if segment is not None and (not segment.is_hot or segment.first_seq >= seq):
            return segment.min_ts_ms
        # A record keeps its time, and the next one after `seq` is the same one as long as no delete took it.
        place = topic.name, topic.inner.lasting_version, seq
        time_ms = self._used.get(place, self._known.get(place))
        if time_ms is None:
            time_ms = _time_of(topic, seq)
        if time_ms is not None:
            self._used[place] = time_ms
        return time_ms

    def end(self) -> None:
        """Forget the places that the listing which ends now did not have."""
        self._known, self._used = self._used, {}


def listed(
    log: Log, states: CursorStates, topic: str | None = None, times: NextTimes | None = None
) -> Iterator[CursorListed]:
    """Yield the cursors with their lags. This asks neither a remote nor a warm store."""
    from seglog import SystemClock

    now_ms, times = SystemClock().now_ms(), times or NextTimes()
    for cursor in states.all(topic):
        with suppress(NoSuchTopic):  # deleted meanwhile
            yield _lag(log.topic(cursor.topic), cursor, now_ms, times)
    times.end()


def _lag(topic: Topic, cursor: Cursor, now_ms: int, times: NextTimes) -> CursorListed:
    head_seq, acked = topic.head_seq, cursor.acked_above
    first = max(cursor.floor + 1, topic.earliest_seq)
    records = max(0, head_seq - first + 1 - acked.count_from(first))
    here, here_bytes = topic.inner.record_count_hot, topic.inner.bytes_hot + topic.inner.bytes_relocated
    size_bytes = (records * here_bytes + here - 1) // here if here else None
    ts_ms = times.of(topic, acked.next_missing(first)) if records else None
    return CursorListed(
        topic=cursor.topic,
        cursor=cursor.name,
        epoch=cursor.epoch,
        floor=cursor.floor,
        acked_above=len(acked),
        lag_records=records,
        lag_bytes=size_bytes if records else 0,
        lag_s=None if ts_ms is None else max(0, now_ms - ts_ms) / 1000,
    )


def _time_of(topic: Topic, seq: int) -> int | None:
    with suppress(SeglogError):  # evicted or truncated meanwhile
        return next((record.ts_ms for record in topic.read(seq, limit=1)), None)
    return None


def _own_topic(directory: Directory, topic: str) -> Topic:
    """Return a topic that this directory writes: the cursors of a replica are with its writer."""
    archive = directory.maybe_archive
    if archive is not None:
        archive.replication.check_not_followed(topic)
    return directory.log.get_topic(topic)


def floor_of(directory: Directory, topic: Topic, target: str) -> int:
    """Return the last seq that counts as acked at a target."""
    from catalog import timeline
    from seglog import SystemClock

    if target == "earliest":
        return topic.earliest_seq - 1
    match timeline.parse_target(target, now_ms=SystemClock().now_ms()):
        case timeline.Head(0):
            return topic.head_seq
        case timeline.Seq(seq):
            if seq > topic.head_seq:
                raise SeqOutOfRange(topic.name, seq, topic.earliest_seq, topic.head_seq)
            return seq
        case timeline.Time(ms):
            return topic.seq_at(max(0, min(ms, _FOREVER_MS))) - 1
        case _:
            history = directory.archive.history
            return min(history.snapshot_at(history.point(topic.name, target)).bounds.head_seq, topic.head_seq)


def _at(cursor: Cursor) -> CursorAt:
    return CursorAt(cursor.topic, cursor.name, cursor.epoch, cursor.floor)


def cursor_text(at: CursorAt) -> str:
    return f"{at.topic}/{at.cursor} continues behind seq {at.floor}"


def lag_text(cursor: CursorListed) -> str:
    """Return how far a cursor is behind, such as `12 records behind, about 3.4 KB, 2 min`."""
    from datetime import timedelta

    if not cursor.lag_records:
        return "at the head"
    size = "" if cursor.lag_bytes is None else f", about {format_bytes(cursor.lag_bytes)}"
    age = "" if cursor.lag_s is None else f", {span_text(timedelta(seconds=cursor.lag_s))}"
    return f"{counted(cursor.lag_records)} behind{size}{age}"


def _cursor_row(cursor: CursorListed) -> Sequence[str]:
    above = str(cursor.acked_above) if cursor.acked_above else ""
    return cursor.topic, cursor.cursor, str(cursor.floor), above, lag_text(cursor)


def listed_text(cursor: CursorListed) -> str:
    above = f", {cursor.acked_above:,} above it" if cursor.acked_above else ""
    return f"{cursor.topic}/{cursor.cursor}: acked up to {cursor.floor:,}{above}, {lag_text(cursor)}"


_print_at = lines(cursor_text)
_print_listed = rows(("topic", "cursor", "floor", "above", "lag"), _cursor_row, listed_text)
_print_deleted = lines(lambda gone: f"cursor {gone.topic}/{gone.cursor} is deleted; it was behind seq {gone.floor}")

CURSOR_CREATE = Command("cursor/create", create, _print_at, role="append")
CURSOR_LIST = Command("cursor/list", list_cursors, _print_listed, reads=always, role="read")
CURSOR_RESET = Command("cursor/reset", reset, _print_at, role="append")
CURSOR_DELETE = Command("cursor/delete", delete, _print_deleted, role="append")
