"""The undo of a delete that no commit has yet, beside other deletes, offloads, crashes and a store that fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from catalog import CommitKind, Vid, Volumes
from catalog.errors import NoSuchTopic as NoSuchTopicInRemote
from catalog.errors import StoreUnreachable
from catalog.format.encoding import StoredCommit
from catalog.objects.memory import MemoryStore
from catalog.objects.wrapped import WrappedStore
from offload.archive import Archive
from seglog import DeleteNotUndone, Log, NoSuchTopic, SeqSet
from seglog.inner_topic import InnerTopic
from tests.faults.steps import Place, crashes
from tests.faults.store import unreachable
from tests.faults.stride import every as strided
from tests.offload.replicas import opened, ship, values
from tests.seams.archive import after_a_waiting_delete_is_found
from tests.worlds.clock import HandClock

T = TypeVar("T")
ALL = [b"a", b"b", b"c", b"d", b"e", b"f"]

pytestmark = pytest.mark.usefixtures("no_pauses")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def _topic(log: Log, archive: Archive) -> None:
    """Make a topic of which the remote has `a` to `d`, and only the log `e` and `f`. Their tags alternate."""
    for first, second in ("ab", "cd"):
        ship(archive, log, "t", first.encode(), tag="odd")
        ship(archive, log, "t", second.encode(), tag="even")
    log.topic("t").append([b"e"], tag="odd")
    log.topic("t").append([b"f"], tag="even")


def _hot(log: Log) -> list[bytes]:
    return [record.value for record in log.topic("t").read()]


def _kinds(archive: Archive) -> list[CommitKind]:
    return [past.commit.kind for past in archive.history.commits("t")][::-1]


@pytest.mark.parametrize("kind", ["range", "tag", "below", "evict"])
def test_the_records_are_back_in_the_log_and_in_the_remote(tmp_path: Path, store: MemoryStore, kind: str) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _topic(log, archive)
        removed, back = {
            "range": lambda: (archive.delete("t", start=3, end=5), {3, 4, 5}),
            "tag": lambda: (archive.delete("t", tag="odd"), {1, 3, 5}),
            "below": lambda: (archive.delete("t", before=6), {*range(1, 6)}),
            "evict": lambda: (archive.evict("t", 6), {*range(1, 6)}),
        }[kind]()
        assert (removed.lsn, removed.number) == (None, 1)
        log.checkpoint()
        before = len(_kinds(archive))
        seen = archive.history.preview_undo_delete("t")
        assert (seen.delete, seen.back) == (1, SeqSet.of_seqs(sorted(back)))
        assert (len(_kinds(archive)), len(_hot(log))) == (before, 6 - len(back)), "a preview changes nothing"
        done = archive.history.undo_delete("t", removed.number, message="a mistake")
        assert (done.records, done.first_seq, done.last_seq) == (len(back), min(back), max(back))
        assert _hot(log) == values(archive, "t") == ALL
        assert _kinds(archive)[before:] == [
            CommitKind.OFFLOAD,
            CommitKind.EVICT if kind == "evict" else CommitKind.DELETE,
            CommitKind.RESTORE,
        ]
        assert archive.history.newest_removal("t") is None
    with opened(tmp_path / "two", store) as (_, other):
        assert values(other, "t") == ALL


def test_a_topic_that_was_never_offloaded(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        archive.open_for_append("t").append([b"a", b"b", b"c"])
        assert archive.delete("t", seqs=[2]).waits_for == "the first offload"
        assert archive.history.preview_undo_delete("t").back == SeqSet.of_seqs([2])
        archive.history.undo_delete("t")
        assert _hot(log) == values(archive, "t") == [b"a", b"b", b"c"]


def test_a_record_that_two_deletes_took_stays_deleted_until_both_are_undone(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _topic(log, archive)
        first, second = archive.delete("t", tag="odd"), archive.delete("t", start=1, end=5)
        seen = archive.history.preview_undo_delete("t", second.number)
        assert (seen.back, seen.stay) == (SeqSet.of_seqs([2, 4]), SeqSet.of_seqs([1, 3, 5]))
        assert archive.history.undo_delete("t").records == 2
        assert _hot(log) == values(archive, "t") == [b"b", b"d", b"f"]
        removal = next(past for past in archive.history.commits("t") if past.commit.message == "")
        assert removal.commit.kind is CommitKind.RESTORE
        with pytest.raises(DeleteNotUndone, match=f"delete {first.number} is none that waits for its commit"):
            archive.history.undo_delete("t", first.number)
        lsn = next(past.commit.lsn for past in archive.history.commits("t") if past.commit.at_seq == 6
                   and past.commit.kind is CommitKind.DELETE and past.commit.restored is None
                   and past.commit.lsn < removal.commit.lsn - 1)  # fmt: skip
        assert archive.history.undo_removal("t", lsn).records == 3
        assert _hot(log) == values(archive, "t") == ALL


def test_a_delete_beside_one_that_has_its_commit(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        ship(archive, log, "t", b"a", b"b", b"c", tag="x")
        lsn = archive.delete("t", seqs=[1, 2]).lsn
        log.topic("t").append([b"d"], tag="x")
        waiting = archive.delete("t", tag="x")
        assert (waiting.lsn, _hot(log)) == (None, [])
        assert archive.history.preview_undo_delete("t").back == SeqSet.of_seqs([3, 4])
        archive.history.undo_delete("t")
        assert _hot(log) == values(archive, "t") == [b"c", b"d"]
        assert lsn is not None
        archive.history.undo_removal("t", lsn)
        assert _hot(log) == values(archive, "t") == [b"a", b"b", b"c", b"d"]


class _NoCommits(WrappedStore):
    """A store that takes no commit of its `spared + 1`st on."""

    spared = 0

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        if method == "put_new" and "/log/" in key:
            if not self.spared:
                raise unreachable(key)
            self.spared -= 1
        return act()


@pytest.mark.parametrize("spared", [0, 1, 2])
def test_a_store_that_takes_no_commit_leaves_the_delete_or_its_commit(
    tmp_path: Path, store: MemoryStore, spared: int
) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _topic(log, archive)
        archive.delete("t", start=3, end=6)
    failing = _NoCommits(store)
    failing.spared = spared
    with opened(tmp_path / "one", failing) as (log, archive):
        with pytest.raises(StoreUnreachable):
            archive.history.undo_delete("t")
        assert _hot(log) == ALL[:2]
        assert len(log.topic("t").inner.delete_ops()) == (spared < 2)
    with opened(tmp_path / "one", store) as (log, archive):
        _again(archive)
        assert _hot(log) == values(archive, "t") == ALL


def _again(archive: Archive) -> None:
    """Repeat an undo: of the delete, or as the error says of its commit."""
    try:
        archive.history.undo_delete("t", 1)
    except DeleteNotUndone:
        if (newest := archive.history.newest_removal("t")) is not None:
            archive.history.undo_removal("t", newest.commit.lsn)


@strided(61, part=8)
def test_an_undo_that_ends_at_any_step_is_completed_by_the_next(tmp_path: Path, every: int) -> None:
    base = Place(tmp_path / "base")
    with base.opened() as (log, archive):
        _topic(log, archive)
        archive.delete("t", start=3, end=6)

    for name, place in crashes(base, tmp_path, lambda _, archive: archive.history.undo_delete("t", 1), every):
        with place.opened() as (log, archive):
            assert _hot(log) in (ALL, ALL[:2]), name
            _again(archive)
            archive.offload("t")
            assert _hot(log) == values(archive, "t") == ALL, name
            assert _kinds(archive).count(CommitKind.RESTORE) == 1, name


def test_an_offload_that_commits_the_delete_meanwhile(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _topic(log, archive)
        archive.delete("t", tag="odd")
        log.topic("t").seal()
        with after_a_waiting_delete_is_found(lambda: archive.offload("t")):
            assert archive.history.undo_delete("t").records == 3
        assert _hot(log) == values(archive, "t") == ALL


def test_a_delete_whose_commit_landed_before_a_crash_has_one(
    tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _topic(log, archive)
        log.topic("t").seal()
        archive.offload("t")
        with monkeypatch.context() as patch:
            patch.setattr(InnerTopic, "settle_deletes", _dies)
            with pytest.raises(SystemExit):
                archive.delete("t", seqs=[2])
        assert len(log.topic("t").inner.delete_ops()) == 1
        archive.offload("t")
        assert _kinds(archive).count(CommitKind.DELETE) == 1
        assert log.topic("t").inner.delete_ops() == ()


def _dies(*_: object) -> None:
    raise SystemExit


def test_deletes_of_one_moment_are_told_apart(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store, clock=HandClock(1_720_000_000_000)) as (log, archive):
        _topic(log, archive)
        first = archive.delete("t", seqs=[5])
        archive.delete("t", seqs=[6])
        assert archive.history.undo_delete("t", first.number).first_seq == 5
        assert values(archive, "t") == ALL[:5]
        log.topic("t").append([b"g"])
        archive.delete("t", seqs=[4])
        wide = archive.delete("t", seqs=[3, 4, 5])
        assert archive.history.undo_delete("t", wide.number).records == 2
        assert _hot(log) == values(archive, "t") == [*ALL[:3], b"e", b"g"]


def test_many_deletes_of_one_moment_look_for_few_commits(
    tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the oldest one can have a commit already."""
    with opened(tmp_path / "one", store, clock=HandClock(1_720_000_000_000)) as (log, archive):
        _topic(log, archive)
        for _ in range(20):
            archive.delete("t", seqs=[6])
        log.topic("t").seal()
        looked: list[int] = []
        commits = Volumes.commits

        def counted(volumes: Volumes, vid: Vid, first_lsn: int, last_lsn: int) -> tuple[StoredCommit, ...]:
            looked.append(last_lsn)
            return commits(volumes, vid, first_lsn, last_lsn)

        monkeypatch.setattr(Volumes, "commits", counted)
        archive.offload("t")
        assert _kinds(archive).count(CommitKind.DELETE) == 20
        assert len(looked) < 100, "each would look at all before it: more than 200"


def test_what_cannot_be_undone(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        with pytest.raises((NoSuchTopic, NoSuchTopicInRemote)):
            archive.history.undo_delete("nope")
        _topic(log, archive)
        with pytest.raises(DeleteNotUndone, match="no delete waits for its commit") as refused:
            archive.history.undo_delete("t")
        assert "lists the commits" in (refused.value.hint or "")
        waiting = archive.delete("t", seqs=[6])
        for call in (archive.history.undo_delete, archive.history.preview_undo_delete):
            with pytest.raises(DeleteNotUndone, match="delete 9 is none that waits") as refused:
                call("t", 9)
            assert refused.value.hint == f"these wait: delete:{waiting.number}"
        with pytest.raises(DeleteNotUndone, match="its archive undoes the deletes"):
            log.topic("t").undo()
        nothing = archive.delete("t", tag="nobody")
        commits = _kinds(archive)
        with pytest.raises(DeleteNotUndone, match=f"delete {nothing.number} took no record"):
            archive.history.undo_delete("t", nothing.number)
        assert _kinds(archive) == commits, "a refusal commits nothing"
        assert archive.history.undo_delete("t").records == 1, "the newest one that took a record"
        assert _hot(log) == values(archive, "t") == ALL


@pytest.mark.parametrize("later", [{"seqs": [5]}, {"start": 5, "end": 6}, {"tag": "odd"}])
def test_a_record_that_a_later_delete_took_comes_back_with_that(
    tmp_path: Path, store: MemoryStore, later: dict[str, Any]
) -> None:
    with opened(tmp_path / "one", store) as (log, archive):
        _topic(log, archive)
        first, second = archive.delete("t", start=3, end=5), archive.delete("t", **later)
        both = {5} if later.get("tag") is None else {3, 5}
        seen = archive.history.preview_undo_delete("t", first.number)
        assert (seen.back, seen.stay) == (SeqSet.of_seqs(sorted({3, 4, 5} - both)), SeqSet.of_seqs(sorted(both)))
        done = archive.history.undo_delete("t", first.number)
        assert (done.records, done.away) == (3 - len(both), len(both))
        with pytest.raises(DeleteNotUndone, match=f"delete {second.number} is none that waits"):
            archive.history.undo_delete("t", second.number)
        archive.history.undo_removal("t", done.taken_by[0])
        assert _hot(log) == values(archive, "t") == ALL


@pytest.mark.parametrize("number", [1, 2])
def test_two_deletes_of_the_same_records_are_both_undone(tmp_path: Path, store: MemoryStore, number: int) -> None:
    """The second one takes nothing that is live, and has a commit all the same."""
    with opened(tmp_path / "one", store) as (log, archive):
        _topic(log, archive)
        for _ in range(2):
            archive.delete("t", start=3, end=5)
        seen = archive.history.preview_undo_delete("t", number)
        assert (seen.back, seen.stay) == (SeqSet.of(()), SeqSet.of_seqs([3, 4, 5]))
        if number == 1:
            words = "delete 1 has its commit now, and lsn:6 cannot be undone: lsn 7 took its records as well\n"
            with pytest.raises(DeleteNotUndone, match=words) as refused:
                archive.history.undo_delete("t", number)
            assert refused.value.hint == "first undo lsn 7"
        else:
            assert archive.history.undo_delete("t", number).records == 0
        assert _kinds(archive).count(CommitKind.DELETE) == 2
        assert _hot(log) == values(archive, "t") == [b"a", b"b", b"f"]
        lsns = [past.commit.lsn for past in archive.history.commits("t") if past.commit.kind is CommitKind.DELETE]
        assert [archive.history.undo_removal("t", lsn).records for lsn in lsns] == [0, 3], "the newest first"
        assert _hot(log) == values(archive, "t") == ALL


def test_a_commit_of_the_same_moment_that_was_there_before_is_not_undone(tmp_path: Path, store: MemoryStore) -> None:
    failing = _NoCommits(store)
    failing.spared = 99
    with opened(tmp_path / "one", failing, clock=HandClock(1_720_000_000_000)) as (log, archive):
        ship(archive, log, "t", b"a", b"b", b"c")
        assert archive.delete("t", start=2, end=3).lsn is not None
        failing.spared = 0
        waiting = archive.delete("t", seqs=[1])
        failing.spared = 99
        assert archive.history.undo_delete("t").first_seq == 1
        assert waiting.lsn is None
        assert _hot(log) == values(archive, "t") == [b"a"]
