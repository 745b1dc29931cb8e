"""LocalStore alone: durability by link and rename, modes, and the faults of a file system."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import stat
import threading
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

import pytest

from catalog.errors import (
    AccessDenied,
    InvalidObject,
    KeyChanged,
    KeyTaken,
    NoSuchBucket,
    NoSuchObject,
    OutcomeUnknown,
    StoreUnreachable,
)
from catalog.format.checksum import Checksum, ChecksumKind
from catalog.format.keys import Key
from catalog.objects import LocalStore, PartTag, local_files
from catalog.objects.settled_writes import change

A = Key("vol/log/A")

pytestmark = pytest.mark.usefixtures("real_syncs")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "remote"


class Crash(BaseException):
    """A power cut. It derives from BaseException, so that the store does not catch it."""


def effects_of(monkeypatch: pytest.MonkeyPatch, at: int | None, when: str = "before") -> list[str]:
    """Record the calls that change the disk or make it durable. Crash before or after call number `at`."""
    seen: list[str] = []

    def wrap(name: str) -> None:
        real = getattr(os, name)

        def call(*args: object, **named: object) -> object:
            seen.append(name)
            if len(seen) == at and when == "before":
                raise Crash
            result = real(*args, **named)
            if len(seen) == at:
                raise Crash
            return result

        monkeypatch.setattr(os, name, call)

    for name in ("write", "pwrite", "sendfile", "fsync", "link", "rename", "mkdir", "unlink"):
        wrap(name)
    return seen


STEPS = [(at, when) for at in range(1, 30) for when in ("before", "after")]


def crash_in(act: Callable[[], object], at: int, when: str) -> bool:
    """Run `act` with a crash at that step. Return True if `act` reached the step."""
    with pytest.MonkeyPatch.context() as patch:
        effects_of(patch, at, when)
        try:
            act()
        except Crash:
            return True
    return False


def test_a_crash_at_any_step_of_put_new_leaves_all_or_nothing(tmp_path: Path) -> None:
    outcomes = set()
    for at, when in STEPS:
        store = LocalStore(tmp_path / f"remote-{at}-{when}")
        crashed = crash_in(lambda store=store: store.put_new(A, b"whole"), at, when)  # type: ignore[misc]
        after = LocalStore(tmp_path / f"remote-{at}-{when}")
        keys = list(after.list(""))
        if not keys:
            after.put_new(A, b"whole")
        assert after.get(A) == b"whole"
        outcomes.add((crashed, keys == [A]))
        if not crashed and when == "before":  # there are no more steps
            break
    assert outcomes == {(True, False), (True, True), (False, True)}


def test_a_crash_at_any_step_of_replacing_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    outcomes = set()
    for at, when in STEPS:
        store = LocalStore(tmp_path / f"remote-{at}-{when}")
        store.put(A, b"old", {})
        crashed = crash_in(lambda store=store: store.put(A, b"new", {}), at, when)  # type: ignore[misc]
        outcomes.add((crashed, store.get(A)))
        if not crashed and when == "before":  # there are no more steps
            break
    assert outcomes == {(True, b"old"), (True, b"new"), (False, b"new")}


def test_a_crash_at_any_step_of_swapping_leaves_the_old_or_the_new_with_no_wrong_checksum(tmp_path: Path) -> None:
    outcomes = set()
    for at, when in STEPS:
        store = LocalStore(tmp_path / f"remote-{at}-{when}")
        store.put(A, b"old", {"software": "one"})
        etag = store.get_with_etag(A).etag
        crashed = crash_in(lambda store=store, etag=etag: store.swap(A, b"new", etag), at, when)  # type: ignore[misc]
        body, info = store.get(A), store.head(A)
        assert info.checksum in {None, Checksum.of(ChecksumKind.CRC32C, body)}
        assert info.metadata in ({}, {"software": "one"} if body == b"old" else {})
        outcomes.add((crashed, body))
        store.swap(A, b"next", store.get_with_etag(A).etag)  # the crash released the lock
        if not crashed and when == "before":  # there are no more steps
            break
    assert outcomes == {(True, b"old"), (True, b"new"), (False, b"new")}


@pytest.mark.parametrize("least_slot_bytes", [1, 1 << 20], ids=["slots", "own files"])
def test_a_crash_at_any_step_of_completing_leaves_an_upload_or_a_whole_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least_slot_bytes: int
) -> None:
    monkeypatch.setattr(local_files, "LEAST_SLOT_BYTES", least_slot_bytes)
    outcomes, states = set(), list[tuple[bool, bool]]()
    for at, when in STEPS:
        store = LocalStore(tmp_path / f"remote-{at}-{when}")
        upload_id = store.create_upload(A, {"software": "x"})
        parts = [store.put_part(A, upload_id, number, b"part") for number in (1, 2)]

        def complete(store: LocalStore = store, upload_id: str = upload_id, parts: list[PartTag] = parts) -> None:
            store.complete_upload(A, upload_id, parts)

        crashed = crash_in(complete, at, when)
        whole = list(store.list("")) == [A]
        still_there = list(store.list_uploads("")) == [(A, upload_id)]
        if crashed:
            states.append((whole, still_there))
        else:
            assert (whole, still_there) == (True, False)
        if still_there:
            complete()
        assert store.get(A) == b"partpart"
        assert store.head(A).metadata == {"software": "x"}
        assert list(store.list_uploads("")) == []
        outcomes.add((crashed, whole, still_there))
        if not crashed and when == "before":  # there are no more steps
            break
    assert outcomes == {(True, False, True), (True, True, True), (True, True, False), (False, True, False)}
    # The later the crash, the later the state. Each crash leaves one of these states, in this order.
    assert [state for state, _ in groupby(states)] == [(False, True), (True, True), (True, False)]


def test_the_bytes_are_synced_before_the_key_and_the_directory_after(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(root)
    store.put_new(Key("vol/log/first"), b"makes the directories")
    seen = effects_of(monkeypatch, None)
    store.put_new(A, b"body")
    assert seen == ["write", "fsync", "link", "fsync", "unlink"]


def test_what_is_put_in_the_place_of_another_is_durable_when_it_returns(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(root)
    store.put(A, b"makes the directories", {})
    seen = effects_of(monkeypatch, None)
    store.put(A, b"body", {})
    of_one_file = ["write", "fsync", "rename", "fsync", "unlink"]
    assert seen == [*of_one_file, *of_one_file]  # the metadata file, then the object


def test_a_range_beyond_the_end_is_no_shorter_one(root: Path) -> None:
    store = LocalStore(root)
    store.put_new(A, b"0123456789")
    assert store.get_range(A, 5, 5) == b"56789"
    for start, length in ((5, 6), (10, 1), (11, 1)):
        with pytest.raises(InvalidObject, match="it ends at byte"):
            store.get_range(A, start, length)


def test_a_part_that_changed_on_the_disk_makes_no_object(root: Path) -> None:
    store = LocalStore(root)
    upload_id = store.create_upload(A, {})
    tag = store.put_part(A, upload_id, 1, b"as it was sent")
    [part] = [path for path in (root / ".multipart" / upload_id).iterdir() if path.name != "upload"]
    part.write_bytes(b"something else")
    with pytest.raises(InvalidObject, match="differ from the bytes that were sent"):
        store.complete_upload(A, upload_id, [tag])
    with pytest.raises(NoSuchObject):
        store.get(A)


def test_each_new_directory_is_synced_into_the_one_above(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real_fsync = os.fsync

    def fsync(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        real_fsync(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    LocalStore(root).put_new(A, b"body")
    for directory in (root.parent, root, root / "vol", root / "vol/log"):
        assert str(directory) in synced


def test_a_taken_key_is_durable_before_it_is_reported(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(root)
    store.put_new(A, b"body")
    seen = effects_of(monkeypatch, None)
    with pytest.raises(KeyTaken):
        store.put_new(A, b"body")
    assert seen == ["write", "fsync", "link", "fsync", "unlink"]


def changed_once(store: LocalStore) -> str:
    """Put A, make the directories that a swap needs, and return A's ETag."""
    store.put_new(A, b"older")
    store.swap(A, b"old", store.get_with_etag(A).etag)
    return store.get_with_etag(A).etag


def test_what_swap_found_or_left_is_durable_when_it_returns(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(root)
    etag = changed_once(store)
    with monkeypatch.context() as patch:
        seen = effects_of(patch, None)
        store.swap(A, b"new", etag)
        assert seen == ["write", "fsync", "unlink", "rename", "unlink", "fsync"]
    with monkeypatch.context() as patch:
        seen = effects_of(patch, None)
        with pytest.raises(KeyChanged):
            store.swap(A, b"newer", etag)
        assert seen == ["fsync"]


def test_a_swap_whose_entry_cannot_be_synced_is_an_open_outcome(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(root)
    etag = changed_once(store)
    real_fsync, calls = os.fsync, iter(range(10))

    def fsync(fd: int) -> None:
        if next(calls) == 1:  # call 0 syncs the new bytes
            raise OSError(5, "Input/output error")
        real_fsync(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OutcomeUnknown):
        store.swap(A, b"new", etag)


def _add_lines(root: Path, writer: int, count: int) -> None:
    store = LocalStore(root)
    for number in range(count):
        text = b"%d-%d\n" % (writer, number)
        change(store, A, lambda body, text=text: (body or b"") + text)  # type: ignore[misc]


@pytest.mark.long
def test_swaps_of_several_processes_lose_nothing(root: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_add_lines, args=(root, writer, 10)) for writer in range(4)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
        assert each.exitcode == 0
    expected = sorted(b"%d-%d\n" % (writer, number) for writer in range(4) for number in range(10))
    assert sorted(LocalStore(root).get(A).splitlines(keepends=True)) == expected


def test_a_delete_does_not_come_between_what_swap_compares_and_what_it_writes(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, began = LocalStore(root), threading.Event()
    store.put_new(A, b"old")
    etag = store.get_with_etag(A).etag
    deleter = threading.Thread(target=lambda: (began.set(), LocalStore(root).delete(A)))
    real_rename = os.rename

    def rename(*args: str) -> None:
        deleter.start()
        began.wait()
        [lock] = (root / ".locks").iterdir()
        with lock.open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        real_rename(*args)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename)
        store.swap(A, b"new", etag)
    deleter.join()
    with pytest.raises(NoSuchObject):  # the delete happens after the swap, never during it
        store.get(A)


def test_many_deletes_sync_each_directory_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(root)
    keys = [Key(f"vol/log/{name}") for name in "abc"] + [Key(f"vol/segments/{name}") for name in "ab"]
    for key in keys:
        store.put(key, b"body", {})
    with monkeypatch.context() as patch:
        seen = effects_of(patch, None)
        store.delete_many([*keys, A, Key("vol"), Key("nothing/at/all")])
    assert seen.count("fsync") == 4  # two directories of objects, two of metadata
    assert list(store.list("")) == []
    assert not [path for path in (root / ".metadata").rglob("*") if path.is_file()]


def test_deleting_makes_no_root(root: Path) -> None:
    LocalStore(root).delete(A)
    assert not root.exists()


def test_a_listing_opens_only_directories_that_may_hold_what_is_asked_for(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(root)
    for name in ("a/1/x", "a/2/x", "a/2/y", "a/3/x", "b/1/x"):
        store.put_new(Key(name), b"")
    real, opened = os.scandir, []

    def scandir(path: Path) -> object:
        opened.append(str(path.relative_to(root)))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    for prefix, start_after, keys, directories in (
        ("a/", "a/2/x", ["a/2/y", "a/3/x"], ["a", "a/2", "a/3"]),
        ("a/", "a/2/y0", ["a/3/x"], ["a", "a/2", "a/3"]),
        ("a/", "a/20", ["a/3/x"], ["a", "a/3"]),
        ("a/2", "", ["a/2/x", "a/2/y"], ["a", "a/2"]),
        ("a/", "z", [], ["a"]),
        ("b/1/", "", ["b/1/x"], ["b/1"]),
    ):
        assert list(store.list(prefix, start_after=start_after)) == keys
        assert opened == directories
        opened.clear()
    monkeypatch.undo()  # pytest removes the directory before it would undo the patch


def test_leftovers_of_a_crash_are_in_no_listing(root: Path) -> None:
    store = LocalStore(root)
    store.put_new(A, b"body")
    for leftover in (".temporary/0123", ".multipart/0123/00001.aa", ".metadata/vol/log/B"):
        path = root / leftover
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
    assert list(store.list("")) == [A]
    assert list(store.list_uploads("")) == []


def test_no_temporary_stays_after_success_or_refusal(root: Path) -> None:
    store = LocalStore(root)
    store.put_new(A, b"one")
    with pytest.raises(KeyTaken):
        store.put_new(A, b"two")
    store.put(Key("vol/segments/s"), b"body", {"a": "b"})
    upload_id = store.create_upload(Key("vol/segments/t"), {})
    store.complete_upload(Key("vol/segments/t"), upload_id, [store.put_part(Key("vol/segments/t"), upload_id, 1, b"x")])
    assert list((root / ".temporary").iterdir()) == []
    assert list((root / ".multipart").iterdir()) == []


def test_files_and_directories_are_the_owners_alone(root: Path) -> None:
    store = LocalStore(root)
    store.put_new(A, b"one")
    store.put(Key("vol/segments/s"), b"body", {"a": "b"})
    for path in (root, *root.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_a_root_that_is_not_there_yet_is_empty_and_made_by_the_first_write(root: Path) -> None:
    store = LocalStore(root)
    assert list(store.list("")) == []
    with pytest.raises(NoSuchObject):
        store.get(A)
    assert not root.exists()
    store.put_new(A, b"one")
    assert list(store.list("")) == [A]


def test_without_the_directory_above_the_root_nothing_is_taken_for_absent(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "unmounted" / "remote")
    for call in (
        lambda: store.get(A),
        lambda: store.head(A),
        lambda: list(store.list("")),
        lambda: store.put_new(A, b"one"),
        lambda: store.create_upload(A, {}),
        lambda: store.swap(A, b"two", "etag"),
        lambda: store.delete(A),
    ):
        with pytest.raises(NoSuchBucket, match="unmounted"):
            call()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_root_refuses_writes_and_serves_reads(root: Path) -> None:
    store = LocalStore(root)
    store.put_new(A, b"one")
    (root / ".temporary").chmod(0o500)
    with pytest.raises(AccessDenied, match="temporary"):
        store.put_new(Key("vol/log/B"), b"two")
    assert store.get(A) == b"one"


def test_a_full_disk_is_trouble_and_leaves_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(root)
    store.put_new(A, b"one")

    def no_space(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", no_space)
        with pytest.raises(StoreUnreachable, match="No space left"):
            store.put_new(Key("vol/log/B"), b"two")
    assert list(store.list("")) == [A]
    assert list((root / ".temporary").iterdir()) == []


def test_an_upload_survives_the_process_that_began_it(root: Path) -> None:
    key = Key("vol/segments/s")
    upload_id = LocalStore(root).create_upload(key, {"software": "x"})
    part = LocalStore(root).put_part(key, upload_id, 1, b"body")
    assert list(LocalStore(root).list_uploads("")) == [(key, upload_id)]
    LocalStore(root).complete_upload(key, upload_id, [part])
    assert LocalStore(root).head(key).metadata == {"software": "x"}


def test_damaged_metadata_is_reported(root: Path) -> None:
    store = LocalStore(root)
    store.put(A, b"one", {"a": "b"})
    (root / ".metadata" / A).write_bytes(b"{")
    with pytest.raises(InvalidObject, match=r"\.metadata/vol/log/A"):
        store.head(A)


@pytest.mark.parametrize("upload_id", ["", "..", "../../x", "0" * 31, "g" * 32])
def test_an_upload_id_cannot_leave_the_root(root: Path, upload_id: str) -> None:
    with pytest.raises(NoSuchObject):
        LocalStore(root).put_part(A, upload_id, 1, b"")
