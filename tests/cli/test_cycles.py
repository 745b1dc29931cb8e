"""The command searches for cycles late, because its imports make many objects, and as usual once it runs long."""

from __future__ import annotations

import gc
import sys

import pytest

from offload.main import main
from tests.children import in_child


def test_a_command_that_makes_many_objects_searches_for_cycles_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    def thresholds() -> tuple[int, int]:
        gc.unfreeze()
        with pytest.raises(SystemExit):
            main()
        before = gc.get_threshold()[0]
        kept = [[number] for number in range(2 * before)]
        return before, gc.get_threshold()[0] + len(kept) - 2 * before

    monkeypatch.setattr(sys, "argv", ["seglog", "--version"])
    before, after = in_child(thresholds)
    assert before == 100_000
    assert after == 1000
