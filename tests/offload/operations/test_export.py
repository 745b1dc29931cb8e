"""Test an export: whatever stops it, a second run ends with the same bytes, of the same state."""

from __future__ import annotations

import errno
import json
import types
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from catalog.errors import CatalogError
from catalog.objects.memory import MemoryStore
from offload.archive import Archive
from offload.errors import ExportOutdated
from offload.operations import export as use
from offload.operations.command import COMMANDS, Directory
from offload.operations.export import ExportRequest, ExportVerified
from offload.operations.export_directory import MANIFEST, Exported
from offload.operations.export_directory import opened as opened_export
from offload.operations.export_forms import Form
from offload.operations.export_state import ExportBegun, Source
from offload.operations.result_json import PartlyDone
from seglog import Log, NotInstalled, OsFiles, TopicConfig
from seglog.errors import Conflict, Corrupt, DirectoryInUse
from seglog.files.file_system import Files
from tests.faults.files import CrashingFiles, FailingFiles, SimulatedCrash, UnsyncedFiles
from tests.faults.store import Fault, FaultyStore, unreachable
from tests.offload.replicas import opened, ship
from tests.worlds.clock import HandClock

VALUES = [b"record %d" % number for number in range(1, 31)]
LINES = ExportRequest("t", None, Form.RAW, 60)


def _nothing(_path: str, _values: Mapping[str, Any]) -> None:
    pass


class Calls:
    """The commands on an open data directory. `before` is called before each one. With `locked`, no command writes."""

    def __init__(self, log: Log, archive: Archive | None) -> None:
        self.before: Any = _nothing
        self.locked = False
        self.remarks: list[str] = []
        host: Any = types.SimpleNamespace(takes_lines=False)
        self.place = Directory(lambda: (log, archive), host)

    def __call__(self, path: str, values: Mapping[str, Any]) -> Iterator[Any]:
        command = COMMANDS[path]
        given = command.arguments(values)
        self.before(path, given)
        if self.locked and not command.reads(given):
            raise DirectoryInUse(self.place.log.path, "another")
        if command.works_on is Directory:
            return command.run(self.place, given)
        return command.run(self.place.archive if command.works_on is Archive else self.place.log, given)

    def run(self, directory: Path, wanted: ExportRequest = LINES, files: Files | None = None) -> list[Any]:
        source = Source(self, wanted.name, self.remarks.append)
        return list(use.export(source, files or UnsyncedFiles(), directory, wanted, lambda _seq, _last: None))


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def calls(tmp_path: Path, store: MemoryStore) -> Iterator[Calls]:
    """Two offloads of 15 records each."""
    with opened(tmp_path / "data", store) as (log, archive):
        ship(archive, log, "t", *VALUES[:15])
        ship(archive, log, "t", *VALUES[15:])
        yield Calls(log, archive)


def _bytes(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.glob("seqs-*")))


def _contents(directory: Path) -> dict[str, bytes]:
    """Return the files, without the pins of the manifest, which differ."""
    found = {path.name: path.read_bytes() for path in directory.iterdir()}
    lines = [json.loads(line) for line in found.pop(MANIFEST).splitlines()]
    kept = [{**line, "pin": None, "directory": ""} for line in lines]
    firsts = [line for line in kept if line["kind"] == "export_begun"][:1]
    found[MANIFEST] = json.dumps(firsts + [line for line in kept if line["kind"] != "export_begun"]).encode()
    return found


def _live_pins(archive: Archive) -> int:
    return sum(not pin.is_expired for pin in archive.pins.list())


@pytest.fixture
def archive(calls: Calls) -> Archive:
    return calls.place.archive


@pytest.mark.parametrize("nth", range(1, 6))
@pytest.mark.parametrize("offloads", [False, True])
def test_a_delete_before_any_call_takes_no_record_of_the_state_in_the_manifest(
    calls: Calls, archive: Archive, tmp_path: Path, nth: int, *, offloads: bool
) -> None:
    """Another client of the daemon deletes, once."""
    left = nth

    def before(_path: str, _values: Mapping[str, Any]) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            archive.delete("t", before=8)
            if offloads:
                archive.offload("t")

    calls.before = before
    begun, *_, total = calls.run(tmp_path / "out")
    assert left <= 0
    if begun.lsn is None:
        assert (begun.first_seq, total.records) == (8, 23)
    else:
        assert total.records == len(list(archive.read("t", at=f"lsn:{begun.lsn}"))) == 31 - begun.first_seq
    assert _live_pins(archive) == 0


def test_what_is_past_the_ttl_is_left_out_without_a_target(tmp_path: Path, store: MemoryStore) -> None:
    clock = HandClock(1_000)
    with opened(tmp_path / "data", store, clock) as (log, archive):
        log.create_topic("t", TopicConfig(ttl_ms=100))
        ship(archive, log, "t", *VALUES[:3])
        clock.ms += 101
        ship(archive, log, "t", *VALUES[3:5])
        calls = Calls(log, archive)
        assert [(each.lsn, each.first_seq) for each in calls.run(tmp_path / "out")[:1]] == [(3, 4)]
        assert _bytes(tmp_path / "out") == b"".join(value + b"\n" for value in VALUES[3:5])
        assert calls.run(tmp_path / "all", ExportRequest("t", "lsn:3", Form.RAW, 60))[-1].records == 5


def test_the_files_hold_all_records_and_the_manifest_lists_them(calls: Calls, archive: Archive, tmp_path: Path) -> None:
    begun, *parts, total = calls.run(tmp_path / "out")
    assert isinstance(begun, ExportBegun)
    assert (begun.topic, begun.branch, begun.target, begun.lsn, begun.first_seq, begun.last_seq) == (
        "t", "main", None, 2, 1, 30,
    )  # fmt: skip
    assert begun.hash == archive.history.commit("t", "head").hash.hex()
    assert isinstance(total, Exported)
    assert (total.records, total.parts, total.bytes) == (30, len(parts), sum(map(len, VALUES)) + 30)
    assert len(parts) > 3
    assert all(60 <= part.bytes < 80 for part in parts[:-1])
    assert _bytes(tmp_path / "out") == b"".join(value + b"\n" for value in VALUES)
    assert _live_pins(archive) == 0
    assert [each.is_whole for each in use.verify(OsFiles(), tmp_path / "out", "t")] == [True]
    assert calls.run(tmp_path / "out") == [begun, total]


@pytest.mark.parametrize(("form", "part_bytes", "every"), [("raw", 110, 1), ("jsonl", 900, 7), ("parquet", 500, 7)])
def test_a_crash_at_any_effect_and_a_second_run_end_with_the_same_bytes(
    calls: Calls, tmp_path: Path, form: str, part_bytes: int, every: int
) -> None:
    wanted = ExportRequest("t", None, Form(form), part_bytes)
    whole = tmp_path / "whole"
    counted = CrashingFiles(UnsyncedFiles(), 0)
    calls.run(whole, wanted, counted)
    for at in range(1, counted.effects + 1, every):
        directory = tmp_path / f"out-{at}"
        with suppress(SimulatedCrash):
            calls.run(directory, wanted, CrashingFiles(UnsyncedFiles(), at, tear=bool(at % 2)))
        calls.run(directory, wanted)
        assert _contents(directory) == _contents(whole), at


def test_gc_keeps_the_state_of_an_export_that_was_stopped(calls: Calls, archive: Archive, tmp_path: Path) -> None:
    with pytest.raises(SimulatedCrash):
        calls.run(tmp_path / "out", files=CrashingFiles(UnsyncedFiles(), 22))
    calls.locked = True
    with pytest.raises(SimulatedCrash):
        calls.run(tmp_path / "unpinned", files=CrashingFiles(UnsyncedFiles(), 22))
    archive.evict("t", 31)

    def collect() -> None:
        for _ in range(3):
            assert not archive.upkeep.collect(retain_s=0, grace_s=0).blocked

    collect()
    calls.run(tmp_path / "out")
    assert _bytes(tmp_path / "out") == b"".join(value + b"\n" for value in VALUES)
    calls.locked = False
    collect()
    with pytest.raises(ExportOutdated, match="lsn 2 is no longer kept"):
        calls.run(tmp_path / "unpinned")


def test_a_run_that_continues_keeps_its_state_whatever_the_topic_became(
    calls: Calls, archive: Archive, tmp_path: Path
) -> None:
    files = CrashingFiles(UnsyncedFiles(), 22)
    with pytest.raises(SimulatedCrash):
        calls.run(tmp_path / "out", files=files)
    assert _live_pins(archive) == 1
    archive.delete("t", before=12)
    archive.evict("t", 20)
    archive.truncate("t", 25)
    ship(archive, calls.place.log, "t", b"other", b"records")
    assert calls.run(tmp_path / "out")[0].lsn == 2
    assert _bytes(tmp_path / "out") == b"".join(value + b"\n" for value in VALUES)
    assert _live_pins(archive) == 0


@pytest.mark.parametrize("has_pin", [True, False])
def test_an_eviction_that_meets_an_export_leaves_it_as_it_was_before(
    calls: Calls, archive: Archive, tmp_path: Path, has_pin: bool
) -> None:
    calls.locked = not has_pin

    def evict(path: str, values: Mapping[str, Any]) -> None:
        if path == "read" and values["limit"] is None:
            calls.place.log.topic("t")
            archive.evict("t", 20)
            archive.release("t", at_once=True)

    calls.before = evict
    calls.run(tmp_path / "out")
    assert _bytes(tmp_path / "out") == b"".join(value + b"\n" for value in VALUES)
    assert next(archive.read("t")).seq == 20
    assert ("no lease holds head of t" in "".join(calls.remarks)) is not has_pin


def test_an_eviction_of_records_that_only_the_log_has_ends_the_export(tmp_path: Path) -> None:
    with opened(tmp_path / "data", MemoryStore()) as (log, archive):
        topic = archive.open_for_append("t")
        topic.append(VALUES)
        calls = Calls(log, None)

        def evict(path: str, values: Mapping[str, Any]) -> None:
            if path == "read" and values["limit"] is None:
                topic.seal()
                topic.evict(20)

        calls.before = evict
        with pytest.raises(ExportOutdated, match="evicted"):
            calls.run(tmp_path / "out")
        calls.before = _nothing
        with pytest.raises(ExportOutdated, match="evicted"):
            calls.run(tmp_path / "out")
        assert calls.run(tmp_path / "new")[-1].records == 11


def test_records_that_no_commit_has_are_exported_and_continued(calls: Calls, tmp_path: Path) -> None:
    log = calls.place.log
    log.topic("t").append([b"tail"])
    with pytest.raises(SimulatedCrash):
        calls.run(tmp_path / "out", files=CrashingFiles(UnsyncedFiles(), 22))
    log.topic("t").append([b"later"])
    begun, *_, total = calls.run(tmp_path / "out")
    assert (begun.lsn, begun.last_seq, total.records) == (None, 31, 31)
    assert _bytes(tmp_path / "out").endswith(b"\nrecord 30\ntail\n")
    log.topic("t").append([b"x"])
    with pytest.raises(SimulatedCrash):
        calls.run(tmp_path / "cut", files=CrashingFiles(UnsyncedFiles(), 22))
    log.topic("t").truncate(32)
    with pytest.raises(ExportOutdated, match="truncated"):
        calls.run(tmp_path / "cut")


def test_a_lease_that_has_ended_is_made_again_for_the_same_commit_only(
    calls: Calls, archive: Archive, tmp_path: Path
) -> None:
    for name in ("out", "gone"):
        with pytest.raises(SimulatedCrash):
            calls.run(tmp_path / name, files=CrashingFiles(UnsyncedFiles(), 22))
    for pin in list(archive.pins.list()):
        archive.pins.release(pin.held.name)
    archive.delete("t", before=12)
    calls.run(tmp_path / "out")
    assert _bytes(tmp_path / "out") == b"".join(value + b"\n" for value in VALUES)
    manifest = tmp_path / "gone" / MANIFEST
    manifest.write_text(manifest.read_text().replace('"lsn": 2', '"lsn": 3'))
    with pytest.raises(ExportOutdated, match="lsn 3 is no longer kept"):
        calls.run(tmp_path / "gone")
    assert _live_pins(archive) == 0


def test_an_export_of_something_else_is_refused_by_name(calls: Calls, archive: Archive, tmp_path: Path) -> None:
    log = calls.place.log
    ship(archive, log, "u", b"x")
    with pytest.raises(SimulatedCrash):
        calls.run(tmp_path / "out", files=CrashingFiles(UnsyncedFiles(), 22))
    before = _contents(tmp_path / "out")
    for wanted, told in (
        (ExportRequest("u", None, Form.RAW, 60), "export of t, and this command asks for u"),
        (ExportRequest("t", None, Form.JSONL, 60), "format raw, and this command asks for --format jsonl"),
        (ExportRequest("t", None, Form.RAW, 61), "--part-bytes 61"),
        (ExportRequest("t", "lsn:1", Form.RAW, 60), "t at lsn 2, and this command asks for lsn:1, which is lsn 1"),
        (ExportRequest("t", "seq:7", Form.RAW, 60), "which is lsn 1 up to seq 7"),
    ):
        with pytest.raises(Conflict, match=told):
            calls.run(tmp_path / "out", wanted)
        assert _contents(tmp_path / "out") == before
    calls.run(tmp_path / "out", ExportRequest("t", "lsn:2", Form.RAW, 60))


def test_a_past_state_of_a_parent_is_found_under_a_branch(calls: Calls, archive: Archive, tmp_path: Path) -> None:
    archive.restore("t", to="seq:20", name="b")
    ship(archive, calls.place.log, "t@b", b"x")
    calls.locked = True
    wanted = ExportRequest("t@b", "seq:7", Form.RAW, 60)
    begun, *_ = calls.run(tmp_path / "out", wanted)
    assert (begun.topic, begun.branch, begun.seq) == ("t", "b", 7)
    assert _bytes(tmp_path / "out") == b"".join(value + b"\n" for value in VALUES[:7])


def test_files_that_a_killed_run_left_go_and_other_files_stay(calls: Calls, tmp_path: Path) -> None:
    with pytest.raises(SimulatedCrash):
        calls.run(tmp_path / "out", files=CrashingFiles(UnsyncedFiles(), 22))
    left, mine = tmp_path / "out" / "seqs-0000000000000027-0000000000000777.raw", tmp_path / "out" / "mine"
    for path in (left, mine, tmp_path / "out" / "part.tmp"):
        path.write_bytes(b"left")
    calls.run(tmp_path / "out")
    assert mine.exists()
    assert _bytes(tmp_path / "out") == b"".join(value + b"\n" for value in VALUES)


def test_two_runs_do_not_write_one_export(calls: Calls, tmp_path: Path) -> None:
    first = use.export(Source(calls, "t", print), UnsyncedFiles(), tmp_path / "out", LINES, lambda *_: None)
    next(first)
    with pytest.raises(DirectoryInUse, match=f"another run exports to {tmp_path / 'out'}") as caught:
        calls.run(tmp_path / "out")
    assert caught.value.hint == "wait until it has ended, then repeat the command"
    assert caught.value.fields() == {"path": str(tmp_path / "out"), "holder": "another export"}
    assert isinstance(list(first)[-1], Exported)


@pytest.mark.parametrize("method", ["get", "get_range", "list", "put_new", "swap"])
def test_a_store_that_fails_leaves_whole_files_and_a_way_on(tmp_path: Path, method: str) -> None:
    inner = MemoryStore()
    with opened(tmp_path / "data", inner) as (log, archive):
        ship(archive, log, "t", *VALUES[:15])
        ship(archive, log, "t", *VALUES[15:])
    for nth in range(1, 9):
        store, directory = FaultyStore(inner, [Fault(nth, "before", unreachable, method)]), tmp_path / f"out-{nth}"
        with opened(tmp_path / "data", store) as (log, archive):
            calls = Calls(log, archive)
            error: Exception | None = None
            try:
                calls.run(directory)
            except (CatalogError, PartlyDone) as raised:
                error = raised
            assert directory.exists() is (error is None or isinstance(error, PartlyDone))
            store.fail([])
            if method != "get":  # that may fail the check of a new lease, which then ends by itself
                assert directory.exists() or _live_pins(archive) == 0
            calls.run(directory)
        assert _bytes(directory) == b"".join(value + b"\n" for value in VALUES)
        if not store.struck:
            return


def test_a_full_disk_leaves_whole_files_and_a_way_on(calls: Calls, tmp_path: Path) -> None:
    files = FailingFiles(UnsyncedFiles(), 5, errno.ENOSPC, for_good=True, only=("pwrite",))
    with pytest.raises(PartlyDone, match="whole"):
        calls.run(tmp_path / "out", files=files)
    calls.run(tmp_path / "out")
    assert _bytes(tmp_path / "out") == b"".join(value + b"\n" for value in VALUES)


def test_a_check_writes_nothing_and_several_run_at_once(calls: Calls, tmp_path: Path) -> None:
    """The last line of the manifest is cut, as a kill leaves it."""
    out = tmp_path / "out"
    calls.run(out)
    manifest = out / MANIFEST
    manifest.write_bytes(manifest.read_bytes()[:-2])
    before = {path: path.read_bytes() for path in out.iterdir()}
    for path in (manifest, out):
        path.chmod(path.stat().st_mode & ~0o222)
    with opened_export(OsFiles(), out, writes=False):
        [found] = use.verify(OsFiles(), out, "t")
    assert isinstance(found, ExportVerified)
    assert (found.is_whole, found.records) == (False, 30)
    out.chmod(0o755)
    assert {path: path.read_bytes() for path in out.iterdir()} == before


def test_damage_of_the_files_is_found(calls: Calls, tmp_path: Path) -> None:
    with pytest.raises(SimulatedCrash):
        calls.run(tmp_path / "out", files=CrashingFiles(UnsyncedFiles(), 22))
    first, *_ = sorted((tmp_path / "out").glob("seqs-*"))
    body = first.read_bytes()
    first.write_bytes(body[:-1])
    with pytest.raises(Corrupt, match="bytes, and had"):
        calls.run(tmp_path / "out")
    first.unlink()
    with pytest.raises(Corrupt, match="is missing"):
        calls.run(tmp_path / "out")
    first.write_bytes(body)
    (tmp_path / "out" / MANIFEST).write_bytes(b"{}\n")
    with pytest.raises(Corrupt, match="line 1"):
        calls.run(tmp_path / "out")


def test_parquet_without_arrow_is_refused_before_anything_is_made(
    calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(NotInstalled, match="pyarrow"):
        calls.run(tmp_path / "out", ExportRequest("t", None, Form.PARQUET, 60))
    assert not (tmp_path / "out").exists()
