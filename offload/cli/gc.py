"""The command `seglog gc`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from offload.cli.session import Session, counted, emit, format_bytes, format_time, say, session_of
from offload.cli.units import parse_duration_ms

if TYPE_CHECKING:
    from catalog.gc.report import GcReport, KeptVolume

__all__ = ["gc"]

_EXIT_CORRUPT = 5


def gc(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would be planned, and change nothing.")] = False,
    retain: Annotated[
        str | None, typer.Option(help="Keep this much of every topic's past, whatever its own window is: 7d, 12h, 0.")
    ] = None,
    grace: Annotated[
        str | None, typer.Option(help="Carry out plans that are so old, instead of gc_grace_s: 24h; 0 for all.")
    ] = None,
) -> None:
    """Collect what nothing needs any more from the remote: two runs, a grace apart.

    A run takes away what an earlier one planned, if nothing needs it still, and plans what nothing needs now. Kept is
    what branches, tags, pins and the window of each topic reach; the report says which. Damage ends with exit code 5,
    and stops only what it may hold.

    A run that finds this machine's clock more than a minute off the store's changes nothing, and ends with exit code 1.
    """
    retain_s, grace_s = _seconds("--retain", retain), _seconds("--grace", grace)
    session = session_of(context)
    with session.archive(read_only=dry_run) as (_, archive):
        report = archive.collect(dry_run=dry_run, retain_s=retain_s, grace_s=grace_s)
    for kept in report.kept:
        emit(session, _kept_fields(kept), _kept_line(kept))
    _tell(session, report, dry_run=dry_run)
    if report.blocked:
        count = "1 volume was" if len(report.blocked) == 1 else f"{len(report.blocked)} volumes were"
        say(
            f"seglog: {count} left alone, as what cannot be read may hold it. `seglog verify --remote` tells the damage"
        )
        raise typer.Exit(_EXIT_CORRUPT)


def _seconds(option: str, text: str | None) -> int | None:
    if text is None or text == "0":
        return None if text is None else 0
    ms = parse_duration_ms(text)
    if ms is None:
        raise typer.BadParameter(f"{option} takes a duration such as 12h or 7d, or 0")
    return ms // 1000


def _kept_fields(kept: KeptVolume) -> dict[str, Any]:
    return {
        "kept": str(kept.vid),
        "topic": kept.topic,
        "branch": kept.branch,
        "first_lsn": kept.first_lsn,
        "newest_lsn": kept.newest_lsn,
        "holders": [str(holder) for holder in kept.holders],
        "points": [{"lsn": lsn, "holders": [str(holder) for holder in holders]} for lsn, holders in kept.points],
    }


def _kept_line(kept: KeptVolume) -> str:
    what = [f"lsn {lsn} by {', '.join(map(str, holders))}" for lsn, holders in kept.points]
    if kept.first_lsn is not None:
        has_any = kept.newest_lsn is not None and kept.newest_lsn >= kept.first_lsn
        own = f"lsn {kept.first_lsn} to {kept.newest_lsn}" if has_any else "what it was forked from"
        what.append(f"{own} by {', '.join(map(str, kept.holders))}")
    return f"kept     {kept.topic}@{kept.branch}: {'; '.join(what)}"


def _tell(session: Session, report: GcReport, *, dry_run: bool) -> None:
    deleted, planned = _counts(report.deleted), _counts(report.planned)
    value = {"deleted": dict(report.deleted), "deleted_bytes": report.deleted_bytes}
    emit(session, value, f"deleted  {deleted}, {format_bytes(report.deleted_bytes)} of segments")
    value = {"planned": dict(report.planned), "planned_bytes": report.planned_bytes, "dry_run": dry_run}
    verb = "garbage " if dry_run else "planned "
    emit(session, value, f"{verb} {planned}, {format_bytes(report.planned_bytes)} of segments")
    for each in report.waiting:
        value = {"waiting": each.objects, "due": format_time(each.due_ms)}
        emit(session, value, f"waiting  {counted(each.objects, 'object')} until {format_time(each.due_ms)}")
    if report.young_segments:
        young = counted(report.young_segments, "segment")
        emit(session, {"young_segments": report.young_segments}, f"waiting  {young} that may still be published")
    if not report.is_clock_checked:
        text = "clock    the store tells no time: this machine's clock decided alone"
        emit(session, {"clock_checked": False}, text)
    for key in report.unknown_keys:
        emit(session, {"unknown": key}, f"unknown  {key} is none of seglog's, and stays")
    for what in report.refused:
        emit(session, {"refused": what}, f"refused  {what}: what it names was gone already")
    for place in report.damaged_plans:
        emit(session, {"damaged_plan": place}, f"DAMAGED  {place}: the plan is given up, and made anew")
    for vid, reason in report.blocked.items():
        emit(session, {"blocked": str(vid), "reason": reason}, f"BLOCKED  {vid}: {reason}")


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count) or "nothing"
