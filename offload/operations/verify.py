"""Check every byte of a data directory, or of a remote: `seglog verify`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import seglog
from catalog.gc.scrub import Scrub
from catalog.objects import ObjectStore
from offload.errors import DamageFound
from offload.operations.directory import Tell, watch_of
from offload.operations.results import HIDDEN

__all__ = ["DamagedFile", "DamagedObject", "FileChecked", "Note", "RemoteChecked", "verify", "verify_remote"]


@dataclass(frozen=True, slots=True)
class FileChecked:
    """A file that the check has read completely. `items` counts frames or records."""

    checked: str
    file_kind: str
    items: int
    bytes: int
    topic: str = field(metadata=HIDDEN)


@dataclass(frozen=True, slots=True)
class Note:
    """A repair that the next start makes without any loss."""

    note: str


@dataclass(frozen=True, slots=True)
class DamagedFile:
    damaged: str
    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class RemoteChecked:
    """The counts of a check of a remote. `read_bytes` counts bytes of segments."""

    volumes: int
    commits: int
    segments: int
    read_bytes: int
    unreferenced_segments: int


@dataclass(frozen=True, slots=True)
class DamagedObject:
    damaged: str
    reason: str


def _untold(_title: str, _total: int | None, _done: int, _unit: str) -> None:
    """Ignore the progress."""


def verify(
    directory: Path, settings: seglog.LogSettings, tell: Tell = _untold
) -> Iterator[FileChecked | Note | DamagedFile]:
    """Yield the files of a data directory, then the notes, then the damages. Raises `DamageFound` after a damage.

    `tell` takes the bytes that the check has read.
    """
    report = seglog.verify(directory, settings=settings, files=_WatchedFiles(tell, _bytes_to_read(directory, settings)))
    for file in report.checked:
        topic = file.topic or file.path.parent.name
        yield FileChecked(str(file.path), file.kind, file.items, file.bytes, topic)
    yield from map(Note, report.notes)
    for damage in report.damages:
        yield DamagedFile(str(damage.path), damage.offset, damage.reason)
    if report.damages:
        hint = "keep the files, and restore what they held from the remote or a backup"
        raise DamageFound(len(report.damages), str(report.path), hint)


def verify_remote(
    store: ObjectStore, now_ms: int, tell: Tell = _untold, *, deep: bool
) -> Iterator[RemoteChecked | DamagedObject]:
    """Yield the counts, then the damages. With `deep` the check reads every byte. Raises `DamageFound` after a damage.

    Others may use the remote meanwhile. `tell` takes the progress of each phase, with `deep` in bytes.
    """
    report = Scrub(store, now_ms=now_ms, watch=watch_of(tell, "verify")).run(deep=deep)
    yield RemoteChecked(report.volumes, report.commits, report.segments, report.size_bytes, report.unreferenced)
    for finding in report.findings:
        yield DamagedObject(finding.place, finding.reason)
    if report.findings:
        hint = "keep the objects, and compare with a backup or a replica"
        raise DamageFound(len(report.findings), store.url, hint)


class _WatchedFiles(seglog.OsFiles):
    """The file system, with a count of the bytes that the check reads. Some bytes are read twice, and count once."""

    def __init__(self, tell: Tell, total_bytes: int) -> None:
        self._tell = tell
        self._total_bytes = total_bytes
        self._read_bytes = 0

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        body = super().pread(fd, length, offset)
        self._read_bytes = min(self._read_bytes + len(body), self._total_bytes)
        self._tell("verify", self._total_bytes, self._read_bytes, "bytes")
        return body


def _bytes_to_read(directory: Path, settings: seglog.LogSettings) -> int:
    """Return the size of the files that the check reads, also in the warm directory. A missing file has no size."""
    roots = [directory / "meta", directory / "wal", directory / "topics"]
    roots += [Path(settings.cold_dir) / "topics"] if settings.cold_dir else []
    return sum(_size(Path(folder, name)) for root in roots for folder, _, names in os.walk(root) for name in names)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # a writer has removed it: then the check refuses the directory (VERIFY-1)
        return 0
