"""How a benchmark measures: subjects in turns, warm-up rounds, medians.

    round     0 (warm-up)   1        2        3
    order     A B C         A B C    B C A    C A B

BENCH-1  The warm-up rounds are not counted. One is enough, unless a compiler works at run time, as in the JVM.
BENCH-2  Subjects take turns within a round and the order rotates, so drift of the machine hits all alike.
BENCH-3  A figure of a subject is the median over the rounds. A ratio is the median of the ratios within each round:
    two adjacent runs share the state of the machine. The spread is the lowest and the highest of these ratios.
BENCH-4  The data prepared for a measurement is on the disk before it starts (`settle_disk`). Otherwise the first
    subject that syncs pays for the pending writes of the others, which made single syncs twenty times as slow.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Figures", "Rounds", "in_turns", "percentiles", "settle_disk"]

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Rounds:
    """`by_subject[name][i]` holds the figures of subject `name` in round i. `missing[name]` says why it has none."""

    by_subject: Mapping[str, Sequence[Figures]]
    missing: Mapping[str, str] = field(default_factory=dict[str, str])

    def called(self, name: str, subject: str) -> Rounds:
        """Return the same rounds, with `subject` under the name `name` too."""
        return Rounds({**self.by_subject, name: self.by_subject[subject]}, self.missing)

    def median(self, subject: str, figure: str) -> float:
        return statistics.median(figures[figure] for figures in self.by_subject[subject])

    def ratio(self, ours: str, yardstick: str, figure: str, *, more_is_better: bool) -> float:
        return statistics.median(self.ratios(ours, yardstick, figure, more_is_better=more_is_better))

    def ratios(self, ours: str, yardstick: str, figure: str, *, more_is_better: bool) -> list[float]:
        """Return how many times as good as the yardstick ours is: above 1 is better, for rates and for times alike."""
        pairs = zip(self.by_subject[ours], self.by_subject[yardstick], strict=True)
        if more_is_better:
            return [a[figure] / b[figure] for a, b in pairs]
        return [b[figure] / a[figure] for a, b in pairs]


def settle_disk() -> None:
    """Sync all file systems. Call this between the preparation and the timed part."""
    os.sync()


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=1000, method="inclusive") if len(seconds) > 1 else [*seconds] * 999
    return {"p50_us": cuts[499] * 1e6, "p99_us": cuts[989] * 1e6, "p999_us": cuts[998] * 1e6}


def in_turns(subjects: Mapping[str, Callable[[], Figures]], *, rounds: int, label: str, warm_ups: int = 1) -> Rounds:
    """Run every subject `rounds` times after the warm-up rounds. Progress goes to stderr."""
    names = list(subjects)
    results: dict[str, list[Figures]] = {name: [] for name in names}
    for _ in range(warm_ups):
        for name in names:
            print(f"{label}: warm-up, {name}", file=sys.stderr)
            subjects[name]()
    for number in range(rounds):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            print(f"{label}: round {number + 1} of {rounds}, {name}", file=sys.stderr)
            results[name].append(subjects[name]())
    return Rounds(results)
