"""The port to records that are no longer on the local disk.

The log serves what it has (the hot tier) and asks the cold tier for the rest, without knowing what that is.
The hard invariant: a slow or dead cold tier never delays an append or a read of hot data, so the log holds no lock
while it waits for one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from seglog.values.record import Record

__all__ = ["ColdTier"]


class ColdTier(Protocol):
    def read(self, topic: str, first: int, last: int) -> Iterator[Record]:
        """Live records with `first <= seq <= last`, ascending, as far as the tier knows of deletes: the log leaves out
        what a delete that it still lists has reached.

        Raises whatever says that a record should be there and cannot be had; never skips one for that.
        """
        ...
