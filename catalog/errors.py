"""The errors of the catalog, grouped by what a handler does.

    SeglogError
    ├── CatalogError         the root of those below and of no others: each has it and its group as bases
    ├── Corrupt              stop, and verify                            exit 5
    │   ├── InvalidObject        an object that does not decode or match its checksum
    │   └── FormatUnsupported    written by another format version       exit 1
    ├── Conflict             somebody was faster: reload, then decide    exit 4
    │   ├── KeyTaken             put-if-absent found the key; it may be our own lost answer
    │   ├── KeyChanged           compare-and-swap found another state; it may be our own lost answer
    │   ├── Diverged             the volume has a commit at our LSN that is not ours
    │   │   ├── Fenced               of a higher epoch: another writer has taken over
    │   │   ├── Outdated             our LSN lies below the boundary: GC has passed it
    │   │   └── BranchCollected      the branch was deleted, and GC has taken its volume
    │   ├── BranchExists
    │   ├── VolumeHasName        the branch was renamed: a volume has one name
    │   ├── HistoryCollected     GC has passed commits while they were looked at
    │   ├── PinLost              a lease had ended before it was renewed
    │   ├── NotUndone            what an operation made is not there any more, or its records do not come back
    │   └── RecordsGone          some records that an undo would bring back are in no object any more
    ├── Missing              the caller asked for what is not there      exit 3
    │   ├── NoSuchObject         the store has nothing under a key
    │   ├── NoSuchBucket
    │   ├── NoSuchTopic
    │   ├── NoSuchBranch
    │   ├── NoSuchTag
    │   ├── NoSuchPin
    │   └── OutOfWindow          a target outside what is kept
    ├── Unavailable          back off, try again                         exit 1
    │   ├── StoreUnreachable
    │   ├── NotOffered           the store does not have what was asked for, such as a kind of encryption
    │   ├── AccessDenied
    │   ├── LocalCatalogUnavailable  the SQLite file cannot be opened or written
    │   ├── ClocksDisagree       this machine's clock is not the store's: what goes by age has to wait
    │   └── OutcomeUnknown       nobody can say whether the write happened
    └── Misuse               fix the call                                exit 2
        ├── InvalidArgument      a value that the call does not take; a TypeError and a ValueError too
        ├── OpenedByParent       a local catalog in a fork of the process that opened it
        ├── InvalidName
        ├── InvalidKey
        ├── ChecksumNotKept      a store does not know the kind of checksum that was asked for
        ├── InvalidRemote        a remote URL that names no place
        └── InvalidTarget

Each class says what happened. `hint`, if there is one, says what to do next.
"""

from __future__ import annotations

from typing import Self

from seglog.base import errors as base
from seglog.base.errors import (
    BranchExists as BranchExists,
    CatalogError as CatalogError,
    Conflict as Conflict,
    Corrupt as Corrupt,
    InvalidArgument as InvalidArgument,
    InvalidName as InvalidName,
    InvalidTarget as InvalidTarget,
    Missing as Missing,
    Misuse as Misuse,
    NoSuchBranch as NoSuchBranch,
    NoSuchTag as NoSuchTag,
    OpenedByParent as OpenedByParent,
    OutOfWindow as OutOfWindow,
    SeglogError as SeglogError,
    Unavailable as Unavailable,
    moment_text,
)


class InvalidObject(Corrupt, CatalogError):
    """An object that does not decode, or does not match its checksum or hash."""

    place: str
    reason: str
    message = "{place}: {reason}"
    hint = "the object is damaged: keep it, and compare it with a backup or replica"


class FormatUnsupported(Corrupt, CatalogError):
    """The object is whole, but has a format version that this software does not know."""

    exit_code = 1

    place: str
    found: str
    known: int | str = 1
    message = "{place}: format version {found} is not supported: this seglog reads {known}"
    hint = "use the seglog version that wrote it or a newer one, or another remote"


class KeyTaken(Conflict, CatalogError):
    key: str
    message = "{key} exists already"


class KeyChanged(Conflict, CatalogError):
    key: str
    message = "another writer has changed {key} meanwhile"


class Diverged(Conflict, CatalogError):
    """The volume holds a commit at this LSN that this writer did not make."""

    def __init__(self, topic: str, vid: str, lsn: int, *, message: str | None = None, hint: str | None = None) -> None:
        self._tell(
            message
            or f"{topic} has diverged: lsn {lsn} of volume {vid} is another writer's commit; nothing was changed",
            hint=hint
            or "two writers use one topic: stop one of them. This directory keeps all its records. "
            f"`seglog reset {topic} --as NAME` makes a branch of the records that the other writer lacks",
        )
        self.topic = topic
        self.vid = vid
        self.lsn = lsn


class Fenced(Diverged):
    """Another writer took the topic over. This writer has to stop for good."""

    def __init__(self, topic: str, vid: str, lsn: int, epoch: int) -> None:
        super().__init__(
            topic,
            vid,
            lsn,
            message=f"{topic} was taken over by another writer: lsn {lsn} of volume {vid} has epoch {epoch}",
            hint=f"stop this writer. `seglog reset {topic}` follows the other writer. "
            "With `--as NAME`, the records that the other writer lacks become a branch",
        )
        self.epoch = epoch


class Outdated(Diverged):
    """The commit came so late that GC has passed its LSN. Other writers have committed since."""

    def __init__(self, topic: str, vid: str, lsn: int, boundary: int) -> None:
        super().__init__(
            topic,
            vid,
            lsn,
            message=f"{topic} has diverged: lsn {lsn} of volume {vid} lies below GC's boundary, {boundary}",
        )
        self.boundary = boundary


class BranchCollected(Diverged):
    """GC has deleted the volume for good. The volume keeps no commit, and takes none."""

    def __init__(self, name: str, vid: str) -> None:
        super().__init__(
            name,
            vid,
            0,
            message=f"{name} was deleted in the remote, and GC has deleted its volume {vid}; nothing was changed",
            hint=f"`seglog reset {name} --as NAME` saves the records that are still here as a branch, "
            "`--discard` drops them",
        )


class VolumeHasName(Conflict, CatalogError):
    """A volume has one name, and the name of this one is now `name`."""

    topic: str
    branch: str
    name: str
    message = "{topic}@{branch} was not created: its volume has the name {topic}@{name} now"
    hint = "a volume has one name: use {topic}@{name}, or run `seglog branch rename {topic} {name} {branch}`"


class HistoryCollected(Conflict, CatalogError):
    """GC has passed the oldest commits of a history while a caller looked at it, or a volume before it had a name.

    Of such a volume no commit is left: `lsn` is 0, and the error has the `topic` and the `branch` that were to be made.
    """

    vid: object
    lsn: int
    boundary: int
    message = "GC deleted lsn {lsn} of volume {vid} during the call: the kept history now begins with lsn {boundary}"
    hint = "run the same command again"


class PinLost(Conflict, CatalogError):
    """The lease ended before it was renewed. GC may have deleted the state that it held."""

    key: str
    message = "the lease {key} ended before its renewal"
    hint = "read again, from a state that is still kept"


class NotUndone(Conflict, CatalogError):
    """`number` is the operation's. It is None without one, and for a commit, which `name` and `lsn` tell."""

    def __init__(self, number: int | None, reason: str, hint: str = "`seglog oplog` lists the operations") -> None:
        told = "nothing was undone" if number is None else f"operation {number} cannot be undone"
        self._tell(f"{told}: {reason}", hint=hint)
        self.number = number
        self.reason = reason

    @classmethod
    def of_commit(cls, name: str, lsn: int, reason: str, hint: str | None = None) -> Self:
        """Return the error of a commit that took records away and cannot be undone, or took none that can come back.

        Its `number` is None, because `name` and `lsn` say which commit it is: the call named no operation.
        """
        text = f"lsn {lsn} of {name} cannot be undone: {reason}; nothing was changed"
        return cls.told(text, hint, {"number": None, "reason": reason, "name": name, "lsn": lsn})


class RecordsGone(Conflict, CatalogError):
    """`records` of the records that an undo would bring back are gone. `ranges` are the first of their ranges."""

    def __init__(
        self, name: str, lsn: int, records: int, ranges: tuple[tuple[int, int], ...], *, is_all: bool = False
    ) -> None:
        named = ", ".join(f"{first} to {last}" if last > first else str(first) for first, last in ranges)
        noun = "record" if records == 1 else "records"
        self._tell(
            f"{records:,} {noun} that lsn {lsn} of {name} took away are in no object any more: seq {named}"
            "; nothing was changed",
            hint="no record is left" if is_all else "`--partial` brings the others back",
        )
        self.name = name
        self.lsn = lsn
        self.records = records
        self.ranges = ranges


class NoSuchObject(Missing, CatalogError):
    def __init__(self, key: str) -> None:
        # A reader asks for such a key only because a commit names it, or continues it.
        is_history = "/segments/" in key or "/log/" in key
        hint = "check the remote URL. If that is right, the object was deleted: run `seglog verify --remote`"
        self._tell(f"{key} is not in the store", hint=hint if is_history else None)
        self.key = key


class NoSuchBucket(Missing, CatalogError):
    """The place that should hold the prefix: a bucket, or for a local remote the directory above it."""

    bucket: str
    kind: str = "bucket"
    message = "{kind} {bucket} does not exist"
    hint = "create it, or correct the remote URL"


class NoSuchTopic(base.NoSuchTopic, CatalogError):
    """`seglog.errors.NoSuchTopic`, in a remote."""

    place: str
    message = "no topic {topic} in {place}"
    hint = "`seglog topic list` lists the topics"


class NoSuchPin(Missing, CatalogError):
    pin: str
    message = "there is no pin {pin}"
    hint = "`seglog pin list` lists the pins"


class StoreUnreachable(Unavailable, CatalogError):
    url: str
    cause: str
    hint: str = "check the endpoint, the network and the store's health"
    message = "cannot reach {url}: {cause}"


class NotOffered(Unavailable, CatalogError):
    """The store does not support what a request asks for. It may support all other requests."""

    def __init__(self, url: str, cause: str) -> None:
        hint = (
            "if the cause is a storage class or an encryption, choose another in the settings. Else run `seglog doctor`"
        )
        self._tell(f"{url} does not support the request: {cause}", hint=hint)
        self.url = url


class AccessDenied(Unavailable, CatalogError):
    url: str
    cause: str
    hint: str = "check the AWS credentials and the policy on this prefix"
    message = "{url} refuses access: {cause}"


class LocalCatalogUnavailable(Unavailable, CatalogError):
    def __init__(self, path: str, cause: str, *, is_full: bool = False) -> None:
        hint = "check the disk, the owner and the mode"
        if is_full:
            hint = "free some space on its disk: delete files of other programs, or records; then repeat the call"
        self._tell(f"cannot use the local catalog {path}: {cause}", hint=hint)
        self.path = path
        self.is_full = is_full


class ClocksDisagree(Unavailable, CatalogError):
    """This machine's clock and the store's differ by more than a caller that deletes by age may accept."""

    def __init__(self, url: str, ahead_ms: int, now_ms: int, bound_ms: int, what: str) -> None:
        way = "ahead of" if ahead_ms > 0 else "behind"
        here, there = moment_text(now_ms), moment_text(now_ms - ahead_ms)
        self._tell(
            f"{what}: this machine's clock is {_span(abs(ahead_ms))} {way} that of {url} "
            f"({here} here, {there} there), and may differ by {_span(bound_ms)}",
            hint="correct the wrong clock by NTP; `seglog doctor` compares the clocks. Then run the same command again",
        )
        self.url = url
        self.ahead_ms = ahead_ms
        self.bound_ms = bound_ms


class OutcomeUnknown(Unavailable, CatalogError):
    """A write got no definite answer, and reading back gave none either. Repeat the identical write later."""

    key: str
    cause: str
    hint: str = "run the same command again: it resumes"
    message = "no definite answer for {key}: {cause}"


class InvalidKey(Misuse, CatalogError):
    key: str
    message = "{key!r} is not a key inside the prefix"


class InvalidRemote(Misuse, CatalogError):
    url: str
    reason: str
    message = "{url!r} is not a remote: {reason}"
    hint = "use s3://bucket/prefix, file:///an/absolute/path, or https://host:7373 of a proxy"


class ChecksumNotKept(Misuse, CatalogError):
    url: str
    kind: str
    message = "{url} keeps no {kind} of whole objects"
    hint = 'set offload.checksum to "auto", or to a checksum that the store keeps'


def tag_exists(topic: str, tag: str) -> Conflict:
    hint = "choose another name, or delete that tag first: a tag never moves"
    return Conflict(f"{topic} has a tag {tag} already", hint=hint)


def main_cannot(topic: str, what: str) -> Misuse:
    """Return the error of an operation that the name `main` does not allow."""
    return Misuse(f"the branch main of {topic} cannot {what}", hint="main is the topic itself")


def _span(ms: int) -> str:
    """Return the time in the largest unit of which it has at least two: 36 hours, 40 days."""
    for unit_ms, unit in ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes")):
        if ms >= 2 * unit_ms:
            return f"{ms // unit_ms} {unit}"
    return f"{ms // 1000} s"
