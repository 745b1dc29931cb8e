"""The tests of commands have `run`."""

from __future__ import annotations

from tests.worlds.command import run

__all__ = ["run"]
