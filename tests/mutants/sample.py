"""Two tests for the runner of mutants. pytest collects them only by name."""

from __future__ import annotations

import importlib


def test_of_codec() -> None:
    assert importlib.import_module("offload.format.codec").__name__ == "offload.format.codec"


def test_of_nothing() -> None:
    assert __name__
