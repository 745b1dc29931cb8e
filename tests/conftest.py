"""What every test may ask for: the S3 server, a remote of each kind, and no waiting between attempts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.s3_server import s3_endpoint, s3_environment, s3_remote

__all__ = ["no_pauses", "remote", "s3_endpoint", "s3_environment", "s3_remote"]

_LONG = {"promises", "seglog"}
_SOAK_S = 3600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Directories whose files take long go first: of two processes that share the files none is idle at the end.

    What belongs to the soak has an hour, unless it says otherwise.
    """
    items.sort(key=lambda item: item.path.parent.name not in _LONG)
    for item in items:
        if item.get_closest_marker("soak") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_SOAK_S))


@pytest.fixture(params=["file", "s3"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty remote as a user writes it: `file:///path`, then `s3://bucket/prefix`."""
    if request.param == "s3":
        return str(request.getfixturevalue("s3_remote"))
    return (tmp_path / "remote").as_uri()


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the attempts of a request."""
    monkeypatch.setattr("catalog.put_once.backoff_s", lambda _: 0.0)
    monkeypatch.setattr("catalog.change.backoff_s", lambda _: 0.0)
