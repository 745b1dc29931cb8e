"""Rows of a local catalog: a handle, one with a pending commit, and an attempt with every field."""

from __future__ import annotations

from catalog.local_catalog import Attempt, Handle
from tests.catalog.samples import sid, vid

__all__ = ["FULL", "HANDLE", "PENDING"]

HANDLE = Handle("orders@main", vid(1), 3)
PENDING = Handle("orders@half", vid(2), 3, pending_lsn=4, pending_body=b"\x00commit")
FULL = Attempt(sid(2), "orders@half", vid(2), 21, 40, "PREPARED", 6, "upload", 4, published_at_ms=7)
