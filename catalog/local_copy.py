"""A private copy of an SQLite database, for a reader that changes nothing beside the original.

SQLite makes files beside a database in WAL mode, even for a reader, and another process may write there meanwhile. So
this module reads the database and its WAL until two reads in a row find the same. It writes them to a private
directory, and the reader opens that copy. SQLite recovers the copy from its WAL.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path

import xxhash

from catalog.errors import LocalCatalogUnavailable

_TRIES = 100
_PIECE_BYTES = 1 << 20


class Copy:
    """The directory `name`. Only the process that made it removes it, by `cleanup` or at the end of this object."""

    def __init__(self) -> None:
        # The modules tempfile and shutil take as long to import as a copy does.
        places = (os.environ.get("TMPDIR"), "/tmp", "/var/tmp", ".")  # noqa: S108 - nobody else may look into ours
        for place in filter(None, places):
            self.name = os.path.abspath(f"{place}/seglog-{os.urandom(16).hex()}")
            try:
                os.mkdir(self.name, 0o700)
                break
            except OSError:
                if place == ".":
                    raise
        self.cleanup = weakref.finalize(self, _remove, self.name, os.getpid())


def copy_aside(path: Path) -> Copy:
    """Return a directory with a copy of the database at `path` under its name, or an empty one if there is no database.

    Raise `LocalCatalogUnavailable` if the database cannot be read, or never stays the same long enough.
    """
    try:
        copy = Copy()
        before = _read(path, None)
        for _ in range(_TRIES):
            after = _read(path, Path(copy.name))
            if after == before:
                return copy
            before = after
    except OSError as cause:
        raise LocalCatalogUnavailable(str(path), str(cause)) from cause
    raise LocalCatalogUnavailable(str(path), "it changes all the time")


def _read(path: Path, into: Path | None) -> dict[str, bytes]:
    """Return the digests of the database and its WAL, and copy both into the directory `into`, if it is given.

    The WAL comes first: a checkpoint moves content from the WAL to the database.
    """
    digests: dict[str, bytes] = {}
    for name in (f"{path.name}-wal", path.name):
        copy = None if into is None else into / name
        try:
            digests[name] = _read_file(path.with_name(name), copy)
        except FileNotFoundError:
            if copy is not None:
                copy.unlink(missing_ok=True)
    return digests


def _read_file(path: Path, copy: Path | None) -> bytes:
    """Return the digest of a file, and copy it, piece by piece: it may be large."""
    digest = xxhash.xxh3_128()
    with path.open("rb", buffering=0) as source, open(os.devnull if copy is None else copy, "wb") as target:
        while piece := source.read(_PIECE_BYTES):
            digest.update(piece)
            target.write(piece)
    return digest.digest()


def _remove(directory: str, maker: int) -> None:
    if os.getpid() == maker:
        for name in os.listdir(directory):
            os.unlink(f"{directory}/{name}")
        os.rmdir(directory)
