"""Recovery of a data directory from a bucket alone: every topic and branch as a replica, ready for a takeover.

    step                                            what a crash after it leaves
    1 the file RECOVERING, which names the remote   a directory that recovers only from that remote
    2 seglog.toml with that remote; the log, empty  the same
    3 a replica's handle for each live name         the same, with some of the names; a repetition adds the others
    4 RECOVERING is deleted                         the data directory

REBUILD-1  Recovery writes nothing to the remote; only a takeover does (`writable`).
    Bounds, configuration and history are in the volumes, and a replica reads them there. A topic gets its
    configuration when it is taken over (offload.replication.takeover).
REBUILD-2  If the directory holds anything else, recovery refuses it.
    If an earlier recovery of the same remote began there, this one continues it.
REBUILD-3  A name that cannot be recovered holds up no other name. The directory is complete only with all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import seglog
from catalog.errors import CatalogError, NoSuchBranch, NoSuchTopic
from catalog.objects.base import ObjectStore
from offload.archive import Archive
from offload.attachment import attach
from offload.errors import DirectoryNotEmpty, OffloadError
from offload.moment import Moment
from offload.settings_file import default_file, read_settings
from seglog.arguments import checked
from seglog.files.clock import Clock
from seglog.files.port import Files

__all__ = ["MARKER", "NotRecovered", "Recovered", "recover"]

MARKER = "RECOVERING"
_READ_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Recovered:
    """The remote's state of one topic or branch. Without records, `last_seq` and `last_time` are None."""

    topic: str
    volume: str
    lsn: int
    head_seq: int
    records: int
    last_seq: int | None
    last_time: Moment | None
    is_writable: bool


@dataclass(frozen=True, slots=True)
class NotRecovered:
    topic: str
    error: Exception


@checked
def recover(
    directory: Path,
    url: str,
    *,
    only: str | None = None,
    writable: bool = False,
    store: ObjectStore | None = None,
    clock: Clock | None = None,
    files: Files | None = None,
) -> Iterator[Recovered | NotRecovered]:
    """Yield each name when it is done. `only` is a topic, with its branches, or a branch.

    `writable` takes all of them over. `store` may replace the store that `url` names. If the iteration
    ends without a `NotRecovered`, the directory is complete. Otherwise, repeat the call. Raises `DirectoryNotEmpty`,
    `NoSuchTopic`, and the errors of the store.
    """
    port = seglog.OsFiles() if files is None else files
    _begin(port, directory, url)
    settings = read_settings(directory / seglog.SETTINGS_FILE)
    failed, found = False, False
    with (
        seglog.open(directory, settings=settings.log, clock=clock, files=port) as log,
        attach(log, url, store=store, settings=settings, clock=clock) as archive,
    ):
        for name in archive.branches.remote_names():
            if only not in {None, name, name.partition("@")[0]}:
                continue
            try:
                yield _recovered(archive, name, writable=writable)
                found = True
            except (NoSuchTopic, NoSuchBranch):
                continue  # deleted meanwhile
            except (CatalogError, OffloadError, seglog.SeglogError) as error:
                failed = found = True
                yield NotRecovered(name, error)
    if not found:
        raise NoSuchTopic(only or "at all", url)
    if not failed:
        port.unlink(directory / MARKER)
        port.sync_dir(directory)


def _recovered(archive: Archive, name: str, *, writable: bool) -> Recovered:
    archive.replication.sync(name)
    snapshot = archive.history.snapshot(name)
    records, last = archive.history.count(snapshot)
    if writable:
        archive.replication.take_over(name)
    return Recovered(
        topic=name,
        volume=str(snapshot.vid),
        lsn=archive.status.topic(name).lsn,
        head_seq=snapshot.bounds.head_seq,
        records=records,
        last_seq=last.seq if last else None,
        last_time=Moment(last.ts_ms) if last else None,
        is_writable=not archive.replication.is_replica(name),
    )


def _begin(files: Files, directory: Path, url: str) -> None:
    """Do steps 1 and 2. A half-written file of step 1 counts as nothing."""
    for path in reversed([directory, *directory.absolute().parents]):
        if not files.is_dir(path):
            files.make_dir(path)
            files.sync_dir(path.parent)
    found = set(files.list_dir(directory)) - {f"{MARKER}.tmp"}
    if found and (MARKER not in found or _read(files, directory / MARKER) != url):
        raise DirectoryNotEmpty(directory)
    if not found:
        seglog.replace_atomically(files, directory / MARKER, url.encode())
    if seglog.SETTINGS_FILE not in found:
        seglog.replace_atomically(files, directory / seglog.SETTINGS_FILE, default_file(url).encode())


def _read(files: Files, path: Path) -> str:
    fd = files.open(path, os.O_RDONLY)
    try:
        return files.pread(fd, _READ_BYTES, 0).decode(errors="replace")
    finally:
        files.close(fd)
