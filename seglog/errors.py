"""The errors of the local log, grouped by what a handler would do.

    SeglogError
    ├── Corrupt              stop, and verify                              exit 5
    │   ├── InvalidFrame         bytes that are not a whole, valid frame (codecs only; callers add the place)
    │   ├── InvalidEntry         bytes that are not an index entry, or not an item of a journal (the same)
    │   ├── SegmentCut           a segment store returns fewer bytes than were put there, or other ones
    │   ├── FileCorrupt          a file is damaged below what was durable: path, offset, reason
    │   └── FormatUnsupported    written by another format version         exit 1
    ├── Conflict             the object is taken, or was changed           exit 4
    │   ├── BranchExists         a restore never overwrites
    │   ├── WarmDirectoryTaken   the warm directory belongs to another log
    │   ├── DirectoryInUse
    │   ├── TopicExists
    │   ├── ConcurrentModification  the topic was changed since the caller looked
    │   ├── DeleteNotUndone      no undo of that delete: its records are gone, or others took them as well
    │   ├── LeaseLost            a worker's lease of a job is over, and another one may have the job
    │   ├── HeadMoved            an append with `if_head`: another one came first
    │   ├── ProducerFenced       the producer has appended in a higher epoch
    │   ├── ProducerGap          the batch of a producer skips a number
    │   ├── BatchForgotten       the batch is older than those whose seqs the log keeps
    │   ├── BatchReused          another program has appended a batch of this producer, epoch and number
    │   ├── KeyReused            the key of an append was that of other values
    │   ├── OtherIncarnation     the daemon's topic no longer knows the batches that a client sent before
    │   ├── WrittenElsewhere     another directory writes the topic, and this one follows it or is fenced
    │   ├── Truncated            records that a reader has read are gone, and their seqs are used again
    │   └── ViewOutdated         the writer has moved on, and the data of the view is gone
    ├── Missing              the requested object does not exist           exit 3
    │   ├── NotADataDirectory
    │   ├── NoSuchSegment        in a segment store
    │   ├── NoSuchBranch
    │   ├── NoSuchTag            of the catalog: a name for a state
    │   ├── NoSuchTopic
    │   ├── OutOfWindow          a target outside what is kept
    │   ├── SeqOutOfRange
    │   └── Evicted              retention took records of the range: from, to
    ├── DaemonError          a daemon refused a request of a client        by the status of the answer
    ├── Unavailable          nothing was changed; repair the machine       exit 1
    │   ├── AppendUnknown        a daemon did not answer, so the records may be in or not
    │   ├── DaemonGone           a daemon did not answer, or the answer broke off
    │   ├── AppendsHeld          the log refuses appends for now (`Log.hold_appends`)
    │   ├── DirectoryNotWritable
    │   ├── DiskFull
    │   ├── TopicFull            the topic is at its cap, and configured to refuse appends
    │   ├── TooManyKeys          the topic keeps as many keys of appends as it can
    │   ├── WriterPoisoned       an fsync or write failed: reopen the log
    │   ├── ColdTierRequired     the records are only in the cold tier, and none is attached
    │   ├── WarmStoreFailed      the store of older segments does not return them
    │   ├── WarmStoreRequired    older segments are in a warm store, and the log is opened without one
    │   ├── TooManyOpenFiles     the process, or the machine, has no file descriptor left
    │   └── LogClosed
    └── Misuse               fix the call                                  exit 2
        ├── CalledWithin         a handler called the log within a call of the same thread
        ├── InvalidArgument      a value that the call does not take; a TypeError and a ValueError too
        ├── WarmDirectoryNotApart  the warm directory leads into the data directory, or the other way round
        ├── SameFile             a hot file is its own warm copy, so it is not deleted
        ├── InvalidTarget        a text that names no past state
        ├── InvalidName
        ├── InvalidSetting
        ├── InvalidLabel         a tag or node that does not fit a frame
        ├── NotInstalled         an optional package is missing
        ├── OpenedByParent       a log, journal or archive in a fork of the process that opened it
        ├── OtherLoop            an async log in another event loop than its own
        ├── OffsetOverflow       a file is full: an offset in it has 32 bits
        ├── UpgradeNeeded        the call needs a newer form of the directory or the volume
        ├── NotTruncatable       the seq is below the records on this disk, or was evicted
        ├── ReadOnly             a change of a log that was opened for reading only
        └── RecordTooLarge       a record, or the whole of one append

Each class says what happened. `hint`, if there is one, says what to do next.
"""

from __future__ import annotations

import reprlib
from pathlib import Path

from seglog.base import errors as base
from seglog.base.errors import (
    AppendUnknown as AppendUnknown,
    BranchExists as BranchExists,
    Conflict as Conflict,
    Corrupt as Corrupt,
    DaemonError as DaemonError,
    DaemonGone as DaemonGone,
    Evicted as Evicted,
    InvalidArgument as InvalidArgument,
    InvalidName as InvalidName,
    InvalidTarget as InvalidTarget,
    Missing as Missing,
    Misuse as Misuse,
    NoSuchBranch as NoSuchBranch,
    NoSuchTag as NoSuchTag,
    NoSuchTopic as NoSuchTopic,
    OpenedByParent as OpenedByParent,
    OutOfWindow as OutOfWindow,
    SeglogError as SeglogError,
    SeqOutOfRange as SeqOutOfRange,
    Unavailable as Unavailable,
)


def is_own(error: BaseException) -> bool:
    """Return whether the error is one of the log. What a cold tier or a store raises by itself is not."""
    return type(error).__module__ == __name__ and not isinstance(error, base.CatalogError)


class InvalidFrame(Corrupt):
    """These bytes are not a frame. Only the caller can tell whether they are a torn tail or corrupt."""

    offset: int
    reason: str
    message = "no valid frame at offset {offset}: {reason}"


class InvalidEntry(Corrupt):
    """These bytes are not an entry of an index, or not an item of a journal.

    `position` counts the entries of an index from 0, and is the place of an item in the bytes that the codec was given.
    """

    position: int
    reason: str
    message = "no valid entry at position {position}: {reason}"


class SegmentCut(Corrupt):
    """A segment store returns other bytes than it was given.

    `part` is a file of the segment, of `wanted` bytes. From `offset` on, its bytes are missing or differ.
    """

    segment: int
    part: str
    offset: int
    wanted: int
    message = "the {part} of segment {segment} is damaged: its {wanted} bytes end or differ at offset {offset}"
    hint = "nothing was changed: check the segment store"


class FileCorrupt(Corrupt):
    """A file is damaged below what was durable. The log reports the damage, and never repairs it by cutting."""

    path: Path
    offset: int
    reason: str
    message = "{path} is damaged at offset {offset}: {reason}"
    hint = "nothing was changed: keep the file, and restore its records from the remote or a backup"


class FormatUnsupported(Corrupt):
    exit_code = 1

    path: Path
    found: str
    known: str = "1"
    message = "{path}: format version {found} is not supported: this seglog reads {known}"
    hint = "use the seglog version that wrote it, or a newer one"


class WarmDirectoryTaken(Conflict):
    """The warm directory belongs to another log. `owner` says which one, as far as that is known."""

    path: Path
    owner: str
    message = "{path} is the warm directory of {owner}"
    hint = "set cold_dir to a directory that no other log uses. If that other log is gone, empty this one"


class DirectoryInUse(Conflict):
    path: Path
    holder: str
    message = "{path} is in use by {holder}"
    hint = "stop that process, or use another directory"


class TopicExists(Conflict):
    topic: str
    message = "topic {topic} exists already"


class ConcurrentModification(Conflict):
    """Since the caller looked, the topic had an append, a delete, a truncation or another configuration."""

    topic: str
    message = "topic {topic} has changed meanwhile; nothing was done"
    hint = "read its present state, then repeat the call"


class HeadMoved(Conflict):
    """The topic does not end with the seq that the append was given as `if_head`. `head` is its last seq."""

    topic: str
    if_head: int
    head: int
    message = "topic {topic} ends with seq {head}, not {if_head}; nothing was appended"
    hint = "read the records up to seq {head}, then decide again"


class ProducerFenced(Conflict):
    """A producer of the same id has appended in a higher epoch. `current` is that epoch."""

    def __init__(self, topic: str, producer: str, epoch: int, current: int) -> None:
        self._tell(
            f"producer {producer} of topic {topic} has epoch {current}, not {epoch}; nothing was appended",
            hint=f"another program has taken its place: stop, or begin epoch {current + 1} with batch 0",
        )
        self.topic = topic
        self.producer = producer
        self.epoch = epoch
        self.current = current


class ProducerGap(Conflict):
    """The number of the batch is not the next one. `expected` is the next number."""

    topic: str
    producer: str
    number: int
    expected: int
    message = "producer {producer} of topic {topic} is at batch {expected}, not {number}; nothing was appended"
    hint = "append batch {expected} first. If the log no longer knows the producer, begin a higher epoch"


class LeaseLost(Conflict):
    """The lease of each job that the call names is over, and nothing was changed. Another worker may have the job."""

    topic: str
    queue: str
    seq: int
    message = "the lease of job {seq} of {topic}/{queue} is over; nothing was changed"
    hint = "drop the job, because it comes again; extend a lease before its deadline, or make the queue's longer"


class BatchForgotten(Conflict):
    """The log has taken batches up to `newest`, and keeps the seqs of the last few. This batch is older."""

    topic: str
    producer: str
    number: int
    newest: int
    message = (
        "producer {producer} of topic {topic} is past batch {number}: its newest is {newest}; nothing was appended"
    )
    hint = "the log does not append it again. Read the topic to see whether its records are there"


class BatchReused(Conflict):
    """The topic has `records` other records under this producer, epoch and number.

    The log knows this from another number of values. It compares no values. A client knows it if the log has a batch
    that the client never sent.
    """

    def __init__(self, topic: str, producer: str, epoch: int, number: int, records: int) -> None:
        begun = f"begin epoch {epoch + 1} or a higher one with batch 0"
        self._tell(
            f"topic {topic} has batch {number} of epoch {epoch} of producer {producer} already, with {records} records "
            "of another append; nothing was appended",
            hint=f"another program, or an earlier run, has this id and epoch: take a new id, or {begun}",
        )
        self.topic = topic
        self.producer = producer
        self.epoch = epoch
        self.number = number
        self.records = records


class KeyReused(Conflict):
    """The topic has appended other values under this key: `records` records from `first_seq` on."""

    def __init__(self, topic: str, key: str, first_seq: int, records: int) -> None:
        self._tell(
            f"topic {topic} has appended other values under key {reprlib.repr(key)}: {records} records "
            f"from seq {first_seq} on; nothing was appended",
            hint="make a new key for each append, and keep the values if you repeat one",
        )
        self.topic = topic
        self.key = key
        self.first_seq = first_seq
        self.records = records


class WrittenElsewhere(Conflict):
    """Another directory writes the topic. An append here would begin or continue a second history of it."""

    def __init__(self, topic: str, *, is_fenced: bool, is_append: bool = True) -> None:
        if is_fenced:
            fact = f"another directory has taken {topic} over; nothing was appended"
            hint = (
                f"`seglog reset {topic} --as NAME` keeps what is only here as a branch, and follows the topic again. "
                "With append_when_fenced = true in section [log], appends go on, and stay in this directory"
            )
        elif not is_append:
            fact = f"this directory follows {topic}, and does not write it; nothing was changed"
            hint = "change it where it is written. If a promotion moves its name just now, try again"
        else:
            fact = f"this directory follows {topic}, and does not write it; nothing was appended"
            hint = (
                f"archive.open_for_append({topic!r}) takes the topic over, as the next `seglog append {topic}` does. "
                "It stops another writer"
            )
        self._tell(fact, hint=hint)
        self.topic = topic
        self.is_fenced = is_fenced


class OtherIncarnation(Conflict):
    """The topic has another incarnation than the client knew: it knows none of the batches and keys of before.

    That is so after a takeover, a recovery, or a deletion. A repetition could append records a second time.
    """

    topic: str
    known: str
    found: str | None
    message = (
        "topic {topic} was taken over, recovered or made again: its incarnation is {found}, not {known}; nothing was "
        "appended"
    )
    hint = "read the topic to see which records are there, then begin with a new topic object"


class Truncated(Conflict):
    """The topic was truncated at `seq`, and a reader is above it.

    The records that the reader has from `seq` on are gone; those below `seq` are as they are in `epoch`. So
    `follow(seq, epoch=epoch)` continues, and tells of a truncation that comes before it. Where the log cannot tell what
    is left, as after a deletion of the topic, `seq` is 1.
    """

    def __init__(self, topic: str, seq: int, epoch: int) -> None:
        also = ", or deleted and made again" if seq == 1 else ""
        self._tell(
            f"topic {topic} was truncated at seq {seq}{also}; the reader has passed that seq",
            hint=f"discard the records from seq {seq} on, and continue there: follow({seq}, epoch={epoch})",
        )
        self.topic = topic
        self.seq = seq
        self.epoch = epoch


class ViewOutdated(Conflict):
    path: Path
    message = "{path} has changed since this view was opened: the writer has moved or deleted the requested data"
    hint = "open the view again"


class NotADataDirectory(Missing):
    path: Path
    message = "{path} is not a seglog data directory"
    hint = "make one: seglog -C {path} init"


class NoSuchSegment(Missing):
    segment: int
    message = "the store has no segment that begins with seq {segment}"


class DirectoryNotWritable(Unavailable):
    path: Path
    cause: str
    message = "cannot write in {path}: {cause}"
    hint = "check its owner and mode, and whether its disk is mounted read-only"


class AppendsHeld(Unavailable):
    """The log refuses appends for now: its disk gets full, or a caller of `Log.hold_appends` asked for that."""

    reason: str
    hint: str | None = None
    message = "the log refuses appends for now: {reason}"


class DiskFull(Unavailable):
    """The disk had no room for `operation`, which is "append", "seal", "delete", "open" or another one.

    `may_reopen` says that an opening of the log would need less room, because it absorbs one WAL file at a time.
    """

    def __init__(self, path: Path, operation: str = "append", *, may_reopen: bool = False) -> None:
        is_append = operation == "append"
        outcome = "nothing was appended" if is_append else "no record is lost"
        then = "appends then work again" if is_append else "then repeat the call"
        if may_reopen:
            then += (
                ". Or close the log and open it again (restart its daemon): an opening absorbs one WAL file at a time, "
                "and so needs less space"
            )
        self._tell(
            f"no space left to {operation} in {path}; {outcome}",
            hint="free some space on its disk: delete files of other programs, or records (`seglog delete`), or hot "
            f"copies (`seglog offload TOPIC --drop-hot`); {then}",
        )
        self.path = path
        self.operation = operation
        self.may_reopen = may_reopen

    def named(self, operation: str) -> DiskFull:
        """Return this error with the name of another operation: that of the caller."""
        return DiskFull(self.path, operation, may_reopen=self.may_reopen)


class TooManyOpenFiles(Unavailable):
    """A file could not be opened. The step that needed it was not begun, so nothing is lost."""

    path: Path
    message = "no file descriptor is left for {path}; nothing was changed"
    hint = "close files or connections, or raise the limit (`ulimit -n`); the call then works again"


class TopicFull(Unavailable):
    """An append would pass a cap of the topic. `key` is that cap, cap_records or cap_bytes."""

    topic: str
    key: str
    limit: int
    message = "topic {topic} is full: {key} is {limit}; nothing was appended"
    hint = "delete records that are no longer needed, raise the cap, or set discard to old"


class TooManyKeys(Unavailable):
    """The topic keeps `limit` keys of appends, and forgets none early. The oldest one ends in `free_ms`."""

    topic: str
    limit: int
    free_ms: int
    message = "topic {topic} keeps {limit} keys, and the oldest one ends in {free_ms} ms; nothing was appended"
    hint = "append later, lower idempotency_keep_s, or number the batches of a producer: it needs no keys"


class WriterPoisoned(Unavailable):
    """A write or fsync failed. The content of the disk is unknown, so the log acks nothing until recovery has run."""

    path: Path
    cause: str
    message = "the log takes no more writes: {cause} on {path}"
    hint = "check the disk, then open the directory again; recovery finds the durable records"


class ColdTierRequired(Unavailable):
    topic: str
    first: int
    last: int
    message = "records {first} to {last} of {topic} are only in the cold tier"
    hint = "open the log with its remote: offload.attach(log, URL), or --remote URL"


class WarmStoreFailed(Unavailable):
    """The warm store does not return a segment. Appends and reads of hot records still work."""

    path: Path
    cause: str
    message = "the warm store does not return {path}: {cause}"
    hint = "repair the store, then read again; nothing was changed"


class WarmStoreRequired(Unavailable):
    topic: str
    first: int
    last: int
    message = "records {first} to {last} of {topic} are in a warm store, and the log has none"
    hint = "set cold_dir in the section [log] of seglog.toml, or give seglog.open the same warm_stores as before"


class LogClosed(Unavailable):
    what: str = "log"
    message = "the {what} is closed"


class CalledWithin(Misuse):
    """A call of this thread is under way. The inner call would wait for it for ever, so the inner call is refused.

    The outer call still completes.
    """

    message = "a call of this thread on the same log or journal is under way; nothing was done"
    hint = (
        "a signal handler, finalizer or logging handler interrupts a call of its thread. Let the handler put the "
        "record into a queue, and append it from another thread"
    )


class WarmDirectoryNotApart(Misuse):
    """The warm directory is not apart from the data directory.

    A segment that is moved there would replace the hot copy, or be the same file.
    """

    path: Path
    data: Path
    reason: str
    message = "{path} cannot be the warm directory of {data}: {reason}"
    hint = "set cold_dir to a separate directory on the slower disk; nothing was moved"


class SameFile(Misuse):
    """A hot file is its own warm copy. If `warm` is None, the store replaced the hot file in an unknown way."""

    def __init__(self, hot: Path, warm: Path | None) -> None:
        place = "the warm store writes there" if warm is None else f"{warm} is the same file"
        self._tell(
            f"{hot} is not deleted: {place}",
            hint="give the log a warm store outside its data directory; nothing was lost",
        )
        self.hot = hot
        self.warm = warm


class InvalidSetting(Misuse):
    key: str
    reason: str
    message = "setting {key}: {reason}"


class InvalidLabel(Misuse):
    """A tag or node does not fit a frame. `label` is "tag" or "node"."""

    label: str
    reason: str
    message = "{label}: {reason}; nothing was appended"


class DeleteNotUndone(Conflict):
    topic: str
    reason: str
    hint: str | None = None
    message = "{topic}: {reason}"


class NotTruncatable(Misuse):
    """The topic cannot be truncated at that seq. `floor` is the lowest seq at which it can be truncated."""

    topic: str
    seq: int
    floor: int
    message = "topic {topic} cannot be truncated at seq {seq}: the lowest possible seq is {floor}"


class UpgradeNeeded(Misuse):
    """`place` has the form `form` (seglog.base.forms), and the call needs a newer one."""

    what: str
    place: str
    form: int
    needed: int
    message = "{what} needs form {needed}, and {place} has form {form}; nothing was changed"
    hint = "`seglog upgrade --dry-run` shows the way to the newer form, which older versions of seglog cannot read"


class ReadOnly(Misuse):
    path: Path
    consequence: str = "nothing was changed"
    message = "{path} is open for reading only: {consequence}"
    hint = "open it without read_only"


class RecordTooLarge(Misuse):
    """`size_bytes` is the size of the record, or with `is_cut` of the part that came.

    With `is_alone`, the call appended nothing. Otherwise records before it may be in.
    """

    def __init__(self, size_bytes: int, limit_bytes: int, *, is_cut: bool = False, is_alone: bool = True) -> None:
        size = f"{size_bytes} bytes or more" if is_cut else f"{size_bytes} bytes"
        rest = "; nothing was appended" if is_alone else ""
        self._tell(
            f"a record of {size} is over the limit of {limit_bytes}{rest}",
            hint="split it, or raise max_record_bytes in seglog.toml",
        )
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class NotInstalled(Misuse):
    """The package is not installed. The extra of seglog installs it."""

    what: str
    package: str
    extra: str
    message = "{what} needs {package}, which is not installed"
    hint = "install it: `pip install 'seglog[{extra}]'`"


class OffsetOverflow(Misuse):
    """The file `path` is full. The next byte has no offset, because offsets end at `limit_bytes`."""

    path: Path
    limit_bytes: int
    hint: str = "append fewer records at once"
    message = "{path} is full: its offsets end at {limit_bytes}; nothing was appended"


class OtherLoop(Misuse):
    """An async log belongs to the event loop that opened it. The call came from another loop, and nothing was done."""

    message = "the log was opened in another event loop; nothing was done"
    hint = "open it within each asyncio.run, or send the call to its loop with asyncio.run_coroutine_threadsafe"
