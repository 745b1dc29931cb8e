"""How many of the points of a run a proof takes: some by default, all in the soak."""

from __future__ import annotations

import pytest

__all__ = ["every"]


def every(number: int, *, part: int) -> pytest.MarkDecorator:
    """The test's argument `every`: `number`, as a stride; once more in that part of the soak: 1."""
    return pytest.mark.parametrize("every", [number, pytest.param(1, marks=pytest.mark.soak(part=part))])
