"""Seams of the catalog and of its stores."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock

from catalog import checkpointer
from catalog.format.commit import Checkpoint
from catalog.format.control import Mark, Ref
from catalog.format.ids import Vid
from catalog.local_catalog import LocalCatalog
from catalog.objects.object_store import ObjectStore
from catalog.objects.s3 import S3Store
from catalog.refs.branch import Branches
from catalog.refs.ref_store import RefStore
from catalog.volume import Volumes

__all__ = [
    "client_of",
    "client_that_sends_once",
    "connection_of",
    "databases_from",
    "give_name",
    "list_mark",
    "lock_of_local",
    "misplace",
    "prefix_of",
    "reads_config_of",
    "reads_of",
    "refs_of",
    "rewrite_as_checkpoint",
    "store_of",
]


# ---------------------------------------------------------------- steps of a protocol, one by one


def rewrite_as_checkpoint(volumes: Volumes, vid: Vid, lsn: int, checkpoint: Checkpoint) -> None:
    """Take the step of `make_checkpoint` before the mark. A test stalls after it."""
    checkpointer._rewrite(volumes, vid, lsn, checkpoint)


def list_mark(volumes: Volumes, vid: Vid, mark: Mark) -> None:
    """Take the last step of `make_checkpoint`. A test takes it days after the other."""
    checkpointer._list_mark(volumes, vid, mark)


def give_name(branches: Branches, topic: str, branch: str, ref: Ref, *, now_ms: int) -> object:
    """Give a volume a name, as a rename does. A test does so without the old name, which somebody has deleted."""
    return branches._give("branch rename", topic, branch, lambda found: found or ref, now_ms=now_ms)


def store_of(branches: Branches) -> ObjectStore:
    """Return the store of the branches. A test writes there in the wrong order."""
    return branches._store


def refs_of(branches: Branches) -> RefStore[Ref]:
    """Return the refs below the branches. A test changes one without the check of the boundary."""
    return branches._refs


# ---------------------------------------------------------------- SQLite


def connection_of(local: LocalCatalog) -> sqlite3.Connection:
    """Return the connection of a local catalog. A test dies in a transaction of it, and asks for its pragmas."""
    return local._connection


def lock_of_local(local: LocalCatalog) -> Any:
    """Return the lock of a local catalog. A test checks that no request runs under it."""
    return local._lock


def databases_from(connect: Callable[[Path], Any]) -> AbstractContextManager[object]:
    """Let each local catalog use the connection that `connect` returns. The simulation keeps databases in memory."""
    return mock.patch("catalog.local_catalog._connect", connect)


# ---------------------------------------------------------------- S3


def client_of(store: S3Store) -> Any:
    """Return the boto3 client. A test changes its answers, and counts its requests."""
    return store._client


def client_that_sends_once(store: S3Store) -> Any:
    """Return the boto3 client without retries, which completes uploads. A test changes its answers."""
    return store._once


def reads_of(store: S3Store) -> Any:
    """Return the store's reads through obstore, or None if boto3 reads. A test looks which of the two reads."""
    return store._reads


def reads_config_of(store: S3Store) -> Any:
    """Return the settings with which obstore asks for objects. A test compares them with those of boto3."""
    assert store._reads is not None
    return store._reads._usual[1].config


def prefix_of(store: S3Store) -> str:
    """Return what the store puts before each key. A test checks it without a request."""
    return store._base


def misplace(store: S3Store, prefix: str) -> None:
    """Give the store another prefix, as a defect of its keys would. A test looks whether its recorder notices."""
    store._base = prefix
