"""Files of the data directory are removed, cut, swapped, or edited by hand."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import seglog
from seglog import FileCorrupt, NotADataDirectory
from tests.promises.mistakes.scene import filled, numbered, tree, values
from tests.worlds.command import command

WAL = "wal/wal-0000000000000001.log"


def killed(path: Path, *, seal: bool = False) -> list[bytes]:
    """The directory as a killed process leaves it, with ten acked records; ten more behind them after a seal."""
    live = path.with_name("live")
    with seglog.open(live) as log:
        log.topic("orders").append(numbered(10))
        if seal:
            log.topic("orders").seal()
            log.topic("orders").append(numbered(10, first=11))
        shutil.copytree(live, path)
    return numbered(20 if seal else 10)


def refused(path: Path, place: Path) -> None:
    """Each way to open the directory, and `verify`, tells of damage at `place` and changes nothing."""
    before = tree(path)
    for read_only in (False, True):
        with pytest.raises(FileCorrupt) as caught:
            seglog.open(path, read_only=read_only)
        assert caught.value.path == place
    assert place in {damage.path for damage in seglog.verify(path).damages}
    assert tree(path) == before


def comes_back(path: Path, place: Path, wanted: list[bytes]) -> None:
    """`place` is moved away, which is refused, and put back, which heals the directory."""
    aside = path.with_name("aside")
    place.rename(aside)
    refused(path, place)
    aside.rename(place)
    assert values(path) == wanted


def test_the_wal_folder_is_removed(tmp_path: Path) -> None:
    """Somebody removes the folder wal/ of a log whose process was killed.

    Outcome: refused with `FileCorrupt`, which names the folder. Once it is back, all records are.
    """
    comes_back(tmp_path / "data", tmp_path / "data/wal", killed(tmp_path / "data"))


def test_the_meta_folder_is_removed(tmp_path: Path) -> None:
    """Somebody removes the folder meta/.

    Outcome: refused with `FileCorrupt`, which names the folder. Once it is back, all records are.
    """
    comes_back(tmp_path / "data", tmp_path / "data/meta", killed(tmp_path / "data", seal=True))


def test_the_topics_folder_is_removed(tmp_path: Path) -> None:
    """Somebody removes the folder topics/.

    Outcome: refused with `FileCorrupt`, which names the folder. Once it is back, all records are.
    """
    comes_back(tmp_path / "data", tmp_path / "data/topics", killed(tmp_path / "data", seal=True))


def test_the_content_of_the_wal_folder_is_removed(tmp_path: Path) -> None:
    """Somebody empties the folder wal/ of a log that no checkpoint has seen yet.

    Outcome: refused with `FileCorrupt`; no empty log is made in its place.
    """
    killed(tmp_path / "data")
    for path in (tmp_path / "data/wal").iterdir():
        path.unlink()
    refused(tmp_path / "data", tmp_path / "data/wal/CURRENT")


def test_a_wal_file_is_removed(tmp_path: Path) -> None:
    """Somebody removes the active WAL file to free space.

    Outcome: refused with `FileCorrupt`, which names CURRENT. Once the file is back, all records are.
    """
    wanted = killed(tmp_path / "data")
    (tmp_path / "data" / WAL).rename(tmp_path / "aside")
    refused(tmp_path / "data", tmp_path / "data/wal/CURRENT")
    (tmp_path / "aside").rename(tmp_path / "data" / WAL)
    assert values(tmp_path / "data") == wanted


def test_current_is_removed(tmp_path: Path) -> None:
    """Somebody removes wal/CURRENT.

    Outcome: refused with `FileCorrupt`, which names it; it is not taken for a new directory.
    """
    comes_back(tmp_path / "data", tmp_path / "data/wal/CURRENT", killed(tmp_path / "data"))


def test_current_is_emptied(tmp_path: Path) -> None:
    """Somebody empties wal/CURRENT.

    Outcome: refused with `FileCorrupt`, which names it.
    """
    killed(tmp_path / "data")
    (tmp_path / "data/wal/CURRENT").write_bytes(b"")
    refused(tmp_path / "data", tmp_path / "data/wal/CURRENT")


def test_current_is_edited(tmp_path: Path) -> None:
    """Somebody lets wal/CURRENT name a WAL file that is not there.

    Outcome: refused with `FileCorrupt`, which names CURRENT.
    """
    killed(tmp_path / "data")
    (tmp_path / "data/wal/CURRENT").write_bytes(b"wal-0000000000000009.log\n")
    refused(tmp_path / "data", tmp_path / "data/wal/CURRENT")


def test_a_file_stands_where_a_folder_should(tmp_path: Path) -> None:
    """A program opens a log in a folder that has a file named wal.

    Outcome: refused with `NotADataDirectory`; the file keeps its bytes.
    """
    (tmp_path / "data").mkdir()
    (tmp_path / "data/wal").write_bytes(b"precious")
    with pytest.raises(NotADataDirectory):
        seglog.open(tmp_path / "data")
    assert (tmp_path / "data/wal").read_bytes() == b"precious"


def test_the_newest_snapshot_is_removed(tmp_path: Path) -> None:
    """Somebody removes the newest manifest, and leaves the older one.

    Outcome: nothing is lost. The WAL still has what came after the older manifest.
    """
    wanted = killed(tmp_path / "data", seal=True)
    sorted((tmp_path / "data/meta").glob("snapshot.*"))[-1].unlink()
    assert values(tmp_path / "data") == wanted


def test_all_snapshots_are_removed(tmp_path: Path) -> None:
    """Somebody removes all files in meta/.

    Outcome: refused with `FileCorrupt`, which names the folder.
    """
    killed(tmp_path / "data", seal=True)
    for path in (tmp_path / "data/meta").glob("snapshot.*"):
        path.unlink()
    refused(tmp_path / "data", tmp_path / "data/meta")


def test_the_wal_file_is_cut_after_a_crash(tmp_path: Path) -> None:
    """A process is killed, and somebody cuts the WAL file to 200 bytes to free space.

    Outcome: refused with `FileCorrupt`, which says that the file was cut; it is not taken for a torn write.
    """
    killed(tmp_path / "data")
    os.truncate(tmp_path / "data" / WAL, 200)
    refused(tmp_path / "data", tmp_path / "data" / WAL)


def test_the_wal_file_is_emptied_behind_a_checkpoint(tmp_path: Path) -> None:
    """A process is killed, and somebody empties the WAL file that a checkpoint has seen.

    Outcome: refused with `FileCorrupt`, which says how long the file was at the checkpoint.
    """
    killed(tmp_path / "data", seal=True)
    os.truncate(tmp_path / "data" / WAL, 0)
    refused(tmp_path / "data", tmp_path / "data" / WAL)


def test_the_wal_folder_is_restored_from_an_older_backup(tmp_path: Path) -> None:
    """An operator restores wal/ from an older backup, and nothing else.

    Outcome: refused with `FileCorrupt`, which names the WAL file. With the right folder all records are there.
    """
    filled(tmp_path / "data")
    shutil.copytree(tmp_path / "data/wal", tmp_path / "backup")
    with seglog.open(tmp_path / "data") as log:
        log.topic("orders").append(numbered(10, first=11))
    (tmp_path / "data/wal").rename(tmp_path / "aside")
    shutil.copytree(tmp_path / "backup", tmp_path / "data/wal")
    refused(tmp_path / "data", tmp_path / "data" / WAL)
    shutil.rmtree(tmp_path / "data/wal")
    (tmp_path / "aside").rename(tmp_path / "data/wal")
    assert values(tmp_path / "data") == numbered(20)


def segments(path: Path) -> list[bytes]:
    """Two topics, each with two sealed segments of ten records."""
    with seglog.open(path) as log:
        for first in (1, 11):
            for name in ("orders", "other"):
                log.topic(name).append(numbered(10, first))
                log.topic(name).seal()
    return numbered(20)


def part(path: Path, first_seq: int, kind: str, topic_id: int = 1) -> Path:
    return path / f"topics/{topic_id:08X}/seg-{first_seq:016d}.{kind}"


def told(path: Path, place: Path) -> None:
    """Assert that a reader gets damage at `place`, reads every other segment, and that no byte changes."""
    before = tree(path / "topics")
    found: list[bytes] = []
    with pytest.raises(FileCorrupt) as caught, seglog.open(path, read_only=True) as log:
        found.extend(record.value for record in log.topic("orders").read())
    assert caught.value.path.with_suffix("") == place.with_suffix("")
    assert found == numbered(20)[: len(found)]
    with pytest.raises(FileCorrupt):
        values(path)
    assert place.with_suffix("") in {damage.path.with_suffix("") for damage in seglog.verify(path).damages}
    assert tree(path / "topics") == before
    assert values(path, "other") == numbered(20)


def test_the_data_file_of_a_segment_is_removed(tmp_path: Path) -> None:
    """Somebody removes the .data file of a segment.

    Outcome: refused with `FileCorrupt`, which names the file. Once it is back, all records are.
    """
    wanted = segments(tmp_path / "data")
    comes_back(tmp_path / "data", part(tmp_path / "data", 1, "data"), wanted)


def test_the_index_file_of_a_segment_is_removed(tmp_path: Path) -> None:
    """Somebody removes the .idx file of a segment.

    Outcome: refused with `FileCorrupt`, which names the file. Once it is back, all records are.
    """
    wanted = segments(tmp_path / "data")
    comes_back(tmp_path / "data", part(tmp_path / "data", 11, "idx"), wanted)


def test_a_segment_is_removed(tmp_path: Path) -> None:
    """Somebody removes both files of the oldest segment, instead of deleting its records.

    Outcome: refused with `FileCorrupt`, which names the segment.
    """
    segments(tmp_path / "data")
    for kind in ("data", "idx"):
        part(tmp_path / "data", 1, kind).unlink()
    refused(tmp_path / "data", part(tmp_path / "data", 1, "data"))


def test_the_folder_of_a_topic_is_removed(tmp_path: Path) -> None:
    """Somebody removes the folder of a topic, instead of the topic.

    Outcome: refused with `FileCorrupt`, which names the first segment. Once the folder is back, all records are.
    """
    wanted = segments(tmp_path / "data")
    folder = part(tmp_path / "data", 1, "data").parent
    folder.rename(tmp_path / "aside")
    refused(tmp_path / "data", part(tmp_path / "data", 1, "data"))
    (tmp_path / "aside").rename(folder)
    assert values(tmp_path / "data") == wanted


def test_the_tags_file_of_a_segment_is_removed(tmp_path: Path) -> None:
    """Somebody removes the .tags file of a segment.

    Outcome: nothing is lost. The file is made again when it is needed.
    """
    with seglog.open(tmp_path / "data") as log:
        log.topic("orders").append(numbered(10), tag="eu")
        log.topic("orders").append(numbered(10, first=11), tag="us")
        log.topic("orders").seal()
    part(tmp_path / "data", 1, "tags").unlink()
    with seglog.open(tmp_path / "data") as log:
        log.topic("orders").delete(tag="eu")
    assert values(tmp_path / "data") == numbered(10, first=11)


def test_the_data_file_of_a_segment_is_cut(tmp_path: Path) -> None:
    """Somebody cuts the .data file of a segment.

    Outcome: a reader gets `FileCorrupt`, after the records before it; the other topic is readable.
    """
    segments(tmp_path / "data")
    os.truncate(part(tmp_path / "data", 11, "data"), 100)
    told(tmp_path / "data", part(tmp_path / "data", 11, "data"))


def test_the_index_file_of_a_segment_is_cut(tmp_path: Path) -> None:
    """Somebody empties the .idx file of a segment.

    Outcome: a reader gets `FileCorrupt`, after the records before it; the other topic is readable.
    """
    segments(tmp_path / "data")
    os.truncate(part(tmp_path / "data", 11, "idx"), 0)
    told(tmp_path / "data", part(tmp_path / "data", 11, "idx"))


def test_a_segment_is_edited(tmp_path: Path) -> None:
    """Somebody changes a record in a .data file with an editor.

    Outcome: a reader gets `FileCorrupt`; the changed record is never shown.
    """
    segments(tmp_path / "data")
    place = part(tmp_path / "data", 11, "data")
    place.write_bytes(place.read_bytes().replace(b"record 15", b"RECORD 15"))
    told(tmp_path / "data", place)


def test_two_segments_are_swapped(tmp_path: Path) -> None:
    """Somebody swaps the names of two segments of a topic.

    Outcome: a reader gets `FileCorrupt`; no record is shown under the seq of another.
    """
    segments(tmp_path / "data")
    for kind in ("data", "idx"):
        one, two = part(tmp_path / "data", 1, kind), part(tmp_path / "data", 11, kind)
        one.rename(tmp_path / "aside")
        two.rename(one)
        (tmp_path / "aside").rename(two)
    told(tmp_path / "data", part(tmp_path / "data", 1, "data"))


def test_a_segment_of_another_topic_is_put_in(tmp_path: Path) -> None:
    """Somebody copies both files of a segment of one topic over those of another topic.

    Outcome: a reader gets `FileCorrupt`; no record of the other topic is shown.
    """
    with seglog.open(tmp_path / "data") as log:
        for name in ("orders", "other"):
            log.topic(name).append([f"{name} {number:02}".encode() for number in range(10)])
            log.topic(name).seal()
    for kind in ("data", "idx"):
        shutil.copy(part(tmp_path / "data", 1, kind, topic_id=2), part(tmp_path / "data", 1, kind))
    before = tree(tmp_path / "data/topics")
    with pytest.raises(FileCorrupt):
        values(tmp_path / "data")
    assert seglog.verify(tmp_path / "data").damages
    assert tree(tmp_path / "data/topics") == before
    assert values(tmp_path / "data", "other") == [b"other %02d" % number for number in range(10)]


def test_a_segment_is_copied_over_its_neighbour(tmp_path: Path) -> None:
    """Somebody runs `cp` with one .data file as the source and its neighbour as the target.

    Outcome: a reader gets `FileCorrupt`; the segment that was the source is readable.
    """
    segments(tmp_path / "data")
    shutil.copy(part(tmp_path / "data", 1, "data"), part(tmp_path / "data", 11, "data"))
    told(tmp_path / "data", part(tmp_path / "data", 11, "data"))


def test_stray_files_lie_everywhere(tmp_path: Path) -> None:
    """Somebody leaves notes, folders and copies of files in every folder of the data directory.

    Outcome: nothing is lost, and the files keep their bytes.
    """
    wanted = segments(tmp_path / "data")
    folders = [path for path in (tmp_path / "data", *(tmp_path / "data").rglob("*")) if path.is_dir()]
    for path in [path for path in (tmp_path / "data").rglob("*") if path.is_file()]:
        shutil.copy(path, f"{path}.bak")
    for folder in folders:
        (folder / ".DS_Store").write_bytes(b"theirs")
        (folder / "notes").mkdir()
    strays = {name: body for name, body in tree(tmp_path / "data").items() if name.endswith((".bak", ".DS_Store"))}
    assert values(tmp_path / "data") == wanted
    assert seglog.verify(tmp_path / "data").is_sound
    assert {name: tree(tmp_path / "data")[name] for name in strays} == strays


def test_lock_is_edited(tmp_path: Path) -> None:
    """Somebody writes other bytes into LOCK while no program has the directory open.

    Outcome: nothing is lost. The file is locked, and its text is for people only.
    """
    wanted = filled(tmp_path / "data")
    (tmp_path / "data/LOCK").write_bytes(b"\xff\xfe nonsense")
    assert values(tmp_path / "data") == wanted


def test_seglog_toml_is_removed(tmp_path: Path) -> None:
    """Somebody removes seglog.toml, which made segments small.

    Outcome: nothing is lost. The default settings are in force.
    """
    (tmp_path / "data").mkdir()
    (tmp_path / "data/seglog.toml").write_text("[log]\nsegment_max_events = 4\nwal_file_bytes = 65536\n")
    wanted = filled(tmp_path / "data")
    (tmp_path / "data/seglog.toml").unlink()
    assert values(tmp_path / "data") == wanted


def test_a_damaged_directory_is_opened_by_the_command_line(tmp_path: Path) -> None:
    """Somebody removes the folder topics/ and runs `seglog read`.

    Outcome: refused with exit code 5; the message names the folder and says what to do.
    """
    killed(tmp_path / "data", seal=True)
    shutil.rmtree(tmp_path / "data/topics")
    done = command("read", "orders", directory=tmp_path / "data")
    assert done.returncode == 5
    assert str(tmp_path / "data/topics").encode() in done.stderr
    assert b"restore" in done.stderr
    assert b"Traceback" not in done.stderr
