"""A child process that takes records the whole way and dies on it.

Its step is one of `appended`, `sealed`, `released`, `none`, `before:K` or `after:K`. The last two kill the process with
SIGKILL before or after the Kth effect on the store. The child writes the last seq of each acked range to a pipe at the
ack. A server forks the children: it has imported the modules and has no second thread.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path

import offload
import seglog
from offload import OffloadSettings
from offload.wiring import open_store
from seglog import LogSettings, TopicConfig
from tests.faults.store import KillingStore

__all__ = ["RECORDS", "SETTINGS", "TOPIC", "run", "values"]

TOPIC = "way"
RECORDS = 120
SETTINGS = LogSettings(segment_max_events=50, max_record_bytes=1 << 20)
_BLOCK = OffloadSettings(block_size=5 * 1024 * 1024, codec="none", concurrency=2)
_RECORD_BYTES = 100_000  # 12 MB in all: three blocks, so a multipart upload


def values() -> list[bytes]:
    return [(b"%06d " % number).ljust(_RECORD_BYTES, b".") for number in range(1, RECORDS + 1)]


def run(directory: Path, remote: str, step: str) -> tuple[int, int]:
    """Return the child's exit code, and the last seq whose ack this process saw."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "boto3"])
    reader, writer = context.Pipe(duplex=False)
    child = context.Process(target=_main, args=(writer, dict(os.environ), directory, remote, step))
    child.start()
    writer.close()
    acked = 0
    with contextlib.suppress(EOFError), reader:
        while True:
            acked = reader.recv()
    child.join(120)
    assert child.exitcode is not None, "the child hangs"
    return child.exitcode, acked


def _main(acks: Connection, environment: Mapping[str, str], directory: Path, remote: str, step: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    store = open_store(remote)
    kind, _, effect = step.partition(":")
    if effect:
        store = KillingStore(store, effect=int(effect), when=kind)
    with seglog.open(directory, settings=SETTINGS) as log:
        if not log.has_topic(TOPIC):
            log.create_topic(TOPIC, TopicConfig(keep_history=True))
            todo = values()
            for start in range(0, RECORDS, 10):
                acked = log.topic(TOPIC).append(todo[start : start + 10])
                acks.send(acked.stop - 1)
        _die_if(step == "appended")
        log.topic(TOPIC).seal()
        _die_if(step == "sealed")
        with offload.attach(log, remote, store=store, settings=offload.Settings().with_parts(_BLOCK)) as archive:
            archive.offload(TOPIC, drop_hot=True)
            _die_if(step == "released")


def _die_if(now: bool) -> None:
    if now:
        os.kill(os.getpid(), signal.SIGKILL)
