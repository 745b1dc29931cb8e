"""Recovery cuts torn writes. It reports damage and leaves the file unchanged."""

from __future__ import annotations

import errno
import os
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import seglog
from seglog import FileCorrupt, LogSettings, WriterPoisoned
from seglog.engine.work_thread import InCaller
from seglog.files.file_system import OsFiles
from seglog.format.frame import FrameType, encode
from tests.faults.disk import Image, Moment, SimulatedDisk
from tests.faults.files import CrashingFiles, PowerCutFiles, SimulatedCrash, UnsyncedFiles
from tests.faults.stride import every
from tests.seams.log import engine_of
from tests.seglog.frames import append_frames

SETTINGS = LogSettings(wal_file_bytes=4096)
VALUES = [b"value-%d" % number for number in range(6)]
NAME = "wal-0000000000000001.log"


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """The data directory of a killed process, with six acked records, each in its own group."""
    log = seglog.open(tmp_path / "live", settings=SETTINGS, files=UnsyncedFiles())
    for value in VALUES:
        log.topic("t").append([value])
    shutil.copytree(tmp_path / "live", tmp_path / "crashed")
    log.close()
    return tmp_path / "crashed"


def _values(directory: Path) -> list[bytes]:
    with seglog.open(directory, settings=SETTINGS, files=UnsyncedFiles()) as log:
        return [record.value for record in log.topic("t").read()] if log.has_topic("t") else []


def _fresh(crashed: Path, tmp_path: Path, wal: bytes) -> Path:
    directory = tmp_path / "fresh"
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(crashed, directory)
    (directory / "wal" / NAME).write_bytes(wal)
    return directory


@every(13, part=8)
def test_any_flipped_byte_of_the_wal_is_reported_or_harmless(crashed: Path, tmp_path: Path, every: int) -> None:
    whole = (crashed / "wal" / NAME).read_bytes()
    used = len(whole.rstrip(b"\0"))
    starts = [0]
    while starts[-1] < used:
        starts.append(starts[-1] + 4 + int.from_bytes(whole[starts[-1] : starts[-1] + 4], "little"))
    last_mark = starts[-2]
    for position in range(0, used + 100, every):
        damaged = bytearray(whole)
        damaged[position] ^= 0x55
        directory = _fresh(crashed, tmp_path, damaged)
        if position >= last_mark:  # the mark itself, or the space after it: no record
            assert _values(directory) == VALUES
            continue
        with pytest.raises(FileCorrupt) as caught:
            _values(directory)
        assert caught.value.path == directory / "wal" / NAME
        assert caught.value.offset == max(start for start in starts if start <= position)
        assert (directory / "wal" / NAME).read_bytes() == damaged


@every(41, part=8)
def test_a_torn_write_anywhere_keeps_whole_records_only(crashed: Path, tmp_path: Path, every: int) -> None:
    """Tear the WAL at many lengths, including each end of a record.

    The file keeps its length: the writer reserves the space durably before it writes a frame.
    """
    file = (crashed / "wal" / NAME).read_bytes()
    whole = file.rstrip(b"\0")
    ends = [whole.index(value) + len(value) + 8 for value in VALUES]
    near = {end + by for end in ends for by in (-1, 0, 1)}
    for length in sorted({*range(0, len(whole), every), *near} & {*range(len(whole))}):
        for fill in (b"", b"\xa5" * 30):
            wal = (whole[:length] + fill).ljust(len(file), b"\0")
            expected = VALUES[: sum(wal[:end] == file[:end] for end in ends)]
            assert _values(_fresh(crashed, tmp_path, wal)) == expected


def test_a_file_that_was_cut_is_reported_unless_the_cut_is_right_behind_a_frame(crashed: Path, tmp_path: Path) -> None:
    whole = (crashed / "wal" / NAME).read_bytes().rstrip(b"\0")
    starts = [0]
    while starts[-1] < len(whole):
        starts.append(starts[-1] + 4 + int.from_bytes(whole[starts[-1] : starts[-1] + 4], "little"))
    for length in sorted({*range(0, len(whole), 5)} - {*starts}):
        directory = _fresh(crashed, tmp_path, whole[:length])
        with pytest.raises(FileCorrupt, match="the file was cut") as caught:
            _values(directory)
        assert caught.value.path == directory / "wal" / NAME
        assert caught.value.offset == max(start for start in starts if start <= length)
        assert (directory / "wal" / NAME).read_bytes() == whole[:length]


def test_a_file_that_was_cut_below_the_snapshot_is_reported(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data", settings=SETTINGS) as log:
        log.topic("t").append(VALUES)
    wal = tmp_path / "data" / "wal" / NAME
    whole = wal.read_bytes()
    for length in (0, 1, len(whole) - 1):
        wal.write_bytes(whole[:length])
        with pytest.raises(FileCorrupt, match=f"the file was cut: .* had {len(whole)} bytes") as caught:
            _values(tmp_path / "data")
        assert (caught.value.path, caught.value.offset) == (wal, length)
        assert [damage.path for damage in seglog.verify(tmp_path / "data").damages] == [wal]


def test_a_frame_that_goes_past_the_end_of_the_file_is_left_by_no_power_cut() -> None:
    """Check WAL-8: the size of the file is durable before the writer writes a frame to it.

    The first append of each of two lives writes an unsynced record.
    """
    moments, disk = _moments()
    for _ in range(2):
        log = seglog.open("/log", settings=SETTINGS, files=disk)
        begin = len(moments)
        log.topic("t").append([b"x" * 1500], durability="memory")
        unsynced = moments[begin:]
        log.close()
        lengths = set()
        for moment in unsynced:
            for image in moment.images(random.Random(1), 40):
                lengths.add(len(image.tree[f"/log/wal/{NAME}"] or b""))
                _values_on(SimulatedDisk(image))
        assert max(lengths) == SETTINGS.wal_file_bytes


def test_an_unsynced_group_may_have_holes(crashed: Path, tmp_path: Path) -> None:
    """Pages of one write reach the disk in any order. Whole frames after a hole were never acked."""
    whole = (crashed / "wal" / NAME).read_bytes().rstrip(b"\0")
    group = append_frames(1, 7, 1, [b"new"] * 3, tag=None, node=None, unterminated=False, durable=True)
    directory = _fresh(crashed, tmp_path, whole + bytes(len(group[0])) + group[1] + group[2])
    assert _values(directory) == VALUES


def test_a_torn_record_that_holds_a_copy_of_a_wal_is_torn_all_the_same(crashed: Path, tmp_path: Path) -> None:
    whole = (crashed / "wal" / NAME).read_bytes().rstrip(b"\0")
    [frame] = append_frames(1, 7, 1, [whole * 2], tag=None, node=None, unterminated=False, durable=True)
    assert _values(_fresh(crashed, tmp_path, whole + frame[:-10] + bytes(10))) == VALUES


def test_a_sound_frame_in_a_wrong_place_is_reported(crashed: Path, tmp_path: Path) -> None:
    whole = (crashed / "wal" / NAME).read_bytes().rstrip(b"\0")
    [skips] = append_frames(1, 9, 1, [b"x"], tag=None, node=None, unterminated=False, durable=True)
    [again] = append_frames(1, 6, 1, [b"x"], tag=None, node=None, unterminated=False, durable=True)
    [nobody] = append_frames(5, 1, 1, [b"x"], tag=None, node=None, unterminated=False, durable=True)
    lease = encode(FrameType.LEASE, topic_id=1, seq=1, ts_ms=1)
    for frame in (skips, again, nobody):
        with pytest.raises(FileCorrupt) as caught:
            _values(_fresh(crashed, tmp_path, whole + frame))
        assert caught.value.offset == len(whole)
    with pytest.raises(seglog.FormatUnsupported, match="LEASE"):
        _values(_fresh(crashed, tmp_path, whole + lease))


def test_a_file_above_the_active_one_that_holds_data_is_reported(crashed: Path) -> None:
    """An empty file above the active one was prepared for a rotation. Recovery deletes it."""
    above = crashed / "wal" / NAME.replace("01", "99")
    above.write_bytes((crashed / "wal" / NAME).read_bytes())
    with pytest.raises(FileCorrupt, match="it holds data") as caught:
        _values(crashed)
    assert caught.value.path == above
    above.write_bytes(bytes(4096))
    assert _values(crashed) == VALUES
    assert not above.exists()


def test_damage_in_a_wal_file_that_is_not_active_is_never_cut(tmp_path: Path) -> None:
    files = CrashingFiles(UnsyncedFiles(), 0)
    log = seglog.open(tmp_path / "data", settings=SETTINGS, files=files)
    values = [b"%d" % number * 20 for number in range(70)]
    assert engine_of(log).takes_checkpoint_lock()  # acts as a checkpoint that never ends, so WAL files stay
    for value in values:
        log.topic("t").append([value])
    shutil.copytree(tmp_path / "data", tmp_path / "crashed")
    engine_of(log).leave_checkpoint()
    log.close()
    first, *_, last = sorted((tmp_path / "crashed" / "wal").glob("*.log"))
    assert first != last
    for body in (first.read_bytes()[:-1], first.read_bytes()[:-46] + bytes(46), first.read_bytes() + b"\0"):
        directory = tmp_path / "damaged"
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(tmp_path / "crashed", directory)
        (directory / "wal" / first.name).write_bytes(body)
        with pytest.raises(FileCorrupt) as caught:
            _values(directory)
        assert caught.value.path == directory / "wal" / first.name
    shutil.rmtree(directory)
    shutil.copytree(tmp_path / "crashed", directory)
    (directory / "wal" / sorted((directory / "wal").glob("*.log"))[1].name).unlink()
    with pytest.raises(FileCorrupt, match=r"missing|no WAL file"):
        _values(directory)
    assert _values(tmp_path / "crashed") == values


def test_what_was_cut_does_not_come_back_when_the_power_fails_after_that(crashed: Path, tmp_path: Path) -> None:
    whole = (crashed / "wal" / NAME).read_bytes().rstrip(b"\0")
    torn = append_frames(1, 7, 1, [b"torn"] * 2, tag=None, node=None, unterminated=False, durable=True)
    for seed in range(20):
        directory = _fresh(crashed, tmp_path, whole + bytes(len(torn[0])) + torn[1])
        disk = PowerCutFiles(OsFiles(), tmp_path / "fresh")
        files = CrashingFiles(disk, 0)
        log = seglog.open(directory, settings=SETTINGS, files=files)
        log.topic("t").append([b"kept"], durability="disk")
        files.at = files.effects + 1
        with pytest.raises(SimulatedCrash):
            log.close()
        shutil.rmtree(tmp_path / "cut", ignore_errors=True)
        disk.after_power_cut(tmp_path / "cut", seed)
        assert _values(tmp_path / "cut") in (VALUES, [*VALUES, b"kept"])


def test_the_cut_of_a_torn_write_is_durable_when_the_log_is_open() -> None:
    """The opening truncates the file durably, even if no append follows."""
    disk = SimulatedDisk()
    log = seglog.open("/log", settings=SETTINGS, files=disk)
    log.topic("t").append(VALUES)
    end = log.wal_bytes
    fd = disk.open(Path("/log/wal") / NAME, os.O_RDWR)
    disk.pwrite(fd, b"torn", end)
    disk.datasync(fd)
    disk = SimulatedDisk(disk.after_power_cut())
    seglog.open("/log", settings=SETTINGS, files=disk)
    assert len(disk.after_power_cut().tree[f"/log/wal/{NAME}"] or b"") == end


def test_a_power_cut_in_a_rotation_loses_nothing_that_was_acked() -> None:
    """Each WAL file holds one record. The first record is not synced before the second is acked."""
    acked = 0
    notes: list[tuple[Moment, int]] = []
    disk = SimulatedDisk(note=lambda disk: notes.append((disk.moment(), acked)))
    log = seglog.open("/log", settings=SETTINGS, files=disk, upkeep=Idle)
    log.create_topic("t")
    begin = len(notes)
    for number, durability in enumerate(("memory", "fsync", "fsync"), start=1):
        log.topic("t").append([b"%d" % number * 3000], durability=durability)
        acked = number if durability == "fsync" else acked
    assert engine_of(log).wals.older_files == 2
    images = {}
    for moment, least in notes[begin:]:
        pending = moment.pending
        for lost in range(len(pending) + 1):
            image = moment.image((*pending[:lost], *pending[lost + 1 :]))
            images[image.digest] = image, least
    for image, least in images.values():
        found = _values_on(SimulatedDisk(image))
        assert len(found) >= least
        assert found == [b"%d" % number * 3000 for number in range(1, len(found) + 1)]


def test_a_topic_directory_that_the_snapshot_forgot_is_no_orphan(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data") as log:
        log.topic("t").append([b"x"])
    (tmp_path / "data" / "topics" / "00000001").rename(tmp_path / "data" / "topics" / "00000000")
    with pytest.raises(FileCorrupt, match="knows no such topic"):
        seglog.open(tmp_path / "data")
    assert list((tmp_path / "data" / "topics").glob("*/*.data"))


class _Meddling(OsFiles):
    """A file port that calls `meanwhile` once, after the next datasync. While `dying` is set, it refuses manifests."""

    meanwhile: Callable[[], None] | None = None
    dying = False

    def datasync(self, fd: int) -> None:
        super().datasync(fd)
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()

    def rename(self, source: Path, target: Path) -> None:
        if self.dying and "snapshot" in target.name:
            raise OSError(errno.EIO, "the machine is dying")
        super().rename(source, target)


def test_a_topic_on_its_way_while_another_is_sealed_is_found_after_a_crash(tmp_path: Path) -> None:
    files = _Meddling()
    with seglog.open(tmp_path, files=files) as log:
        log.topic("old").append([b"1"])

        def seal_the_other() -> None:
            thread = threading.Thread(target=log.topic("old").seal)
            thread.start()
            thread.join()

        files.meanwhile = seal_the_other
        log.topic("new").append([b"precious"])
        files.dying = True
        with pytest.raises(WriterPoisoned):
            log.checkpoint()
    with seglog.open(tmp_path) as log:
        assert [record.value for record in log.topic("new").read()] == [b"precious"]


def test_a_delete_in_the_place_of_another_is_reported(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    log = seglog.open("/log", settings=SETTINGS, files=disk)
    log.topic("t").append(VALUES)
    log.topic("t").delete(before=2)
    log.topic("t").delete(before=5)
    image = disk.after_kill()
    wal = image.tree[f"/log/wal/{NAME}"]
    assert wal is not None
    at, other = wal.index(b'{"before":2') - 38, wal.index(b'{"before":5') - 38
    size = int.from_bytes(wal[at : at + 4], "little") + 4
    damaged = wal[:other] + wal[at : at + size] + wal[other + size :]
    with pytest.raises(FileCorrupt, match="delete 1 of topic t follows delete 1") as caught:
        seglog.open("/log", settings=SETTINGS, files=SimulatedDisk(Image({**image.tree, f"/log/wal/{NAME}": damaged})))
    assert caught.value.offset == other


class Idle(InCaller):
    def wake(self) -> None:
        pass


def test_a_file_is_missed_though_those_behind_it_know_nothing_of_its_topics() -> None:
    disk = SimulatedDisk()
    log = seglog.open("/log", settings=SETTINGS, files=disk, upkeep=Idle)
    wal = engine_of(log).wals.each[0]
    for name in ("a", "b", "c"):
        log.create_topic(name)
    while wal.end.file == 1:
        log.topic("a").append([b"x" * 500])
    second = wal.file(wal.end.file).path
    while wal.end.offset < 3000:
        log.topic("b").append([b"x" * 500])
    log.topic("c").append([b"x" * 2000])
    tree = dict(disk.after_kill().tree)
    del tree[str(second)]
    with pytest.raises(FileCorrupt, match="one is missing"):
        seglog.open("/log", settings=SETTINGS, files=SimulatedDisk(Image(tree)))


def _moments() -> tuple[list[Moment], SimulatedDisk]:
    moments: list[Moment] = []
    return moments, SimulatedDisk(note=lambda disk: moments.append(disk.moment()))


def _values_on(disk: SimulatedDisk) -> list[bytes]:
    with seglog.open("/log", settings=SETTINGS, files=disk) as log:
        return [record.value for record in log.topic("t").read()] if log.has_topic("t") else []


def test_nothing_is_built_on_names_that_a_killed_process_left_unsynced() -> None:
    """The next process sees CURRENT, a manifest and the directory itself before their names are durable."""
    moments, disk = _moments()
    with seglog.open("/log", settings=SETTINGS, files=disk) as log:
        for number in range(20):
            log.topic("t").append([b"%d" % number * 100])
        log.topic("t").seal()
        log.topic("t").delete(before=5)
    for moment in moments:
        disk = SimulatedDisk.resume(moment)
        log = seglog.open("/log", settings=SETTINGS, files=disk)
        seqs = log.topic("t").append([b"acked"])
        cut = SimulatedDisk(disk.after_power_cut())
        log.close()
        with seglog.open("/log", settings=SETTINGS, files=cut) as log:
            assert log.topic("t").head_seq == seqs[0]


def test_nothing_is_removed_for_a_snapshot_that_a_killed_process_left_unsynced() -> None:
    moments, disk = _moments()
    log = seglog.open("/log", settings=SETTINGS, files=disk)
    for number in range(20):
        log.topic("t").append([b"%d" % number * 100])
    begin = len(moments)
    log.checkpoint()
    chance = random.Random(1)
    for moment in moments[begin:]:
        disk = SimulatedDisk.resume(moment)
        found = seglog.open("/log", settings=SETTINGS, files=disk).topic("t").head_seq
        for image in disk.moment().images(chance, 4):
            with seglog.open("/log", settings=SETTINGS, files=SimulatedDisk(image)) as log:
                assert log.topic("t").head_seq == found == 20


def test_nothing_is_written_behind_a_rotation_that_a_killed_process_left_unsynced() -> None:
    moments, disk = _moments()
    settings = LogSettings(wal_file_bytes=4096, wal_shards=2)
    log = seglog.open("/log", settings=settings, files=disk, upkeep=InCaller)
    log.topic("t").append([b"x" * 3000])
    begin = len(moments)
    log.topic("t").append([b"y" * 3000])
    for moment in moments[begin:]:
        disk = SimulatedDisk.resume(moment)
        log = seglog.open("/log", settings=settings, files=disk, upkeep=InCaller)
        seqs = log.topic("t").append([b"acked"])
        with seglog.open("/log", settings=settings, files=SimulatedDisk(disk.after_power_cut())) as log:
            assert log.topic("t").head_seq == seqs[0]


def test_a_delete_is_durable_whoever_wrote_its_flags() -> None:
    moments, disk = _moments()
    with seglog.open("/log", settings=SETTINGS, files=disk) as log:
        log.topic("t").append(VALUES)
        log.topic("t").seal()
        log.topic("t").delete(before=4)
        begin = len(moments)
    for moment in moments[begin:]:
        disk = SimulatedDisk.resume(moment)
        log = seglog.open("/log", settings=SETTINGS, files=disk)
        cut = SimulatedDisk(disk.after_power_cut())
        log.close()
        assert _values_on(cut) == VALUES[3:]


def test_what_a_sealed_segment_lost_in_a_power_cut_does_not_come_back() -> None:
    moments, disk = _moments()
    log = seglog.open("/log", settings=SETTINGS, files=disk)
    log.topic("t").append(VALUES)
    log.checkpoint()
    log.topic("t").append([b"lost"], durability="disk")
    log.checkpoint()
    for moment in moments:
        disk = SimulatedDisk(moment.image(()))
        log = seglog.open("/log", settings=SETTINGS, files=disk)
        if log.has_topic("t"):
            found = [record.value for record in log.topic("t").read()]
            log.topic("t").seal()
            assert _values_on(SimulatedDisk(disk.after_power_cut())) == found


def test_what_a_killed_recovery_cut_off_a_segment_does_not_come_back_when_it_is_sealed() -> None:
    """A power cut leaves a record in the segment that no WAL has. A recovery cuts its bytes and is killed."""
    moments, disk = _moments()
    log = seglog.open("/log", settings=SETTINGS, files=disk, upkeep=InCaller)
    log.topic("t").append(VALUES)
    log.checkpoint()
    log.topic("t").append([b"lost"], durability="disk")
    unsynced = disk.moment().pending
    begin = len(moments)
    log.checkpoint()
    left = next(moment for moment in moments[begin:] if len(moment.pending) == len(unsynced) + 2)
    moments = []
    disk = SimulatedDisk(left.image(left.pending[len(unsynced) :]), lambda disk: moments.append(disk.moment()))
    seglog.open("/log", settings=SETTINGS, files=disk, upkeep=InCaller)
    for moment in moments:
        disk = SimulatedDisk.resume(moment)
        log = seglog.open("/log", settings=SETTINGS, files=disk, upkeep=InCaller)
        log.topic("t").seal()
        assert _values_on(SimulatedDisk(disk.after_power_cut())) == VALUES


def test_a_place_in_the_wal_is_used_again_only_when_what_was_there_is_gone() -> None:
    """An unsynced group has a hole, then a frame. Recovery cuts the frame. A later write may fill the hole."""
    disk = SimulatedDisk()
    log = seglog.open("/log", settings=SETTINGS, files=disk)
    log.topic("t").append([b"1"])
    end = log.wal_bytes
    log.topic("t").append([b"2", b"3"], durability="disk")
    moment = disk.moment()
    frame_bytes = (log.wal_bytes - end) // 2
    group = next(change for change in moment.pending if getattr(change, "offset", 0) == end)
    moments: list[Moment] = []
    torn = SimulatedDisk(
        moment.image(moment.pending[: moment.pending.index(group)]), lambda disk: moments.append(disk.moment())
    )
    fd = torn.open(Path("/log/wal") / NAME, os.O_RDWR)
    torn.pwrite(fd, group.data[frame_bytes:], end + frame_bytes)
    torn.datasync(fd)
    torn.close(fd)
    begin = len(moments)
    seglog.open("/log", settings=SETTINGS, files=torn)
    for moment in moments[begin:]:
        second = SimulatedDisk.resume(moment)
        log = seglog.open("/log", settings=SETTINGS, files=second)
        assert log.topic("t").append([b"x"], durability="disk") == range(2, 3)
        for image in {image.digest: image for image in second.moment().images(random.Random(1), 8)}.values():
            assert _values_on(SimulatedDisk(image)) in ([b"1"], [b"1", b"x"])
