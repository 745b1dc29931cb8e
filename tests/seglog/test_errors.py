from __future__ import annotations

import re

import seglog
from seglog import errors
from seglog.errors import SeglogError


def _drawn() -> dict[str, str]:
    """Return each class and its base, as the tree in the docstring shows them."""
    bases: dict[str, str] = {}
    path = ["SeglogError"]
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r" {4}([│ ]*)[├└]── (\w+)", line)
        if match:
            depth = len(match[1]) // 4
            del path[depth + 1 :]
            bases[match[2]] = path[-1]
            path.append(match[2])
    return bases


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, SeglogError)]
    assert _drawn() == {kind.__name__: kind.__base__.__name__ for kind in classes if kind is not SeglogError}
    assert sorted(errors.__all__) == sorted(kind.__name__ for kind in classes)


def test_every_error_is_there_for_users() -> None:
    for name in errors.__all__:
        assert getattr(seglog, name) is getattr(errors, name)


def test_what_is_public_is_there_and_sorted() -> None:
    assert len(set(seglog.__all__)) == len(seglog.__all__)
    for name in seglog.__all__:
        assert hasattr(seglog, name)
