"""Test that `import seglog` imports a name when it is first used, and that type checkers see all names."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import seglog


def declared() -> dict[str, str]:
    """Return the module of each name that the block for type checkers imports."""
    tree = ast.parse(Path(seglog.__file__).read_text())
    [block] = [each for each in tree.body if isinstance(each, ast.If) and isinstance(each.test, ast.Name)]
    imports = [each for each in block.body if isinstance(each, ast.ImportFrom)]
    return {name.name: each.module or "" for each in imports for name in each.names}


def test_type_checkers_and_callers_get_the_same_objects() -> None:
    assert sorted(declared()) == sorted(seglog.__all__)
    for name, module in declared().items():
        assert getattr(seglog, name) is getattr(import_module(module), name), name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'seglog' has no attribute 'nonsense'"):
        seglog.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_dir_lists_every_name() -> None:
    assert set(seglog.__all__) <= set(dir(seglog))


def test_records_and_errors_need_no_numpy() -> None:
    code = "import sys, seglog\nseglog.Record, seglog.Gap, seglog.NoSuchTopic\nprint('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
