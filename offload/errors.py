"""The errors between the log and its archive, grouped by how a handler reacts.

    SeglogError
    ├── OffloadError         the root of those below and of no others: each has it and its group as bases
    │   ├── ChecksFailed         the remote breaks promises that seglog needs  exit 1
    │   ├── NotConfirmed         the operator did not say yes                  exit 1
    │   ├── PartlyAppended       a part of the input is in                     the exit code of the error that ended it
    │   ├── PartlyExported       a part of the files is whole                  the exit code of the error that ended it
    │   └── ProbeFailed          the command of a bisect gave no verdict       exit 1
    ├── Corrupt              stop, and verify                              exit 5
    │   ├── ObjectDamaged        parent of the next three: key, offset, reason
    │   │   ├── InvalidBlock         a block header of a data object
    │   │   ├── InvalidChunk         a chunk of a data object, or a record in it
    │   │   └── InvalidIndex         an index object
    │   ├── FrameMismatch        a frame handed over for offload is not the next one
    │   ├── HistoryBehind        records left this disk, and the catalog here does not know where they are
    │   ├── DamageFound          a check found damage
    │   ├── ExportDamaged        a file of an export differs from its manifest
    │   ├── VolumesBlocked       GC left volumes alone because of damage
    │   └── FormatUnsupported    written by another format version         exit 1
    ├── Conflict             the present state is in the way              exit 4
    │   ├── AlreadyInitialised
    │   ├── CarriedOtherwise     a branch has other records than an earlier promotion carried there
    │   ├── DataLoss             records of a range that Spark reads are gone
    │   ├── ExportOutdated       an export has records that the topic no longer has
    │   ├── ExportRunning        another run writes the same export
    │   ├── OpenBranch           the branch is open for appends in this directory
    │   ├── OtherExport          the directory has an export of another state, or in another form
    │   ├── DirectoryNotEmpty    the directory to recover into holds something else
    │   ├── LiveWriter           a job of Spark leaves a volume alone that a log writes
    │   ├── LoadConflict         another writer committed during a load
    │   ├── LoadTooLate          GC may have planned to delete the objects of a load
    │   ├── LocalChangesLost     a reset would drop what only this directory has
    │   ├── NotOffloaded         the remote has no such state yet
    │   ├── OtherRemote          the remote is not the one that has the history
    │   │   ├── NameDeleted          the branch has no name there any more
    │   │   └── NameMoved            the name leads to another volume there
    │   ├── RecordsAfterFork     main has records that the branch to promote lacks
    │   ├── RemoteBehind         the remote lacks a commit that this directory knows
    │   ├── RowsChanged          a task of a load got other rows than the driver had counted
    │   ├── TenantWritten        a writer of a tenant was at work during the tenant's deletion
    │   ├── TopicAttached        deleting it would leave its history in the remote
    │   ├── TopicFollowed        this directory follows the topic, and does not write it
    │   ├── TopicReserved        the topic holds the streams, and only the daemon writes it
    │   └── WrittenByLog         a load may not write where a log writes
    ├── Missing              the caller named what does not exist          exit 3
    │   ├── NoSuchCommand        the daemon has no such command
    │   ├── NoSuchFile
    │   ├── NoSuchTenant         the daemon has no such tenant, or hides it from the token
    │   └── RemoteEmpty          the remote has no topic
    ├── Unavailable          nothing was changed; try again                exit 1
    │   ├── Busy                 the daemon has as many requests as it takes
    │   │   └── OverRate             a tenant sent more than its quota allows
    │   ├── JavaNotStarted       PySpark found no Java, or Java ended at once
    │   ├── OverQuota            a tenant has as many hot bytes as its quota allows
    │   ├── Stopping             the daemon is being stopped
    │   ├── TenantClosed         the daemon did not open the tenant's directory
    │   ├── WorkerDied           the process that uploads ended before the upload was done
    │   └── WorkerFailed         the process that uploads raised an error that cannot be raised here
    └── Misuse               fix the call                                  exit 2
        ├── BodyBroken           the body of a request broke off
        ├── EntryTooLarge
        ├── InvalidAddress       the daemon cannot, or must not, listen on this address
        ├── InvalidInput         a line of an input file
        ├── InvalidMessage       what a Spark driver and its planner say to each other
        ├── InvalidOffset        the checkpoint of a stream has no offset of this source
        ├── InvalidBody
        ├── InvalidEncoding      a body is not of its Content-Encoding
        ├── InvalidOption
        ├── InvalidParameters    parameters of a command that do not go together, or a text that is no value
        ├── InvalidRow           a row that a load cannot write
        ├── InvalidTokens        a line of the token file is wrong
        ├── LocalCommand         a command that no daemon runs, and a daemon of another machine
        ├── NeverWritten         an ephemeral topic has nothing to offload
        ├── NoDaemon             no daemon serves this directory
        ├── NoRemote
        ├── NotTheTenant         the remote is not that of the tenant
        ├── OtherTenant          a directory belongs to another tenant than its name says
        ├── Refused              the daemon's rules forbid it: host, origin, token, size, pace
        │   ├── NotAllowed           the token lacks the role for it
        │   └── TooManyRecords       in a body that is taken as a whole, or is encoded
        ├── SharedRemote         a tenant's remote is another one's, or lies in it
        ├── UnsafeDirectory      others could exchange the data of tenants
        ├── UnknownObject        no file or object that `inspect` knows
        └── UnsupportedOption

The message says what happened. `hint`, if it is set, says what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from seglog.base.errors import Conflict, Corrupt, Missing, Misuse, SeglogError, Unavailable

__all__ = [
    "AlreadyInitialised",
    "BodyBroken",
    "Busy",
    "CarriedOtherwise",
    "ChecksFailed",
    "Conflict",
    "Corrupt",
    "DamageFound",
    "DataLoss",
    "DirectoryNotEmpty",
    "EntryTooLarge",
    "ExportDamaged",
    "ExportOutdated",
    "ExportRunning",
    "FormatUnsupported",
    "FrameMismatch",
    "HistoryBehind",
    "InvalidAddress",
    "InvalidBlock",
    "InvalidBody",
    "InvalidChunk",
    "InvalidEncoding",
    "InvalidIndex",
    "InvalidInput",
    "InvalidMessage",
    "InvalidOffset",
    "InvalidOption",
    "InvalidParameters",
    "InvalidRow",
    "InvalidTokens",
    "JavaNotStarted",
    "LiveWriter",
    "LoadConflict",
    "LoadTooLate",
    "LocalChangesLost",
    "LocalCommand",
    "Missing",
    "Misuse",
    "NameDeleted",
    "NameMoved",
    "NeverWritten",
    "NoDaemon",
    "NoRemote",
    "NoSuchCommand",
    "NoSuchFile",
    "NoSuchTenant",
    "NotAllowed",
    "NotConfirmed",
    "NotOffloaded",
    "NotTheTenant",
    "ObjectDamaged",
    "OffloadError",
    "OpenBranch",
    "OtherExport",
    "OtherRemote",
    "OtherTenant",
    "OverQuota",
    "OverRate",
    "PartlyAppended",
    "PartlyExported",
    "ProbeFailed",
    "RecordsAfterFork",
    "Refused",
    "RemoteBehind",
    "RemoteEmpty",
    "RowsChanged",
    "SeglogError",
    "SharedRemote",
    "Stopping",
    "TenantClosed",
    "TenantWritten",
    "TooManyRecords",
    "TopicAttached",
    "TopicFollowed",
    "TopicReserved",
    "Unavailable",
    "UnknownObject",
    "UnsafeDirectory",
    "UnsupportedOption",
    "VolumesBlocked",
    "WorkerDied",
    "WorkerFailed",
    "WrittenByLog",
]


class OffloadError(SeglogError):
    """The root of those of this package. Each belongs to a group of `seglog.base.errors`, too."""


class ObjectDamaged(Corrupt, OffloadError):
    """An object in the store differs from the object that was written. `offset` is in bytes from the object's start."""

    key: str
    offset: int
    reason: str
    message = "{key} is damaged at offset {offset}: {reason}"
    hint = "nothing was changed: keep the object, and compare it with a backup or replica"


class InvalidBlock(ObjectDamaged):
    """A block header of a data object is damaged, or bytes between its entries are."""


class InvalidChunk(ObjectDamaged):
    """A chunk of a data object is damaged, or a record in the chunk is. The offset is the chunk's."""


class InvalidIndex(ObjectDamaged):
    """An index object is damaged: its head, its segment metadata or its trailer."""


class FrameMismatch(Corrupt, OffloadError):
    """A frame handed over for offload is not the next one. The encoder writes nothing for it."""

    seq: int
    reason: str
    message = "the frame for seq {seq} cannot be offloaded: {reason}"


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


class DamageFound(Corrupt, OffloadError):
    def __init__(self, count: int, place: str, hint: str) -> None:
        damages = "1 damage" if count == 1 else f"{count} damages"
        self._tell(f"{damages} in {place}", hint=hint)
        self.count = count


class ExportDamaged(Corrupt, OffloadError):
    path: Path
    reason: str
    message = "{path} {reason}"
    hint = "export to another directory"


class VolumesBlocked(Corrupt, OffloadError):
    def __init__(self, count: int) -> None:
        told = "1 volume was" if count == 1 else f"{count} volumes were"
        self._tell(
            f"{told} left alone, as what cannot be read may hold it", hint="`seglog verify --remote` tells the damage"
        )
        self.count = count


class FormatUnsupported(Corrupt, OffloadError):
    """The object is whole, but this software does not read its format or version."""

    exit_code = 1

    key: str
    found: str
    message = "{key}: this seglog does not read {found}"
    hint = "use the software version that wrote it"


class AlreadyInitialised(Conflict, OffloadError):
    path: Path
    message = "{path} is a seglog data directory already; nothing was changed"
    hint = "edit its seglog.toml to change settings"


class DataLoss(Conflict, OffloadError):
    """Records of the range that Spark reads are gone. `lost` has each topic with its first and last lost seq.

    `fate` tells what happened to them.
    """

    def __init__(
        self, lost: Sequence[tuple[str, int, int]], fate: str = "were evicted", *, hint: str | None = None
    ) -> None:
        ranges = ", ".join(f"{first} to {last} of {topic}" for topic, first, last in lost)
        kept = f", or startingSeq={lost[0][2] + 1}" if len(lost) == 1 else ""
        self._tell(
            f"records {ranges} {fate}",
            hint=hint or f"startingSeq=earliest{kept} begins behind them, failOnDataLoss=false leaves them out",
        )
        self.lost = tuple(lost)


class ExportOutdated(Conflict, OffloadError):
    topic: str
    reason: str
    message = "the target has records that {topic} no longer has: {reason}"
    hint = "export to another target"


class ExportRunning(Conflict, OffloadError):
    path: Path
    message = "another run exports to {path}"
    hint = "wait until it has ended, then repeat the command"


class OtherExport(Conflict, OffloadError):
    """The directory has an export of `found`, and the command asks for `wanted`."""

    found: str
    wanted: str
    message = "the directory has an export of {found}, and this command asks for {wanted}; nothing was changed"
    hint = "name another directory, or repeat the former command to continue"


class LiveWriter(Conflict, OffloadError):
    """A log has committed to the volume not long ago, so it is probably about to commit again."""

    name: str
    writer_id: str
    lsn: int
    message = "{name} is written by the log of {writer_id} (newest commit: lsn {lsn}); nothing was changed"
    hint = "run `seglog compact {name}` in that log's directory, or repeat the job when the log is idle"


class DirectoryNotEmpty(Conflict, OffloadError):
    def __init__(self, path: Path, *, hint: str | None = None) -> None:
        self._tell(
            f"{path} is not empty; nothing was changed",
            hint=hint or "take a new directory, or repeat the unfinished command with the same URL",
        )
        self.path = path


class LoadConflict(Conflict, OffloadError):
    """Another writer committed at `lsn` during a load. The seqs of the load's records may be taken."""

    def __init__(self, name: str, lsn: int, writer_id: str) -> None:
        self._tell(
            f"{writer_id or 'another writer'} committed to {name} at lsn {lsn} during this load; "
            "nothing of this load is visible",
            hint="run the job again, when the other writer has ended",
        )
        self.name = name
        self.lsn = lsn
        self.writer_id = writer_id


class LoadTooLate(Conflict, OffloadError):
    name: str
    message = (
        "the load into {name} took longer than GC's grace, so GC may have planned to delete its objects; nothing of "
        "this load is visible"
    )
    hint = "run the job again in smaller parts, or raise gc_grace_s in the [catalog] section of seglog.toml"


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


class CarriedOtherwise(Conflict, OffloadError):
    """An earlier promotion carried records to the branch after `seq`, and other records follow there."""

    def __init__(self, branch: str, seq: int) -> None:
        self._tell(
            f"above seq {seq}, {branch} has other records than an earlier `branch promote --carry` brought there",
            hint=f"--leave makes it main as it is; `seglog truncate {branch} --from {seq + 1}` lets --carry begin anew",
        )
        self.branch = branch
        self.seq = seq


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


class NameMoved(OtherRemote):
    """The remote has the volume, and the name leads to another one, `new_vid`: a branch became main, for example."""

    def __init__(self, name: str, url: str, vid: str, new_vid: str, *, is_writer: bool) -> None:
        then = (
            f"`seglog reset {name}` follows it there, and `--as NAME` keeps what only this directory has as a branch"
            if is_writer
            else f"`seglog sync {name}` follows it there"
        )
        super().__init__(
            name,
            url,
            vid,
            f"{name} leads to volume {new_vid} in {url} now, and this directory has volume {vid}; nothing was sent",
            then,
        )
        self.new_vid = new_vid


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


class OpenBranch(Conflict, OffloadError):
    name: str
    message = "{name} is open for appends in this directory"
    hint = "`seglog reset {name}` ends that, and keeps the offloaded records"


class TopicFollowed(Conflict, OffloadError):
    name: str
    message = "this directory follows {name}, and does not write it; nothing was changed"
    hint = (
        "`seglog takeover {name}` makes this directory its writer, as the next `seglog append {name}` does. It stops "
        "another writer"
    )


class TopicReserved(Conflict, OffloadError):
    """Only the daemon writes the topic, which holds its streams."""

    topic: str
    message = "topic {topic} holds the streams of the daemon, and only the daemon writes it"
    hint = "make, write and delete streams with /streams/PATH"


class RowsChanged(Conflict, OffloadError):
    """A partition has other rows in a task than the driver had counted, so its seqs would be wrong."""

    partition: int
    rows: int
    counted: int
    message = "partition {partition} has {rows} rows now, and had {counted} when they were counted; nothing was written"
    hint = "the input is not the same each time that Spark computes it: write it to a table first, or cache it"


class TopicAttached(Conflict, OffloadError):
    name: str
    message = "{name} has a history in the remote; nothing was deleted"
    hint = (
        "`seglog topic delete {name} --detach --yes` offloads all its records, then deletes the topic in this "
        "directory only"
    )


class WrittenByLog(Conflict, OffloadError):
    """A load named a branch that a log writes. Its commit would fence that log."""

    def __init__(self, name: str, writer_id: str, lsn: int) -> None:
        topic = name.partition("@")[0]
        self._tell(
            f"{name} is written by the log of {writer_id} (newest commit: lsn {lsn}); nothing was written",
            hint=f"write to a branch of {topic} of its own, with the option branch; or stop that log, and give the "
            "option takeOver=true: the log then follows the branch, and can take it over again",
        )
        self.name = name
        self.writer_id = writer_id
        self.lsn = lsn


class ChecksFailed(OffloadError):
    def __init__(
        self, count: int, url: str, hint: str = "see docs/stores.md for what a store needs, and what follows without it"
    ) -> None:
        checks = "1 check" if count == 1 else f"{count} checks"
        self._tell(f"{checks} failed at {url}", hint=hint)
        self.count = count


class ProbeFailed(OffloadError):
    def __init__(self, command: str, code: int, state: str) -> None:
        ended = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        self._tell(f"{command} {ended} at {state}", hint="0 says good, 1 to 127 bad, and 125 that it cannot tell")
        self.code = code
        self.state = state


class NoSuchCommand(Missing, OffloadError):
    """The daemon has no such command. `like` are the names of commands that resemble it."""

    def __init__(self, command: str, like: Sequence[str]) -> None:
        hint = f"did you mean {' or '.join(like)}?" if like else "GET /openapi.json has the commands"
        self._tell(f"there is no command {command[:100]}", hint=hint)
        self.command = command


class NoSuchFile(Missing, OffloadError):
    """A command names a file that does not exist, or a directory where it needs a file."""

    def __init__(self, path: Path) -> None:
        reason = "is a directory, not a file" if path.is_dir() else "does not exist"
        self._tell(f"{path} {reason}", hint="name a file that exists")
        self.path = path


class NoSuchTenant(Missing, OffloadError):
    """The daemon has no such tenant, or the token is bound to another one. The message is the same."""

    message = "there is no such tenant"
    hint = "a token that is bound to a tenant asks without /tenants/NAME; another one names the tenant"


class RemoteEmpty(Missing, OffloadError):
    url: str
    message = "there is no topic at all in {url}"
    hint = "correct the URL, or begin a new remote there: `seglog init --remote URL`"


class PartlyAppended(OffloadError):
    """An error ended an append, and a part of the input is in."""

    def __init__(self, message: str, exit_code: int, *, hint: str) -> None:
        self._tell(message, hint=hint)
        self.exit_code = exit_code  # type: ignore[misc]


class PartlyExported(OffloadError):
    """An error ended an export, and so many files of it are whole."""

    def __init__(self, message: str, exit_code: int, parts: int, *, hint: str) -> None:
        whole = "1 file is whole" if parts == 1 else f"{parts} files are whole"
        self._tell(f"{message}; {whole}", hint=hint)
        self.exit_code = exit_code  # type: ignore[misc]


class Busy(Unavailable, OffloadError):
    """The daemon has too many requests, by its `setting`. The caller should ask again after `retry_after_s`."""

    retry_after_s: int
    setting: str
    message = "the daemon has reached its limit {setting}"
    hint = "try again in {retry_after_s} s"


class OverRate(Busy):
    """The tenant sent more than its quota `setting` allows. Nothing was appended."""

    def __init__(self, setting: str, retry_after_s: int) -> None:
        self.retry_after_s = max(1, retry_after_s)
        self._tell(f"the tenant is over its quota {setting}", hint=f"send it again in {self.retry_after_s} s")
        self.setting = setting


class OverQuota(Unavailable, OffloadError):
    """The hot data of the tenant has as many bytes as `tenant.quota_bytes` allows. Nothing was appended."""

    limit_bytes: int
    message = "the tenant's hot data is at its quota of {limit_bytes} bytes"
    hint = "offload and release segments, delete records, or ask the operator for a higher tenant.quota_bytes"


class JavaNotStarted(Unavailable, OffloadError):
    """PySpark found no Java, or Java ended at once. Its own message is on standard error."""

    message = "Spark's Java did not start, or ended at once; its own message is above"
    hint = "if there is no Java, install Java 17 or newer, or let JAVA_HOME name one"


class Stopping(Unavailable, OffloadError):
    message = "the daemon is stopping; its next start continues unfinished work"


class TenantClosed(Unavailable, OffloadError):
    """The daemon did not open the tenant's directory, or not yet. Its log has the reason."""

    message = "the tenant is not open"
    hint = "the daemon's log has the reason; SIGHUP tries again"


class WorkerDied(Unavailable, OffloadError):
    """The process ended. `code` is its exit code, or minus the signal that killed it; None if there was no process."""

    def __init__(self, code: int | None) -> None:
        how = "does not run" if code is None else f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
        self._tell(f"the upload process {how}; the next try starts the upload again")
        self.code = code


class WorkerFailed(Unavailable, OffloadError):
    trace: str
    message = "the upload process failed: {trace}"


class NotTheTenant(Misuse, OffloadError):
    """The remote is not that of the tenant that the caller names."""

    tenant: str
    url: str
    message = "{url} is not the remote of the tenant {tenant}: its last segment is another"
    hint = "give --remote s3://bucket/prefix/{tenant}"


class TenantWritten(Conflict, OffloadError):
    """A LIST after the deletion of a tenant shows objects or uploads: a writer is still at work."""

    def __init__(self, url: str, objects: int, uploads: int) -> None:
        found = f"{objects:,} objects and {uploads:,} uploads"
        hint = "take the credentials of the tenant's writers away, then repeat the command"
        self._tell(f"after the deletion a LIST of {url} shows {found}", hint=hint)
        self.objects = objects
        self.uploads = uploads


class NotConfirmed(OffloadError):
    """The operator answered no to the question of a command that takes something away."""

    topic: str
    message = "not confirmed: nothing of {topic} was changed"


class InvalidAddress(Misuse, OffloadError):
    address: str
    reason: str
    hint: str | None = None
    message = "cannot listen on {address}: {reason}"


class LocalCommand(Misuse, OffloadError):
    """The command works on files of this machine, and `--daemon` names a daemon."""

    command: str
    message = "{command} works on files of this machine, so no daemon runs it"
    hint = "leave out --daemon and SEGLOG_DAEMON, or run it on the daemon's machine"


class NoDaemon(Misuse, OffloadError):
    path: Path
    message = "no daemon serves {path}"
    hint = "start one: seglog serve"


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


class TooManyRecords(Refused):
    """A body that is taken as a whole, or is encoded, has more than `most` records."""

    def __init__(self, most: int) -> None:
        told = f"a body that is taken as a whole, or is encoded, has at most {most:,} records"
        super().__init__(413, "too_large", told, hint="send fewer at once, or raise serve.max_body_bytes")
        self.most = most


class InvalidTokens(Misuse, OffloadError):
    """The line `line` of the token file `path` is wrong, or the file cannot be read."""

    path: str
    line: int
    reason: str
    message = "{path}, line {line}: {reason}"
    hint = "`seglog token new NAME --role ROLE --topics GLOBS` prints a line for the token file"


class OtherTenant(Misuse, OffloadError):
    def __init__(self, directory: Path, name: str, *, hint: str = "") -> None:
        self._tell(
            f"{directory} belongs to the tenant {name}",
            hint=hint or "a directory below the root of `seglog serve --tenants` has the name of its tenant",
        )
        self.directory = directory
        self.name = name


class SharedRemote(Misuse, OffloadError):
    """The message does not name the other tenant: the log line of this one has it."""

    url: str
    tenant: str
    message = "the remote of {tenant} is not apart from another tenant's: {url}"
    hint = "give each tenant a prefix of its own, and an IAM policy on it"


class UnsafeDirectory(Misuse, OffloadError):
    path: Path
    reason: str
    hint: str
    message = "{path} {reason}"


class EntryTooLarge(Misuse, OffloadError):
    """The entry does not fit an empty block. Sizes in bytes."""

    size_bytes: int
    limit_bytes: int
    message = "an entry of {size_bytes} bytes does not fit into a block, which holds at most {limit_bytes}"
    hint = "raise block_size in the [offload] section of seglog.toml"


class InvalidOffset(Misuse, OffloadError):
    """The offset of a stream is not one of this source."""

    text: str
    reason: str
    message = "{text!r} is no offset of a stream: {reason}"
    hint = "give each query a checkpointLocation of its own"


class InvalidBody(Misuse, OffloadError):
    """The body of a request is no JSON object."""

    reason: str
    hint: str
    message = "the body is not a JSON object: {reason}"


class BodyBroken(Misuse, OffloadError):
    """The request ended before its body did. `size_bytes` of the body came."""

    size_bytes: int
    message = "the body broke off after {size_bytes} bytes"
    hint = "send the body again, as a whole"


class InvalidEncoding(Misuse, OffloadError):
    """A body is not of its Content-Encoding, is cut off, or has other bytes behind its end."""

    encoding: str
    reason: str
    message = "the body is not valid {encoding}: {reason}"
    hint = "send the whole output of the encoder, with a window of at most 8 MiB, and nothing else"


class InvalidOption(Misuse, OffloadError):
    """A known option has an invalid value, or is missing."""

    option: str
    reason: str
    hint: str | None = None
    message = "option {option}: {reason}"


class InvalidParameters(Misuse, OffloadError):
    """A command refuses its parameters before it does anything."""


class InvalidRow(Misuse, OffloadError):
    """A row of a load cannot become the record `seq`."""

    seq: int
    column: str
    reason: str
    hint: str | None = None
    message = "the row of record {seq}: {column} {reason}; nothing was written"


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


class InvalidMessage(Misuse, OffloadError):
    """A message between a Spark driver and its planner process is not one of this version's."""

    reason: str
    hint: str | None = None
    message = "a message of the planner: {reason}"


class NeverWritten(Misuse, OffloadError):
    topic: str
    message = "topic {topic} is ephemeral: its records are never written, so there is nothing to offload"
    hint = "`seglog topic set {topic} --durability memory`, or disk, or fsync, for later records"


class NoRemote(Misuse, OffloadError):
    path: Path
    message = "{path} has no remote"
    hint = "set url in the [remote] section of {path}/seglog.toml, or give --remote URL"


class UnknownObject(Misuse, OffloadError):
    place: str
    message = "{place} is not a file or object of seglog"
    hint = "name a file below topics/ or wal/, or an object: s3://bucket/key, file:///path/to/object"


class UnsupportedOption(Misuse, OffloadError):
    """The call has no such option. `only_for` names another call that has it."""

    def __init__(self, option: str, known: Iterable[str], only_for: str | None = None) -> None:
        reason = "is unknown" if only_for is None else f"is only for {only_for}"
        names = ", ".join(sorted(known))
        self._tell(f"option {option} {reason}; {f'the options are {names}' if names else 'there are none'}")
        self.option = option


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
