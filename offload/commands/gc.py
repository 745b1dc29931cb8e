"""Collect garbage in the remote: `seglog gc`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from offload.commands.directory import Directory
from offload.commands.parameters import About
from offload.commands.results import MERGED
from offload.commands.units import parse_span_ms
from offload.errors import VolumesBlocked
from offload.moment import Moment

if TYPE_CHECKING:
    from catalog.gc.policy import GcReport, KeptVolume

__all__ = [
    "DeletedObjects",
    "GcFinding",
    "KeptPoint",
    "KeptStates",
    "PlannedObjects",
    "WaitingPlan",
    "YoungSegments",
    "gc",
    "parse_retained",
]


@dataclass(frozen=True, slots=True)
class KeptPoint:
    """A single state that is kept, and the holders that keep it."""

    lsn: int
    holders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KeptStates:
    """The kept states of the volume `kept`. `first_lsn` is the first LSN of the kept range, or None."""

    kept: str
    topic: str
    branch: str
    first_lsn: int | None
    newest_lsn: int | None
    holders: tuple[str, ...]
    points: tuple[KeptPoint, ...]


@dataclass(frozen=True, slots=True)
class DeletedObjects:
    """The number of deleted objects of each kind."""

    deleted: Mapping[str, int]
    deleted_bytes: int


@dataclass(frozen=True, slots=True)
class PlannedObjects:
    """The number of objects of each kind that a later run deletes. After a dry run there is no plan of them."""

    planned: Mapping[str, int]
    planned_bytes: int
    dry_run: bool


@dataclass(frozen=True, slots=True)
class WaitingPlan:
    """The number of objects in a plan, and the time from which GC may carry it out."""

    waiting: int
    due: Moment


@dataclass(frozen=True, slots=True)
class YoungSegments:
    """The number of segments that may still be published."""

    young_segments: int


@dataclass(frozen=True, slots=True)
class GcFinding:
    """A fact that the operator may have to act on. Its keys say which.

    clock_checked     false: the store tells no time, so this machine's clock decides alone
    unknown           the key of an object that is not seglog's
    refused           a holder of a state that is gone already
    damaged_plan      a plan that cannot be read
    blocked, reason   a volume that GC leaves alone because of damage
    """

    facts: Mapping[str, Any] = field(metadata=MERGED)


GcOutcome = DeletedObjects | PlannedObjects | WaitingPlan | YoungSegments | GcFinding


def gc(
    place: Directory,
    dry_run: Annotated[bool, About("Show the plan, and change nothing.")] = False,
    retain: Annotated[
        str | None, About("Keep so much of every topic's past, whatever its own window is: 7d, 12h, 0.")
    ] = None,
    grace: Annotated[str | None, About("Carry out plans of this age, instead of gc_grace_s: 24h; 0 for all.")] = None,
) -> Iterator[KeptStates | GcOutcome]:
    """Collect garbage in the remote in two runs, a grace period apart.

    A run deletes the objects that an earlier run planned, if nothing needs them still. It then plans the objects that
    nothing needs now. Branches, tags, pins and the window of each topic keep states, and the report names them. If
    damage may hide a need, GC leaves the volume alone and ends with exit code 5.

    If this machine's clock is more than a minute off the store's, the run changes nothing and ends with exit code 1.
    """
    retain_s, grace_s = parse_retained("--retain", retain), parse_retained("--grace", grace)
    upkeep = place.archive.upkeep
    with place.watched("gc") as watch:
        report = upkeep.collect(dry_run=dry_run, retain_s=retain_s, grace_s=grace_s, watch=watch)
    yield from map(_kept, report.kept)
    yield from _outcomes(report, dry_run=dry_run)
    if report.blocked:
        raise VolumesBlocked(len(report.blocked))


def parse_retained(option: str, text: str | None) -> int | None:
    """Return the seconds of a span, which may be 0. None if there is no text. Raises `InvalidParameters`."""
    if text is None or text == "0":
        return None if text is None else 0
    return parse_span_ms(option, text, ", or 0") // 1000


def _kept(volume: KeptVolume) -> KeptStates:
    return KeptStates(
        kept=str(volume.vid),
        topic=volume.topic,
        branch=volume.branch,
        first_lsn=volume.first_lsn,
        newest_lsn=volume.newest_lsn,
        holders=tuple(map(str, volume.holders)),
        points=tuple(KeptPoint(lsn, tuple(map(str, holders))) for lsn, holders in volume.points),
    )


def _outcomes(report: GcReport, *, dry_run: bool) -> Iterator[GcOutcome]:
    yield DeletedObjects(dict(report.deleted), report.deleted_bytes)
    yield PlannedObjects(dict(report.planned), report.planned_bytes, dry_run)
    for plan in report.waiting:
        yield WaitingPlan(plan.objects, Moment(plan.due_ms))
    if report.young_segments:
        yield YoungSegments(report.young_segments)
    if not report.is_clock_checked:
        yield GcFinding({"clock_checked": False})
    for name, found in (
        ("unknown", report.unknown_keys),
        ("refused", report.refused),
        ("damaged_plan", report.damaged_plans),
    ):
        yield from (GcFinding({name: each}) for each in found)
    for vid, reason in report.blocked.items():
        yield GcFinding({"blocked": str(vid), "reason": reason})
