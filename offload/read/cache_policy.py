"""The policy that decides which chunks stay in the cache: S3-FIFO, with admission for scans.

A scan reads the chunks after a reader's first chunk.

    queue   chunks in it                                              the oldest chunk leaves
    small   a reader asked for the chunk itself, for the first time   to main if it was used again, else out
    main    the chunk was used again, or came back soon after it      to the end of main, once for each use (three at
            left                                                      most), else out
    ghost   names only: chunks that left small, and scanned chunks    out
            that were not admitted

POLICY-1  The policy admits a scanned chunk if its name is in ghost. So it keeps a second scan of data that fits. A
    first scan changes nothing. Neither does a scan of more data than fits, however often it comes.
POLICY-2  Small gets a tenth of the bytes, so a chunk that is used once cannot push out chunks that are used again and
    again.
POLICY-3  Ghost remembers as many bytes as the cache may hold.
POLICY-4  `admit` makes room before a fetch begins. After `admit`, the sizes add up to the limit at most.

This module does no I/O. Threads must not share a policy.
"""

from __future__ import annotations

from collections import OrderedDict

__all__ = ["Admission", "CachePolicy", "Name"]

Name = tuple[bytes, int]
"""The name of a chunk: its segment's id and its offset in the data object."""

_SMALL_SHARE = 10
_LARGEST_SHARE = 4  # a chunk above a quarter of the limit is not kept
_USES_MAX = 3


class Admission(list[Name]):
    """The names of the chunks that must leave for an admitted chunk."""


class CachePolicy:
    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._small: OrderedDict[Name, int] = OrderedDict()
        self._main: OrderedDict[Name, int] = OrderedDict()
        self._ghost: OrderedDict[Name, int] = OrderedDict()
        self._uses: dict[Name, int] = {}
        self._small_bytes = 0
        self._main_bytes = 0
        self._ghost_bytes = 0

    @property
    def held_bytes(self) -> int:
        return self._small_bytes + self._main_bytes

    def __contains__(self, name: Name) -> bool:
        return name in self._uses

    def __len__(self) -> int:
        return len(self._uses)

    def use(self, name: Name) -> None:
        if name in self._uses:
            self._uses[name] = min(_USES_MAX, self._uses[name] + 1)

    def restore(self, name: Name, size_bytes: int) -> Admission:
        """Enter a chunk that was in the cache before a restart."""
        return self._put(name, size_bytes, into_main=True)

    def admit(self, name: Name, size_bytes: int, *, is_scan: bool) -> Admission | None:
        """Make room for a chunk that is not in the cache. Return None if the cache does not keep it."""
        if size_bytes * _LARGEST_SHARE > self._limit_bytes:
            return None
        is_known = self._leave_ghost(name)
        if is_scan and not is_known:
            self._enter_ghost(name, size_bytes)
            return None
        return self._put(name, size_bytes, into_main=is_known)

    def remove(self, name: Name) -> None:
        if self._uses.pop(name, None) is None:
            return
        if name in self._small:
            self._small_bytes -= self._small.pop(name)
        else:
            self._main_bytes -= self._main.pop(name)

    def _put(self, name: Name, size_bytes: int, *, into_main: bool) -> Admission:
        gone = Admission()
        while self._uses and self.held_bytes + size_bytes > self._limit_bytes:
            if self._small and (not self._main or self._small_bytes * _SMALL_SHARE > self._limit_bytes):
                self._pass_small(gone)
            else:
                self._pass_main(gone)
        self._uses[name] = 0
        if into_main:
            self._main[name] = size_bytes
            self._main_bytes += size_bytes
        else:
            self._small[name] = size_bytes
            self._small_bytes += size_bytes
        return gone

    def _pass_small(self, gone: Admission) -> None:
        name, size_bytes = self._small.popitem(last=False)
        self._small_bytes -= size_bytes
        if self._uses[name]:
            self._uses[name] = 0
            self._main[name] = size_bytes
            self._main_bytes += size_bytes
            return
        del self._uses[name]
        self._enter_ghost(name, size_bytes)
        gone.append(name)

    def _pass_main(self, gone: Admission) -> None:
        name, size_bytes = self._main.popitem(last=False)
        if self._uses[name]:
            self._uses[name] -= 1
            self._main[name] = size_bytes
            return
        self._main_bytes -= size_bytes
        del self._uses[name]
        gone.append(name)

    def _enter_ghost(self, name: Name, size_bytes: int) -> None:
        self._leave_ghost(name)
        self._ghost[name] = size_bytes
        self._ghost_bytes += size_bytes
        while self._ghost_bytes > self._limit_bytes:
            self._ghost_bytes -= self._ghost.popitem(last=False)[1]

    def _leave_ghost(self, name: Name) -> bool:
        size_bytes = self._ghost.pop(name, None)
        self._ghost_bytes -= size_bytes or 0
        return size_bytes is not None
