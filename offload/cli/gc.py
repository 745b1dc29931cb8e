"""The command `seglog gc`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from offload.cli.run import describe, each, show
from offload.cli.session import counted, format_bytes
from offload.commands import gc as use
from offload.commands.gc import Deleted, Finding, GcOutcome, KeptStates, Planned, WaitingPlan, YoungSegments

__all__ = ["gc"]

_FINDINGS = {
    "clock_checked": "clock    the store tells no time: this machine's clock decided alone",
    "unknown": "unknown  {unknown} is none of seglog's, and stays",
    "refused": "refused  {refused}: what it names was gone already",
    "damaged_plan": "DAMAGED  {damaged_plan}: the plan is given up, and its objects are planned again",
    "blocked": "BLOCKED  {blocked}: {reason}",
}


@describe(use.gc)
def gc(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run")] = False,
    retain: Annotated[str | None, typer.Option()] = None,
    grace: Annotated[str | None, typer.Option()] = None,
) -> None:
    for found in each(context, use.gc, dry_run=dry_run, retain=retain, grace=grace):
        show(context, found, _kept(found) if isinstance(found, KeptStates) else _text(found))


def _kept(kept: KeptStates) -> str:
    what = [f"lsn {point.lsn} by {', '.join(point.holders)}" for point in kept.points]
    if kept.first_lsn is not None:
        has_any = kept.newest_lsn is not None and kept.newest_lsn >= kept.first_lsn
        own = f"lsn {kept.first_lsn} to {kept.newest_lsn}" if has_any else "what it was forked from"
        what.append(f"{own} by {', '.join(kept.holders)}")
    return f"kept     {kept.topic}@{kept.branch}: {'; '.join(what)}"


def _text(found: GcOutcome) -> str:
    match found:
        case Deleted(counts, size):
            return f"deleted  {_counts(counts)}, {format_bytes(size)} of segments"
        case Planned(counts, size, is_dry):
            return f"{'garbage ' if is_dry else 'planned '} {_counts(counts)}, {format_bytes(size)} of segments"
        case WaitingPlan(objects, due):
            return f"waiting  {counted(objects, 'object')} until {due}"
        case YoungSegments(count):
            return f"waiting  {counted(count, 'segment')} that may still be published"
        case Finding(facts):
            return _FINDINGS[next(iter(facts))].format(**facts)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in counts.items() if count) or "nothing"
