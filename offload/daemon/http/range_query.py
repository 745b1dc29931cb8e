"""The query of a read of records, as a value. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from offload.daemon.http.parameters import query_of, whole, yes
from offload.errors import InvalidOption
from seglog import Record

__all__ = ["READ_QUERY", "Choice", "RangeQuery"]

_RANGE = frozenset({"from", "to", "tail", "since_ms", "until_ms", "tag", "exclude_node"})
_MANNER = frozenset({"limit", "max_bytes", "gaps", "follow", "wait_s"})
_SEVERAL = frozenset({"exclude_node"})
READ_QUERY = _RANGE | _MANNER
"""The names of the query."""
_WAIT_MAX_S = 60


@dataclass(frozen=True, slots=True)
class Choice:
    """The records that a reader wants. A `tag` with a trailing `*` is a prefix."""

    tag: str | None = None
    since_ms: int | None = None
    excluded: frozenset[str] = frozenset()

    def takes(self, record: Record) -> bool:
        if self.since_ms is not None and record.ts_ms < self.since_ms:
            return False
        if self.excluded and record.node in self.excluded:
            return False
        if self.tag is None:
            return True
        if record.tag is None:
            return False
        return record.tag.startswith(self.tag[:-1]) if self.tag.endswith("*") else record.tag == self.tag


@dataclass(frozen=True, slots=True)
class RangeQuery:
    """The range and the limits of a read. `tail` is a number of seqs before the head."""

    start: int | None
    end: int | None
    tail: int | None
    until_ms: int | None
    choice: Choice
    limit: int | None
    max_bytes: int | None
    gaps: bool
    follow: bool
    wait_s: int

    @property
    def is_cut(self) -> bool:
        """Return whether the answer may end before the range does."""
        return self.limit is not None or self.max_bytes is not None

    @classmethod
    def of(cls, request: Request) -> RangeQuery:
        """Return the query. Raises `UnsupportedOption`, `InvalidOption`."""
        query = query_of(request, READ_QUERY, _SEVERAL)
        excluded = frozenset(request.query_params.getlist("exclude_node"))
        found = cls(
            start=whole(query, "from"),
            end=whole(query, "to"),
            tail=whole(query, "tail"),
            until_ms=whole(query, "until_ms"),
            choice=Choice(query.get("tag"), whole(query, "since_ms"), excluded),
            limit=whole(query, "limit"),
            max_bytes=whole(query, "max_bytes"),
            gaps=yes(query, "gaps"),
            follow=yes(query, "follow"),
            wait_s=whole(query, "wait_s") or 0,
        )
        found.check()
        return found

    def check(self) -> None:
        """Raise `InvalidOption` for values that do not fit, or do not fit together."""
        for name, value in (("limit", self.limit), ("max_bytes", self.max_bytes)):
            if value == 0:
                raise InvalidOption(name, "must be at least 1")
        if self.wait_s > _WAIT_MAX_S:
            raise InvalidOption("wait_s", f"must be at most {_WAIT_MAX_S}")
        if self.follow and (self.end is not None or self.until_ms is not None):
            raise InvalidOption("follow", "has no end: leave out to and until_ms")
        if self.follow and self.wait_s:
            raise InvalidOption("follow", "waits without an end: leave out wait_s")
        if self.follow and self.max_bytes is not None:
            raise InvalidOption("follow", "has no bound of bytes: leave out max_bytes")
        if self.tail is not None and (self.start is not None or self.end is not None):
            raise InvalidOption("tail", "ends at the head: leave out from and to")

    def begin(self, earliest: int, head: int) -> int:
        """Return the first seq of the range in a topic with these bounds."""
        if self.tail is not None:
            return max(earliest, head - self.tail + 1)
        return earliest if self.start is None else self.start
