"""A read-only log (a view) shows the state that recovery would find, and changes nothing."""

from __future__ import annotations

import errno
import inspect
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import seglog
from seglog import (
    FileCorrupt,
    Gap,
    Log,
    LogSettings,
    NotADataDirectory,
    OsFiles,
    ReadOnly,
    Topic,
    TopicConfig,
    TruncateOp,
    ViewOutdated,
)
from seglog.engine.work_thread import InCaller
from seglog.files.file_system import Files
from seglog.inner_topic import InnerTopic
from seglog.values.layout import Layout
from seglog.wal.wal import shard_of
from tests.faults.files import CrashingFiles, Effects, SimulatedCrash, UnsyncedFiles
from tests.faults.stride import every
from tests.seglog import topic_life, workload
from tests.trees import unchanged
from tests.worlds.clock import HandClock

SETTINGS = LogSettings(segment_max_events=4, wal_file_bytes=4096)
NOBODY = 65534


def _view(directory: Path, files: Files | None = None) -> Log:
    return seglog.open(directory, read_only=True, files=files, settings=SETTINGS, clock=HandClock(1_000))


def _filled(directory: Path) -> Path:
    """Create a log with two topics, in sealed segments, an active segment, and the WAL. A delete is pending."""
    with seglog.open(directory, settings=SETTINGS, files=UnsyncedFiles(), upkeep=InCaller) as log:
        for number in range(3):
            log.topic("a").append([b"a %d %d" % (number, i) for i in range(3)], tag="x" if number == 1 else None)
            log.topic("b").append([b"b %d" % number])
        log.checkpoint()
        log.topic("a").append([b"last"])
        log.topic("a").delete(tag="x")
        shutil.copytree(directory, directory.with_name("killed"))
    return directory.with_name("killed")


def _values(log: Log, name: str = "a") -> list[bytes]:
    return [record.value for record in log.topic(name).read()]


A = [b"a 0 0", b"a 0 1", b"a 0 2", b"a 2 0", b"a 2 1", b"a 2 2", b"last"]


def test_a_closed_log_and_a_killed_one_are_shown_and_not_changed(tmp_path: Path) -> None:
    for directory in (_filled(tmp_path / "closed"), tmp_path / "closed"):
        with unchanged(directory), _view(directory) as log:
            assert (_values(log), _values(log, "b"), log.topics()) == (A, [b"b 0", b"b 1", b"b 2"], ["a", "b"])
            assert log.is_read_only
            assert len(list(log.topic("a").inner.frames(1, 10))) == 10
            assert (log.topic("a").seq_at(0), log.topic("a").head_seq) == (1, 10)
    with _view(tmp_path / "closed") as one, _view(tmp_path / "closed") as other:
        assert _values(one) == _values(other)


def test_a_torn_tail_is_passed_over_and_left(tmp_path: Path) -> None:
    directory = _filled(tmp_path / "log")
    [wal] = directory.glob("wal/wal-*.log")
    used = len(wal.read_bytes().rstrip(b"\0"))
    with wal.open("r+b") as file:
        file.seek(used + 40)
        file.write(b"\xa5" * 100)
    with unchanged(directory), _view(directory) as log:
        assert _values(log) == A


def test_damage_is_told_and_left(tmp_path: Path) -> None:
    directory = _filled(tmp_path / "log")
    [wal] = directory.glob("wal/wal-*.log")
    body = bytearray(wal.read_bytes())
    body[body.index(b"last")] ^= 1
    wal.write_bytes(body)
    with unchanged(directory), pytest.raises(FileCorrupt) as caught:
        _view(directory)
    assert caught.value.path == wal


def test_damage_in_a_segment_is_told_by_the_reader_that_gets_there(tmp_path: Path) -> None:
    _filled(tmp_path / "log")
    data = Layout(tmp_path / "log").data(1, 1)
    body = bytearray(data.read_bytes())
    body[body.index(b"a 0 2")] ^= 1
    data.write_bytes(body)
    with unchanged(tmp_path / "log"), _view(tmp_path / "log") as log:
        records = log.topic("a").read()
        assert [next(records).value for _ in range(2)] == A[:2]
        with pytest.raises(FileCorrupt):
            next(records)


def test_nothing_is_made_where_no_log_is(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "none"):
        with unchanged(tmp_path), pytest.raises(NotADataDirectory):
            _view(directory)


@contextmanager
def _without_rights(directory: Path) -> Iterator[None]:
    """Make the directory read-only, give it to a user other than root, and act as that user."""
    is_root = os.geteuid() == 0
    places = [directory, *directory.rglob("*")]
    for path in places:
        if is_root:
            os.chown(path, NOBODY, NOBODY)
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        if is_root:
            os.setegid(NOBODY)
            os.seteuid(NOBODY)
        yield
    finally:
        if is_root:
            os.seteuid(0)
            os.setegid(0)
        for path in places:
            path.chmod(0o700)


def test_a_directory_that_may_only_be_read_is_read(tmp_path: Path) -> None:
    _filled(tmp_path / "log")
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        for name in ("log", "killed"):
            shutil.copytree(tmp_path / name, Path(place) / name)
            with _without_rights(Path(place) / name):
                with pytest.raises(seglog.DirectoryNotWritable):
                    seglog.open(Path(place) / name)
                with unchanged(Path(place) / name), _view(Path(place) / name) as log:
                    assert _values(log) == A


def test_a_directory_that_may_not_be_read_is_told_so(tmp_path: Path) -> None:
    class Closed(OsFiles):
        def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
            if path.suffix == ".json":
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return super().open(path, flags, mode)

    directory = _filled(tmp_path / "log")
    with unchanged(directory), pytest.raises(seglog.Unavailable, match="cannot read in"):
        _view(directory, Closed())


READS = {
    *(
        "elsewhere",
        "disk_reject_bytes",
        "hold_appends",
        "is_poisoned",
        "make_room",
        "known_appends",
        "bytes_hot",
        "bytes_relocated",
        "config",
        "delete_ops",
        "due_seq",
        "earliest_seq",
        "epoch",
        "evict_floor",
        "exists",
    ),
    *(
        "first_seq",
        "forgotten_producers",
        "follow",
        "follower",
        "frame_batches",
        "frames",
        "head_seq",
        "position",
        "known_producer",
        "bounds",
        "form",
        "inner",
        "hot_floor",
        "known_keys",
        "last_ts_ms",
        "lasting_version",
        "name",
        "read",
        "read_arrays",
        "read_arrow",
        "read_batches",
    ),
    *(
        "changed_since",
        "ephemeral_seqs",
        "has_bytes",
        "known_incarnation",
        "knows_since",
        "logged_seq",
        "record_count_hot",
        "sealed_files",
        "sealed_seq",
        "sealed_version",
        "segments",
        "seq_at",
    ),
    *("topic_id", "truncate_ops"),
    *(
        "attach_cold",
        "check_writable",
        "close",
        "detach_cold",
        "get_topic",
        "has_topic",
        "is_read_only",
        "path",
        "settings",
        "topic",
    ),
    *("topic_defaults", "topics", "versions", "wal_bytes"),
}
CHANGES: dict[str, Callable[[Log], object]] = {
    "append": lambda log: log.topic("a").append([]),
    "append_once": lambda log: log.topic("a").append_once([]),
    "append_stream": lambda log: log.topic("a").append_stream([]),
    "append_upkeep": lambda log: log.append_upkeep("a", b"x"),
    "checkpoint": lambda log: log.checkpoint(),
    "configure": lambda log: log.configure("a", TopicConfig()),
    "reconfigure": lambda log: log.reconfigure("a", lambda config: config),
    "create_topic": lambda log: log.create_topic("new"),
    "delete": lambda log: log.topic("a").delete(before=2),
    "undo": lambda log: log.topic("a").undo(),
    "evict": lambda log: log.topic("a").evict(2),
    "incarnation": lambda log: log.topic("a").incarnation(),
    "delete_topic": lambda log: log.delete_topic("a"),
    "enforce_retention": lambda log: log.topic("a").enforce_retention(),
    "reclaim": lambda log: log.reclaim(),
    "upgrade": lambda log: log.upgrade(),
    "remove": lambda log: log.remove(),
    "release": lambda log: log.topic("a").inner.release(4),
    "seal": lambda log: log.topic("a").seal(),
    "sync": lambda log: log.topic("a").inner.sync(),
    "settle_deletes": lambda log: log.topic("a").inner.settle_deletes(1),
    "mark_elsewhere": lambda log: log.mark_elsewhere("a", None),
    "settle_truncation": lambda log: log.topic("a").inner.settle_truncation(TruncateOp(1, 0, 1)),
    "truncate": lambda log: log.topic("a").truncate(1),
    "undelete": lambda log: log.topic("a").inner.undelete(seglog.SeqSet.of([(1, 1)])),
}


def test_what_changes_something_is_refused(tmp_path: Path) -> None:
    directory = _filled(tmp_path / "log")
    with unchanged(directory), _view(directory) as log:
        for change in CHANGES.values():
            with pytest.raises(ReadOnly):
                change(log)
        for name in ("new", "a"):
            with pytest.raises(ReadOnly):
                log.topic(name).append([b"x"])
        with pytest.raises(ReadOnly):
            log.enforce_retention()
        with pytest.raises(ReadOnly):
            log.topic("a").follow()
        assert _values(log) == A


def test_every_method_is_known_to_read_or_to_change() -> None:
    public = {
        name for face in (Log, Topic, InnerTopic) for name, _ in inspect.getmembers(face) if not name.startswith("_")
    }
    assert public - READS == set(CHANGES)


@every(193, part=2)
def test_at_every_crash_it_shows_what_recovery_finds(tmp_path: Path, every: int) -> None:
    """Crash also within checkpoints, rotations, releases and deletes."""
    counter = Effects(UnsyncedFiles())
    workload.live(tmp_path / "whole", counter, workload.Journal())
    for at in range(1, counter.effects + 1, every):
        directory, journal = tmp_path / str(at), workload.Journal()
        with pytest.raises(SimulatedCrash):
            workload.live(directory, CrashingFiles(UnsyncedFiles(), at, tear=True), journal)
        if not (directory / "wal" / "CURRENT").exists():
            continue
        with unchanged(directory), _view(directory) as log:
            shown = _shown(log, journal.archive)
        with seglog.open(directory, settings=workload.SETTINGS, files=UnsyncedFiles(), clock=HandClock(1_000)) as log:
            assert _shown(log, journal.archive) == shown
        shutil.rmtree(directory)


@every(193, part=2)
def test_at_every_crash_of_a_topics_life_it_shows_what_recovery_finds(tmp_path: Path, every: int) -> None:
    """Crash also within truncations, evictions and deletions of topics."""
    counter = Effects(UnsyncedFiles())
    topic_life.live(tmp_path / "whole", counter, [])
    for at in range(1, counter.effects + 1, every):
        directory = tmp_path / str(at)
        with pytest.raises(SimulatedCrash):
            topic_life.live(directory, CrashingFiles(UnsyncedFiles(), at, tear=True), [])
        if not (directory / "wal" / "CURRENT").exists():
            continue
        with unchanged(directory), _view(directory) as log:
            shown = topic_life.shown(log)
        with unchanged(directory):
            assert seglog.verify(directory, files=UnsyncedFiles()).damages == ()
        with seglog.open(directory, settings=topic_life.SETTINGS, files=UnsyncedFiles(), clock=HandClock(1_000)) as log:
            assert topic_life.shown(log) == shown
        shutil.rmtree(directory)


def _shown(log: Log, archive: workload.Archive) -> dict[str, object]:
    log.attach_cold(archive)
    found = {
        name: (
            log.topic(name).head_seq,
            log.topic(name).earliest_seq,
            log.topic(name).epoch,
            list(log.topic(name).read(gaps=True)),
        )
        for name in log.topics()
    }
    log.detach_cold()
    return found


class Interrupting(OsFiles):
    """A file port that calls `act` before its call number `at`."""

    def __init__(self, at: int, act: Callable[[], object]) -> None:
        self.at = at
        self.act = act
        self.calls = 0

    def _call(self) -> None:
        self.calls += 1
        if self.calls == self.at:
            self.act()

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        self._call()
        return super().open(path, flags, mode)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        self._call()
        return super().pread(fd, length, offset)

    def size(self, fd: int) -> int:
        self._call()
        return super().size(fd)

    def list_dir(self, path: Path) -> list[str]:
        self._call()
        return super().list_dir(path)


def _busy(log: Log) -> None:
    """Make the writer run two rotations and two checkpoints."""
    for _ in range(2):
        log.topic("b").append([b"more" * 1000])
        log.topic("a").append([b"more"])
        log.checkpoint()


def _cut(log: Log) -> None:
    log.topic("a").truncate(3)
    log.topic("a").append([b"other 3", b"other 4", b"oth5", b"oth6", b"oth7"])
    log.checkpoint()


def _evict(log: Log) -> None:
    log.configure("a", TopicConfig(cap_records=2))
    log.topic("a").seal()
    log.topic("a").enforce_retention()


def _anew(log: Log) -> None:
    log.delete_topic("a")
    log.topic("a").append([b"anew"])
    log.checkpoint()


@every(3, part=2)
@pytest.mark.parametrize("act", [_busy, _cut, _evict, _anew])
def test_a_writer_may_do_anything_at_any_moment(tmp_path: Path, act: Callable[[Log], None], every: int) -> None:
    _filled(tmp_path / "log")
    outdated = 0
    for at in range(1, 1000, every):
        directory = tmp_path / str(at)
        shutil.copytree(tmp_path / "killed", directory)
        with seglog.open(directory, settings=SETTINGS, files=UnsyncedFiles(), upkeep=InCaller) as writer:
            writer.topic("a").append([b"acked"])
            possible = [_items(writer)]
            files = Interrupting(at, lambda: act(writer))
            with _view(directory, files) as log:
                try:
                    shown = _items(log)
                except ViewOutdated:
                    outdated += 1
                    shown = []
            if files.calls < at:
                break
            possible += [_items(writer), []]
            with _view(directory) as log:
                assert _items(log) == possible[1]
            assert shown in possible or _is_between(shown, *possible[:2])
        shutil.rmtree(directory)
    else:
        pytest.fail("looking does not come to an end")
    assert outdated or act is _busy


def test_a_topic_that_goes_from_shard_to_shard_is_no_damage(tmp_path: Path) -> None:
    """While the view reads a shard, the writer moves the topic into that shard, several times."""
    settings = replace(SETTINGS, wal_shards=2)
    looks = 0

    def move_to(shard: int) -> None:
        while not writer.topic("a").exists or shard_of(writer.topic("a").inner.topic_id, 2) != shard:
            if writer.topic("a").exists:
                writer.delete_topic("a")
            writer.topic("a").append([b"moved"])

    class Moving(OsFiles):
        def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
            nonlocal looks
            if path.name.startswith("wal-") and looks < 6:
                looks += 1
                move_to(int(path.parent.name[-2:]))
            return super().open(path, flags, mode)

    with (
        seglog.open(tmp_path, settings=settings, files=UnsyncedFiles(), upkeep=InCaller) as writer,
        seglog.open(tmp_path, settings=settings, files=Moving(), read_only=True) as log,
    ):
        assert _values(log) == [b"moved"]
    assert looks == 6


def test_a_look_in_the_middle_of_a_rewrite_stays_good(tmp_path: Path) -> None:
    views: list[Log] = []

    class Looking(UnsyncedFiles):
        def rename(self, source: Path, target: Path) -> None:
            if source.name.endswith(".data.new"):
                views.append(_view(tmp_path))
            super().rename(source, target)

    with seglog.open(tmp_path, settings=SETTINGS, files=Looking(), upkeep=InCaller) as writer:
        for number in range(8):
            writer.topic("a").append([b"%d" % number], tag="odd" if number % 2 else None)
        writer.topic("a").seal()
        writer.topic("a").delete(tag="odd")
        writer.reclaim()
    assert len(views) == 2
    for log in views:
        with log:
            assert _values(log) == [b"0", b"2", b"4", b"6"]


def test_a_look_stays_good_when_segments_are_written_anew_after_it(tmp_path: Path) -> None:
    with seglog.open(tmp_path, settings=SETTINGS, files=UnsyncedFiles(), upkeep=InCaller) as writer:
        for number in range(8):
            writer.topic("a").append([b"%d" % number], tag="odd" if number % 2 else None)
        writer.topic("a").seal()
        with _view(tmp_path) as before:
            writer.topic("a").delete(tag="odd")
            writer.checkpoint()
            with _view(tmp_path) as between:
                writer.reclaim()
                assert _values(before) == _values(between) == [b"0", b"2", b"4", b"6"]
                writer.topic("a").append([b"8"])
                writer.checkpoint()
                assert _values(before) == _values(between) == [b"0", b"2", b"4", b"6"]


def _items(log: Log) -> list[tuple[int, bytes] | Gap]:
    return [item if isinstance(item, Gap) else (item.seq, item.value) for item in log.topic("a").read(1, gaps=True)]


def _is_between(shown: list[object], before: list[object], after: list[object]) -> bool:
    """Return whether every item is from `before` or `after`, or is a gap.

    The writer's change has several steps, so the view may show only some of them.
    """
    return all(item in (*before, *after) or isinstance(item, Gap) for item in shown)


def test_beside_a_writer_in_another_thread_what_was_acked_is_there(tmp_path: Path) -> None:
    acked = [0]

    def write() -> None:
        for number in range(1, 601):
            log.topic("t").append([b"%d " % number * 20], durability="disk")
            acked[0] = number

    with seglog.open(tmp_path / "log", settings=LogSettings(wal_file_bytes=4096), files=UnsyncedFiles()) as log:
        log.create_topic("t")
        thread = threading.Thread(target=write)
        thread.start()
        looks = 0
        while thread.is_alive() or not looks:
            least = acked[0]
            with _view(tmp_path / "log") as view:
                values = _values(view, "t")
            assert len(values) >= least
            assert values == [b"%d " % number * 20 for number in range(1, len(values) + 1)]
            looks += 1
        thread.join()
