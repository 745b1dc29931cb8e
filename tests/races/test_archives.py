"""Two calls of two directories on one remote end as some order of the two would. A file apart runs beside the other."""

from __future__ import annotations

import pytest

from tests.races.slices import raced_slice, races
from tests.work import tell


@pytest.mark.parametrize(("name", "amount", "part"), [*races("archives")])
def test_two_calls_at_once_end_as_one_after_the_other(name: str, amount: int, part: str) -> None:
    tell(raced_slice(name, amount, part))
