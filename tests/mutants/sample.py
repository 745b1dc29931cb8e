"""Two tests for the runner of mutants. pytest collects them only by name."""

from __future__ import annotations

import importlib


def test_of_names() -> None:
    assert importlib.import_module("seglog.values.names").__name__ == "seglog.values.names"


def test_of_nothing() -> None:
    assert __name__
