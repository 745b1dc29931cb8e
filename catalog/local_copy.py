"""A private copy of a local catalog.

Its reader changes nothing beside the original, even while another process writes there.

SQLite makes files beside a database in WAL mode, even for a reader. So this module reads the database and its WAL until
two reads in a row find the same. It writes them to a private directory, and the reader opens that copy. SQLite recovers
the copy from its WAL.
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
    """The directory `name`. Only the process that made it removes it, by `cleanup` or at the end of this object."""

    def __init__(self) -> None:
        self.name = tempfile.mkdtemp(prefix="seglog-")
        self.cleanup = weakref.finalize(self, _remove, self.name, os.getpid())


def copy_aside(path: Path) -> Copy:
    """Return a directory with a copy of the database at `path` under its name, or an empty one if there is no database.

    Raise `LocalCatalogUnavailable` if the database cannot be read, or never stays the same long enough.
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
    """Read the database and its WAL. The WAL comes first: a checkpoint moves content from the WAL to the database."""
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
