"""GC step by step: `seglog gc plan`, `gc apply` and `gc explain`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from offload.commands.directory import Directory
from offload.commands.gc import DeletedObjects, PlannedObjects, parse_retained
from offload.commands.parameters import About
from offload.errors import InvalidParameters, VolumesBlocked
from offload.moment import Moment

if TYPE_CHECKING:
    from catalog.gc.plan import Garbage
    from catalog.gc.policy import GcReport

__all__ = ["KeyExplained", "PlanListed", "PlannedKey", "apply", "explain", "plan"]

_RETAIN = "Keep so much of every topic's past, whatever its own window is: 7d, 12h, 0."


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
    place: Directory,
    number: Annotated[
        int | None, About("Show this plan, and write none.", metavar="PLAN", is_argument=True, least=1)
    ] = None,
    retain: Annotated[str | None, About(_RETAIN)] = None,
    dry_run: Annotated[bool, About("Show what a new plan would name, and write none.")] = False,
) -> Iterator[PlannedKey | PlannedObjects | PlanListed]:
    """Write a plan of the present garbage, and show each object with its size and the reason. Delete nothing.

    A plan is an object in the remote, and has a number. `seglog gc` and the Spark job `gc` write the same plans. A new
    plan leaves out what an older plan names. The last lines list the plans that wait.
    """
    if number is not None and (retain is not None or dry_run):
        raise InvalidParameters("an existing PLAN goes with neither --retain nor --dry-run")
    retain_s = parse_retained("--retain", retain)
    collection = place.archive.collection
    if number is not None:
        for page in collection.pages(number):
            yield from _keys(page)
        return
    pages: list[list[Garbage]] = []
    with place.watched("gc plan") as watch:
        report = collection.plan(dry_run=dry_run, retain_s=retain_s, on_page=pages.append, watch=watch)
    for page in pages:
        yield from _keys(page)
    yield PlannedObjects(dict(report.planned), report.planned_bytes, dry_run)
    for each in report.waiting:
        yield PlanListed(each.number, each.objects, Moment(each.due_ms), each.number == report.new_plan)
    _check_blocked(report)


def apply(
    place: Directory,
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
    retain_s, grace_s = parse_retained("--retain", retain), parse_retained("--grace", grace)
    collection = place.archive.collection
    with place.watched("gc apply") as watch:
        report = collection.apply(number, dry_run=dry_run, retain_s=retain_s, grace_s=grace_s, watch=watch)
    if dry_run:
        yield PlannedObjects(dict(report.planned), report.planned_bytes, dry_run=True)
    else:
        yield DeletedObjects(dict(report.deleted), report.deleted_bytes)
    _check_blocked(report)


def explain(
    place: Directory,
    key: Annotated[str, About("The key of the object in the remote, or its URL.")],
    retain: Annotated[str | None, About(_RETAIN)] = None,
) -> KeyExplained:
    """Say why GC keeps an object, or that it would go: which branch, tag, lease or fork, which commit, window and age.

    The command marks all volumes, as `gc --dry-run` does. It changes nothing.
    """
    retain_s = parse_retained("--retain", retain)
    collection = place.archive.collection
    with place.watched("gc explain") as watch:
        found = collection.explain(key, retain_s=retain_s, watch=watch)
    return KeyExplained(found.key, found.size_bytes, found.verdict, found.reasons)


def _keys(page: Iterable[Garbage]) -> Iterator[PlannedKey]:
    from catalog.gc.plan import planned_keys

    for garbage in page:
        for each in planned_keys(garbage):
            yield PlannedKey(each.key, each.size_bytes, each.reason)


def _check_blocked(report: GcReport) -> None:
    if report.blocked:
        raise VolumesBlocked(len(report.blocked))
