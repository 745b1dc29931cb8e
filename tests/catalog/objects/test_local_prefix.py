"""Test everything below a directory that stands in the place of a bucket's prefix."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from catalog.errors import StoreUnreachable
from catalog.objects.local_prefix import LocalPrefix


def test_a_folder_that_cannot_be_listed_is_an_error_and_not_empty(tmp_path: Path) -> None:
    (tmp_path / "acme").mkdir()
    folder = os.open(tmp_path / "acme", os.O_RDONLY)
    for _ in range(17):  # the kernel takes no path of more than 4,096 bytes
        os.mkdir("x" * 250, dir_fd=folder)
        below = os.open("x" * 250, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    with closing(LocalPrefix(tmp_path / "acme")) as place, pytest.raises(StoreUnreachable, match="too long"):
        list(place.held())


def test_a_prefix_without_a_directory_is_empty(tmp_path: Path) -> None:
    with closing(LocalPrefix(tmp_path / "acme")) as place:
        assert list(place.held()) == []
