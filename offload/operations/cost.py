"""The cost of the remote: `seglog cost`.

Prices of an object store come from a TOML file, or are the default:

    name = "S3 Standard, us-east-1"     optional: a text for the output
    as_of = 2025-06-01                  optional: the day of the prices
    currency = "USD"
    storage_gb_month = 0.023            for a month of 2^30 stored bytes
    put_per_1000 = 0.005                for 1,000 requests that write or list
    get_per_1000 = 0.0004               for 1,000 requests that read

PRICE-1  All amounts are zero or more. A file with an unknown key, or without one that is not optional, is refused.
PRICE-2  Deletes and aborts are free, as on S3. Prices by volume, transfer and minimum times of storage are left out.
"""

from __future__ import annotations

import datetime as dt
import math
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

from offload.errors import Misuse
from offload.operations.command import About, Command, Directory, always
from offload.operations.printing import counted, format_bytes, lines, span_text
from seglog.base.dataclasses import dataclass

if TYPE_CHECKING:
    from catalog.gc.survey import Use, VolumeUse
    from offload.operations.command import RequestsSeen


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
    directory: Directory,
    prices: Annotated[
        str | None, About("A TOML file with prices; without it those of S3 Standard.", metavar="FILE", is_file=True)
    ] = None,
) -> Iterator[TopicCost | BranchCost | OtherCost | RequestCost | CostTotal]:
    """Show what the remote costs in a month. It says what each topic and branch stores, and what GC would give back.

    Each object counts once, for the branch that wrote it. A fork shares the objects of its parent: they count there,
    and `shared` shows their size. GC gives back what nothing needs now, in two runs (`seglog gc`).

    Only a daemon counts requests, from its start on and for a day at most. The command itself lists the whole remote
    twice, and reads each commit that this directory does not have. Example: seglog cost --prices prices.toml
    """
    rates = S3_STANDARD if prices is None else parse_prices(prices)
    archive = directory.archive
    with directory.watched("cost") as watch:
        survey = archive.collection.survey(watch=watch)
    topics: dict[str, list[VolumeUse]] = defaultdict(list)
    for volume in survey.volumes:
        topics[volume.names[0][0] if volume.names else ""].append(volume)
    for topic, volumes in sorted(topics.items()):
        yield _topic(topic, [volume.use for volume in volumes], rates)
        for volume in sorted(volumes, key=lambda volume: (volume.names, volume.vid)):
            yield _branch(topic, volume, rates)
    for name, use in sorted(survey.others.items()):
        yield OtherCost(name, use.objects, use.size_bytes, rates.storage(use.size_bytes))
    yield _requests(directory.host.requests(), rates)
    uses = [*(volume.use for volume in survey.volumes), *survey.others.values()]
    yield _total(uses, rates, survey.blocked)


def _topic(topic: str, uses: Iterable[Use], prices: Prices) -> TopicCost:
    uses = list(uses)
    size_bytes = sum(use.size_bytes for use in uses)
    objects, garbage = sum(use.objects for use in uses), sum(use.garbage_bytes for use in uses)
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


def _requests(counts: RequestsSeen | None, prices: Prices) -> RequestCost:
    if counts is None:
        return RequestCost(None, None, None)
    return RequestCost(counts.methods, counts.covers_s, prices.requests(counts.methods, counts.covers_s))


def _total(uses: Iterable[Use], prices: Prices, blocked: int) -> CostTotal:
    uses = list(uses)
    size_bytes, gc_bytes = sum(use.size_bytes for use in uses), sum(use.garbage_bytes for use in uses)
    return CostTotal(
        objects=sum(use.objects for use in uses),
        bytes=size_bytes,
        money=prices.storage(size_bytes),
        gc_objects=sum(use.garbage_objects for use in uses),
        gc_bytes=gc_bytes,
        gc_money=prices.storage(gc_bytes),
        blocked_volumes=blocked,
        currency=prices.currency,
        prices=prices.name,
        prices_as_of=prices.as_of,
    )


_GB = 1 << 30
_MONTH_S = 30 * 86_400
_AMOUNTS = ("storage_gb_month", "put_per_1000", "get_per_1000")
_TEXTS = ("name", "as_of", "currency")
_WRITES = frozenset(
    {"complete_upload", "create_upload", "list", "list_uploads", "put", "put_new", "put_part", "swap", "time_ms"}
)
_READS = frozenset({"get", "get_range", "get_with_etag", "head"})


@dataclass(frozen=True, slots=True)
class Prices:
    name: str
    as_of: str
    currency: str
    storage_gb_month: float
    put_per_1000: float
    get_per_1000: float

    def storage(self, size_bytes: int) -> float:
        """Return the price of a month of `size_bytes`."""
        return size_bytes / _GB * self.storage_gb_month

    def requests(self, methods: Mapping[str, int], covers_s: float) -> float:
        """Return the price of a month of requests, at the rate of the last `covers_s` seconds."""
        writes = sum(count for method, count in methods.items() if method in _WRITES)
        reads = sum(count for method, count in methods.items() if method in _READS)
        if covers_s <= 0:
            return 0.0
        return (writes * self.put_per_1000 + reads * self.get_per_1000) / 1000 * _MONTH_S / covers_s


S3_STANDARD = Prices("S3 Standard, us-east-1, first 50 TB", "2025-06-01", "USD", 0.023, 0.005, 0.0004)


def parse_prices(text: str) -> Prices:
    """Return the prices of a file. Raises `Misuse`."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Misuse(f"the file of prices is not TOML: {error}") from None
    for key in table:
        if key not in (*_TEXTS, *_AMOUNTS):
            raise Misuse(f"the file of prices has an unknown key {key!r}; the keys are {', '.join(_known())}")
    amounts = [_amount(table, key) for key in _AMOUNTS]
    return Prices(_text(table, "name", ""), _day(table), _text(table, "currency", None), *amounts)


def _known() -> list[str]:
    return sorted((*_TEXTS, *_AMOUNTS))


def _amount(table: Mapping[str, Any], key: str) -> float:
    value: Any = table.get(key)
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise Misuse(f"the file of prices needs {key}, a number of 0 or more; it has {value!r}")
    return float(value)


def _text(table: Mapping[str, Any], key: str, default: str | None) -> str:
    value = table.get(key, default)
    if not isinstance(value, str) or len(value) > 100:
        raise Misuse(f"the file of prices needs {key}, a text of at most 100 characters; it has {value!r}")
    return value


def _day(table: Mapping[str, Any]) -> str:
    value = table.get("as_of", "")
    return value.isoformat() if isinstance(value, dt.date) else _text(table, "as_of", "")


def cost_text(row: TopicCost | BranchCost | OtherCost | RequestCost | CostTotal) -> str:
    match row:
        case TopicCost():
            return _line(row.topic or "without a topic", row.objects, row.bytes, row.money)
        case BranchCost():
            name = f"  {row.branch or row.volume}{'' if row.is_named else ' (no name)'}"
            shared = f", shared {format_bytes(row.shared_bytes)}" if row.shared_bytes else ""
            garbage = f", garbage {format_bytes(row.garbage_bytes)}" if row.garbage_bytes else ""
            return _line(name, row.objects, row.bytes, row.money) + shared + garbage
        case OtherCost():
            return _line(f"{row.place}/", row.objects, row.bytes, row.money)
        case RequestCost():
            return _requests_text(row)
        case CostTotal():
            return _total_text(row)


def _line(name: str, objects: int, size_bytes: int, money: float) -> str:
    return f"{name:<28} {counted(objects, 'object'):>16}  {format_bytes(size_bytes):>10}  {_money(money):>10} a month"


def _money(money: float) -> str:
    return f"{money:,.2f}" if money >= 1 or not money else f"{money:.6f}"


def _requests_text(requests: RequestCost) -> str:
    if requests.requests is None or requests.covers_s is None or requests.money is None:
        return f"{'requests':<28} not counted: no daemon serves this directory"
    total, span = sum(requests.requests.values()), span_text(timedelta(seconds=requests.covers_s))
    kinds = ", ".join(f"{count:,} {method}" for method, count in requests.requests.items())
    total_text = f"{counted(total, 'request')} of this daemon in the last {span}"
    by_method = f" ({kinds})" if kinds else ""
    return f"{'requests':<28} {total_text}, {_money(requests.money)} a month at this rate{by_method}"


def _total_text(total: CostTotal) -> str:
    dated = f" of {total.prices_as_of}" if total.prices_as_of else ""
    rows = [
        _line("total", total.objects, total.bytes, total.money),
        _line("  of it GC would give back", total.gc_objects, total.gc_bytes, total.gc_money),
    ]
    if total.blocked_volumes:
        rows.append(f"  without {counted(total.blocked_volumes, 'damaged volume')}: `seglog verify --remote` tells")
    return "\n".join([*rows, f"money in {total.currency}: {total.prices or 'prices of the file'}{dated}, storage only"])


COST = Command("cost", cost, lines(cost_text), reads=always, role="read", section="operate")
