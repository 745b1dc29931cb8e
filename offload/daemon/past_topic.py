"""A past state of a topic, as the routes that read records take it."""

from __future__ import annotations

from collections.abc import Iterator

from offload.archive import Archive
from offload.operations.matching import Match
from offload.operations.pruning import Skipped, read_state
from seglog import Evicted, Gap, Record


class PastTopic:
    """The state of a topic at a target. `at` is a target that means the same state later, as far as there is one."""

    def __init__(self, archive: Archive, name: str, at: str, tag: str | None = None) -> None:
        """May ask the remote. Reads leave out what has no record with the `tag`. Raises as `Archive.read` does."""
        self.name = name
        self.earliest_seq, self.head_seq, self.at = archive.history.bounds(name, at)
        self._archive = archive
        self._tag = tag

    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        since_ms: int | None = None,
        until_ms: int | None = None,
        gaps: bool = False,
    ) -> Iterator[Record | Gap]:
        """Yield records as `ReplicaTopic.read` does, of this state."""
        match = Match(since_ms, until_ms, self._tag)
        counts = Skipped() if match.is_indexed else None
        try:
            records = read_state(self._archive, self.name, start, end, match, self.at, counts)
        except Evicted as lost:
            if not gaps:
                raise
            yield Gap(lost.gap_from, lost.gap_to)
            records = read_state(self._archive, self.name, lost.gap_to + 1, end, match, self.at, counts)
        for record in records:
            if until_ms is not None and record.ts_ms > until_ms:
                return
            if match.fits(record):
                yield record
