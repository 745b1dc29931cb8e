"""Syncs that a test spares, because a test cannot cut real power, and the room of large files.

The proofs about power simulate the disk. Everywhere else a real sync proves nothing, and a run makes many thousands of
them. The processes that a test starts sync for real.

The kernel has to clear each page of a file in memory that it allocates: 64 MiB, the default of a WAL file, take 25 ms.
So a large file gets its size without its pages. A small one gets them, as the tests of a full disk need it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from catalog.local_catalog import LocalCatalog
from seglog.files.directory import in_memory_kind

if TYPE_CHECKING:
    import pytest

__all__ = ["spare_pages", "spare_syncs", "take_memory_for_a_disk", "use_real_syncs"]

_FSYNC, _FDATASYNC = os.fsync, os.fdatasync
_ALLOCATE = os.posix_fallocate
_LARGE_BYTES = 16 << 20
_PREPARE = LocalCatalog._prepare


def spare_syncs(patch: pytest.MonkeyPatch) -> None:
    """Replace each sync by a check of the descriptor, and large allocations by a size. SQLite syncs nothing either."""
    patch.setattr(os, "fsync", _check)
    patch.setattr(os, "fdatasync", _check)
    spare_pages(patch.setattr)
    patch.setattr(LocalCatalog, "_prepare", _prepare_without_syncs)


def use_real_syncs(patch: pytest.MonkeyPatch) -> None:
    """Sync for real: for the tests of the modules that call the system."""
    patch.setattr(os, "fsync", _FSYNC)
    patch.setattr(os, "fdatasync", _FDATASYNC)
    patch.setattr(os, "posix_fallocate", _ALLOCATE)
    patch.setattr(LocalCatalog, "_prepare", _PREPARE)


def spare_pages(put: Callable[[Any, str, Any], None]) -> None:
    """Let a large file have its size without its pages, with `put` as `setattr`."""
    put(os, "posix_fallocate", _allocate)


def take_memory_for_a_disk(patch: pytest.MonkeyPatch, place: Path) -> None:
    """Let a log warn of no directory in memory that is on the mount of `place`, where those of the tests are."""
    device = place.stat().st_dev

    def kind_of(path: Path) -> str | None:
        with contextlib.suppress(OSError):
            if path.stat().st_dev == device:
                return None
        return in_memory_kind(path)

    patch.setattr("seglog.open_engine.in_memory_kind", kind_of)


def _check(fd: int) -> None:
    os.fstat(fd)


def _allocate(fd: int, offset: int, length: int) -> None:
    if length < _LARGE_BYTES:
        _ALLOCATE(fd, offset, length)
    elif os.fstat(fd).st_size < offset + length:
        os.ftruncate(fd, offset + length)


def _prepare_without_syncs(catalog: LocalCatalog) -> None:
    _PREPARE(catalog)
    catalog._connection.execute("PRAGMA synchronous = OFF")
