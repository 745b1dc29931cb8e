"""What users hold stays: the commands, the routes, the settings and the public names."""

from __future__ import annotations

import difflib

import pytest

from tests.golden.make_surface import GOLDEN, make


@pytest.mark.long
def test_what_users_hold_is_the_golden_list() -> None:
    """`python -m tests.golden.make_surface` writes it, once a change of it is meant."""
    changed = difflib.unified_diff(GOLDEN.read_text().splitlines(), make().splitlines(), lineterm="", n=0)
    assert not list(changed)
