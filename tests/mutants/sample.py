"""Three tests for the runner of mutants. pytest collects them only by name."""

from __future__ import annotations

import importlib

import pytest


def test_of_codec() -> None:
    assert importlib.import_module("offload.format.codec").__name__ == "offload.format.codec"


@pytest.mark.long
def test_of_codec_for_long() -> None:
    test_of_codec()


def test_of_nothing() -> None:
    assert __name__
