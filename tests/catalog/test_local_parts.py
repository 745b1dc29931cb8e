"""Parts of an upload to a directory: each byte is written once, and no late or repeated part changes an object."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.errors import InvalidObject, NoSuchObject
from catalog.format.checksum import Checksum, ChecksumKind
from catalog.format.keys import Key
from catalog.objects import LocalStore, PartTag, local_files

A = Key("vol/segments/A")
BODIES = [b"one.", b"two.", b"end"]
WHOLE = b"".join(BODIES)


@pytest.fixture(autouse=True)
def _small_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_files, "LEAST_SLOT_BYTES", 4)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "remote"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(root)


@pytest.fixture
def upload_id(store: LocalStore) -> str:
    return store.create_upload(A, {"role": "data"})


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Count the bytes that go into files, by system call."""
    counts = dict.fromkeys(("write", "pwrite", "sendfile"), 0)

    def count(name: str) -> Callable[..., int]:
        real = getattr(os, name)

        def call(*args: object) -> int:
            done: int = real(*args)
            counts[name] += done
            return done

        return call

    for name in counts:
        monkeypatch.setattr(os, name, count(name))
    return counts


def put(store: LocalStore, upload_id: str, *numbers: int) -> list[PartTag]:
    return [store.put_part(A, upload_id, number, BODIES[number - 1]) for number in numbers]


def upload_directory(root: Path, upload_id: str) -> Path:
    return root / ".multipart" / upload_id


def expect_whole(store: LocalStore) -> None:
    assert store.get(A) == WHOLE
    assert store.head(A).checksum == Checksum.of(ChecksumKind.CRC32C, WHOLE)
    assert store.head(A).metadata == {"role": "data"}
    assert list(store.list_uploads("")) == []


def test_each_byte_of_an_object_is_written_once_and_none_is_read_back(
    store: LocalStore, upload_id: str, copied: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[int] = []
    real = Checksum.of

    def counting(kind: ChecksumKind, body: bytes, before: int = 0) -> Checksum:
        hashed.append(len(body))
        return real(kind, body, before)

    monkeypatch.setattr(Checksum, "of", counting)
    store.complete_upload(A, upload_id, put(store, upload_id, 1, 2, 3))
    assert (copied["pwrite"], copied["sendfile"]) == (len(WHOLE), 0)
    assert sum(hashed) == len(WHOLE)
    monkeypatch.undo()
    expect_whole(store)


def test_a_part_is_on_disk_with_its_record_before_it_is_told(
    store: LocalStore, upload_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def note(name: str) -> Callable[..., object]:
        real = getattr(os, name)

        def call(*args: object) -> object:
            seen.append(name)
            return real(*args)

        return call

    for name in ("pwrite", "write", "fsync"):
        monkeypatch.setattr(os, name, note(name))
    put(store, upload_id, 1)
    assert seen == ["pwrite", "fsync", "write", "fsync", "fsync"]  # the part, its record, and the names of both


def test_parts_may_come_in_any_order(store: LocalStore, upload_id: str, copied: dict[str, int]) -> None:
    parts = put(store, upload_id, 2, 3, 1)
    store.complete_upload(A, upload_id, sorted(parts, key=lambda part: part.number))
    assert copied["sendfile"] == 0
    expect_whole(store)


def test_a_last_part_that_comes_first_has_a_file_of_its_own(store: LocalStore, upload_id: str) -> None:
    last, *rest = put(store, upload_id, 3, 1, 2)
    store.complete_upload(A, upload_id, [*rest, last])
    expect_whole(store)


def test_a_part_that_is_sent_again_does_not_touch_the_slot(store: LocalStore, root: Path, upload_id: str) -> None:
    first, second, last = put(store, upload_id, 1, 2, 3)
    again = store.put_part(A, upload_id, 2, b"TWO.")
    assert again != second
    [slots] = upload_directory(root, upload_id).glob("whole.*")
    assert slots.read_bytes() == WHOLE
    store.complete_upload(A, upload_id, [first, again, last])
    assert store.get(A) == b"one.TWO.end"


def test_parts_of_several_sizes_are_joined(store: LocalStore, upload_id: str) -> None:
    bodies = [b"sixsix", b"four", b"sixsix", b"x", b"seven.."]
    parts = [store.put_part(A, upload_id, number, body) for number, body in enumerate(bodies, 1)]
    store.complete_upload(A, upload_id, parts)
    assert store.get(A) == b"".join(bodies)
    assert store.head(A).checksum == Checksum.of(ChecksumKind.CRC32C, b"".join(bodies))


def test_fewer_parts_than_were_sent_make_the_object_that_was_asked_for(store: LocalStore, upload_id: str) -> None:
    parts = put(store, upload_id, 1, 2, 3)
    store.complete_upload(A, upload_id, parts[:2])
    assert store.get(A) == b"one.two."


@pytest.mark.parametrize(
    "wrong",
    [
        lambda tag: replace(tag, etag=f"slot-4-{0:016x}"),
        lambda tag: replace(tag, etag=tag.etag.replace("slot-4", "slot-5")),
        lambda tag: replace(tag, size=tag.size - 1),
        lambda tag: replace(tag, checksum=Checksum(ChecksumKind.CRC32C, 1)),
        lambda tag: replace(tag, number=4),
    ],
    ids=["tag", "slot", "size", "checksum", "number"],
)
def test_a_part_that_is_not_the_recorded_one_makes_no_object(
    store: LocalStore, upload_id: str, wrong: Callable[[PartTag], PartTag]
) -> None:
    first, second, last = put(store, upload_id, 1, 2, 3)
    with pytest.raises(InvalidObject, match="not the one that was sent"):
        store.complete_upload(A, upload_id, [first, wrong(second), last])
    with pytest.raises(NoSuchObject):
        store.get(A)
    store.complete_upload(A, upload_id, [first, second, last])
    expect_whole(store)


def test_a_part_whose_writer_died_is_sent_again(
    store: LocalStore, upload_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*_: object) -> int:
        raise Killed

    first = put(store, upload_id, 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", die)
        with pytest.raises(Killed):
            put(store, upload_id, 2)
    rest = put(store, upload_id, 2, 3)
    store.complete_upload(A, upload_id, [*first, *rest])
    expect_whole(store)


def test_a_file_that_still_has_a_writer_becomes_no_object(store: LocalStore, root: Path, upload_id: str) -> None:
    parts = put(store, upload_id, 1, 2, 3)
    [file] = upload_directory(root, upload_id).glob("whole.*")
    with file.open("rb") as late:
        fcntl.flock(late, fcntl.LOCK_SH)  # as a writer does that was stopped
        store.complete_upload(A, upload_id, parts)
        assert (root / A).stat().st_ino != os.fstat(late.fileno()).st_ino
    expect_whole(store)


@pytest.mark.parametrize("is_over", [False, True], ids=["linked", "completed"])
def test_a_late_writer_changes_no_object(
    store: LocalStore, root: Path, upload_id: str, monkeypatch: pytest.MonkeyPatch, is_over: bool
) -> None:
    parts = put(store, upload_id, 1, 2)
    real = fcntl.flock

    def complete_first(fd: int, how: int) -> None:
        monkeypatch.undo()
        if is_over:
            store.complete_upload(A, upload_id, parts)
        else:
            os.link(next(upload_directory(root, upload_id).glob("whole.*")), root / "object")
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", complete_first)
    if is_over:
        with pytest.raises(NoSuchObject):
            put(store, upload_id, 3)
        assert store.get(A) == b"one.two."
    else:
        [last] = put(store, upload_id, 3)
        assert (root / "object").read_bytes() == b"one.two."
        store.complete_upload(A, upload_id, [*parts, last])
        expect_whole(store)
        assert (root / "object").read_bytes() == b"one.two."


def test_a_writer_that_ends_right_before_the_lock_adds_nothing_to_the_object(
    store: LocalStore, upload_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = put(store, upload_id, 1, 2)
    real = fcntl.flock

    def put_first(fd: int, how: int) -> None:
        if how & fcntl.LOCK_NB:
            monkeypatch.undo()
            monkeypatch.setattr(local_files, "LEAST_SLOT_BYTES", 4)
            put(store, upload_id, 3)
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", put_first)
    store.complete_upload(A, upload_id, parts)
    assert store.get(A) == b"one.two."


def test_a_cut_file_makes_no_object(store: LocalStore, root: Path, upload_id: str) -> None:
    parts = put(store, upload_id, 1, 2, 3)
    [file] = upload_directory(root, upload_id).glob("whole.*")
    os.truncate(file, 5)
    with pytest.raises(InvalidObject, match="part 2"):
        store.complete_upload(A, upload_id, parts)
    with pytest.raises(NoSuchObject):
        store.get(A)
