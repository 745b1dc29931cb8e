"""A warm directory takes the relocated segments of one log.

The directory lies apart from the log's data directory, and no other log uses it.

    LOCK    locked while a log that writes there is open; its text names the process
    OWNER   a line of canonical JSON {"format": 1, "inode": of the warm directory, "log": 32 hex, "path": data
            directory}, then its XXH3-64 as 16 hex digits and a line end
    topics/ the segments (seglog.tiers.segment_store)

The log's own id is in `meta/log-id` of the data directory: the same two lines, of {"format": 1, "log": 32 hex}. The log
makes its id when it first takes a warm directory, or when a caller first asks for the incarnation of a topic.

WDIR-1  Two paths are the same if they have the same device and inode. So the check sees through links, `..` and bind
    mounts.
WDIR-2  Before the writer puts or deletes a segment, it holds LOCK and has found its own id in OWNER. The writer checks
    both once for as long as the directory stays the same one.
WDIR-3  The writer writes OWNER under LOCK, after the id is durable. Without OWNER an empty directory is free. A
    directory that holds segments is taken only if one of them is this log's. The checksum in the manifest or the bytes
    of the segment tell.
WDIR-4  A copied data directory has the id of its original. The copy is refused as long as OWNER leads to the original.
    If the inode of the warm directory is not the one in OWNER, the warm directory was copied too. Then the warm
    directory belongs to this copy.
WDIR-5  A log that is open for reading takes no directory, and writes nothing. Such a log only refuses a directory that
    is not apart or not its own.

One case is not detected. A copy of the data directory uses the same warm directory as its original, at another time.
The original is gone or on another machine. Both have the same id.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from xxhash import xxh3_64_hexdigest

from seglog.errors import DirectoryInUse, FileCorrupt, FormatUnsupported, WarmDirectoryNotApart, WarmDirectoryTaken
from seglog.files.directory import DirectoryLock
from seglog.files.file_system import Files, OpenFile, replace_atomically
from seglog.interrupts import OwnLock
from seglog.tiers.segment_store import LocalSegmentStore, SegmentId
from seglog.values import canonical
from seglog.values.layout import Layout, number_in

_FORMAT = 1
_CHECK_BYTES = 18
_MAX_BYTES = 65536
IsOurs: TypeAlias = Callable[[int, SegmentId], bool]
# Two threads must not make two ids. One process at a time uses a data directory.
_making = OwnLock()


class WarmDirectory:
    """A warm directory, as one log claims it. For one thread at a time.

    `files` is the port of the warm directory, and `data` is the layout of the data directory.
    `claim` asks `is_ours` about a topic id and a segment in the warm directory. The answer is True if that segment has
    the content that this log has, or had, in its segment of that name.
    """

    def __init__(self, files: Files, root: Path, data: Layout) -> None:
        self._files = files
        self._place = Layout(root)
        self._data = data
        self._lock: DirectoryLock | None = None
        self._claimed: tuple[int, int] | None = None

    @property
    def root(self) -> Path:
        return self._place.root

    def check_apart(self, topic_id: int | None = None) -> None:
        """Raise `WarmDirectoryNotApart` if the directory is not apart from the data directory (WDIR-1).

        A path that does not exist yet is not checked. With `topic_id`, the folder of that topic is checked too.
        """
        identity = self._files.identity
        data, warm = self._data, self._place
        if identity(warm.root) is None:
            return
        if identity(warm.root) == identity(data.root):
            raise self._not_apart("it is the data directory itself")
        own = {identity(path) for path in (data.topics, data.wal, data.meta)} - {None}
        folders = [warm.root, warm.topics, *([] if topic_id is None else [warm.topic(topic_id)])]
        for folder in folders:
            if any(above in own for above in self._upwards(folder)) or identity(folder) == identity(data.root):
                raise self._not_apart(f"{folder} leads into the data directory")
        if identity(warm.topics) in {*self._upwards(data.root)} - {None}:
            raise self._not_apart(f"the data directory lies in {warm.topics}")
        if identity(warm.wal) is not None and identity(warm.meta) is not None:
            raise self._not_apart("it is the data directory of another log")

    def check_topics(self) -> None:
        """Raise `WarmDirectoryNotApart` if the folder of a topic leads into the data directory (WDIR-1)."""
        folders = self._files.list_dir(self._place.topics) if self._files.is_dir(self._place.topics) else []
        for name in folders:
            if self._files.identity(self._place.topics / name) == self._files.identity(self._data.topics / name):
                raise self._not_apart(f"{self._place.topics / name} leads into the data directory")

    def check_owner(self) -> None:
        """Raise `WarmDirectoryTaken` if the directory is another log's (WDIR-5).

        Raises `FileCorrupt` if OWNER or the id is damaged.
        """
        owner = _read(self._files, self.owner_path)
        if owner is not None:
            self._check_ours(owner, self._own_id())

    def claim(self, is_ours: IsOurs) -> bool:
        """Take the directory for this log, durably (WDIR-2, WDIR-3). Return False if the directory does not exist.

        A directory that is claimed already stays as it is.
        Raises `WarmDirectoryNotApart`, `WarmDirectoryTaken`, `FileCorrupt`, and errors of the disk.
        """
        self.check_apart()
        identity = self._files.identity(self.root)
        if identity is None or identity == self._claimed:
            return identity is not None
        self.release()
        try:
            self._lock = DirectoryLock(self._files, self._place.lock)
            self._take(is_ours)
        except DirectoryInUse as error:
            owner = _read(self._files, self.owner_path)
            raise WarmDirectoryTaken(self.root, _named(owner or {})) from error
        except BaseException:
            self.release()
            raise
        self._claimed = identity
        return True

    def release(self) -> None:
        """Release LOCK. The directory still belongs to the log."""
        lock, self._lock, self._claimed = self._lock, None, None
        if lock is not None:
            lock.release()

    def give_up(self) -> None:
        """Unlink OWNER: the log is gone with all its segments, and any log may take the directory."""
        if self._lock is not None:
            self._files.unlink(self.owner_path)
            self._files.sync_dir(self.root)

    @property
    def owner_path(self) -> Path:
        return self.root / "OWNER"

    def _take(self, is_ours: IsOurs) -> None:
        """Check or adopt the directory, and write OWNER. The caller holds LOCK."""
        owner, own_id = _read(self._files, self.owner_path), self._own_id()
        if owner is not None:
            self._check_ours(owner, own_id)
        elif not self._may_adopt(is_ours):
            raise WarmDirectoryTaken(self.root, "another log, whose segments are there")
        own_id = own_id or log_id(self._files, self._data)
        expected = {"format": _FORMAT, "inode": self._inode(), "log": own_id, "path": str(self._data.root)}
        if owner != expected:
            _write(self._files, self.owner_path, expected)

    def _check_ours(self, owner: dict[str, Any], own_id: str | None) -> None:
        """Raise `WarmDirectoryTaken` if OWNER has another log, or the original of this copy (WDIR-3, WDIR-4)."""
        if owner.get("log") != own_id:
            raise WarmDirectoryTaken(self.root, _named(owner))
        other = Layout(Path(str(owner.get("path"))))
        is_elsewhere = self._files.identity(other.root) not in {None, self._files.identity(self._data.root)}
        is_original = owner.get("inode") == self._inode()
        if is_elsewhere and is_original and known_log_id(self._files, other) == own_id:
            raise WarmDirectoryTaken(self.root, f"{other.root}, of which {self._data.root} is a copy")

    def _may_adopt(self, is_ours: IsOurs) -> bool:
        segments = list(self._segments())
        return not segments or any(is_ours(topic_id, segment) for topic_id, segment in segments)

    def _segments(self) -> Iterator[tuple[int, SegmentId]]:
        names = self._files.list_dir(self._place.topics) if self._files.is_dir(self._place.topics) else []
        for name in names:
            topic_id = number_in("topic", name)
            if topic_id is not None:
                store = LocalSegmentStore(self._files, self._place, topic_id)
                yield from ((topic_id, segment) for segment in store.list())

    @property
    def _id_path(self) -> Path:
        return self._data.meta / "log-id"

    def _inode(self) -> int:
        identity = self._files.identity(self.root)
        return 0 if identity is None else identity[1]

    def _own_id(self) -> str | None:
        stored = _read(self._files, self._id_path)
        return None if stored is None else str(stored.get("log"))

    def _upwards(self, path: Path) -> list[tuple[int, int] | None]:
        """Return the identities of `path` and of all directories above it."""
        identities = [self._files.identity(path)]
        with suppress(PermissionError):
            self._climb(path, identities)
        return identities

    def _climb(self, path: Path, identities: list[tuple[int, int] | None]) -> None:
        while identities[-1] is not None:
            path /= ".."
            identities.append(self._files.identity(path))
            if identities[-1] == identities[-2]:
                return

    def _not_apart(self, reason: str) -> WarmDirectoryNotApart:
        return WarmDirectoryNotApart(self._place.root, self._data.root, reason)


def log_id(files: Files, data: Layout) -> str:
    """Return the log's own id. If there is none, make one, durable on return.

    Raises `FileCorrupt`, and errors of the disk.
    """
    with _making.exclusive:
        own_id = known_log_id(files, data)
        if own_id is None:
            own_id = os.urandom(16).hex()
            _write(files, _id_path(data), {"format": _FORMAT, "log": own_id})
    return own_id


def _id_path(data: Layout) -> Path:
    return data.meta / "log-id"


def known_log_id(files: Files, data: Layout) -> str | None:
    """Return the log's own id, or None if there is none yet. Raise `FileCorrupt`, and errors of the disk."""
    stored = _read(files, _id_path(data))
    return None if stored is None else str(stored.get("log"))


def _named(owner: dict[str, Any]) -> str:
    return f"log {owner['log']}, which was at {owner.get('path')}" if "log" in owner else "another log, which is open"


def _write(files: Files, path: Path, value: dict[str, Any]) -> None:
    body = canonical.encode(value)
    replace_atomically(files, path, body + b"\n" + xxh3_64_hexdigest(body).encode() + b"\n")


def _read(files: Files, path: Path) -> dict[str, Any] | None:
    """Return the value in OWNER or `log-id`. None: no such file. Raises `FileCorrupt`, `FormatUnsupported`."""
    try:
        file = OpenFile(files, path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    raw = file.read(_MAX_BYTES, 0)
    body = raw[:-_CHECK_BYTES]
    if raw[-_CHECK_BYTES:] != b"\n" + xxh3_64_hexdigest(body).encode() + b"\n":
        raise FileCorrupt(path, 0, "checksum mismatch")
    fields: dict[str, Any] = canonical.decode(body)
    if fields.get("format") != _FORMAT:
        raise FormatUnsupported(path, str(fields.get("format")))
    return fields
