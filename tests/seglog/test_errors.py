from __future__ import annotations

import seglog
from seglog import errors
from tests.error_trees import defined, drawn


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    assert drawn(errors) == defined(errors)
    assert sorted(errors.__all__) == sorted(defined(errors))


def test_every_error_is_there_for_users() -> None:
    for name in errors.__all__:
        assert getattr(seglog, name) is getattr(errors, name)


def test_what_is_public_is_there_and_sorted() -> None:
    assert len(set(seglog.__all__)) == len(seglog.__all__)
    for name in seglog.__all__:
        assert hasattr(seglog, name)
