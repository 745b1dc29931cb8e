"""A disk in memory behind the port to the file system. It knows which changes are durable.

    SimulatedDisk   files, folders, and the changes to them that no sync has made durable yet
    Moment          the disk at one point of a run: the durable content, and the changes on their way, in order
    Image           a tree of files as a power cut may leave it; a disk begins from one

A power cut may do anything that POSIX does not forbid, which is more than most file systems do:

SIMDISK-1  A change to a file is durable after `datasync` of the file, an entry of a folder after `sync_dir` of the
    folder.
SIMDISK-2  Any subset of the other changes may be there, in the order they were made. So a rename may be there without
    the data, the data without the rename, or a write behind a truncation that never happened.
SIMDISK-3  A write may be there in part, sector by sector, or only as a larger size that reads as zeros. A write to an
    empty range may end at any byte. A sector that had data has the old or the new data.
SIMDISK-4  A rename within a folder is there or not, never half.
SIMDISK-5  After a failed `datasync` the file shows data that the disk does not have. A second `datasync` succeeds
    without it.

A process that dies loses none of its changes: `SimulatedDisk.resume` continues with the changes still on their way.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from xxhash import xxh3_128

from seglog.files.file_system import Files
from seglog.format.frame import HEADER

__all__ = ["Change", "Image", "Moment", "SimulatedDisk"]

SECTOR_BYTES = 512
_SMALL_BYTES = 1024
_ROOT = 0


@dataclass(frozen=True, slots=True)
class Write:
    node: int
    offset: int
    data: bytes

    def apply(self, body: bytearray) -> None:
        end = self.offset + len(self.data)
        body.extend(bytes(max(0, end - len(body))))
        body[self.offset : end] = self.data


@dataclass(frozen=True, slots=True)
class Resize:
    """A change of a file's size. With `only_grow`, a longer file keeps its size."""

    node: int
    length: int
    only_grow: bool = False

    def apply(self, body: bytearray) -> None:
        if not self.only_grow:
            del body[self.length :]
        body.extend(bytes(max(0, self.length - len(body))))


@dataclass(frozen=True, slots=True)
class Enter:
    """A change of a folder's entry. `node` None removes the name."""

    folder: int
    name: str
    node: int | None

    def apply(self, entries: dict[str, int]) -> None:
        if self.node is None:
            entries.pop(self.name, None)
        else:
            entries[self.name] = self.node


@dataclass(frozen=True, slots=True)
class Move:
    folder: int
    source: str
    target: str
    node: int

    def apply(self, entries: dict[str, int]) -> None:
        entries.pop(self.source, None)
        entries[self.target] = self.node


Change: TypeAlias = Write | Resize | Enter | Move


@dataclass(frozen=True)
class Image:
    """A tree of files by absolute path. A value of None is a folder."""

    tree: Mapping[str, bytes | None]

    @cached_property
    def digest(self) -> bytes:
        state = xxh3_128()
        for path, body in sorted(self.tree.items()):
            state.update(f"{path}\n{'folder' if body is None else len(body)}\n".encode())
            state.update(body or b"")
        return state.digest()


@dataclass(frozen=True)
class Moment:
    """`files` and `folders` are the durable content of each node, `pending` the later changes. All are immutable."""

    files: Mapping[int, bytes]
    folders: Mapping[int, Mapping[str, int]]
    pending: tuple[Change, ...]

    def image(self, kept: Sequence[Change]) -> Image:
        bodies: dict[int, bytearray] = {}
        folders: dict[int, dict[str, int]] = {}
        for change in kept:
            if isinstance(change, (Write, Resize)):
                change.apply(bodies.setdefault(change.node, bytearray(self.files[change.node])))
            else:
                change.apply(folders.setdefault(change.folder, dict(self.folders[change.folder])))
        tree: dict[str, bytes | None] = {}
        todo = [("", _ROOT)]
        while todo:
            path, folder = todo.pop()
            for name, node in folders.get(folder, self.folders[folder]).items():
                if node in self.folders:
                    tree[f"{path}/{name}"] = None
                    todo.append((f"{path}/{name}", node))
                else:
                    tree[f"{path}/{name}"] = bytes(bodies[node]) if node in bodies else self.files[node]
        return Image(tree)

    def images(self, chance: random.Random, subsets: int) -> Iterator[Image]:
        """Yield the images that a power cut may leave now; many are equal.

        Of the pairs of changes, try up to half of `subsets`: each pair alone, and all changes but the pair.
        """
        pending = self.pending
        for count in range(len(pending) + 1):
            yield self.image(pending[:count])
        for index in range(len(pending)):
            yield self.image((*pending[:index], *pending[index + 1 :]))
            yield self.image(pending[index : index + 1])
        pairs = list(itertools.combinations(range(len(pending)), 2))
        for first, second in chance.sample(pairs, min(subsets // 2, len(pairs))):
            yield self.image((pending[first], pending[second]))
            yield self.image([change for at, change in enumerate(pending) if at not in (first, second)])
        if pending and isinstance(pending[-1], Write):
            for part in _torn(pending[-1], is_fresh=self._is_fresh(pending[-1])):
                yield self.image((*pending[:-1], part))
        for _ in range(subsets if len(pending) > 1 else 0):
            yield self.image([part for change in pending if chance.random() < 0.5 for part in _sectors(change, chance)])

    def _is_fresh(self, last: Write) -> bool:
        body = bytearray(self.files[last.node])
        for change in self.pending[:-1]:
            if isinstance(change, (Write, Resize)) and change.node == last.node:
                change.apply(body)
        return not any(body[last.offset : last.offset + len(last.data)])


class SimulatedDisk(Files):
    """A disk that is safe for many threads. Each effect calls `note`, if there is one, with the disk locked."""

    def __init__(self, image: Image | None = None, note: Callable[[SimulatedDisk], None] | None = None) -> None:
        self.note = note
        self.pending: list[Change] = []
        self._mutex = threading.RLock()
        self._next = _ROOT + 1
        self._files: dict[int, bytearray] = {}
        self._durable_files: dict[int, bytes] = {}
        self._folders: dict[int, dict[str, int]] = {_ROOT: {}}
        self._durable_folders: dict[int, dict[str, int]] = {}
        self._open: dict[int, int] = {}
        self._locks: dict[int, int] = {}
        self._next_fd = 1000
        for path, body in sorted(image.tree.items()) if image is not None else ():
            *parents, name = path.split("/")[1:]
            self._folders[self._walk(parents, path)][name] = self._new_node(body)
        self._durable_folders = {folder: dict(entries) for folder, entries in self._folders.items()}

    @classmethod
    def resume(cls, moment: Moment, note: Callable[[SimulatedDisk], None] | None = None) -> SimulatedDisk:
        """Return the disk after the process died at that moment. The system still has the changes on their way."""
        disk = cls(None, note)
        disk._next = 1 + max([*moment.files, *moment.folders])
        disk._durable_files = dict(moment.files)
        disk._durable_folders = {folder: dict(entries) for folder, entries in moment.folders.items()}
        disk._files = {node: bytearray(body) for node, body in moment.files.items()}
        disk._folders = {folder: dict(entries) for folder, entries in moment.folders.items()}
        for change in moment.pending:
            disk._apply(change)
        return disk

    def moment(self) -> Moment:
        with self._mutex:
            return Moment(dict(self._durable_files), dict(self._durable_folders), tuple(self.pending))

    def after_power_cut(self) -> Image:
        """Return the image without any unsynced change."""
        return self.moment().image(())

    def after_kill(self) -> Image:
        """Return the image that the system shows, as after a kill of the process."""
        with self._mutex:
            files = {node: bytes(body) for node, body in self._files.items()}
            return Moment(files, self._folders, ()).image(())

    def lose(self, fd: int) -> bool:
        """Drop the changes to the file of `fd`, as a failing datasync does (SIMDISK-5). Return True if data is lost."""
        with self._mutex:
            node = self._node(fd)
            lost = any(isinstance(change, Write) and change.node == node for change in self.pending)
            self.pending = [change for change in self.pending if _file_of(change) != node]
            return lost

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        """Open a file. A folder is opened by its name only, to lock it."""
        with self._mutex:
            folder, name = self._folder(path), path.name
            node = self._folders[folder].get(name)
            if node is None:
                if not flags & os.O_CREAT:
                    raise _error(errno.ENOENT, path)
                node = self._new_node(b"")
                self._change(Enter(folder, name, node))
            elif node in self._folders and not flags & os.O_DIRECTORY:
                raise _error(errno.EISDIR, path)
            elif flags & os.O_TRUNC and self._files[node]:
                self._change(Resize(node, 0))
            self._next_fd += 1
            self._open[self._next_fd] = node
            return self._next_fd

    def close(self, fd: int) -> None:
        with self._mutex:
            node = self._open.pop(fd)
            if self._locks.get(node) == fd:
                del self._locks[node]

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        with self._mutex:
            return bytes(self._files[self._node(fd)][offset : offset + length])

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
        with self._mutex:
            self._change(Write(self._node(fd), offset, bytes(data)))

    def pwritev(self, fd: int, pieces: Sequence[bytes], offset: int) -> None:
        self.pwrite(fd, b"".join(pieces), offset)

    def allocate(self, fd: int, length: int) -> None:
        with self._mutex:
            self._change(Resize(self._node(fd), length, only_grow=True))

    def truncate(self, fd: int, length: int) -> None:
        with self._mutex:
            self._change(Resize(self._node(fd), length))

    def size(self, fd: int) -> int:
        with self._mutex:
            return len(self._files[self._node(fd)])

    def datasync(self, fd: int) -> None:
        with self._mutex:
            node = self._node(fd)
            changes = [change for change in self.pending if _file_of(change) == node]
            if changes:
                body = bytearray(self._durable_files[node])
                for change in changes:
                    assert isinstance(change, (Write, Resize))
                    change.apply(body)
                self._durable_files[node] = bytes(body)
                self.pending = [change for change in self.pending if _file_of(change) != node]
            self._note()

    def rename(self, source: Path, target: Path) -> None:
        with self._mutex:
            folder = self._folder(source)
            assert folder == self._folder(target), "a rename from folder to folder is not simulated"
            node = self._folders[folder].get(source.name)
            if node is None:
                raise _error(errno.ENOENT, source)
            self._change(Move(folder, source.name, target.name, node))

    def unlink(self, path: Path) -> None:
        with self._mutex:
            folder = self._folder(path)
            if path.name not in self._folders[folder]:
                raise _error(errno.ENOENT, path)
            self._change(Enter(folder, path.name, None))

    def make_dir(self, path: Path) -> None:
        with self._mutex:
            folder = self._folder(path)
            node = self._folders[folder].get(path.name)
            if node is None:
                self._change(Enter(folder, path.name, self._new_node(None)))
            elif node not in self._folders:
                raise _error(errno.EEXIST, path)

    def remove_dir(self, path: Path) -> None:
        with self._mutex:
            if self._folders[self._folder_at(path)]:
                raise _error(errno.ENOTEMPTY, path)
            self._change(Enter(self._folder(path), path.name, None))

    def sync_dir(self, path: Path) -> None:
        with self._mutex:
            folder = self._folder_at(path)
            entries = dict(self._durable_folders[folder])
            for change in self.pending:
                if isinstance(change, (Enter, Move)) and change.folder == folder:
                    change.apply(entries)
            self._durable_folders[folder] = entries
            self.pending = [
                change for change in self.pending if isinstance(change, (Write, Resize)) or change.folder != folder
            ]
            self._note()

    def list_dir(self, path: Path) -> list[str]:
        with self._mutex:
            return sorted(self._folders[self._folder_at(path)])

    def is_dir(self, path: Path) -> bool:
        try:
            with self._mutex:
                self._folder_at(path)
        except OSError:
            return False
        return True

    def identity(self, path: Path) -> tuple[int, int] | None:
        try:
            with self._mutex:
                *parents, name = _names(path) or ("",)
                if not name:
                    return 0, _ROOT
                node = self._folders[self._walk(parents, path)].get(name)
        except OSError:
            return None
        return None if node is None else (0, node)

    def lock(self, fd: int) -> None:
        with self._mutex:
            if self._locks.setdefault(self._node(fd), fd) != fd:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def _change(self, change: Change) -> None:
        self._apply(change)
        self._note()

    def _apply(self, change: Change) -> None:
        if isinstance(change, (Write, Resize)):
            change.apply(self._files[change.node])
        else:
            change.apply(self._folders[change.folder])
        self.pending.append(change)

    def _note(self) -> None:
        if self.note is not None:
            self.note(self)

    def _new_node(self, body: bytes | None) -> int:
        node = self._next
        self._next += 1
        if body is None:
            self._folders[node] = {}
            self._durable_folders[node] = {}
        else:
            self._files[node] = bytearray(body)
            self._durable_files[node] = body
        return node

    def _node(self, fd: int) -> int:
        try:
            return self._open[fd]
        except KeyError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None

    def _folder(self, path: Path) -> int:
        """Return the folder that contains `path`."""
        return self._walk(_names(path)[:-1], path)

    def _folder_at(self, path: Path) -> int:
        """Return the folder that `path` names."""
        return self._walk(_names(path), path)

    def _walk(self, names: Sequence[str], path: Path | str) -> int:
        folder = _ROOT
        for name in names:
            node = self._folders[folder].get(name)
            if node is None:
                raise _error(errno.ENOENT, path)
            if node not in self._folders:
                raise _error(errno.ENOTDIR, path)
            folder = node
        return folder


def _names(path: Path) -> list[str]:
    """Return the names on the way to `path`. There are no links, so `..` simply removes a name."""
    text = str(path)
    if ".." in text:
        text = os.path.normpath(text)
    return text.split("/")[1:] if text != "/" else []


def _file_of(change: Change) -> int | None:
    return change.node if isinstance(change, (Write, Resize)) else None


def _torn(write: Write, *, is_fresh: bool) -> Iterator[Change]:
    """Yield first parts of the write: up to the end of each sector, and zeros of the full size.

    A small fresh write is also cut at each length of a frame's header, and before its last byte.
    """
    end = write.offset + len(write.data)
    cuts = set(range((write.offset // SECTOR_BYTES + 1) * SECTOR_BYTES, end, SECTOR_BYTES))
    if is_fresh and len(write.data) <= _SMALL_BYTES:
        cuts.update(range(write.offset + 1, min(end, write.offset + HEADER.size + 1)))
        cuts.add(end - 1)
    for cut in sorted(cuts):
        yield Write(write.node, write.offset, write.data[: cut - write.offset])
    yield Resize(write.node, end, only_grow=True)


def _sectors(change: Change, chance: random.Random) -> Iterator[Change]:
    """Yield the whole change, or a random subset of the sectors of a write."""
    if not isinstance(change, Write) or chance.random() < 0.5:
        yield change
        return
    begin, end = change.offset, change.offset + len(change.data)
    while begin < end:
        stop = min(end, (begin // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if chance.random() < 0.5:
            yield Write(change.node, begin, change.data[begin - change.offset : stop - change.offset])
        begin = stop


def _error(number: int, path: Path | str) -> OSError:
    return OSError(number, os.strerror(number), str(path))
