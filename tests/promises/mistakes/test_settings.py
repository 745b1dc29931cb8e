"""Settings, environment variables and daemons are changed or started wrongly."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import offload
import seglog
from offload.errors import OtherRemote
from offload.format.encoder import EntryTooLarge
from seglog import InvalidSetting, TopicConfig
from seglog.errors import FileCorrupt, RecordTooLarge, WarmStoreFailed, WarmStoreRequired
from tests.daemons import served
from tests.promises.mistakes.scene import filled, numbered, tree, values
from tests.waiting import wait_until
from tests.worlds.command import ROOT, command, program

BROKEN = (
    "[serve\n",
    "[serve]\nbody_max = 1\n",
    "[offload]\nblock_size = true\n",
    "[serve]\nmax_body_bytes = 1024\n[catalog]\npitr_window_s = -1\n",
)
LARGE = b"x" * 5000


def settings(directory: Path, text: str) -> None:
    """Edit seglog.toml, as a user does: the bytes of the file that is there change."""
    with (directory / "seglog.toml").open("w") as file:
        file.write(text)


def refused(directory: Path, match: str) -> None:
    """Every opening is, before anything changes; the old settings read all records."""
    before = tree(directory)
    for create in (True, False):
        with pytest.raises(InvalidSetting, match=match):
            seglog.open(directory, create=create)
    assert tree(directory) == before


# ---------------------------------------------------------------- seglog.toml


def test_seglog_toml_is_not_toml(tmp_path: Path) -> None:
    """Somebody leaves out a bracket in seglog.toml.

    Outcome: refused with `InvalidSetting`, which names the line.
    """
    filled(tmp_path)
    settings(tmp_path, "[log\n")
    refused(tmp_path, "is not TOML.*line 1")
    settings(tmp_path, "")
    assert values(tmp_path) == numbered(10)


def test_seglog_toml_has_an_unknown_key(tmp_path: Path) -> None:
    """Somebody misspells a key of seglog.toml.

    Outcome: refused with `InvalidSetting`, which lists the keys. The default is not used in silence.
    """
    filled(tmp_path)
    settings(tmp_path, "[log]\nwal_shard = 4\n")
    refused(tmp_path, r"log\.wal_shard: is unknown; there are .*wal_shards")
    settings(tmp_path, "")
    assert values(tmp_path) == numbered(10)


def test_seglog_toml_has_a_value_of_the_wrong_type(tmp_path: Path) -> None:
    """Somebody writes a text where seglog.toml takes a number, then true, then a fraction.

    Outcome: refused with `InvalidSetting`, which names the range.
    """
    filled(tmp_path)
    for value in ('"4"', "true", "1.5", "0", "65"):
        settings(tmp_path, f"[log]\nwal_shards = {value}\n")
        refused(tmp_path, "is not a whole number, 1 to 64")
    settings(tmp_path, "")
    assert values(tmp_path) == numbered(10)


def test_seglog_toml_cannot_be_read(tmp_path: Path) -> None:
    """A container mount made a directory of seglog.toml.

    Outcome: refused with `InvalidSetting`. The defaults are not used in silence.
    """
    filled(tmp_path)
    (tmp_path / "seglog.toml").unlink(missing_ok=True)
    (tmp_path / "seglog.toml").mkdir()
    refused(tmp_path, "seglog.toml: the file cannot be read: Is a directory")
    (tmp_path / "seglog.toml").rmdir()
    assert values(tmp_path) == numbered(10)


def test_seglog_toml_of_another_directory_is_copied_over(tmp_path: Path) -> None:
    """Somebody copies the seglog.toml of another data directory, with another remote and other numbers of shards.

    Outcome: nothing is lost. The offload is refused with `OtherRemote`.
    """
    filled(tmp_path / "data", seal=True)
    with seglog.open(tmp_path / "data") as log, offload.attach(log, (tmp_path / "ours").as_uri()) as archive:
        archive.offload("orders")
    settings(tmp_path / "data", f'[log]\nwal_shards = 3\n[remote]\nurl = "{(tmp_path / "theirs").as_uri()}"\n')
    with seglog.open(tmp_path / "data") as log, offload.attach(log) as archive:
        log.topic("orders").append([b"after"])
        log.topic("orders").seal()
        with pytest.raises(OtherRemote):
            archive.offload("orders", drop_hot=True)
    assert values(tmp_path / "data") == [*numbered(10), b"after"]


@pytest.mark.long
def test_the_number_of_shards_changes_with_every_opening(tmp_path: Path) -> None:
    """Somebody tries values of `wal_shards`, up and down, and the process is killed in between.

    Outcome: nothing is lost.
    """
    expected = filled(tmp_path)
    script = "import os, seglog; seglog.open({!r}).topic('orders').append([b'%d']); os.kill(os.getpid(), 9)"
    for shards in (4, 1, 7, 2):
        settings(tmp_path, f"[log]\nwal_shards = {shards}\n")
        subprocess.run(
            [sys.executable, "-c", script.format(str(tmp_path)).replace("%d", str(shards))], cwd=ROOT, check=False
        )
        expected.append(b"%d" % shards)
    assert values(tmp_path) == expected


def test_limits_are_set_below_what_the_log_has(tmp_path: Path) -> None:
    """Somebody sets record, segment and WAL sizes below those of records that the log has.

    Outcome: nothing is lost. The old records are read, checkpointed and offloaded. Only a new record that is too
    large is refused.
    """
    large = [b"%d" % number * 50_000 for number in range(4)]
    with seglog.open(tmp_path / "data") as log:
        log.topic("orders").append(large)
    settings(
        tmp_path / "data",
        "[log]\nmax_record_bytes = 10\nsegment_max_bytes = 100\nsegment_max_events = 1\nwal_file_bytes = 4096\n",
    )
    with seglog.open(tmp_path / "data") as log, offload.attach(log, (tmp_path / "remote").as_uri()) as archive:
        with pytest.raises(RecordTooLarge):
            log.topic("orders").append([b"x" * 11])
        log.topic("orders").append([b"small"])
        log.topic("orders").seal()
        archive.offload("orders", drop_hot=True)
        assert [each.value for each in log.topic("orders").read()] == [*large, b"small"]


def test_the_block_size_is_set_below_a_record_that_the_log_has(tmp_path: Path) -> None:
    """Somebody sets `block_size` and `max_record_bytes` below the size of a record that is not offloaded yet.

    Outcome: the offload is refused with `EntryTooLarge`, which names the setting. The hot copy stays.
    """
    with seglog.open(tmp_path / "data") as log:
        log.topic("orders").append([b"x" * 6_000_000])
        log.topic("orders").seal()
    url = (tmp_path / "remote").as_uri()
    settings(tmp_path / "data", '[log]\nmax_record_bytes = 1000\n[offload]\nblock_size = 5242880\ncodec = "none"\n')
    with seglog.open(tmp_path / "data") as log, offload.attach(log, url) as archive:
        with pytest.raises(EntryTooLarge) as error:
            archive.offload("orders", drop_hot=True)
        assert "raise block_size" in str(error.value.hint)
    settings(tmp_path / "data", "")
    with seglog.open(tmp_path / "data") as log, offload.attach(log, url) as archive:
        archive.offload("orders", drop_hot=True)
        assert [len(each.value) for each in log.topic("orders").read()] == [6_000_000]


def test_the_codec_changes_between_offloads(tmp_path: Path) -> None:
    """Somebody changes the codec and the block size of `[offload]` after every offload.

    Outcome: nothing is lost. Each object says how it was written.
    """
    url = (tmp_path / "remote").as_uri()
    for number, codec in enumerate(("zstd", "none", "none", "zstd")):
        (tmp_path / "data").mkdir(exist_ok=True)
        settings(tmp_path / "data", f'[offload]\ncodec = "{codec}"\nblock_size = {(32 + number) << 20}\n')
        with seglog.open(tmp_path / "data") as log, offload.attach(log, url) as archive:
            log.topic("orders").append(numbered(10, 1 + 10 * number))
            log.topic("orders").seal()
            archive.offload("orders", drop_hot=True)
    with seglog.open(tmp_path / "data") as log, offload.attach(log, url):
        assert [each.value for each in log.topic("orders").read()] == numbered(40)


def test_a_ttl_of_zero_is_set(tmp_path: Path) -> None:
    """Somebody sets the ttl of a topic to 0, and means "none".

    Outcome: refused with `InvalidSetting`. No record expires.
    """
    filled(tmp_path)
    with seglog.open(tmp_path) as log, pytest.raises(InvalidSetting, match="ttl_ms"):
        log.configure("orders", TopicConfig(ttl_ms=0))
    assert values(tmp_path) == numbered(10)


# ---------------------------------------------------------------- the warm directory


def relocated(tmp_path: Path) -> None:
    """All ten records are in a segment in the warm directory."""
    (tmp_path / "cold").mkdir()
    cold_dir(tmp_path, "cold")
    with seglog.open(tmp_path / "data") as log:
        log.topic("orders").append(numbered(10))
        log.topic("orders").seal()
        wait_until(lambda: list((tmp_path / "cold").rglob("*.data")) != [])


def cold_dir(tmp_path: Path, name: str) -> None:
    (tmp_path / "data").mkdir(exist_ok=True)
    settings(tmp_path / "data", f'[log]\ncold_dir = "{tmp_path / name}"\nhot_retain_segments = 0\n')


def test_cold_dir_is_taken_out_of_the_settings(tmp_path: Path) -> None:
    """Somebody removes `cold_dir` from seglog.toml after segments went there.

    Outcome: `WarmStoreRequired`, which names the setting. With it all records are read.
    """
    relocated(tmp_path)
    settings(tmp_path / "data", "")
    with pytest.raises(WarmStoreRequired, match="and the log has none"):
        values(tmp_path / "data")
    cold_dir(tmp_path, "cold")
    assert values(tmp_path / "data") == numbered(10)


def test_cold_dir_leads_to_an_empty_directory(tmp_path: Path) -> None:
    """Somebody changes `cold_dir` to an empty directory after segments went to the old one.

    Outcome: a read of their records ends with `FileCorrupt`, which says that the warm store lacks the segment. With the
    old value all records are read.
    """
    relocated(tmp_path)
    (tmp_path / "empty").mkdir()
    cold_dir(tmp_path, "empty")
    with pytest.raises(FileCorrupt, match="is missing in the warm store"):
        values(tmp_path / "data")
    cold_dir(tmp_path, "cold")
    assert values(tmp_path / "data") == numbered(10)


def test_the_disk_of_cold_dir_is_not_mounted(tmp_path: Path) -> None:
    """The disk that `cold_dir` leads to is not mounted after a reboot.

    Outcome: `WarmStoreFailed` for reads of its segments. Appends work, and no directory is made in its place.
    """
    relocated(tmp_path)
    (tmp_path / "cold").rename(tmp_path / "away")
    with seglog.open(tmp_path / "data") as log:
        with pytest.raises(WarmStoreFailed, match="the directory does not exist"):
            list(log.topic("orders").read())
        log.topic("orders").append([b"after"])
    assert not (tmp_path / "cold").exists()
    (tmp_path / "away").rename(tmp_path / "cold")
    assert values(tmp_path / "data") == [*numbered(10), b"after"]


# ---------------------------------------------------------------- the environment


def test_an_environment_variable_has_a_bad_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment variable of a setting has a bad value.

    Outcome: refused with exit code 2, and the variable or its key is named. Nothing changes.
    """
    filled(tmp_path)
    before = tree(tmp_path)
    monkeypatch.setenv("SEGLOG_LOG_WAL_SHARDS", "many")
    done = command("append", "orders", directory=tmp_path, given=b"after\n")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"wal_shards" in done.stderr.lower()
    assert tree(tmp_path) == before


def test_seglog_dir_names_a_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SEGLOG_DIR in a shell profile names a data directory that was removed.

    Outcome: a read is refused with exit code 3, and no directory is made.
    """
    monkeypatch.setenv("SEGLOG_DIR", str(tmp_path / "gone"))
    line = [sys.executable, "-m", "offload", "read", "orders"]
    done = subprocess.run(line, capture_output=True, cwd=ROOT, check=False, timeout=120)
    assert done.returncode == 3
    assert b"is not a seglog data directory" in done.stderr
    assert not (tmp_path / "gone").exists()


# ---------------------------------------------------------------- daemons


@pytest.mark.long
def test_seglog_toml_is_broken_while_a_daemon_runs(tmp_path: Path) -> None:
    """Somebody breaks seglog.toml while a daemon runs, and sends SIGHUP.

    Outcome: the daemon says why, and keeps all its settings. A bad value in one section changes no other.
    """
    filled(tmp_path / "data")
    with served(tmp_path / "data", (tmp_path / "remote").as_uri()) as daemon:
        for number, text in enumerate(BROKEN):
            settings(tmp_path / "data", text)
            daemon.process.send_signal(signal.SIGHUP)
            wait_until(lambda: sum("the settings stay as they are" in line for line in daemon.lines) > number)  # noqa: B023
            assert daemon.append("orders", LARGE) == 11 + number
        settings(tmp_path / "data", "")
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: any("settings taken from" in line for line in daemon.lines))
    assert values(tmp_path / "data") == [*numbered(10), *[LARGE] * len(BROKEN)]


def test_a_daemon_is_started_twice(tmp_path: Path) -> None:
    """Somebody starts a second daemon on one data directory.

    Outcome: the second one ends with exit code 4. The first one still serves, over its socket too.
    """
    filled(tmp_path / "data")
    with served(tmp_path / "data", (tmp_path / "remote").as_uri()) as daemon:
        done = program("serve", directory=tmp_path / "data")
        assert done.returncode == 4
        assert b"in use" in done.stderr
        assert daemon.append("orders", b"by http") == 11
        done = command("append", "orders", directory=tmp_path / "data", given=b"by the socket\n")
        assert done.returncode == 0, done.stderr
    assert values(tmp_path / "data") == [*numbered(10), b"by http", b"by the socket"]


def test_a_daemon_is_started_on_a_port_that_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody starts a daemon on a port that another program uses.

    Outcome: refused with exit code 2 and a hint. No record is lost, and the directory is free again.
    """
    filled(tmp_path / "data")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        monkeypatch.setenv("SEGLOG_SERVE_PORT", str(other.getsockname()[1]))
        done = program("serve", directory=tmp_path / "data")
    assert done.returncode == 2
    assert b"cannot listen on" in done.stderr
    assert values(tmp_path / "data") == numbered(10)


def test_a_command_names_another_directory_than_the_daemon(tmp_path: Path) -> None:
    """A daemon serves one data directory, and somebody appends with `-C` of another one.

    Outcome: nothing is lost. The command works on the directory that it names.
    """
    filled(tmp_path / "data")
    filled(tmp_path / "other", 3)
    with served(tmp_path / "data", (tmp_path / "remote").as_uri()) as daemon:
        done = command("append", "orders", directory=tmp_path / "other", given=b"theirs\n")
        assert done.returncode == 0, done.stderr
        assert daemon.append("orders", b"ours") == 11
    assert values(tmp_path / "data") == [*numbered(10), b"ours"]
    assert values(tmp_path / "other") == [*numbered(3), b"theirs"]


def test_a_killed_daemon_leaves_its_socket(tmp_path: Path) -> None:
    """A daemon is killed with SIGKILL, and its socket file stays in the data directory.

    Outcome: nothing acked is lost. Commands work on the directory themselves, and the next daemon starts.
    """
    filled(tmp_path / "data")
    remote = (tmp_path / "remote").as_uri()
    with served(tmp_path / "data", remote) as daemon:
        assert daemon.append("orders", b"acked") == 11
    assert [each for each in (tmp_path / "data").iterdir() if each.is_socket()] != []
    done = command("append", "orders", directory=tmp_path / "data", given=b"direct\n")
    assert done.returncode == 0, done.stderr
    with served(tmp_path / "data", remote) as daemon:
        assert daemon.append("orders", b"next") == 13
    assert values(tmp_path / "data") == [*numbered(10), b"acked", b"direct", b"next"]


def test_the_directory_of_a_daemon_is_copied_with_its_socket(tmp_path: Path) -> None:
    """Somebody makes a backup of a directory that a killed daemon left, without its socket, and opens the copy.

    Outcome: nothing acked is lost in either.
    """
    filled(tmp_path / "data")
    with served(tmp_path / "data", (tmp_path / "remote").as_uri()) as daemon:
        daemon.append("orders", b"acked")
    shutil.copytree(tmp_path / "data", tmp_path / "copy", ignore=shutil.ignore_patterns("*.sock"))
    for name in ("data", "copy"):
        assert values(tmp_path / name) == [*numbered(10), b"acked"]
