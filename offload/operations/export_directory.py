"""The directory of an export: files of records, and a manifest of their seqs and checksums.

    <directory>/manifest.jsonl                      one JSON object a line, as `--json` prints it
    <directory>/seqs-<first>-<last>.<form>          the records of a range; 16 digits each
    <directory>/part.tmp                            the file that is being written

    export_begun     the state and the form (offload.operations.export_state). A later one has another pin
    part_exported    a file: its name, first and last seq, records, bytes, and the SHA-256 of its bytes
    exported         the last line: all records of the state are in the files

PARTS-1  A file is whole on the disk, under its name, before the manifest lists it.
PARTS-2  The manifest only grows. A last line that a kill cut does not count, and the next run removes it.
PARTS-3  A file with such a name that the manifest does not list is left from a run that was killed. The next run
    deletes it. All other files stay.
PARTS-4  One run at a time has the manifest open for writing. It holds a lock, which ends with the process.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from offload.errors import Misuse, directory_not_empty
from offload.operations.export_state import ExportBegun
from offload.operations.result_json import json_line, kind_of
from seglog.base.dataclasses import dataclass
from seglog.base.errors import Corrupt
from seglog.errors import DirectoryInUse
from seglog.files.file_system import Files, OpenFile

MANIFEST = "manifest.jsonl"
_ELSEWHERE = "export to another directory"
_PART = "part.tmp"
_FILE = re.compile(r"seqs-[0-9]{16}-[0-9]{16}\.(raw|jsonl|parquet)", re.ASCII)
_READ_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PartExported:
    """A file of an export. Its first and its last record have these seqs. `sha256` is of its bytes."""

    file: str
    first_seq: int
    last_seq: int
    records: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Exported:
    """The whole export: `parts` files. `lsn` is None if no commit has the state."""

    topic: str
    directory: str
    lsn: int | None
    first_seq: int | None
    last_seq: int | None
    parts: int
    records: int
    bytes: int


_KINDS = {kind_of(kind): kind for kind in (ExportBegun, PartExported, Exported)}


class OpenPart:
    """The file that is being written, for a caller that writes bytes in order. Only `keep` gives it its name."""

    def __init__(self, files: Files, directory: Path, form: str) -> None:
        self._files = files
        self._path = directory / _PART
        self._form = form
        self._hash = hashlib.sha256()
        self.size_bytes = 0
        self._fd = files.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._is_open = True

    def write(self, data: bytes) -> None:
        self._files.pwrite(self._fd, data, self.size_bytes)
        self._hash.update(data)
        self.size_bytes += len(data)

    def keep(self, first_seq: int, last_seq: int, records: int) -> PartExported:
        """Give the file its name, durably on return (PARTS-1)."""
        self._files.datasync(self._fd)
        self._close()
        name = f"seqs-{first_seq:016d}-{last_seq:016d}.{self._form}"
        self._files.rename(self._path, self._path.with_name(name))
        self._files.sync_dir(self._path.parent)
        return PartExported(name, first_seq, last_seq, records, self.size_bytes, self._hash.hexdigest())

    def drop(self) -> None:
        """Remove the file, unless it has its name. If that fails, the next run deletes it (PARTS-3). Idempotent."""
        if self._is_open:
            self._close()
            with suppress(OSError):
                self._files.unlink(self._path)

    def _close(self) -> None:
        self._is_open = False
        self._files.close(self._fd)


class ExportDirectory:
    """An export's directory, open for one run. `opened` makes one."""

    def __init__(self, files: Files, path: Path, fd: int, lines: Sequence[Any], length: int) -> None:
        self.begun: ExportBegun | None = None
        self.parts: list[PartExported] = []
        self.exported: Exported | None = None
        self._files = files
        self._path = path
        self._fd = fd
        self._length = length
        for line in lines:
            self._take(line)

    def add(self, line: ExportBegun | PartExported | Exported) -> None:
        """Append a line to the manifest, durably on return."""
        data = json_line(line).encode()
        self._files.pwrite(self._fd, data, self._length)
        self._files.datasync(self._fd)
        self._length += len(data)
        self._take(line)

    def open_part(self, form: str) -> OpenPart:
        return OpenPart(self._files, self._path, form)

    def check_sizes(self) -> None:
        """Raise `Corrupt` if a file of the manifest is missing, or has another length."""
        for part in self.parts:
            size = _size(self._files, self._path / part.file)
            if size != part.bytes:
                is_there = "is missing" if size is None else f"has {size} bytes, and had {part.bytes}"
                raise Corrupt(f"{self._path / part.file} {is_there}", hint=_ELSEWHERE)

    def remove_remains(self) -> None:
        """Delete the files that a killed run left (PARTS-3)."""
        files = {part.file for part in self.parts}
        for name in self._files.list_dir(self._path):
            if name == _PART or (_FILE.fullmatch(name) and name not in files):
                self._files.unlink(self._path / name)

    def _take(self, line: Any) -> None:
        if isinstance(line, ExportBegun):
            self.begun = line
        elif isinstance(line, PartExported):
            self.parts.append(line)
        else:
            self.exported = line


def look(files: Files, path: Path) -> bool:
    """Return whether the directory has an export. Raises `Misuse`, `Conflict` for other files."""
    if not files.is_dir(path):
        if files.identity(path) is not None:
            raise Misuse(f"{path} is a file: name a directory, or - for standard output")
        return False
    names = files.list_dir(path)
    if names and MANIFEST not in names:
        raise directory_not_empty(path, hint="name a new directory, or one with an unfinished export of the topic")
    return bool(names)


def another_run(path: Path) -> DirectoryInUse:
    """Return the error of a second run in the directory of an export."""
    hint = "wait until it has ended, then repeat the command"
    return DirectoryInUse.told(f"another run exports to {path}", hint, {"path": path, "holder": "another export"})


@contextmanager
def opened(files: Files, path: Path, *, makes: bool = False, writes: bool = True) -> Iterator[ExportDirectory]:
    """Yield the directory. With `makes`, make it if it is not there. Without `writes`, change no file.

    Raises `DirectoryInUse` if another run has it open, and `Corrupt` if a line is no line of a manifest.
    """
    if makes:
        _make(files, path)
    flags = os.O_RDWR | (os.O_CREAT if makes else 0) if writes else os.O_RDONLY
    fd = files.open(path / MANIFEST, flags)
    try:
        try:
            (files.lock if writes else files.lock_shared)(fd)
        except BlockingIOError:
            raise another_run(path) from None
        body = files.pread(fd, files.size(fd), 0)
        lines = body[: body.rfind(b"\n") + 1]
        if writes and len(lines) < len(body):
            files.truncate(fd, len(lines))
        if makes:
            files.sync_dir(path)
        yield ExportDirectory(files, path, fd, list(_lines(path, lines)), len(lines))
    finally:
        files.close(fd)


def sha256_of(files: Files, path: Path) -> tuple[int, str] | None:
    """Return the length and the SHA-256 of a file, or None if it is not there."""
    if files.identity(path) is None:
        return None
    file, digest, done = OpenFile(files, path, os.O_RDONLY), hashlib.sha256(), 0
    while data := file.read(_READ_BYTES, done):
        digest.update(data)
        done += len(data)
    return done, digest.hexdigest()


def _make(files: Files, path: Path) -> None:
    for ancestor in reversed([path, *path.absolute().parents]):
        if not files.is_dir(ancestor):
            files.make_dir(ancestor)
            files.sync_dir(ancestor.parent)


def _size(files: Files, path: Path) -> int | None:
    return None if files.identity(path) is None else OpenFile(files, path, os.O_RDONLY).size()


def _lines(path: Path, body: bytes) -> Iterator[ExportBegun | PartExported | Exported]:
    for number, line in enumerate(body.splitlines(), 1):
        try:
            facts = json.loads(line)
            kind = _KINDS[facts["kind"]]
            yield kind(**{field.name: facts[field.name] for field in fields(kind)})
        except (ValueError, KeyError, TypeError) as error:
            text = f"{path / MANIFEST} line {number} is no line of a manifest: {error!r}"
            raise Corrupt(text, hint=_ELSEWHERE) from error
