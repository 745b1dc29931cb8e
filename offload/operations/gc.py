"""Collect garbage in the remote: `seglog gc`, and the same step by step: `gc plan`, `gc apply` and `gc explain`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any

from offload.errors import Misuse, blocked_volumes
from offload.moment import Moment
from offload.operations.command import About, Command, Directory, always, dry
from offload.operations.printing import counted, format_bytes, lines, parse_span_ms
from offload.operations.result_json import MERGED
from seglog.base.dataclasses import dataclass

if TYPE_CHECKING:
    from catalog.gc.plan import Garbage
    from catalog.gc.policy import GcReport, KeptVolume

_RETAIN = "Keep so much of every topic's past, whatever its own window is: 7d, 12h, 0."


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
    directory: Directory,
    dry_run: Annotated[bool, About("Show the plan, and change nothing.")] = False,
    retain: Annotated[str | None, About(_RETAIN)] = None,
    grace: Annotated[str | None, About("Carry out plans of this age, instead of gc_grace_s: 24h; 0 for all.")] = None,
) -> Iterator[KeptStates | GcOutcome]:
    """Collect garbage in the remote. It takes two runs, a grace period apart.

    A run deletes the objects that an earlier run planned, if nothing needs them still. It then plans the objects that
    nothing needs now. Branches, tags, pins and the window of each topic keep states, and the report names them. If
    damage may hide a need, GC leaves the volume alone and ends with exit code 5.

    If this machine's clock is more than a minute off the store's, the run changes nothing and ends with exit code 1.
    """
    retain_s, grace_s = _parse_retained("--retain", retain), _parse_retained("--grace", grace)
    upkeep = directory.archive.upkeep
    with directory.watched("gc") as watch:
        report = upkeep.collect(dry_run=dry_run, retain_s=retain_s, grace_s=grace_s, watch=watch)
    yield from map(_kept, report.kept)
    yield from _outcomes(report, dry_run=dry_run)
    _check_blocked(report)


def _parse_retained(option: str, text: str | None) -> int | None:
    """Return the seconds of a span, which may be 0. None if there is no text. Raises `Misuse`."""
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
    for name, items in (
        ("unknown", report.unknown_keys),
        ("refused", report.refused),
        ("damaged_plan", report.damaged_plans),
    ):
        yield from (GcFinding({name: key}) for key in items)
    for vid, reason in report.blocked.items():
        yield GcFinding({"blocked": str(vid), "reason": reason})


@dataclass(frozen=True, slots=True)
class PlannedKey:
    """An object that a plan names, and why. `bytes` is None if the plan does not know it.

    A segment is listed once, with the bytes of its index object.
    """

    key: str
    bytes: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class PlanListed:
    """A plan in the remote. `gc apply` and `gc` may carry it out from `due` on."""

    plan: int
    objects: int
    due: Moment
    is_new: bool


@dataclass(frozen=True, slots=True)
class KeyExplained:
    """The verdict of GC on one object: kept, garbage, young, blocked or unknown, and the reasons."""

    key: str
    bytes: int
    verdict: str
    reasons: tuple[str, ...]


def plan(
    directory: Directory,
    number: Annotated[
        int | None, About("Show this plan, and write none.", metavar="PLAN", is_argument=True, least=1)
    ] = None,
    retain: Annotated[str | None, About(_RETAIN)] = None,
    dry_run: Annotated[bool, About("Show what a new plan would name, and write none.")] = False,
) -> Iterator[PlannedKey | PlannedObjects | PlanListed]:
    """Write a plan of the present garbage. It shows each object with its size and the reason. Delete nothing.

    A plan is an object in the remote, and has a number. `seglog gc` and the Spark job `gc` write the same plans. A new
    plan leaves out what an older plan names. The last lines list the plans that wait.
    """
    if number is not None and (retain is not None or dry_run):
        raise Misuse("an existing PLAN goes with neither --retain nor --dry-run")
    retain_s = _parse_retained("--retain", retain)
    collection = directory.archive.collection
    if number is not None:
        for page in collection.pages(number):
            yield from _keys(page)
        return
    pages: list[list[Garbage]] = []
    with directory.watched("gc plan") as watch:
        report = collection.plan(dry_run=dry_run, retain_s=retain_s, on_page=pages.append, watch=watch)
    for page in pages:
        yield from _keys(page)
    yield PlannedObjects(dict(report.planned), report.planned_bytes, dry_run)
    for listed in report.waiting:
        yield PlanListed(listed.number, listed.objects, Moment(listed.due_ms), listed.number == report.new_plan)
    _check_blocked(report)


def apply(
    directory: Directory,
    number: Annotated[int, About("The number of the plan, as `gc plan` shows it.", metavar="PLAN", least=1)],
    retain: Annotated[str | None, About("The same as for the plan, if it had one.")] = None,
    grace: Annotated[str | None, About("The age that the plan must have, instead of gc_grace_s: 24h; 0.")] = None,
    dry_run: Annotated[bool, About("Check the plan, and delete nothing.")] = False,
) -> Iterator[DeletedObjects | PlannedObjects]:
    """Carry out one plan as it is, or not at all.

    The command marks again, and checks each object of the plan by the rule of GC. If anything may need one of them now,
    it refuses the plan with exit code 4 and deletes nothing. Then `seglog gc` deletes only the rest. The command also
    refuses a plan that is younger than the grace. Right before each delete, it checks once more.
    """
    retain_s, grace_s = _parse_retained("--retain", retain), _parse_retained("--grace", grace)
    collection = directory.archive.collection
    with directory.watched("gc apply") as watch:
        report = collection.apply(number, dry_run=dry_run, retain_s=retain_s, grace_s=grace_s, watch=watch)
    if dry_run:
        yield PlannedObjects(dict(report.planned), report.planned_bytes, dry_run=True)
    else:
        yield DeletedObjects(dict(report.deleted), report.deleted_bytes)
    _check_blocked(report)


def explain(
    directory: Directory,
    key: Annotated[str, About("The key of the object in the remote, or its URL.")],
    retain: Annotated[str | None, About(_RETAIN)] = None,
) -> KeyExplained:
    """Say why GC keeps an object, or that it would go. It names the branch, tag, lease or fork, the commit, window and
    age.

    The command marks all volumes, as `gc --dry-run` does. It changes nothing.
    """
    retain_s = _parse_retained("--retain", retain)
    collection = directory.archive.collection
    with directory.watched("gc explain") as watch:
        explained = collection.explain(key, retain_s=retain_s, watch=watch)
    return KeyExplained(explained.key, explained.size_bytes, explained.verdict, explained.reasons)


def _keys(page: Iterable[Garbage]) -> Iterator[PlannedKey]:
    from catalog.gc.plan import planned_keys

    for garbage in page:
        for planned in planned_keys(garbage):
            yield PlannedKey(planned.key, planned.size_bytes, planned.reason)


def _check_blocked(report: GcReport) -> None:
    if report.blocked:
        raise blocked_volumes(len(report.blocked))


_FINDINGS = {
    "clock_checked": "clock    the store tells no time: this machine's clock decided alone",
    "unknown": "unknown  {unknown} is none of seglog's, and stays",
    "refused": "refused  {refused}: what it names was gone already",
    "damaged_plan": "DAMAGED  {damaged_plan}: the plan is given up, and its objects are planned again",
    "blocked": "BLOCKED  {blocked}: {reason}",
}


def outcome_text(outcome: KeptStates | GcOutcome) -> str:
    match outcome:
        case KeptStates():
            return _kept_text(outcome)
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


def _kept_text(kept: KeptStates) -> str:
    texts = [f"lsn {point.lsn} by {', '.join(point.holders)}" for point in kept.points]
    if kept.first_lsn is not None:
        has_any = kept.newest_lsn is not None and kept.newest_lsn >= kept.first_lsn
        own = f"lsn {kept.first_lsn} to {kept.newest_lsn}" if has_any else "what it was forked from"
        texts.append(f"{own} by {', '.join(kept.holders)}")
    return f"kept     {kept.topic}@{kept.branch}: {'; '.join(texts)}"


def _counts(counts: Mapping[str, int]) -> str:
    nouns = {kind: kind if count != 1 else _singular(kind) for kind, count in counts.items() if count}
    return ", ".join(f"{counts[kind]:,} {noun}" for kind, noun in nouns.items()) or "nothing"


def _singular(kind: str) -> str:
    return "boundary" if kind == "boundaries" else kind.removesuffix("s")


def step_text(step: PlannedKey | PlannedObjects | DeletedObjects | PlanListed | KeyExplained) -> str:
    match step:
        case PlannedKey(key, size, reason):
            return f"{'' if size is None else format_bytes(size):>10}  {key}: {reason}"
        case PlanListed(number, objects, due, is_new):
            return f"{'new plan' if is_new else 'plan    '} {number}  {counted(objects, 'object')}, from {due} on"
        case KeyExplained(key, size, verdict, reasons):
            return "\n".join([f"{verdict:8} {key}, {format_bytes(size)}", *(f"  {reason}" for reason in reasons)])
        case _:
            return outcome_text(step)


_print_step = lines(step_text)


GC = Command("gc", gc, lines(outcome_text), reads=dry, section="operate")
GC_PLAN = Command("gc/plan", plan, _print_step, reads=lambda values: values["dry_run"] or values["number"] is not None)
GC_APPLY = Command("gc/apply", apply, _print_step, reads=dry)
GC_EXPLAIN = Command("gc/explain", explain, _print_step, reads=always, role="read")
