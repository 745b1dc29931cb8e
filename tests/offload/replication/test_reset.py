"""Test reset and takeover through crashes at every step.

A repeated call completes, and no acked record is lost.
"""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import seglog
from catalog import Handle
from catalog.errors import BranchExists, Diverged, Fenced, InvalidName
from catalog.format.encoding import decode_commit_at, encode_commit
from catalog.format.keys import commit_key
from catalog.objects.memory import MemoryStore
from offload.archive import Archive
from offload.errors import LocalChangesLost
from seglog import Log, NoSuchTopic, SeglogError, Topic
from seglog.errors import ConcurrentModification
from tests.faults.steps import Place, crashes
from tests.faults.store import Fault, FaultyStore, lost
from tests.faults.stride import every
from tests.offload.replicas import opened, ship, values
from tests.seams.archive import context_of, drop_attempts, rescue_of, skip_check_of_remote
from tests.work import tell
from tests.worlds.clock import HandClock

pytestmark = pytest.mark.usefixtures("no_pauses")
REFUSALS: set[type[SeglogError]] = {NoSuchTopic, ConcurrentModification}


@pytest.fixture
def diverged(tmp_path: Path) -> Place:
    """Make a topic that diverged after two records in common. The other writer has a third record.

    This directory has three records of its own and two deletes, one of a record in common.
    """
    place = Place(tmp_path / "base")
    with place.opened() as (log, archive):
        ship(archive, log, "t", b"a", tag="x")
        ship(archive, log, "t", b"b")
    shutil.copytree(place.path, tmp_path / "other")
    with opened(tmp_path / "other", place.store) as (log, archive):
        ship(archive, log, "t", b"theirs")
    with place.opened() as (log, archive):
        topic = log.topic("t")
        topic.append([b"c"], tag="x")
        topic.append([b"d"], node="n")
        archive.delete("t", tag="x")
        topic.append([b"e"])
        topic.delete(before=1_000, tag="y")
        topic.seal()
        with pytest.raises(Diverged):
            archive.offload("t")
        assert archive.status.topic("t").unfinished_attempts + len(context_of(archive).local.attempts("t")) > 1
    return place


def check_reset(name: str, place: Place) -> None:
    with place.opened() as (log, archive):
        assert values(archive, "t") == [b"a", b"b", b"theirs"], name
        assert [(each.seq, each.value, each.node) for each in archive.read("t@mine")] == [
            (2, b"b", None), (4, b"d", "n"), (5, b"e", None),
        ], name  # fmt: skip
        log.topic("t@mine").seal()
        archive.offload("t@mine")
        assert archive.replication.is_replica("t")
        assert [each.value for each in archive.read("t@mine", at="seq:4")] == [b"a", b"b", b"c", b"d"], name
        assert [each.state for each in context_of(archive).local.attempts("t")] == []
    named = {str(view.ref.sid) for topic in ("t", "t@mine") for view in _shown(place, topic)}
    stored = {key.rpartition("/")[2].removesuffix(".index") for key in place.store.list("") if "/segments/" in key}
    assert stored <= named, name  # every object that is left has a commit that names it


def _shown(place: Place, name: str):  # type: ignore[no-untyped-def]
    with place.opened() as (_, archive):
        return archive.history.snapshot(name).segments


@pytest.mark.long
@every(43, part=8)
def test_a_reset_to_a_branch_ends_anywhere_and_is_repeated(every: int, diverged: Place, tmp_path: Path) -> None:
    steps = 0

    def act(_: Log, archive: Archive) -> None:
        archive.replication.reset("t", as_branch="mine")

    for name, place in crashes(diverged, tmp_path, act, every):
        steps += 1
        with place.opened() as (_, archive):
            held = {record.value for record in archive.read("t")}
            if archive.replication.is_replica("t"):
                held |= {record.value for record in archive.read("t@mine")}
            assert {b"b", b"d", b"e"} <= held, name
            archive.replication.reset("t", as_branch="mine")
        check_reset(name, place)
        shutil.rmtree(place.path)
    tell(f"reset: {steps} crashes")
    assert steps > 100 / every


@every(9, part=8)
def test_a_takeover_ends_anywhere_and_is_repeated(every: int, tmp_path: Path) -> None:
    base = Place(tmp_path / "base")
    with opened(tmp_path / "writer", base.store) as (log, archive):
        ship(archive, log, "t", b"a", b"b")
    with base.opened() as (_, archive):
        archive.replication.sync("t")
    steps = 0

    def act(_: Log, archive: Archive) -> None:
        archive.open_for_append("t").append([b"c"])

    for name, place in crashes(base, tmp_path, act, every):
        steps += 1
        with place.opened() as (log, archive):
            archive.replication.take_over("t")
            log.topic("t").append([b"d"])
            log.topic("t").seal()
            archive.offload("t")
            found = values(archive, "t")
            assert found in ([b"a", b"b", b"d"], [b"a", b"b", b"c", b"d"]), name
            epochs = [past.commit.epoch for past in archive.history.commits("t")]
            assert epochs == sorted(epochs, reverse=True), name
            assert epochs[0] in {2, 3, 4}, name
            assert archive.status.topic("t").diverged_lsn is None
        shutil.rmtree(place.path)
    tell(f"takeover: {steps} crashes")
    assert steps > 80 / every


def test_a_pending_commit_that_landed_is_ours_when_reset_comes(tmp_path: Path) -> None:
    place = Place(tmp_path / "one")
    with place.opened() as (log, archive):
        ship(archive, log, "t", b"a")
    faulty = FaultyStore(place.store, [Fault(None, "after", lost, "put_new"), Fault(None, "before", lost, "get")])
    with place.opened(store=faulty) as (log, archive):
        log.topic("t").append([b"b"])
        log.topic("t").seal()
        skip_check_of_remote(archive, "t")
        with pytest.raises(Exception, match="no definite answer"):
            archive.offload("t")
        with pytest.raises(Exception, match="no definite answer"):
            archive.replication.reset("t")  # reset decides nothing while the outcome of the commit is unknown
        assert values(archive, "t") == [b"a", b"b"]
    with place.opened() as (log, archive):
        assert not archive.replication.reset("t").changes
        assert values(archive, "t") == [b"a", b"b"]
        assert archive.status.topic("t").lsn == 2


def test_a_branch_that_is_somebody_elses_is_not_written(diverged: Place) -> None:
    with diverged.opened() as (_, archive):
        archive.restore("t", to="lsn:1", name="mine")
        with pytest.raises(BranchExists):
            archive.replication.reset("t", as_branch="mine")
        assert {b"b", b"d", b"e"} <= set(values(archive, "t"))


def test_a_branch_of_an_earlier_reset_and_one_that_was_made_otherwise_take_nothing(diverged: Place) -> None:
    with diverged.opened() as (log, archive):
        archive.replication.reset("t", as_branch="mine")
        ship(archive, log, "t", b"ours")
        archive.restore("t", to="lsn:1", name="own")
        archive.open_for_append("t@own").append([b"x"])
    with opened(diverged.path.parent / "other", diverged.store) as (log, archive):
        archive.replication.reset("t", discard=True)
        ship(archive, log, "t", b"theirs again")
    with diverged.opened() as (log, archive):
        log.topic("t").append([b"mine again"])
        before = {name: values(archive, name) for name in ("t@mine", "t@own")}
        for branch in ("mine", "own"):
            with pytest.raises(BranchExists):
                archive.replication.reset("t", as_branch=branch)
        assert {name: values(archive, name) for name in before} == before
        assert [each.value for each in log.topic("t").read(5)] == [b"mine again"]
        assert archive.replication.reset("t", as_branch="again").changes.records == 1
        assert values(archive, "t@again")[-1] == b"mine again"


def test_what_is_appended_while_it_runs_is_on_the_branch_too(diverged: Place) -> None:
    with diverged.opened() as (log, archive):
        run, appended = rescue_of(archive).run, []

        def late(*arguments: object) -> None:
            run(*arguments)  # type: ignore[arg-type]
            if len(appended) < 2:
                appended.append(log.topic("t").append([b"late"]))

        rescue_of(archive).run = late  # type: ignore[method-assign]
        result = archive.replication.reset("t", as_branch="mine")
        assert result.changes.records == 5
        assert values(archive, "t@mine") == [b"b", b"d", b"e", b"late", b"late"]
        assert values(archive, "t") == [b"a", b"b", b"theirs"]


@pytest.mark.parametrize("values_again", [[b"f"], [b"f", b"g", b"h"]])
def test_a_branch_with_other_records_under_these_seqs_is_refused(diverged: Place, values_again: list[bytes]) -> None:
    """After a reset that did not end, the topic was truncated and written again, with the same seqs."""
    with diverged.opened() as (log, archive):
        rescue = rescue_of(archive)

        def dies(*arguments: object) -> None:
            run(*arguments)  # type: ignore[arg-type]
            raise InvalidName("reset", "died")

        run, rescue.run = rescue.run, dies  # type: ignore[method-assign]
        with pytest.raises(InvalidName):
            archive.replication.reset("t", as_branch="mine")
    with diverged.opened() as (log, archive):
        log.topic("t").truncate(3)
        log.topic("t").append(values_again)
        with pytest.raises(BranchExists):
            archive.replication.reset("t", as_branch="mine")
        assert [record.value for record in log.topic("t").read(3)] == values_again
        archive.replication.reset("t", as_branch="again")
        assert values(archive, "t@again")[-len(values_again) :] == values_again


def test_a_branch_that_lacks_records_which_an_offload_took_since_is_refused(tmp_path: Path) -> None:
    """After a reset that did not end, an offload published the records and released their hot copies."""
    place = Place(tmp_path / "base")
    with place.opened() as (log, archive):
        ship(archive, log, "t", b"a", b"b")
        log.topic("t").append([b"c", b"d"])
        rescue = rescue_of(archive)
        run = rescue.run

        def dies(handle: Handle, topic: Topic, branch: str, common_seq: int) -> None:
            topic.truncate(3)  # so the branch is made, and gets no record
            run(handle, topic, branch, common_seq)
            raise InvalidName("reset", "died")

        rescue.run = dies  # type: ignore[method-assign]
        with pytest.raises(InvalidName):
            archive.replication.reset("t", as_branch="mine")
    with place.opened() as (log, archive):
        ship(archive, log, "t", b"e", b"f")
        archive.offload("t", drop_hot=True)
        log.topic("t").append([b"g"])
        with pytest.raises(BranchExists):
            archive.replication.reset("t", as_branch="mine")
        assert values(archive, "t") == [b"a", b"b", b"e", b"f", b"g"]
        archive.replication.reset("t", as_branch="again")
        assert values(archive, "t@again") == [b"a", b"b", b"e", b"f", b"g"]


def test_appenders_that_race_a_reset_lose_nothing_that_was_acked(diverged: Place) -> None:
    """If a record was acked before the reset deleted the topic, the record is on the branch."""
    with diverged.opened() as (log, archive):
        acked: list[bytes] = []
        refusals: list[type[SeglogError]] = []
        failures: list[BaseException] = []
        stop = threading.Event()

        def run() -> None:
            try:
                append()
            except BaseException as error:
                failures.append(error)

        def append() -> None:
            topic = log.topic("t")
            number = 0
            while not stop.is_set() and log.has_topic("t") and topic.first_seq == 1 and number < 200:
                value = b"r%d" % number
                try:
                    seqs = topic.append([value])
                except SeglogError as error:
                    refusals.append(type(error))
                    return
                if seqs.start < 6:  # a new topic has the name
                    return
                acked.append(value)
                number += 1

        thread = threading.Thread(target=run)
        thread.start()
        try:
            archive.replication.reset("t", as_branch="mine")
        finally:
            stop.set()
            thread.join(60)
        assert failures == []
        assert set(refusals) <= REFUSALS
        assert set(acked) <= set(values(archive, "t@mine"))


def test_without_a_word_nothing_is_lost(diverged: Place) -> None:
    with diverged.opened() as (_, archive):
        with pytest.raises(LocalChangesLost) as caught:
            archive.replication.reset("t")
        assert (caught.value.records, caught.value.deletes, caught.value.exit_code) == (3, 2, 4)
        with pytest.raises(Diverged) as stays:
            archive.offload("t")
        assert not isinstance(stays.value, Fenced)


def test_a_topic_that_came_past_the_archive_is_saved_whole(tmp_path: Path) -> None:
    """The topic's seqs belong to other records in the volume, so topic and volume share no record."""
    place = Place(tmp_path / "one")
    with opened(tmp_path / "two", place.store) as (log, archive):
        ship(archive, log, "t", b"a", b"b")
    place.path.mkdir()
    with place.opened() as (log, archive):
        log.topic("t").append([b"x", b"y", b"z"])
        assert str(archive.replication.sync_state("t")) == "0+3 r0"
        assert archive.replication.reset("t", as_branch="past").changes.records == 3
        assert values(archive, "t") == [b"a", b"b"]
        assert [(each.seq, each.value) for each in archive.read("t@past")] == [(1, b"x"), (2, b"y"), (3, b"z")]
        log.topic("t@past").seal()
        archive.offload("t@past")
        assert values(archive, "t@past", at="seq:2") == [b"x", b"y"]


def test_a_topic_that_comes_after_one_which_a_reset_took_is_another_one(diverged: Place) -> None:
    """A process of an older release, which marks nothing, ended after it deleted the topic and before it changed the
    handle. Then an application appended without the archive.
    """
    with diverged.opened() as (log, archive):
        position = log.topic("t").inner.position
        drop_attempts(archive, "t")
        log.delete_topic("t", position=position)
    with seglog.open(diverged.path) as log:
        log.topic("t").append([b"new"])
        log.topic("t").seal()
    with diverged.opened() as (log, archive):
        with pytest.raises(Diverged):
            archive.offload("t")
        assert archive.release("t", at_once=True) == 0
        assert archive.replication.reset("t", as_branch="new").changes.records == 1
        assert values(archive, "t@new") == [b"new"]
        assert values(archive, "t") == [b"a", b"b", b"theirs"]


@pytest.mark.parametrize("is_reused", [False, True], ids=["", "key reused"])
def test_a_directory_that_was_away_for_longer_than_the_window_gets_back(tmp_path: Path, is_reused: bool) -> None:
    """GC has passed the commit that the directory stood on, and the commit of a hot copy that was never released.

    Another writer that was away may have put a commit of its own under that key since (VOL-6).
    """
    store, clock = MemoryStore(), HandClock()
    with opened(tmp_path / "one", store, clock) as (log, archive):
        ship(archive, log, "t", b"a", b"b")
        log.topic("t").append([b"mine"])
        state = archive.history.snapshot("t")
        key = commit_key(state.vid, state.lsn)
        commit = decode_commit_at(store.get(key), state.vid, state.lsn).commit
    with opened(tmp_path / "two", store, clock) as (log, archive):
        archive.replication.sync("t")
        for number in range(4):
            ship(archive, log, "t", b"%d" % number)
            clock.ms += 8 * 24 * 3_600_000
        archive.delete("t", before=2)
        for _ in range(4):
            archive.upkeep.collect()
            clock.ms += 2 * 24 * 3_600_000
    assert sum("/log/" in each for each in store.list("")) < 4
    if is_reused:
        store.put_new(key, encode_commit(replace(commit, segments=()))[0])
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    for directory, branch in (("one", "saved"), ("copy", None)):
        with opened(tmp_path / directory, store, clock) as (_, archive), pytest.raises(Fenced):
            archive.replication.sync("t")
        with opened(tmp_path / directory, store, clock) as (_, archive):
            assert archive.status.topic("t").state.startswith("2+1 r1")
            result = archive.replication.reset("t", as_branch=branch, discard=branch is None)
            assert result.changes.records == 1
            assert values(archive, "t") == [b"b", b"0", b"1", b"2", b"3"]
            if branch:
                saved = [(each.seq, each.value) for each in archive.read("t@saved")]
                assert saved in ([(1, b"a"), (2, b"b"), (3, b"mine")], [(2, b"b"), (3, b"mine")])
