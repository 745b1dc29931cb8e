"""Volumes with their names, controls and first commits."""

from __future__ import annotations

from catalog.format.commit import NO_PARENT, Bounds, Commit, CommitKind, ForkPoint
from catalog.format.control import Control
from catalog.format.encoding import encode_commit
from tests.catalog.samples import START_MS, segment, vid

__all__ = ["FORK", "MAIN", "OURS", "SECOND", "THEIRS", "commit_of", "control"]

MAIN, FORK, SECOND = vid(1), vid(2), vid(3)


def control(volume: object, parent: ForkPoint | None = None, branch: str = "main") -> Control:
    return Control(volume, parent, START_MS, "orders", branch)  # type: ignore[arg-type]


def commit_of(writer: str, lsn: int = 1, parent_hash: bytes = NO_PARENT) -> tuple[Commit, bytes]:
    seqs = (lsn - 1) * 10
    commit = Commit(
        vid=MAIN,
        lsn=lsn,
        kind=CommitKind.OFFLOAD,
        bounds=Bounds(1, seqs + 10),
        parent_hash=parent_hash,
        nonce=writer.encode().ljust(16, b"."),
        created_at_ms=START_MS,
        writer_id="the same",
        epoch=1,
        at_seq=seqs + 10,
        at_ts_ms=START_MS,
        segments=(segment(seqs + 1, seqs + 10),),
    )
    return commit, encode_commit(commit)[0]


OURS, THEIRS = commit_of("ours")[1], commit_of("theirs")[1]
