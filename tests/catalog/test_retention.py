"""The retention window, decided from values alone."""

from __future__ import annotations

import pytest

from catalog.format.control import CheckpointSet, Mark
from catalog.gc.policy import first_kept, scan_from, window_ms_of
from tests.catalog.samples import HistoryMaker, ts_of, vid

MAIN = vid(1)


def test_the_window_starts_at_the_last_commit_up_to_which_all_had_happened() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 10))
    history.offload((11, 20))
    history.delete(15, before=5)  # made before the last record of the preceding offload
    history.offload((21, 30))
    commits = [stored.commit for stored in history.stored]
    assert first_kept(commits, ts_of(9)) is None
    assert first_kept(commits, ts_of(10)) == 1
    assert first_kept(commits, ts_of(17)) == 1  # the delete had happened, but the offload before it had not
    assert first_kept(commits, ts_of(20)) == 3
    assert first_kept(commits, ts_of(99)) == 4


def test_looking_begins_at_a_checkpoint_that_is_certainly_before_the_window() -> None:
    marks = CheckpointSet(MAIN, (Mark(3, 100, 30), Mark(6, 200, 60), Mark(9, 300, 90)))
    assert scan_from(marks, 1, 20, 250) == 6
    assert scan_from(marks, 1, 20, 99) == 0
    assert scan_from(marks, 7, 20, 250) == 0
    assert scan_from(marks, 1, 5, 250) == 3


@pytest.mark.parametrize(
    ("config", "window_ms"),
    [
        ("", 7),
        ('{"attributes":{"pitr_window_s":"60"}}', 60_000),
        ('{"attributes":{"pitr_window_s":"0"}}', 0),
        ('{"attributes":{}}', 7),
        ("{}", 7),
        ("[]", 7),
        ("not JSON", 7),
        ('{"attributes":{"pitr_window_s":"soon"}}', 7),
        ('{"attributes":{"pitr_window_s":"-1"}}', 7),
    ],
)
def test_a_topic_may_have_a_window_of_its_own_and_what_does_not_parse_says_nothing(config: str, window_ms: int) -> None:
    assert window_ms_of(config, 7) == window_ms
