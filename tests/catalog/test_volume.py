"""Volumes: reads verify each object and its link to the one before. Faults never publish a commit twice."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from catalog import schema_pb2 as pb
from catalog.checkpointer import make_checkpoint
from catalog.errors import Diverged, FormatUnsupported, InvalidObject, NoSuchObject, OutcomeUnknown, StoreUnreachable
from catalog.format.commit import NO_PARENT, Bounds, ForkPoint
from catalog.format.control import Boundary, Control
from catalog.format.encoding import StoredCommit, encode_commit
from catalog.format.envelope import MessageType, unwrap, wrap
from catalog.format.keys import Key, boundary_key, checkpoints_key, commit_key, control_key, fork_key
from catalog.format.small_objects import decode_fork, encode_boundary, encode_control
from catalog.local_catalog import LocalCatalog
from catalog.objects import LocalStore, MemoryStore, ObjectStore
from catalog.objects.s3 import S3Store
from catalog.objects.settled_writes import TRIES
from catalog.timeline import Seq, resolve
from catalog.volume import DEAD, Volumes
from tests.catalog.samples import START_MS, HistoryMaker
from tests.faults.store import CountingStore, Fault, FaultyStore, UnorderedStore, lost, unreachable
from tests.worlds.volumes import FORK, MAIN, OURS, SECOND, THEIRS, commit_of, control

pytestmark = pytest.mark.usefixtures("no_pauses")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[LocalCatalog]:
    with LocalCatalog(tmp_path / "catalog.db") as opened:
        yield opened


def push(store: ObjectStore, history: HistoryMaker, parent: ForkPoint | None = None, branch: str = "main") -> None:
    volumes = Volumes(store)
    volumes.create(control(history.vid, parent, branch))
    for stored in history.stored:
        body, _ = encode_commit(stored.commit)
        volumes.publish(history.vid, stored.commit.lsn, body)


def overwrite(store: ObjectStore, key: Key, body: bytes) -> None:
    store.put(key, body, {})


def main_history() -> HistoryMaker:
    history = HistoryMaker(MAIN)
    history.offload((1, 10), (11, 20))
    history.offload((21, 30))
    history.delete(30, before=5)
    return history


def fork_history(main: HistoryMaker, lsn: int, seq: int) -> HistoryMaker:
    branch = HistoryMaker(FORK, head_seq=seq, parent_hash=main.stored[lsn - 1].hash)
    branch.offload((seq + 1, seq + 5))
    return branch


# ---------------------------------------------------------------- reading


def test_commits_come_back_oldest_first(store: MemoryStore) -> None:
    history = main_history()
    push(store, history)
    volumes = Volumes(store)
    assert volumes.newest_lsn(MAIN) == 3
    assert volumes.commits(MAIN, 1, 3) == tuple(history.stored)
    assert volumes.commits(MAIN, 2, 2) == (history.stored[1],)
    assert volumes.commits(MAIN, 3, 2) == ()
    assert volumes.newest_lsn(FORK) == 0


def test_the_newest_lsn_is_one_request(store: MemoryStore) -> None:
    push(store, main_history())
    counting = CountingStore(store)
    assert Volumes(counting).newest_lsn(MAIN) == 3
    assert counting.counts == {"list": 1}


@pytest.mark.parametrize("checkpoint", [0, 1, 70])
def test_without_order_the_newest_lsn_is_searched_from_the_newest_checkpoint_on(checkpoint: int) -> None:
    store = UnorderedStore()
    assert Volumes(store).newest_lsn(MAIN) == 0
    history = HistoryMaker(MAIN)
    Volumes(store).create(Control(MAIN, None, START_MS, "orders", "main"))
    for lsn in range(1, 201):
        history.offload((lsn * 10 + 1, lsn * 10 + 10))
        Volumes(store).publish(MAIN, lsn, encode_commit(history.stored[-1].commit)[0])
        if lsn == checkpoint:
            make_checkpoint(Volumes(store), MAIN, lsn, now_ms=START_MS)
            store.delete_many([commit_key(MAIN, below) for below in range(1, lsn)])
        counting = CountingStore(store)
        assert Volumes(counting).newest_lsn(MAIN) == lsn
        since = lsn - (checkpoint if lsn >= checkpoint else 0)
        assert counting.counts.pop("get_range") == 1
        assert counting.counts.pop("head") <= 2 * (since + 1).bit_length()
        assert not counting.counts


def test_damage_of_the_checkpoints_costs_a_listing_and_not_the_newest_lsn() -> None:
    store = UnorderedStore()
    push(store, main_history())
    store.put(checkpoints_key(MAIN), b"damaged", {})
    assert Volumes(store).newest_lsn(MAIN) == 3


def test_in_a_directory_the_newest_lsn_lists_nothing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "remote")
    push(store, main_history())
    counting = CountingStore(store)
    assert Volumes(counting).newest_lsn(MAIN) == 3
    assert "list" not in counting.counts


def test_a_long_history_is_read_by_several_threads_and_in_order(store: MemoryStore) -> None:
    history = HistoryMaker(MAIN)
    for number in range(100):
        history.offload((number * 10 + 1, number * 10 + 10))
    push(store, history)
    assert Volumes(store).commits(MAIN, 1, 100) == tuple(history.stored)
    assert Volumes(store).snapshot(MAIN).bounds == Bounds(1, 1_000)


def test_what_was_read_once_is_not_asked_for_again(store: MemoryStore, cache: LocalCatalog) -> None:
    main = main_history()
    push(store, main)
    push(store, fork_history(main, 2, 25), ForkPoint(MAIN, 2, 25), "half")
    counting = CountingStore(store)
    volumes = Volumes(counting, cache)
    first = volumes.snapshot(FORK)
    # GETs: two controls, the fork's commit, two commits of its parent. Ranged GETs: two absent lists of checkpoints.
    assert counting.counts == {"list": 1, "get": 2 + 1 + 2, "get_range": 2}
    counting.counts.clear()
    assert volumes.snapshot(FORK) == first
    assert counting.counts == {"list": 1}
    counting.counts.clear()
    assert len([*volumes.history(FORK)]) == 3
    assert counting.counts == {"list": 1, "get": 2 * 2}  # the boundary and the checkpoints of each volume


def test_a_damaged_local_copy_is_fetched_again(store: MemoryStore, cache: LocalCatalog) -> None:
    history = main_history()
    push(store, history)
    cache.put_commits(MAIN, [(2, b"damaged")])
    cache.put_control(MAIN, b"damaged")
    volumes = Volumes(store, cache)
    assert volumes.commits(MAIN, 1, 3) == tuple(history.stored)
    assert volumes.control(MAIN) == control(MAIN)
    assert cache.commit_bodies(MAIN, 2, 2) == {2: encode_commit(history.stored[1].commit)[0]}
    assert cache.control(MAIN) == encode_control(control(MAIN))


def test_what_is_not_there_is_no_such_object(store: MemoryStore) -> None:
    push(store, main_history())
    volumes = Volumes(store)
    with pytest.raises(NoSuchObject, match=commit_key(MAIN, 4)):
        volumes.commits(MAIN, 1, 4)
    with pytest.raises(NoSuchObject, match=f"{SECOND}/control"):
        volumes.control(SECOND)


def test_a_store_that_fails_is_never_an_empty_volume(store: MemoryStore) -> None:
    push(store, main_history())
    for method in ("list", "get"):
        volumes = Volumes(FaultyStore(store, [Fault(error=unreachable, method=method)]))
        with pytest.raises(StoreUnreachable):
            volumes.snapshot(MAIN)


# ---------------------------------------------------------------- damage


@pytest.mark.long
def test_a_flipped_byte_in_any_object_names_the_object(store: MemoryStore) -> None:
    main = main_history()
    push(store, main)
    for key in (commit_key(MAIN, 2), control_key(MAIN)):
        whole = store.get(key)
        for offset in range(len(whole)):
            if offset == 3:
                continue
            overwrite(store, key, whole[:offset] + bytes([whole[offset] ^ 0x10]) + whole[offset + 1 :])
            with pytest.raises(InvalidObject, match=f"^{key}: "):
                Volumes(store).snapshot(MAIN)
        overwrite(store, key, b"SGL9" + whole[4:])
        with pytest.raises(FormatUnsupported, match=f"^{key}: format version 9"):
            Volumes(store).snapshot(MAIN)
        overwrite(store, key, whole)
    assert Volumes(store).snapshot(MAIN).lsn == 3


def test_a_commit_that_is_missing_below_the_boundary_was_collected(store: MemoryStore) -> None:
    push(store, main_history())
    store.delete(commit_key(MAIN, 1))
    store.put_new(boundary_key(MAIN), encode_boundary(Boundary(MAIN, 2)))
    with pytest.raises(NoSuchObject, match=commit_key(MAIN, 1)):
        Volumes(store).commits(MAIN, 1, 3)
    store.delete(commit_key(MAIN, 2))
    with pytest.raises(InvalidObject, match=f"{commit_key(MAIN, 2)}: it is missing, though lsn 3 is there"):
        Volumes(store).commits(MAIN, 2, 3)


def test_a_commit_missing_from_the_middle_is_damage_and_not_absence(store: MemoryStore) -> None:
    push(store, main_history())
    store.delete(commit_key(MAIN, 2))
    with pytest.raises(InvalidObject, match=f"{commit_key(MAIN, 2)}: it is missing, though lsn 3 is there"):
        Volumes(store).snapshot(MAIN)


def test_a_commit_copied_under_another_key_is_found(store: MemoryStore) -> None:
    push(store, main_history())
    overwrite(store, commit_key(MAIN, 3), store.get(commit_key(MAIN, 2)))
    with pytest.raises(InvalidObject, match=r"lsn 2 of volume .* in the wrong place"):
        Volumes(store).snapshot(MAIN)


def rewritten(stored: StoredCommit) -> bytes:
    """Return a valid commit with another content and so another hash."""
    return encode_commit(dataclasses.replace(stored.commit, message="rewritten"))[0]


@pytest.mark.parametrize("known_lsn", [0, 1, 2])
def test_a_rewritten_commit_breaks_the_chain_after_it(store: MemoryStore, known_lsn: int) -> None:
    history = main_history()
    push(store, history)
    volumes = Volumes(store)
    volumes.snapshot(MAIN, known_lsn)
    overwrite(store, commit_key(MAIN, 2), rewritten(history.stored[1]))
    if known_lsn < 2:
        with pytest.raises(InvalidObject, match=f"^{commit_key(MAIN, 3)}: it does not continue lsn 2"):
            volumes.commits(MAIN, 1, 3)
        with pytest.raises(InvalidObject, match=f"^{commit_key(MAIN, 3)}: it does not continue lsn 2"):
            volumes.snapshot(MAIN, 3)
    else:
        assert volumes.snapshot(MAIN, 3).lsn == 3  # the state that was cached before the damage


def test_a_commit_that_does_not_continue_what_is_known_is_refused(store: MemoryStore) -> None:
    history = main_history()
    push(store, history)
    volumes = Volumes(store)
    volumes.snapshot(MAIN, 2)
    overwrite(
        store,
        commit_key(MAIN, 3),
        encode_commit(dataclasses.replace(history.stored[2].commit, parent_hash=bytes(32)))[0],
    )
    with pytest.raises(InvalidObject, match=f"^{commit_key(MAIN, 3)}: it does not continue lsn 2"):
        volumes.snapshot(MAIN, 3)


def test_a_first_commit_that_names_a_parent_is_refused(store: MemoryStore) -> None:
    push(store, HistoryMaker(MAIN))
    stray = HistoryMaker(MAIN, parent_hash=bytes(range(32)))
    stray.offload((1, 10))
    overwrite(store, commit_key(MAIN, 1), encode_commit(stray.stored[0].commit)[0])
    with pytest.raises(InvalidObject, match="forked from"):
        Volumes(store).snapshot(MAIN, 1)


def test_the_chain_is_checked_across_a_fork(store: MemoryStore) -> None:
    main = main_history()
    push(store, main)
    push(store, fork_history(main, 2, 25), ForkPoint(MAIN, 2, 25), "half")
    assert Volumes(store).snapshot(FORK, 1).lsn == 1
    overwrite(store, commit_key(MAIN, 2), rewritten(main.stored[1]))
    with pytest.raises(InvalidObject, match=f"^{commit_key(FORK, 1)}: .*forked from"):
        Volumes(store).snapshot(FORK, 1)


def test_volumes_that_are_forks_of_each_other_are_damage(store: MemoryStore) -> None:
    overwrite(store, control_key(MAIN), encode_control(control(MAIN, ForkPoint(FORK, 0))))
    overwrite(store, control_key(FORK), encode_control(control(FORK, ForkPoint(MAIN, 0))))
    with pytest.raises(InvalidObject, match="is a fork of it"):
        Volumes(store).snapshot(MAIN, 0)


def test_a_stray_object_among_the_commits_is_passed_by(store: MemoryStore) -> None:
    push(store, main_history())
    overwrite(store, Key(f"{MAIN}/log/0stray"), b"")
    assert Volumes(store).newest_lsn(MAIN) == 3
    overwrite(store, Key(f"{FORK}/log/0stray"), b"")
    assert Volumes(store).newest_lsn(FORK) == 0


# ---------------------------------------------------------------- forks


def test_a_snapshot_follows_forks_of_forks_to_the_root(store: MemoryStore) -> None:
    main = main_history()
    push(store, main)
    branch = fork_history(main, 2, 25)
    push(store, branch, ForkPoint(MAIN, 2, 25), "half")
    second = HistoryMaker(SECOND, head_seq=28, parent_hash=branch.stored[0].hash)
    second.offload((29, 31))
    push(store, second, ForkPoint(FORK, 1, 28), "quarter")
    snapshot = Volumes(store).snapshot(SECOND)
    shown = [(view.first, view.last, view.vid) for view in snapshot.segments]
    assert shown == [(1, 10, MAIN), (11, 20, MAIN), (21, 25, MAIN), (26, 28, FORK), (29, 31, SECOND)]
    assert snapshot.bounds == Bounds(1, 31)
    assert snapshot.before_seq == 0  # the delete came after the fork point
    assert Volumes(store).snapshot(MAIN).before_seq == 5


def test_a_fork_that_has_no_commits_yet_shows_its_parent_and_can_be_forked(store: MemoryStore) -> None:
    main = main_history()
    push(store, main)
    push(store, HistoryMaker(FORK), ForkPoint(MAIN, 2, 25), "half")
    volumes = Volumes(store)
    snapshot = volumes.snapshot(FORK)
    assert (snapshot.vid, snapshot.lsn, snapshot.bounds.head_seq) == (FORK, 0, 25)
    assert snapshot.head_hash == main.stored[1].hash
    push(store, HistoryMaker(SECOND), ForkPoint(FORK, 0), "quarter")
    assert volumes.snapshot(SECOND) == dataclasses.replace(snapshot, vid=SECOND)
    first = HistoryMaker(SECOND, head_seq=25, parent_hash=main.stored[1].hash)
    first.offload((26, 30))
    volumes.publish(SECOND, 1, encode_commit(first.stored[0].commit)[0])
    assert volumes.commits(SECOND, 1, 1) == tuple(first.stored)


def test_a_snapshot_of_the_past_is_the_past(store: MemoryStore) -> None:
    push(store, main_history())
    volumes = Volumes(store)
    assert volumes.snapshot(MAIN, 1).bounds == Bounds(1, 20)
    assert volumes.snapshot(MAIN, 2, 25).bounds == Bounds(1, 25)
    assert volumes.snapshot(MAIN, 0).segments == ()


def test_a_snapshot_after_another_costs_the_commits_between_them(store: MemoryStore) -> None:
    history = HistoryMaker(MAIN)
    for number in range(20):
        history.offload((number * 10 + 1, number * 10 + 10))
    push(store, history)
    counting = CountingStore(store)
    volumes = Volumes(counting)
    volumes.snapshot(MAIN, 18)
    counting.counts.clear()
    later = volumes.snapshot(MAIN, 20)
    assert counting.counts == {"get": 2}  # the two commits
    assert later == Volumes(store).snapshot(MAIN, 20)
    assert volumes.snapshot(MAIN, 5) == Volumes(store).snapshot(MAIN, 5)
    assert volumes.snapshot(MAIN, 20, 55) == Volumes(store).snapshot(MAIN, 20, 55)


def test_history_is_newest_first_with_parents_up_to_the_cuts(store: MemoryStore) -> None:
    main = main_history()
    push(store, main)
    branch = fork_history(main, 2, 25)
    push(store, branch, ForkPoint(MAIN, 2, 25), "half")
    push(store, HistoryMaker(SECOND), ForkPoint(FORK, 1, 22), "quarter")
    volumes = Volumes(store)
    half = [(past.commit.vid, past.commit.lsn, past.cut_seq) for past in volumes.history(FORK)]
    assert half == [(FORK, 1, None), (MAIN, 2, 25), (MAIN, 1, 25)]
    quarter = [(past.commit.vid, past.commit.lsn, past.cut_seq) for past in volumes.history(SECOND)]
    assert quarter == [(FORK, 1, 22), (MAIN, 2, 22), (MAIN, 1, 22)]
    assert [past.commit.lsn for past in volumes.history(MAIN, 2)] == [2, 1]
    found = resolve(Seq(22), volumes.history(SECOND), lambda *_: 0)
    assert found == ForkPoint(MAIN, 2, 22)


def test_a_fork_is_noted_in_its_parent_and_needs_a_commit_that_is_there(store: MemoryStore) -> None:
    main = main_history()
    push(store, main)
    point = ForkPoint(MAIN, 2, 25)
    Volumes(store).create(control(FORK, point, "half"))
    fork = decode_fork(store.get(fork_key(MAIN, FORK)), "here")
    assert (fork.fork_vid, fork.parent) == (FORK, point)
    with pytest.raises(NoSuchObject):
        Volumes(store).create(control(SECOND, ForkPoint(MAIN, 9), "quarter"))
    assert list(store.list(f"{SECOND}/")) == []


# ---------------------------------------------------------------- publishing


@pytest.fixture
def volume(store: MemoryStore) -> MemoryStore:
    """A store that holds the volume and none of its commits."""
    Volumes(store).create(control(MAIN))
    return store


def test_publishing_is_a_put_and_a_get_of_the_boundary_when_all_is_well(volume: MemoryStore) -> None:
    counting = CountingStore(volume)
    Volumes(counting).publish(MAIN, 1, OURS)
    assert counting.counts == {"put_new": 1, "get": 1}
    assert volume.get(commit_key(MAIN, 1)) == OURS


def test_publishing_again_is_done_already(volume: MemoryStore) -> None:
    for _ in range(2):
        Volumes(volume).publish(MAIN, 1, OURS)


def test_the_same_content_of_another_writer_is_not_ours(volume: MemoryStore) -> None:
    Volumes(volume).publish(MAIN, 1, THEIRS)
    with pytest.raises(Diverged, match=rf"orders has diverged: lsn 1 of volume {MAIN}") as raised:
        Volumes(volume).publish(MAIN, 1, OURS)
    assert (raised.value.topic, raised.value.vid, raised.value.lsn) == ("orders", str(MAIN), 1)
    assert volume.get(commit_key(MAIN, 1)) == THEIRS


def test_divergence_names_the_branch(store: MemoryStore) -> None:
    Volumes(store).create(control(MAIN, branch="half"))
    Volumes(store).publish(MAIN, 1, THEIRS)
    with pytest.raises(Diverged, match="orders@half has diverged"):
        Volumes(store).publish(MAIN, 1, OURS)


def test_a_commit_that_became_a_checkpoint_meanwhile_is_still_ours(volume: MemoryStore) -> None:
    message = pb.Commit.FromString(unwrap(MessageType.COMMIT, OURS, "here"))
    message.checkpoint_ts.FromMilliseconds(START_MS)
    overwrite(volume, commit_key(MAIN, 1), wrap(MessageType.COMMIT, message.SerializeToString()))
    Volumes(volume).publish(MAIN, 1, OURS)


def test_a_body_that_is_not_the_commit_of_that_lsn_is_never_sent(volume: MemoryStore) -> None:
    for vid_, lsn, body in ((MAIN, 2, OURS), (FORK, 1, OURS), (MAIN, 1, OURS[:-1])):
        with pytest.raises(InvalidObject):
            Volumes(volume).publish(vid_, lsn, body)
    assert Volumes(volume).newest_lsn(MAIN) == 0


def test_a_damaged_object_under_the_key_is_no_verdict(volume: MemoryStore) -> None:
    overwrite(volume, commit_key(MAIN, 1), THEIRS[:-1])
    with pytest.raises(InvalidObject, match=commit_key(MAIN, 1)):
        Volumes(volume).publish(MAIN, 1, OURS)


@pytest.mark.parametrize("taken", [False, True])
def test_no_faults_make_publish_say_what_is_not_so(taken: bool) -> None:
    """Try every fault and every pair of faults at the first two calls.

    The verdict "done" means that our commit is there. Diverged means that theirs is.
    """
    singles = [
        Fault(nth, when, error, method)  # type: ignore[arg-type]
        for nth, when, error, method in itertools.product(
            (1, 2), ("before", "after"), (lost, unreachable), ("put_new", "get")
        )
        if (method, error, when) != ("put_new", unreachable, "after")  # such a store would break its own promise
    ]
    verdicts = set()
    for plan in [*((fault,) for fault in singles), *itertools.combinations(singles, 2)]:
        inner = MemoryStore()
        Volumes(inner).create(control(MAIN))
        if taken:
            inner.put_new(commit_key(MAIN, 1), THEIRS)
        try:
            Volumes(FaultyStore(inner, plan)).publish(MAIN, 1, OURS)
            verdict = "done"
            assert inner.get(commit_key(MAIN, 1)) == OURS
        except Diverged:
            verdict = "diverged"
            assert inner.get(commit_key(MAIN, 1)) == THEIRS
        except (OutcomeUnknown, StoreUnreachable):
            verdict = "unknown"
        verdicts.add(verdict)
        if verdict == "unknown" and not taken:  # the next run sends the identical bytes and succeeds
            Volumes(inner).publish(MAIN, 1, OURS)
            assert inner.get(commit_key(MAIN, 1)) == OURS
    assert verdicts == {"unknown", "diverged" if taken else "done"}


def test_a_store_that_never_answers_is_given_up_on(volume: MemoryStore) -> None:
    faulty = FaultyStore(volume, [Fault(method="put_new")])
    with pytest.raises(OutcomeUnknown):
        Volumes(faulty).publish(MAIN, 1, OURS)
    assert faulty.effects == TRIES


def test_a_boundary_that_nobody_can_read_leaves_the_outcome_open(volume: MemoryStore) -> None:
    faulty = FaultyStore(volume, [Fault(method="get", error=unreachable)])
    with pytest.raises(OutcomeUnknown, match=boundary_key(MAIN)):
        Volumes(faulty).publish(MAIN, 1, OURS)
    Volumes(volume).publish(MAIN, 1, OURS)


def test_of_racing_writers_one_wins_each_lsn_and_the_rest_diverge(remote_store: ObjectStore) -> None:
    writers = 4
    Volumes(remote_store).create(control(MAIN))
    parent_hash = NO_PARENT
    for lsn in (1, 2, 3):
        made = [commit_of(f"writer {number}", lsn, parent_hash)[1] for number in range(writers)]

        def publish(body: bytes, lsn: int = lsn) -> bool:
            try:
                Volumes(remote_store).publish(MAIN, lsn, body)
            except Diverged:
                return False
            return True

        with ThreadPoolExecutor(writers) as pool:
            won = list(pool.map(publish, made))
        assert won.count(True) == 1
        stored = Volumes(remote_store).commits(MAIN, lsn, lsn)[0]
        assert encode_commit(stored.commit)[0] == made[won.index(True)]
        parent_hash = stored.hash


@pytest.fixture
def remote_store(remote: str) -> Iterator[ObjectStore]:
    opened: ObjectStore = LocalStore(Path(remote.removeprefix("file://")))
    if remote.startswith("s3://"):
        opened = S3Store(remote)
    yield opened
    opened.close()


CHILD = """
import sys
from pathlib import Path
from catalog.objects import LocalStore
from catalog.volume import DEAD, Volumes
from tests.worlds.volumes import MAIN, OURS, control
from tests.faults.store import KillingStore
root, effect, when = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
volumes = Volumes(KillingStore(LocalStore(root), effect, when))
volumes.create(control(MAIN))
volumes.publish(MAIN, 1, OURS)
"""


@pytest.mark.parametrize(
    ("effect", "when"),
    [
        (1, "after"),
        (2, "before"),
        pytest.param(1, "before", marks=pytest.mark.soak(part=8)),
        pytest.param(2, "after", marks=pytest.mark.soak(part=8)),
    ],
)
def test_a_writer_killed_around_any_effect_finishes_when_it_is_run_again(
    tmp_path: Path, effect: int, when: str
) -> None:
    root = tmp_path / "remote"
    command = [sys.executable, "-c", CHILD, str(root)]
    here = Path(__file__).parents[2]
    assert subprocess.run([*command, str(effect), when], cwd=here, check=False).returncode == -9
    assert subprocess.run([*command, "99", "before"], cwd=here, check=False).returncode == 0
    assert Volumes(LocalStore(root)).snapshot(MAIN).bounds == Bounds(1, 10)


def test_what_is_here_is_told_without_a_request_and_the_rest_is_not(store: MemoryStore, cache: LocalCatalog) -> None:
    push(store, main_history())
    counting = CountingStore(store)
    volumes = Volumes(counting, cache)
    with pytest.raises(StoreUnreachable, match="is made offline"):
        volumes.offline().snapshot(MAIN, 2)
    shown = volumes.snapshot(MAIN, 2)
    counting.counts.clear()
    assert volumes.offline().snapshot(MAIN, 2) == shown
    assert Volumes(counting, cache).offline().snapshot(MAIN, 2) == shown
    with pytest.raises(StoreUnreachable):
        volumes.offline().newest_lsn(MAIN)
    assert not counting.counts


@pytest.mark.parametrize("lsn", [2**40, 2**62, 2**63, DEAD])
@pytest.mark.parametrize("has_cache", [False, True])
def test_an_lsn_that_cannot_be_is_missing_and_nothing_is_as_long_as_it_says(
    store: MemoryStore, cache: LocalCatalog, lsn: int, *, has_cache: bool
) -> None:
    push(store, main_history())
    volumes = Volumes(store, cache if has_cache else None)
    with pytest.raises(NoSuchObject):
        volumes.commits(MAIN, 1, lsn)
    with pytest.raises(NoSuchObject):
        volumes.snapshot(MAIN, lsn)
    assert volumes.snapshot(MAIN).lsn == 3
