"""`seglog verify`."""

from __future__ import annotations

import typer

from offload.cli.session import emit, format_bytes, say, session_of
from seglog import Checked, Report

__all__ = ["verify"]

_EXIT_CORRUPT = 5


def verify(context: typer.Context) -> None:
    """Check every byte of the data directory, and change nothing: snapshots, WAL, segments and that they agree.

    Segments in `cold_dir` are checked too.

    Damage is told with file and offset, and ends with exit code 5. The log must not be open meanwhile. The remote is
    not asked.
    """
    import seglog

    session = session_of(context)
    report = seglog.verify(session.directory, settings=session.log_settings())
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


def _summary(report: Report) -> list[str]:
    """One line each for the snapshots, the WAL and every topic."""
    groups: dict[str, list[Checked]] = {}
    for file in report.checked:
        name = {"snapshot": "snapshots", "wal": "WAL"}.get(file.kind) or f"topic {file.topic or file.path.parent.name}"
        groups.setdefault(name, []).append(file)
    return [f"{name}: {_counts(files)}" for name, files in groups.items()]


def _counts(files: list[Checked]) -> str:
    items, size = sum(file.items for file in files), format_bytes(sum(file.bytes for file in files))
    noun = {"snapshot": "snapshots", "wal": "frames", "segment": "records"}[files[0].kind]
    return f"{items:,} {noun} in {len(files):,} {'file' if len(files) == 1 else 'files'}, {size}"
