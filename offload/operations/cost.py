"""The cost of the remote: `seglog cost`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from offload.operations.directory import Directory
from offload.operations.parameters import About
from offload.operations.prices import S3_STANDARD, Prices, parse_prices

if TYPE_CHECKING:
    from catalog.gc.survey import Use, VolumeUse
    from offload.operations.directory import RequestsSeen

__all__ = ["BranchCost", "CostTotal", "OtherCost", "RequestCost", "TopicCost", "cost"]


@dataclass(frozen=True, slots=True)
class TopicCost:
    """All branches of a topic, and its volumes without a name. `money` is for a month of storage."""

    topic: str
    objects: int
    bytes: int
    money: float
    garbage_bytes: int


@dataclass(frozen=True, slots=True)
class BranchCost:
    """The objects that a branch stores itself, with the money for a month.

    `shared_bytes` are bytes of other branches that it shows as well. They count there. If `is_named` is false, no name
    leads to the volume: its branch was deleted or never finished. `garbage_bytes` would go with GC.
    """

    topic: str
    branch: str
    volume: str
    is_named: bool
    objects: int
    bytes: int
    shared_bytes: int
    money: float
    garbage_bytes: int


@dataclass(frozen=True, slots=True)
class OtherCost:
    """Objects of no volume, by the first word of their keys: names, the oplog, plans of GC."""

    place: str
    objects: int
    bytes: int
    money: float


@dataclass(frozen=True, slots=True)
class RequestCost:
    """The requests of the daemon of this directory, by method. `money` is for a month at this rate.

    The counts begin with the daemon and cover `covers_s` seconds, a day at most. Without a daemon, `requests` and the
    rest are None. Other processes and machines are not counted.
    """

    requests: Mapping[str, int] | None
    covers_s: float | None
    money: float | None


@dataclass(frozen=True, slots=True)
class CostTotal:
    """All objects under the remote's prefix, and the prices. `gc_bytes` and `gc_money` are what GC would give back.

    `blocked_volumes` are damaged, so their garbage is unknown.
    """

    objects: int
    bytes: int
    money: float
    gc_objects: int
    gc_bytes: int
    gc_money: float
    blocked_volumes: int
    currency: str
    prices: str
    prices_as_of: str


def cost(
    place: Directory,
    prices: Annotated[
        str | None, About("A TOML file with prices; without it those of S3 Standard.", metavar="FILE", is_file=True)
    ] = None,
) -> Iterator[TopicCost | BranchCost | OtherCost | RequestCost | CostTotal]:
    """Show what the remote stores and costs in a month, by topic and branch, and what GC would give back.

    Each object counts once, for the branch that wrote it. A fork shares the objects of its parent: they count there,
    and `shared` shows their size. GC gives back what nothing needs now, in two runs (`seglog gc`).

    Only a daemon counts requests, from its start on and for a day at most. The command itself lists the whole remote
    twice, and reads each commit that this directory does not have. Example: seglog cost --prices prices.toml
    """
    known = S3_STANDARD if prices is None else parse_prices(prices)
    archive = place.archive
    with place.watched("cost") as watch:
        survey = archive.collection.survey(watch=watch)
    topics: dict[str, list[VolumeUse]] = defaultdict(list)
    for volume in survey.volumes:
        topics[volume.names[0][0] if volume.names else ""].append(volume)
    for topic, volumes in sorted(topics.items()):
        yield _topic(topic, [each.use for each in volumes], known)
        for volume in sorted(volumes, key=lambda each: (each.names, each.vid)):
            yield _branch(topic, volume, known)
    for name, use in sorted(survey.others.items()):
        yield OtherCost(name, use.objects, use.size_bytes, known.storage(use.size_bytes))
    yield _requests(place.host.requests(), known)
    uses = [*(each.use for each in survey.volumes), *survey.others.values()]
    yield _total(uses, known, survey.blocked)


def _topic(topic: str, uses: Iterable[Use], prices: Prices) -> TopicCost:
    uses = list(uses)
    size_bytes = sum(each.size_bytes for each in uses)
    objects, garbage = sum(each.objects for each in uses), sum(each.garbage_bytes for each in uses)
    return TopicCost(topic, objects, size_bytes, prices.storage(size_bytes), garbage)


def _branch(topic: str, volume: VolumeUse, prices: Prices) -> BranchCost:
    use = volume.use
    return BranchCost(
        topic=topic,
        branch=", ".join(branch for _, branch in volume.names),
        volume=str(volume.vid),
        is_named=volume.is_named,
        objects=use.objects,
        bytes=use.size_bytes,
        shared_bytes=volume.shared_bytes,
        money=prices.storage(use.size_bytes),
        garbage_bytes=use.garbage_bytes,
    )


def _requests(seen: RequestsSeen | None, prices: Prices) -> RequestCost:
    if seen is None:
        return RequestCost(None, None, None)
    return RequestCost(seen.methods, seen.covers_s, prices.requests(seen.methods, seen.covers_s))


def _total(uses: Iterable[Use], prices: Prices, blocked: int) -> CostTotal:
    uses = list(uses)
    size_bytes, gc_bytes = sum(each.size_bytes for each in uses), sum(each.garbage_bytes for each in uses)
    return CostTotal(
        objects=sum(each.objects for each in uses),
        bytes=size_bytes,
        money=prices.storage(size_bytes),
        gc_objects=sum(each.garbage_objects for each in uses),
        gc_bytes=gc_bytes,
        gc_money=prices.storage(gc_bytes),
        blocked_volumes=blocked,
        currency=prices.currency,
        prices=prices.name,
        prices_as_of=prices.as_of,
    )
