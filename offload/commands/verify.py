"""Check every byte of a data directory, or of a remote: `seglog verify`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import seglog
from catalog.gc.scrub import Scrub
from catalog.objects import ObjectStore
from offload.commands.results import HIDDEN
from offload.errors import DamageFound

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


def verify(directory: Path, settings: seglog.LogSettings) -> Iterator[FileChecked | Note | DamagedFile]:
    """Yield the files of a data directory, then the notes, then the damages. Raises `DamageFound` after a damage."""
    report = seglog.verify(directory, settings=settings)
    for file in report.checked:
        topic = file.topic or file.path.parent.name
        yield FileChecked(str(file.path), file.kind, file.items, file.bytes, topic)
    yield from map(Note, report.notes)
    for damage in report.damages:
        yield DamagedFile(str(damage.path), damage.offset, damage.reason)
    if report.damages:
        hint = "keep the files, and restore what they held from the remote or a backup"
        raise DamageFound(len(report.damages), str(report.path), hint)


def verify_remote(store: ObjectStore, now_ms: int, *, deep: bool) -> Iterator[RemoteChecked | DamagedObject]:
    """Yield the counts, then the damages. With `deep` the check reads every byte. Raises `DamageFound` after a damage.

    Others may use the remote meanwhile.
    """
    report = Scrub(store, now_ms=now_ms).run(deep=deep)
    yield RemoteChecked(report.volumes, report.commits, report.segments, report.size_bytes, report.unreferenced)
    for finding in report.findings:
        yield DamagedObject(finding.place, finding.reason)
    if report.findings:
        hint = "keep the objects, and compare with a backup or a replica"
        raise DamageFound(len(report.findings), store.url, hint)
