from __future__ import annotations

import errno
import fcntl
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import seglog
from seglog import LogSettings, Report
from seglog.engine.work_thread import InCaller
from seglog.errors import DirectoryInUse, FileCorrupt, FormatUnsupported, NotADataDirectory
from seglog.files.file_system import OsFiles, ReadOnlyFiles
from seglog.format.frame import FrameType, encode
from seglog.format.index import ENTRY, encode_entry, mark_deleted
from seglog.values.layout import Layout
from seglog.wal import manifest as meta
from tests.faults.files import CrashingFiles, Effects, PowerCutFiles, SimulatedCrash, UnsyncedFiles
from tests.faults.stride import every
from tests.seglog.workload import SETTINGS, TIERED, Journal, live
from tests.trees import tree


def verified(directory: Path) -> Report:
    """Return the report of `verify`. Check that `verify` changes no file."""
    before = tree(directory)
    report = seglog.verify(directory)
    assert tree(directory) == before
    return report


def damages(directory: Path) -> set[tuple[str, int]]:
    return {(damage.path.name, damage.offset) for damage in verified(directory).damages}


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed log: segments, deletes, released segments, two manifests, a WAL whose records are all in segments."""
    directory = tmp_path_factory.mktemp("lived") / "log"
    live(directory, UnsyncedFiles(), Journal())
    return directory


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory after a crash, with records in two segments, the active segment, and the WAL."""
    directory = tmp_path_factory.mktemp("killed")
    with seglog.open(directory / "live", files=UnsyncedFiles(), settings=SETTINGS) as log:
        for number in range(10):
            log.topic("t").append([b"in segments %d" % number], tag="eu")
        log.checkpoint()
        for number in range(5):
            log.topic("t").append([b"in the WAL %d" % number])
        shutil.copytree(directory / "live", directory / "log")
    return directory / "log"


@pytest.fixture
def copied(killed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(killed, tmp_path / "log"))


def only(directory: Path, pattern: str) -> Path:
    [path] = directory.glob(pattern)
    return path


def test_a_sound_directory_is_sound_and_everything_in_it_was_looked_at(lived: Path, killed: Path) -> None:
    report = verified(lived)
    assert (report.is_sound, report.damages, report.notes) == (True, (), ())
    looked_at = {file.path for file in report.checked}
    there = {path for kind in ("*.json", "*.log", "*.data") for path in lived.rglob(kind)}
    assert looked_at == there
    report = verified(killed)
    assert report.is_sound
    items = {kind: sum(file.items for file in report.checked if file.kind == kind) for kind in ("wal", "segment")}
    assert items["segment"] == 10
    assert items["wal"] > 15 + 15  # a sync mark follows every append
    assert {file.topic for file in report.checked if file.kind == "segment"} == {"t"}
    assert verified(killed).path == killed


def test_it_reads_a_directory_that_nobody_may_write(copied: Path) -> None:
    for path in [*copied.rglob("*"), copied]:
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        assert seglog.verify(copied).is_sound
    finally:
        for path in [copied, *copied.rglob("*")]:
            path.chmod(0o700)


def test_what_is_no_data_directory_is_none(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NotADataDirectory):
            seglog.verify(path)


def test_a_log_that_is_open_is_left_alone_and_others_may_verify_meanwhile(copied: Path) -> None:
    with seglog.open(copied, files=UnsyncedFiles(), settings=SETTINGS), pytest.raises(DirectoryInUse) as caught:
        seglog.verify(copied)
    assert f"pid {os.getpid()}" in str(caught.value)
    fd = os.open(copied / "LOCK", os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_SH)
    assert seglog.verify(copied).is_sound
    with pytest.raises(DirectoryInUse):
        seglog.open(copied, files=UnsyncedFiles())
    os.close(fd)


def test_without_a_lock_file_none_is_made(copied: Path) -> None:
    (copied / "LOCK").unlink()
    assert verified(copied).is_sound


# ---------------------------------------------------------------- damage


def test_every_damaged_byte_is_found_in_its_file(killed: Path, tmp_path: Path) -> None:
    """Damage every seventh byte of every file. That hits the middle of every structure, and keeps the test short."""
    directory = Path(shutil.copytree(killed, tmp_path / "log"))
    count = 0
    for path in sorted(directory.rglob("*")):
        if not path.is_file() or path.name in ("LOCK", "seglog.toml"):
            continue
        body = path.read_bytes()
        used = len(body.rstrip(b"\0")) if path.suffix == ".log" else len(body)
        for offset in range(random.Random(path.name).randrange(7), used, 7):
            damaged = bytearray(body)
            damaged[offset] ^= 0x20
            path.write_bytes(damaged)
            report = seglog.verify(directory)
            if path.suffix == ".log" and report.is_sound:
                # In the last group, after the newest sync mark, damage looks like a torn write. Damage to a frame whose
                # records are all in segments is only a note.
                [note] = report.notes
                assert ("torn" in note) == (offset > used - 100)
                assert ("segments have all" in note) == ("torn" not in note)
            elif path.suffix == ".tags":
                assert report.is_sound
                assert [note.startswith(str(path)) for note in report.notes].count(True) == 1
            else:
                assert path in {damage.path for damage in report.damages}
                places = [damage.offset for damage in report.damages if damage.path == path]
                # A manifest has one checksum over the whole file, so damage is at offset 0.
                assert places == [0] if path.suffix == ".json" else any(at <= offset < at + 250 for at in places)
            count += 1
        path.write_bytes(body)
    assert count > 300
    assert verified(directory).is_sound


def test_one_damage_does_not_hide_another(copied: Path) -> None:
    wal = only(copied, "wal/wal-*.log")
    first, second = sorted(copied.glob("topics/*/seg-*.data"))[:2]
    idx = first.with_suffix(".idx")
    body = bytearray(wal.read_bytes())
    assert b"in segments 2" in body  # its record is in a segment, so no damage
    body[body.index(b"in segments 2")] ^= 1
    places = [body.index(b"in the WAL 1"), body.index(b"in the WAL 3")]
    for place in places:
        body[place] ^= 1
    wal.write_bytes(body)
    for path, place in ((first, first.read_bytes().index(b"segments 1")), (second, 60), (idx, 3 * ENTRY.size + 8)):
        body = bytearray(path.read_bytes())
        body[place] ^= 1
        path.write_bytes(body)
    report = verified(copied)
    found = [(damage.path, damage.offset) for damage in report.damages]
    assert [path for path, _ in found] == [wal, wal, idx, first, second]
    assert all(0 < place - offset < 60 for place, (_, offset) in zip(places, found, strict=False))
    assert found[2] == (idx, 3 * ENTRY.size)


def test_an_entry_and_a_frame_that_do_not_agree_are_told(copied: Path) -> None:
    data = min(copied.glob("topics/*/seg-*.data"))
    idx = data.with_suffix(".idx")
    raw = idx.read_bytes()
    offset, length, ts_ms, flags, _ = ENTRY.unpack(raw[:20])
    idx.write_bytes(encode_entry(1, offset, length, ts_ms + 1, flags) + raw[20:])
    assert damages(copied) == {(data.name, 0)}
    idx.write_bytes(encode_entry(1, offset, length, ts_ms, flags ^ 1) + raw[20:])
    assert damages(copied) == {(data.name, 0)}
    idx.write_bytes(encode_entry(1, offset + 1, length, ts_ms, flags) + raw[20:])
    assert (idx.name, 0) in damages(copied)
    idx.write_bytes(encode_entry(1, offset, length, ts_ms, flags | 8) + raw[20:])  # only the entry has the DELETED flag
    assert damages(copied) == set()


@pytest.mark.parametrize("kind", ["data", "idx"])
def test_every_truncation_of_a_segment_is_found(copied: Path, kind: str) -> None:
    for path in copied.glob(f"topics/*/seg-*.{kind}"):
        body = path.read_bytes()
        for length in range(0, len(body), 11):
            path.write_bytes(body[:length])
            assert not verified(copied).is_sound, (path.name, length)
        path.write_bytes(body)


def test_files_that_are_missing_are_named(killed: Path, tmp_path: Path) -> None:
    for number, path in enumerate(sorted(path for path in killed.rglob("*") if path.is_file())):
        if path.name in ("LOCK", "seglog.toml") or path.suffix == ".json":  # older manifest and WAL suffice
            continue
        copy = Path(shutil.copytree(killed, tmp_path / str(number)))
        (copy / path.relative_to(killed)).unlink()
        report = seglog.verify(copy)
        if path.suffix == ".tags":  # derivable, so a note and no damage
            assert report.is_sound
            assert [note for note in report.notes if path.name in note and "is missing" in note]
            continue
        assert not report.is_sound, path
        if path.suffix in (".data", ".idx"):
            assert path.with_suffix("").name in {damage.path.with_suffix("").name for damage in report.damages}
        shutil.rmtree(copy)


def test_a_whole_segment_that_is_missing_is_named(copied: Path) -> None:
    data = sorted(copied.glob("topics/*/seg-*.data"))[1]
    data.unlink()
    data.with_suffix(".idx").unlink()
    assert damages(copied) == {(data.name, 0)}


def test_segments_that_are_missing_cut_or_too_long_are_named_beside_other_damage(copied: Path) -> None:
    first, second, third = sorted(copied.glob("topics/*/seg-*.data"))
    wal = only(copied, "wal/wal-*.log")
    body = bytearray(wal.read_bytes())
    place = body.index(b"in the WAL 1")
    body[place] ^= 1
    wal.write_bytes(body)
    size = first.stat().st_size
    first.write_bytes(first.read_bytes() + b"more")
    assert (first.name, size) in damages(copied)
    first.write_bytes(first.read_bytes()[:-4])
    idx = first.with_suffix(".idx").read_bytes()
    first.with_suffix(".idx").write_bytes(idx[: -ENTRY.size])
    assert (first.name, ENTRY.unpack(idx[-ENTRY.size :])[0]) in damages(copied)
    first.with_suffix(".idx").write_bytes(idx)
    for gone, rest in ((second, (first, third)), (third, (first, second))):
        kept = {path: path.read_bytes() for path in (gone, gone.with_suffix(".idx"))}
        for path in kept:
            path.unlink()
        found = damages(copied)
        assert (gone.name, 0) in found
        assert not {path.name for path in rest} & {name for name, _ in found}
        for path, content in kept.items():
            path.write_bytes(content)


def test_two_files_that_changed_places_are_found(copied: Path) -> None:
    first, second = sorted(copied.glob("topics/*/seg-*.data"))[:2]
    a, b = first.read_bytes(), second.read_bytes()
    first.write_bytes(b)
    second.write_bytes(a)
    assert {name for name, _ in damages(copied)} == {first.name, second.name}


def test_a_sound_frame_that_cannot_be_where_it_is_is_found(copied: Path) -> None:
    """Each file is sound by itself. Only the checks of recovery find the frame."""
    wal = only(copied, "wal/wal-*.log")
    body = wal.read_bytes()
    end = len(body.rstrip(b"\0"))
    stray = encode(FrameType.APPEND, topic_id=1, seq=99, ts_ms=0)
    wal.write_bytes(body[:end] + stray + body[end + len(stray) :])
    report = verified(copied)
    assert [(damage.path, damage.offset) for damage in report.damages] == [(wal, end)]
    assert "seq 99" in report.damages[0].reason


def test_another_versions_snapshot_is_told_apart(copied: Path) -> None:
    from xxhash import xxh3_64_hexdigest

    from seglog.values import canonical

    newest = max(copied.glob("meta/snapshot.*.json"))
    value = canonical.decode(newest.read_bytes().split(b"\n")[0])
    body = canonical.encode({**value, "format": 6})
    newest.write_bytes(body + b"\n" + xxh3_64_hexdigest(body).encode() + b"\n")
    with pytest.raises(FormatUnsupported):
        seglog.verify(copied)


def test_what_cannot_be_read_is_a_damage(copied: Path) -> None:
    data = min(copied.glob("topics/*/seg-*.data"))

    class BadSector(UnsyncedFiles):
        bad = -1

        def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
            fd = super().open(path, flags, mode)
            self.bad = fd if path == data else self.bad
            return fd

        def close(self, fd: int) -> None:
            self.bad = -1 if fd == self.bad else self.bad
            super().close(fd)

        def pread(self, fd: int, length: int, offset: int) -> bytes:
            if fd == self.bad:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().pread(fd, length, offset)

    [damage] = seglog.verify(copied, files=BadSector()).damages
    assert damage.path == data
    assert "cannot be read" in damage.reason


# ---------------------------------------------------------------- after a crash


def test_a_torn_tail_is_a_note_and_nothing_says_that_it_was_cut(copied: Path, caplog: pytest.LogCaptureFixture) -> None:
    wal = only(copied, "wal/wal-*.log")
    body = wal.read_bytes()
    end = len(body.rstrip(b"\0"))
    wal.write_bytes(body[:end] + b"torn" + body[end + 4 :])
    report = verified(copied)
    assert report.is_sound
    assert report.notes == (f"{wal}: a torn write begins at offset {end}; recovery cuts it: type 0 is unknown",)
    assert caplog.text == ""


@pytest.mark.long
@every(31, part=2)
def test_what_recovery_puts_in_order_is_no_damage(tmp_path: Path, every: int) -> None:
    """After a crash or a power cut at any operation, verify reports a sound log, and recovery opens it."""
    counter = Effects(UnsyncedFiles())
    live(tmp_path / "whole", counter, Journal())
    noted = 0
    for at in range(1, counter.effects + 1, every):
        base, left = tmp_path / str(at), tmp_path / f"{at}-left"
        base.mkdir()
        disk = PowerCutFiles(UnsyncedFiles(), base)
        with pytest.raises(SimulatedCrash):
            live(base / "log", CrashingFiles(disk, at), Journal())
        disk.after_power_cut(left, at)
        for directory in (base / "log", left / "log"):
            try:
                report = verified(directory)
            except NotADataDirectory:
                assert at < 40  # the crash was within the creation of the log
                continue
            assert report.is_sound, (at, report.damages)
            noted += bool(report.notes)
            seglog.open(directory, files=UnsyncedFiles(), settings=SETTINGS).close()
            assert verified(directory).is_sound
        shutil.rmtree(base)
        shutil.rmtree(left)
    assert noted > 5


@pytest.mark.parametrize("is_sealed", [True, False])
def test_flags_that_an_undo_removed_are_no_damage(tmp_path: Path, is_sealed: bool) -> None:
    """Until its end, the manifest still counts the records as deleted."""
    directory, copies, small = tmp_path / "log", tmp_path / "copies", LogSettings(wal_file_bytes=4096)

    class Copying(Effects):
        def effect(self, name: str) -> None:
            if copies.exists():
                shutil.copytree(directory, copies / f"{self.effects}")

    with seglog.open(directory, files=Copying(UnsyncedFiles()), settings=small, upkeep=InCaller) as log:
        topic = log.topic("t")
        topic.append([b"x"] * 30)
        if is_sealed:
            topic.seal()
        topic.delete(seqs=[3, 4])
        log.checkpoint()
        copies.mkdir()
        assert len(topic.undo().back) == 2
        reports = [verified(copy) for copy in copies.iterdir()]
    assert len(reports) > 3
    assert [report.damages for report in reports if not report.is_sound] == []


# ---------------------------------------------------------------- the port that changes nothing


def test_a_read_only_port_remembers_what_would_have_changed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    (tmp_path / "b").write_bytes(b"b")
    files = ReadOnlyFiles(OsFiles())
    fd = files.open(tmp_path / "a", os.O_RDWR)
    files.truncate(fd, 4)
    files.datasync(fd)
    files.sync_dir(tmp_path)
    assert (files.size(fd), files.pread(fd, 10, 0), files.pread(fd, 10, 8)) == (4, b"0123", b"")
    files.unlink(tmp_path / "b")
    assert files.list_dir(tmp_path) == ["a"]
    with pytest.raises(FileNotFoundError):
        files.open(tmp_path / "b", os.O_RDONLY)
    for call in (
        lambda: files.open(tmp_path / "c", os.O_RDWR | os.O_CREAT),
        lambda: files.pwrite(fd, b"x", 0),
        lambda: files.pwritev(fd, [b"x"], 0),
        lambda: files.allocate(fd, 100),
        lambda: files.make_dir(tmp_path / "c"),
    ):
        with pytest.raises(OSError, match="Read-only"):
            call()
    files.close(fd)
    files.rename(tmp_path / "a", tmp_path / "b")
    assert files.list_dir(tmp_path) == ["b"]
    fd = files.open(tmp_path / "b", os.O_RDONLY)
    assert files.pread(fd, 10, 0) == b"0123"
    files.close(fd)
    with pytest.raises(FileNotFoundError):
        files.open(tmp_path / "a", os.O_RDONLY)
    files.unlink(tmp_path / "b")
    assert files.list_dir(tmp_path) == []
    assert tree(tmp_path) == {"a": b"0123456789", "b": b"b"}


def test_a_read_only_port_remembers_a_renamed_directory(tmp_path: Path) -> None:
    (tmp_path / "topic").mkdir()
    (tmp_path / "topic" / "a").write_bytes(b"a")
    files = ReadOnlyFiles(OsFiles())
    source, target = tmp_path / "topic", tmp_path / "topic.deleted"
    files.rename(source, target)
    assert (files.list_dir(tmp_path), files.list_dir(target), files.is_dir(target)) == (["topic.deleted"], ["a"], True)
    fd = files.open(target / "a", os.O_RDONLY)
    assert files.pread(fd, 1, 0) == b"a"
    files.close(fd)
    files.unlink(target / "a")
    assert files.list_dir(target) == []
    files.remove_dir(target)
    assert files.list_dir(tmp_path) == []
    assert tree(tmp_path) == {"topic/a": b"a"}


def test_a_deletion_of_a_topic_that_was_cut_off_is_no_damage(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "log", files=UnsyncedFiles(), settings=SETTINGS) as log:
        log.topic("t").append([b"x"])
        log.topic("t").seal()
        log.delete_topic("t")
        kept = shutil.copytree(tmp_path / "log" / "topics", tmp_path / "topics")
    shutil.copytree(kept, tmp_path / "log" / "topics", dirs_exist_ok=True)
    number, manifest = meta.load(OsFiles(), Layout(tmp_path / "log"))
    meta.store(OsFiles(), Layout(tmp_path / "log"), number + 1, replace(manifest, deleted=(1,)))
    assert seglog.verify(tmp_path / "log").damages == ()
    assert (tmp_path / "log" / "topics" / "00000001").is_dir()


def test_damage_has_the_words_of_the_error_that_opening_gives(copied: Path) -> None:
    wal = only(copied, "wal/wal-*.log")
    body = bytearray(wal.read_bytes())
    body[body.index(b"in the WAL 1")] ^= 1
    wal.write_bytes(body)
    [damage] = verified(copied).damages
    with pytest.raises(FileCorrupt) as caught:
        seglog.open(copied, files=UnsyncedFiles(), settings=SETTINGS)
    assert (damage.path, damage.offset, damage.reason) == (wal, caught.value.offset, caught.value.reason)


# ---------------------------------------------------------------- relocated segments


RECORD_BYTES = 64  # minimum size of a record's frame in these segments
KEEPS_ONE = replace(TIERED, hot_retain_segments=1)


@pytest.fixture
def tiered(tmp_path: Path) -> Path:
    """A log with four warm segments of four records each, and one hot segment of two. seglog.toml names `cold_dir`."""
    (tmp_path / "cold").mkdir()
    with seglog.open(tmp_path / "log", files=UnsyncedFiles(), settings=KEEPS_ONE, upkeep=InCaller) as log:
        log.topic("t").append([b"record %d" % number for number in range(18)], tag="eu")
        log.topic("t").seal()
    (tmp_path / "log/seglog.toml").write_text('[log]\ncold_dir = "../cold"\n')
    return tmp_path / "log"


def cold_parts(tiered: Path) -> list[Path]:
    return sorted((tiered.parent / "cold/topics/00000001").iterdir())


def test_relocated_segments_are_checked_record_by_record(tiered: Path) -> None:
    report = verified(tiered)
    assert (report.damages, report.notes) == ((), ())
    checked = [(file.path.parent.parent.parent.name, file.items) for file in report.checked if file.kind == "segment"]
    assert checked == [("cold", 4)] * 4 + [("log", 2)]


def test_damage_in_the_cold_store_is_named_where_it_is(tiered: Path) -> None:
    for path in cold_parts(tiered):
        whole = path.read_bytes()
        for at in range(0, len(whole), 7):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 8]) + whole[at + 1 :])
            [damage] = verified(tiered).damages[:1]
            assert damage.path.name == path.name
            assert damage.offset <= at
            assert at < damage.offset + (RECORD_BYTES if path.suffix == ".data" else ENTRY.size)
        path.write_bytes(whole[:-3])
        assert {damage.path.resolve() for damage in verified(tiered).damages} == {path}
        path.write_bytes(whole)
    assert verified(tiered).is_sound


def test_missing_relocated_segments_are_damage(tiered: Path) -> None:
    first, second, *_ = cold_parts(tiered)
    first.unlink()
    second.unlink()
    assert {(damage.path.name, damage.reason) for damage in verified(tiered).damages} == {
        (second.name, "the segment is missing in the warm store")
    }
    (tiered.parent / "cold").rename(tiered.parent / "elsewhere")
    damages = verified(tiered).damages
    assert len(damages) == 4
    assert all("it cannot be read" in damage.reason for damage in damages)


def test_an_older_idx_in_the_cold_store_is_damage(tiered: Path) -> None:
    idx = cold_parts(tiered)[1]
    assert idx.suffix == ".idx"
    raw = bytearray(idx.read_bytes())
    mark_deleted(raw, 0, 1)
    idx.write_bytes(raw)
    [damage] = verified(tiered).damages
    assert damage.path.resolve() == idx


def test_what_the_log_knows_nothing_of_in_the_cold_store_is_noted(tiered: Path) -> None:
    for path in cold_parts(tiered)[:2]:
        shutil.copy(path, path.with_stem(f"seg-{99:016d}"))
    report = verified(tiered)
    assert report.is_sound
    assert ["begins with seq 99" in note for note in report.notes] == [True]


def test_a_cold_store_that_is_not_named_is_noted(tiered: Path) -> None:
    (tiered / "seglog.toml").unlink()
    report = verified(tiered)
    assert report.is_sound
    assert any("4 segments of topic t are in a warm store that is not named" in note for note in report.notes)


def test_what_a_crash_left_of_a_hot_copy_is_a_note(tiered: Path) -> None:
    data, idx = cold_parts(tiered)[:2]
    shutil.copy(data, tiered / "topics/00000001")
    shutil.copy(idx, tiered / "topics/00000001")
    report = verified(tiered)
    assert report.is_sound
    assert [note for note in report.notes if data.name in note]
    with seglog.open(tiered, settings=TIERED, upkeep=InCaller) as log:
        assert len(list(log.topic("t").read())) == 18
    assert not (tiered / "topics/00000001" / data.name).exists()
