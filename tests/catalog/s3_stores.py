"""Stores of S3: with write settings of their own for one test, or shared by the tests of a module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from catalog.objects.s3 import S3Store, WriteSettings
from tests.faults.front import Front

__all__ = ["kept_open", "open_store", "wire"]


@pytest.fixture(scope="module")
def wire(s3_endpoint: str) -> Iterator[Front]:
    """A front before the S3 server. A test restarts it, because making one costs more than its requests."""
    with Front(s3_endpoint) as opened:
        yield opened


@pytest.fixture(scope="module")
def kept_open() -> Iterator[dict[str, Any]]:
    """The stores that the tests of a module share, by the kind of each. They close behind the last test."""
    stores: dict[str, Any] = {}
    yield stores
    for store in stores.values():
        store.close()


@pytest.fixture
def open_store(s3_remote: str) -> Iterator[Callable[..., S3Store]]:
    opened: list[S3Store] = []

    def open_one(**settings: str) -> S3Store:
        opened.append(S3Store(s3_remote, writes=WriteSettings(**settings)))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()
