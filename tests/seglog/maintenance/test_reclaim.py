from __future__ import annotations

import errno
import logging
import os
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import seglog
from seglog import FileCorrupt, Log, LogClosed, LogSettings, Topic, TopicConfig, WriterPoisoned
from seglog.engine.work_thread import Background, InCaller, UpkeepFactory
from seglog.files.file_system import Files, OsFiles
from seglog.format.frame import DELETED, MIN_FRAME_BYTES, read_header
from seglog.format.index import ENTRY, encode_entry, read_entries
from seglog.segments.rewrite import rewrite_segment
from seglog.values.layout import Layout
from tests.faults.disk import Image, Moment, SimulatedDisk
from tests.faults.files import CrashingFiles, Effects, FailingCalls, SimulatedCrash, UnsyncedFiles
from tests.faults.stride import every
from tests.seams.log import engine_of, reclaim_at_once, reclaim_pause_of, use_files_for_segments
from tests.worlds.clock import HandClock

SETTINGS = LogSettings(segment_max_events=6, wal_file_bytes=64 * 1024)
BY_HAND = LogSettings(segment_max_events=6, reclaim_bytes_per_s=0, wal_file_bytes=64 * 1024)
DIRECTORY = Path("/log")


def _open(path: Path, files: Files | None = None, *, upkeep: UpkeepFactory = InCaller, by_hand: bool = True) -> Log:
    settings = BY_HAND if by_hand else SETTINGS
    return seglog.open(path, files=files, settings=settings, clock=HandClock(1_000), upkeep=upkeep)


def _fill(topic: Topic, count: int = 12) -> None:
    """Append `count` records and seal. Four of the six records of each segment have the tag `go`."""
    for number in range(1, count + 1):
        topic.append([b"%d " % number * 100], tag="go" if number % 3 else None, node="n")
    topic.seal()


def _live(topic: Topic) -> list[tuple[int, bytes, str | None]]:
    return [(record.seq, record.value, record.tag) for record in topic.read(1)]


def _sizes(log: Log) -> list[int]:
    return [path.stat().st_size for path in sorted(log.path.rglob("*.data"))]


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "topics").rglob("*") if path.is_file())


def test_deleted_records_bytes_come_back_and_nothing_else_changes(tmp_path: Path) -> None:
    with _open(tmp_path) as log:
        topic = log.topic("t")
        _fill(topic)
        topic.delete(tag="go")
        log.checkpoint()
        live, frames, before, names = _live(topic), list(topic.inner.frames(1, 12)), _sizes(log), _names(tmp_path)
        assert [seq for seq, *_ in live] == [3, 6, 9, 12]
        log.reclaim()
        assert _sizes(log) == [sum(len(frames[seq - 1]) for seq in seqs) for seqs in ((3, 6), (9, 12))]
        assert [segment.data_bytes for segment in topic.inner.segments()] == _sizes(log) < before
        assert _names(tmp_path) == names
        assert [path.stat().st_size for path in tmp_path.rglob("*.idx")] == [6 * ENTRY.size] * 2
        assert (_live(topic), list(topic.inner.frames(1, 12))) == (live, frames)
        assert topic.inner.bytes_hot == sum(_sizes(log))
        headers = [read_header(frame) for frame in topic.inner.frames(1, 12)]
        assert [header.seq for header in headers] == list(range(1, 13))
        assert [header.frame_bytes == MIN_FRAME_BYTES for header in headers] == [seq % 3 != 0 for seq in range(1, 13)]
        assert all(header.flags & DELETED for header in headers if header.seq % 3)
        assert topic.seq_at(topic.last_ts_ms + 1) == 13
    assert not seglog.verify(tmp_path).damages
    with _open(tmp_path) as log:
        assert _live(log.topic("t")) == live
        assert list(log.topic("t").inner.frames(2, 11)) == frames[1:11]
        log.topic("t").delete(before=7)
        log.topic("t").truncate(10)
        assert [seq for seq, *_ in _live(log.topic("t"))] == [9]
        log.topic("t").append([b"next"])
        assert [seq for seq, *_ in _live(log.topic("t"))] == [9, 10]
    assert not seglog.verify(tmp_path).damages


def test_a_segment_that_is_dead_in_the_middle_keeps_no_byte_of_data(tmp_path: Path) -> None:
    with _open(tmp_path) as log:
        topic = log.topic("t")
        for tag in (None, "go", None):
            topic.append([b"x" * 50] * 6, tag=tag)
        topic.seal()
        topic.delete(tag="go")
        log.checkpoint()
        before = _sizes(log)
        log.reclaim()
        assert _sizes(log) == [before[0], 0, before[2]]
        assert [seq for seq, *_ in _live(topic)] == [*range(1, 7), *range(13, 19)]
        assert len(list(topic.inner.frames(1, 18))) == 18
    assert not seglog.verify(tmp_path).damages
    with _open(tmp_path) as log:
        assert [seq for seq, *_ in _live(log.topic("t"))] == [*range(1, 7), *range(13, 19)]


def test_a_checkpoint_sets_it_going(tmp_path: Path) -> None:
    with _open(tmp_path, by_hand=False) as log:
        _fill(log.topic("t"))
        log.topic("t").delete(tag="go")
        before = _sizes(log)
        log.checkpoint()
        assert sum(_sizes(log)) < sum(before) / 2


def test_a_thread_of_its_own_does_it(tmp_path: Path) -> None:
    swapped = []

    class Watching(OsFiles):
        def rename(self, source: Path, target: Path) -> None:
            super().rename(source, target)
            if target.suffix == ".data":
                swapped.append(target)

    with _open(tmp_path, Watching(), upkeep=Background, by_hand=False) as log:
        _fill(log.topic("t"))
        log.topic("t").delete(tag="go")
        log.checkpoint()
        # The thread is about to rewrite the first segment. `reclaim` waits until the thread is done.
        log.reclaim()
        assert len(swapped) == 2
        assert [seq for seq, *_ in _live(log.topic("t"))] == [3, 6, 9, 12]


def test_what_is_left_alone(tmp_path: Path) -> None:
    with _open(tmp_path) as log:
        log.create_topic("kept", TopicConfig(keep_history=True))
        for name in ("kept", "few", "unsealed"):
            topic = log.topic(name)
            topic.append([b"x" * 50] * 5, tag="go" if name != "few" else None)
            topic.append([b"x" * 50], tag="go" if name == "few" else None)
            if name != "unsealed":
                topic.append([b"y"])
        log.topic("unsealed").truncate(5)
        log.checkpoint()
        for name in ("kept", "few", "unsealed"):
            log.topic(name).append([b"z"])
            log.topic(name).delete(tag="go")
        log.checkpoint()
        before = _sizes(log)
        log.reclaim()
        assert _sizes(log) == before


def test_the_pace_is_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    with _open(tmp_path, by_hand=False) as log:
        _fill(log.topic("t"))
        log.topic("t").delete(tag="go")
        before = sum(_sizes(log))
        monkeypatch.setattr(reclaim_pause_of(log), "wait", lambda seconds: pauses.append(seconds))
        log.checkpoint()
        moved = before + sum(_sizes(log))
    assert sum(pauses) * SETTINGS.reclaim_bytes_per_s == pytest.approx(moved)


def test_closing_does_not_wait_for_the_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with _open(tmp_path, by_hand=False) as log:
        _fill(log.topic("t"))
        log.topic("t").delete(tag="go")
        monkeypatch.setattr(reclaim_pause_of(log), "wait", lambda _: True)
        log.checkpoint()
        assert [name for name in _names(tmp_path) if name.endswith(".new")] == []
        assert [seq for seq, *_ in _live(log.topic("t"))] == [3, 6, 9, 12]


def test_closing_waits_for_who_copies_and_ends_it(tmp_path: Path) -> None:
    """After the close, the next owner may open the directory, so the copying thread must not write there."""
    copying, closed = threading.Event(), threading.Event()
    touched_after: list[str] = []

    class Slow(UnsyncedFiles):
        def pwrite(self, fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
            if threading.current_thread() is copier and not copying.is_set():
                copying.set()
                # A close that does not wait for this thread returns within this time.
                closed.wait(0.5)
            super().pwrite(fd, data, offset)

        def unlink(self, path: Path) -> None:
            if closed.is_set():
                touched_after.append(path.name)
            super().unlink(path)

    def copy() -> None:
        try:
            log.reclaim()
        except BaseException as error:
            raised.append(error)

    raised: list[BaseException] = []
    copier = threading.Thread(target=copy)
    log = _open(tmp_path, Slow())
    _fill(log.topic("t"))
    log.topic("t").delete(tag="go")
    log.checkpoint()
    copier.start()
    assert copying.wait(60)
    log.close()
    closed.set()
    copier.join()
    assert touched_after == []
    assert [type(error) for error in raised] == [LogClosed]
    assert not [name for name in _names(tmp_path) if name.endswith(".new")]


def test_a_delete_that_comes_meanwhile_is_not_lost(tmp_path: Path) -> None:
    class Meeting(OsFiles):
        then: Callable[[], object] | None = None

        def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
            then = self.then
            if path.name.endswith(".idx.new") and then is not None:
                self.then = None
                then()
            return super().open(path, flags, mode)

    files = Meeting()
    with _open(tmp_path, files) as log:
        topic = log.topic("t")
        _fill(topic, 6)
        topic.append([b"end"])
        topic.delete(tag="go")
        log.checkpoint()

        def meet() -> None:
            topic.delete(before=4)
            log.checkpoint()

        files.then = meet
        before = _sizes(log)[0]
        log.reclaim()
        assert _sizes(log)[0] == before
        assert [seq for seq, *_ in _live(topic)] == [6, 7]
        log.reclaim()
        assert _sizes(log)[0] < before
        assert [seq for seq, *_ in _live(topic)] == [6, 7]
    with _open(tmp_path) as log:
        assert [seq for seq, *_ in _live(log.topic("t"))] == [6, 7]


def test_readers_on_their_way_go_on(tmp_path: Path) -> None:
    with _open(tmp_path) as log:
        topic = log.topic("t")
        _fill(topic)
        topic.delete(tag="go")
        log.checkpoint()
        reader, frames = topic.read(1), topic.inner.frames(1, 12)
        assert next(reader).seq == 3
        assert read_header(next(frames)).seq == 1
        log.reclaim()
        assert [record.seq for record in reader] == [6, 9, 12]
        assert [read_header(frame).seq for frame in frames] == list(range(2, 13))


def test_damage_is_not_copied_and_a_damaged_deleted_record_is_not_missed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with _open(tmp_path) as log:
        topic = log.topic("t")
        _fill(topic)
        topic.delete(tag="go")
        log.checkpoint()
        first, second = sorted(tmp_path.rglob("*.data"))
        before = first.stat().st_size
        for path, seq in ((first, 3), (second, 8)):
            body = bytearray(path.read_bytes())
            info = topic.inner.segments()[seq > 6]
            offset = int(engine_of(log).segments.get(1, info).entries(seq, seq)["offset"][0])
            body[offset + 60] ^= 1
            path.write_bytes(body)
        log.reclaim()
        assert "deleted records keep their bytes" in caplog.text
        assert first.stat().st_size == before
        assert [record.seq for record in topic.read(7)] == [9, 12]
        caplog.clear()
        log.reclaim()
        assert not caplog.text
    assert {damage.path for damage in seglog.verify(tmp_path).damages} == {first}


# Crashes and failures: a topic with deletes on a simulated disk, then only the reclaim.


def _prepared() -> Image:
    disk = SimulatedDisk()
    with _open(DIRECTORY, disk) as log:
        _fill(log.topic("t"))
        log.topic("t").append([b"end"])
        log.topic("t").delete(tag="go")
    return disk.after_kill()


LIVE = [(seq, b"%d " % seq * 100, None) for seq in (3, 6, 9, 12)] + [(13, b"end", None)]


class _RenameFails(Effects):
    """A file port whose rename of a .data file fails."""

    def __init__(self, inner: Files) -> None:
        super().__init__(inner)
        self.renames: list[str] = []

    def rename(self, source: Path, target: Path) -> None:
        self.renames.append(target.name)
        if target.suffix == ".data":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().rename(source, target)


def _check(image: Image, *, is_settled: bool = False) -> None:
    disk = SimulatedDisk(image)
    with _open(DIRECTORY, disk) as log:
        assert _live(log.topic("t")) == LIVE
        assert not [path for path in disk.after_kill().tree if path.endswith(".new")]
        assert len(list(log.topic("t").inner.frames(1, 13))) == 13
        if not is_settled:
            log.reclaim()
            assert _live(log.topic("t")) == LIVE
    if not is_settled:
        _check(disk.after_power_cut(), is_settled=True)


def _moments_of_a_reclaim() -> list[Moment]:
    """Return the moment after each effect of a reclaim."""
    moments: list[Moment] = []
    disk = SimulatedDisk(_prepared())
    log = _open(DIRECTORY, disk)
    disk.note = lambda disk: moments.append(disk.moment())
    log.reclaim()
    disk.note = None
    return moments


@every(4, part=2)
def test_every_image_that_a_crash_may_leave_shows_the_same(every: int) -> None:
    moments = _moments_of_a_reclaim()
    chance = random.Random(1)
    images = {
        image.digest: image
        for moment in moments
        for image in (*moment.images(chance, 12), SimulatedDisk.resume(moment).after_kill())
    }
    kinds = {tuple(sorted(Path(path).suffix for path in image.tree if ".new" in path)) for image in images.values()}
    assert len(images) > 100
    assert len(kinds) > 1
    for image in [*images.values()][::every]:
        assert not seglog.verify(DIRECTORY, files=SimulatedDisk(_unlocked(image))).damages
        _check(_unlocked(image))


def test_the_names_are_durable_before_a_snapshot_says_how_many_bytes_there_are() -> None:
    disk = SimulatedDisk(_prepared())
    log = _open(DIRECTORY, disk)
    log.reclaim()
    log.topic("other").append([b"so that there is something new"])
    log.checkpoint()
    _check(_unlocked(disk.after_power_cut()))


def test_a_swap_that_failed_half_way_ends_the_writer() -> None:
    """Readers keep the old files. The next opening finds the new files, so a flag set in the old ones would be lost."""
    disk = SimulatedDisk(_prepared())
    log = _open(DIRECTORY, disk)
    failing = _RenameFails(disk)
    use_files_for_segments(log, failing)
    log.reclaim()
    assert failing.renames == ["seg-0000000000000001.idx", "seg-0000000000000001.data"]
    with pytest.raises(WriterPoisoned):
        log.topic("t").delete(before=4)
    assert _live(log.topic("t")) == LIVE
    _check(_unlocked(disk.after_kill()))


@pytest.mark.long
@every(4, part=2)
def test_a_crash_in_the_recovery_of_a_crash(every: int) -> None:
    """Crash at each operation in the soak. By default, each image gets a fourth of them in turn."""
    moments = _moments_of_a_reclaim()
    renamed = [moment for moment in moments if any("Move" in type(change).__name__ for change in moment.pending)]
    assert renamed
    images = [image for moment in renamed for image in moment.images(random.Random(2), 2)]
    for number, image in enumerate(images):
        again: list[Moment] = []
        second = SimulatedDisk(_unlocked(image))
        second.note = lambda disk, again=again: again.append(disk.moment())  # type: ignore[misc]
        _open(DIRECTORY, second).close()
        second.note = None
        for left in again[number % every :: every]:
            _check(_unlocked(left.image(())), is_settled=True)
            _check(_unlocked(SimulatedDisk.resume(left).after_kill()), is_settled=True)


def test_a_crash_in_a_truncation_that_came_before_the_swap() -> None:
    """The cut segment has as many bytes as the rewritten one, so recovery cannot tell them apart by size."""
    moments: list[Moment] = []
    disk = SimulatedDisk()
    log = _open(DIRECTORY, disk)
    topic = log.topic("t")
    topic.append([b"same"] * 6)
    topic.seal()
    topic.delete(before=4)
    log.checkpoint()
    [info] = topic.inner.segments()
    segment = engine_of(log).segments.get(topic.inner.topic_id, info)
    rewrite_segment(disk, Layout(log.path), segment, info, lambda _: None)
    disk.note = lambda disk: moments.append(disk.moment())
    topic.truncate(4)
    disk.note = None
    for moment in moments:
        image = _unlocked(SimulatedDisk.resume(moment).after_kill())
        assert not seglog.verify(DIRECTORY, files=SimulatedDisk(image)).damages
        with _open(DIRECTORY, left := SimulatedDisk(image)) as log:
            assert [seq for seq, *_ in _live(log.topic("t"))] in ([4, 5, 6], [])
            assert not [path for path in left.after_kill().tree if path.endswith(".new")]


def _unlocked(image: Image) -> Image:
    return Image({path: body for path, body in image.tree.items() if not path.endswith("LOCK")})


@pytest.mark.parametrize("tear", [False, True], ids=["between", "within"])
def test_the_process_may_die_at_any_operation(tear: bool) -> None:
    image = _prepared()
    counter = Effects(SimulatedDisk(image))
    with _open(DIRECTORY, counter) as log:
        before = counter.effects
        log.reclaim()
        after = counter.effects
    assert after - before > 10
    for at in range(before + 1, after + 1):
        disk = SimulatedDisk(image)
        with pytest.raises(SimulatedCrash):
            _open(DIRECTORY, CrashingFiles(disk, at, tear=tear)).reclaim()
        _check(_unlocked(disk.after_kill()))


@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_any_call_may_fail(for_good: bool, number: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "seglog")
    image = _prepared()
    at = 0
    while True:
        at += 1
        disk = SimulatedDisk(image)
        with _open(DIRECTORY, disk) as log:
            failing = FailingCalls(disk, at, lambda: OSError(number, os.strerror(number)), for_good=for_good)
            engine_of(log).files = failing
            use_files_for_segments(log, failing)
            reclaim_at_once(log)
            failing.at = 0
            engine_of(log).files = disk
            use_files_for_segments(log, disk)
            assert _live(log.topic("t")) == LIVE
            is_over = failing.failed is None
        _check(_unlocked(disk.after_kill()))
        _check(_unlocked(disk.after_power_cut()))
        if is_over:
            break
    assert at > 10


# A crash after the swap, before a manifest with the new number of bytes.


def _swapped() -> Image:
    disk = SimulatedDisk(_prepared())
    _open(DIRECTORY, disk).reclaim()
    image = _unlocked(disk.after_kill())
    return Image({**image.tree, "/cold": None})


def _lengths(disk: SimulatedDisk) -> list[int]:
    tree = disk.after_kill().tree
    return [len(tree[path] or b"") for path in sorted(tree) if path.startswith("/log") and path.endswith(".data")]


def _said(log: Log) -> list[int]:
    return [info.data_bytes for info in log.topic("t").inner.segments()]


def _delete_more(log: Log) -> None:
    log.topic("t").delete(before=7)
    log.checkpoint()
    log.topic("t").delete(tag="go")


ACTS: dict[str, tuple[Callable[[Log], object], list[int]]] = {
    "nothing": (lambda _: None, [3, 6, 9, 12, 13]),
    "append": (lambda log: log.topic("t").append([b"more"] * 7), [3, 6, 9, 12, *range(13, 21)]),
    "delete": (lambda log: log.topic("t").delete(before=4), [6, 9, 12, 13]),
    "delete more": (_delete_more, [9, 12, 13]),
    "reclaim": (lambda log: log.reclaim(), [3, 6, 9, 12, 13]),
    "delete and reclaim": (lambda log: (_delete_more(log), log.reclaim()), [9, 12, 13]),
    "truncate": (lambda log: log.topic("t").truncate(10), [3, 6, 9]),
    "truncate in the first": (lambda log: log.topic("t").truncate(5), [3]),
}


@pytest.mark.parametrize("act", ACTS)
def test_a_crash_between_the_swap_and_the_next_snapshot_leaves_a_sound_log(act: str) -> None:
    do, left = ACTS[act]
    disk = SimulatedDisk(_swapped())
    assert not seglog.verify(DIRECTORY, files=disk).damages
    with seglog.open(DIRECTORY, files=disk, read_only=True) as view:
        assert _live(view.topic("t")) == LIVE
    with _open(DIRECTORY, disk) as log:
        assert _said(log) > _lengths(disk)
        do(log)
        assert [seq for seq, *_ in _live(log.topic("t"))] == left
    for _ in range(2):
        assert not seglog.verify(DIRECTORY, files=disk).damages
        with _open(DIRECTORY, disk) as log:
            assert [seq for seq, *_ in _live(log.topic("t"))] == left
            log.reclaim()
            assert _said(log) == _lengths(disk)
    second = SimulatedDisk(disk.after_power_cut())
    with _open(DIRECTORY, second) as log:
        assert [seq for seq, *_ in _live(log.topic("t"))] == left


def test_such_a_segment_goes_to_the_cold_store_as_it_is_and_comes_back() -> None:
    disk = SimulatedDisk(_swapped())
    tiered = replace(BY_HAND, cold_dir="/cold", hot_retain_segments=0)
    for _ in range(2):
        with seglog.open(DIRECTORY, files=disk, settings=tiered, clock=HandClock(1_000), upkeep=InCaller) as log:
            warm = [info for info in log.topic("t").inner.segments() if not info.is_hot]
            tree = disk.after_kill().tree
            bodies = [tree[f"/cold/topics/00000001/seg-{info.first_seq:016d}.data"] or b"" for info in warm]
            assert [info.data_bytes for info in warm] == [*map(len, bodies)]
            assert len(warm) == 2
            assert _live(log.topic("t")) == LIVE
    assert not seglog.verify(DIRECTORY, files=disk, settings=tiered).damages
    with seglog.open(DIRECTORY, files=disk, settings=tiered, clock=HandClock(1_000), upkeep=InCaller) as log:
        log.topic("t").truncate(5)
        log.topic("t").append([b"new"])
        assert [seq for seq, *_ in _live(log.topic("t"))] == [3, 5]
    assert not seglog.verify(DIRECTORY, files=disk, settings=tiered).damages


def test_any_other_length_is_damage() -> None:
    tree = dict(_swapped().tree)
    for path in [path for path in tree if path.endswith("1.idx")]:
        body = tree[path] or b""
        first, rest = body[: ENTRY.size], body[ENTRY.size :]
        assert ENTRY.unpack(first)[1] == 0
        # Write the segment as if the first record still had its bytes. The files are sound by themselves.
        entries = read_entries(body, 1)
        moved = [encode_entry(1, 0, 60, entries[0].ts_ms, entries[0].flags)]
        moved += [
            encode_entry(seq, one.offset + 60, one.length, one.ts_ms, one.flags)
            for seq, one in enumerate(read_entries(rest, 2), 2)
        ]
        tree[path] = b"".join(moved)
        data = path.removesuffix("idx") + "data"
        tree[data] = bytes(60) + (tree[data] or b"")
    disk = SimulatedDisk(Image(tree))
    assert any(
        "snapshot" in damage.reason or "type" in damage.reason
        for damage in seglog.verify(DIRECTORY, files=disk).damages
    )
    with _open(DIRECTORY, disk) as log, pytest.raises(FileCorrupt, match="and the manifest to"):
        list(log.topic("t").read(3))


def test_a_file_of_which_only_the_new_one_is_left_gets_its_name_back() -> None:
    """No crash leaves this state: an operator removed the old files."""
    disk = SimulatedDisk(_prepared())
    log = _open(DIRECTORY, disk)
    topic = log.topic("t")
    info = topic.inner.segments()[0]
    rewrite_segment(
        disk, Layout(log.path), engine_of(log).segments.get(topic.inner.topic_id, info), info, lambda _: None
    )
    tree = _unlocked(disk.after_kill()).tree
    [data, idx] = [path for path in tree if path.endswith(("01.data", "01.idx"))]
    left = SimulatedDisk(Image({path: body for path, body in tree.items() if path not in (data, idx + ".new")}))
    with pytest.raises(FileCorrupt, match="missing") as caught:
        _open(DIRECTORY, left)
    assert str(caught.value.path) == data
    left = SimulatedDisk(
        Image({path: tree[f"{path}.new"] if path == idx else tree[path] for path in tree if path != data})
    )
    with _open(DIRECTORY, left) as log:
        assert _live(log.topic("t")) == LIVE


@pytest.mark.parametrize("act", ACTS)
def test_what_a_killed_process_renamed_is_durable_before_a_snapshot_counts_on_it(act: str) -> None:
    do, left = ACTS[act]
    moments = _moments_of_a_reclaim()
    renamed = [moment for moment in moments if any("Move" in type(change).__name__ for change in moment.pending)]
    assert len(renamed) == 4
    for moment in renamed:
        disk = SimulatedDisk.resume(moment)
        with _open(DIRECTORY, disk) as log:
            do(log)
        second = SimulatedDisk(_unlocked(disk.after_power_cut()))
        assert not seglog.verify(DIRECTORY, files=second).damages
        with _open(DIRECTORY, second) as log:
            assert [seq for seq, *_ in _live(log.topic("t"))] == left
