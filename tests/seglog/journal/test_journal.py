from __future__ import annotations

import errno
import itertools
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog.errors import (
    DirectoryInUse,
    DiskFull,
    FileCorrupt,
    InvalidArgument,
    LogClosed,
    Missing,
    Misuse,
    OffsetOverflow,
    TooManyOpenFiles,
    WriterPoisoned,
)
from seglog.journal.item import (
    MARK_BYTES,
    OFFSET_MAX,
    SIZE,
    UNIT_BYTES,
    encode_item,
    encode_mark,
    is_mark,
    slot_bytes,
)
from seglog.journal.journal import Item, Journal
from tests.faults.disk import Moment, SimulatedDisk
from tests.faults.files import Effects, FailingFiles, UnsyncedFiles
from tests.seams.log import section_end

GOLDEN = Path(__file__).parents[2] / "golden" / "journal_section.log"
GOLDEN_ITEMS = [b"data", b"", b"8 bytes.", bytes(range(40))]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path / "j", files=UnsyncedFiles()) as journal:
        yield journal


def file_of(directory: Path, section: int = 1) -> Path:
    """Return the file of a section. Without any, return the name that an older release gave it."""
    return next(directory.glob(f"section-{section:020d}*.log"), directory / f"section-{section:020d}.log")


def secret_of(file: Path) -> bytes:
    return bytes.fromhex(file.stem.partition(f"-{1:020d}-")[2])


def replayed(journal: Journal, section: int = 1) -> list[bytes]:
    return [item.data for item in journal.replay([section])]


# ---------------------------------------------------------------- append, get, replay


def test_items_come_back_by_offset_and_in_order(journal: Journal) -> None:
    offsets = [journal.append(1, data) for data in GOLDEN_ITEMS]
    assert offsets == [0, 1, 2, 3]
    assert [journal.get(1, offset) for offset in offsets] == GOLDEN_ITEMS
    assert [journal.get(1, offset, len(data)) for offset, data in zip(offsets, GOLDEN_ITEMS, strict=True)] == (
        GOLDEN_ITEMS
    )
    assert list(journal.replay()) == [
        Item(1, offset, len(data), data) for offset, data in zip(offsets, GOLDEN_ITEMS, strict=True)
    ]


def test_large_items_and_small_ones_lie_behind_each_other(journal: Journal) -> None:
    sizes = [3_000_000, 1, 4096, 4088, 0, 1_048_576, 5]
    items = [os.urandom(size) for size in sizes]
    offsets = [journal.append(7, data) for data in items]
    ends = itertools.accumulate((slot_bytes(size) for size in sizes), initial=0)
    assert offsets == [end // UNIT_BYTES for end in ends][:-1]
    assert [journal.get(7, offset) for offset in offsets] == items
    assert replayed(journal, 7) == items
    prefixes = list(journal.replay(prefix=10))
    assert [(item.size, item.data) for item in prefixes] == [(len(data), data[:10]) for data in items]
    assert [item.data for item in journal.replay(prefix=0)] == [b""] * len(items)
    assert [item.data for item in journal.replay(prefix=10_000_000)] == items


def test_a_prefix_replay_skips_what_it_does_not_need(tmp_path: Path) -> None:
    class Counting(UnsyncedFiles):
        read_bytes = 0

        def pread(self, fd: int, length: int, offset: int) -> bytes:
            data = super().pread(fd, length, offset)
            self.read_bytes += len(data)
            return data

    files = Counting()
    with Journal(tmp_path / "j", files=files) as journal:
        for _ in range(20):
            journal.append(1, bytes(100_000))
        assert len(list(journal.replay(prefix=8))) == 20
        assert files.read_bytes < 100_000


def test_an_exact_get_is_one_read(tmp_path: Path) -> None:
    class Counting(UnsyncedFiles):
        reads = 0

        def pread(self, fd: int, length: int, offset: int) -> bytes:
            self.reads += 1
            return super().pread(fd, length, offset)

    files = Counting()
    with Journal(tmp_path / "j", files=files) as journal:
        offset = journal.append(1, bytes(100_000))
        assert journal.get(1, offset, 100_000) == bytes(100_000)
        assert files.reads == 1


@pytest.mark.parametrize("exact", [0, 3, 5, 10_000_000])
def test_a_wrong_exact_size_is_told_apart_from_damage(journal: Journal, exact: int) -> None:
    offset = journal.append(1, b"data")
    with pytest.raises(InvalidArgument) as caught:
        journal.get(1, offset, exact)
    assert (caught.value.given, caught.value.wanted) == (exact, "4, the size of the item at offset 0 of section 1")


def test_what_is_not_there_is_missing(journal: Journal) -> None:
    with pytest.raises(Missing, match="has no item"):
        journal.get(1, 0)
    journal.append(1, b"data")
    journal.sync(1)
    for offset in (1, 2, 2**40):  # 1 is the sync mark
        with pytest.raises(Missing, match="has no item"):
            journal.get(1, offset)
    with pytest.raises(Missing, match="has no item"):
        journal.replay([1, 2])
    assert list(journal.replay([])) == []
    journal.sync(2)
    assert journal.sections == [1]


def test_an_offset_within_an_item_is_never_an_item(journal: Journal) -> None:
    journal.append(1, bytes(64))
    journal.append(1, b"\x04\x00\x00\x00" * 20)
    for offset in (1, 2, 3, 4, 6, 7, 8, 9):
        with pytest.raises(FileCorrupt) as caught:
            journal.get(1, offset)
        assert caught.value.offset == offset * UNIT_BYTES


@pytest.mark.parametrize("section", [-1, 2**64])
def test_a_section_is_a_u64(journal: Journal, section: int) -> None:
    with pytest.raises(InvalidArgument, match="section"):
        journal.append(section, b"data")
    journal.append(2**64 - 1, b"data")
    assert replayed(journal, 2**64 - 1) == [b"data"]


@pytest.mark.parametrize("arguments", [{"prefix": -1}, {"concurrency": 0}])
def test_a_replay_that_makes_no_sense_is_refused_at_once(journal: Journal, arguments: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(arguments))):
        journal.replay(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("concurrency", [1, 2, 4, 99])
def test_sections_are_replayed_in_one_stream(journal: Journal, concurrency: int) -> None:
    written = {section: [b"%d %d" % (section, index) for index in range(3000)] for section in (5, 2, 9, 700, 1)}
    for section, items in written.items():
        for data in items:
            journal.append(section, data)
    found: dict[int, list[bytes]] = {section: [] for section in written}
    stream = list(journal.replay(concurrency=concurrency))
    for item in stream:
        found[item.section].append(item.data)
    assert found == written
    if concurrency == 1:
        assert [item.section for item in stream] == [section for section in sorted(written) for _ in range(3000)]
    assert {item.section for item in journal.replay([9, 2], concurrency=concurrency)} == {2, 9}


def test_a_replay_ends_where_it_began_and_may_be_left(journal: Journal) -> None:
    for section in (1, 2, 3):
        journal.append(section, b"data")
    stream = journal.replay()
    journal.append(1, b"later")
    assert sorted(item.section for item in stream) == [1, 2, 3]
    left = journal.replay()
    next(left)
    left.close()  # type: ignore[attr-defined]
    stream = journal.replay()
    journal.prune(3)
    assert sorted(item.section for item in stream) == [1, 1, 2, 3]


def test_appenders_and_readers_share_a_journal(journal: Journal) -> None:
    offsets: dict[int, list[int]] = {number: [] for number in range(4)}

    def append(number: int) -> None:
        for index in range(200):
            offsets[number].append(journal.append(number % 2, b"%d %d" % (number, index)))
            if index % 50 == 0:
                journal.sync(number % 2)
            assert journal.get(number % 2, offsets[number][-1]) == b"%d %d" % (number, index)

    threads = [threading.Thread(target=append, args=(number,)) for number in offsets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, own in offsets.items():
        assert [journal.get(number % 2, offset) for offset in own] == [b"%d %d" % (number, i) for i in range(200)]
    assert len(list(journal.replay())) == 800


# ---------------------------------------------------------------- life


def test_the_file_is_pinned(tmp_path: Path) -> None:
    """The marks have the secret of the file. All else is as in the golden section, which has none."""
    with Journal(tmp_path / "j") as journal:
        for data in GOLDEN_ITEMS:
            journal.append(1, data)
        journal.sync(1)
        journal.append(1, b"after a mark")
    file = file_of(tmp_path / "j")
    wanted, secret = bytearray(GOLDEN.read_bytes()), secret_of(file)
    for position in range(0, len(wanted), UNIT_BYTES):
        if is_mark(wanted, position, 1, position, b""):
            wanted[position : position + MARK_BYTES] = encode_mark(1, position, secret)
    assert len(secret) == 8
    assert file.read_bytes() == wanted != GOLDEN.read_bytes()
    with Journal(tmp_path / "j") as journal:
        assert replayed(journal) == [*GOLDEN_ITEMS, b"after a mark"]
    assert file.read_bytes() == wanted


def test_the_sections_of_an_older_release_are_read_and_go_on(tmp_path: Path) -> None:
    (tmp_path / "j").mkdir()
    old = tmp_path / "j" / f"section-{1:020d}.log"
    old.write_bytes(GOLDEN.read_bytes())
    with Journal(tmp_path / "j") as journal:
        assert replayed(journal) == [*GOLDEN_ITEMS, b"after a mark"]
        assert old.read_bytes() == GOLDEN.read_bytes()
        journal.append(1, b"next")
        journal.append(2, b"another section")
    body = old.read_bytes()
    assert is_mark(body, len(body) - MARK_BYTES, 1, len(body) - MARK_BYTES, b"")
    assert file_of(tmp_path / "j", 2).name != f"section-{2:020d}.log"
    with Journal(tmp_path / "j") as journal:
        assert replayed(journal) == [*GOLDEN_ITEMS, b"after a mark", b"next"]


def test_a_section_with_two_files_is_refused(tmp_path: Path) -> None:
    """An older release takes a section with a secret for none, and begins it anew."""
    with Journal(tmp_path / "j") as journal:
        journal.append(1, b"data")
    (tmp_path / "j" / f"section-{1:020d}.log").write_bytes(GOLDEN.read_bytes())
    with pytest.raises(FileCorrupt, match="section 1 has two files"):
        Journal(tmp_path / "j")


@pytest.mark.parametrize("is_synced", [True, False])
@pytest.mark.parametrize("shift", range(0, 8 * UNIT_BYTES, UNIT_BYTES))
def test_no_item_holds_a_mark_of_its_place(is_synced: bool, shift: int) -> None:
    """The process dies, or the power fails before the mark behind the item is durable."""
    disk = SimulatedDisk()
    journal = Journal("/j", files=disk)
    journal.append(1, b"first")
    journal.sync(1)
    begin = section_end(journal, 1)
    data = bytearray(b"x" * 10 * UNIT_BYTES)
    guesses = (b"", bytes(8), b"\xff" * 8)
    for number, guess in enumerate(guesses):
        at = begin + UNIT_BYTES + shift % (7 * UNIT_BYTES) + number * MARK_BYTES
        data[at - begin - SIZE.size : at - begin - SIZE.size + MARK_BYTES] = encode_mark(1, at, guess)
    journal.append(1, bytes(data))
    if is_synced:
        journal.sync(1)
    left = disk.after_power_cut() if is_synced else disk.after_kill()
    journal.close()
    with Journal("/j", files=SimulatedDisk(left)) as again:
        assert replayed(again) == [b"first", bytes(data)]


def test_what_was_appended_is_there_after_close_and_goes_on(tmp_path: Path) -> None:
    for life in range(4):
        with Journal(tmp_path / "j", files=UnsyncedFiles()) as journal:
            assert replayed(journal) == [b"life %d" % before for before in range(life)] if life else True
            journal.append(1, b"life %d" % life)


def test_a_journal_that_is_closed_does_nothing_more(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", files=UnsyncedFiles())
    journal.append(1, b"data")
    stream = journal.replay()
    journal.close()
    journal.close()
    for call in (
        lambda: journal.append(1, b""),
        lambda: journal.get(1, 0),
        lambda: journal.sync(1),
        lambda: journal.prune(1),
        journal.replay,
    ):
        with pytest.raises(LogClosed, match="the journal is closed"):
            call()
    assert [item.data for item in stream] == [b"data"]


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with Journal(tmp_path / "j", files=UnsyncedFiles()), pytest.raises(DirectoryInUse):
        Journal(tmp_path / "j", files=UnsyncedFiles())
    Journal(tmp_path / "j", files=UnsyncedFiles()).close()


def test_pruned_sections_are_gone_for_good(tmp_path: Path) -> None:
    with Journal(tmp_path / "j", files=UnsyncedFiles()) as journal:
        for section in (1, 2, 3):
            journal.append(section, b"data")
        journal.prune(3)
        journal.prune(2)
        assert journal.sections == [3]
        with pytest.raises(Missing, match="has no item"):
            journal.get(1, 0)
        with pytest.raises(Misuse, match="section 2 is pruned: the lowest section is 3; nothing was appended"):
            journal.append(2, b"data")
        journal.append(3, b"more")
    with Journal(tmp_path / "j", files=UnsyncedFiles()) as journal:
        assert [(item.section, item.data) for item in journal.replay()] == [(3, b"data"), (3, b"more")]


def test_the_files_of_pruned_sections_go_at_once(tmp_path: Path) -> None:
    with Journal(tmp_path / "j", files=UnsyncedFiles()) as journal:
        for section in (1, 2, 3):
            journal.append(section, b"data")
        for floor in (2, 3):
            journal.prune(floor)
            assert sorted(path.name for path in (tmp_path / "j").glob("*-*")) == [
                f"floor-{floor:020d}", *(file_of(tmp_path / "j", section).name for section in range(floor, 4)),
            ]  # fmt: skip


def test_of_two_floors_that_a_crash_left_the_higher_one_counts(tmp_path: Path) -> None:
    with Journal(tmp_path / "j", files=UnsyncedFiles()) as journal:
        for section in (1, 2, 3):
            journal.append(section, b"data")
    for floor in (2, 3):
        (tmp_path / "j" / f"floor-{floor:020d}").touch()
    with Journal(tmp_path / "j", files=UnsyncedFiles()) as journal:
        assert journal.sections == [3]
        with pytest.raises(Misuse, match="is pruned"):
            journal.append(2, b"data")
    assert [path.name for path in (tmp_path / "j").glob("floor-*")] == [f"floor-{3:020d}"]


def test_a_power_cut_in_a_prune_leaves_all_sections_or_those_that_stay() -> None:
    moments: list[Moment] = []
    disk = SimulatedDisk()
    with Journal("/j", files=disk) as journal:
        for section in (1, 2, 3):
            journal.append(section, b"data")
            journal.sync(section)
        disk.note = lambda disk: moments.append(disk.moment())
        journal.prune(3)
        disk.note = None
    found = set()
    for moment in moments:
        for image in moment.images(random.Random(1), 8):
            with Journal("/j", files=SimulatedDisk(image)) as journal:
                found.add(tuple(journal.sections))
    assert found == {(1, 2, 3), (3,)}


def test_sync_asks_the_disk_once_and_only_if_there_is_something(tmp_path: Path) -> None:
    class Counting(Effects):
        def effect(self, name: str) -> None:
            names.append(name)

    names: list[str] = []
    with Journal(tmp_path / "j", files=Counting(UnsyncedFiles())) as journal:
        journal.append(1, b"data")
        journal.append(1, b"data")
        names.clear()
        journal.sync(1)
        assert names == ["sync_dir", "datasync", "pwrite"]
        journal.sync(1)
        assert names == ["sync_dir", "datasync", "pwrite"]
        names.clear()
        journal.append(1, b"data")
        journal.sync(1)
        assert names == ["pwritev", "datasync", "pwrite"]
        names.clear()
    assert names == ["datasync"]
    names.clear()
    Journal(tmp_path / "j", files=Counting(UnsyncedFiles())).close()
    assert [name for name in names if name not in ("open", "truncate", "pwrite")] == ["make_dir", "sync_dir"]


# ---------------------------------------------------------------- the end of offsets


def test_offsets_end_at_the_highest_u32(tmp_path: Path) -> None:
    directory = tmp_path / "j"
    directory.mkdir()
    with file_of(directory).open("wb") as file:  # a sparse file: 64 GiB that take no space
        position = OFFSET_MAX * UNIT_BYTES - UNIT_BYTES
        file.seek(position)
        file.write(encode_mark(1, position, b""))
    with Journal(directory, files=UnsyncedFiles()) as journal:
        last = bytes(range(256)) * 100
        assert journal.append(1, last) == OFFSET_MAX
        journal.sync(1)
        before = file_of(directory).stat().st_size
        with pytest.raises(OffsetOverflow) as caught:
            journal.append(1, b"data")
        assert (caught.value.path, caught.value.limit_bytes) == (file_of(directory), OFFSET_MAX)
        assert file_of(directory).stat().st_size == before
        assert journal.get(1, OFFSET_MAX) == last
        assert journal.append(2, b"data") == 0
    with Journal(directory, files=UnsyncedFiles()) as journal, pytest.raises(OffsetOverflow):
        journal.append(1, b"data")


# ---------------------------------------------------------------- damage


def grown(directory: Path, *, closed: bool) -> bytes:
    """Return the bytes of a section: two synced items, a mark, two more items. If `closed`, a second mark follows."""
    with Journal(directory, files=UnsyncedFiles()) as journal:
        for data in GOLDEN_ITEMS[:2]:
            journal.append(1, data)
        journal.sync(1)
        for data in GOLDEN_ITEMS[2:]:
            journal.append(1, data)
    path = file_of(directory)
    return path.read_bytes() if closed else path.read_bytes()[:-UNIT_BYTES]


def test_every_flipped_byte_of_what_is_durable_is_located_and_the_rest_stays_readable(tmp_path: Path) -> None:
    raw = grown(tmp_path / "j", closed=True)
    offsets = [0, 1, 3, 4]
    spans = [
        range(offset * UNIT_BYTES, offset * UNIT_BYTES + slot_bytes(len(data)))
        for offset, data in zip(offsets, GOLDEN_ITEMS, strict=True)
    ]
    for position in range(len(raw)):
        damaged = bytearray(raw)
        damaged[position] ^= 0x40
        file_of(tmp_path / "j").write_bytes(damaged)
        with Journal(tmp_path / "j", files=UnsyncedFiles()) as journal:
            for offset, data, span in zip(offsets, GOLDEN_ITEMS, spans, strict=True):
                if position not in span:
                    assert journal.get(1, offset) == data
                    continue
                with pytest.raises(FileCorrupt) as caught:
                    journal.get(1, offset)
                assert (caught.value.path, caught.value.offset) == (file_of(tmp_path / "j"), span.start)
            hit = [index for index, span in enumerate(spans) if position in span]
            stream = journal.replay()
            if hit:
                assert [item.data for item in itertools.islice(stream, hit[0])] == GOLDEN_ITEMS[: hit[0]]
                with pytest.raises(FileCorrupt) as caught:
                    next(stream)
                assert caught.value.offset == spans[hit[0]].start
                assert file_of(tmp_path / "j").read_bytes() == damaged
            elif position < len(raw) - UNIT_BYTES:  # in the first mark, which may be a damaged item
                assert [item.data for item in itertools.islice(stream, 2)] == GOLDEN_ITEMS[:2]
                with pytest.raises(FileCorrupt):
                    next(stream)
            else:  # in the last mark: the journal writes it again
                assert [item.data for item in stream] == GOLDEN_ITEMS
                assert file_of(tmp_path / "j").read_bytes() == raw


def test_damage_in_one_section_leaves_the_others(tmp_path: Path) -> None:
    with Journal(tmp_path / "j", files=UnsyncedFiles()) as journal:
        for section in (1, 2, 3):
            journal.append(section, b"data")
    raw = bytearray(file_of(tmp_path / "j", 2).read_bytes())
    raw[5] ^= 1
    file_of(tmp_path / "j", 2).write_bytes(raw)
    with Journal(tmp_path / "j", files=UnsyncedFiles()) as journal:
        with pytest.raises(FileCorrupt):
            list(journal.replay())
        assert [item.section for item in journal.replay([1, 3], concurrency=1)] == [1, 3]
        assert [item.data for item in journal.replay([2], prefix=1)] == [b"d"]


def test_every_truncation_leaves_a_whole_beginning(tmp_path: Path) -> None:
    raw = grown(tmp_path / "j", closed=True)
    ends = [16, 32, 64, 112]
    for length in range(len(raw) + 1):
        file_of(tmp_path / "j").write_bytes(raw[:length])
        with Journal(tmp_path / "j", files=UnsyncedFiles()) as journal:
            whole = GOLDEN_ITEMS[: sum(end <= length for end in ends)]
            assert replayed(journal) == whole
            offset = journal.append(1, b"next")
        with Journal(tmp_path / "j", files=UnsyncedFiles()) as journal:
            assert replayed(journal) == [*whole, b"next"]
            assert journal.get(1, offset) == b"next"


@pytest.mark.parametrize("tail", [bytes(1), bytes(16), bytes(5000), b"\xff" * 40, b"\x10\0\0\0" + b"x" * 16])
def test_what_is_no_item_behind_the_newest_mark_is_cut_and_told(
    tmp_path: Path, tail: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for closed in (True, False):
        raw = grown(tmp_path / str(closed), closed=closed)
        file_of(tmp_path / str(closed)).write_bytes(raw + tail)
        caplog.clear()
        with Journal(tmp_path / str(closed), files=UnsyncedFiles()) as journal:
            assert replayed(journal) == GOLDEN_ITEMS
        assert f"cut at offset {len(raw)}" in caplog.text


def test_what_is_torn_does_not_come_back_behind_a_later_item(tmp_path: Path) -> None:
    """The file has a hole, then an unsynced item. A later item fills the hole and ends at the unsynced item."""
    raw = grown(tmp_path / "j", closed=True)
    path = file_of(tmp_path / "j")
    path.write_bytes(raw + b"\xff" * slot_bytes(24) + b"".join(encode_item(b"torn")))
    with Journal(tmp_path / "j", files=UnsyncedFiles()) as journal:
        journal.append(1, b"n" * 24)
        killed = path.read_bytes()
    path.write_bytes(killed)
    with Journal(tmp_path / "j", files=UnsyncedFiles()) as journal:
        assert replayed(journal) == [*GOLDEN_ITEMS, b"n" * 24]


def test_a_long_unsynced_end_is_found_over_many_looks(tmp_path: Path) -> None:
    items = [os.urandom(700_000) for _ in range(5)]
    with Journal(tmp_path / "j", files=UnsyncedFiles()) as journal:
        journal.append(1, b"first")
        journal.sync(1)
        for data in items:
            journal.append(1, data)
    path = file_of(tmp_path / "j")
    path.write_bytes(path.read_bytes()[:-UNIT_BYTES] + bytes(2_000_000))
    with Journal(tmp_path / "j", files=UnsyncedFiles()) as journal:
        assert replayed(journal) == [b"first", *items]


def test_what_was_not_synced_is_written_again_before_it_is_called_durable(tmp_path: Path) -> None:
    """After a failed fsync the kernel marks the pages clean. Only a second write brings them to the disk."""

    class Watching(UnsyncedFiles):
        def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
            written.append((offset, bytes(data)))
            super().pwrite(fd, data, offset)

        def datasync(self, fd: int) -> None:
            written.append((-1, b""))

    failing = FailingFiles(UnsyncedFiles(), 1, errno.EIO, only=["datasync"])
    with Journal(tmp_path / "j", files=failing) as journal:
        journal.append(1, b"data")
        with pytest.raises(WriterPoisoned):
            journal.sync(1)
    raw = file_of(tmp_path / "j").read_bytes()
    written: list[tuple[int, bytes]] = []
    with Journal(tmp_path / "j", files=Watching()) as journal:
        assert [step for step in written if step[1][:3] != b"pid"][:2] == [(0, raw), (-1, b"")]
        assert replayed(journal) == [b"data"]


# ---------------------------------------------------------------- failing disks


def test_a_full_disk_loses_nothing_and_appends_work_again(tmp_path: Path) -> None:
    files = FailingFiles(UnsyncedFiles(), 1, errno.ENOSPC, for_good=True, only=["pwritev"])
    with Journal(tmp_path / "j", files=files) as journal:
        files.at = 0
        journal.append(1, b"before")
        files.at = 1
        for _ in range(2):
            with pytest.raises(DiskFull):
                journal.append(1, b"x" * 100)
        assert file_of(tmp_path / "j").stat().st_size == slot_bytes(6)
        files.at = 0
        journal.append(1, b"after")
        assert replayed(journal) == [b"before", b"after"]


def test_a_mark_that_finds_no_space_is_left_out(tmp_path: Path) -> None:
    files = FailingFiles(UnsyncedFiles(), 0, errno.ENOSPC, for_good=True, only=["pwrite"])
    with Journal(tmp_path / "j", files=files) as journal:
        files.at = 1
        journal.append(1, b"data")
        journal.sync(1)
        journal.append(1, b"more")
        journal.sync(1)
        assert files.failures == 2
        assert replayed(journal) == [b"data", b"more"]


@pytest.mark.parametrize("for_good", [False, True])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_every_failing_operation_is_told_and_what_was_synced_is_there_after_it(
    tmp_path: Path, error: int, for_good: bool
) -> None:
    for at in itertools.count(1):
        directory = tmp_path / str(at)
        files = FailingFiles(UnsyncedFiles(), at, error, for_good=for_good)
        tried: dict[int, list[bytes]] = {1: [], 2: []}
        acked: dict[int, int] = {1: 0, 2: 0}
        try:
            with Journal(directory, files=files) as journal:
                for index in range(4):
                    section = 1 + index % 2
                    data = b"%d" % index * 20
                    try:
                        journal.append(section, data)
                    except (DiskFull, WriterPoisoned, OSError):
                        continue
                    tried[section].append(data)
                    try:
                        journal.sync(section)
                    except (DiskFull, WriterPoisoned):
                        continue
                    acked[section] = len(tried[section])
        except (OSError, DiskFull, WriterPoisoned):
            assert files.failures
        if not files.failures:
            break
        if not directory.exists():
            continue
        with Journal(directory, files=UnsyncedFiles()) as journal:
            for section, values in tried.items():
                found = replayed(journal, section) if section in journal.sections else []
                assert found[: acked[section]] == values[: acked[section]]
                assert all(data in values or len(data) == 20 for data in found)
    assert at > 8


def test_a_poisoned_section_takes_no_more_and_the_others_go_on(tmp_path: Path) -> None:
    files = FailingFiles(UnsyncedFiles(), 1, errno.EIO, only=["datasync"])
    with Journal(tmp_path / "j", files=files) as journal:
        journal.append(1, b"data")
        with pytest.raises(WriterPoisoned):
            journal.sync(1)
        for call in (lambda: journal.append(1, b""), lambda: journal.sync(1)):
            with pytest.raises(WriterPoisoned):
                call()
        journal.append(2, b"data")
        journal.sync(2)
        assert replayed(journal) == [b"data"]


# ---------------------------------------------------------------- against a model

steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 3), st.one_of(st.binary(max_size=40), st.just(bytes(5000)))),
        st.tuples(st.just("sync"), st.integers(0, 3)),
        st.tuples(st.just("prune"), st.integers(0, 4)),
        st.tuples(st.just("replay"), st.sampled_from([None, 0, 3, 5000])),
        st.tuples(st.just("reopen")),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_a_journal_is_what_a_dictionary_of_lists_is(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, ...]]
) -> None:
    directory = tmp_path_factory.mktemp("model") / "j"
    model: dict[int, list[tuple[int, bytes]]] = {}
    floor = 0
    journal = Journal(directory, files=UnsyncedFiles())
    for name, *values in steps:
        if name == "append":
            section, data = int(values[0]), bytes(values[1])  # type: ignore[arg-type]
            if section < floor:
                with pytest.raises(Misuse, match="is pruned"):
                    journal.append(section, data)
                continue
            offset = journal.append(section, data)
            assert all(offset > known for known, _ in model.get(section, []))
            model.setdefault(section, []).append((offset, data))
        elif name == "sync":
            journal.sync(int(values[0]))
        elif name == "prune":
            floor = max(floor, int(values[0]))
            journal.prune(int(values[0]))
            model = {section: items for section, items in model.items() if section >= floor}
        elif name == "replay":
            prefix = None if values[0] is None else int(values[0])
            found: dict[int, list[tuple[int, bytes]]] = {section: [] for section in journal.sections}
            for item in journal.replay(prefix=prefix, concurrency=2):
                found[item.section].append((item.offset, item.data))
            assert found == {s: [(offset, data[:prefix]) for offset, data in items] for s, items in model.items()}
        else:
            journal.close()
            journal = Journal(directory, files=UnsyncedFiles())
    for section, items in model.items():
        assert [(offset, journal.get(section, offset, len(data))) for offset, data in items] == items
    assert journal.sections == sorted(model)
    journal.close()


# ---------------------------------------------------------------- pruning for good


def test_what_is_pruned_stays_so_in_later_lives(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        for section in (1, 2, 3):
            journal.append(section, b"x")
        journal.prune(3)
        journal.prune(2)  # lower: nothing to do
    for _ in range(2):
        with Journal(tmp_path / "j") as journal:
            assert journal.sections == [3]
            for section in (0, 1, 2):
                with pytest.raises(Misuse, match="is pruned"):
                    journal.append(section, b"again")
            journal.append(3, b"y")
    names = sorted(path.name for path in (tmp_path / "j").iterdir())
    assert names == ["LOCK", f"floor-{3:020d}", file_of(tmp_path / "j", 3).name]


def test_a_floor_above_all_sections_is_kept_too(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.prune(5)
        journal.prune(9)
    with Journal(tmp_path / "j") as journal, pytest.raises(Misuse, match="is pruned"):
        journal.append(8, b"x")
    assert [path.name for path in (tmp_path / "j").glob("floor-*")] == [f"floor-{9:020d}"]


@pytest.mark.parametrize("only", ["unlink", "sync_dir"])
@pytest.mark.parametrize("error_number", [errno.EIO, errno.EMFILE])
def test_a_prune_that_failed_is_finished_by_the_next_one(tmp_path: Path, only: str, error_number: int) -> None:
    for at in range(1, 6):
        files = FailingFiles(UnsyncedFiles(), 0, error_number, only=(only,))
        syncs = Counted(files)
        with Journal(tmp_path / str(at), files=syncs) as journal:
            for section in (1, 2, 3):
                journal.append(section, b"x")
                journal.sync(section)
            files.at = files.counted + at
            try:
                journal.prune(3)
            except (OSError, TooManyOpenFiles):
                files.at = 0
                syncs.syncs = 0
                journal.prune(3)
                assert syncs.syncs  # only this prune is durable
            assert journal.sections == [3]
        with Journal(tmp_path / str(at)) as journal:
            assert journal.sections == [3]
            with pytest.raises(Misuse, match="is pruned"):
                journal.append(2, b"x")


class Counted(Effects):
    """Counts the syncs of directories."""

    syncs = 0

    def effect(self, name: str) -> None:
        self.syncs += name == "sync_dir"


def test_a_prune_makes_room_on_a_full_disk(tmp_path: Path) -> None:
    class Full(UnsyncedFiles):
        is_full = False

        def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
            if self.is_full and flags & os.O_CREAT:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().open(path, flags, mode)

        def unlink(self, path: Path) -> None:
            super().unlink(path)
            self.is_full = False

    files = Full()
    with Journal(tmp_path / "j", files=files) as journal:
        for section in (1, 2, 3):
            journal.append(section, b"x")
        files.is_full = True
        journal.prune(3)
        assert journal.sections == [3]
        files.is_full = True
        files.unlink = UnsyncedFiles().unlink  # type: ignore[method-assign] - it frees no space
        with pytest.raises(DiskFull):
            journal.prune(4)
        assert journal.sections == []
        files.is_full = False
        journal.prune(4)  # a retry: only the floor remains to write
    with Journal(tmp_path / "j") as journal, pytest.raises(Misuse, match="is pruned"):
        journal.append(3, b"x")
