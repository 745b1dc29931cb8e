"""The errors between the log and its archive that several rooms raise or catch, grouped by how a handler reacts.

An error that one room raises stands in that room, for example `LoadConflict` in `offload.load`.

    SeglogError
    ├── OffloadError         the root of those below and of no others: each has it and its group as bases
    │   ├── ChecksFailed         the remote breaks promises that seglog needs  exit 1
    │   └── NotConfirmed         the operator did not say yes                  exit 1
    ├── Corrupt              stop, and verify                              exit 5
    │   ├── ObjectDamaged        a block of a data object, and parent of the next two
    │   │   ├── InvalidChunk         a chunk of a data object, or a record in it
    │   │   └── InvalidIndex         an index object
    │   ├── HistoryBehind        records left this disk, and the catalog here does not know where they are
    │   └── FormatUnsupported    written by another format version         exit 1
    ├── Conflict             the present state is in the way              exit 4
    │   ├── ExportOutdated       an export has records that the topic no longer has
    │   ├── LocalChangesLost     a reset would drop what only this directory has
    │   ├── NotOffloaded         the remote has no such state yet
    │   ├── OtherRemote          the remote is not the one that has the history
    │   │   └── NameDeleted          the branch has no name there any more
    │   ├── RecordsAfterFork     main has records that the branch to promote lacks
    │   ├── RemoteBehind         the remote lacks a commit that this directory knows
    │   └── TopicAttached        deleting it would leave its history in the remote
    ├── Missing              the caller named what does not exist          exit 3
    ├── Unavailable          nothing was changed; try again                exit 1
    │   ├── Busy                 too many requests in progress: retry after `retry_after_s`
    │   └── Stopping             the daemon is being stopped
    └── Misuse               fix the call                                  exit 2
        ├── BodyBroken           the body of a request broke off
        ├── InvalidInput         a line of an input file
        ├── InvalidOption
        ├── NeverWritten         an ephemeral topic has nothing to offload
        ├── NoRemote
        └── Refused              the daemon's rules forbid it: host, origin, token, size, pace
            └── NotAllowed           the token lacks the role for it

The message says what happened. `hint`, if it is set, says what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Self

from seglog.base.errors import (
    Conflict as Conflict,
    Corrupt as Corrupt,
    Missing as Missing,
    Misuse as Misuse,
    SeglogError as SeglogError,
    Unavailable as Unavailable,
)


class OffloadError(SeglogError):
    """The root of those of this package. Each belongs to a group of `seglog.base.errors`, too."""


class ObjectDamaged(Corrupt, OffloadError):
    """An object in the store differs from the object that was written. `offset` is in bytes from the object's start."""

    key: str
    offset: int
    reason: str
    message = "{key} is damaged at offset {offset}: {reason}"
    hint = "nothing was changed: keep the object, and compare it with a backup or replica"


class InvalidChunk(ObjectDamaged):
    """A chunk of a data object is damaged, or a record in the chunk is. The offset is the chunk's."""


class InvalidIndex(ObjectDamaged):
    """An index object is damaged: its head, its segment metadata or its trailer."""


class HistoryBehind(Corrupt, OffloadError):
    """The log released records for which the local catalog knows no commit: catalog.db is older than the log."""

    def __init__(self, name: str, last_seq: int, known_seq: int) -> None:
        self._tell(
            f"the log released the records of {name} up to seq {last_seq}, but catalog.db ends at seq {known_seq}",
            hint="restore the catalog.db that belongs to this directory; the remote has the records. If it is lost, "
            f"save the records that only this directory has: "
            f"`seglog read {name} --from {last_seq + 1}`, then `seglog reset {name} --discard`",
        )
        self.name = name


def damage_found(count: int, place: str, hint: str) -> Corrupt:
    """Return the error of a check that has found damage."""
    return Corrupt(f"{'1 damage' if count == 1 else f'{count} damages'} in {place}", hint=hint)


def blocked_volumes(count: int) -> Corrupt:
    """Return the error of a GC that has left volumes alone."""
    told = "1 volume was" if count == 1 else f"{count} volumes were"
    text = f"{told} left alone, as what cannot be read may hold it"
    return Corrupt(text, hint="`seglog verify --remote` tells the damage")


class FormatUnsupported(Corrupt, OffloadError):
    """The object is whole, but this software does not read its format or version."""

    exit_code = 1

    key: str
    found: str
    message = "{key}: this seglog does not read {found}"
    hint = "use the software version that wrote it"


class ExportOutdated(Conflict, OffloadError):
    topic: str
    reason: str
    message = "the target has records that {topic} no longer has: {reason}"
    hint = "export to another target"


def directory_not_empty(
    path: Path, hint: str = "take a new directory, or repeat the unfinished command with the same URL"
) -> Conflict:
    return Conflict(f"{path} is not empty; nothing was changed", hint=hint)


def open_branch(name: str) -> Conflict:
    """Return the error of a change of a branch that is open for appends in this directory."""
    hint = f"`seglog reset {name}` ends that, and keeps the offloaded records"
    return Conflict(f"{name} is open for appends in this directory", hint=hint)


class LocalChangesLost(Conflict, OffloadError):
    """This directory has so many `records`, `deletes` and `truncations` that are in no commit of the volume."""

    def __init__(self, name: str, records: int, deletes: int, truncations: int = 0) -> None:
        changes = f"{_counted(records, 'record')} and {_counted(deletes, 'delete')}"
        cuts = f", and {_counted(truncations, 'truncation')}," if truncations else ""
        self._tell(
            f"{name} has {changes}{cuts} that the remote lacks; nothing was changed",
            hint=f"`seglog reset {name} --as NAME` saves them as a branch, `--discard` drops them",
        )
        self.name = name
        self.records = records
        self.deletes = deletes
        self.truncations = truncations


class RecordsAfterFork(Conflict, OffloadError):
    """Main has `records` above `shared_seq`, which the branch that should become main does not have."""

    def __init__(self, topic: str, branch: str, records: int, shared_seq: int) -> None:
        noun = "record" if records == 1 else "records"
        self._tell(
            f"{topic} has {records:,} {noun} above seq {shared_seq} that {branch} does not have; nothing was changed",
            hint="`--carry` appends them to the branch first, `--leave` leaves them in the former main",
        )
        self.topic = topic
        self.branch = branch
        self.records = records
        self.shared_seq = shared_seq


class OtherRemote(Conflict, OffloadError):
    """This remote has no volume, or another one, under a name whose history is elsewhere."""

    def __init__(self, name: str, url: str, vid: str, message: str | None = None, hint: str | None = None) -> None:
        self._tell(
            message or f"{url} does not hold the history of {name} (volume {vid}); nothing was sent",
            hint=hint or "correct the remote URL or the endpoint, or copy the whole prefix there first",
        )
        self.name = name
        self.url = url
        self.vid = vid


class NameDeleted(OtherRemote):
    """The remote has the volume of a branch, and no name for it: the branch was deleted or renamed there."""

    def __init__(self, name: str, url: str, vid: str, *, is_writer: bool) -> None:
        topic, _, branch = name.partition("@")
        leave = "" if is_writer else f", and `seglog topic delete {name} --yes` follows it no more"
        super().__init__(
            name,
            url,
            vid,
            f"{name} (volume {vid}) was deleted or renamed in {url}; nothing was sent",
            f"`seglog branch list {topic}` shows the other names, `seglog branch undelete {topic} {branch}` brings it "
            f"back{leave}",
        )


class RemoteBehind(Conflict, OffloadError):
    """The remote lacks the commit `lsn`, which this directory knows and which GC has not deleted."""

    name: str
    url: str
    vid: str
    lsn: int
    message = "{url} lacks commit lsn {lsn} of {name} (volume {vid}), which this directory knows; no commit was made"
    hint = (
        "objects were deleted there, or an older copy was restored. Restore the newest copy of the prefix, then run "
        "`seglog verify --remote`. Records without another copy stay on this disk"
    )


class NotOffloaded(Conflict, OffloadError):
    """The target means a state that no commit has yet. Reading never offloads."""

    name: str
    target: str
    message = "{target} of {name} is not in the remote yet"
    hint = "run `seglog seal {name}`, then `seglog offload {name}`"


class TopicAttached(Conflict, OffloadError):
    name: str
    message = "{name} has a history in the remote; nothing was deleted"
    hint = (
        "`seglog topic delete {name} --detach --yes` offloads all its records, then deletes the topic in this "
        "directory only"
    )


class ChecksFailed(OffloadError):
    def __init__(
        self, count: int, url: str, hint: str = "see docs/stores.md for what a store needs, and what follows without it"
    ) -> None:
        checks = "1 check" if count == 1 else f"{count} checks"
        self._tell(f"{checks} failed at {url}", hint=hint)
        self.count = count


def no_such_file(path: Path) -> Missing:
    """Return the error of a command that names a file that does not exist, or a directory where it needs a file."""
    reason = "is a directory, not a file" if path.is_dir() else "does not exist"
    return Missing(f"{path} {reason}", hint="name a file that exists")


class Busy(Unavailable, OffloadError):
    """The daemon has too many requests, by its `setting`. The caller should ask again after `retry_after_s`."""

    retry_after_s: int
    setting: str
    message = "the daemon has reached its limit {setting}"
    hint = "try again in {retry_after_s} s"


class Stopping(Unavailable, OffloadError):
    message = "the daemon is stopping; its next start continues unfinished work"


class NotConfirmed(OffloadError):
    """The operator answered no to the question of a command that takes something away."""

    topic: str
    message = "not confirmed: nothing of {topic} was changed"


class Refused(Misuse, OffloadError):
    """The daemon refused a request unread. `status` is the HTTP status, and `reason` a word for the metrics."""

    def __init__(self, status: int, reason: str, message: str, *, hint: str | None = None) -> None:
        self._tell(message, hint=hint)
        self.status = status
        self.reason = reason


class NotAllowed(Refused):
    """The token `token` lacks a role for `place`, for example `topic orders`. The topic may exist or not."""

    def __init__(self, token: str, role: str, place: str = "") -> None:
        where = f" on {place}" if place else ""
        hint = "ask the operator of the daemon for a token with this role"
        super().__init__(403, "role", f"the token {token} lacks the role {role}{where}", hint=hint)
        self.token = token
        self.role = role
        self.place = place


def too_many_records(most: int) -> Refused:
    """Return the error of a body that is taken as a whole, or is encoded, with more than `most` records."""
    text = f"a body that is taken as a whole, or is encoded, has at most {most:,} records"
    return Refused(413, "too_large", text, hint="send fewer at once, or raise serve.max_body_bytes")


class BodyBroken(Misuse, OffloadError):
    """The request ended before its body did. `size_bytes` of the body came."""

    size_bytes: int
    message = "the body broke off after {size_bytes} bytes"
    hint = "send the body again, as a whole"


class InvalidOption(Misuse, OffloadError):
    """An option has an invalid value, is missing, or is unknown."""

    option: str
    reason: str
    hint: str | None = None
    message = "option {option}: {reason}"

    @classmethod
    def unknown(cls, option: str, known: Iterable[str], only_for: str | None = None) -> Self:
        """Return the error of an option that the call does not have. `only_for` names another call that has it."""
        names = ", ".join(sorted(known))
        reason = "is unknown" if only_for is None else f"is only for {only_for}"
        reason += f"; {f'the options are {names}' if names else 'there are none'}"
        return cls.told(f"option {option} {reason}", None, {"option": option, "reason": reason})


class InvalidInput(Misuse, OffloadError):
    """A line of an input cannot become a record. Lines count from 1. In another form, `noun` is the unit."""

    def __init__(
        self,
        line: int,
        reason: str,
        *,
        noun: str = "line",
        hint: str = 'a line looks like {"value": "text", "tag": "optional"}',
    ) -> None:
        self._tell(f"{noun} {line} {reason}", hint=hint)
        self.line = line


class NeverWritten(Misuse, OffloadError):
    topic: str
    message = "topic {topic} is ephemeral: its records are never written, so there is nothing to offload"
    hint = "`seglog topic set {topic} --durability memory`, or disk, or fsync, for later records"


class NoRemote(Misuse, OffloadError):
    path: Path
    message = "{path} has no remote"
    hint = "set url in the [remote] section of {path}/seglog.toml, or give --remote URL"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
