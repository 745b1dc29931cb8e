"""A child that appends without end and offloads meanwhile, until it is killed: `python -m tests.faults.busy_way`.

Its arguments: the directory, the remote, and `none`, `before:K` or `after:K` as for tests.faults.way. Record n has n in
its value, whichever process wrote it, so a missing or doubled record shows. The child writes each acked seq to stdout.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from pathlib import Path

import offload
import seglog
from offload.wiring import open_store
from seglog import Topic, TopicConfig
from tests.faults.offloads import SMALL_BLOCKS, SMALL_LOG
from tests.faults.store import KillingStore

__all__ = ["TOPIC", "value"]

TOPIC = "busy"
_BATCH = 6
_RECORD_BYTES = 15_000


def value(number: int) -> bytes:
    return (b"%d " % number).ljust(_RECORD_BYTES, b".")


def main(directory: str, remote: str, step: str) -> None:
    store = open_store(remote)
    when, _, effect = step.partition(":")
    if effect:
        store = KillingStore(store, effect=int(effect), when=when)
    with (
        seglog.open(Path(directory), settings=SMALL_LOG) as log,
        offload.attach(log, remote, store=store, settings=offload.Settings().with_parts(SMALL_BLOCKS)) as archive,
    ):
        if not log.has_topic(TOPIC):
            log.create_topic(TOPIC, TopicConfig(keep_history=True))
        topic = log.topic(TOPIC)
        threading.Thread(target=_append, args=(topic,), daemon=True).start()
        for turn in itertools.count():
            topic.seal()
            archive.offload(TOPIC, drop_hot=turn % 2 == 1)


def _append(topic: Topic) -> None:
    for first in itertools.count(topic.head_seq + 1, _BATCH):
        acked = topic.append([value(number) for number in range(first, first + _BATCH)])
        os.write(1, b"acked %d\n" % (acked.stop - 1))


if __name__ == "__main__":
    main(*sys.argv[1:])
