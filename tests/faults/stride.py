"""How many points of a run a proof takes: some by default, all in the soak."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import pytest

__all__ = ["every", "spread"]


def every(number: int, *, part: int) -> pytest.MarkDecorator:
    """Parametrize the argument `every` of a test: the stride `number` by default, and 1 in that part of the soak."""
    return pytest.mark.parametrize("every", [number, pytest.param(1, marks=pytest.mark.soak(part=part))])


def spread(kinds: Sequence[Hashable], amount: int) -> list[int]:
    """Return the indexes of about `amount` of these steps, or of all if `amount` is that large.

    `kinds` has the kind of each step. The indexes are spread evenly over each kind, and each kind has one at least.
    """
    by_kind: dict[Hashable, list[int]] = {}
    for index, kind in enumerate(kinds):
        by_kind.setdefault(kind, []).append(index)
    row = [index for indexes in by_kind.values() for index in indexes]
    taken = {row[at * len(row) // amount] for at in range(amount)} if amount < len(row) else {*row}
    return sorted(taken.union(indexes[len(indexes) // 2] for indexes in by_kind.values() if not taken & {*indexes}))
