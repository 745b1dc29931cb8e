"""A merge of many deletes. A record takes one lookup, however many deletes there are. No I/O.

    below        the highest end of a delete without a tag: every record below it is reached
    tag          the highest end of a delete by that tag; ends are exclusive
    prefix*      the same for a prefix; a record's tag is looked up at each length that a prefix has

REACH-1  A delete reaches only records that existed when it was made, so its reach has an upper end. Of two deletes by
    one tag, the one with the higher end covers the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

from seglog.values.deletes import DeleteOp

__all__ = ["NO_DELETES", "MergedDeletes"]

_number = attrgetter("op")


class MergedDeletes:
    """A merge of deletes. One thread at a time adds a delete. Other threads may ask meanwhile.

    They see each delete as a whole, or not yet.
    """

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
        """Add a delete. Adding it a second time changes nothing."""
        end = op.below
        if op.tag is None:
            self.below = max(self.below, end)
        else:
            self._add_tag(op, op.tag, end)
        # Set `top` last, because a reader compares with it first.
        self.top = max(self.top, end)

    @property
    def has_tags(self) -> bool:
        return bool(self._widest)

    @property
    def tagged(self) -> tuple[DeleteOp, ...]:
        """Return, for each tag, the delete that covers the others. Their numbers ascend."""
        return tuple(sorted(self._widest.values(), key=_number))

    def end(self, tag: str | None) -> int:
        """Return the first seq that is not reached, for records with this tag."""
        end = self.below
        if tag is None:
            return end
        exact = self._exact.get(tag, 0)
        if exact > end:
            end = exact
        for length in self._lengths:
            by_prefix = self._prefixes.get(tag[:length], 0)
            if by_prefix > end:
                end = by_prefix
        return end

    def reaches(self, seq: int, tag: str | None) -> bool:
        return seq < self.top and seq < self.end(tag)

    def may_reach(self, seq: int) -> bool:
        """Return whether a record with that seq is deleted for some tag."""
        return seq < self.top

    def kept(self, seqs: Sequence[int], tags: Sequence[str | None] | None) -> list[bool] | None:
        """Return for each of these records whether it is not reached; None if no record is reached.

        `seqs` ascend. Without `tags`, no record has a tag.
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


#: The merge of no deletes.
NO_DELETES = MergedDeletes()
