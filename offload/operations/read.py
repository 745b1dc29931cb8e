"""Read the records of a topic, or of a past state of it: `seglog read` and `tail`. The output is their bytes.

If a reader wants lines alone, and has no condition, the lines of a batch of records are one byte string, and no object
is made for a record. So a read of a large topic takes a tenth of the time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

from offload.errors import Misuse
from offload.operations.command import About, Command, Directory, TopicName, with_branch
from offload.operations.matching import Fixed, Match, Pattern, Since, Tag, Until, conditions, pattern_of
from offload.operations.printing import Output, counted
from offload.operations.pruning import ReadStats, Skipped, pruned_here, read_state
from offload.operations.record_text import RecordBatch, RecordLines, to_line
from seglog import Gap, LogClosed, Record
from seglog.values.seq_set import SeqSet

if TYPE_CHECKING:
    from seglog import RecordArrays, Topic


def _plain_lines(
    directory: Directory, name: str, start: int | None, end: int | None, at: str | None
) -> Iterator[RecordLines | RecordBatch]:
    """Yield the lines of the records of a range, or of a past state if `at` is given.

    A gap comes as a batch of its own. Raises `NoRemote`, and what the records raise.
    """
    for arrays in _arrays(directory, name, start, end, at):
        yield RecordBatch((arrays,)) if isinstance(arrays, Gap) else RecordLines(arrays.lines())


def _arrays(
    directory: Directory, name: str, start: int | None, end: int | None, at: str | None
) -> Iterator[RecordArrays | Gap]:
    archive = directory.maybe_archive
    if at is None and (archive is None or directory.log.has_topic(name)):
        return directory.log.get_topic(name).read_arrays(start, end, gaps=True)
    return directory.archive.read_arrays(name, start, end, at=at)


_BATCH_RECORDS = 1024
_LOOKED_RECORDS = 65_536
_LISTENER_CHECK_S = 1.0
_REPLICA_LOOK_S = 1.0

_Item = TypeVar("_Item", bound=Record | Gap | None)
_Results: TypeAlias = Iterator[RecordBatch | RecordLines | ReadStats]


def read(
    directory: Directory,
    topic: TopicName,
    start: Annotated[int | None, About("The first seq.", "--from")] = None,
    end: Annotated[int | None, About("The last seq.", "--to")] = None,
    since: Since = None,
    until: Until = None,
    tag: Tag = None,
    grep: Pattern = None,
    fixed: Fixed = False,
    stats: Annotated[bool, About("At the end, say how many chunks were read, and how many the index skipped.")] = False,
    branch: Annotated[str | None, About("The branch; the same as TOPIC@BRANCH.", names="branch")] = None,
    at: Annotated[str | None, About("As it was then: seq:N, lsn:N, head, head~N, or a time.", names="target")] = None,
    limit: Annotated[int | None, About("At most so many records.", least=1)] = None,
    follow: Annotated[bool, About("Then wait for more, and write each record as it comes.")] = False,
    wait: Annotated[float | None, About("With --follow: end after so many seconds without one.", least=0)] = None,
) -> Iterator[RecordBatch | RecordLines | ReadStats]:
    """Print records, byte for byte. Each one is a line.

    Without --from, the output begins with the first live record. If retention evicted records of the range, a line on
    standard error names them. With --json, an object with gap_from and gap_to does.
    With --json, a record is an object with seq, ts_ms, tag, node, and value (value_base64 if it is not UTF-8).
    The index leaves out parts of the remote that have no record of the time or the tag. If google-re2 is not installed,
    --grep takes very long for some patterns, such as (a+)+$.
    Examples: seglog read orders --from 100 --limit 10; seglog read orders --at head~1; seglog read orders --tag "web*"
    --since "2 hours ago" --grep "time(d )?out"
    """
    if follow and (end is not None or until is not None or at is not None):
        raise Misuse("--follow has no end: leave out --to, --until and --at")
    match = conditions(directory, since, until, tag, grep, fixed=fixed)
    name, counts = with_branch(topic, branch), Skipped()
    is_plain = match == Match() and not stats
    is_few = start is not None and end is not None and _is_few(end - start + 1)
    if is_plain and not follow and limit is None and directory.host.takes_lines and not is_few:
        yield from _plain_lines(directory, name, start, end, at)
        return
    if follow:
        records = _followed(directory, name, start, wait)
    else:
        records = _found(directory, name, start, end, match, at, counts if match.is_indexed or stats else None, limit)
    if is_plain:
        items = _limited(records, limit)
        while group := tuple(islice(items, 1 if follow else _BATCH_RECORDS)):
            yield RecordBatch(group)
        return
    matching = _limited(_wanted(records, match, counts), limit)
    yield from _batches(directory, matching, 1 if follow else _BATCH_RECORDS, counts if stats else None)
    if stats:
        yield counts.told()


def tail(
    directory: Directory,
    topic: TopicName,
    count: Annotated[int, About("At most so many records.", "-n --count", least=1)] = 10,
    follow: Annotated[bool, About("Then wait for more, and write each record as it comes.", "-f --follow")] = False,
    wait: Annotated[float | None, About("With --follow: end after so many seconds without one.", least=0)] = None,
) -> Iterator[RecordBatch]:
    """Print the last records of a topic. Example: seglog tail orders -n 3 -f"""
    if directory.maybe_archive is None or directory.log.has_topic(topic):
        handle = directory.log.get_topic(topic)
        first, head = handle.earliest_seq, handle.head_seq
    else:
        bounds = directory.archive.history.snapshot(topic).bounds
        first, head = bounds.first_seq, bounds.head_seq
    records = _last(directory, topic, first, head, count)
    if follow:
        records = chain(records, _followed(directory, topic, head + 1, wait))
    return _batches(directory, records, 1 if follow else _BATCH_RECORDS, None)


def _last(directory: Directory, name: str, first: int, head: int, count: int) -> Iterator[Record | Gap]:
    """Return the last live records up to `head`. If a range has too few of them, look at one four times as long."""
    span, found = count, deque[Record | Gap]()
    while len(found) < count and first <= head:
        start = max(first, head - span + 1)
        items = _found(directory, name, start, head, Match(), None, None, None)
        found = deque((item for item in items if isinstance(item, Record)), count)
        if start == first:
            break
        span *= 4
    return iter(found)


def split(values: Mapping[str, Any]) -> tuple[Mapping[str, Any], Callable[[_Results], _Results]]:
    """Return the arguments for a daemon, and the work of its client: the client looks for a regular expression."""
    if values["grep"] is None or values["fixed"]:
        return values, iter
    has_pattern = pattern_of(values["grep"])
    return {**values, "grep": None, "limit": None}, partial(_searched, Match(has_pattern=has_pattern), values["limit"])


def _searched(match: Match, limit: int | None, results: _Results) -> _Results:
    """Yield the results without the records that do not match, up to `limit` records.

    If the limit ends them early, the counts of the last batch stand for those of the whole read.
    """
    for batch in results:
        if not isinstance(batch, RecordBatch):
            yield batch
            continue
        fitting = (item for item in batch.items if isinstance(item, Gap) or match.fits(item))
        items = tuple(_limited(fitting, limit))
        if items:
            yield RecordBatch(items)
        if limit is not None:
            limit -= sum(isinstance(item, Record) for item in items)
            if not limit:
                if batch.counts is not None:
                    yield ReadStats(*batch.counts)
                return


def matching_seqs(directory: Directory, name: str, start: int | None, end: int | None, match: Match) -> SeqSet:
    """Return the seqs of the live records that `read` shows with these conditions."""
    counts = Skipped()
    records = _found(directory, name, start, end, match, None, counts if match.is_indexed else None, None)
    return SeqSet.of_seqs(item.seq for item in _wanted(records, match, counts) if isinstance(item, Record))


def _found(
    directory: Directory,
    name: str,
    start: int | None,
    end: int | None,
    match: Match,
    at: str | None,
    counts: Skipped | None,
    limit: int | None,
) -> Iterator[Record | Gap]:
    """Return the records of the range, or of a past state if `at` is given. Raises `NoRemote`.

    With `counts`, chunks in the remote without a match are left out. The caller takes `limit` records at most.
    """
    archive = directory.maybe_archive
    if at is None and (archive is None or directory.log.has_topic(name)):
        topic = directory.log.get_topic(name)
        first = topic.earliest_seq if start is None else start
        if archive is not None and counts is not None and first < topic.inner.hot_floor:
            return pruned_here(archive, topic, first, end, match, counts)
        if match == Match() and _is_within(topic, first, end, limit):
            return _few_first(topic, first, end, limit or 0)
        return topic.read(start, end, since_ms=match.since_ms, until_ms=match.until_ms, gaps=True)
    return read_state(directory.archive, name, start, end, match, at, counts)


def _is_within(topic: Topic, first: int, end: int | None, limit: int | None) -> bool:
    """Return whether a few records from `first` on are only a part of the range, and none of them is lost."""
    last = topic.head_seq if end is None else min(end, topic.head_seq)
    return limit is not None and _is_few(limit) and topic.earliest_seq <= first and first + limit <= last


def _is_few(records: int) -> bool:
    """Return whether a read takes so many records one by one. Only the process that reads imports the module."""
    from seglog.segments.checked_frames import FEW

    return records <= FEW


def _few_first(topic: Topic, first: int, end: int | None, limit: int) -> Iterator[Record | Gap]:
    """Yield the records in two reads. The first one reads a few, which takes no arrays, and is mostly enough."""
    yield from topic.read(first, first + limit - 1, gaps=True)
    yield from topic.read(first + limit, end, gaps=True)


def _followed(directory: Directory, name: str, start: int | None, wait_s: float | None) -> Iterator[Record | Gap]:
    archive = directory.maybe_archive
    if archive is not None and archive.replication.is_replica(name):
        return _follow_replica(directory, name, start, wait_s)
    return _follow(directory, directory.log.get_topic(name), start, wait_s)


def _follow(directory: Directory, topic: Topic, start: int | None, wait_s: float | None) -> Iterator[Record | Gap]:
    """Yield records until the log closes, the process stops, or `wait_s` seconds pass without a record."""
    idle_s = 0.0
    while not directory.host.is_ending and (wait_s is None or idle_s < wait_s):
        slice_s = _LISTENER_CHECK_S if wait_s is None else min(_LISTENER_CHECK_S, wait_s - idle_s)
        try:
            for item in topic.follow(start, timeout_s=slice_s, gaps=True):
                start = (item.gap_to if isinstance(item, Gap) else item.seq) + 1
                idle_s = 0.0
                yield item
        except LogClosed:
            return
        idle_s += slice_s
        directory.host.check_listener()


def _follow_replica(directory: Directory, name: str, start: int | None, wait_s: float | None) -> Iterator[Record | Gap]:
    """Yield the records of a replica, and then the new ones after each sync.

    It ends as `_follow` does, and also if this directory becomes the writer of `name`.
    """
    archive, idle_s = directory.archive, 0.0
    while archive.replication.is_replica(name):
        for record in archive.read(name, start):
            start, idle_s = record.seq + 1, 0.0
            yield record
        start = archive.history.snapshot(name).bounds.head_seq + 1
        directory.host.check_listener()
        if directory.host.is_ending or (wait_s is not None and idle_s >= wait_s):
            return
        time.sleep(_REPLICA_LOOK_S)
        idle_s += _REPLICA_LOOK_S
        archive.replication.follow(name)


def _wanted(items: Iterator[Record | Gap], match: Match, counts: Skipped) -> Iterator[Record | Gap | None]:
    """Yield the gaps, and the records that match, and None now and then. End with the first record that is too new."""
    for item in items:
        if isinstance(item, Gap):
            yield item
            continue
        if match.until_ms is not None and item.ts_ms > match.until_ms:
            return
        counts.records += 1
        if match.fits(item):
            yield item
        if counts.records % _LOOKED_RECORDS == 0:
            yield None


def _batches(
    directory: Directory, items: Iterator[Record | Gap | None], size: int, counts: Skipped | None
) -> Iterator[RecordBatch]:
    """Yield batches. At a None, yield what there is, and end if nothing takes the results any more."""
    group: list[Record | Gap] = []

    def batch() -> RecordBatch:
        return RecordBatch(tuple(group), None if counts is None else astuple(counts.told()))

    for item in items:
        if item is not None:
            group.append(item)
        else:
            directory.host.check_listener()
        if group and (item is None or len(group) == size):
            yield batch()
            group = []
    if group:
        yield batch()


def _limited(items: Iterator[_Item], limit: int | None) -> Iterator[_Item]:
    """Yield items up to `limit` records. A gap does not count."""
    for item in items:
        yield item
        if limit is not None and isinstance(item, Record):
            limit -= 1
            if not limit:
                return


def _print_records(
    output: Output, results: Iterator[RecordBatch | RecordLines | ReadStats], values: Mapping[str, Any]
) -> None:
    name = with_branch(values["topic"], values.get("branch"))
    for result in results:
        if isinstance(result, ReadStats):
            _tell(output, result)
        elif isinstance(result, RecordLines):
            output.write(result.data)
        else:
            _write(output, name, result)
        output.flush()


def _tell(output: Output, stats: ReadStats) -> None:
    if output.is_json:
        output.show(stats, "")
        return
    chunks = f"{counted(stats.chunks_read, 'chunk')} read, {stats.chunks_skipped:,} left out by the index"
    segments = f"{counted(stats.segments_skipped, 'segment')} left out by their commits"
    output.note(f"{counted(stats.records)} looked at; {chunks}, {segments}")


def _write(output: Output, name: str, batch: RecordBatch) -> None:
    if output.is_json:
        output.show(batch, "")
        return
    for item in batch.items:
        if isinstance(item, Gap):
            output.note(f"{name}: seq {item.gap_from} to {item.gap_to} were evicted")
    output.write(b"".join(to_line(item) for item in batch.items if isinstance(item, Record)))


READ = Command(
    "read",
    read,
    _print_records,
    reads=lambda values: not values["follow"],
    split=split,
    role="read",
    section="everyday",
    aliases=("cat",),
)
TAIL = Command("tail", tail, _print_records, reads=lambda values: not values["follow"], role="read", section="everyday")
