"""The command `seglog verify`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from offload.cli.execution import with_bars
from offload.cli.session import Session
from offload.errors import Misuse
from offload.operations.command import About, Command
from offload.operations.printing import counted, format_bytes
from seglog.base.lazy import LazyModule

if TYPE_CHECKING:
    import offload.operations.verify as use
    from offload.operations.verify import DamagedFile, FileChecked, Note, ObjectLooked, ObjectsLooked, RemoteChecked
else:
    use = LazyModule("offload.operations.verify")


def verify(
    session: Session,
    remote: Annotated[bool, About("Check the remote instead. Others may use it meanwhile.")] = False,
    deep: Annotated[bool, About("With --remote: read every byte.")] = False,
    subset: Annotated[
        str | None, About("Look at each object in the remote, and read this share of them: 5%.", "--read-data-subset")
    ] = None,
    state: Annotated[Path | None, About("With --read-data-subset: a file that makes the check resumable.")] = None,
) -> None:
    """Check every byte of the data directory. It reads manifests, WAL and segments, sees whether they agree, and
    changes nothing.

    The command checks segments in `cold_dir` too. The log must not be open meanwhile. The command does not ask the
    remote.

    With --remote, check every branch, tag and lease, their commits, and that each segment is there, with its length.
    With --deep, check every byte of the segments too. Others may use the remote meanwhile, and the command needs no
    data directory. With one, it also finds newest commits that the directory knows and the remote has lost. Without
    one, a branch that has lost its newest commits looks like a shorter one.

    With --read-data-subset, look at each object of the remote's segments: it is found, lost, corrupt, orphan (no commit
    names it) or uploading. Read the given share of the segments. With --state FILE, an interrupted check continues, and
    the next one reads the next share: 20 runs of 5% read everything. Plain text leaves found objects out.

    If there is damage, the command names file and offset, or the key, and ends with exit code 5.
    """
    if deep and not remote:
        raise Misuse("--deep goes with --remote: of a data directory every byte is read anyway")
    if state is not None and subset is None:
        raise Misuse("--state goes with --read-data-subset")
    if subset is not None and deep:
        raise Misuse("--deep reads everything: it does not go with --read-data-subset")
    if subset is not None:
        _show_part(session, subset, state)
    elif remote:
        _show_remote(session, deep=deep)
    else:
        _show_directory(session)
    session.output.remark("sound")


def _show_directory(session: Session) -> None:
    settings = session.settings().log
    results = with_bars(lambda tell: use.verify(session.directory, settings, tell), is_shown=session.shows_progress)
    for is_file, group in groupby(results, lambda result: isinstance(result, use.FileChecked)):
        if is_file and not session.as_json:
            session.output.remark("\n".join(_summary(cast("Iterable[FileChecked]", group))))
            continue
        for result in group:  # not a list of them: the error after the damages would come first
            session.output.show(result, _line(result))


def _show_remote(session: Session, *, deep: bool) -> None:
    from seglog import SystemClock

    with session.remote_store() as store:
        now_ms = SystemClock().now_ms()
        results = with_bars(
            lambda tell: use.verify_remote(store, now_ms, tell, deep=deep, directory=_knowing(session)),
            is_shown=session.shows_progress,
        )
        for result in results:
            if isinstance(result, use.RemoteChecked):
                session.output.show(result, _counted(result, deep=deep))
            elif isinstance(result, use.Note):
                session.output.show(result, _line(result))
            else:
                session.output.show(result, f"DAMAGED {result.damaged}: {result.reason}")


def _show_part(session: Session, subset: str, state: Path | None) -> None:
    from seglog import SystemClock

    share = use.parse_share(subset)
    with session.remote_store() as store:
        now_ms = SystemClock().now_ms()
        results = with_bars(
            lambda tell: use.verify_part(store, now_ms, tell, share=share, state=state, directory=_knowing(session)),
            is_shown=session.shows_progress,
        )
        for result in results:
            session.output.show(result, _part_text(result))


def _knowing(session: Session) -> Path | None:
    """Return the data directory, if it knows this remote: another one that the caller chose may be an older copy."""
    url = session.settings().url
    is_its_own = session.remote is None or url is None or session.remote.rstrip("/") == url.rstrip("/")
    return session.directory if is_its_own and session.daemon_url is None else None


def _part_text(look: ObjectLooked | Note | ObjectsLooked) -> str:
    if isinstance(look, use.Note):
        return _line(look)
    if isinstance(look, use.ObjectLooked):
        return "" if look.state == "found" else f"{look.state:10} {look.object}: {look.reason}"
    states = f"{look.lost:,} lost, {look.corrupt:,} corrupt, {look.orphan:,} orphan, {look.uploading:,} uploading"
    part = f"{look.start:.1%} to {look.end:.1%}, {format_bytes(look.read_bytes)} read"
    resumed = f", {counted(look.resumed, 'segment')} read before" if look.resumed else ""
    return f"{look.found:,} of {counted(look.objects, 'object')} found; {states}; part {part}{resumed}"


def _line(result: FileChecked | Note | DamagedFile) -> str:
    match result:
        case use.Note(note):
            return f"note: {note}"
        case use.DamagedFile(path, offset, reason):
            return f"DAMAGED {path} at offset {offset}: {reason}"
        case use.FileChecked(path):
            return path


def _counted(checked: RemoteChecked, *, deep: bool) -> str:
    read = f"{format_bytes(checked.read_bytes)} read" if deep else "not read: that is --deep"
    counts = f"{counted(checked.volumes, 'volume')}, {counted(checked.commits, 'commit')}"
    segments = f"{counted(checked.segments, 'segment')}, {read}"
    return f"{counts}, {segments}; {checked.unreferenced_segments:,} that no commit names"


def _summary(files: Iterable[FileChecked]) -> list[str]:
    """Return one line for the snapshots, one for the WAL and one for each topic."""
    groups: dict[str, list[FileChecked]] = {}
    for file in files:
        name = {"snapshot": "snapshots", "wal": "WAL"}.get(file.file_kind) or f"topic {file.topic}"
        groups.setdefault(name, []).append(file)
    return [f"{name}: {_counts(group)}" for name, group in groups.items()]


def _counts(files: list[FileChecked]) -> str:
    items, size = sum(file.items for file in files), format_bytes(sum(file.bytes for file in files))
    noun = {"snapshot": "snapshot", "wal": "frame", "segment": "record"}[files[0].file_kind]
    return f"{counted(items, noun)} in {counted(len(files), 'file')}, {size}"


VERIFY = Command("verify", verify, section="repair")
