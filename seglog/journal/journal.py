"""An append-only journal of items of any size, beside the log, for an application's own state.

Items lie in sections. A section is pruned as a whole.

    from seglog.journal.journal import Journal

    with Journal("state") as journal:
        offset = journal.append(1, b"data")
        journal.sync(1)
        assert journal.get(1, offset) == b"data"
        for item in journal.replay():
            print(item.section, item.offset, item.data)
        journal.prune(2)

JOURNAL-1  After `sync` or `close` returns, the items survive a power cut. A power cut may take later items, from the
    end of the section backwards.
JOURNAL-2  An opening cuts a torn tail, and nothing else (seglog.journal.section).
JOURNAL-3  A read of an item verifies its checksum. An opening does not, because it would have to read the whole
    journal. Damage is `FileCorrupt` with file and position. Other items stay readable.
JOURNAL-4  Every section has one file, which stays open. An application that needs fewer open files uses fewer sections,
    or prunes.
JOURNAL-5  After `prune` returns, the sections below its number are gone for good. `prune` first makes an empty file
    durable. The name of the file has the lowest section that is left. Then `prune` removes the sections below. Every
    later opening removes sections below that number, and refuses appends to them. On a full disk `prune` removes the
    sections first, and makes the file after that.

seglog.journal.item has the bytes. Source: journal of variable-size items.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import TracebackType
from typing import Annotated, TypeAlias

from seglog.base.arguments import Within, checked
from seglog.base.ownership import Owned, check_process, is_foreign
from seglog.errors import DiskFull, FileCorrupt, LogClosed, Misuse, TooManyOpenFiles
from seglog.files.directory import DirectoryLock
from seglog.files.file_system import NO_DESCRIPTOR, Files, OsFiles, enter, leave
from seglog.interrupts import OwnLock, closing_after
from seglog.journal.section import Item, Section, no_item
from seglog.wal.wal import NO_SPACE

__all__ = ["SECTION_MAX", "Item", "Journal"]

SECTION_MAX = 2**64 - 1
SectionNumber: TypeAlias = Annotated[int, Within(0, SECTION_MAX)]
Concurrency: TypeAlias = Annotated[int, Within(1, 1024)]
_FILE = re.compile(r"section-([0-9]{20})(?:-([0-9a-f]{16}))?\.log")
_FLOOR = re.compile(r"floor-([0-9]{20})")
_CONCURRENCY = 4
_SECRET_BYTES = 8


class Journal(Owned):
    """A journal in a directory, and a context manager. Safe for many threads, for one process at a time."""

    @checked
    def __init__(self, path: str | os.PathLike[str], *, files: Files | None = None) -> None:
        """Open the journal at `path`. If it does not exist, create it; its parent directory must exist.

        An opening reads what was not synced at the last use, and cuts a torn tail.
        Raises `DirectoryInUse`, `DirectoryNotWritable`, `DiskFull`, `WriterPoisoned`, and `FileCorrupt` if a section
        has two files.
        """
        self.path = Path(path).absolute()
        self._files = OsFiles() if files is None else files
        self._lock = OwnLock()
        self._is_closed = False
        #: The secret of the sections that this object makes (ITEM-3).
        self._secret = secrets.token_hex(_SECRET_BYTES)
        self._min_section = 0
        self._is_marked = True
        self._pruned: list[Path] = []  # files that wait for their removal
        self._sections: dict[int, Section] = {}
        # At each opening: an earlier process may have died between the two calls.
        self._files.make_dir(self.path)
        self._files.sync_dir(self.path.parent)
        enter(self._files, self.path)
        try:
            self._directory_lock = DirectoryLock(self._files, self.path / "LOCK")
        except BaseException:
            leave(self._files, self.path)
            raise
        try:
            self._find_files()
        except BaseException:
            self._let_go()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with closing_after(error):
            self.close()

    @property
    def sections(self) -> list[int]:
        """The numbers of the sections, ascending."""
        with self._lock.exclusive:
            return sorted(self._sections)

    @checked
    def append(self, section: SectionNumber, data: bytes) -> int:
        """Append an item, and return its offset in the section. The item is not durable before `sync`.

        Raises `OffsetOverflow`, `InvalidArgument`, `DiskFull`, and `Misuse` for an item that is too large, or a
        section that is pruned. Then nothing was appended.
        After `WriterPoisoned` the section takes no more items until the journal is opened again.
        """
        return self._section_for(section).append(data)

    @checked
    def get(self, section: SectionNumber, offset: int, exact: int | None = None) -> bytes:
        """Return the data of the item at `offset`, verified.

        If the caller knows the size of the item and gives it as `exact`, the call makes one read. A wrong size is an
        `InvalidArgument`. Raises `Missing`, and `FileCorrupt` for damage or an offset at which no item begins.
        """
        opened = self._find(section)
        if opened is None:
            raise no_item(section, offset)
        return opened.get(offset, exact)

    @checked
    def sync(self, section: SectionNumber) -> None:
        """Make all items that were appended to the section durable. If there is no such section, do nothing.

        Raises `WriterPoisoned`. Then only the next opening tells which of the items are durable.
        """
        opened = self._find(section)
        if opened is not None:
            opened.sync()

    @checked
    def prune(self, min_section: SectionNumber) -> None:
        """Remove the sections below `min_section` for good. They take no more appends (JOURNAL-5).

        The removal is durable on return. After an error, repeat the call. Raises `DiskFull` and `TooManyOpenFiles`.
        """
        with self._lock.exclusive:
            self._check_open()
            if min_section > self._min_section:
                self._is_marked = self._mark_floor(min_section)
                self._raise_floor(min_section)
            self._remove_pruned()
            if not self._is_marked and not self._mark_floor(self._min_section):
                raise DiskFull(self._floor_path(self._min_section), "prune")
            self._is_marked = True

    @checked
    def replay(
        self,
        sections: Iterable[SectionNumber] | None = None,
        *,
        prefix: int | None = None,
        concurrency: Concurrency = _CONCURRENCY,
    ) -> Iterator[Item]:
        """Return one stream of the items that these sections, or all sections, have now.

        The items of one section come in order. Up to `concurrency` threads read one section each, and the items of
        different sections are mixed. If `concurrency` is 1, the sections come one after the other.

        With `prefix`, only that many bytes of each item are read, and the rest of large items is skipped. Then
        checksums cannot be verified. The bytes, the sizes and so the places of all later items are as the disk gives
        them. To verify an item, call `get`.

        Raises `Missing` and `InvalidArgument` at once. Raises `FileCorrupt` at the damage, after the section's items
        before it. Other sections can be replayed without that section.
        """
        with self._lock.exclusive:
            self._check_open()
            numbers = sorted(self._sections) if sections is None else list(sections)
            for number in numbers:
                if number not in self._sections:
                    raise no_item(number, 0)
            opened = [self._sections[number] for number in numbers]
        return self._items([section.batches(section.end, prefix) for section in opened], concurrency)

    def close(self) -> None:
        """Sync every section and release the journal, also if an error is raised. Idempotent."""
        if is_foreign(self):
            return
        with self._lock.exclusive:
            if self._is_closed:
                return
            for section in self._sections.values():
                section.check_apart()
            self._is_closed = True
            sections = list(self._sections.values())
            self._sections.clear()
        try:
            with contextlib.ExitStack() as stack:
                for section in sections:
                    stack.callback(section.close)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self._directory_lock.release()
        leave(self._files, self.path)

    def _items(self, readers: list[Iterator[list[Item]]], concurrency: int) -> Iterator[Item]:
        for item in _merged(readers, concurrency):
            yield item
            check_process(self)

    def _floor_path(self, min_section: int) -> Path:
        return self.path / f"floor-{min_section:020d}"

    def _mark_floor(self, min_section: int) -> bool:
        """Make the file of the lowest section durable (JOURNAL-5). Return False if no space is left.

        The caller holds the lock.
        """
        path = self._floor_path(min_section)
        try:
            self._files.close(self._files.open(path, os.O_WRONLY | os.O_CREAT))
            self._files.sync_dir(self.path)
        except OSError as error:
            if error.errno in NO_DESCRIPTOR:
                raise TooManyOpenFiles(path) from error
            if error.errno not in NO_SPACE:
                raise
            return False
        return True

    def _raise_floor(self, min_section: int) -> None:
        """Hide the sections below `min_section` from all callers. The lock is held."""
        if self._min_section:
            self._pruned.append(self._floor_path(self._min_section))
        self._min_section = min_section
        for number in sorted(self._sections):
            if number < min_section:
                self._pruned.append(self._sections.pop(number).path)

    def _remove_pruned(self) -> None:
        """Unlink the pruned files, oldest first. The lock is held.

        Even if no floor file is durable, a crash then leaves no hole in the sections.
        """
        if not self._pruned:
            return
        for path in self._pruned:
            with contextlib.suppress(FileNotFoundError):
                self._files.unlink(path)
        try:
            self._files.sync_dir(self.path)
        except OSError as error:
            if error.errno in NO_DESCRIPTOR:
                raise TooManyOpenFiles(self.path) from error
            raise
        self._pruned.clear()

    def _find_files(self) -> None:
        """Find the newest floor, and the sections from there on. Finish a prune that a crash cut short."""
        names = self._files.list_dir(self.path)
        floors = [int(match[1]) for match in map(_FLOOR.fullmatch, names) if match]
        self._min_section = max(floors, default=0)
        self._pruned += [self._floor_path(floor) for floor in floors if floor != self._min_section]
        for name in names:
            match = _FILE.fullmatch(name)
            if match and (number := int(match[1])) <= SECTION_MAX:
                path = self.path / name
                if number < self._min_section:
                    self._pruned.append(path)
                elif number in self._sections:
                    raise FileCorrupt(path, 0, f"section {number} has two files")
                else:
                    self._sections[number] = Section(self._files, path, number, bytes.fromhex(match[2] or ""))
        self._remove_pruned()

    def _find(self, number: int) -> Section | None:
        with self._lock.exclusive:
            self._check_open()
            return self._sections.get(number)

    def _section_for(self, number: int) -> Section:
        """Return the section, for an append. If it does not exist, create it."""
        with self._lock.exclusive:
            self._check_open()
            if number < self._min_section:
                text = f"section {number} is pruned: the lowest section is {self._min_section}; nothing was appended"
                raise Misuse(text)
            section = self._sections.get(number)
            if section is None:
                path, secret = self.path / f"section-{number:020d}-{self._secret}.log", bytes.fromhex(self._secret)
                try:
                    section = Section(self._files, path, number, secret, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
                except OSError as error:
                    if error.errno in NO_SPACE:
                        raise DiskFull(path) from error
                    if error.errno in NO_DESCRIPTOR:
                        raise TooManyOpenFiles(path) from error
                    raise
                self._sections[number] = section
            return section

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogClosed("journal")


def _merged(readers: list[Iterator[list[Item]]], concurrency: int) -> Iterator[Item]:
    """Merge the items of the readers.

    Up to `concurrency` readers are one batch ahead of the caller. Each reader runs in one thread at a time.
    """
    if concurrency == 1 or len(readers) < 2:
        for reader in readers:
            for batch in reader:
                yield from batch
        return
    waiting = deque(readers)
    running: dict[Future[list[Item] | None], Iterator[list[Item]]] = {}
    with ThreadPoolExecutor(min(concurrency, len(readers)), "journal-replay") as pool:
        while waiting or running:
            while waiting and len(running) < concurrency:
                reader = waiting.popleft()
                running[pool.submit(next, reader, None)] = reader
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                reader = running.pop(future)
                items = future.result()
                if items is not None:
                    running[pool.submit(next, reader, None)] = reader
                    yield from items
