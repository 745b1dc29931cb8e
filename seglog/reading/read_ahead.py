"""A read-ahead buffer for sequential parsing. One read serves many small items, or one large item."""

from __future__ import annotations

from seglog.files.open_file import Readable

__all__ = ["READ_AHEAD_BYTES", "ReadAheadBuffer"]

READ_AHEAD_BYTES = 1024 * 1024


class ReadAheadBuffer:
    """A buffer over a file. It never reads past `end`, whatever a length field says. Not thread-safe."""

    __slots__ = ("_base", "_end", "_file", "_read_bytes", "buffer")

    def __init__(self, file: Readable, end: int, read_bytes: int = READ_AHEAD_BYTES) -> None:
        self._file = file
        self._end = end
        self._read_bytes = read_bytes
        self._base = 0
        self.buffer = b""

    def index(self, position: int, length: int) -> int:
        """Return the index of `position` in `buffer`.

        From there on, `buffer` has `length` bytes, or as many as the file has up to `end`.
        """
        if position < self._base or position + length > self._base + len(self.buffer):
            wanted = min(max(length, self._read_bytes), self._end - position)
            self.buffer = self._file.read(max(wanted, 0), position)
            self._base = position
        return position - self._base
