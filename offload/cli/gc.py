"""The texts of `seglog gc`."""

from __future__ import annotations

from collections.abc import Mapping

from offload.operations.gc import (
    DeletedObjects,
    GcFinding,
    GcOutcome,
    KeptStates,
    PlannedObjects,
    WaitingPlan,
    YoungSegments,
)
from offload.operations.gc_steps import KeyExplained, PlanListed, PlannedKey
from offload.operations.printing import lines
from offload.operations.units import counted, format_bytes

__all__ = [
    "print_outcome",
    "print_step",
]

_FINDINGS = {
    "clock_checked": "clock    the store tells no time: this machine's clock decided alone",
    "unknown": "unknown  {unknown} is none of seglog's, and stays",
    "refused": "refused  {refused}: what it names was gone already",
    "damaged_plan": "DAMAGED  {damaged_plan}: the plan is given up, and its objects are planned again",
    "blocked": "BLOCKED  {blocked}: {reason}",
}


def outcome_text(found: KeptStates | GcOutcome) -> str:
    match found:
        case KeptStates():
            return _kept(found)
        case DeletedObjects(counts, size):
            return f"deleted  {_counts(counts)}, {format_bytes(size)} of segments"
        case PlannedObjects(counts, size, is_dry):
            return f"{'garbage ' if is_dry else 'planned '} {_counts(counts)}, {format_bytes(size)} of segments"
        case WaitingPlan(objects, due):
            return f"waiting  {counted(objects, 'object')} until {due}"
        case YoungSegments(count):
            return f"waiting  {counted(count, 'segment')} that may still be published"
        case GcFinding(facts):
            return _FINDINGS[next(iter(facts))].format(**facts)


def _kept(kept: KeptStates) -> str:
    what = [f"lsn {point.lsn} by {', '.join(point.holders)}" for point in kept.points]
    if kept.first_lsn is not None:
        has_any = kept.newest_lsn is not None and kept.newest_lsn >= kept.first_lsn
        own = f"lsn {kept.first_lsn} to {kept.newest_lsn}" if has_any else "what it was forked from"
        what.append(f"{own} by {', '.join(kept.holders)}")
    return f"kept     {kept.topic}@{kept.branch}: {'; '.join(what)}"


def _counts(counts: Mapping[str, int]) -> str:
    named = {kind: kind if count != 1 else _singular(kind) for kind, count in counts.items() if count}
    return ", ".join(f"{counts[kind]:,} {noun}" for kind, noun in named.items()) or "nothing"


def _singular(kind: str) -> str:
    return "boundary" if kind == "boundaries" else kind.removesuffix("s")


print_outcome = lines(outcome_text)


def step_text(found: PlannedKey | PlannedObjects | DeletedObjects | PlanListed | KeyExplained) -> str:
    match found:
        case PlannedKey(key, size, reason):
            return f"{'' if size is None else format_bytes(size):>10}  {key}: {reason}"
        case PlanListed(number, objects, due, is_new):
            return f"{'new plan' if is_new else 'plan    '} {number}  {counted(objects, 'object')}, from {due} on"
        case KeyExplained(key, size, verdict, reasons):
            return "\n".join([f"{verdict:8} {key}, {format_bytes(size)}", *(f"  {reason}" for reason in reasons)])
        case _:
            return outcome_text(found)


print_step = lines(step_text)
