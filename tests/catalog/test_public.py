"""The public names of the package and of its modules."""

from __future__ import annotations

import catalog


def test_the_package_offers_what_it_imports_and_nothing_else() -> None:
    assert len(set(catalog.__all__)) == len(catalog.__all__)
    for name in catalog.__all__:
        assert hasattr(catalog, name), name
