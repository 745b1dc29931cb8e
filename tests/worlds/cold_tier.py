"""A cold tier in memory, which fails at a record."""

from __future__ import annotations

from collections.abc import Iterator

from seglog import Record

__all__ = ["Cold"]


class Cold:
    """A cold tier that yields records, and raises ConnectionError at seq `fails_at`."""

    def __init__(self, records: list[Record], fails_at: int = 0) -> None:
        self.records = records
        self.fails_at = fails_at

    def read(self, topic: str, first: int, last: int) -> Iterator[Record]:
        for record in self.records:
            if record.seq == self.fails_at:
                raise ConnectionError("the store is away")
            if first <= record.seq <= last:
                yield record
