"""A data directory from a remote alone: `seglog recover`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from offload import recovery
from offload.commands.offload import TopicFailed
from offload.commands.results import Moment

__all__ = ["Recovered", "recover"]


@dataclass(frozen=True, slots=True)
class Recovered:
    """The remote's state of one topic or branch. Without records, `last_seq` and `last_time` are None."""

    topic: str
    volume: str
    lsn: int
    head_seq: int
    records: int
    last_seq: int | None
    last_time: Moment | None
    is_writable: bool


def recover(directory: Path, url: str, *, topic: str | None, writable: bool) -> Iterator[Recovered | TopicFailed]:
    """Yield each topic and branch when it is done. After all of them, raise the error of the last one that failed."""
    failed: Exception | None = None
    for each in recovery.recover(directory, url, only=topic, writable=writable):
        if isinstance(each, recovery.TopicFailed):
            failed = each.error
            yield TopicFailed(each.name, str(each.error))
        else:
            yield _recovered(each)
    if failed is not None:
        raise failed


def _recovered(found: recovery.RecoveredTopic) -> Recovered:
    return Recovered(
        topic=found.name,
        volume=found.volume,
        lsn=found.lsn,
        head_seq=found.head_seq,
        records=found.records,
        last_seq=found.last_seq or None,
        last_time=Moment(found.last_ts_ms) if found.last_seq else None,
        is_writable=found.is_writable,
    )
