"""The command `seglog verify`."""

from __future__ import annotations

from typing import Annotated

import typer

from offload.cli.session import Session, counted, emit, format_bytes, say, session_of
from seglog import Checked, Report

__all__ = ["verify"]

_EXIT_CORRUPT = 5


def verify(
    context: typer.Context,
    remote: Annotated[bool, typer.Option("--remote", help="The remote instead, while anybody uses it.")] = False,
    deep: Annotated[bool, typer.Option("--deep", help="With --remote: read every byte.")] = False,
) -> None:
    """Check every byte of the data directory, and change nothing: manifests, WAL, segments and that they agree.

    Segments in `cold_dir` are checked too. The log must not be open meanwhile, and the remote is not asked.

    With --remote: every branch, tag and lease, the commits they stand on, and that each segment is there; with --deep
    that each byte is what it was. Others may use the remote meanwhile; a data directory is not needed.

    Damage is told with file and offset, or with its key, and ends with exit code 5.
    """
    import seglog

    session = session_of(context)
    if deep and not remote:
        raise typer.BadParameter("--deep goes with --remote: of a data directory every byte is read anyway")
    if remote:
        _verify_remote(session, deep=deep)
        return
    report = seglog.verify(session.directory, settings=session.settings().log)
    if session.as_json:
        for file in report.checked:
            emit(session, {"checked": str(file.path), "kind": file.kind, "items": file.items, "bytes": file.bytes}, "")
    else:
        emit(session, {}, "\n".join(_summary(report)))
    for note in report.notes:
        emit(session, {"note": note}, f"note: {note}")
    for damage in report.damages:
        value = {"damaged": str(damage.path), "offset": damage.offset, "reason": damage.reason}
        emit(session, value, f"DAMAGED {damage.path} at offset {damage.offset}: {damage.reason}")
    if report.damages:
        count = "1 damage" if len(report.damages) == 1 else f"{len(report.damages)} damages"
        say(f"seglog: {count} in {report.path}. Keep the files, and restore what they held from the remote or a backup")
        raise typer.Exit(_EXIT_CORRUPT)
    if not session.as_json:
        emit(session, {}, "sound")


def _verify_remote(session: Session, *, deep: bool) -> None:
    from catalog.gc.scrub import Scrub
    from seglog import SystemClock

    with session.remote_store() as store:
        report = Scrub(store, now_ms=SystemClock().now_ms()).run(deep=deep)
    value = {
        "volumes": report.volumes,
        "commits": report.commits,
        "segments": report.segments,
        "read_bytes": report.size_bytes,
        "unreferenced_segments": report.unreferenced,
    }
    read = f"{format_bytes(report.size_bytes)} read" if deep else "not read: that is --deep"
    emit(
        session,
        value,
        f"{counted(report.volumes, 'volume')}, {counted(report.commits, 'commit')}, "
        f"{counted(report.segments, 'segment')}, {read}; {report.unreferenced:,} that no commit names",
    )
    for finding in report.findings:
        damage = {"damaged": finding.place, "reason": finding.reason}
        emit(session, damage, f"DAMAGED {finding.place}: {finding.reason}")
    if report.findings:
        count = "1 damage" if len(report.findings) == 1 else f"{len(report.findings)} damages"
        say(f"seglog: {count} in {store.url}. Keep the objects, and compare with a backup or a replica")
        raise typer.Exit(_EXIT_CORRUPT)
    if not session.as_json:
        emit(session, {}, "sound")


def _summary(report: Report) -> list[str]:
    """Return one line for the snapshots, one for the WAL and one for each topic."""
    groups: dict[str, list[Checked]] = {}
    for file in report.checked:
        name = {"snapshot": "snapshots", "wal": "WAL"}.get(file.kind) or f"topic {file.topic or file.path.parent.name}"
        groups.setdefault(name, []).append(file)
    return [f"{name}: {_counts(files)}" for name, files in groups.items()]


def _counts(files: list[Checked]) -> str:
    items, size = sum(file.items for file in files), format_bytes(sum(file.bytes for file in files))
    noun = {"snapshot": "snapshots", "wal": "frames", "segment": "records"}[files[0].kind]
    return f"{items:,} {noun} in {len(files):,} {'file' if len(files) == 1 else 'files'}, {size}"
