"""A load: seqs, keys, owners, conflicts, and what readers and GC see of it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from catalog import CheckpointPolicy, Codec, Vid, Volumes
from catalog.errors import InvalidName, NoSuchBranch, NoSuchTopic
from catalog.format import keys
from catalog.gc.collector import Collector
from catalog.gc.policy import GcPolicy
from catalog.objects import MemoryStore
from catalog.refs.branch import Branches
from offload.format.encoder import EntryTooLarge
from offload.load import (
    InvalidRow,
    LoadConflict,
    LoadRequest,
    LoadTooLate,
    RowsChanged,
    WrittenByLog,
    check_load,
    most_value_bytes,
    open_load,
    publish_load,
)
from offload.settings import OffloadSettings
from seglog.values.config import TopicConfig
from tests.faults.store import CountingStore
from tests.offload.load.loads import NOW_MS, begin, finish, load, part, records, values
from tests.offload.pulsar_reader import PulsarReader
from tests.offload.replicas import opened, ship
from tests.offload.replicas import values as values_of

A, B, C = [b"a1", b"a2", b"a3"], [b"b1"], [b"c1", b"c2"]
HOUR_MS = 3_600_000


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def vid_of(store: MemoryStore, branch: str = "main") -> Vid:
    return Branches(Volumes(store)).resolve("orders", branch)


def objects(store: MemoryStore) -> set[str]:
    return {key for key in store.list("") if "/segments/" in key}


# ---------------------------------------------------------------- seqs and objects


def test_partitions_become_records_in_their_order_by_one_commit(store: MemoryStore) -> None:
    loaded = load(store, [A, [], B, C])
    assert (loaded.lsn, loaded.first_seq, loaded.last_seq) == (1, 1, 6)
    assert [(record.seq, record.value) for record in records(store)] == list(enumerate([*A, *B, *C], 1))
    assert load(store, [B, A]).first_seq == 7
    assert values(store) == [*A, *B, *C, *B, *A]


def test_tasks_may_end_in_any_order(store: MemoryStore) -> None:
    begun = begin(store, [A, B, C])
    finish(store, begun, [part(store, begun, number, found) for number, found in [(2, C), (0, A), (1, B)]])
    assert values(store) == [*A, *B, *C]


def test_a_large_partition_becomes_several_segments(store: MemoryStore) -> None:
    begun = begin(store, [A])
    begun = replace(begun, settings=OffloadSettings(concurrency=1, max_object_bytes=60))
    written = part(store, begun, 0, A)
    assert [(ref.first_seq, ref.last_seq) for ref in written.segments] == [(1, 1), (2, 2), (3, 3)]
    finish(store, begun, [written])
    assert values(store) == A


def test_a_task_with_other_rows_than_counted_fails_and_leaves_nothing(store: MemoryStore) -> None:
    begun = begin(store, [A, B])
    for rows in (A[:2], [*A, b"more"], []):
        with pytest.raises(RowsChanged, match=f"partition 0 has {len(rows)} rows now, and had 3"):
            part(store, begun, 0, rows)
    with pytest.raises(RowsChanged, match="partition 7 has 1 rows now, and had 0"):
        part(store, begun, 7, B)
    assert objects(store) == set()


def test_a_part_that_is_missing_or_was_written_elsewhere_is_not_published(store: MemoryStore) -> None:
    begun = begin(store, [A, B])
    written = [part(store, begun, 0, A), part(store, begun, 1, B)]
    with pytest.raises(RowsChanged, match="partition 1 has 0 rows now"):
        finish(store, begun, written[:1])
    assert objects(store) == {key for key in objects(store) if str(written[1].segments[0].sid) in key}
    elsewhere = begin(store, [[b"x"], B])
    other = part(store, elsewhere, 1, B)  # begins with seq 2
    with pytest.raises(InvalidRow, match=r"seq is not 4"):
        finish(store, begun, [part(store, begun, 0, A), other])
    assert not Volumes(store).has_commit(begun.vid, 1)


def test_a_load_without_rows_makes_no_commit(store: MemoryStore) -> None:
    assert load(store, [[], []]).lsn is None
    assert Volumes(store).newest_lsn(vid_of(store)) == 0


def test_nobody_counted_and_one_partition_has_the_rows(store: MemoryStore) -> None:
    begun = open_load(Volumes(store), LoadRequest("orders"), writer_id="test", now_ms=NOW_MS)
    finish(store, begun, [part(store, begun, 1, []), part(store, begun, 0, A)])
    assert values(store) == A


def test_times_never_fall_over_parts_and_loads(store: MemoryStore) -> None:
    load(store, [A], now_ms=NOW_MS + HOUR_MS)
    load(store, [B], now_ms=NOW_MS)  # a machine whose clock is behind
    assert {record.ts_ms for record in records(store)} == {NOW_MS + HOUR_MS}
    begun = begin(store, [A, B])
    early = part(store, replace(begun, start_ms=NOW_MS), 0, A)
    with pytest.raises(InvalidRow, match="timestamp is before the time of the record before it"):
        finish(store, begun, [early, part(store, begun, 1, B)])


def test_the_pulsar_reader_reads_a_load_of_codec_none(store: MemoryStore) -> None:
    begun = begin(store, [A], LoadRequest("orders", codec="none"))
    [ref] = part(store, begun, 0, A).segments
    index, data = store.get(keys.index_key(begun.vid, ref.sid)), store.get(keys.data_key(begun.vid, ref.sid))
    found = [entry[-8 - 2 : -8] for _, entry in PulsarReader(index[: ref.index_head_length], data).read(0, 2)]
    assert found == A
    assert store.head(keys.data_key(begun.vid, ref.sid)).metadata["s3managedledgeroffloaderformatversion"] == "1"


# ---------------------------------------------------------------- attempts


def test_of_two_attempts_of_one_task_one_is_visible_and_neither_overwrites_the_other(store: MemoryStore) -> None:
    begun = begin(store, [A, B])
    first, second = part(store, begun, 0, A), part(store, begun, 0, A)
    assert first.segments[0].sid != second.segments[0].sid
    finish(store, begun, [second, part(store, begun, 1, B)])
    assert values(store) == [*A, *B]


# ---------------------------------------------------------------- keys


def test_a_load_whose_key_is_there_changes_nothing(store: MemoryStore) -> None:
    request = LoadRequest("orders", key="day-1")
    assert load(store, [A], request).lsn == 1
    before = set(store.list(""))
    begun = begin(store, [A], request)
    assert begun.is_done
    assert finish(store, begun, []).lsn is None
    assert finish(store, begun, [part(store, begun, 0, A)]).lsn is None
    assert set(store.list("")) == before
    assert load(store, [A], LoadRequest("orders", key="day-2")).lsn == 2


def test_two_loads_with_one_key_at_the_same_time_write_once(store: MemoryStore) -> None:
    request = LoadRequest("orders", key="day-1")
    one, other = begin(store, [A], request), begin(store, [A], request)
    parts = [part(store, each, 0, A) for each in (one, other)]
    assert finish(store, one, parts[:1]).lsn == 1
    assert finish(store, other, parts[1:]).lsn is None
    assert values(store) == A
    assert not [key for key in objects(store) if str(parts[1].segments[0].sid) in key]


def test_a_key_is_found_behind_checkpoints_and_forgotten_after_256_keys(store: MemoryStore) -> None:
    volumes = Volumes(store)
    for number in range(258):
        begun = open_load(volumes, LoadRequest("orders", key=f"k{number}"), writer_id="test", now_ms=NOW_MS)
        assert not begun.is_done
        parts = [part(store, begun, 0, B)]
        publish_load(volumes, begun, parts, writer_id="test", now_ms=NOW_MS, checkpoints=CheckpointPolicy(commits=50))
    fresh = Volumes(store)
    assert [begin(store, [B], LoadRequest("orders", key=f"k{number}")).is_done for number in (1, 2, 3, 257)] == [
        False, True, True, True,
    ]  # fmt: skip
    assert len(fresh.checkpoints(vid_of(store)).marks) == 5


def test_a_branch_has_the_keys_of_the_records_that_it_has(store: MemoryStore) -> None:
    load(store, [A], LoadRequest("orders", key="one"))
    load(store, [B], LoadRequest("orders", branch="fix", key="two"))
    assert values(store, branch="fix") == [*A, *B]
    assert values(store) == A
    assert begin(store, [A], LoadRequest("orders", branch="fix", key="one")).is_done
    assert not begin(store, [A], LoadRequest("orders", key="two")).is_done


# ---------------------------------------------------------------- owners


def test_a_key_outlives_a_truncation_of_its_records_and_the_load_says_so(tmp_path: Path, store: MemoryStore) -> None:
    keyed = LoadRequest("orders", key="day 1")
    load(store, [A, C], keyed)
    with opened(tmp_path / "data", store) as (_, archive):
        archive.replication.take_over("orders")
        archive.truncate("orders", 1)
        archive.offload("orders")
    again = begin(store, [B], keyed)
    assert again.done_seq == 5
    found = finish(store, again, [])
    assert (found.lsn, found.done_seq, values(store)) == (None, 5, [])


def test_a_branch_that_a_log_writes_is_refused_and_nothing_changes(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "data", store) as (log, archive):
        ship(archive, log, "orders", *A)
        before = set(store.list(""))
        with pytest.raises(WrittenByLog, match=r"orders is written by the log of .* \(newest commit: lsn 1\)"):
            begin(store, [B])
        assert set(store.list("")) == before
        load(store, [B], LoadRequest("orders", branch="bulk"))
        assert values(store, branch="bulk") == [*A, *B]
        ship(archive, log, "orders", *C)
        assert values(store) == [*A, *C]


def test_a_takeover_spares_a_log_that_may_run_and_says_which_seqs_may_be_there_twice(
    tmp_path: Path, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    polite = LoadRequest("orders", take_over=True, unless_running=True)
    with opened(tmp_path / "data", store) as (log, archive):
        ship(archive, log, "orders", *A)
        committed_ms = round(time.time() * 1000)
        never, known = {"tail_interval_s": "never"}, {"tail_interval_s": "300", "offload_after_s": "0"}
        for age_s, own in (
            (0, {}),
            (10**8, {}),
            (10**8, {"offload_after_s": "0"}),
            (10**8, never),
            (598, known),
            (-5, known),
        ):
            if own:
                log.configure("orders", TopicConfig(attributes=own, keep_history=True))
                archive.offload("orders")
            with pytest.raises(WrittenByLog, match=r"lsn 1, \d+ s ago\); nothing was written") as caught:
                begin(store, [B], polite, committed_ms + age_s * 1000)
            assert caught.value.hint is not None
            assert caught.value.hint.endswith(
                "ask `seglog status` on its machine, run `seglog offload`, stop it, and give takeOver=force"
            )
        assert not caplog.records
        for request, age_s in ((replace(polite, unless_running=False), 0), (polite, 3600)):
            begin(store, [B, C], request, committed_ms + age_s * 1000)
            [line] = [record.getMessage() for record in caplog.records]
            assert "may have given the seqs 4 to 6 to other records" in line
            caplog.clear()
        load(store, [B, C], polite, committed_ms + 3_600_000)
        assert values(store) == [*A, *B, *C]


def test_a_check_makes_nothing_and_refuses_what_a_load_would(
    tmp_path: Path, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    def check(request: LoadRequest) -> int | None:
        before = set(store.list(""))
        try:
            return check_load(Volumes(store), request, now_ms=NOW_MS)
        finally:
            assert set(store.list("")) == before

    assert check(LoadRequest("orders")) == most_value_bytes(Codec.ZSTD)
    assert check(LoadRequest("orders", codec="none")) == most_value_bytes(Codec.NONE)
    with pytest.raises(NoSuchTopic):
        check(LoadRequest("orders", branch="fix"))
    with pytest.raises(NoSuchTopic):
        check(LoadRequest("orders", must_exist=True))
    with pytest.raises(InvalidName):
        check(LoadRequest("or*"))
    with opened(tmp_path / "data", store) as (log, archive):
        ship(archive, log, "orders", *A)
        with pytest.raises(WrittenByLog):
            check(LoadRequest("orders"))
        assert check(LoadRequest("orders", branch="fix")) == check(LoadRequest("orders", take_over=True))
    load(store, [A], LoadRequest("keyed", key="day 1"))
    with opened(tmp_path / "other", store) as (_, archive):
        archive.replication.take_over("keyed")
    assert check(LoadRequest("keyed", key="day 1")) is None  # the load is done, so it takes nothing from the log
    assert "keyed has the idempotency key 'day 1', of a load up to seq 3: nothing is written" in caplog.text
    with pytest.raises(NoSuchBranch):
        check(LoadRequest("keyed", branch="fix", must_exist=True))
    with pytest.raises(NoSuchBranch):
        begin(store, [A], LoadRequest("keyed", branch="fix", must_exist=True))
    with pytest.raises(WrittenByLog):
        check(LoadRequest("keyed"))


@pytest.mark.long
def test_the_longest_value_fits_a_block_and_the_next_does_not(store: MemoryStore) -> None:
    for codec in ("zstd", "none"):
        most = most_value_bytes(Codec[codec.upper()])
        request = LoadRequest(codec, codec=codec)
        assert load(store, [[bytes(most)]], request).last_seq == 1
        with pytest.raises(EntryTooLarge):
            load(store, [[bytes(most + 1)]], request)


def test_a_log_follows_a_load_takes_it_over_and_loads_are_refused_then(tmp_path: Path, store: MemoryStore) -> None:
    load(store, [A, B])
    with opened(tmp_path / "data", store) as (log, archive):
        archive.replication.sync("orders")
        assert values_of(archive, "orders") == [*A, *B]
        ship(archive, log, "orders", *C)
        assert values_of(archive, "orders") == [*A, *B, *C]
        assert [record.seq for record in records(store)] == [1, 2, 3, 4, 5, 6]
        with pytest.raises(WrittenByLog):
            begin(store, [A])
        load(store, [A], LoadRequest("orders", take_over=True))
        archive.replication.sync("orders")  # nothing is lost here: it follows again
        assert values_of(archive, "orders") == [*A, *B, *C, *A]
        assert archive.replication.is_replica("orders")


def test_loads_go_on_after_a_promotion_and_its_undo(tmp_path: Path, store: MemoryStore) -> None:
    load(store, [A])
    with opened(tmp_path / "data", store) as (_, archive):
        archive.restore("orders", to="head", name="first")  # a branch without a commit of its own
        archive.restore("orders", to="head", name="second")
        load(store, [B], LoadRequest("orders", branch="second"))
        for branch, shown in (("first", A), ("second", [*A, *B])):
            archive.branches.promote_branch("orders", branch)
            assert values(store) == shown
            load(store, [C])
            assert values(store) == [*shown, *C]
            archive.history.undo()
            load(store, [], LoadRequest("orders"))
            assert values(store) == A


def test_loads_go_on_after_the_undo_of_a_delete_unless_a_log_wrote(tmp_path: Path, store: MemoryStore) -> None:
    load(store, [A])
    with opened(tmp_path / "data", store) as (_, archive):
        archive.replication.take_over("orders")
        archive.evict("orders", 3)
        evicted = archive.history.newest_removal("orders")
        assert evicted is not None
        archive.restore("orders", to="head", name="side")
        load(store, [B], LoadRequest("orders", branch="side"))
        for branch, shown in (("main", A), ("side", [*A, *B])):
            name = "orders" if branch == "main" else "orders@side"
            archive.history.undo_removal(name, evicted.commit.lsn, evicted.commit.vid)
            assert values(store, branch=branch) == shown
        load(store, [C], LoadRequest("orders", branch="side"))
        assert values(store, branch="side") == [*A, *B, *C]
        with pytest.raises(WrittenByLog):  # the directory took the topic over, and nobody else since
            load(store, [C])


def test_a_log_that_has_the_topic_without_a_commit_is_fenced(tmp_path: Path, store: MemoryStore) -> None:
    with opened(tmp_path / "data", store) as (log, archive):
        log.topic("orders").append([b"not offloaded"])
        archive.offload("orders")  # nothing is sealed: the volume is made, and has no commit
        load(store, [A])
        log.topic("orders").seal()
        with pytest.raises(Exception, match="was taken over by another writer"):
            archive.offload("orders")
    assert values(store) == A


def test_another_branch_than_main_needs_a_topic(store: MemoryStore) -> None:
    with pytest.raises(NoSuchTopic):
        begin(store, [A], LoadRequest("orders", branch="fix"))


# ---------------------------------------------------------------- conflicts


def test_of_two_loads_at_once_one_wins_and_the_other_leaves_nothing(store: MemoryStore) -> None:
    one, other = begin(store, [A]), begin(store, [B])
    parts = [part(store, one, 0, A)], [part(store, other, 0, B)]
    finish(store, other, parts[1])
    with pytest.raises(LoadConflict, match="test committed to orders at lsn 1 during this load"):
        finish(store, one, parts[0])
    assert values(store) == B
    assert len(objects(store)) == 2
    load(store, [A])
    assert values(store) == [*B, *A]


def test_a_takeover_during_a_load_wins(tmp_path: Path, store: MemoryStore) -> None:
    load(store, [A])
    begun = begin(store, [B])
    written = [part(store, begun, 0, B)]
    with opened(tmp_path / "data", store) as (_, archive):
        archive.replication.take_over("orders")
        with pytest.raises(LoadConflict):
            finish(store, begun, written)
    assert values(store) == A


@pytest.mark.parametrize("wins", ["takeover", "promotion"])
def test_a_takeover_or_a_promotion_during_a_load_that_takes_over_wins(
    tmp_path: Path, store: MemoryStore, wins: str
) -> None:
    """Each of the two raises the epoch as far as the load would."""
    with opened(tmp_path / "one", store) as (log, archive):
        ship(archive, log, "orders", *A)
        begun = begin(store, [B], LoadRequest("orders", take_over=True), log.topic("orders").last_ts_ms)
        written = [part(store, begun, 0, B)]
        if wins == "promotion":
            archive.restore("orders", to="head", name="f")
            archive.branches.promote_branch("orders", "f")
        else:
            with opened(tmp_path / "two", store) as (_, other):
                other.replication.take_over("orders")
        assert Volumes(store).snapshot(begun.vid).epoch == begun.epoch
        with pytest.raises(LoadConflict):
            finish(store, begun, written)
    assert values(store) == A


def test_a_load_goes_on_after_maintenance(tmp_path: Path, store: MemoryStore) -> None:
    load(store, [A])
    begun = begin(store, [B])
    written = [part(store, begun, 0, B)]
    _fence(store, begun.vid, NOW_MS - 10)
    assert finish(store, begun, written).lsn == 3
    assert values(store) == [*A, *B]


def _fence(store: MemoryStore, vid: Vid, collected_before_ms: int) -> None:
    """Publish what GC publishes before it deletes segments that no commit names."""
    from catalog import Commit, CommitKind, encode_commit

    tip = Volumes(store).snapshot(vid)
    commit = Commit(
        vid=vid,
        lsn=tip.lsn + 1,
        kind=CommitKind.CONFIG,
        bounds=tip.bounds,
        parent_hash=tip.head_hash,
        nonce=bytes(16),
        created_at_ms=NOW_MS,
        writer_id="gc",
        epoch=tip.epoch,
        at_seq=tip.bounds.head_seq,
        at_ts_ms=tip.max_ts_ms,
        form=tip.form,
        collected_before_ms=collected_before_ms,
    )
    Volumes(store).publish(vid, commit.lsn, encode_commit(commit)[0])


# ---------------------------------------------------------------- GC


class Times:
    def __init__(self) -> None:
        self.now_ms = NOW_MS


def collect(store: MemoryStore, times: Times) -> None:
    policy = GcPolicy(window_s=7 * 86_400, grace_s=86_400)
    assert not Collector(store, policy, clock=lambda: times.now_ms, writer_id="gc").run().damaged_plans


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.fixture
def timed(times: Times) -> MemoryStore:
    return MemoryStore(lambda: times.now_ms)


@pytest.mark.parametrize("is_first", [True, False])
def test_gc_leaves_a_load_alone_for_its_grace_and_then_deletes_what_no_commit_names(
    timed: MemoryStore, times: Times, *, is_first: bool
) -> None:
    if not is_first:
        load(timed, [A])
    kept = objects(timed)
    begun = begin(timed, [B, C])
    parts = [part(timed, begun, 0, B), part(timed, begun, 1, C)]
    part(timed, begun, 1, C)  # of an attempt that another one overtook
    times.now_ms += 23 * HOUR_MS
    collect(timed, times)
    times.now_ms += 23 * HOUR_MS  # a plan of a day ago has nothing of it
    assert len(objects(timed) - kept) == 6
    finish(timed, begun, parts)
    for _ in range(3):
        times.now_ms += 25 * HOUR_MS
        collect(timed, times)
    assert len(objects(timed) - kept) == 4
    assert values(timed) == [*([] if is_first else A), *B, *C]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_load_that_took_longer_than_the_grace_is_refused(timed: MemoryStore, times: Times, *, is_first: bool) -> None:
    if not is_first:
        load(timed, [A])
    begun = begin(timed, [B])
    parts = [part(timed, begun, 0, B)]
    for _ in range(3):
        times.now_ms += 25 * HOUR_MS
        collect(timed, times)
    with pytest.raises(LoadTooLate, match="took longer than GC's grace"):
        finish(timed, begun, parts)
    assert values(timed) == ([] if is_first else A)


# ---------------------------------------------------------------- cost


def test_a_load_costs_few_requests() -> None:
    store = CountingStore(MemoryStore())
    load(store, [B] * 5)
    store.counts.clear()
    load(store, [B] * 5, LoadRequest("orders", key="k"))
    assert store.counts["put"] == 10
    assert store.counts["put_new"] == 1
    assert store.counts.total() < 35
