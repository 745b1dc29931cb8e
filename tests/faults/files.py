"""Faults of a file system, by wrapping its port: crashes between operations, errors of the nth one, power cuts.

    CrashingFiles   the process dies before its kth effect, or in the middle of it; earlier writes are all there
    FailingFiles    the kth effect raises an OSError, once or from then on
    FailingCalls    the kth call of the port, reads too, raises any given error; once or from then on
    PowerCutFiles   knows which bytes are durable, and builds the directory as a power cut could leave it

An effect is an operation that changes the disk; reads do not count. The wrappers stack: a crash over a power cut.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seglog.files.file_system import Files, OsFiles
from tests.faults.disk import SimulatedDisk

__all__ = ["CrashingFiles", "FailingCalls", "FailingFiles", "PowerCutFiles", "SimulatedCrash", "UnsyncedFiles"]

SECTOR_BYTES = 512


class SimulatedCrash(BaseException):
    """The process is dead. The class is no Exception, so that no `except Exception` handles it."""


class UnsyncedFiles(OsFiles):
    """The real file system without syncs. It is much faster, and enough for a test that cuts no real power."""

    def datasync(self, fd: int) -> None:
        pass

    def sync_dir(self, path: Path) -> None:
        pass


class Effects(Files):
    """Forward every call, and call `effect` before each operation that changes the disk."""

    def __init__(self, inner: Files) -> None:
        self.inner = inner
        self.effects = 0

    def effect(self, name: str) -> None:
        """Override this. `effects` already counts this effect."""

    def torn(self, fd: int, data: bytes, offset: int) -> None:
        """Override this. `Effects` calls it before a write, after `effect`."""

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        if flags & (os.O_CREAT | os.O_TRUNC):
            self._count("open")
        else:
            self._check()
        return self.inner.open(path, flags, mode)

    def close(self, fd: int) -> None:
        self.inner.close(fd)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        self._check()
        return self.inner.pread(fd, length, offset)

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
        self._count("pwrite")
        self.torn(fd, bytes(data), offset)
        self.inner.pwrite(fd, data, offset)

    def pwritev(self, fd: int, pieces: Sequence[bytes], offset: int) -> None:
        self._count("pwritev")
        self.torn(fd, b"".join(pieces), offset)
        self.inner.pwritev(fd, pieces, offset)

    def allocate(self, fd: int, length: int) -> None:
        self._count("allocate")
        self.inner.allocate(fd, length)

    def truncate(self, fd: int, length: int) -> None:
        self._count("truncate")
        self.inner.truncate(fd, length)

    def size(self, fd: int) -> int:
        self._check()
        return self.inner.size(fd)

    def datasync(self, fd: int) -> None:
        self._count("datasync")
        self.inner.datasync(fd)

    def rename(self, source: Path, target: Path) -> None:
        self._count("rename")
        self.inner.rename(source, target)

    def unlink(self, path: Path) -> None:
        self._count("unlink")
        self.inner.unlink(path)

    def make_dir(self, path: Path) -> None:
        self._count("make_dir")
        self.inner.make_dir(path)

    def remove_dir(self, path: Path) -> None:
        self._count("remove_dir")
        self.inner.remove_dir(path)

    def sync_dir(self, path: Path) -> None:
        self._count("sync_dir")
        self.inner.sync_dir(path)

    def list_dir(self, path: Path) -> list[str]:
        self._check()
        return self.inner.list_dir(path)

    def is_dir(self, path: Path) -> bool:
        self._check()
        return self.inner.is_dir(path)

    def identity(self, path: Path) -> tuple[int, int] | None:
        self._check()
        return self.inner.identity(path)

    def lock(self, fd: int) -> None:
        self._check()
        self.inner.lock(fd)

    def lock_shared(self, fd: int) -> None:
        self._check()
        self.inner.lock_shared(fd)

    def check(self) -> None:
        """Override this. `Effects` calls it before each operation that is no effect."""

    def _check(self) -> None:
        self.check()

    def _count(self, name: str) -> None:
        self.check()
        self.effects += 1
        self.effect(name)


class CrashingFiles(Effects):
    """Die before effect `at` (from 1). With `tear`, a write that is hit has written its first half.

    A dead process does nothing more, so every later operation raises too. Only closing a file works, as the kernel does
    it.
    """

    def __init__(self, inner: Files, at: int, *, tear: bool = False) -> None:
        super().__init__(inner)
        self.at = at
        self.tear = tear
        self.has_crashed = False

    def effect(self, name: str) -> None:
        if self.effects == self.at and not (self.tear and name in ("pwrite", "pwritev")):
            self._die()

    def torn(self, fd: int, data: bytes, offset: int) -> None:
        if self.effects == self.at:
            self.inner.pwrite(fd, data[: len(data) // 2], offset)
            self._die()

    def check(self) -> None:
        if self.has_crashed:
            raise SimulatedCrash

    def _die(self) -> None:
        self.has_crashed = True
        raise SimulatedCrash


class FailingFiles(Effects):
    """Raise `OSError(error_number)` at effect `at` (from 1). With `for_good`, raise it at every later effect too.

    `only` narrows this to effects of those names; other effects do not count then. A write that fails has written its
    first half. If `at` is 0, no effect fails any more.
    """

    def __init__(
        self, inner: Files, at: int, error_number: int, *, for_good: bool = False, only: Sequence[str] = ()
    ) -> None:
        super().__init__(inner)
        self.at = at
        self.error_number = error_number
        self.for_good = for_good
        self.only = only
        self.failures = 0
        self.counted = 0
        self._fails_write = False

    def effect(self, name: str) -> None:
        if self.only and name not in self.only:
            return
        self.counted += 1
        if self.at and (self.counted == self.at or (self.for_good and self.counted > self.at)):
            self.failures += 1
            if name in ("pwrite", "pwritev"):
                self._fails_write = True
            else:
                raise OSError(self.error_number, os.strerror(self.error_number))

    def torn(self, fd: int, data: bytes, offset: int) -> None:
        if self._fails_write:
            self._fails_write = False
            self.inner.pwrite(fd, data[: len(data) // 2], offset)
            raise OSError(self.error_number, os.strerror(self.error_number))


class FailingCalls(Effects):
    """Raise the error of `make` at call `at` (from 1). With `for_good`, raise it at every later call too.

    Closing a file never fails. A write that fails has written its first half. If the disk below is simulated, a
    datasync that fails loses the data that it had to write; `lost` lists these files. `kinds` names each call, and
    `failed` is the first call that was hit. If `at` is 0, no call fails.
    """

    def __init__(self, inner: Files, at: int, make: Callable[[], BaseException], *, for_good: bool = False) -> None:
        super().__init__(inner)
        self.at = at
        self.make = make
        self.for_good = for_good
        self.kinds: list[str] = []
        self.failed: str | None = None
        self.lost: list[Path] = []
        self._paths: dict[int, Path] = {}

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        fd = super().open(path, flags, mode)
        self._paths[fd] = path
        return fd

    def datasync(self, fd: int) -> None:
        try:
            super().datasync(fd)
        except BaseException:
            if isinstance(self.inner, SimulatedDisk) and self.inner.lose(fd):
                self.lost.append(self._paths[fd])
            raise

    def effect(self, name: str) -> None:
        self.kinds[-1] = name
        if name not in ("pwrite", "pwritev"):
            self._fail_if_hit()

    def torn(self, fd: int, data: bytes, offset: int) -> None:
        try:
            self._fail_if_hit()
        except BaseException:
            self.inner.pwrite(fd, data[: len(data) // 2], offset)
            raise

    def check(self) -> None:
        self.kinds.append("read")

    def _check(self) -> None:
        super()._check()
        self._fail_if_hit()

    def _fail_if_hit(self) -> None:
        calls = len(self.kinds)
        if self.at and (calls == self.at or (self.for_good and calls > self.at)):
            self.failed = self.failed or self.kinds[-1]
            raise self.make()


@dataclass(eq=False)
class _Inode:
    """`durable` is the content at the last datasync. `changes` came after it, and each of them may be lost."""

    current: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    changes: list[tuple[int, bytes] | int] = field(default_factory=list)

    def write(self, data: bytes, offset: int) -> None:
        self.resize(max(len(self.current), offset + len(data)), is_change=False)
        self.current[offset : offset + len(data)] = data
        self.changes.append((offset, data))

    def resize(self, length: int, *, is_change: bool = True) -> None:
        if length < len(self.current):
            del self.current[length:]
        self.current.extend(bytes(length - len(self.current)))
        if is_change:
            self.changes.append(length)

    def sync(self) -> None:
        self.durable = bytes(self.current)
        self.changes.clear()

    def after_power_cut(self, chance: random.Random | None) -> bytes:
        """Return the content after a power cut.

        With `chance`, any subset of the sectors of each unsynced write is there. Each change of size is there, or not.
        """
        image = bytearray(self.durable)
        for change in self.changes if chance else ():
            assert chance is not None
            if isinstance(change, int):
                if chance.random() < 0.5:
                    del image[change:]
                    image.extend(bytes(change - len(image)))
                continue
            offset, data = change
            for begin, end in _sectors(offset, offset + len(data)):
                if chance.random() < 0.5:
                    image.extend(bytes(max(0, end - len(image))))
                    image[begin:end] = data[begin - offset : end - offset]
        return bytes(image)


class PowerCutFiles(Effects):
    """Forward to `inner`, and keep in memory which part of the tree under `root` is durable.

    The tree that the constructor finds is durable.
    """

    def __init__(self, inner: Files, root: Path) -> None:
        super().__init__(inner)
        self.root = root
        self._inodes: dict[int, _Inode] = {}
        self._names: dict[Path, _Inode | None] = {}
        self._durable_names: dict[Path, _Inode | None] = {}
        for path in root.rglob("*"):
            body = None if path.is_dir() else path.read_bytes()
            self._names[path] = None if body is None else _Inode(bytearray(body), body)
        self._durable_names.update(self._names)
        self._moves: list[tuple[Path, Path, _Inode | None]] = []  # not durable yet; None: a directory

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        fd = super().open(path, flags, mode)
        if flags & os.O_DIRECTORY:
            return fd
        inode = self._names.get(path)
        if inode is None:
            inode = self._names[path] = _Inode()
        if flags & os.O_TRUNC:
            inode.resize(0)
        self._inodes[fd] = inode
        return fd

    def close(self, fd: int) -> None:
        self._inodes.pop(fd, None)
        super().close(fd)

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
        super().pwrite(fd, data, offset)
        self._inodes[fd].write(bytes(data), offset)

    def pwritev(self, fd: int, pieces: Sequence[bytes], offset: int) -> None:
        super().pwritev(fd, pieces, offset)
        self._inodes[fd].write(b"".join(pieces), offset)

    def allocate(self, fd: int, length: int) -> None:
        super().allocate(fd, length)
        inode = self._inodes[fd]
        inode.resize(max(length, len(inode.current)))

    def truncate(self, fd: int, length: int) -> None:
        super().truncate(fd, length)
        self._inodes[fd].resize(length)

    def datasync(self, fd: int) -> None:
        super().datasync(fd)
        self._inodes[fd].sync()

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        self._moves.append((source, target, self._names[source]))
        _move(self._names, source, target)

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        del self._names[path]

    def make_dir(self, path: Path) -> None:
        super().make_dir(path)
        self._names.setdefault(path, None)

    def remove_dir(self, path: Path) -> None:
        super().remove_dir(path)
        del self._names[path]

    def sync_dir(self, path: Path) -> None:
        super().sync_dir(path)
        for move in [move for move in self._moves if move[0].parent == path]:
            if move[2] is None:
                _move(self._durable_names, move[0], move[1])
            self._moves.remove(move)
        for name in [name for name in self._durable_names if name.parent == path and name not in self._names]:
            del self._durable_names[name]
        for name, inode in self._names.items():
            if name.parent == path:
                self._durable_names[name] = inode

    def after_power_cut(self, target: Path, seed: int | None = None) -> None:
        """Build under `target` the tree after a power cut: nothing unsynced; with a seed, some unsynced changes too."""
        chance = None if seed is None else random.Random(seed)
        names = dict(self._durable_names)
        moving = {path for move in self._moves for path in move[:2]}
        for before, after, inode in self._moves if chance else ():
            assert chance is not None
            if chance.random() < 0.5:
                _move(names, before, after)
                if inode is not None:
                    names[after] = inode
            elif inode is not None and chance.random() < 0.5:
                names[before] = inode
        for name in sorted({*names, *self._names}) if chance else ():
            assert chance is not None
            if moving & {name, *name.parents}:
                continue
            if names.get(name, self) is not self._names.get(name, self) and chance.random() < 0.5:
                if name in self._names:
                    names[name] = self._names[name]
                else:
                    del names[name]
        target.mkdir()
        for name in sorted(names):
            path = target / name.relative_to(self.root)
            inode = names[name]
            if name == self.root or not path.parent.is_dir():
                continue
            if inode is None:
                path.mkdir()
            else:
                path.write_bytes(inode.after_power_cut(chance))


def _move(names: dict[Path, _Inode | None], source: Path, target: Path) -> None:
    """Move a file, or a directory with its whole content."""
    for name in [name for name in names if name == source or source in name.parents]:
        names[target / name.relative_to(source)] = names.pop(name)


def _sectors(begin: int, end: int) -> list[tuple[int, int]]:
    """Return the bytes [begin, end), cut at sector boundaries."""
    cuts = [begin, *range((begin // SECTOR_BYTES + 1) * SECTOR_BYTES, end, SECTOR_BYTES), end]
    return [(first, second) for first, second in itertools.pairwise(cuts) if first < second]
