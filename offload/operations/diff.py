"""The differences between two points of the past: `seglog diff`. No record is copied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from itertools import islice
from typing import TYPE_CHECKING, Annotated

from offload.moment import Moment
from offload.operations.command import About, Command, always, without_main
from offload.operations.printing import counted, lines
from offload.operations.result_json import MERGED, OPTIONAL
from offload.reports import Side
from seglog import Record
from seglog.base.dataclasses import dataclass

if TYPE_CHECKING:
    from offload.archive import Archive


@dataclass(frozen=True, slots=True)
class PointSide:
    """One of two points, and the last seq that both share."""

    point: str
    shared_seq: int
    side: Side = field(metadata=MERGED)


@dataclass(frozen=True, slots=True)
class DifferingRecord:
    """A record that only one point shows. `only_in` is left or right."""

    only_in: str
    record: RecordShown = field(metadata=MERGED)


def diff(
    archive: Archive,
    left: Annotated[
        str, About("TOPIC[@BRANCH], or TOPIC[@BRANCH]:TARGET, such as orders:lsn:7.", metavar="LEFT", names="point")
    ],
    right: Annotated[
        str | None,
        About(
            "The point to compare with; the newest state of LEFT's topic without it.", is_argument=True, names="point"
        ),
    ] = None,
    records: Annotated[bool, About("Also the records: - is only in LEFT, + only in RIGHT.")] = False,
    limit: Annotated[int | None, About("At most so many records.", "-n --limit", least=1)] = None,
) -> Iterator[PointSide | DifferingRecord]:
    """Show how two points differ. It shows the records that only one has, and the shared records that one has deleted.

    A point is a branch, or a target in it: seq:N, lsn:N, head, head~N, tag:NAME, or a time. Without --records, the
    command reads commits and indexes only. Records that are not offloaded yet do not count.
    Examples: seglog diff orders:head~1; seglog diff orders:tag:v1 orders@try --records
    """
    left_name, left_at = _point(left)
    right_name, right_at = (left_name, None) if right is None else _point(right)
    difference = archive.history.diff(left_name, right_name, left_at=left_at, right_at=right_at)
    yield PointSide(left, difference.shared_seq, difference.left)
    yield PointSide(right or right_name, difference.shared_seq, difference.right)
    if records:
        for is_left, record in islice(archive.history.differing_records(difference), limit):
            yield DifferingRecord("left" if is_left else "right", RecordShown.of(record))


def _point(text: str) -> tuple[str, str | None]:
    """Return the name and the target of a point. A topic's name has no colon."""
    name, _, target = text.partition(":")
    return without_main(name) or "", target or None


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


def diff_text(row: PointSide | DifferingRecord) -> str:
    if isinstance(row, DifferingRecord):
        mark = "-" if row.only_in == "left" else "+"
        return f"{mark} {row.record.heading}  {row.record.content}"
    side = row.side
    seqs = f", seq {side.first_seq} to {side.last_seq}" if side.appended else ""
    changes = f"{counted(side.appended)} appended{seqs}, {counted(side.deleted)} deleted"
    return f"{row.point:<32} {changes} of those up to seq {row.shared_seq}"


DIFF = Command("diff", diff, lines(diff_text), reads=always, role="read", is_long=True, section="time travel")
