"""A record with its content, as `bisect` and `diff` show it."""

from __future__ import annotations

from dataclasses import dataclass, field

from offload.moment import Moment
from offload.operations.results import OPTIONAL
from seglog import Record

__all__ = ["RecordShown"]


@dataclass(frozen=True, slots=True)
class RecordShown:
    """A record. A value that is not UTF-8 is `value_base64`."""

    seq: int
    time: Moment
    tag: str | None
    value: str | None = field(metadata=OPTIONAL)
    value_base64: bytes | None = field(metadata=OPTIONAL)

    @classmethod
    def of(cls, record: Record) -> RecordShown:
        try:
            value, raw = record.value.decode(), None
        except UnicodeDecodeError:
            value, raw = None, record.value
        return cls(record.seq, Moment(record.ts_ms), record.tag, value, raw)

    @property
    def heading(self) -> str:
        """Return the seq, the time and the tag, for people."""
        tag = f" tag {self.tag}" if self.tag else ""
        return f"seq {self.seq}  {self.time}{tag}"

    @property
    def content(self) -> str:
        """Return the value, for people."""
        return repr(self.value_base64) if self.value is None else self.value
