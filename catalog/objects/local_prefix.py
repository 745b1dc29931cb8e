"""Everything below a directory that stands in the place of a bucket's prefix: the port of `catalog.objects.prefix`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from catalog.errors import AccessDenied, NotOffered, StoreUnreachable
from catalog.objects.local import OWN_FOLDERS, LocalStore
from catalog.objects.prefix import Freed, Held, OldVersions, Upload

__all__ = ["LocalPrefix"]


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

    def take(self, found: Sequence[Held]) -> Freed:
        for each in found:
            try:
                (self._root / each.key).unlink(missing_ok=True)
            except OSError as error:
                self._refuse(error)
        return Freed(sum(each.size for each in found), 0)

    def old_versions(self) -> OldVersions:
        raise NotOffered(self.url, "a directory has no versions")

    def uploads(self) -> Iterator[Upload]:
        for key, upload_id in self._store.list_uploads(""):
            yield Upload(key, upload_id)

    def abort(self, upload: Upload) -> None:
        self._store.abort_upload(upload.key, upload.upload_id)  # type: ignore[arg-type]  # the store made the key

    def clear(self) -> None:
        """Remove the store's own folders, then the empty ones. A file that came meanwhile stays, and is an error."""
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
