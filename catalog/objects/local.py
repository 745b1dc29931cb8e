"""Objects in a directory. An object is the file of its key. All other files lie beside the objects, under a dot.

    <root>/<key>                        an object
    <root>/.metadata/<key>              JSON, written before the object: `metadata`, and `crc32c` of the object
    <root>/.temporary/<random>          a file on its way to its key
    <root>/.multipart/<upload id>/      `upload` (JSON: key, metadata), and the parts (catalog.objects.local_files)
    <root>/.locks/<2 hex digits>        empty; the hash of a key gives its lock. No lock file is ever removed

DIR-1  An object appears by link(2) (`put_new`) or rename(2), after its bytes are on disk. The call returns after the
    directory entry is on disk too. A crash leaves only temporaries. No listing shows them, because no key begins with a
    dot.
DIR-2  The store raises `KeyTaken` and `KeyChanged` only after the found state is on disk. So the state that a caller
    reads back stays.
DIR-3  The store compares the parts' checksums with those on record, or with the bytes that it joins. `head` gives the
    checksum that they join to. `put_new` and `swap` record none.
DIR-4  The first write makes the root. The directory above the root must exist, as a bucket must.
DIR-5  A call that replaces or removes an object holds its lock by flock(2). The lock ends with the process. Threads and
    processes take turns, so nothing comes between the comparison of `swap` and its rename. `put_new` and readers need
    no lock.
DIR-6  An etag is the hash of the content. A caller that must tell a state from an equal earlier one puts something new
    into it.

A directory cannot hold both `a` and `a/b`, as S3 can. `catalog.format.keys` makes no such keys.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import json
import os
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import xxhash

from catalog.errors import (
    AccessDenied,
    InvalidObject,
    KeyChanged,
    KeyTaken,
    NoSuchBucket,
    NoSuchObject,
    OutcomeUnknown,
    StoreUnreachable,
)
from catalog.format.checksum import Checksum
from catalog.format.keys import Key, check_key, check_prefix
from catalog.objects.local_files import (
    ABSENT,
    KIND,
    StoredPart,
    found_part,
    join,
    own_tag,
    part_path,
    put_in_slot,
    remove,
    sync_dir,
    walk,
    whole_file,
    write_all,
)
from catalog.objects.object_store import ObjectInfo, PartTag, WithETag, checksum_of_parts
from seglog.base.lazy import pattern

_LOCKS = ".locks"
_METADATA = ".metadata"
_MULTIPART = ".multipart"
_TEMPORARY = ".temporary"
OWN_FOLDERS = frozenset({_LOCKS, _METADATA, _MULTIPART, _TEMPORARY})
_UPLOAD_ID = pattern(r"[0-9a-f]{32}")
_DURABLE_MAX = 4096  # directories that a store knows to be durable
_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class LocalStore:
    """An `ObjectStore` over a local file system that has hard links. Any number of processes may share it."""

    def __init__(self, path: Path) -> None:
        self._root = path.absolute()
        self._durable: set[str] = set()
        self._durable_lock = threading.Lock()

    @property
    def url(self) -> str:
        return self._root.as_uri()

    @property
    def is_ordered(self) -> bool:
        return False

    def put_new(self, key: Key, body: bytes) -> None:
        target = self._path(key)
        with self._errors(key), self._temporary(body) as temporary:
            self._make_durable_dir(target.parent)
            try:
                os.link(temporary, target)
            except FileExistsError:
                sync_dir(target.parent)
                raise KeyTaken(key) from None
            _settle(key, target)

    def put(self, key: Key, body: bytes | bytearray, metadata: Mapping[str, str]) -> None:
        target = self._path(key)
        with self._errors(key), self._turn(key):
            self._put_metadata(key, metadata, Checksum.of(KIND, body))
            self._replace(target, body)

    def get(self, key: Key) -> bytes:
        with self._errors(key, reading=True):
            return self._path(key).read_bytes()

    def get_with_etag(self, key: Key) -> WithETag:
        body = self.get(key)
        return WithETag(body, own_tag(body))

    def swap(self, key: Key, body: bytes, etag: str) -> None:
        target = self._path(key)
        with self._errors(key), self._turn(key):
            if self._etag_now(target) != etag:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    sync_dir(target.parent)
                raise KeyChanged(key)
            with self._temporary(body) as temporary:
                # Metadata goes first: a crash between the two leaves the object without a checksum, never a wrong one.
                if (directory := remove(self._root / _METADATA / key)) is not None:
                    sync_dir(directory)
                temporary.rename(target)
            _settle(key, target)

    def get_range(self, key: Key, start: int, length: int) -> bytes:
        if length == 0:
            return b""
        with self._errors(key, reading=True), self._path(key).open("rb") as file:
            file.seek(start)
            body = file.read(length)
        if len(body) != length:
            raise InvalidObject(key, f"it ends at byte {start + len(body)}, {start + length} were expected")
        return body

    def head(self, key: Key) -> ObjectInfo:
        path = self._path(key)
        with self._errors(key, reading=True):
            status = path.stat()
            if stat.S_ISDIR(status.st_mode):
                raise NoSuchObject(key)
            return ObjectInfo(status.st_size, *self._metadata(key))

    def list(self, prefix: str, *, limit: int | None = None, start_after: str = "") -> Iterator[str]:
        check_prefix(prefix)
        directory, _, name = prefix.rpartition("/")
        with self._errors(prefix):
            self._check_place()
            keys = walk(self._root / directory, directory and directory + "/", name, start_after)
            yield from itertools.islice(keys, limit)

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        for key in self.list(prefix):
            with self._errors(key):
                try:
                    size = (self._root / key).stat().st_size
                except FileNotFoundError:  # the object was deleted since the listing
                    continue
            yield key, size

    def delete(self, key: Key) -> None:
        self.delete_many([key])

    def delete_many(self, keys: Sequence[Key]) -> None:
        paths = {key: self._path(key) for key in keys}
        with self._errors("the keys to delete"):
            self._check_place()
            if not self._root.is_dir():
                return
            removed = [self._remove_object(key, path) for key, path in paths.items()]
            # Sync the removal of objects first, then the removal of metadata.
            for directories in zip(*removed, strict=True):
                for directory in {synced for synced in directories if synced is not None}:
                    sync_dir(directory)

    def create_upload(self, key: Key, metadata: Mapping[str, str]) -> str:
        check_key(key)
        upload_id = os.urandom(16).hex()
        with self._errors(key):
            body = json.dumps({"key": key, "metadata": dict(metadata)}, sort_keys=True).encode()
            self._replace(self._root / _MULTIPART / upload_id / "upload", body)
        return upload_id

    def put_part(self, key: Key, upload_id: str, number: int, body: bytes | bytearray) -> PartTag:
        checksum = Checksum.of(KIND, body)
        with self._errors(key):
            directory, _ = self._upload(key, upload_id)
            try:
                tag = put_in_slot(directory, number, body, checksum)
            except FileNotFoundError:  # the upload was completed or aborted just now
                raise NoSuchObject(f"upload {upload_id} of {key}") from None
            if tag is None:
                tag = own_tag(body)
                self._replace(part_path(directory, number, tag), body)
        return PartTag(number, tag, len(body), checksum)

    def complete_upload(self, key: Key, upload_id: str, parts: Sequence[PartTag]) -> None:
        target = self._path(key)
        with self._errors(key):
            directory, metadata = self._upload(key, upload_id)
            stored = [found_part(directory, part, key) for part in parts]
            with self._joined(stored, key) as (temporary, checksum):
                expected = checksum_of_parts(parts)
                if expected is not None and expected.checksum != checksum:
                    raise InvalidObject(key, "its joined parts differ from the bytes that were sent")
                self._make_durable_dir(target.parent)
                with self._turn(key):
                    self._put_metadata(key, metadata, checksum)
                    temporary.rename(target)
                    _settle(key, target)
            self._drop_upload(directory)

    def abort_upload(self, key: Key, upload_id: str) -> None:
        with self._errors(key), contextlib.suppress(NoSuchObject):
            directory, _ = self._upload(key, upload_id)
            self._drop_upload(directory)

    def list_uploads(self, prefix: str) -> Iterator[tuple[Key, str]]:
        check_prefix(prefix)
        uploads: list[tuple[Key, str]] = []
        with self._errors(prefix):
            self._check_place()
            root = self._root / _MULTIPART
            for directory in root.iterdir() if root.is_dir() else ():
                with contextlib.suppress(NoSuchObject):  # aborted just now, or not yet begun
                    uploads.append((self._read_upload(directory)[0], directory.name))
        return iter(sorted((key, upload_id) for key, upload_id in uploads if key.startswith(prefix)))

    def time_ms(self) -> int | None:
        """Return the mtime of a file that was just written, in ms. None if the store may not write.

        The mtime is rounded down to a second. On a network file system, it is the time of the file server.
        """
        try:
            with self._errors("the store's time"), self._temporary(b"?") as temporary:
                return int(temporary.stat().st_mtime) * 1000
        except AccessDenied:
            return None

    def close(self) -> None:
        """Do nothing: no file stays open between calls."""

    def _path(self, key: Key) -> Path:
        return self._root / check_key(key)

    @contextlib.contextmanager
    def _errors(self, key: str, *, reading: bool = False) -> Iterator[None]:
        try:
            yield
        except OSError as cause:
            if reading and cause.errno in ABSENT:
                self._check_place()
                raise NoSuchObject(key) from None
            self._raise(cause)

    def _raise(self, cause: OSError) -> NoReturn:
        reason = f"{cause.strerror} ({cause.filename})" if cause.filename else str(cause)
        if cause.errno in _DENIED:
            raise AccessDenied(self.url, reason, "check its owner and mode, and whether its disk is mounted read-only")
        self._check_place()
        raise StoreUnreachable(self.url, reason, "check the disk and its mount")

    def _check_place(self) -> None:
        if not self._root.parent.is_dir():
            raise NoSuchBucket(str(self._root.parent), "directory")
        if self._root.exists() and not self._root.is_dir():
            hint = "move the file away, or correct the remote URL"
            raise StoreUnreachable(self.url, "a file stands where its directory should be", hint)

    @contextlib.contextmanager
    def _turn(self, key: Key) -> Iterator[None]:
        """Hold the lock of `key`, alone among all threads and processes. Other keys may share the lock."""
        directory = self._root / _LOCKS
        self._make_durable_dir(directory)
        path = directory / xxhash.xxh3_64_hexdigest(key.encode())[:2]
        # Each turn opens the file: two threads that share an open file would both hold its lock.
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def _joined(self, parts: Sequence[StoredPart], key: Key) -> Iterator[tuple[Path, Checksum]]:
        """Yield a file that consists of `parts`, on disk, and its checksum. Remove the file as `_temporary` does."""
        with whole_file(parts) as joined:
            if joined is None:
                with self._temporary(b"") as temporary:
                    yield temporary, join(parts, temporary, key)
                return
            file, checksum = joined
            path = self._temporary_path()
            os.link(file, path)
            try:
                yield path, checksum
            finally:
                path.unlink(missing_ok=True)

    def _temporary_path(self) -> Path:
        directory = self._root / _TEMPORARY
        self._make_durable_dir(directory)
        return directory / os.urandom(16).hex()

    @contextlib.contextmanager
    def _temporary(self, body: bytes | bytearray) -> Iterator[Path]:
        """Yield a file with `body`, on disk. Remove the file at the end unless the caller renamed it."""
        path = self._temporary_path()
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(fd, "wb", buffering=0) as file:
                write_all(file.fileno(), body)
                os.fsync(file.fileno())
            yield path
        finally:
            path.unlink(missing_ok=True)

    def _replace(self, target: Path, body: bytes | bytearray) -> None:
        with self._temporary(body) as temporary:
            self._make_durable_dir(target.parent)
            temporary.rename(target)
            sync_dir(target.parent)

    def _make_durable_dir(self, directory: Path) -> None:
        """Make `directory` under the root.

        This process syncs the entry of each level that it does not know, even if another process made it.
        """
        with self._durable_lock:
            is_durable = os.fspath(directory) in self._durable
        if is_durable and directory.is_dir():
            return
        if directory != self._root:
            self._make_durable_dir(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
        sync_dir(directory.parent)
        with self._durable_lock:
            if len(self._durable) >= _DURABLE_MAX:  # to forget them costs syncs only
                self._durable.clear()
            self._durable.add(os.fspath(directory))

    def _etag_now(self, path: Path) -> str | None:
        """Return the etag of the object at `path`; None if there is no object."""
        try:
            return own_tag(path.read_bytes())
        except OSError as cause:
            if cause.errno not in ABSENT:
                raise
            self._check_place()
            return None

    def _remove_object(self, key: Key, path: Path) -> tuple[Path | None, Path | None]:
        """Remove the object and its metadata. Return the directory of each; None for a file that was absent."""
        with self._turn(key):
            return remove(path), remove(self._root / _METADATA / key)

    def _put_metadata(self, key: Key, metadata: Mapping[str, str], checksum: Checksum) -> None:
        body = json.dumps({"metadata": dict(metadata), KIND.value: str(checksum)}, sort_keys=True)
        self._replace(self._root / _METADATA / key, body.encode())

    def _metadata(self, key: Key) -> tuple[dict[str, str], Checksum | None]:
        try:
            stored = json.loads((self._root / _METADATA / key).read_bytes())
            return _string_map(stored["metadata"]), Checksum.parse(KIND, stored[KIND.value])
        except (FileNotFoundError, NotADirectoryError):
            return {}, None
        except (KeyError, TypeError, ValueError):
            raise InvalidObject(f"{_METADATA}/{key}", "it is not the JSON that was written") from None

    def _upload(self, key: Key, upload_id: str) -> tuple[Path, dict[str, str]]:
        check_key(key)
        directory = self._root / _MULTIPART / upload_id
        if not _UPLOAD_ID.fullmatch(upload_id):
            raise NoSuchObject(f"upload {upload_id} of {key}")
        upload_key, metadata = self._read_upload(directory)
        if upload_key != key:
            raise NoSuchObject(f"upload {upload_id} of {key}")
        return directory, metadata

    def _read_upload(self, directory: Path) -> tuple[Key, dict[str, str]]:
        try:
            upload = json.loads((directory / "upload").read_bytes())
            return check_key(upload["key"]), _string_map(upload["metadata"])
        except (FileNotFoundError, NotADirectoryError):
            raise NoSuchObject(f"upload {directory.name}") from None
        except (KeyError, TypeError, ValueError):
            raise InvalidObject(
                f"{_MULTIPART}/{directory.name}/upload", "it is not the JSON that was written"
            ) from None

    def _drop_upload(self, directory: Path) -> None:
        # The file `upload` goes first, durably. After a crash, the parts that are left belong to no upload.
        import shutil

        (directory / "upload").unlink(missing_ok=True)
        sync_dir(directory)
        shutil.rmtree(directory, ignore_errors=True)


def _settle(key: Key, target: Path) -> None:
    """Make the directory entry of `target` durable. Raise `OutcomeUnknown` if that fails."""
    try:
        sync_dir(target.parent)
    except OSError as cause:
        raise OutcomeUnknown(key, str(cause)) from cause


def _string_map(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("not an object")  # noqa: TRY004 - callers treat every malformed file alike
    return {str(name): str(text) for name, text in value.items()}
