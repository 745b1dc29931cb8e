from __future__ import annotations

import pytest

from offload.daemon.background.disk import DiskState, disk_state

FINE, ALARM, FULL = DiskState


@pytest.mark.parametrize(
    ("free", "before", "after"),
    [
        (2_000, FINE, FINE), (1_000, FINE, FINE), (999, FINE, ALARM), (99, FINE, FULL),
        (1_050, ALARM, ALARM), (1_100, ALARM, FINE), (100, ALARM, ALARM), (99, ALARM, FULL),
        (105, FULL, FULL), (110, FULL, ALARM), (1_050, FULL, ALARM), (5_000, FULL, FINE),
    ],
)  # fmt: skip
def test_a_state_begins_at_its_bound_and_ends_a_tenth_above(free: int, before: DiskState, after: DiskState) -> None:
    assert disk_state(free, before, 1_000, 100) is after
