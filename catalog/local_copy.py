"""A look at a local catalog that changes nothing beside it, also while somebody writes there: a private copy.

SQLite itself makes files beside a database in WAL mode, also for a reader. So the database and its WAL are copied, as
they are when two looks in a row find the same, and the copy is what is opened: SQLite recovers it from its WAL.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path

from catalog.errors import LocalCatalogUnavailable

__all__ = ["Copy", "copy_aside"]

_TRIES = 100


class Copy:
    """The directory `name`. It goes with this object, or with `cleanup`, in the process that made it only."""

    def __init__(self) -> None:
        self.name = tempfile.mkdtemp(prefix="seglog-")
        self.cleanup = weakref.finalize(self, _remove, self.name, os.getpid())


def copy_aside(path: Path) -> Copy:
    """A directory with a copy of the database at `path` under its name; without one if there is none.

    Raises `LocalCatalogUnavailable` if it cannot be read, or never stays the same long enough.
    """
    try:
        before = _bodies(path)
        for _ in range(_TRIES):
            after = _bodies(path)
            if after == before:
                return _made(path.name, after)
            before = after
    except OSError as cause:
        raise LocalCatalogUnavailable(str(path), str(cause)) from cause
    raise LocalCatalogUnavailable(str(path), "it changes all the time")


def _bodies(path: Path) -> dict[str, bytes]:
    """Of the database and its WAL. The WAL first: what a checkpoint takes out of it is in the other one then."""
    found: dict[str, bytes] = {}
    for suffix in ("-wal", ""):
        try:
            found[suffix] = path.with_name(path.name + suffix).read_bytes()
        except FileNotFoundError:
            continue
    return found


def _made(name: str, bodies: dict[str, bytes]) -> Copy:
    made = Copy()
    for suffix, body in bodies.items():
        Path(made.name, name + suffix).write_bytes(body)
    return made


def _remove(directory: str, maker: int) -> None:
    if os.getpid() == maker:
        shutil.rmtree(directory)
