"""The mark of a record: the state of its stream after it, in the tag.

    stream;closed             the stream is closed
    stream;seq=TEXT           the last `Stream-Seq` is TEXT
    stream;closed;seq=TEXT    both

SMARK-1  Each record of a stream carries the state, so the last record has it. The state and the records come with one
    write, and agree after any crash.
SMARK-2  An empty record whose mark says `closed` is the end of its stream, and no data. Any other record has a byte.

No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NO_MARK", "Mark", "mark_of"]

_BEGIN = "stream"
_CLOSED = ";closed"
_SEQ = ";seq="


@dataclass(frozen=True, slots=True)
class Mark:
    """The state of a stream: open or closed, and its last `Stream-Seq`."""

    is_closed: bool = False
    seq: str | None = None

    @property
    def tag(self) -> str | None:
        """Return the tag of a record; None for a stream that is open and never had a `Stream-Seq`."""
        if not self.is_closed and self.seq is None:
            return None
        return _BEGIN + (_CLOSED if self.is_closed else "") + ("" if self.seq is None else _SEQ + self.seq)


NO_MARK = Mark()


def mark_of(tag: str | None) -> Mark:
    """Return the mark of a record. A tag that an append outside of the stream gave is no mark."""
    if tag is None or not tag.startswith(_BEGIN + ";"):
        return NO_MARK
    rest = tag.removeprefix(_BEGIN)
    is_closed = rest == _CLOSED or rest.startswith(_CLOSED + ";")
    rest = rest.removeprefix(_CLOSED) if is_closed else rest
    return Mark(is_closed, rest.removeprefix(_SEQ) if rest.startswith(_SEQ) else None)
