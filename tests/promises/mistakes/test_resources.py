"""The disk, file descriptors, permissions or memory are taken away, or the directory is in an odd place."""

from __future__ import annotations

import logging
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import seglog
from seglog import (
    AppendsHeld,
    DirectoryNotWritable,
    DiskFull,
    InvalidArgument,
    LogSettings,
    ReadOnly,
    TooManyOpenFiles,
    Unavailable,
)
from seglog.files.directory import in_memory_kind, kind_of_mount
from tests.faults.small_disk import mounted, small_disk
from tests.promises.mistakes.scene import filled, numbered, tree, values
from tests.seams.log import engine_of
from tests.worlds.command import ROOT

SMALL = LogSettings(wal_file_bytes=64 * 1024, disk_reject_bytes=0)
NOBODY = 65534


# After the imports: the interpreter may lie in a folder that only its owner may enter.
BECOME_NOBODY = (
    "import logging, os, numpy, seglog; [getattr(seglog, name) for name in seglog.__all__]; "
    f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
)


def _program(text: str, directory: Path) -> list[str]:
    """The words that a program of a user prints. It may set limits of its own, or become another user."""
    line = [sys.executable, "-c", text, str(directory)]
    done = subprocess.run(line, capture_output=True, cwd=ROOT, check=False, timeout=120, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that other users may enter: not below pytest's own, which each run closes for others again."""
    if os.getuid():
        pytest.skip("only root can become another user, and permissions do not bind root")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "data").mkdir()
        yield Path(folder) / "data"


def test_others_fill_the_disk(tmp_path: Path) -> None:
    """Another program fills the disk while a program appends; later somebody removes that file.

    Outcome: appends are refused, below `disk_reject_bytes` with `AppendsHeld`, on the full disk with `DiskFull`, and
    work again when there is room; nothing that was acked is lost.
    """
    disk, acked = tmp_path / "disk", []
    disk.mkdir()
    with mounted(disk, "-t", "tmpfs", "-o", "size=2m", "tmpfs"):
        with seglog.open(disk / "data", settings=SMALL) as log:
            log.topic("orders").append(numbered(10))
            (disk / "theirs").write_bytes(b"x" * 1024 * 1024)
            with suppress(DiskFull):
                for number in range(2000):
                    value = b"%d " % number + b"x" * 1000
                    log.topic("orders").append([value])
                    acked.append(value)
            assert len(acked) < 2000
            log.disk_reject_bytes = 1024 * 1024
            with pytest.raises(AppendsHeld):
                log.topic("orders").append([b"refused"])
            (disk / "theirs").unlink()
            log.disk_reject_bytes = 0
            log.topic("orders").append([b"after"])
        assert values(disk / "data") == [*numbered(10), *acked, b"after"]


def test_others_fill_the_disk_to_the_last_byte(tmp_path: Path) -> None:
    """Another program fills the disk to the last byte, and the log is closed and opened on it.

    Outcome: it opens, and all that was acked is read. `seal`, `evict` and `delete` work and free space, because the log
    gives up its ballast. Then appends work again.
    """
    acked = [b"%d " % number + b"x" * 1000 for number in range(2000)]
    with small_disk(tmp_path / "disk", 8 * 1024 * 1024) as disk:
        with seglog.open(disk.path / "data", settings=SMALL) as log:
            for value in acked:
                log.topic("orders").append([value], durability="disk")
            with engine_of(log).checkpoint_lock:
                disk.fill()
        with seglog.open(disk.path / "data", settings=SMALL) as log:
            assert [record.value for record in log.topic("orders").read()] == acked
            log.topic("orders").seal()
            log.topic("orders").evict(before=101)
            log.topic("orders").delete(before=201)
            log.topic("orders").append([b"after"])
        assert values(disk.path / "data") == [*acked[200:], b"after"]


def test_files_may_not_grow(tmp_path: Path) -> None:
    """A program runs under a limit for the size of a file (`ulimit -f`).

    Outcome: what the limit keeps from being written is refused with `DiskFull`; what was acked is there.
    """
    words = _program(
        "import resource, signal, sys, seglog\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "log = seglog.open(sys.argv[1], settings=seglog.LogSettings(wal_file_bytes=65536))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (70_000, 70_000))\n"
        "acked = 0\n"
        "for number in range(100):\n"
        "    log.topic('orders').append([b'%d' % number + b'x' * 1000])\n"
        "    acked += 1\n"
        "try:\n"
        "    log.topic('orders').append([b'x' * 100_000])\n"
        "except seglog.DiskFull:\n"
        "    print('refused')\n"
        "try:\n"
        "    log.close()\n"
        "except seglog.DiskFull:\n"
        "    print('full')\n"
        "print(acked)\n",
        tmp_path / "data",
    )
    assert words == ["refused", "full", "100"]
    assert values(tmp_path / "data") == [b"%d" % number + b"x" * 1000 for number in range(100)]


def test_no_file_descriptor_is_left(tmp_path: Path) -> None:
    """A program opens so many files that no descriptor is left for the log.

    Outcome: refused with `TooManyOpenFiles`, or done without one; it works again when one is free.
    """
    filled(tmp_path / "data")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with seglog.open(tmp_path / "data") as log:
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
        try:
            log.topic("orders").append([b"without"])
            for call in (lambda: seglog.open(tmp_path / "other"), log.topic("orders").seal):
                with pytest.raises(TooManyOpenFiles):
                    call()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        log.topic("orders").seal()
    assert values(tmp_path / "data") == [*numbered(10), b"without"]


def test_no_memory_is_left_for_a_record(tmp_path: Path) -> None:
    """A program appends a record for which its memory does not suffice.

    Outcome: Python's `MemoryError`, and nothing of the record is appended; the log takes more.
    """
    words = _program(
        "import resource, sys, seglog\n"
        "log = seglog.open(sys.argv[1], settings=seglog.LogSettings(max_record_bytes=1 << 29))\n"
        "log.topic('orders').append([b'first'])\n"
        "large = bytearray(200 << 20)\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (32 << 20),) * 2)\n"
        "try:\n"
        "    log.topic('orders').append([large])\n"
        "except MemoryError:\n"
        "    print('refused')\n"
        "log.topic('orders').append([b'second'])\n"
        "log.close()\n",
        tmp_path / "data",
    )
    assert words == ["refused"]
    assert values(tmp_path / "data") == [b"first", b"second"]


def test_the_directory_belongs_to_another_user(open_path: Path) -> None:
    """A program opens a data directory whose files it may not read.

    Outcome: refused with `DirectoryNotWritable`, for reading with `Unavailable`; nothing is changed.
    """
    filled(open_path)
    before = tree(open_path)
    words = _program(
        BECOME_NOBODY + "import sys\n"
        "for read_only in (False, True):\n"
        "    try:\n"
        "        seglog.open(sys.argv[1], read_only=read_only)\n"
        "    except seglog.SeglogError as error:\n"
        "        print(type(error).__name__)\n",
        open_path,
    )
    assert words == [DirectoryNotWritable.__name__, Unavailable.__name__]
    assert tree(open_path) == before


def test_permissions_are_taken_away_while_it_is_open(open_path: Path) -> None:
    """Somebody takes the write permission of an open data directory away, and gives it back after the program ended.

    Outcome: the log works until it needs a new file, and stops with `WriterPoisoned`. All acked records are there.
    """
    os.chown(open_path, NOBODY, NOBODY)
    words = _program(
        BECOME_NOBODY + "import logging, sys\n"
        "logging.disable()\n"
        "root = sys.argv[1]\n"
        "folders = [os.path.join(root, name) for name in ('wal', 'meta', 'topics', '.')]\n"
        "log = seglog.open(root, settings=seglog.LogSettings(wal_file_bytes=65536))\n"
        "acked = 0\n"
        "log.topic('orders').append([b'0'])\n"
        "for folder in folders: os.chmod(folder, 0o500)\n"
        "try:\n"
        "    while acked < 1000:\n"
        "        log.topic('orders').append([b'%d' % (acked + 1) + b'x' * 1000])\n"
        "        acked += 1\n"
        "except seglog.WriterPoisoned as error:\n"
        "    print('refused' if 'Permission denied' in str(error) else error)\n"
        "log.close()\n"
        "for folder in folders: os.chmod(folder, 0o700)\n"
        "print(acked)\n",
        open_path,
    )
    assert words[0] == "refused"
    assert values(open_path) == [b"0", *(b"%d" % number + b"x" * 1000 for number in range(1, int(words[1]) + 1))]


def test_the_directory_is_mounted_read_only(tmp_path: Path) -> None:
    """A program opens a data directory that is mounted read-only, and makes a new one there.

    Outcome: refused with `DirectoryNotWritable`; with `read_only` it is read, and a change is refused with `ReadOnly`.
    """
    data = tmp_path / "data"
    filled(data)
    with mounted(data, "--bind", str(data)):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(data)], check=True)
        before = tree(data)
        for path in (data, data / "new"):
            with pytest.raises(DirectoryNotWritable, match="Read-only file system"):
                seglog.open(path)
        with seglog.open(data, read_only=True) as view:
            assert [record.value for record in view.topic("orders").read()] == numbered(10)
            with pytest.raises(ReadOnly):
                view.topic("orders").append([b"x"])
        assert tree(data) == before
    assert values(data) == numbered(10)


def test_the_directory_is_in_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The data directory is on tmpfs, where a reboot takes what was acked at fsync.

    Outcome: the log warns once when it is opened for writing, and works.
    """
    disk = tmp_path / "disk"
    disk.mkdir()
    with mounted(disk, "-t", "tmpfs", "-o", "size=2g", "tmpfs"), caplog.at_level(logging.WARNING):
        assert filled(disk / "data") == numbered(10)
        assert [record.getMessage().split(":")[0] for record in caplog.records] == [
            f"{disk / 'data'} is in memory (tmpfs)"
        ]
        caplog.clear()
        with seglog.open(disk / "data", read_only=True) as view:
            assert [record.value for record in view.topic("orders").read()] == numbered(10)
        assert caplog.records == []


def test_the_path_has_odd_characters(tmp_path: Path) -> None:
    """The path of a data directory has spaces, a line end, other scripts, or bytes that are no text.

    Outcome: nothing is lost. Any path that the file system takes works.
    """
    for name in ("with space", "line\nend", "Ωорд 世界", "a\udcffb", "-rf", "%s {x} $HOME", "x" * 255):
        filled(tmp_path / name, seal=True)
        assert values(tmp_path / name) == numbered(10)


def test_the_path_is_too_long(tmp_path: Path) -> None:
    """The path of a data directory, or a name in it, is longer than the file system takes.

    Outcome: refused with `InvalidArgument`, which names the path; no directory is made.
    """
    for name in ("x" * 256, "/".join(["folder"] * 1000)):
        with pytest.raises(InvalidArgument, match=r"path .* too long"):
            seglog.open(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_mount_is_found_by_its_path() -> None:
    """A data directory lies in a mount within a mount, whose path has a space.

    Outcome: the log asks the innermost mount whether it is in memory.
    """
    mounts = (
        b"22 1 8:1 / / rw - ext4 /dev/sda rw\n"
        b"23 22 0:5 / /tmp rw shared:1 - tmpfs tmpfs rw\n"
        b"24 23 8:2 / /tmp/real\\040disk rw - xfs /dev/sdb rw\n"
        b"25 22 0:6 / /over rw - ext4 /dev/sdc rw\n"
        b"26 25 0:7 / /over rw - ramfs ramfs rw\n"
    )
    kinds = {b"/data": "ext4", b"/tmp": "tmpfs", b"/tmp/x": "tmpfs", b"/tmpx": "ext4", b"/over/x": "ramfs"}
    assert {path: kind_of_mount(mounts, path) for path in kinds} == kinds
    assert kind_of_mount(mounts, b"/tmp/real disk/data") == "xfs"
    assert in_memory_kind(Path("/proc")) is None
