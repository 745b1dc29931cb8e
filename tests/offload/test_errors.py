"""The docstring of `offload.errors` draws the real tree of classes, and a user can import each of them."""

from __future__ import annotations

from offload import errors
from tests.error_trees import defined, drawn


def test_the_docstring_draws_the_tree_of_classes() -> None:
    assert drawn(errors) == defined(errors)
