"""A process that offloads by a worker whose store hangs: `python -m tests.offload.worker.orphan DIRECTORY REMOTE`.

When a part is on its way, the process writes the worker's pid to stdout. Then it waits until the test kills it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import offload
import seglog
from offload import ColdSettings
from offload.worker.pool import WorkerPool
from tests.faults.offloads import SMALL_BLOCKS, SMALL_LOG
from tests.offload.worker.children import MODULE, PLAN


class _TellsWhenAPartGoes:
    def __init__(self) -> None:
        self.pool: WorkerPool | None = None

    def take(self, sent_bytes: int) -> None:
        if sent_bytes and self.pool is not None:
            os.write(1, b"%d\n" % self.pool.pids[0])
            self.pool = None

    def answered(self, method: str, outcome: str, elapsed_s: float, sent_bytes: int, received_bytes: int) -> None:
        pass


def main(directory: str, remote: str) -> None:
    os.environ[PLAN] = "hang put_part"
    turns = _TellsWhenAPartGoes()
    pool = turns.pool = WorkerPool(remote, ColdSettings(), SMALL_BLOCKS, turns, MODULE)
    with (
        seglog.open(Path(directory), settings=SMALL_LOG) as log,
        offload.attach(log, remote, settings=offload.Settings().with_parts(SMALL_BLOCKS), uploader=pool) as archive,
    ):
        log.topic("t").append([bytes(15_000)] * 24)
        log.topic("t").seal()
        archive.offload("t")


if __name__ == "__main__":
    main(*sys.argv[1:])
