"""Syncs that a test spares, because a test cannot cut real power.

The proofs about power simulate the disk. Everywhere else a real sync proves nothing, and a run makes many thousands of
them. The processes that a test starts sync for real.
"""

from __future__ import annotations

import os

import pytest

from catalog.local import LocalCatalog

__all__ = ["spare_syncs", "use_real_syncs"]

_FSYNC, _FDATASYNC = os.fsync, os.fdatasync
_PREPARE = LocalCatalog._prepare


def spare_syncs(patch: pytest.MonkeyPatch) -> None:
    """Replace each sync by a check of the descriptor. SQLite syncs nothing either."""
    patch.setattr(os, "fsync", _check)
    patch.setattr(os, "fdatasync", _check)
    patch.setattr(LocalCatalog, "_prepare", _prepare_without_syncs)


def use_real_syncs(patch: pytest.MonkeyPatch) -> None:
    """Sync for real: for the tests of the modules that call the system."""
    patch.setattr(os, "fsync", _FSYNC)
    patch.setattr(os, "fdatasync", _FDATASYNC)
    patch.setattr(LocalCatalog, "_prepare", _PREPARE)


def _check(fd: int) -> None:
    os.fstat(fd)


def _prepare_without_syncs(catalog: LocalCatalog) -> None:
    _PREPARE(catalog)
    catalog._connection.execute("PRAGMA synchronous = OFF")
