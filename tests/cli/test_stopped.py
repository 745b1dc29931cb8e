"""What a command says after a signal stopped it."""

from __future__ import annotations

from typing import Any

import pytest

from offload.cli.stopped import hint_of, told


@pytest.mark.parametrize(
    ("path", "values", "hint"),
    [
        ("append", {}, "it had not begun, or it was done already"),
        ("recover", {}, "it had not begun, or it was done already"),
        ("undo", {"change": None}, "another `seglog undo` may take back one more change"),
        ("delete", {"dry_run": False}, "it may be done in part"),
        ("init", {}, "it may be done in part"),
        ("demo", {}, "it may be done in part"),
        ("status", {}, ""),
    ],
)
def test_a_command_without_a_line_of_its_own_says_how_to_go_on(path: str, values: dict[str, Any], hint: str) -> None:
    found = hint_of(path, values)
    assert found.startswith(hint)
    assert bool(found) == bool(hint)


def test_a_line_of_its_own_goes_with_the_signal() -> None:
    with pytest.raises(KeyboardInterrupt, match="2 of 3 are done"), told(lambda: "2 of 3 are done"):
        raise KeyboardInterrupt
