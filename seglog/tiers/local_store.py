"""Segments in a directory, laid out as in a data directory: <root>/topics/<8 hex>/seg-<first seq>.data and .idx.

The store writes each part beside its place, syncs it, renames it, then syncs the directory. So a part is always whole.
If a crash left one part of a segment, `list` does not show that segment. The store never makes the root. So if a disk
is not mounted, nothing is written below the mount point.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from seglog.errors import NoSuchSegment, SegmentCut
from seglog.files.open_file import OpenFile
from seglog.files.port import Files, replace_atomically
from seglog.tiers.segment_store import Part, SegmentId
from seglog.values.layout import Layout, number_in

__all__ = ["LocalSegmentStore"]


class LocalSegmentStore:
    """The store of one topic.

    If a crash left a temporary file, the next `put` of its segment replaces it.
    """

    def __init__(self, files: Files, layout: Layout, topic_id: int) -> None:
        self._files = files
        self._layout = layout
        self._topic_id = topic_id

    @property
    def files(self) -> Files:
        return self._files

    @property
    def root(self) -> Path:
        return self._layout.root

    def path(self, segment: SegmentId, part: Part) -> Path:
        return self._layout.part(part.value, self._topic_id, segment)

    def identity(self, segment: SegmentId, part: Part) -> tuple[int, int] | None:
        """Return device and inode of the file. None: the file does not exist."""
        return self._files.identity(self.path(segment, part))

    def put(self, segment: SegmentId, data: bytes, idx: bytes) -> None:
        self._make_directory()
        replace_atomically(self._files, self._layout.data(self._topic_id, segment), data)
        replace_atomically(self._files, self._layout.idx(self._topic_id, segment), idx)

    def read_range(self, segment: SegmentId, part: Part, offset: int, length: int) -> bytes:
        body = self._open(segment, part).read(length, offset)
        if len(body) < length:
            raise SegmentCut(segment, part.value, offset + len(body), offset + length)
        return body

    def delete(self, segment: SegmentId) -> None:
        for kind in ("idx", "data", "tags"):
            try:
                self._files.unlink(self._layout.part(kind, self._topic_id, segment))
            except FileNotFoundError:
                continue
        try:
            self._files.sync_dir(self._layout.topic(self._topic_id))
        except FileNotFoundError:
            self._check_root()

    def list(self) -> list[SegmentId]:
        try:
            names = self._files.list_dir(self._layout.topic(self._topic_id))
        except FileNotFoundError:
            return []
        data, idx = ({number_in(kind, name) for name in names} - {None} for kind in ("data", "idx"))
        return sorted(SegmentId(number) for number in data & idx if number is not None)

    def exists(self, segment: SegmentId, part: Part) -> bool:
        try:
            self._open(segment, part)
        except NoSuchSegment:
            return False
        return True

    def length(self, segment: SegmentId, part: Part) -> int:
        return self._open(segment, part).size()

    def _open(self, segment: SegmentId, part: Part) -> OpenFile:
        place = self._layout.data if part is Part.DATA else self._layout.idx
        try:
            return OpenFile(self._files, place(self._topic_id, segment), os.O_RDONLY)
        except FileNotFoundError as error:
            self._check_root()
            raise NoSuchSegment(segment) from error

    def _check_root(self) -> None:
        """Raise `FileNotFoundError` if the root does not exist.

        Without its disk, a missing segment is trouble and not absence (SEGSTORE-3).
        """
        if not self._files.is_dir(self._layout.root):
            raise FileNotFoundError(errno.ENOENT, "the directory does not exist", str(self._layout.root))

    def _make_directory(self) -> None:
        for directory in (self._layout.topics, self._layout.topic(self._topic_id)):
            self._files.make_dir(directory)
            self._files.sync_dir(directory.parent)
