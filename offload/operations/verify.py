"""Check every byte of a data directory, or of a remote: `seglog verify`.

With --read-data-subset, it checks each object of a remote, and reads a part of them. A state file makes that check
resumable. Its lines are JSON:

    first line    the remote, and the part that this run reads: {"remote": URL, "start": 0.05, "end": 0.1}
    other lines   the ids of segments that were read and found whole

VPART-1  If a run ends early, the next run with the same file reads the rest of the same part.
VPART-2  After a whole run, the file has only the start of the next part. So 20 runs of 5% read every byte once.
VPART-3  One run at a time has the file. It holds a lock, which ends with the process.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import seglog
from catalog import Branches, Handle, LocalCatalog, Volumes
from catalog.errors import Corrupt, LocalCatalogUnavailable, NoSuchBranch, NoSuchObject, NoSuchTopic
from catalog.format.control import DEAD
from catalog.format.encoding import decode_commit_at
from catalog.format.ids import Sid
from catalog.format.keys import commit_key
from catalog.gc.object_check import Looked, ObjectCheck
from catalog.gc.scrub import Finding, Scrub
from catalog.objects import ObjectStore
from catalog.objects.object_store import each_of
from offload.errors import Misuse, damage_found
from offload.handles import split_name
from offload.operations.command import Tell, watch_of
from offload.operations.result_json import HIDDEN
from seglog.base.dataclasses import dataclass


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
    """A repair that the next start makes without any loss, or what a check could not compare."""

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


_End = tuple[Handle, bytes | None]
"""What a data directory knows of a volume, and the hash of its newest commit there, if that is here."""


def _untold(_title: str, _total: int | None, _done: int, _unit: str) -> None:
    """Ignore the progress."""


def verify(
    directory: Path, settings: seglog.LogSettings, tell: Tell = _untold
) -> Iterator[FileChecked | Note | DamagedFile]:
    """Yield the files of a data directory, then the notes, then the damages. Raises `Corrupt` after a damage.

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
        raise damage_found(len(report.damages), str(report.path), hint)


def verify_remote(
    store: ObjectStore, now_ms: int, tell: Tell = _untold, *, deep: bool, directory: Path | None = None
) -> Iterator[RemoteChecked | Note | DamagedObject]:
    """Yield the counts, then the damages. With `deep` the check reads every byte. Raises `Corrupt` after a damage.

    Others may use the remote meanwhile. `tell` takes the progress of each phase, with `deep` in bytes. The newest
    commits that the data directory `directory` knew at the start have to be there too. A note says if it tells none.
    """
    ends, notes = _known_ends(directory)
    report = Scrub(store, now_ms=now_ms, watch=watch_of(tell, "verify")).run(deep=deep)
    yield RemoteChecked(report.volumes, report.commits, report.segments, report.size_bytes, report.unreferenced)
    yield from notes
    damages = 0
    for finding in chain(report.findings, _lost_ends(store, ends)):
        damages += 1
        yield DamagedObject(finding.place, finding.reason)
    if damages:
        raise damage_found(damages, store.url, "keep the objects, and compare with a backup or a replica")


def _known_ends(directory: Path | None) -> tuple[list[_End], list[Note]]:
    """Return the newest commits that a data directory knows, or a note why it does not tell them."""
    if directory is None:
        return [], []
    try:
        with LocalCatalog(directory / "catalog.db", read_only=True) as local:
            handles = [handle for handle in local.handles() if handle.lsn]
            bodies = (local.commit_bodies(handle.vid, handle.lsn, handle.lsn).get(handle.lsn) for handle in handles)
            return [*zip(handles, map(_hash, handles, bodies), strict=True)], []
    except (Corrupt, LocalCatalogUnavailable) as trouble:
        return [], [Note(f"the remote is not compared with what this data directory knows of it: {trouble}")]


def _lost_ends(store: ObjectStore, ends: Sequence[_End]) -> Iterator[Finding]:
    """Yield the newest commit that a directory knows of a branch, if the branch has lost it, or has another one there.

    That commit stays part of the volume, whoever writes there now. Only GC deletes it: below newer ones, or with a
    volume that no name leads to.
    """
    volumes = Volumes(store)
    for (handle, known), body in zip(ends, each_of(store, ends, lambda end: _body(store, end[0])), strict=True):
        found = _hash(handle, body)
        # What does not decode is told by the check itself. The name is read last, because it goes before its volume.
        is_there = body is not None and (found is None or known in {None, found})
        if is_there or _is_collected(volumes, handle) or not _leads_there(volumes, handle):
            continue
        topic, branch = split_name(handle.name)
        if body is not None:
            has = "the remote has another commit there"
        else:
            newest = volumes.newest_lsn(handle.vid)
            has = f"the newest in the remote is lsn {newest}" if newest else "the remote has no commit of it"
        reason = f"topic {topic}, branch {branch}: this data directory knows lsn {handle.lsn}, and {has}"
        yield Finding(commit_key(handle.vid, handle.lsn), reason)


def _body(store: ObjectStore, handle: Handle) -> bytes | None:
    with suppress(NoSuchObject):
        return store.get(commit_key(handle.vid, handle.lsn))
    return None


def _hash(handle: Handle, body: bytes | None) -> bytes | None:
    """Return the hash of the handle's commit, or None if it is absent or damaged."""
    with suppress(Corrupt):
        return None if body is None else decode_commit_at(body, handle.vid, handle.lsn).hash
    return None


def _is_collected(volumes: Volumes, handle: Handle) -> bool:
    """Return whether GC has passed the newest commit that is known here, or the volume is dead.

    The commit at the boundary is kept. If it is absent, GC may have moved on since the boundary was read.
    """
    before, boundary = 0, volumes.boundary(handle.vid)
    while handle.lsn < boundary < DEAD and not volumes.has_commit(handle.vid, boundary):
        before, boundary = boundary, volumes.boundary(handle.vid)
        if boundary == before:
            return False
    return boundary > handle.lsn


def _leads_there(volumes: Volumes, handle: Handle) -> bool:
    """Return whether the remote has the handle's volume under the handle's name."""
    try:
        return Branches(volumes, "").resolve(*split_name(handle.name)) == handle.vid
    except (NoSuchTopic, NoSuchBranch):
        return False


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


@dataclass(frozen=True, slots=True)
class ObjectLooked:
    """One object. `state` is found, lost, corrupt, orphan or uploading."""

    object: str
    state: str
    was_read: bool
    reason: str


@dataclass(frozen=True, slots=True)
class ObjectsLooked:
    """The counts of a check by state, and the part of the segments that it read: places from `start` to `end`.

    `resumed` counts the segments of the part that an earlier run had read.
    """

    objects: int
    found: int
    lost: int
    corrupt: int
    orphan: int
    uploading: int
    read_bytes: int
    start: float
    end: float
    resumed: int


def parse_share(text: str) -> float:
    """Return the share of a text such as 5%. Raises `Misuse`."""
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = -1.0
    if not text.endswith("%") or not 0 < percent <= 100:
        raise Misuse(f"--read-data-subset takes a share above 0% and up to 100%, such as 5%, not {text!r}")
    return percent / 100


def verify_part(
    store: ObjectStore, now_ms: int, tell: Tell, *, share: float, state: Path | None, directory: Path | None = None
) -> Iterator[ObjectLooked | Note | ObjectsLooked]:
    """Yield each object, then the counts. Raises `Corrupt` if one is lost or corrupt, and `Misuse` for a
    state file that is not of this remote. Others may use the remote meanwhile. `directory` is as in `verify_remote`.
    """
    ends, notes = _known_ends(directory)
    counts: Counter[str] = Counter()
    with _part(state, store.url, share) as part:
        check = ObjectCheck(store, now_ms, part.start, part.end, part.done, part.add, watch_of(tell, "verify"))
        for looked in check.run():
            counts[looked.state] += bool(looked.key)
            yield _shown(looked)
        yield from notes
        for finding in _lost_ends(store, ends):
            counts["lost"] += 1
            yield ObjectLooked(finding.place, "lost", False, finding.reason)
        part.finish()
    words = ("found", "lost", "corrupt", "orphan", "uploading")
    states = {word: counts[word] for word in words}
    yield ObjectsLooked(
        objects=counts.total(),
        read_bytes=check.read_bytes,
        start=part.start,
        end=part.end,
        resumed=len(part.done),
        **states,
    )
    if bad := counts["lost"] + counts["corrupt"]:
        raise damage_found(bad, store.url, "keep the objects, and compare with a backup or a replica")


def _shown(looked: Looked) -> ObjectLooked:
    return ObjectLooked(looked.key, looked.state, looked.was_read, looked.reason)


class _Part:
    """The part of one run, and the segments that earlier tries have read."""

    def __init__(self, file: BinaryIO | None, url: str, start: float, end: float, done: frozenset[str]) -> None:
        self._file = file
        self._url = url
        self.start = start
        self.end = end
        self.done = done

    def add(self, sid: Sid) -> None:
        if self._file is not None:
            self._file.write(json.dumps(str(sid)).encode() + b"\n")
            self._file.flush()

    def finish(self) -> None:
        """Leave only the start of the next part."""
        if self._file is not None:
            self._file.truncate(0)
            self._file.write(_line({"remote": self._url, "start": self.end % 1}))
            self._file.flush()


@contextmanager
def _part(state: Path | None, url: str, share: float) -> Iterator[_Part]:
    if state is None:
        start = random.random()
        yield _Part(None, url, start, start + share, frozenset())
        return
    try:
        file = state.open("a+b")
    except OSError as error:
        raise Misuse(f"--state {state} cannot be opened: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Misuse(f"another run has --state {state} open") from None
        except OSError as error:
            raise Misuse(f"--state {state} cannot be locked: {error.strerror}") from error
        file.seek(0)
        start, end, done = _known(file.read(), state, url, share)
        file.truncate(0)
        file.write(_line({"remote": url, "start": start, "end": end}))
        file.write(b"".join(json.dumps(key).encode() + b"\n" for key in sorted(done)))
        file.flush()
        yield _Part(file, url, start, end, done)


def _known(body: bytes, state: Path, url: str, share: float) -> tuple[float, float, frozenset[str]]:
    """Return the part of an unfinished run, or the next part. A last line that a kill cut does not count."""
    lines = body[: body.rfind(b"\n") + 1].splitlines()
    if not lines:
        return 0.0, share, frozenset()
    try:
        facts, *keys = [json.loads(line) for line in lines]
        remote, start = str(facts["remote"]), float(facts["start"])
        end = float(facts["end"]) if "end" in facts else start + share
    except (ValueError, KeyError, TypeError) as error:
        raise Misuse(f"--state {state} is no state of a check: {error}") from None
    if remote != url:
        raise Misuse(f"--state {state} belongs to {remote}; name another file")
    return start, end, frozenset(map(str, keys))


def _line(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode() + b"\n"
