"""An append stores `bytes(value)`. It copies the value before it computes anything from it."""

from __future__ import annotations

import array
import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seglog
from offload.daemon.http.bodies import decode_values
from seglog import LogSettings, aio
from seglog.client.bodies import encode_values
from seglog.journal.journal import Journal
from seglog.values.byte_strings import byte_string, byte_strings
from tests.faults.files import UnsyncedFiles

GRID = np.arange(24, dtype="<u4").reshape(2, 3, 4)
VIEWS: dict[str, Callable[[], memoryview]] = {
    "bytes": lambda: memoryview(b"plain"),
    "wide items": lambda: memoryview(array.array("I", [1, 2, 3])),
    "doubles": lambda: memoryview(array.array("d", [1.5, -2.0])),
    "a stride": lambda: memoryview(b"0123456789")[::3],
    "backwards": lambda: memoryview(b"0123456789")[::-1],
    "three dimensions": lambda: GRID.data,
    "columns first": lambda: np.asfortranarray(GRID).data,
    "no dimension": lambda: memoryview(np.array(7, dtype="<u8")),
    "no items": lambda: memoryview(array.array("d")),
    "one wide item": lambda: memoryview(b"01234567").cast("Q"),
}


class Shouting(bytes):
    """A subclass of bytes that reports a wrong length."""

    def __len__(self) -> int:
        return 1000


@pytest.mark.parametrize("kind", VIEWS)
def test_a_view_is_appended_as_its_bytes(tmp_path: Path, kind: str) -> None:
    value = VIEWS[kind]()
    with seglog.open(tmp_path / "data") as log:
        assert log.topic("t").append([b"before", value, bytearray(b"after")]) == range(1, 4)
    with seglog.open(tmp_path / "data") as log:
        assert [record.value for record in log.topic("t").read()] == [b"before", bytes(value), b"after"]


@pytest.mark.parametrize("kind", VIEWS)
def test_so_it_is_through_asyncio_where_neighbours_are_merged(tmp_path: Path, kind: str) -> None:
    async def append() -> list[range]:
        async with aio.open(tmp_path / "data") as log:
            topic = log.topic("t")
            return await asyncio.gather(topic.append([b"one"]), topic.append([VIEWS[kind]()] * 2), topic.append([b"4"]))

    assert asyncio.run(append()) == [range(1, 2), range(2, 4), range(4, 5)]
    with seglog.open(tmp_path / "data") as log:
        value = bytes(VIEWS[kind]())
        assert [record.value for record in log.topic("t").read()] == [b"one", value, value, b"4"]


@pytest.mark.parametrize("kind", VIEWS)
def test_so_it_is_in_a_journal(tmp_path: Path, kind: str) -> None:
    with Journal(tmp_path / "j") as journal:
        offset = journal.append(1, VIEWS[kind]())  # type: ignore[arg-type]
        journal.append(1, b"behind")
    with Journal(tmp_path / "j") as journal:
        assert journal.get(1, offset) == bytes(VIEWS[kind]())
        assert [item.data for item in journal.replay()] == [bytes(VIEWS[kind]()), b"behind"]


@pytest.mark.parametrize("kind", VIEWS)
def test_so_it_is_on_its_way_to_the_daemon(kind: str) -> None:
    assert decode_values(encode_values([b"x", VIEWS[kind]()])) == [b"x", bytes(VIEWS[kind]())]


@pytest.mark.parametrize("value", ["text", 7, None, [b"x"], array.array("I", [1]), np.uint64(3)])
def test_what_is_no_byte_string_is_refused_before_it_has_a_seq(tmp_path: Path, value: Any) -> None:
    with seglog.open(tmp_path / "data") as log, Journal(tmp_path / "j") as journal:
        topic = log.topic("t")
        with pytest.raises(TypeError):
            topic.append([b"fits", value])
        with pytest.raises(TypeError):
            journal.append(1, value)
        assert topic.append([b"first"]) == range(1, 2)
        assert journal.append(1, b"first") == 0


def test_a_view_that_was_released_is_refused(tmp_path: Path) -> None:
    view = memoryview(b"gone")
    view.release()
    with seglog.open(tmp_path / "data") as log:
        with pytest.raises(TypeError):
            log.topic("t").append([view])
        assert not log.topic("t").exists


def test_the_limit_is_in_bytes_and_not_in_items(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data", settings=LogSettings(max_record_bytes=100)) as log:
        with pytest.raises(seglog.RecordTooLarge):
            log.topic("t").append([memoryview(bytes(104)).cast("Q")])
        log.topic("t").append([memoryview(bytes(96)).cast("Q")])


def test_a_subclass_is_copied_too() -> None:
    assert type(byte_string(Shouting(b"x"))) is bytes
    assert byte_strings([Shouting(b"x"), b"y"]) == (b"x", b"y")


class _Changed(bytearray):
    """A bytearray that grows after each call of `len`, as if another thread changed it at the worst moment."""

    def __len__(self) -> int:
        length = super().__len__()
        self.extend(b"more")
        return length


def test_what_changes_while_it_is_appended_tears_no_frame(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data") as log, Journal(tmp_path / "j") as journal:
        log.topic("t").append([_Changed(b"value"), b"next"])
        journal.append(1, _Changed(b"value"))
        journal.append(1, b"next")
    with seglog.open(tmp_path / "data") as log, Journal(tmp_path / "j") as journal:
        assert [record.value for record in log.topic("t").read()] == [b"value", b"next"]
        assert [item.data for item in journal.replay()] == [b"value", b"next"]


class _WhileWritten(UnsyncedFiles):
    """A file port that changes a caller's bytearray between the checksum and the write."""

    def __init__(self, value: bytearray) -> None:
        self.value = value

    def pwritev(self, fd: int, pieces: Sequence[bytes], offset: int) -> None:
        self.value[:] = b"other"
        super().pwritev(fd, pieces, offset)


def test_what_changes_before_it_is_written_is_written_as_it_was(tmp_path: Path) -> None:
    value = bytearray(b"value")
    with Journal(tmp_path / "j", files=_WhileWritten(value)) as journal:
        offset = journal.append(1, value)
        assert journal.get(1, offset) == b"value"


def test_a_list_that_changes_while_its_append_waits_for_room_counts_as_it_was(tmp_path: Path) -> None:
    gate = threading.Event()

    class Gated(UnsyncedFiles):
        def datasync(self, fd: int) -> None:
            assert gate.wait(60)
            super().datasync(fd)

    async def append() -> tuple[range, range]:
        gate.set()
        async with aio.open(tmp_path / "data", files=Gated(), settings=LogSettings(queue_max_bytes=10)) as log:
            gate.clear()
            first = asyncio.create_task(log.topic("t").append([b"0123456789"]))
            await asyncio.sleep(0)
            values = [b"a", b"b"]
            second = asyncio.create_task(log.topic("t").append(values))
            await asyncio.sleep(0)
            values[:] = ["no bytes"]  # type: ignore[list-item]
            gate.set()
            return await first, await second

    assert asyncio.run(append()) == (range(1, 2), range(2, 4))
    with seglog.open(tmp_path / "data") as log:
        assert [record.value for record in log.topic("t").read()] == [b"0123456789", b"a", b"b"]
