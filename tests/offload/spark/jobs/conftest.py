from __future__ import annotations

from pathlib import Path

import pytest

from tests.offload.spark.jobs.remotes import make_remote


@pytest.fixture(scope="module")
def remote_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a remote that no test of the module changes."""
    url = (tmp_path_factory.mktemp("archive") / "remote").as_uri()
    make_remote(url)
    return url


@pytest.fixture
def own_url(tmp_path: Path) -> str:
    """Return a remote of the test's own."""
    url = (tmp_path / "remote").as_uri()
    make_remote(url)
    return url
