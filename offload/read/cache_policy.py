"""Which chunks stay in the cache: S3-FIFO, with admission for what a scan reads: what follows a reader's first chunk.

    queue   who is in it                                            who leaves it
    small   what a reader asked for itself, for the first time      its oldest: to main if it was used again, else out
    main    what was used again; what comes back soon after it went its oldest: to the end again, once for each use
                                                                    (three at most), else out
    ghost   names only: what went out of small, and what scans read  its oldest
            that was not admitted

Y1  What a scan reads is admitted when it is in ghost: a second scan of what would fit is kept, a first scan changes
    nothing, and neither does one of more than would fit, however often it comes.
Y2  Small gets a tenth of the bytes, so what is asked for once cannot push out what is used again and again.
Y3  Ghost remembers as many bytes as the cache may hold.
Y4  Room is made before anything is fetched: after `admit`, sizes add up to the limit at most.

A decision: values only, no files. Not to be shared by threads.
"""

from __future__ import annotations

from collections import OrderedDict

__all__ = ["Admission", "CachePolicy", "Name"]

Name = tuple[bytes, int]
"""Of a chunk: its segment's id and its offset in the data object."""

_SMALL_SHARE = 10
_LARGEST_SHARE = 4  # a chunk of more than a quarter of all is not worth it
_USES_MAX = 3


class Admission(list[Name]):
    """What has to go for the one that was admitted."""


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
        """One that was there before a restart."""
        return self._put(name, size_bytes, into_main=True)

    def admit(self, name: Name, size_bytes: int, *, is_scan: bool) -> Admission | None:
        """Make room for a chunk that is not there. None: it is not kept."""
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
