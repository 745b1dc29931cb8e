"""A child process that takes records the whole way and dies on it: `python -m tests.faults.way DIRECTORY REMOTE STEP`.

STEP is one of `appended`, `sealed`, `released`, `none`, or `before:K` / `after:K`, which kills the process with SIGKILL
before or after the Kth effect on the store. Each acked seq range is written to stdout as soon as it is acked.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import offload
import seglog
from offload import OffloadSettings
from offload.wiring import open_store
from seglog import LogSettings, TopicConfig
from tests.faults.store import KillingStore

__all__ = ["RECORDS", "SETTINGS", "TOPIC", "values"]

TOPIC = "way"
RECORDS = 120
SETTINGS = LogSettings(segment_max_events=50, max_record_bytes=1 << 20)
_BLOCK = OffloadSettings(block_size=5 * 1024 * 1024, codec="none", concurrency=2)
_RECORD_BYTES = 100_000  # 12 MB in all: three blocks, so a multipart upload


def values() -> list[bytes]:
    return [(b"%06d " % number).ljust(_RECORD_BYTES, b".") for number in range(1, RECORDS + 1)]


def main(directory: str, remote: str, step: str) -> None:
    store = open_store(remote)
    kind, _, effect = step.partition(":")
    if effect:
        store = KillingStore(store, effect=int(effect), when=kind)
    with seglog.open(Path(directory), settings=SETTINGS) as log:
        if not log.has_topic(TOPIC):
            log.create_topic(TOPIC, TopicConfig(keep_history=True))
            todo = values()
            for start in range(0, RECORDS, 10):
                acked = log.topic(TOPIC).append(todo[start : start + 10])
                os.write(1, b"acked %d\n" % (acked.stop - 1))
        _die_if(step == "appended")
        log.topic(TOPIC).seal()
        _die_if(step == "sealed")
        with offload.attach(log, remote, store=store, settings=_BLOCK) as archive:
            archive.offload(TOPIC, drop_hot=True)
            _die_if(step == "released")
    os.write(1, b"done\n")


def _die_if(now: bool) -> None:
    if now:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
