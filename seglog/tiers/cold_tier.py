"""The port to records that are no longer on the local disk.

The log serves the records that it has (the hot tier), and asks the cold tier for the rest. The log does not know what
the cold tier is.
The hard invariant: a slow or dead cold tier never delays an append or a read of hot data. So the log holds no lock
while it waits for the cold tier. Only the first append to a branch that the log lacks has to wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from seglog.values.record import Record

if TYPE_CHECKING:
    from seglog.format.record_arrays import RecordArrays


class ColdTier(Protocol):
    def read(self, topic: str, first: int, last: int) -> Iterator[Record]:
        """Iterate over the live records with `first <= seq <= last`, ascending.

        The tier leaves out the records that are deleted, as far as it knows of the deletes. The log leaves out the
        records that its own listed deletes reach.
        If a record should be there and cannot be read, the iterator raises. The tier never skips such a record.
        """


@runtime_checkable
class ArraysTier(ColdTier, Protocol):
    """A cold tier that also returns thousands of records at once. The log asks any other tier for records."""

    def read_arrays(self, topic: str, first: int, last: int) -> Iterator[RecordArrays]:
        """Iterate over the records of `read`, as arrays. Raises as `read` does."""


@runtime_checkable
class BranchesTier(ColdTier, Protocol):
    """A cold tier that knows the branches: which records they have from their parents, and where their own begin."""

    def open_for_append(self, name: str) -> object:
        """Make the topic of the log that takes the appends of a branch, if there is none. This waits for the remote.

        Raises `WrittenElsewhere` if another directory has written the branch.
        """

    def expired_own(self, branch: str, end: int, oldest_ms: int) -> tuple[int, int]:
        """Return the seq after the branch's own records below `end` that are older than a time; 1 if there are none.

        The second number is no later than the time of the first own record from there on; 0 if the tier does not know.
        """
