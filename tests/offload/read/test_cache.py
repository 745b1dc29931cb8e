"""Test the chunk cache on disk: it never returns a wrong byte, exceeds its budget or gets in the way of a read."""

from __future__ import annotations

import errno
import logging
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from xxhash import xxh3_64_intdigest

from offload.read.chunk_cache import ChunkCache, open_cache
from seglog.files.file_system import OsFiles
from tests.seams.archive import files_of

PAGE = 4096


def name(number: int) -> tuple[bytes, int]:
    return number.to_bytes(16, "big"), 128 + number


def body(number: int, length: int = PAGE) -> bytes:
    return Random(number).randbytes(length)


def keep(cache: ChunkCache, number: int, length: int = PAGE, *, is_scan: bool = False) -> bool:
    chunk = body(number, length)
    if not cache.admit(name(number), length, is_scan=is_scan):
        return False
    cache.hand_over(name(number), chunk)
    cache.write(name(number), xxh3_64_intdigest(chunk))
    return True


def get(cache: ChunkCache, number: int, length: int = PAGE) -> bytes | None:
    return cache.get(name(number), length, xxh3_64_intdigest(body(number, length)))


def opened(directory: Path, limit_bytes: int = 100 * PAGE) -> ChunkCache:
    cache = open_cache(directory, limit_bytes)
    assert cache is not None
    return cache


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ChunkCache]:
    cache = opened(tmp_path)
    yield cache
    cache.close()


def entries(directory: Path) -> list[Path]:
    return sorted(path for path in (directory / "seglog-chunks").iterdir() if path.name != "LOCK")


def test_a_chunk_comes_back_as_it_was_kept(cache: ChunkCache) -> None:
    for number, length in enumerate((1, 100, PAGE, PAGE + 1, 20 * PAGE)):
        assert get(cache, number, length) is None
        assert keep(cache, number, length)
        assert cache.has(name(number))
        assert get(cache, number, length) == body(number, length)
    assert cache.held_bytes == (1 + 1 + 1 + 2 + 20) * PAGE


def test_what_was_handed_over_is_there_before_it_is_written(cache: ChunkCache, tmp_path: Path) -> None:
    assert cache.admit(name(1), PAGE, is_scan=False)
    assert not cache.admit(name(1), PAGE, is_scan=False)  # another reader fetches it already
    assert get(cache, 1) is None
    cache.hand_over(name(1), body(1))
    assert get(cache, 1) == body(1)
    assert entries(tmp_path) == []
    cache.write(name(1), xxh3_64_intdigest(body(1)))
    assert get(cache, 1) == body(1)
    assert len(entries(tmp_path)) == 1


def test_room_is_kept_for_what_is_on_its_way_and_given_back(cache: ChunkCache, tmp_path: Path) -> None:
    for number in range(100):
        keep(cache, number)
    assert len(entries(tmp_path)) == 100
    assert cache.admit(name(200), 10 * PAGE, is_scan=False)
    assert len(entries(tmp_path)) == 90  # the cache makes room before the fetch
    assert cache.held_bytes == 100 * PAGE
    cache.drop(name(200))
    assert cache.held_bytes == 90 * PAGE


def test_the_files_never_take_more_than_the_budget(cache: ChunkCache, tmp_path: Path) -> None:
    random = Random(5)
    for number in range(500):
        keep(cache, number, random.randrange(1, 20 * PAGE), is_scan=random.random() < 0.2)
        used = sum(path.stat().st_blocks * 512 for path in entries(tmp_path))
        assert used <= 100 * PAGE
    assert used > 50 * PAGE


def test_it_survives_a_restart_and_drops_what_was_torn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = opened(tmp_path)
    for number in range(4):
        keep(first, number)
    first.close()
    empty, cut, flipped, whole = entries(tmp_path)
    os.truncate(empty, 0)
    os.truncate(cut, 100)
    flipped.write_bytes(bytes([flipped.read_bytes()[0] ^ 1]) + flipped.read_bytes()[1:])
    (tmp_path / "seglog-chunks" / "tmp-00").write_bytes(b"half")
    (tmp_path / "seglog-chunks" / "of somebody else").write_bytes(b"kept")

    second = opened(tmp_path)
    assert second.held_bytes == 4 * PAGE
    with caplog.at_level(logging.WARNING, "offload.read.chunk_cache"):
        assert [get(second, number) for number in range(4)] == [None, None, None, body(3)]
    assert len(caplog.messages) == 3
    assert all("damaged" in message for message in caplog.messages)
    assert second.held_bytes == PAGE
    assert [path.name for path in entries(tmp_path)] == [whole.name, "of somebody else"]
    assert keep(second, 2)
    assert get(second, 2) == body(2)
    second.close()


def test_a_smaller_budget_holds_from_the_next_start_on(tmp_path: Path) -> None:
    first = opened(tmp_path)
    for number in range(100):
        keep(first, number)
    first.close()
    second = opened(tmp_path, 10 * PAGE)
    assert len(entries(tmp_path)) == 10
    assert second.held_bytes == 10 * PAGE
    second.close()


@pytest.mark.parametrize("is_read", [True, False])
def test_a_damaged_download_is_never_kept(cache: ChunkCache, tmp_path: Path, is_read: bool) -> None:
    assert cache.admit(name(1), PAGE, is_scan=False)
    cache.hand_over(name(1), body(2))
    if is_read:
        assert get(cache, 1) is None
    cache.write(name(1), xxh3_64_intdigest(body(1)))
    assert entries(tmp_path) == []
    assert cache.held_bytes == 0


def test_a_chunk_that_is_pushed_out_while_it_is_written_leaves_no_file(
    cache: ChunkCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = files_of(cache).rename

    def renamed(source: Path, target: Path) -> None:
        rename(source, target)
        cache.drop(name(1))

    monkeypatch.setattr(files_of(cache), "rename", renamed)
    assert keep(cache, 1)
    assert (entries(tmp_path), cache.has(name(1)), cache.held_bytes) == ([], False, 0)


def test_a_chunk_of_another_length_or_checksum_is_not_given(cache: ChunkCache) -> None:
    keep(cache, 1)
    assert cache.get(name(1), PAGE - 1, xxh3_64_intdigest(body(1))) is None
    keep(cache, 1)
    assert cache.get(name(1), PAGE, 7) is None
    assert not cache.has(name(1))


def test_files_and_directory_are_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        cache = opened(tmp_path / "new" / "cache")
        keep(cache, 1)
        cache.close()
    finally:
        os.umask(before)
    directory = tmp_path / "new" / "cache" / "seglog-chunks"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}


def test_a_directory_that_others_may_enter_or_a_link_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "open" / "seglog-chunks").mkdir(parents=True)
    (tmp_path / "open" / "seglog-chunks").chmod(0o755)
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "seglog-chunks").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "file").write_bytes(b"")
    for place in ("open", "linked", "file"):
        with caplog.at_level(logging.WARNING, "offload.read.chunk_cache"):
            assert open_cache(tmp_path / place, 100 * PAGE) is None
    assert len(caplog.messages) == 3
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_an_entry_that_became_a_link_is_not_followed(cache: ChunkCache, tmp_path: Path) -> None:
    keep(cache, 1)
    [entry] = entries(tmp_path)
    (tmp_path / "secret").write_bytes(body(1))
    entry.unlink()
    entry.symlink_to(tmp_path / "secret")
    assert get(cache, 1) is None
    assert (tmp_path / "secret").exists()


def test_no_budget_is_no_cache_and_no_directory(tmp_path: Path) -> None:
    assert open_cache(tmp_path / "cache", 0) is None
    assert list(tmp_path.iterdir()) == []


def test_a_second_process_goes_without(cache: ChunkCache, tmp_path: Path) -> None:
    code = (
        "import logging, sys, pathlib; from offload.read.chunk_cache import open_cache; logging.basicConfig()\n"
        "print(open_cache(pathlib.Path(sys.argv[1]), 1 << 20))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"
    assert "another process uses the chunk cache" in done.stderr
    keep(cache, 1)
    cache.close()
    again = opened(tmp_path)
    assert get(again, 1) == body(1)
    again.close()


class FullDisk(OsFiles):
    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
        raise OSError(errno.ENOSPC, "no space")


class BadDisk(OsFiles):
    is_bad = False

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        if self.is_bad:
            raise OSError(errno.EIO, "bad sector")
        return super().pread(fd, length, offset)


def test_a_full_disk_costs_the_cache_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = open_cache(tmp_path, 100 * PAGE, FullDisk())
    assert cache is not None
    with caplog.at_level(logging.WARNING, "offload.read.chunk_cache"):
        keep(cache, 1)
    assert "no space" in caplog.text
    assert get(cache, 1) is None
    assert (cache.held_bytes, entries(tmp_path)) == (0, [])
    cache.close()


def test_an_entry_that_cannot_be_read_is_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = BadDisk()
    cache = open_cache(tmp_path, 100 * PAGE, files)
    assert cache is not None
    keep(cache, 1)
    files.is_bad = True
    with caplog.at_level(logging.WARNING, "offload.read.chunk_cache"):
        assert get(cache, 1) is None
    assert "bad sector" in caplog.text
    assert not cache.has(name(1))
    cache.close()


def test_a_cache_whose_files_somebody_removed_begins_anew(cache: ChunkCache, tmp_path: Path) -> None:
    keep(cache, 1)
    for path in entries(tmp_path):
        path.unlink()
    assert get(cache, 1) is None
    assert keep(cache, 1)
    assert get(cache, 1) == body(1)


def test_many_threads_get_right_bytes_or_none(tmp_path: Path) -> None:
    cache = opened(tmp_path, 30 * PAGE)
    wrong: list[int] = []
    hits: list[int] = []

    def work(seed: int) -> None:
        random = Random(seed)
        for _ in range(400):
            number = random.randrange(60)
            found = get(cache, number)
            if found is None:
                keep(cache, number)
            elif found != body(number):
                wrong.append(number)
            else:
                hits.append(number)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert hits
    assert sum(path.stat().st_blocks * 512 for path in entries(tmp_path)) <= 30 * PAGE
    cache.close()
