"""The public names of the package and of its modules."""

from __future__ import annotations

import importlib
import pkgutil

import catalog


def test_every_module_names_what_it_offers_in_order() -> None:
    for info in pkgutil.walk_packages(catalog.__path__, "catalog."):
        if info.name != "catalog.schema_pb2" and not info.ispkg:
            module = importlib.import_module(info.name)
            assert all(hasattr(module, name) for name in module.__all__), info.name
            assert len(set(module.__all__)) == len(module.__all__), info.name


def test_the_package_offers_what_it_imports_and_nothing_else() -> None:
    assert len(set(catalog.__all__)) == len(catalog.__all__)
    for name in catalog.__all__:
        assert hasattr(catalog, name), name
