"""The texts of `seglog points` and `seglog resolve`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from offload.cli.log import commit_text
from offload.operations.moments import PointListed, RecordNearby, Resolved, Window
from offload.operations.printing import Output, lines
from offload.operations.units import counted, format_bytes

__all__ = ["print_points", "print_resolved"]


def point_text(found: Window | PointListed) -> str:
    if isinstance(found, Window):
        return f"{found.topic}: {found.range}"
    size = [counted(found.records)] if found.records else []
    size += [format_bytes(found.bytes)] if found.bytes else []
    told = ", ".join([found.what, *size, f"kept by {found.kept}", f"by {found.writer}"])
    message = f": {found.message}" if found.message else ""
    return f"{found.target:<16} {found.time}  head seq {found.head_seq:<8} {told}{message}"


def resolved_text(found: Resolved, *, has_context: bool = True) -> str:
    cut = "" if found.seq is None else f", cut after seq {found.seq}"
    told = [f"{found.target} is lsn {found.lsn} of volume {found.volume}{cut}"]
    *earlier, last = [_record(each) for each in found.before] or ["no record"]
    told += [f"    {each}" for each in earlier]
    told.append(f"  > {last}")
    told += [f"    {_record(each)}" for each in found.after]
    if has_context and not found.after:
        told.append("    no record follows today")
    if found.next_commit is not None:
        told.append(f"  the next commit: {commit_text(found.next_commit)}")
    if found.pin is not None:
        told.append(f"  kept until {found.pinned_until} by the pin {found.pin}")
    return "\n".join(told)


def _record(record: RecordNearby) -> str:
    tag = f" tag {record.tag}" if record.tag else ""
    return f"seq {record.seq}  {record.time}{tag}  {record.start}"


def print_resolved(output: Output, results: Iterator[Resolved], values: Mapping[str, Any]) -> None:
    for found in results:
        output.show(found, resolved_text(found, has_context=values["neighbours"] > 0))


print_points = lines(point_text)
