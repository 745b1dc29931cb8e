"""What the package offers, and the order of its layers."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import catalog

LAYERS = [line.split()[1:] for line in (catalog.__doc__ or "").partition("before it:")[2].splitlines() if line.strip()]


def test_every_module_names_what_it_offers_in_order() -> None:
    for info in pkgutil.walk_packages(catalog.__path__, "catalog."):
        if info.name != "catalog.schema_pb2":
            module = importlib.import_module(info.name)
            assert all(hasattr(module, name) for name in module.__all__), info.name
            assert len(set(module.__all__)) == len(module.__all__), info.name


def test_the_package_offers_what_it_imports_and_nothing_else() -> None:
    assert len(set(catalog.__all__)) == len(catalog.__all__)
    for name in catalog.__all__:
        assert hasattr(catalog, name), name


def test_modules_import_only_layers_before_their_own_and_neighbours() -> None:
    layer_of = {module: number for number, layer in enumerate(LAYERS) for module in layer}
    root = Path(catalog.__path__[0])
    assert set(layer_of) == {path.stem for path in root.glob("[a-z]*.py")} - {"schema_pb2"} | {"objects"}
    for path in root.rglob("[a-z]*.py"):
        if path.stem == "schema_pb2":
            continue
        own = layer_of["objects" if path.parent.name == "objects" else path.stem]
        for imported in re.findall(r"^from catalog\.(\w+)", path.read_text(), re.M):
            assert layer_of[imported] <= own, f"{path.name} imports {imported}"
