"""The filters of a query as ranges and sets, for the parts that the plan looks at. This module does no I/O.

COND-1  All filters hold at once. A filter on a null is false, except `isnull`.
COND-2  Times of filters are in microseconds, as Spark has them. Times of records are in milliseconds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from offload.spark.task import Filter, Op

__all__ = ["Conditions", "conditions_of", "meets"]

_INT64_MAX = 2**63 - 1
_ORDERS: Mapping[Op, Callable[[int, int], bool]] = {
    Op.LT: operator.lt,
    Op.LE: operator.le,
    Op.GT: operator.gt,
    Op.GE: operator.ge,
}


@dataclass(frozen=True, slots=True)
class Conditions:
    """The ranges and sets that a record has to be in. Bounds are inclusive.

    `seqs` and `moments_ms` are None if any number will do.
    """

    topics: tuple[Filter, ...] = ()
    lsns: tuple[Filter, ...] = ()
    tags: tuple[Filter, ...] = ()
    first_seq: int = 1
    last_seq: int = _INT64_MAX
    seqs: frozenset[int] | None = None
    first_ms: int = -_INT64_MAX
    last_ms: int = _INT64_MAX
    moments_ms: frozenset[int] | None = None
    is_never: bool = False

    def time_filters(self, min_ms: int, max_ms: int) -> tuple[Filter, ...] | None:
        """Return the filters on the time that records from `min_ms` to `max_ms` still need.

        None means that no record can pass. A filter is the same for each range that needs it.
        """
        if max_ms < self.first_ms or min_ms > self.last_ms:
            return None
        found: list[Filter] = []
        if self.moments_ms is not None:
            if not any(min_ms <= ms <= max_ms for ms in self.moments_ms):
                return None
            if min_ms < max_ms:
                found.append(Filter("timestamp", Op.IN, tuple(sorted(ms * 1000 for ms in self.moments_ms))))
        if min_ms < self.first_ms:
            found.append(Filter("timestamp", Op.GE, (self.first_ms * 1000,)))
        if max_ms > self.last_ms:
            found.append(Filter("timestamp", Op.LE, (self.last_ms * 1000,)))
        return tuple(found)


def conditions_of(filters: Iterable[Filter]) -> Conditions:
    """Return what `filters` mean together."""
    by_column: dict[str, list[Filter]] = {}
    for condition in filters:
        by_column.setdefault(condition.column, []).append(condition)
    seqs, times = _Range(1, _INT64_MAX), _Range(-_INT64_MAX * 1000, _INT64_MAX * 1000)
    for condition in by_column.get("seq", ()):
        seqs.narrow(condition)
    for condition in by_column.get("timestamp", ()):
        times.narrow(condition)
    moments = None if times.only is None else frozenset(each // 1000 for each in times.only if each % 1000 == 0)
    return Conditions(
        topics=tuple(by_column.get("topic", ())),
        lsns=tuple(by_column.get("lsn", ())),
        tags=tuple(_plain(condition) for condition in by_column.get("tag", ())),
        first_seq=seqs.first,
        last_seq=seqs.last,
        seqs=seqs.only,
        first_ms=-(-times.first // 1000),
        last_ms=times.last // 1000,
        moments_ms=moments,
        is_never=seqs.is_never or times.is_never,
    )


def meets(condition: Filter, value: int | str | None) -> bool:
    """Tell whether `value` meets the condition."""
    if condition.op is Op.IS_NULL:
        return value is None
    if value is None:
        return False
    if condition.op is Op.NOT_NULL:
        return True
    if condition.op in {Op.EQ, Op.IN}:
        return value in condition.values
    wanted = condition.values[0]
    if condition.op is Op.PREFIX:
        return str(value).startswith(str(wanted))
    return _ORDERS[condition.op](int(value), int(wanted))


class _Range:
    """A range of numbers that filters narrow one by one."""

    def __init__(self, first: int, last: int) -> None:
        self.first, self.last = first, last
        self.only: frozenset[int] | None = None
        self.is_never = False

    def narrow(self, condition: Filter) -> None:
        numbers = [int(value) for value in condition.values]
        match condition.op:
            case Op.IS_NULL:  # these columns have no nulls
                self.is_never = True
            case Op.EQ | Op.IN:
                self.only = frozenset(numbers) if self.only is None else self.only & frozenset(numbers)
            case Op.GE:
                self.first = max(self.first, numbers[0])
            case Op.GT:
                self.first = max(self.first, numbers[0] + 1)
            case Op.LE:
                self.last = min(self.last, numbers[0])
            case Op.LT:
                self.last = min(self.last, numbers[0] - 1)
            case _:
                pass  # NOT_NULL is always true
        if self.only is not None:
            self.only = frozenset(number for number in self.only if self.first <= number <= self.last)
            self.is_never = self.is_never or not self.only
            if self.only:
                self.first, self.last = max(self.first, min(self.only)), min(self.last, max(self.only))


def _plain(condition: Filter) -> Filter:
    return Filter(condition.column, Op.IN, condition.values) if condition.op is Op.EQ else condition
