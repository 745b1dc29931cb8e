from __future__ import annotations

import threading

import pytest

from catalog.errors import CatalogError, NoSuchObject, OutcomeUnknown, StoreUnreachable
from catalog.format.keys import Key
from catalog.objects.memory import MemoryStore
from offload.write.segment_upload import BlockUpload
from tests.faults.store import CountingStore, Fault, FaultyStore, WrappedStore, unreachable

KEY = Key("volume/segments/sid")


def _send(store: object, blocks: list[bytes], *, concurrency: int = 2) -> list[str]:
    ids: list[str] = []
    with BlockUpload(store, KEY, {"role": "data"}, concurrency=concurrency, on_upload_id=ids.append) as upload:  # type: ignore[arg-type]
        for block in blocks[:-1]:
            upload.add(block)
        upload.finish(blocks[-1])
    return ids


def test_one_block_is_one_put() -> None:
    store = CountingStore(MemoryStore())
    assert _send(store, [b"only"]) == []
    assert store.counts == {"put": 1}
    assert store.inner.get(KEY) == b"only"
    assert store.inner.head(KEY).metadata == {"role": "data"}


def test_more_blocks_are_a_part_each_in_their_order() -> None:
    store = CountingStore(MemoryStore())
    blocks = [bytes([number]) * 10 for number in range(20)]
    assert len(_send(store, blocks, concurrency=7)) == 1
    assert store.counts == {"create_upload": 1, "put_part": 20, "complete_upload": 1}
    assert store.inner.get(KEY) == b"".join(blocks)
    assert store.inner.head(KEY).metadata == {"role": "data"}


def test_the_uploads_id_is_on_record_before_a_part_is_sent() -> None:
    steps: list[str] = []

    class Noting(WrappedStore):
        def _call(self, method, key, act):  # type: ignore[no-untyped-def]
            steps.append(method)
            return act()

    store = Noting(MemoryStore())
    with BlockUpload(store, KEY, {}, concurrency=1, on_upload_id=lambda _: steps.append("on record")) as upload:
        upload.add(bytearray(b"first"))
        upload.finish(bytearray(b"last"))
    assert steps == ["create_upload", "on record", "put_part", "put_part", "complete_upload"]


def test_an_upload_whose_id_cannot_be_put_on_record_sends_nothing() -> None:
    def full(_: str) -> None:
        raise OSError(28, "No space left on device")

    store = CountingStore(MemoryStore())
    with BlockUpload(store, KEY, {}, concurrency=2, on_upload_id=full) as upload, pytest.raises(OSError, match="space"):
        upload.add(bytearray(b"first"))
    assert store.counts == {"create_upload": 1}


def test_a_block_is_spare_when_it_was_sent_and_not_before() -> None:
    spare: list[int] = []

    class Watching(WrappedStore):
        def _call(self, method, key, act):  # type: ignore[no-untyped-def]
            if method == "put_part":
                spare.append(len(upload.spare))
            return act()

    with BlockUpload(Watching(MemoryStore()), KEY, {}, concurrency=1, on_upload_id=lambda _: None) as upload:
        for block in (b"one", b"two", b"three"):
            upload.add(bytearray(block))
        upload.finish(bytearray(b"four"))
    assert spare == [0, 1, 2, 3]


def test_no_more_parts_are_in_flight_than_asked_for() -> None:
    class Watching(WrappedStore):
        def __init__(self) -> None:
            super().__init__(MemoryStore())
            self.now = self.most = 0
            self.lock = threading.Lock()

        def _call(self, method, key, act):  # type: ignore[no-untyped-def]
            with self.lock:
                self.now += method == "put_part"
                self.most = max(self.most, self.now)
            try:
                return act()
            finally:
                with self.lock:
                    self.now -= method == "put_part"

    store = Watching()
    _send(store, [b"x" * 100] * 200, concurrency=3)
    assert 1 <= store.most <= 3


@pytest.mark.parametrize("concurrency", [1, 2, 5])
def test_the_caller_waits_until_there_is_room_for_one_more_block(concurrency: int) -> None:
    """No more than `concurrency` blocks are in memory, including the block that the caller makes."""
    may_end = threading.Semaphore(0)

    class Slow(WrappedStore):
        def _call(self, method, key, act):  # type: ignore[no-untyped-def]
            if method == "put_part":
                assert may_end.acquire(timeout=60)
            return act()

    added: list[int] = []
    stepped = threading.Semaphore(0)

    def send() -> None:
        with BlockUpload(Slow(MemoryStore()), KEY, {}, concurrency=concurrency, on_upload_id=lambda _: None) as upload:
            for number in range(12):
                upload.add(b"block")
                added.append(number)
                stepped.release()
            upload.finish(b"last")

    sender = threading.Thread(target=send)
    sender.start()
    for step in range(12):
        if step >= concurrency - 1:  # all places are taken: a part must end before the upload takes the next block
            assert len(added) <= step
            may_end.release()
        assert stepped.acquire(timeout=60)
    for _ in range(13):
        may_end.release()
    sender.join(60)
    assert added == list(range(12))


@pytest.mark.parametrize("blocks", [[b"only"], [b"a", b"b", b"c"]])
def test_a_store_that_fails_is_told_and_nothing_half_is_visible(blocks: list[bytes]) -> None:
    for nth in range(1, 20):
        inner = MemoryStore()
        store = FaultyStore(inner, [Fault(nth=nth, when="before", error=unreachable)])
        try:
            _send(store, blocks)
        except CatalogError:
            with pytest.raises(NoSuchObject):
                inner.get(KEY)
            continue
        assert inner.get(KEY) == b"".join(blocks)
        break
    assert nth == {1: 2, 3: 6}[len(blocks)]


def test_a_lost_answer_to_the_completion_is_settled_by_looking() -> None:
    inner = MemoryStore()
    store = FaultyStore(inner, [Fault(nth=1, when="after", method="complete_upload")])
    _send(store, [b"a", b"b"])
    assert inner.get(KEY) == b"ab"


def test_a_completion_that_did_not_happen_is_not_taken_for_one_that_did() -> None:
    store = FaultyStore(MemoryStore(), [Fault(nth=1, when="before", method="complete_upload")])
    with pytest.raises(OutcomeUnknown):
        _send(store, [b"a", b"b"])


def test_an_object_of_another_length_is_not_ours() -> None:
    inner = MemoryStore()
    inner.put(KEY, b"something else", {})
    store = FaultyStore(inner, [Fault(nth=1, when="before", method="complete_upload")])
    with pytest.raises(OutcomeUnknown):
        _send(store, [b"a", b"b"])


def test_an_object_of_the_same_length_with_other_bytes_is_not_ours() -> None:
    inner = MemoryStore()
    inner.put(KEY, b"ax", {})
    store = FaultyStore(inner, [Fault(nth=1, when="before", method="complete_upload")])
    with pytest.raises(OutcomeUnknown):
        _send(store, [b"a", b"b"])


def test_when_nobody_can_look_it_is_unknown() -> None:
    plan = [Fault(nth=1, when="after", method="complete_upload"), Fault(method="head", error=unreachable)]
    with pytest.raises((OutcomeUnknown, StoreUnreachable)):
        _send(FaultyStore(MemoryStore(), plan), [b"a", b"b"])
