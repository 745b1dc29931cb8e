"""This value tells what many deletes reach together. A record takes one look, whatever their number. No I/O.

    below        of deletes without a tag: a floor, every record below it is reached
    tag          of deletes by that tag: the highest seq that one of them covers
    prefix*      the same; a tag is looked up by each length that a prefix has

H1  A delete reaches the records that were there when it was made. So it has an upper end, and of two with one tag the
    one with the higher end covers the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

from seglog.values.deletes import DeleteOp

__all__ = ["NOTHING", "Reach"]

_number = attrgetter("op")


class Reach:
    """Deletes are added by one thread at a time; others may ask meanwhile, and see each of them whole or not yet."""

    __slots__ = ("_exact", "_lengths", "_prefixes", "_widest", "below", "top")

    def __init__(self, ops: Iterable[DeleteOp] = ()) -> None:
        self.below = 0
        self.top = 0
        self._exact: dict[str, int] = {}
        self._prefixes: dict[str, int] = {}
        self._lengths: tuple[int, ...] = ()
        self._widest: dict[str, DeleteOp] = {}
        for op in ops:
            self.add(op)

    def add(self, op: DeleteOp) -> None:
        """A second time changes nothing."""
        end = op.below
        if op.tag is None:
            self.below = max(self.below, end)
        else:
            self._add_tag(op, op.tag, end)
        # Last: a reader compares with it first.
        self.top = max(self.top, end)

    @property
    def has_tags(self) -> bool:
        return bool(self._widest)

    @property
    def tagged(self) -> tuple[DeleteOp, ...]:
        """Return, for each tag, the delete that covers the others. Their numbers ascend."""
        return tuple(sorted(self._widest.values(), key=_number))

    def end(self, tag: str | None) -> int:
        """The first seq that is not reached if the record has this tag."""
        end = self.below
        if tag is None:
            return end
        end = max(end, self._exact.get(tag, 0))
        for length in self._lengths:
            if length > len(tag):
                break
            end = max(end, self._prefixes.get(tag[:length], 0))
        return end

    def reaches(self, seq: int, tag: str | None) -> bool:
        return seq < self.top and seq < self.end(tag)

    def may_reach(self, seq: int) -> bool:
        """Tell whether some tag makes a record with that seq a deleted one."""
        return seq < self.top

    def kept(self, seqs: Sequence[int], tags: Sequence[str | None] | None) -> list[bool] | None:
        """Tell for each of these records that it is not reached; None: that holds for all.

        `seqs` ascend. Without `tags` no record has one.
        """
        if tags is None:
            return None if seqs[0] >= self.below else [seq >= self.below for seq in seqs]
        ends = {tag: self.end(tag) for tag in set(tags)}
        if seqs[0] >= max(ends.values()):
            return None
        return [seq >= ends[tag] for seq, tag in zip(seqs, tags, strict=True)]

    def _add_tag(self, op: DeleteOp, tag: str, end: int) -> None:
        widest = self._widest.get(tag)
        if widest is not None and widest.below > end:
            return
        self._widest[tag] = op
        if not tag.endswith("*"):
            self._exact[tag] = end
            return
        self._prefixes[tag[:-1]] = end
        if len(tag) - 1 not in self._lengths:
            self._lengths = tuple(sorted((*self._lengths, len(tag) - 1)))


#: What no delete reaches.
NOTHING = Reach()
