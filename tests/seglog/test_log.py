from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import seglog
from seglog import (
    DirectoryInUse,
    DirectoryNotWritable,
    DiskFull,
    FileCorrupt,
    FormatUnsupported,
    InvalidArgument,
    InvalidSetting,
    LogSettings,
    NoSuchTopic,
    NotADataDirectory,
    OffsetOverflow,
    TopicConfig,
    TopicExists,
    WriterPoisoned,
)
from seglog.engine.work_thread import InCaller
from seglog.values.deletes import DeleteWhere
from tests.faults.files import FailingFiles, UnsyncedFiles

SMALL = LogSettings(segment_max_events=10, wal_file_bytes=4096)


def test_what_is_not_a_data_directory_is_not_opened_without_create(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("missing", "other", "file"):
        with pytest.raises(NotADataDirectory):
            seglog.open(tmp_path / name, create=False)
    with pytest.raises(NotADataDirectory):
        seglog.open(tmp_path / "file")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "notes.txt", "other"]


def test_a_new_directory_is_made_with_its_parents_for_the_owner_alone(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "a" / "b") as log:
        assert log.path == tmp_path / "a" / "b"
        assert log.topics() == []
        log.topic("t").append([b"x"])
        log.checkpoint()
    for path in (tmp_path / "a").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0
    with seglog.open(tmp_path / "a" / "b", create=False) as log:
        assert log.topics() == ["t"]


def test_a_directory_has_one_process(tmp_path: Path) -> None:
    code = f"import seglog; seglog.open({str(tmp_path / 'data')!r}); print('held', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with pytest.raises(DirectoryInUse, match=f"in use by pid {child.pid} "):
            seglog.open(tmp_path / "data")
        child.kill()
    seglog.open(tmp_path / "data").close()


@pytest.mark.parametrize("cause", [errno.EACCES, errno.EROFS])
def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path, cause: int) -> None:
    seglog.open(tmp_path / "data").close()
    for at in range(1, 4):
        with pytest.raises(DirectoryNotWritable, match="data"):
            seglog.open(tmp_path / "data", files=FailingFiles(UnsyncedFiles(), at, cause, for_good=True))


def test_everything_is_there_again_after_a_restart(tmp_path: Path) -> None:
    config = TopicConfig("disk", True, {"codec": "zstd"})
    with seglog.open(tmp_path / "data", settings=SMALL) as log:
        topic = log.create_topic("a", config)
        topic.append([b"%d" % seq for seq in range(95)], tag="t")
        op = topic.inner.delete(DeleteWhere(before=5))
        topic.seal()
        topic.inner.release(20)
        topic.append([b"after"])
        log.create_topic("b@x", first_seq=7, ts_floor_ms=123)
        before = (
            topic.head_seq,
            topic.inner.hot_floor,
            topic.inner.sealed_seq,
            topic.last_ts_ms,
            topic.inner.bytes_hot,
            topic.inner.topic_id,
        )
        records = list(topic.read(21))
    for _ in range(2):
        with seglog.open(tmp_path / "data", settings=SMALL) as log:
            topic = log.topic("a")
            assert log.topics() == ["a", "b@x"]
            assert topic.config == config
            assert topic.inner.delete_ops() == (op,)
            assert before == (
                topic.head_seq,
                topic.inner.hot_floor,
                topic.inner.sealed_seq,
                topic.last_ts_ms,
                topic.inner.bytes_hot,
                topic.inner.topic_id,
            )
            assert list(topic.read(21)) == records
            assert (log.topic("b@x").head_seq, log.topic("b@x").last_ts_ms) == (6, 123)


def test_an_idle_open_and_close_writes_no_snapshot(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data") as log:
        log.topic("a").append([b"x"])
    before = sorted(os.listdir(tmp_path / "data" / "meta"))
    seglog.open(tmp_path / "data").close()
    assert sorted(os.listdir(tmp_path / "data" / "meta")) == before


def test_the_wal_is_freed_as_it_rotates(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data", settings=SMALL, upkeep=InCaller) as log:
        for _ in range(200):
            log.topic("a").append([b"x" * 100])
        assert len(list(tmp_path.glob("data/wal/wal-*.log"))) <= 2
        assert log.wal_bytes <= 2 * 4096
        assert len(list(log.topic("a").read())) == 200


def test_an_append_larger_than_a_wal_file_fits(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data", settings=SMALL) as log:
        log.topic("a").append([b"small"])
        log.topic("a").append([b"x" * 3000] * 10)
        log.topic("a").append([b"small"])
        assert [len(record.value) for record in log.topic("a").read()] == [5, *[3000] * 10, 5]


def test_a_topic_is_created_once(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data") as log:
        log.create_topic("a")
        with pytest.raises(TopicExists):
            log.create_topic("a")
        with pytest.raises(InvalidArgument):
            log.create_topic("b", first_seq=0)
        with pytest.raises(NoSuchTopic):
            log.configure("b", TopicConfig())
        assert log.has_topic("a")
        assert not log.has_topic("b")


def test_configuration_holds_for_later_appends_and_after_a_crash(tmp_path: Path) -> None:
    log = seglog.open(tmp_path / "data")
    log.create_topic("a")
    log.configure("a", TopicConfig(attributes={"k": "v"}))
    copy = _as_a_crash_leaves_it(tmp_path)
    log.close()
    with seglog.open(copy) as log:
        assert log.topic("a").config == TopicConfig(attributes={"k": "v"})


def test_settings_come_from_the_file(tmp_path: Path) -> None:
    seglog.open(tmp_path / "data").close()
    (tmp_path / "data" / "seglog.toml").write_text("[log]\nsegment_max_events = 3\n")
    with seglog.open(tmp_path / "data") as log:
        assert log.settings.segment_max_events == 3
    (tmp_path / "data" / "seglog.toml").write_text("[log]\nsegment_max_event = 3\n")
    with pytest.raises(InvalidSetting, match=r"log\.segment_max_event"):
        seglog.open(tmp_path / "data")


@pytest.mark.parametrize("only", [("pwritev",), ("allocate",)])
def test_a_full_disk_refuses_an_append_and_changes_nothing(tmp_path: Path, only: tuple[str, ...]) -> None:
    files = FailingFiles(UnsyncedFiles(), 0, errno.ENOSPC, for_good=True, only=only)
    with seglog.open(tmp_path / "data", files=files, settings=SMALL, upkeep=InCaller) as log:
        topic = log.topic("a")
        topic.append([b"x" * 100] * 10)  # less than half a file, so the next one is not prepared
        files.at = 1
        for _ in range(2):
            with pytest.raises(DiskFull):
                topic.append([b"y" * 1000] * 3)
            with pytest.raises(DiskFull):
                log.topic("new").append([b"y" * 3000])
        assert (topic.head_seq, log.topics()) == (10, ["a"])
        assert len(list(topic.read())) == 10
        files.at = 0
        assert topic.append([b"z"]) == range(11, 12)
        assert log.topic("new").append([b"z"]) == range(1, 2)
    with seglog.open(tmp_path / "data", settings=SMALL) as log:
        assert [record.value for record in log.topic("a").read(10)] == [b"x" * 100, b"z"]


def test_a_disk_that_fills_up_at_any_operation_loses_nothing(tmp_path: Path) -> None:
    for at in range(1, 400):
        files = FailingFiles(UnsyncedFiles(), 0, errno.ENOSPC, only=("pwrite", "pwritev", "allocate", "open"))
        directory = tmp_path / str(at)
        log = seglog.open(directory, files=files, settings=SMALL, upkeep=InCaller)
        files.at = at
        acked: list[bytes] = []
        for number in range(60):
            try:
                log.topic("a").append([b"%d" % number * 30])
            except (DiskFull, WriterPoisoned):
                continue
            acked.append(b"%d" % number * 30)
        with contextlib.suppress(DiskFull):
            log.close()
        with seglog.open(directory, settings=SMALL, files=UnsyncedFiles()) as log:
            found = [record.value for record in log.topic("a").read()] if acked else []
            assert found[: len(acked)] == acked
            assert len(found) <= len(acked) + 1
        if not files.failures:
            return
    pytest.fail("the scenario does not come to an end")


def test_the_first_failed_sync_is_final(tmp_path: Path) -> None:
    for at in range(1, 200):
        files = FailingFiles(UnsyncedFiles(), 0, errno.EIO, only=("datasync",))
        log = seglog.open(tmp_path / str(at), files=files, settings=SMALL, upkeep=InCaller)
        files.at = at
        acked = 0
        for _ in range(60):
            try:
                log.topic("a").append([b"x" * 100])
            except WriterPoisoned:
                break
            acked += 1
        if files.failures:
            with pytest.raises(WriterPoisoned):
                log.topic("a").append([b"x"])
            with pytest.raises(WriterPoisoned):
                log.checkpoint()
        if acked:
            assert len(list(log.topic("a").read())) == acked
        log.close()
        with seglog.open(tmp_path / str(at), settings=SMALL, files=UnsyncedFiles()) as log:
            assert acked <= log.topic("a").head_seq <= acked + 1
        if not files.failures:
            assert acked == 60
            return
    pytest.fail("the scenario does not come to an end")


def test_a_damaged_snapshot_is_reported(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data") as log:
        log.topic("a").append([b"x"])
    newest = max((tmp_path / "data" / "meta").iterdir())
    body = newest.read_bytes()
    for position in range(len(body)):
        damaged = bytearray(body)
        damaged[position] ^= 1
        newest.write_bytes(damaged)
        with pytest.raises(FileCorrupt) as caught:
            seglog.open(tmp_path / "data", files=UnsyncedFiles())
        assert caught.value.path == newest
    newest.write_bytes(body)
    seglog.open(tmp_path / "data").close()


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    from xxhash import xxh3_64_hexdigest

    seglog.open(tmp_path / "data").close()
    newest = max((tmp_path / "data" / "meta").iterdir())
    value = json.loads(newest.read_text().splitlines()[0])
    value["format"] = 6
    body = json.dumps(value).encode()
    newest.write_bytes(body + b"\n" + xxh3_64_hexdigest(body).encode() + b"\n")
    with pytest.raises(FormatUnsupported, match="format version 6"):
        seglog.open(tmp_path / "data")


@pytest.mark.parametrize("name", ["CURRENT", "wal-0000000000000001.log"])
def test_a_missing_wal_file_is_reported(tmp_path: Path, name: str) -> None:
    with seglog.open(tmp_path / "data") as log:
        log.topic("a").append([b"x"])
    (tmp_path / "data" / "wal" / name).unlink()
    before = sorted(path.name for path in (tmp_path / "data").rglob("*"))
    with pytest.raises(FileCorrupt):
        seglog.open(tmp_path / "data")
    assert sorted(path.name for path in (tmp_path / "data").rglob("*")) == before


def _read_all_of_it(directory: Path) -> None:
    with seglog.open(directory, settings=SMALL) as log:
        list(log.topic("a").read())


@pytest.mark.parametrize("kind", ["data", "idx"])
@pytest.mark.parametrize("number", [1, 11, 21])
def test_a_missing_or_cut_segment_is_reported(tmp_path: Path, kind: str, number: int) -> None:
    with seglog.open(tmp_path / "data", settings=SMALL) as log:
        log.topic("a").append([b"x"] * 25)
    path = tmp_path / "data" / "topics" / "00000001" / f"seg-{number:016d}.{kind}"
    body = path.read_bytes()
    for length in (len(body) - 1, len(body) - 20, 0):
        path.write_bytes(body[:length])
        with pytest.raises(FileCorrupt) as caught:
            _read_all_of_it(tmp_path / "data")
        assert (caught.value.path, caught.value.offset) == (path, length)
    path.unlink()
    with pytest.raises(FileCorrupt, match="missing"):
        seglog.open(tmp_path / "data", settings=SMALL)
    path.write_bytes(body)
    with seglog.open(tmp_path / "data", settings=SMALL) as log:
        assert len(list(log.topic("a").read())) == 25


def _as_a_crash_leaves_it(tmp_path: Path) -> Path:
    import shutil

    return Path(shutil.copytree(tmp_path / "data", tmp_path / "copy"))


def test_an_append_past_32_bit_offsets_is_refused_before_a_seq_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with seglog.open(tmp_path) as log:
        log.topic("t").append([b"first"])
        used = log.wal_bytes
        for module in (
            "seglog.writing.append",
            "seglog.wal.wal",
        ):  # the second one is the last check, before the write to the file
            with monkeypatch.context() as patch:
                patch.setattr(f"{module}.OFFSET_END", 2000)
                with pytest.raises(OffsetOverflow) as caught:
                    log.topic("t").append([b""] * 50)
                assert caught.value.limit_bytes == 2000
                assert (log.topic("t").head_seq, log.wal_bytes) == (1, used)
        assert log.topic("t").append([b"second"] * 50) == range(2, 52)


def test_a_file_of_flags_from_before_a_delete_does_not_bring_records_back(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "log") as log:
        topic = log.topic("t")
        topic.append([b"a", b"b", b"c"], tag="x")
        topic.append([b"d"])
        topic.seal()
        [idx] = (tmp_path / "log").rglob("*.idx")
        before = idx.read_bytes()
        topic.delete(tag="x", before=3)
        log.checkpoint()
        assert topic.inner.segments()[0].dead_records == 2
    after = idx.read_bytes()
    assert len(after) == len(before)
    idx.write_bytes(before)
    assert [(damage.path, damage.offset) for damage in seglog.verify(tmp_path / "log").damages] == [(idx, 0)]
    with seglog.open(tmp_path / "log") as log, pytest.raises(FileCorrupt, match="flagged as deleted") as caught:
        list(log.topic("t").read(1))
    assert caught.value.path == idx
    idx.write_bytes(after)
    with seglog.open(tmp_path / "log") as log:
        assert [record.seq for record in log.topic("t").read(1)] == [3, 4]
        log.topic("t").truncate(4)
        assert log.topic("t").inner.segments()[0].dead_records == 2
        log.topic("t").truncate(2)
    with seglog.open(tmp_path / "log") as log:
        assert log.topic("t").inner.segments()[0].dead_records == 1
        assert list(log.topic("t").read(1)) == []
