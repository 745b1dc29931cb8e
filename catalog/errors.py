"""The errors of the catalog, grouped by what a handler does.

    CatalogError
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
    │   ├── TagExists
    │   ├── VolumeHasName        the branch was renamed: a volume has one name
    │   ├── HistoryCollected     GC has passed commits while they were looked at
    │   ├── VolumeCollected      it took so long to name a new volume that GC had taken it
    │   ├── PinLost              a lease had ended before it was renewed
    │   ├── NotUndone            what an operation made is not there any more
    │   ├── NotTakenBack         a commit that took records away cannot be undone, or took none that can come back
    │   ├── PlanNotDue           a plan of GC is younger than the grace
    │   ├── PlanOutgrown         something needs objects of a plan of GC now
    │   └── RecordsGone          some records that an undo would bring back are in no object any more
    ├── Missing              the caller asked for what is not there      exit 3
    │   ├── NoSuchObject
    │   ├── NoSuchBucket
    │   ├── NoSuchTopic
    │   ├── NoSuchBranch
    │   ├── NoSuchTag
    │   ├── NoSuchPin
    │   ├── NoSuchPlan
    │   ├── NoSuchOperation
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
        ├── UnnamableBranch      main is the topic itself
        ├── OpenedByParent       a local catalog in a fork of the process that opened it
        ├── InvalidName
        ├── InvalidKey
        ├── ChecksumNotKept      a store does not know the kind of checksum that was asked for
        ├── InvalidRemote        a remote URL that names no place
        ├── InvalidTenant        no name of a tenant
        ├── PolicyTooLong        a session policy with more characters than STS takes
        └── InvalidTarget

Each class says what happened. `hint`, if there is one, says what to do next.
"""

from __future__ import annotations

import reprlib
from datetime import UTC, datetime
from typing import ClassVar

__all__ = [
    "AccessDenied",
    "BranchCollected",
    "BranchExists",
    "CatalogError",
    "ChecksumNotKept",
    "ClocksDisagree",
    "Conflict",
    "Corrupt",
    "Diverged",
    "Fenced",
    "FormatUnsupported",
    "HistoryCollected",
    "InvalidArgument",
    "InvalidKey",
    "InvalidName",
    "InvalidObject",
    "InvalidRemote",
    "InvalidTarget",
    "InvalidTenant",
    "KeyChanged",
    "KeyTaken",
    "LocalCatalogUnavailable",
    "Missing",
    "Misuse",
    "NoSuchBranch",
    "NoSuchBucket",
    "NoSuchObject",
    "NoSuchOperation",
    "NoSuchPin",
    "NoSuchPlan",
    "NoSuchTag",
    "NoSuchTopic",
    "NotOffered",
    "NotTakenBack",
    "NotUndone",
    "OpenedByParent",
    "OutOfWindow",
    "OutcomeUnknown",
    "Outdated",
    "PinLost",
    "PlanNotDue",
    "PlanOutgrown",
    "PolicyTooLong",
    "RecordsGone",
    "StoreUnreachable",
    "TagExists",
    "Unavailable",
    "UnnamableBranch",
    "VolumeCollected",
    "VolumeHasName",
]


class CatalogError(Exception):
    """Root of the catalog's errors. `exit_code` is the exit code of a command that ends with the error."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class Corrupt(CatalogError):
    exit_code = 5


class InvalidObject(Corrupt):
    """An object that does not decode, or does not match its checksum or hash."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(
            f"{place}: {reason}", hint="the object is damaged: keep it, and compare it with a backup or replica"
        )
        self.place = place
        self.reason = reason


class FormatUnsupported(Corrupt):
    """The object is whole, but has a format version that this software does not know."""

    exit_code = 1

    def __init__(self, place: str, found: str, known: int | str = 1) -> None:
        super().__init__(
            f"{place}: format version {found} is not supported: this seglog reads {known}",
            hint="use the seglog version that wrote it, or another remote",
        )
        self.place = place
        self.found = found


class Conflict(CatalogError):
    exit_code = 4


class KeyTaken(Conflict):
    def __init__(self, key: str) -> None:
        super().__init__(f"{key} exists already")
        self.key = key


class KeyChanged(Conflict):
    def __init__(self, key: str) -> None:
        super().__init__(f"another writer has changed {key} meanwhile")
        self.key = key


class Diverged(Conflict):
    """The volume holds a commit at this LSN that this writer did not make."""

    def __init__(self, topic: str, vid: str, lsn: int, *, message: str | None = None, hint: str | None = None) -> None:
        super().__init__(
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


class BranchExists(Conflict):
    def __init__(self, topic: str, branch: str) -> None:
        super().__init__(f"{topic}@{branch} exists already", hint="choose another name: a restore never overwrites")
        self.topic = topic
        self.branch = branch


class VolumeHasName(Conflict):
    """A volume has one name, and the name of this one is now `name`."""

    def __init__(self, topic: str, branch: str, name: str) -> None:
        super().__init__(
            f"{topic}@{branch} was not created: its volume has the name {topic}@{name} now",
            hint=f"a volume has one name: use {topic}@{name}, or run `seglog branch rename {topic} {name} {branch}`",
        )
        self.topic = topic
        self.branch = branch
        self.name = name


class TagExists(Conflict):
    def __init__(self, topic: str, tag: str) -> None:
        super().__init__(
            f"{topic} has a tag {tag} already", hint="choose another name, or delete that tag first: a tag never moves"
        )
        self.topic = topic
        self.tag = tag


class HistoryCollected(Conflict):
    """GC has passed the oldest commits of a history while a caller looked at it. The history now begins later."""

    def __init__(self, vid: object, lsn: int, boundary: int) -> None:
        super().__init__(
            f"GC deleted lsn {lsn} of volume {vid} during the call: the kept history now begins with lsn {boundary}",
            hint="run the same command again",
        )
        self.vid = vid
        self.lsn = lsn
        self.boundary = boundary


class VolumeCollected(Conflict):
    """The caller named a new volume later than GC's grace period, and GC has collected the volume as garbage."""

    def __init__(self, topic: str, branch: str, vid: object) -> None:
        super().__init__(
            f"{topic}@{branch} was not created: GC deleted its volume {vid} before the volume had a name",
            hint="run the same command again: it creates another volume",
        )
        self.topic = topic
        self.branch = branch


class PinLost(Conflict):
    """The lease ended before it was renewed. GC may have deleted the state that it held."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"the lease {key} ended before its renewal", hint="read again, from a state that is still kept"
        )
        self.key = key


class PlanNotDue(Conflict):
    def __init__(self, number: int, wait_s: int) -> None:
        super().__init__(
            f"plan {number} is younger than the grace, or its time lies in the future; nothing was deleted",
            hint=f"apply it in {wait_s:,} s",
        )
        self.number = number
        self.wait_s = wait_s


class PlanOutgrown(Conflict):
    """Something needs `count` objects of a plan now. `key` is the first one."""

    def __init__(self, number: int, count: int, key: str) -> None:
        objects = "1 object" if count == 1 else f"{count:,} objects"
        super().__init__(
            f"plan {number} names {objects} that something may need now, such as {key}; nothing was deleted",
            hint=f"`seglog gc explain {key}` says why, and `seglog gc` deletes only the rest",
        )
        self.number = number
        self.count = count
        self.key = key


class NotUndone(Conflict):
    """`number` is the operation's, or None if there is no operation to undo."""

    def __init__(self, number: int | None, reason: str, hint: str = "`seglog oplog` lists the operations") -> None:
        told = "nothing was undone" if number is None else f"operation {number} cannot be undone"
        super().__init__(f"{told}: {reason}", hint=hint)
        self.number = number


class NotTakenBack(Conflict):
    def __init__(self, name: str, lsn: int, reason: str, hint: str | None = None) -> None:
        super().__init__(f"lsn {lsn} of {name} cannot be undone: {reason}; nothing was changed", hint=hint)
        self.name = name
        self.lsn = lsn
        self.reason = reason


class RecordsGone(Conflict):
    """`records` of the records that an undo would bring back are gone. `ranges` are the first of their ranges."""

    def __init__(
        self, name: str, lsn: int, records: int, ranges: tuple[tuple[int, int], ...], *, is_all: bool = False
    ) -> None:
        named = ", ".join(f"{first} to {last}" if last > first else str(first) for first, last in ranges)
        noun = "record" if records == 1 else "records"
        super().__init__(
            f"{records:,} {noun} that lsn {lsn} of {name} took away are in no object any more: seq {named}"
            "; nothing was changed",
            hint="no record is left" if is_all else "`--partial` brings the others back",
        )
        self.name = name
        self.lsn = lsn
        self.records = records
        self.ranges = ranges


class Missing(CatalogError):
    exit_code = 3


class NoSuchObject(Missing):
    def __init__(self, key: str) -> None:
        # A reader asks for such a key only because a commit names it, or continues it.
        is_history = "/segments/" in key or "/log/" in key
        hint = "check the remote URL. If that is right, the object was deleted: run `seglog verify --remote`"
        super().__init__(f"{key} is not in the store", hint=hint if is_history else None)
        self.key = key


class NoSuchBucket(Missing):
    """The place that should hold the prefix: a bucket, or for a local remote the directory above it."""

    def __init__(self, bucket: str, kind: str = "bucket") -> None:
        super().__init__(f"{kind} {bucket} does not exist", hint="create it, or correct the remote URL")
        self.bucket = bucket


class NoSuchTopic(Missing):
    def __init__(self, topic: str, place: str) -> None:
        super().__init__(f"no topic {topic} in {place}", hint="`seglog topic list` lists the topics")
        self.topic = topic


class NoSuchBranch(Missing):
    def __init__(self, topic: str, branch: str) -> None:
        super().__init__(f"no branch {topic}@{branch}", hint=f"`seglog branch list {topic}` lists the branches")
        self.topic = topic
        self.branch = branch


class NoSuchTag(Missing):
    def __init__(self, topic: str, tag: str) -> None:
        super().__init__(f"{topic} has no tag {tag}", hint=f"`seglog tag list {topic}` lists the tags")
        self.topic = topic
        self.tag = tag


class NoSuchPin(Missing):
    def __init__(self, pin: str) -> None:
        super().__init__(f"there is no pin {pin}", hint="`seglog pin list` lists the pins")
        self.pin = pin


class NoSuchPlan(Missing):
    def __init__(self, number: int) -> None:
        super().__init__(f"there is no plan {number}", hint="`seglog gc plan --dry-run` lists the plans")
        self.number = number


class NoSuchOperation(Missing):
    def __init__(self, number: int) -> None:
        super().__init__(f"the oplog has no operation {number}", hint="`seglog oplog` lists the operations")
        self.number = number


class OutOfWindow(Missing):
    """The target lies outside what is kept. The message gives the window. The call never guesses the nearest point."""

    def __init__(self, target: str, window: str) -> None:
        super().__init__(f"{target} is outside the kept history. Restorable: {window}")
        self.target = target
        self.window = window


class Unavailable(CatalogError):
    exit_code = 1


class StoreUnreachable(Unavailable):
    def __init__(
        self, url: str, cause: str, hint: str = "check the endpoint, the network and the store's health"
    ) -> None:
        super().__init__(f"cannot reach {url}: {cause}", hint=hint)
        self.url = url


class NotOffered(Unavailable):
    """The store does not support what a request asks for. It may support all other requests."""

    def __init__(self, url: str, cause: str) -> None:
        hint = (
            "if the cause is a storage class or an encryption, choose another in the settings. Else run `seglog doctor`"
        )
        super().__init__(f"{url} does not support the request: {cause}", hint=hint)
        self.url = url


class AccessDenied(Unavailable):
    def __init__(
        self, url: str, cause: str, hint: str = "check the AWS credentials and the policy on this prefix"
    ) -> None:
        super().__init__(f"{url} refuses access: {cause}", hint=hint)
        self.url = url


class LocalCatalogUnavailable(Unavailable):
    def __init__(self, path: str, cause: str, *, is_full: bool = False) -> None:
        hint = "check the disk, the owner and the mode"
        if is_full:
            hint = "free some space on its disk: delete files of other programs, or records; then repeat the call"
        super().__init__(f"cannot use the local catalog {path}: {cause}", hint=hint)
        self.path = path
        self.is_full = is_full


class ClocksDisagree(Unavailable):
    """This machine's clock and the store's differ by more than a caller that deletes by age may accept."""

    def __init__(self, url: str, ahead_ms: int, now_ms: int, bound_ms: int, what: str) -> None:
        way = "ahead of" if ahead_ms > 0 else "behind"
        here, there = _moment(now_ms), _moment(now_ms - ahead_ms)
        super().__init__(
            f"{what}: this machine's clock is {_span(abs(ahead_ms))} {way} that of {url} "
            f"({here} here, {there} there), and may differ by {_span(bound_ms)}",
            hint="correct the wrong clock by NTP; `seglog doctor` compares the clocks. Then run the same command again",
        )
        self.url = url
        self.ahead_ms = ahead_ms
        self.bound_ms = bound_ms


class OutcomeUnknown(Unavailable):
    """A write got no definite answer, and reading back gave none either. Repeat the identical write later."""

    def __init__(self, key: str, cause: str, hint: str = "run the same command again: it resumes") -> None:
        super().__init__(f"no definite answer for {key}: {cause}", hint=hint)
        self.key = key
        self.cause = cause


class Misuse(CatalogError):
    exit_code = 2


class OpenedByParent(Misuse):
    """This process is a fork of the process that opened the catalog.

    It has only a copy, and the parent still uses the original.
    """

    def __init__(self, parent: int) -> None:
        super().__init__(
            f"process {parent} opened the local catalog, and this process is a fork of that one; nothing was done",
            hint="open it in this process after the parent has closed it, or use multiprocessing's spawn method",
        )
        self.parent = parent


class InvalidName(Misuse):
    def __init__(self, kind: str, name: str) -> None:
        super().__init__(
            f"{name!r} is not a valid {kind} name",
            hint="1 to 128 characters of A-Z a-z 0-9 . _ -, the first one a letter, digit or underscore",
        )
        self.name = name


class InvalidArgument(Misuse, TypeError, ValueError):
    """A value that the call does not take. Nothing was done.

    `name` is the argument, `given` its value, `wanted` says what the call takes. The class is a `TypeError` and a
    `ValueError`, because Python raises either for such a value.
    """

    def __init__(self, name: str, given: object, wanted: str) -> None:
        super().__init__(f"argument {name} is {reprlib.repr(given)} ({type(given).__name__}): it must be {wanted}")
        self.name = name
        self.given = given
        self.wanted = wanted


class UnnamableBranch(Misuse):
    """An operation that the name `main` does not allow."""

    def __init__(self, topic: str, what: str) -> None:
        super().__init__(f"the branch main of {topic} cannot {what}", hint="main is the topic itself")
        self.topic = topic


class InvalidKey(Misuse):
    def __init__(self, key: str) -> None:
        super().__init__(f"{key!r} is not a key inside the prefix")
        self.key = key


class InvalidRemote(Misuse):
    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"{url!r} is not a remote: {reason}", hint="use s3://bucket/prefix or file:///an/absolute/path"
        )
        self.url = url
        self.reason = reason


class InvalidTenant(Misuse):
    def __init__(self, name: str, reason: str) -> None:
        super().__init__(
            f"{reprlib.repr(name)} is {reason}",
            hint="1 to 63 characters of a-z 0-9 _ -, the first and the last a letter or digit; some names are reserved",
        )
        self.name = name


class PolicyTooLong(Misuse):
    def __init__(self, length: int, most: int) -> None:
        super().__init__(
            f"the session policy has {length} characters, and STS takes {most}",
            hint="use fewer conditions, or a shorter base prefix",
        )
        self.length = length


class ChecksumNotKept(Misuse):
    def __init__(self, url: str, kind: str) -> None:
        super().__init__(
            f"{url} keeps no {kind} of whole objects",
            hint='set offload.checksum to "auto", or to a checksum that the store keeps',
        )


class InvalidTarget(Misuse):
    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(
            f"{text!r} is not a point in time{': ' + reason if reason else ''}",
            hint="use seq:N, lsn:N, head, head~N, tag:NAME, or a time such as 2026-11-21T09:30:00Z or '15 minutes ago'",
        )
        self.text = text


def _moment(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms since 1970"  # a clock that is wrong may say anything


def _span(ms: int) -> str:
    """Return the time in the largest unit of which it has at least two: 36 hours, 40 days."""
    for unit_ms, unit in ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "minutes")):
        if ms >= 2 * unit_ms:
            return f"{ms // unit_ms} {unit}"
    return f"{ms // 1000} s"
