"""The texts of `seglog points` and `seglog resolve`."""

from __future__ import annotations

from offload.cli.log import commit_text
from offload.cli.output import counted, format_bytes, lines
from offload.commands.moments import PointListed, RecordNearby, Resolved, Window

__all__ = ["print_points", "print_resolved"]


def point_text(found: Window | PointListed) -> str:
    if isinstance(found, Window):
        return f"{found.topic}: {found.range}"
    size = [counted(found.records)] if found.records else []
    size += [format_bytes(found.bytes)] if found.bytes else []
    told = ", ".join([found.what, *size, f"kept by {found.kept}", f"by {found.writer}"])
    message = f": {found.message}" if found.message else ""
    return f"{found.target:<16} {found.time}  head seq {found.head_seq:<8} {told}{message}"


def resolved_text(found: Resolved) -> str:
    cut = "" if found.seq is None else f", cut after seq {found.seq}"
    told = [f"{found.target} is lsn {found.lsn} of volume {found.volume}{cut}"]
    *earlier, last = [_record(each) for each in found.before] or ["no record"]
    told += [f"    {each}" for each in earlier]
    told.append(f"  > {last}")
    told += [f"    {_record(each)}" for each in found.after] or ["    no record follows today"]
    if found.next_commit is not None:
        told.append(f"  the next commit: {commit_text(found.next_commit)}")
    if found.pin is not None:
        told.append(f"  kept until {found.pinned_until} by the pin {found.pin}")
    return "\n".join(told)


def _record(record: RecordNearby) -> str:
    tag = f" tag {record.tag}" if record.tag else ""
    return f"seq {record.seq}  {record.time}{tag}  {record.start}"


print_points = lines(point_text)
print_resolved = lines(resolved_text)
