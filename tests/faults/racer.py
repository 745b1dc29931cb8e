"""A process that races commits to one volume: `python -m tests.faults.racer URL VID COMMITS NAME`.

It prints a line for each commit that the store confirms: lsn, hash. If a commit loses its LSN, the racer makes it
again after the winner's commit. If a commit gets no definite answer, the racer sends the identical bytes again.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace

from catalog import NO_PARENT, Bounds, Commit, CommitKind, Vid, Volumes, encode_commit
from catalog.errors import Diverged, OutcomeUnknown, StoreUnreachable
from offload.wiring import open_store

__all__ = ["race"]


def race(volumes: Volumes, vid: Vid, commits: int, name: str) -> None:
    lsn, head = 0, NO_PARENT
    for number in range(commits):
        commit = Commit(
            vid=vid,
            lsn=0,
            kind=CommitKind.CONFIG,
            bounds=Bounds(1, 0),
            parent_hash=NO_PARENT,
            nonce=os.urandom(16),
            created_at_ms=number,
            writer_id=name,
            epoch=1,
            at_seq=0,
            at_ts_ms=0,
            config=f'{{"racer":"{name}","number":{number}}}',
        )
        while True:
            for stored in volumes.next_commits(vid, lsn):
                lsn, head = stored.commit.lsn, stored.hash
            body, digest = encode_commit(replace(commit, lsn=lsn + 1, parent_hash=head, nonce=os.urandom(16)))
            if _publish(volumes, vid, lsn + 1, body):
                break
        lsn, head = lsn + 1, digest
        print(lsn, digest.hex(), flush=True)


def _publish(volumes: Volumes, vid: Vid, lsn: int, body: bytes) -> bool:
    while True:
        try:
            volumes.publish(vid, lsn, body)
        except Diverged:
            return False
        except (OutcomeUnknown, StoreUnreachable):
            continue
        return True


if __name__ == "__main__":
    _, url, text, count, own_name = sys.argv
    race(Volumes(open_store(url)), Vid.parse(text), int(count), own_name)
