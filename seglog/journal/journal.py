"""An append-only journal of items of any size, in sections that go as a whole: beside the log, for state of one's own.

    from seglog.journal.journal import Journal

    with Journal("state") as journal:
        offset = journal.append(1, b"data")
        journal.sync(1)
        assert journal.get(1, offset) == b"data"
        for item in journal.replay():
            print(item.section, item.offset, item.data)
        journal.prune(2)

J1  What `sync` or `close` returned from survives a power cut; what was appended after that may be lost from its end on.
J2  A torn tail is cut when the journal is opened, and nothing else ever is: see seglog.journal.section.
J3  Checksums are verified when an item is read, and not when the journal is opened, which would mean to read all of it.
    Damage is `FileCorrupt` with file and position; other items stay readable.
J4  Every section has one file, which stays open: whoever minds uses fewer sections, or prunes.
J5  What `prune` returned from is gone for good. An empty file, whose name has the lowest section that is left, is
    durable before the first section goes. Every later opening removes what is below, and refuses appends to it.
    On a full disk the sections go first, and the file follows.

The bytes are in seglog.journal.item. Source: journal of variable-size items.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import TracebackType
from typing import Annotated, TypeAlias

from seglog.arguments import Within, checked
from seglog.errors import DiskFull, JournalClosed, NoSuchItem, SectionPruned, TooManyOpenFiles
from seglog.files.lock import DirectoryLock
from seglog.files.port import NO_DESCRIPTOR, Files, OsFiles, enter, leave
from seglog.journal.section import Item, Section
from seglog.process.own_lock import OwnLock
from seglog.process.ownership import Owned, check_process, is_foreign
from seglog.wal.wal import NO_SPACE

__all__ = ["SECTION_MAX", "Item", "Journal"]

SECTION_MAX = 2**64 - 1
SectionNumber: TypeAlias = Annotated[int, Within(0, SECTION_MAX)]
Concurrency: TypeAlias = Annotated[int, Within(1, 1024)]
_FILE = re.compile(r"section-([0-9]{20})\.log")
_FLOOR = re.compile(r"floor-([0-9]{20})")
_CONCURRENCY = 4


class Journal(Owned):
    """A context manager; safe for many threads, for one process at a time."""

    @checked
    def __init__(self, path: str | os.PathLike[str], *, files: Files | None = None) -> None:
        """Opens the journal at `path`; makes it in a directory that is there.

        Reads what was not synced when it was last used, and cuts what of that is torn.
        Raises `DirectoryInUse`, `DirectoryNotWritable`, `DiskFull`, `WriterPoisoned`.
        """
        self.path = Path(path).absolute()
        self._files = OsFiles() if files is None else files
        self._lock = OwnLock()
        self._is_closed = False
        self._min_section = 0
        self._is_marked = True
        self._pruned: list[Path] = []  # files that wait for their removal
        self._sections: dict[int, Section] = {}
        # Each time, whoever made it: a process may have died between the two.
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
        self.close()

    @property
    def sections(self) -> list[int]:
        """Ascending."""
        with self._lock.once:
            return sorted(self._sections)

    @checked
    def append(self, section: SectionNumber, data: bytes) -> int:
        """Append an item, and return its offset in the section. Not durable before `sync`.

        Raises `OffsetOverflow`, `ItemTooLarge`, `SectionPruned`, `InvalidArgument`, and
        `DiskFull`: nothing was appended. After `WriterPoisoned` the section takes no more until the journal is opened
        again.
        """
        return self._section_for(section).append(data)

    @checked
    def get(self, section: SectionNumber, offset: int, exact: int | None = None) -> bytes:
        """The data of the item at `offset`, verified.

        With `exact`, the size that the item is known to have, it takes one read; a wrong one is `WrongSize`.
        Raises `NoSuchItem`, and `FileCorrupt`, also for an offset at which no item begins.
        """
        found = self._find(section)
        if found is None:
            raise NoSuchItem(section, offset)
        return found.get(offset, exact)

    @checked
    def sync(self, section: SectionNumber) -> None:
        """Everything appended to the section is durable on return; for none there is nothing to do.

        Raises `WriterPoisoned`: what of it is durable, only the next opening knows.
        """
        found = self._find(section)
        if found is not None:
            found.sync()

    @checked
    def prune(self, min_section: SectionNumber) -> None:
        """Remove the sections below `min_section`, for good: they do not come back, and take no more appends (J5).

        Durable on return. After an error, repeat it. Raises `DiskFull` and `TooManyOpenFiles`.
        """
        with self._lock.once:
            self._check_open()
            if min_section > self._min_section:
                self._is_marked = self._mark_floor(min_section)
                self._raise_floor(min_section)
            self._remove_pruned()
            if not self._is_marked and not self._mark_floor(self._min_section):
                raise DiskFull(self._floor_path(self._min_section))
            self._is_marked = True

    @checked
    def replay(
        self,
        sections: Iterable[SectionNumber] | None = None,
        *,
        prefix: int | None = None,
        concurrency: Concurrency = _CONCURRENCY,
    ) -> Iterator[Item]:
        """The items of these sections, or of all, as they are now, in one stream.

        Those of one section come in order. `concurrency` sections are read at a time, by a thread each, and their items
        come as they are there; with 1, section follows section.

        With `prefix` only so many bytes of each item are read, and large ones are skipped over. Their checksums cannot
        be verified then: bytes, and even sizes and so the places of all items behind, are what the disk says they are.
        To be sure of an item, `get` it.

        Raises `NoSuchItem` and `InvalidArgument` at once, and `FileCorrupt` where the damage is: the section's items
        before it have come, and other sections can be replayed without it.
        """
        with self._lock.once:
            self._check_open()
            wanted = sorted(self._sections) if sections is None else list(sections)
            for number in wanted:
                if number not in self._sections:
                    raise NoSuchItem(number, 0)
            found = [self._sections[number] for number in wanted]
        return self._items([section.batches(section.end, prefix) for section in found], concurrency)

    def close(self) -> None:
        """Sync every section, and let go of the journal, whatever is raised. Idempotent."""
        if is_foreign(self):
            return
        with self._lock.once:
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
        """J5. False: there is no space. The lock is held."""
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
        """From here on nobody sees what is below. The lock is held."""
        if self._min_section:
            self._pruned.append(self._floor_path(self._min_section))
        self._min_section = min_section
        for number in sorted(self._sections):
            if number < min_section:
                self._pruned.append(self._sections.pop(number).path)

    def _remove_pruned(self) -> None:
        """Oldest first: without a mark, what a crash leaves is without holes. The lock is held."""
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
        """The newest floor, and the sections from there on. A prune that a crash has cut short is finished."""
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
                else:
                    self._sections[number] = Section(self._files, path, number)
        self._remove_pruned()

    def _find(self, number: int) -> Section | None:
        with self._lock.once:
            self._check_open()
            return self._sections.get(number)

    def _section_for(self, number: int) -> Section:
        """To append to: made if it is not there."""
        with self._lock.once:
            self._check_open()
            if number < self._min_section:
                raise SectionPruned(number, self._min_section)
            section = self._sections.get(number)
            if section is None:
                path = self.path / f"section-{number:020d}.log"
                try:
                    section = Section(self._files, path, number, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
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
            raise JournalClosed


def _merged(readers: list[Iterator[list[Item]]], concurrency: int) -> Iterator[Item]:
    """Up to `concurrency` readers are one batch ahead of the caller, each in one thread at a time."""
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
