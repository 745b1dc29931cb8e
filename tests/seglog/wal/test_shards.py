from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import seglog
from seglog import DiskFull, FileCorrupt, LogSettings
from seglog.engine.work_thread import InCaller
from seglog.files.file_system import OsFiles
from seglog.startup.opening import reshard
from seglog.values.layout import Layout
from seglog.wal.manifest import load
from seglog.wal.wal import first_ordinal, shard_of
from tests.faults.files import UnsyncedFiles
from tests.seams.log import engine_of, group_of, queue_of, shards_of
from tests.waiting import wait_until

SETTINGS = LogSettings(segment_max_events=10, wal_file_bytes=4096)
TOPICS = [f"t{number}" for number in range(8)]


class _Idle(InCaller):
    def wake(self) -> None:
        pass


def _sharded(shards: int) -> LogSettings:
    return replace(SETTINGS, wal_shards=shards)


def _fill(log: seglog.Log, what: bytes) -> None:
    for name in TOPICS:
        log.topic(name).append([name.encode() + what] * 3)


def _values(log: seglog.Log) -> dict[str, list[bytes]]:
    return {name: [record.value for record in log.topic(name).read()] for name in log.topics()}


def test_the_shard_of_a_topic_is_pinned() -> None:
    assert [shard_of(topic_id, 4) for topic_id in range(1, 9)] == [2, 3, 1, 0, 0, 3, 3, 2]
    assert {shard_of(topic_id, 1) for topic_id in range(1, 50)} == {0}


def test_no_two_shards_have_a_file_number_in_common() -> None:
    assert first_ordinal(0, 1) == 1
    assert [first_ordinal(shard, 3) for shard in range(3)] == [10**14 + 1, 2 * 10**14 + 1, 3 * 10**14 + 1]
    assert len(f"{first_ordinal(63, 64) + 10**14:d}") <= 16


def test_an_append_waits_for_a_checkpoint_if_one_shard_has_too_many_files(tmp_path: Path) -> None:
    """No other thread runs a checkpoint. The other shard stays empty."""
    settings = replace(_sharded(2), wal_max_files=2)
    with seglog.open(tmp_path, settings=settings, files=UnsyncedFiles(), upkeep=_Idle) as log:
        for _ in range(10):
            log.topic("t0").append([b"x" * 3000])
            assert max(wal.older_files for wal in engine_of(log).wals.each) <= 2
        assert [wal.older_files for wal in engine_of(log).wals.each].count(0) == 1


def test_the_number_of_shards_may_be_another_at_every_opening(tmp_path: Path) -> None:
    expected = {name: list[bytes]() for name in TOPICS}
    for round_, shards in enumerate((1, 3, 2, 1, 4, 4, 1)):
        with seglog.open(tmp_path, settings=_sharded(shards)) as log:
            assert round_ == 0 or _values(log) == expected
            _fill(log, b" %d" % round_)
            for name in TOPICS:
                expected[name] += [name.encode() + b" %d" % round_] * 3
            assert len(engine_of(log).wals) == shards
        assert len(load(OsFiles(), Layout(tmp_path))[1].wal) == shards
        folders = {path.name for path in (tmp_path / "wal").iterdir() if path.is_dir()}
        assert folders == ({f"shard-{shard:02d}" for shard in range(shards)} if shards > 1 else set())
        assert (tmp_path / "wal" / "CURRENT").exists() == (shards == 1)
        assert seglog.verify(tmp_path).is_sound


def test_files_in_the_folder_of_a_new_shard_go_before_it_begins(tmp_path: Path) -> None:
    """The files are left from an earlier shard, or from a change of the number of shards that a crash cut off."""
    log = seglog.open(tmp_path / "data", settings=_sharded(2))
    _fill(log, b"old")
    _copy(tmp_path / "data", tmp_path / "copy")
    log.close()
    with seglog.open(tmp_path / "data", settings=_sharded(1)):
        layout = Layout(tmp_path / "data")
        for folder in layout.wal_folders(2):
            shutil.copytree(tmp_path / "copy" / folder.path.relative_to(tmp_path / "data"), folder.path)
            [active] = folder.path.glob("wal-*.log")
            active.rename(folder.path / active.name.replace("01.log", "99.log"))
        reshard(OsFiles(), layout, 2)
        for folder in layout.wal_folders(2):
            assert [path.name[-6:] for path in folder.path.glob("wal-*.log")] == ["01.log"]


def test_what_an_unclean_end_left_is_replayed_from_every_shard(tmp_path: Path) -> None:
    log = seglog.open(tmp_path / "data", settings=_sharded(3))
    _fill(log, b"")
    expected = _values(log)
    copy = tmp_path / "copy"
    _copy(tmp_path / "data", copy)
    log.close()
    for shards in (2, 3, 1):
        with seglog.open(copy, settings=_sharded(shards)) as again:
            assert _values(again) == expected


class GatedFiles(OsFiles):
    """A file port whose datasync waits for the gate."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Event()

    def datasync(self, fd: int) -> None:
        self.waiting.set()
        assert self.gate.wait(60)
        super().datasync(fd)


def test_a_name_is_free_for_another_shard_when_its_delete_is_durable(tmp_path: Path) -> None:
    files = GatedFiles()
    with seglog.open(tmp_path, settings=_sharded(3), files=files) as log:
        log.topic("again").append([b"first"])
        files.gate.clear()
        files.waiting.clear()
        deleting = threading.Thread(target=log.delete_topic, args=("again",))
        deleting.start()
        assert files.waiting.wait(60)
        appending = threading.Thread(target=log.topic("again").append, args=([b"second"],))
        appending.start()
        # The append waits in a flush: each shard has a barrier, and no shard has an entry of the new topic.
        shards = shards_of(log)
        wait_until(lambda: any(shard.in_flight[-1:] != group_of(shard)[-1:] for shard in shards))
        assert "again" not in engine_of(log).topics
        files.gate.set()
        deleting.join()
        appending.join()
        assert log.topic("again").epoch == 2
    with seglog.open(tmp_path, settings=_sharded(2)) as log:
        assert _values(log) == {"again": [b"second"]}


@pytest.mark.parametrize("where", ["CURRENT", "wal"])
def test_a_shard_that_lost_a_file_is_reported(tmp_path: Path, where: str) -> None:
    with seglog.open(tmp_path, settings=_sharded(2)) as log:
        _fill(log, b"")
    folder = tmp_path / "wal" / "shard-01"
    gone = folder / "CURRENT" if where == "CURRENT" else next(folder.glob("wal-*.log"))
    gone.unlink()
    with pytest.raises(FileCorrupt) as caught:
        seglog.open(tmp_path, settings=_sharded(2))
    assert caught.value.path.parent == folder
    assert not seglog.verify(tmp_path).is_sound


def test_the_file_of_another_shard_in_the_place_of_one_is_reported(tmp_path: Path) -> None:
    log = seglog.open(tmp_path / "data", settings=_sharded(2))
    _fill(log, b"")
    copy = tmp_path / "copy"
    _copy(tmp_path / "data", copy)
    log.close()
    one, two = (next((copy / "wal" / f"shard-0{shard}").glob("wal-*.log")) for shard in range(2))
    one_bytes, two_bytes = one.read_bytes(), two.read_bytes()
    one.write_bytes(two_bytes)
    with pytest.raises(FileCorrupt):
        seglog.open(copy, settings=_sharded(2))
    one.write_bytes(one_bytes)
    two.write_bytes(one_bytes)
    with pytest.raises(FileCorrupt):
        seglog.open(copy, settings=_sharded(2))
    two.write_bytes(two_bytes)
    seglog.open(copy, settings=_sharded(2)).close()


def test_the_file_of_another_shard_is_no_torn_write_wherever_the_snapshot_begins(tmp_path: Path) -> None:
    """The manifest's position lies within a frame of the other shard's file, so no frame starts there."""
    log = seglog.open(tmp_path / "data", settings=_sharded(2))
    for name in TOPICS:
        log.create_topic(name)
    for name in TOPICS:
        log.topic(name).append([b"x" * (7 + 50 * _shard(log, name))])
    log.checkpoint()
    _fill(log, b"")
    copy = tmp_path / "copy"
    _copy(tmp_path / "data", copy)
    log.close()
    one, two = (next((copy / "wal" / f"shard-0{shard}").glob("wal-*.log")) for shard in range(2))
    two.write_bytes(one.read_bytes())
    with pytest.raises(FileCorrupt, match="are those of another file") as caught:
        seglog.open(copy, settings=_sharded(2))
    assert caught.value.path == two


def test_a_failure_in_one_shard_ends_the_writer_of_all(tmp_path: Path) -> None:
    class Failing(OsFiles):
        fails = False

        def datasync(self, fd: int) -> None:
            if self.fails:
                raise OSError(5, "Input/output error")
            super().datasync(fd)

    files = Failing()
    with seglog.open(tmp_path, settings=_sharded(3), files=files) as log:
        _fill(log, b"")
        files.fails = True
        with pytest.raises(seglog.WriterPoisoned):
            log.topic("t0").append([b"x"])
        files.fails = False
        for name in TOPICS:
            with pytest.raises(seglog.WriterPoisoned):
                log.topic(name).append([b"x"])


def test_a_full_disk_in_one_shard_takes_no_seq_from_what_is_on_its_way_in_another(tmp_path: Path) -> None:
    class Full(OsFiles):
        is_full = False
        holds = False

        def __init__(self) -> None:
            self.gate, self.is_waiting = threading.Event(), threading.Event()

        def pwritev(self, fd: int, pieces: Sequence[bytes], offset: int) -> None:
            if self.is_full:
                raise OSError(errno.ENOSPC, "No space left on device")
            super().pwritev(fd, pieces, offset)

        def datasync(self, fd: int) -> None:
            if self.holds:
                self.holds = False
                self.is_waiting.set()
                assert self.gate.wait(60)
            super().datasync(fd)

    files = Full()
    with seglog.open(tmp_path, settings=_sharded(2), files=files) as log:
        _fill(log, b"")
        one, two = (next(name for name in TOPICS if _shard(log, name) == shard) for shard in range(2))
        files.holds = True
        seqs: list[range] = []
        first = threading.Thread(target=lambda: seqs.append(log.topic(one).append([b"first"])))
        first.start()
        assert files.is_waiting.wait(60)
        files.is_full = True
        with pytest.raises(DiskFull):
            log.topic(two).append([b"refused"])
        files.is_full = False
        second = threading.Thread(target=lambda: seqs.append(log.topic(one).append([b"second"])))
        second.start()
        wait_until(lambda: len(queue_of(log)) == 1)
        files.gate.set()
        first.join()
        second.join()
        assert sorted(seqs, key=min) == [range(4, 5), range(5, 6)]
        assert log.topic(two).append([b"later"]) == range(4, 5)
        found = _values(log)
    with seglog.open(tmp_path, settings=_sharded(2)) as log:
        assert _values(log) == found
        assert found[one][3:] == [b"first", b"second"]


def _shard(log: seglog.Log, name: str) -> int:
    return shard_of(log.topic(name).inner.topic_id, 2)


def _copy(source: Path, target: Path) -> None:
    target.mkdir()
    for path in sorted(source.rglob("*")):
        if path.name == "LOCK":
            continue
        if path.is_dir():
            (target / path.relative_to(source)).mkdir()
        else:
            (target / path.relative_to(source)).write_bytes(path.read_bytes())
