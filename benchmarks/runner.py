"""How a benchmark measures: subjects in turns, a warm-up round, medians.

    round     0 (warm-up)   1        2        3
    order     A B C         A B C    B C A    C A B

M1  The warm-up round is not counted.
M2  Subjects take turns within a round and the order rotates, so drift of the machine hits all alike.
M3  A figure of a subject is the median over the rounds; a ratio is the median of the ratios within each round, since
    two runs that stand side by side share what the machine was doing.
M4  What was prepared for a measurement is on the disk before it starts (`settle_disk`): otherwise whoever syncs first
    pays for what others left to write, which made single syncs twenty times as slow.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Figures", "Rounds", "in_turns", "settle_disk"]

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Rounds:
    """`by_subject[name][i]` is what subject `name` gave in round i."""

    by_subject: Mapping[str, Sequence[Figures]]

    def median(self, subject: str, figure: str) -> float:
        return statistics.median(figures[figure] for figures in self.by_subject[subject])

    def ratio(self, ours: str, yardstick: str, figure: str, *, more_is_better: bool) -> float:
        """How many times as good as the yardstick: above 1 means better, for rates and for times alike."""
        pairs = zip(self.by_subject[ours], self.by_subject[yardstick], strict=True)
        if more_is_better:
            return statistics.median(a[figure] / b[figure] for a, b in pairs)
        return statistics.median(b[figure] / a[figure] for a, b in pairs)


def settle_disk() -> None:
    """Call between preparation and the timed part."""
    os.sync()


def in_turns(subjects: Mapping[str, Callable[[], Figures]], *, rounds: int, label: str) -> Rounds:
    """Run every subject `rounds` times after a warm-up round. Progress goes to stderr."""
    names = list(subjects)
    results: dict[str, list[Figures]] = {name: [] for name in names}
    for name in names:
        print(f"{label}: warm-up, {name}", file=sys.stderr)
        subjects[name]()
    for number in range(rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            print(f"{label}: round {number + 1} of {rounds}, {name}", file=sys.stderr)
            results[name].append(subjects[name]())
    return Rounds(results)
