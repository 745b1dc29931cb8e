"""The docstring of `offload.errors` draws the real tree of classes, and a user can import each of them."""

from __future__ import annotations

from offload import errors
from tests.error_trees import defined, drawn


def test_the_docstring_draws_the_tree_of_classes() -> None:
    assert drawn(errors) == defined(errors)


def test_an_unknown_option_has_its_fields() -> None:
    error = errors.InvalidOption.unknown("colour", ["size", "at"])
    assert str(error) == "option colour is unknown; the options are at, size"
    assert error.fields() == {"option": "colour", "reason": "is unknown; the options are at, size"}
