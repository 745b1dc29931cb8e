"""A directory or remote of a newer or older seglog is used."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

import catalog.errors
import offload
import offload.errors
import seglog
from offload import Archive
from seglog import FormatUnsupported, InvalidSetting, Log, Record
from seglog.format.frame import CHECKSUM, FrameType, encode
from tests.golden.make_seglog import OLD, SETTINGS
from tests.promises.mistakes.scene import filled, numbered, tree, values
from tests.seams.limits import Limit, set_limit
from tests.worlds.command import command

WAL = "wal/wal-0000000000000001.log"
UNKNOWN_TYPE = 200


@contextmanager
def attached(path: Path, remote: str) -> Iterator[tuple[Log, Archive]]:
    with seglog.open(path) as log, offload.attach(log, remote) as archive:
        yield log, archive


def ship(path: Path, remote: str, given: list[bytes]) -> None:
    with attached(path, remote) as (log, archive):
        log.topic("orders").append(given)
        log.topic("orders").seal()
        archive.offload("orders")


def killed(path: Path) -> list[bytes]:
    """The directory as a killed process leaves it, with ten acked records that no checkpoint has seen."""
    with seglog.open(path.with_name("live")) as log:
        log.topic("orders").append(numbered(10))
        shutil.copytree(path.with_name("live"), path)
    return numbered(10)


def refused(path: Path, place: Path) -> None:
    """Each way to open the directory, and `verify`, tells of another version and changes nothing."""
    before = tree(path)
    for call in (seglog.open, lambda path: seglog.open(path, read_only=True), seglog.verify):
        with pytest.raises(FormatUnsupported) as caught:
            call(path)
        assert caught.value.path == place
        assert caught.value.hint == "use the seglog version that wrote it, or a newer one"
    assert tree(path) == before


def newer_frame(*, kind: int = UNKNOWN_TYPE, flags: int = 0) -> bytes:
    """A whole, sound frame of a type or with flags that this version does not know."""
    frame = bytearray(encode(FrameType.APPEND, topic_id=1, seq=11, ts_ms=1, flags=0, data=b"from the future"))
    frame[4], frame[5] = kind, flags
    frame[-CHECKSUM.size :] = CHECKSUM.pack(xxh3_64_intdigest(bytes(frame[4 : -CHECKSUM.size])))
    return bytes(frame)


def put_behind(path: Path, piece: bytes) -> None:
    """`piece` behind the last frame of the WAL file, in the space that is reserved."""
    whole = path.read_bytes()
    position = 0
    while length := int.from_bytes(whole[position : position + 4], "little"):
        position += 4 + length
    path.write_bytes(whole[:position] + piece + whole[position + len(piece) :])


def test_a_snapshot_is_of_a_newer_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer seglog wrote the newest manifest, and an older one is in use again.

    Outcome: refused with `FormatUnsupported`; it does not fall back to the older manifest.
    """
    filled(tmp_path / "data")
    with monkeypatch.context() as newer, seglog.open(tmp_path / "data") as log:
        set_limit(newer, Limit.MANIFEST_FORMAT, 6)
        log.topic("orders").append([b"from the future"])
        log.checkpoint()
        newest = sorted((tmp_path / "data/meta").glob("snapshot.*"))[-1]
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
    refused(tmp_path / "copy", tmp_path / "copy/meta" / newest.name)


def test_a_newer_directory_is_read_by_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody runs `seglog read` in a directory that a newer seglog wrote.

    Outcome: refused with exit code 1; the message says which version the manifest has, and what to do.
    """
    with monkeypatch.context() as newer:
        set_limit(newer, Limit.MANIFEST_FORMAT, 6)
        filled(tmp_path / "data")
    before = tree(tmp_path / "data")
    done = command("read", "orders", directory=tmp_path / "data")
    assert done.returncode == 1
    assert b"format version 6" in done.stderr
    assert b"Use the seglog version that wrote it" in done.stderr
    assert b"Traceback" not in done.stderr
    assert tree(tmp_path / "data") == before


def test_the_wal_ends_with_a_frame_of_a_newer_version(tmp_path: Path) -> None:
    """A newer seglog was killed right after it wrote a frame of a type that is unknown here.

    Outcome: refused with `FormatUnsupported`; the frame is not taken for a torn write and cut.
    """
    killed(tmp_path / "data")
    put_behind(tmp_path / "data" / WAL, newer_frame())
    refused(tmp_path / "data", tmp_path / "data" / WAL)


def test_the_wal_ends_with_a_flag_of_a_newer_version(tmp_path: Path) -> None:
    """A newer seglog was killed right after it appended a record with a flag that is unknown here.

    Outcome: refused with `FormatUnsupported`; the record is not taken for a torn write and cut.
    """
    killed(tmp_path / "data")
    put_behind(tmp_path / "data" / WAL, newer_frame(kind=FrameType.APPEND, flags=128))
    refused(tmp_path / "data", tmp_path / "data" / WAL)


def test_the_wal_has_frames_of_a_newer_version_in_between(tmp_path: Path) -> None:
    """A newer seglog wrote a frame of an unknown type, and more behind it, before it was killed.

    Outcome: refused with `FormatUnsupported`.
    """
    killed(tmp_path / "data")
    behind = encode(FrameType.SYNC_MARK, topic_id=1, seq=0, ts_ms=0)
    put_behind(tmp_path / "data" / WAL, newer_frame() + behind)
    refused(tmp_path / "data", tmp_path / "data" / WAL)


def test_seglog_toml_has_a_setting_of_a_newer_version(tmp_path: Path) -> None:
    """A newer seglog wrote a setting into seglog.toml that is unknown here.

    Outcome: refused with `InvalidSetting`, which names the setting. Without it, all records are there.
    """
    wanted = filled(tmp_path / "data")
    (tmp_path / "data/seglog.toml").write_text("[log]\nfrom_the_future = 1\n")
    before = tree(tmp_path / "data")
    with pytest.raises(InvalidSetting, match="from_the_future"):
        seglog.open(tmp_path / "data")
    assert tree(tmp_path / "data") == before
    (tmp_path / "data/seglog.toml").unlink()
    assert values(tmp_path / "data") == wanted


def test_catalog_db_is_of_a_newer_version(tmp_path: Path) -> None:
    """A newer seglog made catalog.db.

    Outcome: refused with `FormatUnsupported`, which names the file; the log opens without its remote.
    """
    remote = (tmp_path / "remote").as_uri()
    ship(tmp_path / "data", remote, numbered(5))
    with closing(sqlite3.connect(tmp_path / "data/catalog.db")) as database:
        database.execute("PRAGMA user_version = 99")
        database.commit()
    before = tree(tmp_path)
    with pytest.raises(catalog.errors.FormatUnsupported, match=r"catalog\.db"), attached(tmp_path / "data", remote):
        pass
    after = tree(tmp_path)
    assert {name: body for name, body in after.items() if "catalog.db" not in name} == {
        name: body for name, body in before.items() if "catalog.db" not in name
    }
    assert values(tmp_path / "data") == numbered(5)


def test_a_remote_is_of_a_newer_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer seglog made the remote, and an older one offloads a topic of the same name to it.

    Outcome: refused with `FormatUnsupported`; nothing in the remote changes, and the records stay here.
    """
    remote = (tmp_path / "remote").as_uri()
    with monkeypatch.context() as newer:
        newer.setattr("catalog.format.envelope.MAGIC", b"SGL9")
        ship(tmp_path / "newer", remote, numbered(5))
    before = tree(tmp_path / "remote")
    with pytest.raises(catalog.errors.FormatUnsupported):
        ship(tmp_path / "data", remote, numbered(3))
    assert tree(tmp_path / "remote") == before
    assert values(tmp_path / "data") == numbered(3)


def test_a_newer_remote_is_recovered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer seglog made the remote, and an older one recovers it into a new directory.

    Outcome: the topic fails with `FormatUnsupported`; nothing in the remote changes.
    """
    remote = (tmp_path / "remote").as_uri()
    with monkeypatch.context() as newer:
        newer.setattr("catalog.format.envelope.MAGIC", b"SGL9")
        ship(tmp_path / "newer", remote, numbered(5))
    before = tree(tmp_path / "remote")
    try:
        [failed] = offload.recover(tmp_path / "data", remote)
        error = failed.error
    except catalog.errors.CatalogError as raised:
        error = raised
    assert isinstance(error, catalog.errors.FormatUnsupported)
    assert tree(tmp_path / "remote") == before


def test_a_commit_is_of_a_newer_version(tmp_path: Path) -> None:
    """A newer seglog took the topic over and committed, and the older writer offloads.

    Outcome: refused with `FormatUnsupported`, which names the commit; nothing in the remote changes.
    """
    remote = (tmp_path / "remote").as_uri()
    ship(tmp_path / "data", remote, numbered(5))
    shutil.copytree(tmp_path / "data", tmp_path / "newer")
    ship(tmp_path / "newer", remote, [b"from the future"])
    commit = min((tmp_path / "remote").glob("*/log/*"))  # the newest is listed first
    commit.write_bytes(b"SGL9" + commit.read_bytes()[4:])
    before = tree(tmp_path / "remote")
    with pytest.raises(catalog.errors.FormatUnsupported, match=commit.name):
        ship(tmp_path / "data", remote, [b"late"])
    after = tree(tmp_path / "remote")
    assert {name: after[name] for name in before} == before
    assert values(tmp_path / "data") == [*numbered(5), b"late"]


def test_an_index_object_is_of_a_newer_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer seglog made index objects of a version that is unknown here, and an older one reads them.

    Outcome: refused with `FormatUnsupported`, which names the version; nothing in the remote changes.
    """
    remote = (tmp_path / "remote").as_uri()
    with monkeypatch.context() as newer:
        newer.setattr("offload.format.metadata.VERSION", 2)
        ship(tmp_path / "newer", remote, numbered(5))
    before = tree(tmp_path / "remote")
    with attached(tmp_path / "data", remote) as (_, archive):
        archive.replication.sync("orders")
        with pytest.raises(offload.errors.FormatUnsupported, match="version 2"):
            [*archive.read("orders")]
    assert tree(tmp_path / "remote") == before


def test_an_older_directory_is_opened(tmp_path: Path) -> None:
    """Somebody opens a directory that an older seglog wrote, whose process was killed, and appends to it.

    Outcome: nothing is lost. Every record is there, and new ones follow.
    """
    shutil.copytree(OLD, tmp_path / "data")
    assert seglog.verify(tmp_path / "data", settings=SETTINGS).is_sound
    with seglog.open(tmp_path / "data", settings=SETTINGS, read_only=True) as log:
        before = held(log)
    assert {name: len(found) for name, found in before.items()} == {"orders@fix": 5, "plain": 6}
    assert tree(tmp_path / "data") == tree(OLD)
    with seglog.open(tmp_path / "data", settings=SETTINGS) as log:
        log.topic("plain").append([b"new"])
    with seglog.open(tmp_path / "data", settings=SETTINGS) as log:
        assert held(log) == {**before, "plain": [*before["plain"], b"new"]}


def held(log: Log) -> dict[str, list[bytes]]:
    """The values of each topic, from its first own seq on, without the ephemeral ones that it tells as lost."""
    topics = [log.topic(name) for name in log.topics()]
    items = {topic.name: topic.read(topic.first_seq, gaps=True) for topic in topics}
    return {name: [each.value for each in found if isinstance(each, Record)] for name, found in items.items()}
