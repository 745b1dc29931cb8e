"""Cold storage trouble never touches appends or hot reads."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import offload
import seglog
from catalog.errors import StoreUnreachable
from catalog.objects.memory import MemoryStore


class StuckStore:
    """Forwards to a store until `stuck` is set; from then on every request waits for `release`, and fails."""

    def __init__(self) -> None:
        self._inner = MemoryStore()
        self.stuck = threading.Event()
        self.release = threading.Event()
        self.waiting = threading.Event()

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._inner, name)
        if not callable(inner):
            return inner

        def call(*args: Any, **kwargs: Any) -> Any:
            if self.stuck.is_set() and name != "close":
                self.waiting.set()
                assert self.release.wait(60)
                raise StoreUnreachable("memory://", "it hung")
            return inner(*args, **kwargs)

        return call


def test_a_store_that_hangs_holds_up_neither_appends_nor_hot_reads(tmp_path: Path) -> None:
    store = StuckStore()
    failures: list[BaseException] = []
    with seglog.open(tmp_path / "data") as log, offload.attach(log, store=store) as archive:  # type: ignore[arg-type]
        topic = log.topic("t")
        topic.append([b"cold"])
        topic.seal()
        archive.offload("t", drop_hot=True)
        store.stuck.set()

        def read_cold() -> None:
            try:
                list(topic.read(1, 1))
            except StoreUnreachable as error:
                failures.append(error)

        reader = threading.Thread(target=read_cold)
        reader.start()
        assert store.waiting.wait(30)
        for number in range(2, 200):
            assert topic.append([b"hot"]) == range(number, number + 1)
        assert [record.seq for record in topic.read(2)] == list(range(2, 200))
        topic.seal()
        assert reader.is_alive()  # all of that went on while it hung
        store.release.set()
        reader.join(30)
        assert len(failures) == 1

        with pytest.raises(StoreUnreachable):
            archive.offload("t")
        assert [record.seq for record in topic.read(2)] == list(range(2, 200))
        store.stuck.clear()
        assert archive.offload("t").offloaded_seq == 199
        assert [record.value for record in topic.read()] == [b"cold"] + [b"hot"] * 198
