from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from seglog.errors import DiskFull, OffsetOverflow
from seglog.files.file_system import OpenFile, OsFiles
from seglog.format.frame import FrameType, encode_sync_mark
from seglog.values.layout import WalFolder
from seglog.wal.manifest import WalPosition
from seglog.wal.scan import scan
from seglog.wal.wal import SYNC_MARK_BYTES, Wal, create_first, durable_after, foreign_mark, is_blank, read_current
from tests.seglog.frames import append_frames

SECRET = 0xDEADBEEFDEADBEEF


@pytest.fixture
def folder(tmp_path: Path) -> WalFolder:
    (tmp_path / "wal").mkdir()
    return WalFolder(tmp_path / "wal")


@pytest.fixture
def wal(folder: WalFolder) -> Wal:
    return Wal(OsFiles(), folder, 4096, create_first(OsFiles(), folder), mark_secret=SECRET)


class _TakesOneFrame(OsFiles):
    is_full = False

    def pwritev(self, fd: int, pieces: Sequence[bytes], offset: int) -> None:
        if not self.is_full:
            super().pwritev(fd, pieces, offset)
            return
        super().pwritev(fd, pieces[:1], offset)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _frames(count: int, size: int = 10, first_seq: int = 1) -> list[bytes]:
    values = [b"x" * size] * count
    return append_frames(1, first_seq, 1, values, tag=None, node=None, unterminated=False, durable=True)


def _write(wal: Wal, frames: list[bytes]) -> tuple[int, int]:
    return wal.write(frames, len(frames), sum(map(len, frames)))


def _file(folder: WalFolder, number: int = 1) -> OpenFile:
    return OpenFile(OsFiles(), folder.wal_file(number), os.O_RDWR)


def test_frames_lie_one_after_the_other_and_a_mark_follows_each_sync(wal: Wal, folder: WalFolder) -> None:
    assert _write(wal, _frames(2)) == (1, 0)
    wal.sync()
    wal.sync()
    assert _write(wal, _frames(1)) == (1, 2 * 56 + SYNC_MARK_BYTES)
    assert wal.end == WalPosition(1, 3 * 56 + SYNC_MARK_BYTES, 5)
    file = _file(folder)
    found = itertools.chain.from_iterable(scan(file, 0, wal.end.offset))
    kinds = [(offset, header.type, header.seq) for offset, header, _ in found]
    assert kinds == [(0, 1, 1), (56, 1, 2), (112, FrameType.SYNC_MARK, 112), (158, 1, 1)]
    assert durable_after(file, 1, 0, file.size(), SECRET) == 112
    assert durable_after(file, 1, 113, file.size(), SECRET) is None
    assert durable_after(file, 2, 0, file.size(), SECRET) is None
    assert foreign_mark(file, 2, 0, file.size(), SECRET) == 112
    assert is_blank(file, wal.end.offset, file.size())
    assert not is_blank(file, 0, file.size())


def test_a_new_file_is_begun_where_the_next_group_does_not_fit(wal: Wal, folder: WalFolder) -> None:
    _write(wal, _frames(50))
    wal.sync()
    assert _write(wal, _frames(50)) == (52, 0)
    assert read_current(OsFiles(), folder) == "wal-0000000000000052.log"
    assert _file(folder).size() == 50 * 56 + SYNC_MARK_BYTES
    assert wal.older_files == 1
    assert wal.used_bytes == 100 * 56 + SYNC_MARK_BYTES
    wal.remove_below(52)
    assert wal.older_files == 0
    assert not folder.wal_file(1).exists()
    assert _write(wal, _frames(50)) == (102, 0)
    wal.remove_below(52)
    assert folder.wal_file(52).exists()


def test_what_a_full_disk_took_of_a_group_is_cut_off(folder: WalFolder) -> None:
    files = _TakesOneFrame()
    wal = Wal(files, folder, 4096, create_first(files, folder))
    _write(wal, _frames(2))
    end = wal.end
    files.is_full = True
    with pytest.raises(DiskFull):
        _write(wal, _frames(2, first_seq=3))
    assert _file(folder).size() == end.offset
    files.is_full = False
    assert (wal.end, _write(wal, _frames(1, first_seq=3))) == (end, (1, end.offset))


def test_a_group_larger_than_a_file_goes_into_an_empty_one(wal: Wal, folder: WalFolder) -> None:
    assert _write(wal, _frames(100)) == (1, 0)
    assert wal.older_files == 0
    assert _write(wal, _frames(100)) == (101, 0)
    assert wal.older_files == 1
    assert read_current(OsFiles(), folder) == "wal-0000000000000101.log"


def test_a_group_and_its_mark_end_below_the_largest_offset(wal: Wal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seglog.wal.wal.OFFSET_END", 3 * 56 + SYNC_MARK_BYTES)
    with pytest.raises(OffsetOverflow):
        _write(wal, _frames(4))
    with pytest.raises(OffsetOverflow):
        _write(wal, _frames(3, 11))
    assert wal.end == WalPosition(1, 0, 1)
    assert _write(wal, _frames(3)) == (1, 0)


def test_a_mark_is_found_wherever_it_lies(folder: WalFolder) -> None:
    window = 1024 * 1024
    for offset in (0, 1, window - SYNC_MARK_BYTES, window - 20, window, window + 1, 2 * window - 1):
        mark = encode_sync_mark(1, offset, SECRET)
        folder.wal_file(1).write_bytes(b"\xaa" * offset + mark + b"\xaa" * 50)
        file = _file(folder)
        assert durable_after(file, 1, 0, file.size(), SECRET) == offset
        if offset:
            folder.wal_file(1).write_bytes(b"\xaa" * (offset - 1) + mark)
            assert durable_after(_file(folder), 1, 0, file.size(), SECRET) is None


@pytest.mark.parametrize("guess", [0, 1, SECRET - 1, SECRET + 1, 2**64 - 1])
def test_a_mark_without_the_secret_is_none(folder: WalFolder, guess: int) -> None:
    """An older release wrote its marks without one. As long as the manifest has none, any number fits."""
    folder.wal_file(1).write_bytes(b"\xaa" * 9 + encode_sync_mark(1, 9, guess) + b"\xaa" * 50)
    file = _file(folder)
    assert durable_after(file, 1, 0, file.size(), SECRET) is None
    assert foreign_mark(file, 2, 0, file.size(), SECRET) is None
    assert durable_after(file, 1, 0, file.size(), 0) == 9
    assert foreign_mark(file, 2, 0, file.size(), 0) == 9


class WrittenFiles(OsFiles):
    """Tracks how far a file is written, as zeros or frames, and counts writes beyond that."""

    def __init__(self) -> None:
        self.end = 0
        self.writes_beyond = 0

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
        super().pwrite(fd, data, offset)
        self.writes_beyond += offset + len(data) > self.end
        self.end = max(self.end, offset + len(data))


def test_frames_go_where_zeros_were_written_before(folder: WalFolder) -> None:
    files, file_bytes = WrittenFiles(), 8 * 1024 * 1024
    wal = Wal(files, folder, file_bytes, create_first(files, folder))
    files.end = files.writes_beyond = 0
    frames = _frames(64, 200)
    size = len(b"".join(frames)) + SYNC_MARK_BYTES
    for _ in range(200):
        _write(wal, frames)
        wal.sync()
    assert wal.end.offset == 200 * size
    assert 0 < files.writes_beyond <= wal.end.offset // (256 * 1024) + 1
    assert is_blank(_file(folder), wal.end.offset, file_bytes)


@pytest.mark.parametrize("file_bytes", [1, 4096, 300_000])
def test_zeros_ahead_end_where_the_file_ends(folder: WalFolder, file_bytes: int) -> None:
    wal = Wal(OsFiles(), folder, file_bytes, create_first(OsFiles(), folder))
    for _ in range(200):
        _write(wal, _frames(50))
        wal.sync()
        size = wal.file(wal.end.file).size()
        assert size == max(file_bytes, 50 * 56 + SYNC_MARK_BYTES)
        assert is_blank(wal.file(wal.end.file), wal.end.offset, size)
