"""The files behind `catalog.objects.local`: the operations on them, and the parts of an upload.

The operations find, remove, write and make durable. The caller handles `OSError`. A large part of an upload lies where
the object will have it.

    <upload id>/whole.<size>        a file of slots of `size` bytes. Part n has slot n
    <upload id>/<number>.slot       made by the one writer of that slot. It holds the part's tag, size and checksum, as
                                    soon as the part is on disk
    <upload id>/<number>.<tag>      a part with a file of its own

If all parts lie in the slots of one file, that file becomes the object, and no byte is written a second time. Otherwise
the parts are copied into one file, and the copied bytes are compared with the parts' checksums.

PART-1  A slot is written once. A part that is sent again, or differs in size from the others, gets a file of its own.
    A last part that is shorter has a slot too.
PART-2  A writer holds a shared lock on the file of its slot (flock). The file becomes an object under an exclusive
    lock, and only if nothing else has linked it. So no late writer changes an object.
PART-3  A part counts only if its record on disk says what its tag says.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import xxhash

from catalog.errors import InvalidObject
from catalog.format.checksum import Checksum, ChecksumKind, SizedChecksum, joined
from catalog.objects.object_store import PartTag
from seglog.base.dataclasses import dataclass
from seglog.base.lazy import pattern

ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR})
KIND = ChecksumKind.CRC32C
LEAST_SLOT_BYTES = 1 << 20

_WHOLE = "whole."
_SLOT_TAG = pattern(r"slot-([1-9]\d*)-[0-9a-f]{16}")
_CHECK_BYTES = 1 << 20


def walk(directory: Path, above: str, beginning: str, start_after: str) -> Iterator[str]:
    """Yield the keys of files under `directory` whose names begin with `beginning`, in the byte order of whole keys.

    Skip keys up to `start_after`. `above` is the part of the keys before the names. A directory sorts by its name with
    a slash: `a-b` comes before `a/b`.
    """
    try:
        with os.scandir(directory) as entries:
            names = [entry.name + "/" * entry.is_dir() for entry in entries if entry.name[0] != "."]
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in sorted(name for name in names if name.startswith(beginning)):
        key = above + name
        if not name.endswith("/"):
            if key > start_after:
                yield key
        elif key > start_after or start_after.startswith(key):  # else every key below comes too early
            yield from walk(directory / name, key, "", start_after)


def remove(path: Path) -> Path | None:
    """Remove the file. Return its directory; None if there was no file."""
    try:
        path.unlink()
    except OSError as cause:
        if cause.errno not in ABSENT:
            raise
        return None
    return path.parent


def write_all(fd: int, body: bytes | bytearray, offset: int | None = None) -> None:
    """Write `body` at `offset`, or where the descriptor stands."""
    view = memoryview(body)
    while view:
        written = os.write(fd, view) if offset is None else os.pwrite(fd, view, offset + len(body) - len(view))
        view = view[written:]


def sync_dir(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A part, and the place of its bytes. `checksum` is the recorded one. A part with a file of its own has none."""

    number: int
    path: Path
    offset: int
    size: int
    checksum: Checksum | None = None


def own_tag(body: bytes | bytearray) -> str:
    """Return the ETag of an object, or the tag of a part with a file of its own."""
    return xxhash.xxh3_128_hexdigest(body)


def part_path(directory: Path, number: int, tag: str) -> Path:
    """Return the file of a part with a file of its own."""
    return directory / f"{number:05d}.{tag}"


def put_in_slot(directory: Path, number: int, body: bytes | bytearray, checksum: Checksum) -> str | None:
    """Write the part into its slot, and return its tag when it is on disk. None: it needs a file of its own."""
    slot_bytes = _slot_bytes(directory, len(body))
    if slot_bytes is None:
        return None
    try:
        record = os.open(_record_path(directory, number), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return None
    try:
        path = directory / f"{_WHOLE}{slot_bytes}"
        if not _write_slot(path, body, (number - 1) * slot_bytes):
            return None
        tag = f"slot-{slot_bytes}-{os.urandom(8).hex()}"
        write_all(record, _record(tag, len(body), checksum))
        os.fsync(record)
    finally:
        os.close(record)
    sync_dir(directory)
    return tag


def found_part(directory: Path, part: PartTag, key: str) -> StoredPart:
    """Return the part with this tag. Raise `InvalidObject` if the upload has another one, or none."""
    slot = _SLOT_TAG.fullmatch(part.etag)
    try:
        if slot is None:
            path = part_path(directory, part.number, part.etag)
            return StoredPart(part.number, path, 0, path.stat().st_size)
        if _record_path(directory, part.number).read_bytes() == _record(part.etag, part.size, part.checksum):
            slot_bytes = int(slot[1])
            path, offset = directory / f"{_WHOLE}{slot_bytes}", (part.number - 1) * slot_bytes
            return StoredPart(part.number, path, offset, part.size, part.checksum)
    except FileNotFoundError:
        pass
    raise _not_sent(part.number, key)


@contextlib.contextmanager
def whole_file(parts: Sequence[StoredPart]) -> Iterator[tuple[Path, Checksum] | None]:
    """Yield the locked file that consists of these parts, and its checksum. None: there is no such file."""
    end = 0
    for part in parts:
        if part.checksum is None or part.path != parts[0].path or part.offset != end:
            yield None
            return
        end += part.size
    fd = _locked(parts[0].path, end) if parts else None
    if fd is None:
        yield None
        return
    try:
        sums = [SizedChecksum(part.checksum, part.size) for part in parts if part.checksum is not None]
        yield parts[0].path, joined(sums).checksum
    finally:
        os.close(fd)


def join(parts: Sequence[StoredPart], target: Path, key: str) -> Checksum:
    """Write the parts to `target`, one after the other. Return the checksum of their bytes."""
    checksum = Checksum.of(KIND, b"")
    with target.open("wb", buffering=0) as output:
        for part in parts:
            try:
                file = part.path.open("rb", buffering=0)
            except FileNotFoundError:
                raise _not_sent(part.number, key) from None
            with file:
                _copy(file.fileno(), part, output.fileno(), key)
                file.seek(part.offset)
                remaining = part.size
                while remaining:
                    body = file.read(min(_CHECK_BYTES, remaining))
                    if not body:
                        raise _not_sent(part.number, key)
                    checksum = Checksum.of(KIND, body, checksum.value)
                    remaining -= len(body)
        os.fsync(output.fileno())
    return checksum


def _copy(source: int, part: StoredPart, target: int, key: str) -> None:
    copied = 0
    while copied < part.size:
        sent = os.sendfile(target, source, part.offset + copied, part.size - copied)
        if not sent:
            raise _not_sent(part.number, key)
        copied += sent


def _not_sent(number: int, key: str) -> InvalidObject:
    return InvalidObject(key, f"part {number} of its upload is not the one that was sent")


def _slot_bytes(directory: Path, size: int) -> int | None:
    """Return the size of the slots in which a part of `size` bytes may lie, or None."""
    with os.scandir(directory) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(_WHOLE)]
    sizes = [int(name.removeprefix(_WHOLE)) for name in names]
    fitting = min((slot for slot in sizes if slot >= size), default=None)
    return size if fitting is None and size >= LEAST_SLOT_BYTES else fitting


def _record_path(directory: Path, number: int) -> Path:
    return directory / f"{number:05d}.slot"


def _record(tag: str, size: int, checksum: Checksum | None) -> bytes:
    return f"{tag} {size} {checksum}".encode()


def _write_slot(path: Path, body: bytes | bytearray, offset: int) -> bool:
    """Write `body` to its slot, durably. Return False if the file is an object by now."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        ours, current = os.fstat(fd), path.stat()
        if current.st_nlink != 1 or not os.path.samestat(ours, current):
            return False
        write_all(fd, body, offset)
        os.fsync(fd)
    finally:
        os.close(fd)
    return True


def _locked(path: Path, size: int) -> int | None:
    """Return a descriptor that locks the file; None if it has another size, another link, or a writer."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(fd)  # behind the lock: a writer may have ended just before it
        if status.st_nlink == 1 and status.st_size == size:
            return fd
    os.close(fd)
    return None
