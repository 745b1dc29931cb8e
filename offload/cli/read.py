"""The output of `seglog read`: the bytes of the records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from offload.operations.lines import RecordBatch, to_line
from offload.operations.parameters import with_branch
from offload.operations.plain_lines import RecordLines
from offload.operations.printing import Output
from offload.operations.pruning import ReadStats
from offload.operations.units import counted
from seglog import Gap, Record

__all__ = ["print_records"]


def print_records(
    output: Output, results: Iterator[RecordBatch | RecordLines | ReadStats], values: Mapping[str, Any]
) -> None:
    name = with_branch(values["topic"], values["branch"])
    for found in results:
        if isinstance(found, ReadStats):
            _tell(output, found)
        elif isinstance(found, RecordLines):
            output.write(found.data)
        else:
            _write(output, name, found)
        output.flush()


def _tell(output: Output, found: ReadStats) -> None:
    if output.is_json:
        output.show(found, "")
        return
    chunks = f"{counted(found.chunks_read, 'chunk')} read, {found.chunks_skipped:,} left out by the index"
    segments = f"{counted(found.segments_skipped, 'segment')} left out by their commits"
    output.note(f"{counted(found.records)} looked at; {chunks}, {segments}")


def _write(output: Output, name: str, batch: RecordBatch) -> None:
    if output.is_json:
        output.show(batch, "")
        return
    for item in batch.items:
        if isinstance(item, Gap):
            output.note(f"{name}: seq {item.gap_from} to {item.gap_to} were evicted")
    output.write(b"".join(to_line(item) for item in batch.items if isinstance(item, Record)))
