"""A piece of a file that moves forward with who reads it: one read for many small things, one for a large one."""

from __future__ import annotations

from seglog.files.open_file import Readable

__all__ = ["WINDOW_BYTES", "Window"]

WINDOW_BYTES = 1024 * 1024


class Window:
    """No more than `end` allows is read, whatever a length field says. Not thread-safe."""

    __slots__ = ("_base", "_end", "_file", "_read_bytes", "buffer")

    def __init__(self, file: Readable, end: int, read_bytes: int = WINDOW_BYTES) -> None:
        self._file = file
        self._end = end
        self._read_bytes = read_bytes
        self._base = 0
        self.buffer = b""

    def index(self, position: int, length: int) -> int:
        """Where `position` is in the buffer, which has `length` bytes from there on, as far as the file has."""
        if position < self._base or position + length > self._base + len(self.buffer):
            wanted = min(max(length, self._read_bytes), self._end - position)
            self.buffer = self._file.read(max(wanted, 0), position)
            self._base = position
        return position - self._base
