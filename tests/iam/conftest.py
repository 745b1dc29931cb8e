from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import pytest

from tests.iam.matrix import Cell, Scene, cells
from tests.iam.site import Site, running_site

__all__ = ["seen", "site"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that ask MinIO, but in `make test-iam`, which skips them with the reason."""
    if "TESTS_MC" in os.environ:
        return
    asks_minio = {item for item in items if "site" in getattr(item, "fixturenames", ())}
    config.hook.pytest_deselected(items=list(asks_minio))
    items[:] = [item for item in items if item not in asks_minio]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("minio")) as site:
        yield site


@pytest.fixture(scope="session", params=["users", "sessions"])
def seen(request: pytest.FixtureRequest, site: Site) -> Mapping[Cell, bool]:
    """Return what MinIO answered in each cell of the matrix: to users, then to sessions with session policies."""
    scene = Scene(site, site.user if request.param == "users" else site.session_of)
    return {cell: scene.is_allowed(cell) for cell in cells()}
