"""A disk that is really full, at each step of a log with its archive: a tmpfs of some MiB, mounted for the test.

Before the step, another program takes all space but some pages. Then:

    acked     each record that was acked is there, also after the next opening on the disk that is still full
    named     the step works, or its error is one of a full disk, which names the operation and has a hint
    way out   on the full disk, seal, offload with --drop-hot, delete and evict work, because of the ballast, and give
              space back
    advice    when the other program's file is gone, the step works, and appends too

A second proof lets a killed log open with several WAL files and room for one. A third runs the command line. All need
the right to mount, and are skipped without it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

import offload
import seglog
from catalog.errors import LocalCatalogUnavailable
from offload.archive import Archive
from offload.daemon.http import direct, make_app
from offload.daemon.problems import problem
from seglog import AppendsHeld, DiskFull, Log, LogSettings, TopicConfig
from tests import work
from tests.faults.small_disk import SmallDisk, small_disk
from tests.seams.log import engine_of
from tests.worlds.asgi import BYTES, asked
from tests.worlds.command import ROOT, Done, Run, run
from tests.worlds.services import serving

__all__ = ["run"]

_MIB = 1024 * 1024
_DISK_BYTES = 12 * _MIB
_SETTINGS = LogSettings(wal_file_bytes=512 * 1024, segment_max_bytes=512 * 1024, disk_reject_bytes=0)
_VALUE = b"x" * 1000
_RECORDS = 1500
# Pages that are left: none, enough for a manifest, enough for a WAL file.
_LEFT = (0, 1, 16, 140)


@dataclass
class World:
    """`kept` is a topic with its history in the archive, `plain` one without. `acked` has the values of each."""

    disk: SmallDisk
    url: str
    acked: dict[str, list[bytes]] = field(default_factory=dict[str, list[bytes]])
    deleted: int = 0
    removal_lsn: int = 0

    @property
    def path(self) -> Path:
        return self.disk.path / "data"

    def open(self) -> tuple[Log, Archive]:
        log = seglog.open(self.path, settings=_SETTINGS)
        try:
            return log, offload.attach(log, self.url)
        except BaseException:
            log.close()
            raise

    def append(self, log: Log, topic: str, count: int) -> None:
        known = self.acked.setdefault(topic, [])
        for _ in range(count):
            value = b"%d " % len(known) + _VALUE
            log.topic(topic).append([value])
            known.append(value)

    def check(self, archive: Archive) -> None:
        for name, values in self.acked.items():
            below = self.deleted if name == "plain" else 0
            found = {record.seq: record.value for record in archive.read(name)}
            assert found == {seq: value for seq, value in enumerate(values, 1) if seq > below}


def _append(world: World, log: Log, _archive: Archive) -> None:
    world.append(log, "kept", 600)


def _checkpoint(_world: World, log: Log, _archive: Archive) -> None:
    log.checkpoint()


def _seal(_world: World, log: Log, _archive: Archive) -> None:
    log.topic("kept").seal()


def _offload(_world: World, _log: Log, archive: Archive) -> None:
    archive.offload("kept", drop_hot=True)


def _delete(world: World, log: Log, _archive: Archive) -> None:
    log.topic("plain").delete(before=101)
    world.deleted = max(world.deleted, 100)


def _evict(world: World, log: Log, _archive: Archive) -> None:
    log.topic("plain").evict(before=201)
    world.deleted = max(world.deleted, 200)


def _truncate(world: World, log: Log, _archive: Archive) -> None:
    end = len(world.acked["plain"])
    log.topic("plain").truncate(end)
    del world.acked["plain"][end - 1 :]


def _undo(world: World, _log: Log, archive: Archive) -> None:
    archive.history.undo_removal("kept", world.removal_lsn)


Step = Callable[[World, Log, Archive], None]
_STEPS: dict[str, Step] = {
    "append": _append,
    "checkpoint": _checkpoint,
    "seal": _seal,
    "offload": _offload,
    "delete": _delete,
    "evict": _evict,
    "truncate": _truncate,
    "undo": _undo,
}


def _prepared(disk: SmallDisk, remote: Path) -> tuple[World, Log, Archive]:
    """Return a log with hot records in segments and in the WAL, some in the remote, and its ballast."""
    remote.mkdir()
    world = World(disk, remote.as_uri())
    log, archive = world.open()
    log.create_topic("kept", TopicConfig(keep_history=True))
    log.create_topic("plain", TopicConfig())
    world.append(log, "kept", 300)
    log.topic("kept").seal()
    archive.offload("kept")
    world.append(log, "kept", _RECORDS)
    world.append(log, "plain", _RECORDS // 2)
    log.checkpoint()
    world.append(log, "kept", 200)
    world.append(log, "plain", 200)
    assert (world.path / "meta" / "ballast").stat().st_size > _SETTINGS.wal_file_bytes
    return world, log, archive


def _is_named(error: Exception, step: str) -> bool:
    """Tell whether the error is one of a full disk, has a hint, and names the operation."""
    if isinstance(error, LocalCatalogUnavailable):
        return error.is_full and "free some space" in str(error.hint)
    if isinstance(error, AppendsHeld):
        return step == "append" and "free some space" in str(error.hint)
    if not isinstance(error, DiskFull) or "free some space" not in str(error.hint):
        return False
    # An offload makes a checkpoint, and an undo offloads, and deletes the topic here.
    names = {"offload": ("checkpoint",), "undo": ("checkpoint", "seal", "delete topic")}.get(step, (step,))
    return error.operation in names and f"no space left to {error.operation}" in str(error)


def _run(world: World, log: Log, archive: Archive, name: str) -> bool:
    """Run a step, and return whether it had room. The error is not kept: its frames hold files that use space."""
    try:
        _STEPS[name](world, log, archive)
    except (seglog.SeglogError, LocalCatalogUnavailable) as error:
        if not _is_named(error, name):
            raise
        return False
    return True


def _removed(world: World, log: Log, archive: Archive) -> None:
    """Make and offload a delete, for a later undo, and append records that no offload has seen."""
    log.topic("kept").delete(before=10)
    log.topic("kept").seal()
    archive.offload("kept")
    world.append(log, "kept", 100)
    removal = archive.history.newest_removal("kept")
    assert removal is not None
    world.removal_lsn = removal.commit.lsn


def _one(disk: SmallDisk, remote: Path, name: str, pages: int, *, reopens: bool, has_ballast: bool = True) -> bool:
    """Run one step on a full disk, then the way out, then the advice. Return whether the step itself had no room."""
    world, log, archive = _prepared(disk, remote)
    try:
        if name == "undo":
            _removed(world, log, archive)
        if not has_ballast:
            (world.path / "meta" / "ballast").unlink()
        # The other program fills the disk while no checkpoint runs, which would give up the ballast to it.
        with engine_of(log).checkpoint_lock:
            disk.fill(pages * 4096)
        is_done = _run(world, log, archive, name)
        if name != "undo":  # until an undo is done, some records are deleted
            world.check(archive)
        if reopens:
            log, archive = _reopened(world, log, archive, has_ballast=has_ballast)
        if has_ballast:
            is_undone = name == "undo" and is_done
            for way in ("delete", "evict", "checkpoint") if is_undone else ("seal", "offload", "delete", "evict"):
                _STEPS[way](world, log, archive)
            assert disk.free_bytes > pages * 4096 + _SETTINGS.wal_file_bytes
        disk.free()
        if not is_done:
            _STEPS[name](world, log, archive)
        world.append(log, "plain" if name == "undo" else "kept", 10)
        world.check(archive)
    finally:
        archive.close()
        log.close()
    with seglog.open(world.path, settings=_SETTINGS) as log, offload.attach(log, world.url) as archive:
        world.check(archive)
    return not is_done


def _reopened(world: World, log: Log, archive: Archive, *, has_ballast: bool) -> tuple[Log, Archive]:
    """Close and open on the full disk. Without a ballast the local catalog may not open, but the log does."""
    archive.close()
    try:
        log.close()
    except DiskFull as error:
        if has_ballast or not _is_named(error, "close"):
            raise
    if not has_ballast:
        with seglog.open(world.path, settings=_SETTINGS, read_only=True) as view:
            assert view.topic("plain").head_seq == len(world.acked["plain"])
        log = seglog.open(world.path, settings=_SETTINGS)
        assert log.topic("plain").head_seq == len(world.acked["plain"])
        world.disk.free()
        return log, offload.attach(log, world.url)
    return world.open()


@pytest.mark.parametrize(
    ("names", "left", "ways"),
    [
        pytest.param(["seal"], (0,), ((False, True), (True, False)), id="exemplar"),
        pytest.param(
            [*_STEPS],
            _LEFT,
            ((False, True), (True, True), (False, False), (True, False)),
            id="all",
            marks=pytest.mark.soak(part=2),
        ),
    ],
)
def test_each_step_on_a_full_disk(
    tmp_path: Path, names: list[str], left: tuple[int, ...], ways: tuple[tuple[bool, bool], ...]
) -> None:
    """`ways` say whether the log closes and opens on the full disk, and whether it has a ballast."""
    refused = runs = 0
    for name, pages, (reopens, has_ballast) in itertools.product(names, left, ways):
        place, remote = tmp_path / f"disk{runs}", tmp_path / f"remote{runs}"
        with small_disk(place, _DISK_BYTES) as disk:
            refused += _one(disk, remote, name, pages, reopens=reopens, has_ballast=has_ballast)
        runs += 1
    work.tell(f"full disk: {runs} steps on a tmpfs without room, {refused} of them refused; each had its way out")
    assert runs == len(names) * len(left) * len(ways)


_KILLED = """
import os, signal, sys, seglog
class Never:
    def __init__(self, work): pass
    def wake(self): pass
    def wake_later(self, delay_s): pass
    def close(self, patience_s=None): return True
settings = seglog.LogSettings(wal_file_bytes=512 * 1024, disk_reject_bytes=0)
log = seglog.open(sys.argv[1], settings=settings, upkeep=Never)
for number in range(int(sys.argv[2])):
    log.topic("t").append([b"%d " % number + b"x" * 1000], durability="disk")
print(number + 1, log._engine.wals.older_files, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def _open_killed(disk: SmallDisk, left: int, records: int, segment_bytes: int) -> None:
    data = disk.path / "data"
    line = [sys.executable, "-c", _KILLED, str(data), str(records)]
    done = subprocess.run(line, capture_output=True, cwd=ROOT, check=False, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    acked, older = map(int, done.stdout.split())
    assert older >= 3
    disk.fill(left)
    # Where all records go into one segment, the attempt before must not keep the room of that one.
    settings = replace(_SETTINGS, segment_max_bytes=segment_bytes)
    with seglog.open(data, settings=settings) as log:
        assert [record.seq for record in log.topic("t").read()] == [*range(1, acked + 1)]
        # With the room of a WAL file, a checkpoint of one file after the other absorbs them all.
        assert engine_of(log).wals.older_files == (0 if left >= 600 * 1024 else older)
        log.topic("t").delete(before=acked // 2)
        disk.free()
    with seglog.open(data, settings=_SETTINGS) as log:
        assert [record.seq for record in log.topic("t").read()] == [*range(acked // 2, acked + 1)]


@work.amounts(1, soak=8, part=2)
def test_a_killed_log_opens_with_room_for_one_wal_file(tmp_path: Path, amount: int) -> None:
    """A log is killed with three to five WAL files, and the disk is full but for `left` bytes."""
    opened = 0
    for number in range(amount):
        with small_disk(tmp_path / f"disk{number}", _DISK_BYTES) as disk:
            segment_bytes = _SETTINGS.segment_max_bytes if number % 2 else LogSettings().segment_max_bytes
            left = (900, 600, 60, 0, 600, 900, 0, 60)[number % 8] * 1024
            _open_killed(disk, left, records=(1600, 1800)[number // 4 % 2], segment_bytes=segment_bytes)
        opened += 1
    work.tell(f"full disk: {opened} killed logs opened without room for a checkpoint of all WAL files")
    assert opened == amount


class _Never:
    """An upkeep that does nothing, so that the WAL keeps its files."""

    def __init__(self, _work: Callable[[], None]) -> None: ...

    def wake(self) -> None: ...

    def wake_later(self, delay_s: float) -> None: ...

    def close(self, _patience_s: float | None = None) -> bool:
        return True


def test_a_running_log_without_room_says_that_an_opening_needs_less(tmp_path: Path) -> None:
    """Its checkpoint absorbs four WAL files at once. That of an opening absorbs them one by one."""
    with small_disk(tmp_path / "disk", _DISK_BYTES) as disk:
        log = seglog.open(disk.path / "data", settings=_SETTINGS, upkeep=_Never)
        log.topic("t").append([b"0"])
        while engine_of(log).wals.older_files < 4:
            log.topic("t").append([_VALUE], durability="disk")
        head = log.topic("t").head_seq
        disk.fill(700 * 1024)
        for call in (log.topic("t").seal, log.checkpoint, log.close):
            with pytest.raises(DiskFull) as caught:
                call()
            assert "restart its daemon" in str(problem(caught.value)["hint"])
        with seglog.open(disk.path / "data", settings=_SETTINGS) as log:
            assert engine_of(log).wals.older_files == 0
            assert [record.seq for record in log.topic("t").read()] == [*range(1, head + 1)]
            log.topic("t").seal()


def test_a_stream_is_deleted_on_a_full_disk(tmp_path: Path) -> None:
    """Appends to another stream have used all room, so the entry of the deletion takes the ballast."""

    async def scenario(data: Path, disk: SmallDisk) -> None:
        async with serving(data, "") as service:
            app = direct(make_app(service))
            for path in ("/streams/s", "/streams/t"):
                assert (await asked(app, path, BYTES, method="PUT", body=bytes(100_000)))[0] == 201
            for _ in range(8):
                assert (await asked(app, "/streams/t", BYTES, body=bytes(100_000)))[0] == 204
            service.sync.checkpoint()
            assert (data / "meta" / "ballast").exists()
            with engine_of(service.sync).checkpoint_lock:
                disk.fill()
            for size in (10_000, 100, 1):  # the entry of a stream is larger than the last of them
                while (await asked(app, "/streams/t", BYTES, body=bytes(size)))[0] == 204:
                    pass
            assert (await asked(app, "/streams/u", BYTES, method="PUT", body=b""))[0] == 507
            assert (await asked(app, "/streams/s", method="DELETE"))[0] == 204
            assert not service.sync.has_topic("s")

    with small_disk(tmp_path / "disk", _DISK_BYTES) as disk:
        data = disk.path / "data"
        data.mkdir()
        (data / "seglog.toml").write_text("[log]\nwal_file_bytes = 524288\ndisk_reject_bytes = 0\n")
        asyncio.run(scenario(data, disk))


def test_an_append_that_a_full_disk_cuts_says_how_much_is_in(tmp_path: Path) -> None:
    """The close after it has no room either, and its error hides nothing."""
    (tmp_path / "lines").write_bytes(b"".join(b"%d " % number + 8 * _VALUE + b"\n" for number in range(5000)))
    with small_disk(tmp_path / "disk", 12 * _MIB) as disk:
        data = disk.path / "data"

        def command(*words: str) -> subprocess.CompletedProcess[str]:
            line = [sys.executable, "-m", "offload", "-C", str(data), *words]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            return subprocess.run(line, capture_output=True, env=environment, check=False, text=True, timeout=120)

        assert command("init").returncode == 0
        (data / "seglog.toml").write_text("[log]\nwal_file_bytes = 8388608\ndisk_reject_bytes = 0\n")
        done = command("append", "t", str(tmp_path / "lines"), "--durability", "disk")
        assert done.returncode == 1
        assert "no space left to append" in done.stderr
        shutil.copytree(data, tmp_path / "copy")
        with seglog.open(tmp_path / "copy") as log:
            head = log.topic("t").head_seq
        assert 0 < head < 5000
        assert f"seq 1 to {head} were appended, the rest was not" in done.stderr
        assert f"--skip-lines {head}" in done.stderr


def test_the_way_out_of_a_full_disk_is_three_commands(tmp_path: Path, run: Run) -> None:
    """An operator asks for the status, types the command that it names, and appends again."""
    lines = b"".join(b"%d " % number + _VALUE + b"\n" for number in range(1000))
    with small_disk(tmp_path / "disk", 32 * _MIB) as disk:

        def seglog_at_night(*words: str, stdin: bytes = b"") -> Done:
            return run("-C", str(disk.path / "data"), *words, stdin=stdin, directory=None)

        assert seglog_at_night("init", "--remote", (tmp_path / "remote").as_uri()).code == 0
        settings = disk.path / "data" / "seglog.toml"
        log = "[log]\nwal_file_bytes = 1048576\nmax_record_bytes = 65536\ndisk_reject_bytes = 6291456\n"
        settings.write_text(settings.read_text().replace("[log]\n", log))
        for _ in range(40):
            last = seglog_at_night("append", "web", stdin=lines)
        assert last.code == 1
        assert "appends then work again" in last.err

        status = seglog_at_night("status")
        assert "DISK" in status.text
        [named] = re.findall(r"to do: .*?`seglog (offload [^`]*)`", status.text)
        assert seglog_at_night(*named.split()).code == 0
        assert seglog_at_night("append", "web", stdin=b"again\n").code == 0
        assert seglog_at_night("tail", "web", "-n", "1").out == b"again\n"
