"""The files of an export's target. A target is a directory, a prefix of a bucket, or another place that Arrow knows.

PLACE-1  A file appears under its name when it is whole. Until then, a directory has it under a name with a dot in
    front, and Spark passes over it.
PLACE-2  A bucket is reached as a remote is: credentials, region and endpoint come from the AWS environment. Each
    object carries the job's KMS key.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from catalog.errors import InvalidRemote
from catalog.format.keys import check_key
from catalog.objects.base import ObjectStore
from catalog.objects.settled_writes import put_once
from offload.errors import InvalidOption
from offload.spark.stores import open_remote

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

__all__ = ["TargetFiles", "final_name", "open_target"]

_TEMPORARY = re.compile(r"(.*/)?\.([^/]+)\.[0-9a-f]{16}", re.ASCII)


class TargetFiles(Protocol):
    """Names are relative to the target, with slashes."""

    def names(self, folder: str = "") -> list[str]:
        """Return the names of all files below a folder, also of files that are not whole."""
        ...

    def read(self, name: str) -> bytes: ...

    def put(self, name: str, body: bytes) -> None:
        """Create or replace a file."""
        ...

    def put_new(self, name: str, body: bytes) -> bool:
        """Create a file. Return whether it has these bytes then: another run may have been faster."""
        ...

    def delete(self, names: Sequence[str]) -> None: ...

    def close(self) -> None: ...


def open_target(url: str, kms_key_id: str = "") -> TargetFiles:
    """Open a place. Raises `InvalidOption` if it cannot be one."""
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    try:
        if url.startswith("s3://"):
            return _BucketFiles(open_remote(url, kms_key_id))
        return _ArrowFiles(*FileSystem.from_uri(url))
    except (pa.ArrowInvalid, OSError, InvalidRemote) as error:
        hint = "use file:///an/absolute/path or s3://bucket/prefix"
        raise InvalidOption("target", f"{url!r} cannot be opened: {error}", hint=hint) from error


def final_name(name: str) -> str:
    """Return the name that a file gets when it is whole."""
    found = _TEMPORARY.fullmatch(name)
    return f"{found[1] or ''}{found[2]}" if found else name


class _ArrowFiles:
    """Files of a file system of Arrow. One run at a time uses it, so `put_new` need not be atomic."""

    def __init__(self, system: FileSystem, root: str) -> None:
        self._system = system
        self._root = root.rstrip("/")

    def names(self, folder: str = "") -> list[str]:
        from pyarrow.fs import FileSelector, FileType

        selector = FileSelector(self._path(folder), allow_not_found=True, recursive=True)
        found = self._system.get_file_info(selector)
        return [info.path.removeprefix(f"{self._root}/") for info in found if info.type == FileType.File]

    def read(self, name: str) -> bytes:
        with self._system.open_input_stream(self._path(name)) as stream:
            return bytes(stream.read())

    def put(self, name: str, body: bytes) -> None:
        folder, slash, last = name.rpartition("/")
        temporary = self._path(f"{folder}{slash}.{last}.{os.urandom(8).hex()}")
        self._system.create_dir(self._path(folder), recursive=True)
        with self._system.open_output_stream(temporary) as stream:
            stream.write(body)
        self._system.move(temporary, self._path(name))

    def put_new(self, name: str, body: bytes) -> bool:
        from pyarrow.fs import FileType

        if self._system.get_file_info(self._path(name)).type != FileType.NotFound:
            return False
        self.put(name, body)
        return True

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self._system.delete_file(self._path(name))

    def close(self) -> None:
        """Do nothing: no file stays open between calls."""

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}".rstrip("/")


class _BucketFiles:
    """Objects of a bucket. They appear whole, so no name is temporary."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def names(self, folder: str = "") -> list[str]:
        return list(self._store.list(f"{folder}/" if folder else ""))

    def read(self, name: str) -> bytes:
        return self._store.get(check_key(name))

    def put(self, name: str, body: bytes) -> None:
        self._store.put(check_key(name), body, {})

    def put_new(self, name: str, body: bytes) -> bool:
        return put_once(self._store, check_key(name), body) == body

    def delete(self, names: Sequence[str]) -> None:
        self._store.delete_many([check_key(name) for name in names])

    def close(self) -> None:
        self._store.close()
