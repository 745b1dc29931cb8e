"""The port to everything below a prefix: also keys that seglog did not make, old versions and uploads.

A store (`catalog.objects.object_store`) takes only keys that seglog makes. The deletion of a tenant takes all keys,
because the tenant owns its prefix. Implementations: `LocalPrefix`, for a directory that stands in the place of a
bucket's prefix, and `catalog.objects.s3_prefix`.

PREFIX-1  An implementation adds the prefix to every key, as a store does. No request leaves the prefix.
PREFIX-2  `take` says which bytes a delete gave back. On a versioned bucket a delete only adds a marker.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from catalog.errors import AccessDenied, NotOffered, StoreUnreachable
from catalog.objects.local import OWN_FOLDERS, LocalStore
from seglog.base.dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Held:
    """An object: its key below the prefix, and its size in bytes."""

    key: str
    size: int


@dataclass(frozen=True, slots=True)
class Freed:
    """The bytes of deleted objects. The `unreferenced` ones stay in the bucket, behind delete markers."""

    reclaimed_bytes: int = 0
    unreferenced_bytes: int = 0

    def __add__(self, other: Freed) -> Freed:
        return Freed(self.reclaimed_bytes + other.reclaimed_bytes, self.unreferenced_bytes + other.unreferenced_bytes)


@dataclass(frozen=True, slots=True)
class OldVersions:
    """The versions and the delete markers below the prefix, and the bytes of the versions."""

    versions: int
    markers: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Upload:
    """A multipart upload that is neither completed nor aborted."""

    key: str
    upload_id: str


class WholePrefix(Protocol):
    """Methods raise `AccessDenied`, `NoSuchBucket` and `StoreUnreachable`."""

    @property
    def url(self) -> str: ...

    def held(self, prefix: str = "") -> Iterator[Held]:
        """Yield all objects whose keys begin with `prefix`, also while the caller deletes them."""

    def take(self, found: Sequence[Held]) -> Freed:
        """Delete the objects. An absent key is no error. After an error, any of them may still exist."""

    def old_versions(self) -> OldVersions:
        """Count the versions below the prefix. Raises `AccessDenied` for a role that may not list them."""

    def uploads(self) -> Iterator[Upload]:
        """Yield all uploads. Raises `AccessDenied` for a role that may not list them."""

    def abort(self, upload: Upload) -> None:
        """Abort an upload. One that is gone is no error."""

    def clear(self) -> None:
        """Remove the rest of an empty prefix, such as directories and locks."""

    def close(self) -> None: ...


class LocalPrefix:
    """A `WholePrefix`. A link below the directory is an object: its target stays.

    A link in the place of the directory itself is an error, because everything behind it may be another tenant's.
    """

    def __init__(self, path: Path) -> None:
        self._root = path.absolute()
        self._store = LocalStore(path)

    @property
    def url(self) -> str:
        return self._root.as_uri()

    def held(self, prefix: str = "") -> Iterator[Held]:
        try:
            yield from self._found(prefix)
        except OSError as error:
            self._refuse(error)

    def _found(self, prefix: str) -> Iterator[Held]:
        self._check_no_link()
        for folder, folders, names in os.walk(self._root, onerror=self._refuse):
            links = [name for name in folders if Path(folder, name).is_symlink()]
            if folder == str(self._root):
                folders[:] = [name for name in folders if name not in OWN_FOLDERS]
            for name in (*names, *links):
                path = Path(folder, name)
                key = path.relative_to(self._root).as_posix()
                if key.startswith(prefix):
                    yield Held(key, path.lstat().st_size)

    def _check_no_link(self) -> None:
        if self._root.is_symlink():
            hint = f"name the directory itself: --remote {self._root.resolve().as_uri()}"
            raise StoreUnreachable(self.url, "a link stands where its directory should be", hint)

    def take(self, objects: Sequence[Held]) -> Freed:
        for stored in objects:
            try:
                (self._root / stored.key).unlink(missing_ok=True)
            except OSError as error:
                self._refuse(error)
        return Freed(sum(stored.size for stored in objects), 0)

    def old_versions(self) -> OldVersions:
        raise NotOffered(self.url, "a directory has no versions")

    def uploads(self) -> Iterator[Upload]:
        for key, upload_id in self._store.list_uploads(""):
            yield Upload(key, upload_id)

    def abort(self, upload: Upload) -> None:
        self._store.abort_upload(upload.key, upload.upload_id)  # type: ignore[arg-type]  # the store made the key

    def clear(self) -> None:
        """Remove the store's own folders, then the empty ones. A file that came meanwhile stays, and is an error."""
        import shutil

        self._check_no_link()
        try:
            for name in OWN_FOLDERS:
                if (self._root / name).is_dir():
                    shutil.rmtree(self._root / name)
            for folder, _, _ in os.walk(self._root, topdown=False, onerror=self._refuse):
                Path(folder).rmdir()
        except OSError as error:
            self._refuse(error)

    def close(self) -> None:
        self._store.close()

    def _refuse(self, error: OSError) -> None:
        """Raise the error of the port. A file or folder that is gone is no error."""
        if isinstance(error, FileNotFoundError):
            return
        kind = AccessDenied if isinstance(error, PermissionError) else StoreUnreachable
        raise kind(self.url, str(error)) from error
