"""The texts of `seglog seal`, `offload`, `compact`, `pause`, `resume`, `retry` and `uploads`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from offload.cli.preview import would_take_text
from offload.operations.compact import NothingRewritten, Rewritten
from offload.operations.offload import Offloaded, TopicFailed, WouldSend
from offload.operations.preview import WouldTake
from offload.operations.printing import Output, lines
from offload.operations.seal import Sealed
from offload.operations.units import counted, format_bytes
from offload.operations.uploads import UploadListed

__all__ = [
    "print_offloaded",
    "print_paused",
    "print_resumed",
    "print_retried",
    "print_rewritten",
    "print_sealed",
    "print_uploads",
]


def sealed_text(sealed: Sealed) -> str:
    segments = counted(sealed.segments, "sealed segment")
    return f"{sealed.topic} is sealed up to seq {sealed.sealed_seq}: {segments} on this disk"


def failure_note(done: Offloaded | WouldSend | TopicFailed) -> str:
    return f"{done.topic}: {done.error}" if isinstance(done, TopicFailed) else ""


def offloaded_text(done: Offloaded | WouldSend | TopicFailed) -> str:
    if isinstance(done, TopicFailed):
        return ""
    if isinstance(done, WouldSend):
        return f"{done.topic}: {format_bytes(done.would_send_bytes)} of sealed segments would be sent to {done.url}"
    commits = ", ".join(f"lsn {lsn}" for lsn in done.lsns) or "nothing new"
    told = [f"{done.topic}: offloaded up to seq {done.offloaded_seq} ({commits})"]
    if done.has_segments:
        frames, stored = format_bytes(done.frame_bytes), format_bytes(done.stored_bytes)
        told.append(f"  {frames} of frames became {stored} in {done.url}")
    if done.released_seq:
        told.append(f"  read back, then deleted the hot copy up to seq {done.released_seq}")
    if done.unsealed_records:
        told.append(f"  {counted(done.unsealed_records)} in the unsealed tail: `seglog seal {done.topic}`")
    return "\n".join(told)


def print_rewritten(
    output: Output, results: Iterator[Rewritten | NothingRewritten | WouldTake], values: Mapping[str, Any]
) -> None:
    for done in results:
        if isinstance(done, WouldTake):
            output.show(done, would_take_text(done))
        elif isinstance(done, Rewritten):
            size, seqs = format_bytes(done.stored_bytes), f"seq {done.first_seq}-{done.last_seq}"
            output.show(done, f"{done.topic}: {seqs} in one object of {size} (lsn {done.lsn})")
        else:
            output.remark(f"{done.topic}: nothing to {'erase' if values['erase'] else 'merge'}")


def print_uploads(output: Output, results: Iterator[UploadListed], _: Mapping[str, Any]) -> None:
    is_none = True
    for upload in results:
        is_none = False
        state = "aborted" if upload.aborted else "orphan "
        output.show(upload, f"{state}  {upload.key}  {upload.age_ms / 3_600_000:.1f} h old")
    if is_none:
        output.remark("none")


print_sealed = lines(sealed_text)
print_offloaded = lines(offloaded_text, failure_note)
print_paused = lines(lambda paused: f"{paused.topic} is paused")
print_resumed = lines(lambda paused: f"{paused.topic} is resumed")
print_retried = lines(lambda retried: f"{retried.topic} is tried again")
