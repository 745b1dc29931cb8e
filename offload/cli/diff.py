"""The texts of `seglog diff`."""

from __future__ import annotations

from offload.operations.diff import DifferingRecord, PointSide
from offload.operations.printing import lines
from offload.operations.units import counted

__all__ = ["print_diff"]


def diff_text(found: PointSide | DifferingRecord) -> str:
    if isinstance(found, DifferingRecord):
        mark = "-" if found.only_in == "left" else "+"
        return f"{mark} {found.record.heading}  {found.record.content}"
    side = found.side
    seqs = f", seq {side.first_seq} to {side.last_seq}" if side.appended else ""
    told = f"{counted(side.appended)} appended{seqs}, {counted(side.deleted)} deleted"
    return f"{found.point:<32} {told} of those up to seq {found.shared_seq}"


print_diff = lines(diff_text)
