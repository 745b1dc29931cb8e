from __future__ import annotations

from pathlib import Path

import pytest

import seglog
from seglog import errors
from tests.error_trees import defined, drawn


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    assert drawn(errors) == defined(errors)


def test_an_error_takes_its_fields_and_no_others() -> None:
    error = errors.DirectoryInUse(Path("/data"), holder="process {7}")
    assert str(error) == "/data is in use by process {7}"
    assert (error.path, error.holder) == (Path("/data"), "process {7}")
    for wrong in ((), (Path("/data"),), (Path("/data"), "process 7", "another")):
        with pytest.raises(TypeError, match="path, holder"):
            errors.DirectoryInUse(*wrong)
    with pytest.raises(TypeError, match="path, holder"):
        errors.DirectoryInUse(Path("/data"), "process 7", hint="wait")  # type: ignore[call-arg]
    assert errors.FormatUnsupported(Path("/data"), "9").known == "1"


def test_every_error_is_there_for_users() -> None:
    for name in defined(errors):
        assert getattr(seglog, name) is getattr(errors, name)


def test_what_is_public_is_there_and_sorted() -> None:
    assert len(set(seglog.__all__)) == len(seglog.__all__)
    for name in seglog.__all__:
        assert hasattr(seglog, name)
