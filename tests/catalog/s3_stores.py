"""Stores of S3 with write settings of their own, for one test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from catalog.objects.s3 import S3Store, WriteSettings

__all__ = ["open_store"]


@pytest.fixture
def open_store(s3_remote: str) -> Iterator[Callable[..., S3Store]]:
    opened: list[S3Store] = []

    def open_one(**settings: str) -> S3Store:
        opened.append(S3Store(s3_remote, writes=WriteSettings(**settings)))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()
