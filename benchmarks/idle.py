"""An upkeep that does nothing, so that no background work moves records into segments during a measurement."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Idle"]


class Idle:
    def __init__(self, work: Callable[[], None]) -> None:
        pass

    def wake(self) -> None:
        pass

    def wake_later(self, delay_s: float) -> None:
        pass

    def close(self, patience_s: float | None = None) -> bool:  # noqa: ARG002 - there is nothing to wait for
        return True
