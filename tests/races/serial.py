"""The judge of a race: two calls at once end as some order of the two would.

    1  The scene runs the first call and then the second, and the other way round, from one beginning.
    2  It runs both at once, with the schedule of a seed.
    3  The answers of both and the state after them equal those of step 1, or of one call alone if the other was refused
       for the race (`REFUSED`) and changed nothing.

A result is plain values. The scene leaves out of them what no order decides: times, random ids, texts of errors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = ["Judge", "Result", "Scene", "pairs"]


@dataclass(frozen=True)
class Result:
    """`answers` are those of the first and the second call. `state` is what readers find after both."""

    answers: tuple[Any, Any]
    state: Mapping[str, Any]


class Scene(Protocol):
    """A kind of world, and the calls that meet in it."""

    @property
    def name(self) -> str: ...
    @property
    def calls(self) -> Mapping[str, Any]: ...

    def run(self, pair: tuple[str, str], order: str, seed: int) -> Result:
        """Run the calls of the pair: `ab`, `ba`, `a`, `b`, or `met` for both at once."""
        ...

    def allows(self, pair: tuple[str, str], met: Result, serial: Callable[[str], Result]) -> str:
        """Return the reason why a result that no order gives is fine. Empty if there is none."""
        ...


@dataclass
class Judge:
    """The judge of one scene. It runs each serial order once, when it needs it."""

    scene: Scene
    runs: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    _known: dict[tuple[tuple[str, str], str], Result] = field(default_factory=dict)

    def check(self, pair: tuple[str, str], seed: int) -> None:
        """Run a schedule. Raise `AssertionError` for a result that no order gives."""
        self.runs += 1
        try:
            met = self.scene.run(pair, "met", seed)
        except Exception as error:
            raise AssertionError(f"{self._again(pair, seed)}\n{type(error).__name__}: {error}") from error
        if any(met == self.serial(pair, order) for order in ("ab", "ba")):
            return
        reason = self.scene.allows(pair, met, lambda order: self.serial(pair, order))
        if not reason:
            told = "".join(f"\n{order}: {_beside(met, self.serial(pair, order))}" for order in ("ab", "ba"))
            raise AssertionError(f"{self._again(pair, seed)}\nmet: {json.dumps(met.answers)}{told}")
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def serial(self, pair: tuple[str, str], order: str) -> Result:
        if (pair, order) not in self._known:
            self._known[pair, order] = self.scene.run(pair, order, 0)
        return self._known[pair, order]

    def _again(self, pair: tuple[str, str], seed: int) -> str:
        first, second = pair
        return (
            f"no order of the two calls gives this. Again: "
            f"python -m tests.races {self.scene.name} {first!r} {second!r} {seed}"
        )


def _beside(met: Result, serial: Result) -> str:
    """Return a result of an order, and of its state only what differs from the met one: `[met, serial]`."""
    state = {
        name: [met.state.get(name), serial.state.get(name)]
        for name in sorted({*met.state, *serial.state})
        if met.state.get(name) != serial.state.get(name)
    }
    return json.dumps({"answers": serial.answers, "other state": state})


def pairs(names: Sequence[str], *, both_ways: bool = False) -> Iterator[tuple[str, str]]:
    """Yield each pair, also of a name with itself. `both_ways`: it matters who makes which call."""
    for number, first in enumerate(names):
        for second in names if both_ways else names[number:]:
            yield first, second
