"""The text of a look at what a command would take away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from offload.operations.preview import WouldTake
from offload.operations.printing import Printer, lines
from offload.operations.units import counted, format_bytes

__all__ = ["taking_lines", "would_take_text"]


def taking_lines(text: Callable[[Any], str], note_of: Callable[[Any], str] = lambda _: "") -> Printer:
    """Return a printer as `lines` does. It also shows what a dry run found."""

    def text_of(result: Any) -> str:
        return would_take_text(result) if isinstance(result, WouldTake) else text(result)

    return lines(text_of, lambda result: "" if isinstance(result, WouldTake) else note_of(result))


def would_take_text(found: WouldTake) -> str:
    if not found.records:
        told = f"{found.command} of {found.topic} would take no record"
    else:
        of = f"{found.records:,} of about {counted(found.of_records)}"
        span = f"seq {found.first_seq} to {found.last_seq}, {found.first_time} to {found.last_time}"
        told = f"{found.command} of {found.topic} would take {of}: {span}, about {format_bytes(found.bytes)}"
    if found.deletes:
        told += f"\n  and {counted(found.deletes, 'delete')} that only this directory has"
    if found.records:
        how = "kept" if found.command.endswith("--erase") else "shown"
        told += f"\n  then {how} by: {', '.join(found.shown_by) or 'no other branch or tag'}"
    return told
