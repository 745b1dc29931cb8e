"""One large record in chunks: it is there whole or not at all, and memory never holds it."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import seglog
import seglog.aio
from seglog import HeadMoved, LogSettings, ProducerBatch, RecordTooLarge, TopicConfig
from seglog.engine.work_thread import InCaller
from seglog.errors import DiskFull, InvalidArgument, ReadOnly, TooManyOpenFiles
from tests.faults.disk import SimulatedDisk

MIB = 1024 * 1024
SETTINGS = LogSettings(max_record_bytes=48 * MIB, wal_file_bytes=128 * MIB)


def chunks(mebibytes: int, rest: bytes = b"end") -> Iterator[bytes]:
    for number in range(mebibytes):
        yield number.to_bytes(4, "big") * (MIB // 4)
    yield rest


def test_a_large_record_takes_no_memory(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data", settings=SETTINGS) as log:
        topic = log.topic("dumps")
        topic.append([b"before"])
        topic.append_stream(chunks(2))  # what the first call imports is no memory of the record
        tracemalloc.start()
        try:
            seq = topic.append_stream(chunks(40), tag="nightly", node="n1").seqs.start
            assert tracemalloc.get_traced_memory()[1] < 8 * MIB
        finally:
            tracemalloc.stop()
        assert topic.append([b"after"]) == range(seq + 1, seq + 2)
    with seglog.open(tmp_path / "data", settings=SETTINGS) as log:
        found = [*log.topic("dumps").read()]
        assert [len(record.value) for record in found] == [6, 2 * MIB + 3, 40 * MIB + 3, 5]
        assert (found[2].tag, found[2].node) == ("nightly", "n1")
        assert found[2].value == b"".join(chunks(40))
    assert {path.name for path in (tmp_path / "data").iterdir()} == {"LOCK", "meta", "topics", "wal"}


@pytest.mark.parametrize("mebibytes", [0, 2])
def test_a_stream_has_the_conditions_of_an_append(tmp_path: Path, mebibytes: int) -> None:
    with seglog.open(tmp_path / "data", settings=SETTINGS) as log:
        topic = log.topic("t")
        assert topic.append_stream(chunks(mebibytes), key="k").seqs == range(1, 2)
        assert topic.append_stream(chunks(mebibytes), key="k").seqs == range(1, 2)
        with pytest.raises(seglog.KeyReused):
            topic.append_stream(chunks(mebibytes, b"other"), key="k")
        batch = ProducerBatch("p", epoch=0, number=0)
        assert topic.append_stream(chunks(mebibytes), producer=batch).seqs == range(2, 3)
        assert topic.append_stream(chunks(mebibytes), producer=batch).seqs == range(2, 3)
        with pytest.raises(HeadMoved):
            topic.append_stream(chunks(mebibytes), if_head=1)
        third = topic.append_stream(chunks(mebibytes), if_head=2, durability="memory", unterminated=True)
        assert third == seglog.Appended(range(3, 4), duplicate=False)
        assert topic.append_stream([]).seqs == range(4, 5)
        assert [record.value for record in topic.read()] == [b"".join(chunks(mebibytes))] * 3 + [b""]
        log.create_topic("gone", TopicConfig(durability="ephemeral"))
        assert log.topic("gone").append_stream(chunks(mebibytes)).seqs == range(1, 2)
        assert [record.value for record in log.topic("gone").read()] == [b"".join(chunks(mebibytes))]


def test_a_stream_that_ends_with_an_error_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield from chunks(3)
        raise ConnectionResetError

    with seglog.open(tmp_path / "data", settings=SETTINGS) as log:
        topic = log.topic("t")
        with pytest.raises(ConnectionResetError):
            topic.append_stream(broken())
        taken = 0

        def endless() -> Iterator[bytes]:
            nonlocal taken
            while True:
                taken += 1
                yield bytes(MIB)

        with pytest.raises(RecordTooLarge):
            topic.append_stream(endless())
        assert taken == 49, "the first chunk over the limit ends it"
        with pytest.raises(InvalidArgument):
            topic.append_stream([b"a", "text"])  # type: ignore[list-item]
        with pytest.raises(InvalidArgument):
            topic.append_stream(chunks(1), tag=7)  # type: ignore[arg-type]
        assert not topic.exists
    with seglog.open(tmp_path / "data", read_only=True) as view, pytest.raises(ReadOnly):
        view.topic("t").append_stream(_never())


def _never() -> Iterator[bytes]:
    raise AssertionError("an append that is refused takes no chunk")
    yield b""


def test_a_spool_without_room_or_descriptor_says_so(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data", settings=SETTINGS) as log:
        topic = log.topic("t")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            with pytest.raises(TooManyOpenFiles):
                topic.append_stream(chunks(2))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        former = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 * MIB, hard))
        try:
            with pytest.raises(DiskFull):
                topic.append_stream(chunks(4))
            with pytest.raises(DiskFull):
                topic.append_stream(chunks(2))  # its last bytes are in a buffer, so the flush finds no room
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, former)
        assert topic.append_stream(chunks(4)).seqs == range(1, 2)


def test_a_file_system_without_unnamed_files_takes_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def refusing(path: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "no unnamed files here")
        return real(path, flags, *rest, **named)

    def beside() -> Iterator[bytes]:
        yield from chunks(3)
        assert {path.name for path in (tmp_path / "data").iterdir()} == {"LOCK", "meta", "topics", "wal"}

    with seglog.open(tmp_path / "data", settings=SETTINGS) as log:
        monkeypatch.setattr(os, "open", refusing)
        log.topic("t").append_stream(beside())
        assert [record.value for record in log.topic("t").read()] == [b"".join(chunks(3))]


_WITHOUT_RIGHTS = """
import os, sys, seglog
with seglog.open(sys.argv[1]) as log:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    sys.path.clear()  # Python may lie in a folder that others may not enter
    sys.path_importer_cache.clear()
    log.topic("t").append_stream([bytes(1 << 20), bytes(1 << 20)])
    print([len(record.value) for record in log.topic("t").read()], "mmap" in sys.modules)
"""


def test_a_program_that_gave_its_rights_away_takes_a_stream() -> None:
    if os.getuid():
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        data = Path(folder, "data")
        data.mkdir()
        os.chown(data, 65534, 65534)
        line = [sys.executable, "-c", _WITHOUT_RIGHTS, str(data)]
        done = subprocess.run(line, check=False, capture_output=True, text=True)
    assert done.stdout == f"[{2 * MIB}] False\n", done.stderr


_KILLED = """
import os, signal, sys, seglog
def chunks():
    for _ in range(3):
        yield bytes(1 << 20)
    os.kill(os.getpid(), signal.SIGKILL)
with seglog.open(sys.argv[1]) as log:
    log.topic("t").append([b"acked"])
    log.topic("t").append_stream(chunks())
"""


def test_a_process_that_is_killed_within_a_stream_leaves_nothing_of_it(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path / "data")], check=False)
    assert done.returncode == -signal.SIGKILL
    with seglog.open(tmp_path / "data") as log:
        assert [record.value for record in log.topic("t").read()] == [b"acked"]
    used = sum(path.stat().st_size for path in (tmp_path / "data").rglob("*") if path.is_file())
    assert used < 2 * SETTINGS.wal_file_bytes
    assert not [path for path in (tmp_path / "data").rglob("*") if path.name.startswith("tmp")]


def test_a_cut_of_the_power_leaves_the_record_whole_or_not_at_all(tmp_path: Path) -> None:
    """The frame goes to a simulated disk in three pieces. A cut keeps any part of the bytes that were not synced."""
    (tmp_path / "data").mkdir()  # for the spool, which is no part of the simulated disk
    small = LogSettings(max_record_bytes=4 * MIB, wal_file_bytes=8 * MIB)
    whole, disk = b"".join(chunks(1)), SimulatedDisk()
    with seglog.open(tmp_path / "data", files=disk, settings=small, upkeep=InCaller) as log:
        log.topic("t").append([b"acked"])
        log.topic("t").append_stream([whole[:MIB], whole[MIB:]], durability="memory")
        moment = disk.moment()
    outcomes = Counter[int]()
    for image in islice(moment.images(random.Random(7), 20), 60):
        with seglog.open(tmp_path / "data", files=SimulatedDisk(image), settings=small, upkeep=InCaller) as log:
            found = [record.value for record in log.topic("t").read()]
        assert found in ([b"acked"], [b"acked", whole])
        outcomes[len(found)] += 1
    assert min(outcomes[1], outcomes[2]) > 0, outcomes


def test_a_stream_in_a_loop_leaves_the_loop_free(tmp_path: Path) -> None:
    async def main() -> None:
        turns = 0

        async def turning() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async def pieces() -> AsyncIterator[bytes]:
            for chunk in chunks(20):
                yield chunk

        async with seglog.aio.open(tmp_path / "data", settings=SETTINGS) as log:
            beside = asyncio.create_task(turning())
            done = await log.topic("t").append_stream(pieces(), key="k")
            again = await log.topic("t").append_stream(pieces(), key="k")
            beside.cancel()
            assert (done.seqs, done.duplicate, again.seqs, again.duplicate) == (range(1, 2), False, range(1, 2), True)
            assert turns > 40, "the loop took turns while threads wrote"
            [record] = [record async for record in log.topic("t").read()]
            assert record.value == b"".join(chunks(20))

    asyncio.run(main())
