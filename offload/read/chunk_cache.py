"""A cache of chunks of data objects on the local disk, in their stored form. All readers of a directory share one byte
budget.

    <cache_dir>/seglog-chunks/                       mode 0700
        LOCK                                         held by the process that uses it
        <segment id>-<offset>-<length>               a chunk; the numbers in hexadecimal; mode 0600
        tmp-<random>                                 a chunk that is being written

CACHE-1  The cache checks the length and XXH3 of an entry at every read, against the chunk table of its index object. If
    an entry does not match, the cache logs and drops it, and the reader fetches the chunk again. The cache never
    returns such an entry.
CACHE-2  The cache syncs nothing. If a power cut tears an entry, the entry fails CACHE-1. If a power cut removes an
    entry, the reader fetches the chunk again.
CACHE-3  `admit` makes room before a download begins, so the files never take more than the budget.
    `CachePolicy` decides which chunks stay. Sizes count whole pages of 4 KiB, as disks do.
CACHE-4  The file names alone tell which entries exist, so opening the cache reads no entry. The cache leaves files with
    other names alone.
CACHE-5  One process at a time uses the cache. A second process logs a warning and works without the cache. So does a
    process whose user does not own the directory alone.
CACHE-6  If the disk fails, the cache logs the error and the reader asks the store. Trouble with the disk never fails a
    read.

A chunk may stay here after its bytes were erased elsewhere, until other chunks replace it. An operator who must be sure
removes the directory. That is safe whenever no process uses it.

**The policy** is S3-FIFO, with admission for scans. A scan reads the chunks after a reader's first chunk.

    queue   chunks in it                                              the oldest chunk leaves
    small   a reader asked for the chunk itself, for the first time   to main if it was used again, else out
    main    the chunk was used again, or came back soon after it      to the end of main, once for each use (three at
            left                                                      most), else out
    ghost   names only: chunks that left small, and scanned chunks    out
            that were not admitted

POLICY-1  The policy admits a scanned chunk if its name is in ghost. So it keeps a second scan of data that fits. A
    first scan changes nothing. Neither does a scan of more data than fits, however often it comes.
POLICY-2  Small gets a tenth of the bytes, so a chunk that is used once cannot push out chunks that are used again and
    again.
POLICY-3  Ghost remembers as many bytes as the cache may hold.
POLICY-4  `admit` makes room before a fetch begins. After `admit`, the sizes add up to the limit at most.

The policy does no I/O. Threads must not share one.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections import OrderedDict
from pathlib import Path

from xxhash import xxh3_64_intdigest

from seglog.base.lazy import logger, pattern
from seglog.base.ownership import Owned
from seglog.files.file_system import Files, OsFiles

Name = tuple[bytes, int]
"""The name of a chunk: its segment's id and its offset in the data object."""

_SMALL_SHARE = 10
_LARGEST_SHARE = 4  # a chunk above a quarter of the limit is not kept
_USES_MAX = 3
_log = logger("offload.read.chunk_cache")

_DIRECTORY = "seglog-chunks"
_LOCK = "LOCK"
_TEMPORARY = "tmp-"
_ENTRY = pattern(r"([0-9a-f]{32})-([0-9a-f]{1,16})-([0-9a-f]{1,8})")
_PAGE_BYTES = 4096
_REST_S = 60


class _Admission(list[Name]):
    """The names of the chunks that must leave for an admitted chunk."""


class CachePolicy:
    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._small: OrderedDict[Name, int] = OrderedDict()
        self._main: OrderedDict[Name, int] = OrderedDict()
        self._ghost: OrderedDict[Name, int] = OrderedDict()
        self._uses: dict[Name, int] = {}
        self._small_bytes = 0
        self._main_bytes = 0
        self._ghost_bytes = 0

    @property
    def held_bytes(self) -> int:
        return self._small_bytes + self._main_bytes

    def __contains__(self, name: Name) -> bool:
        return name in self._uses

    def __len__(self) -> int:
        return len(self._uses)

    def use(self, name: Name) -> None:
        if name in self._uses:
            self._uses[name] = min(_USES_MAX, self._uses[name] + 1)

    def restore(self, name: Name, size_bytes: int) -> _Admission:
        """Enter a chunk that was in the cache before a restart."""
        return self._put(name, size_bytes, into_main=True)

    def admit(self, name: Name, size_bytes: int, *, is_scan: bool) -> _Admission | None:
        """Make room for a chunk that is not in the cache. Return None if the cache does not keep it."""
        if size_bytes * _LARGEST_SHARE > self._limit_bytes:
            return None
        is_known = self._leave_ghost(name)
        if is_scan and not is_known:
            self._enter_ghost(name, size_bytes)
            return None
        return self._put(name, size_bytes, into_main=is_known)

    def remove(self, name: Name) -> None:
        if self._uses.pop(name, None) is None:
            return
        if name in self._small:
            self._small_bytes -= self._small.pop(name)
        else:
            self._main_bytes -= self._main.pop(name)

    def _put(self, name: Name, size_bytes: int, *, into_main: bool) -> _Admission:
        gone = _Admission()
        while self._uses and self.held_bytes + size_bytes > self._limit_bytes:
            if self._small and (not self._main or self._small_bytes * _SMALL_SHARE > self._limit_bytes):
                self._pass_small(gone)
            else:
                self._pass_main(gone)
        self._uses[name] = 0
        if into_main:
            self._main[name] = size_bytes
            self._main_bytes += size_bytes
        else:
            self._small[name] = size_bytes
            self._small_bytes += size_bytes
        return gone

    def _pass_small(self, gone: _Admission) -> None:
        name, size_bytes = self._small.popitem(last=False)
        self._small_bytes -= size_bytes
        if self._uses[name]:
            self._uses[name] = 0
            self._main[name] = size_bytes
            self._main_bytes += size_bytes
            return
        del self._uses[name]
        self._enter_ghost(name, size_bytes)
        gone.append(name)

    def _pass_main(self, gone: _Admission) -> None:
        name, size_bytes = self._main.popitem(last=False)
        if self._uses[name]:
            self._uses[name] -= 1
            self._main[name] = size_bytes
            return
        self._main_bytes -= size_bytes
        del self._uses[name]
        gone.append(name)

    def _enter_ghost(self, name: Name, size_bytes: int) -> None:
        self._leave_ghost(name)
        self._ghost[name] = size_bytes
        self._ghost_bytes += size_bytes
        while self._ghost_bytes > self._limit_bytes:
            self._ghost_bytes -= self._ghost.popitem(last=False)[1]

    def _leave_ghost(self, name: Name) -> bool:
        size_bytes = self._ghost.pop(name, None)
        self._ghost_bytes -= size_bytes or 0
        return size_bytes is not None


class NotOurs(Exception):
    """Raised if the directory does not belong to this user alone, so that the cache cannot use it."""


def open_cache(directory: Path, limit_bytes: int, files: Files | None = None) -> ChunkCache | None:
    """Open the cache in `directory`, and create it if needed.

    Returns None if `limit_bytes` is 0, or if the cache cannot be used (CACHE-5, CACHE-6).
    """
    if limit_bytes == 0:
        return None
    try:
        return ChunkCache(directory / _DIRECTORY, limit_bytes, files or OsFiles())
    except BlockingIOError:
        _log.warning("another process uses the chunk cache %s: going without", directory)
    except (OSError, NotOurs) as error:
        _log.warning("cannot use the chunk cache %s, going without: %s", directory, error)
    return None


class ChunkCache(Owned):
    """The chunk cache. Many threads may use it. Only opening raises: `OSError` and `NotOurs`.

    `hits` counts the chunks that `get` returned. `misses` counts the chunks that readers had to fetch.
    """

    def __init__(self, directory: Path, limit_bytes: int, files: Files) -> None:
        self._directory = directory
        self._files = files
        self._policy = CachePolicy(limit_bytes)
        self._lengths: dict[Name, int] = {}
        self._arriving: dict[Name, bytes] = {}
        self._lock = threading.Lock()
        self._retry_at_s = 0.0
        self.hits = self.misses = 0
        _make_private(directory)
        self._lock_fd = files.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        try:
            files.lock(self._lock_fd)
            self._find_entries()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        with self._lock:
            fd, self._lock_fd = self._lock_fd, -1
            if fd >= 0:
                self._files.close(fd)

    def _leave_to_parent(self) -> None:
        if self._lock_fd >= 0:
            self._files.close(self._lock_fd)

    @property
    def keeps(self) -> bool:
        """Return whether the cache is open, and no write to the disk failed within the last minute."""
        return self._lock_fd >= 0 and time.monotonic() >= self._retry_at_s

    @property
    def held_bytes(self) -> int:
        """Return the bytes of the files, plus the room that is reserved for chunks on their way."""
        with self._lock:
            return self._policy.held_bytes

    def has(self, name: Name) -> bool:
        """Return whether the cache should have the chunk. `get` may still return None."""
        with self._lock:
            return name in self._lengths or name in self._arriving

    def get(self, name: Name, length: int, xxh3: int | None) -> bytes | None:
        """Return a chunk of that length and checksum, or None (CACHE-1). Without `xxh3`, its own is behind it."""
        with self._lock:
            self._policy.use(name)
            body = self._arriving.get(name)
            stored_length = self._lengths.get(name)
        seal, own_bytes = b"", 8 if xxh3 is None else 0
        if body is not None and own_bytes:
            body, seal = body[:-own_bytes], body[-own_bytes:]
        elif body is None and stored_length is not None:
            body, seal = self._read(name, stored_length, own_bytes)
        if xxh3 is None:
            xxh3 = int.from_bytes(seal)
        is_hit = body is not None and len(body) == length and xxh3_64_intdigest(body) == xxh3
        with self._lock:
            self.hits += is_hit
        if body is not None and not is_hit:
            _log.warning("%s is damaged: dropped, to be fetched again", self._path(name, stored_length or length))
            self.drop(name)
        return body if is_hit else None

    def admit(self, name: Name, length: int, *, is_scan: bool) -> bool:
        """Make room for a chunk that the caller is about to fetch. Return whether the cache keeps it.

        If the cache keeps it, the caller must call `hand_over` or `drop`.
        """
        with self._lock:
            self.misses += 1
            if name in self._policy or self._lock_fd < 0:
                return False
            gone = self._policy.admit(name, _on_disk(length), is_scan=is_scan)
            paths = [self._forget(other) for other in gone or ()]
        for path in paths:
            if path is not None:
                self._unlink(path)
        return gone is not None

    def hand_over(self, name: Name, body: bytes) -> None:
        """Take the bytes of an admitted chunk. From now on `get` returns them. The caller must call `write` next."""
        with self._lock:
            if name in self._policy:
                self._arriving[name] = body

    def write(self, name: Name, xxh3: int) -> None:
        """Write a handed-over chunk to the disk, if its checksum matches."""
        with self._lock:
            body = self._arriving.get(name)
        if body is None:
            return
        if xxh3_64_intdigest(body) != xxh3:  # the reader finds the damage itself, and fetches the chunk again
            self.drop(name)
            return
        path = self._path(name, len(body))
        if not self._write(path, body):
            self.drop(name)
            return
        with self._lock:
            is_wanted = self._arriving.pop(name, None) is not None and name in self._policy
            if is_wanted:
                self._lengths[name] = len(body)
        if not is_wanted:
            self._unlink(path)

    def drop(self, name: Name) -> None:
        with self._lock:
            self._policy.remove(name)
            path = self._forget(name)
        if path is not None:
            self._unlink(path)

    def _find_entries(self) -> None:
        for file in self._files.list_dir(self._directory):
            match = _ENTRY.fullmatch(file)
            if match is None:
                if file.startswith(_TEMPORARY):
                    self._unlink(self._directory / file)
                continue
            name, length = (bytes.fromhex(match[1]), int(match[2], 16)), int(match[3], 16)
            for evicted in self._policy.restore(name, _on_disk(length)):
                path = self._forget(evicted)
                if path is not None:
                    self._unlink(path)
            self._lengths[name] = length

    def _forget(self, name: Name) -> Path | None:
        """Forget the chunk. Return the path of its file, if it has one, which the caller must delete. The caller holds
        the lock.
        """
        self._arriving.pop(name, None)
        length = self._lengths.pop(name, None)
        return None if length is None else self._path(name, length)

    def _path(self, name: Name, length: int) -> Path:
        return self._directory / f"{name[0].hex()}-{name[1]:x}-{length:x}"

    def _read(self, name: Name, length: int, own_bytes: int) -> tuple[bytes | None, bytes]:
        """Return an entry without its last `own_bytes`, and these. Two reads cost less than a copy of the rest."""
        path = self._path(name, length)
        try:
            fd = self._files.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                body = self._files.pread(fd, length - own_bytes, 0)
                return body, self._files.pread(fd, own_bytes, length - own_bytes) if own_bytes else b""
            finally:
                self._files.close(fd)
        except FileNotFoundError:  # evicted by another thread, or removed by hand
            self.drop(name)
        except OSError as error:
            _log.warning("cannot read %s, dropped: %s", path, error)
            self.drop(name)
        return None, b""

    def _write(self, path: Path, body: bytes) -> bool:
        temporary = self._directory / f"{_TEMPORARY}{os.urandom(8).hex()}"
        try:
            fd = self._files.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
            try:
                self._files.pwrite(fd, body, 0)
            finally:
                self._files.close(fd)
            self._files.rename(temporary, path)
        except OSError as error:
            _log.warning("cannot write %s, not kept: %s", path, error)
            self._retry_at_s = time.monotonic() + _REST_S
            self._unlink(temporary)
            return False
        return True

    def _unlink(self, path: Path) -> None:
        try:
            self._files.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            _log.warning("cannot remove %s: %s", path, error)


def _make_private(directory: Path) -> None:
    directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise NotOurs(f"{directory} is not a directory of this user alone (mode 0700)")


def _on_disk(length: int) -> int:
    return -(-length // _PAGE_BYTES) * _PAGE_BYTES
