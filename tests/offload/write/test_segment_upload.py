"""Test that an upload holds no more blocks in memory than its concurrency, counted in allocated bytes."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Iterator
from random import Random

import pytest

from catalog import Sid, Vid
from catalog.format.commit import Codec
from catalog.format.keys import Key
from catalog.objects import MemoryStore, PartTag
from offload import OffloadSettings
from offload.settings import MIN_BLOCK_SIZE
from offload.write.ledger_offloader import LedgerOffloader
from offload.write.segment_upload import FrameRun
from seglog.format.frames import Frames, take_apart
from tests.offload.samples import Sample, frames_of_samples

RECORD_BYTES = 16_000
BATCH = 64
BATCHES = 60
WORKING_BYTES = 8 << 20  # a batch of frames, a chunk raw and stored, and the data for the index


class Sink(MemoryStore):
    """Keep no bytes. A part ends when `at_once` parts are on their way, or after 1 s."""

    def __init__(self, at_once: int) -> None:
        super().__init__()
        self.parts = self.now = self.most = 0
        self._at_once = at_once
        self._changed = threading.Condition()

    def put_part(self, key: Key, upload_id: str, number: int, body: bytes | bytearray) -> PartTag:
        assert len(body) <= MIN_BLOCK_SIZE
        with self._changed:
            self.parts += 1
            self.now += 1
            self.most = max(self.most, self.now)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.now >= self._at_once, timeout=1)
            self.now -= 1
        return PartTag(number, "sunk")

    def complete_upload(self, key: Key, upload_id: str, parts: object) -> None:
        pass


def batches() -> Iterator[Frames]:
    random = Random(1)
    for number in range(BATCHES):
        yield take_apart(
            frames_of_samples(
                (Sample(random.randbytes(RECORD_BYTES)) for _ in range(BATCH)),
                first_seq=number * BATCH + 1,
                first_ts_ms=number * BATCH,
            )
        )


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("concurrency", [1, 3])
def test_an_upload_holds_as_many_blocks_as_its_concurrency(codec: Codec, concurrency: int) -> None:
    store = Sink(concurrency)
    settings = OffloadSettings(block_size=MIN_BLOCK_SIZE, concurrency=concurrency)
    offloader = LedgerOffloader(store, Vid.new(1), settings)
    tracemalloc.start()
    try:
        offloader.offload(FrameRun("t", 1, BATCH * BATCHES, batches()), Sid.new(2), codec=codec)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert store.parts >= 11
    assert store.most == concurrency
    assert peak_bytes <= MIN_BLOCK_SIZE * concurrency + WORKING_BYTES
