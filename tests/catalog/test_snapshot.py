"""The fold from commits to a snapshot: adds, deletes, truncations, compactions and forks, compared with a model."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.format.commit import Bounds, LoadedKey
from catalog.snapshot import Snapshot, checkpoint_of, cut, empty, fold, fork, from_checkpoint
from tests.catalog.samples import HistoryMaker, segment, vid
from tests.worlds.snapshots import visible

MAIN, FORK = vid(1), vid(2)


def snapshot_of(history: HistoryMaker) -> Snapshot:
    return fold(empty(history.vid), history.stored)


def ranges(snapshot: Snapshot) -> list[tuple[int, int]]:
    return [(view.first, view.last) for view in snapshot.segments]


def test_a_volume_without_commits_is_empty() -> None:
    assert empty(MAIN) == Snapshot(MAIN, 0, Bounds(1, 0), (), 0, bytes(32))
    assert fold(empty(MAIN), []) == empty(MAIN)


def test_offloads_add_up() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 10), (11, 20))
    history.offload((21, 30))
    snapshot = snapshot_of(history)
    assert ranges(snapshot) == [(1, 10), (11, 20), (21, 30)]
    assert {view.vid for view in snapshot.segments} == {MAIN}
    assert (snapshot.lsn, snapshot.bounds, snapshot.before_seq) == (2, Bounds(1, 30), 0)
    assert snapshot.head_hash == history.stored[-1].hash


def test_folding_in_two_steps_is_folding_in_one() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 10), (11, 20))
    history.delete(20, of=segment(11, 20), seqs=[12])
    history.offload((21, 30))
    history.delete(30, before=5)
    history.delete(30, of=segment(11, 20), seqs=[14])
    whole = snapshot_of(history)
    for lsn in range(6):
        assert fold(fold(empty(MAIN), history.stored[:lsn]), history.stored[lsn:]) == whole


def test_a_delete_before_a_seq_hides_what_is_below_it() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 10), (11, 20))
    history.delete(20, before=14)
    snapshot = snapshot_of(history)
    assert ranges(snapshot) == [(14, 20)]
    assert snapshot.before_seq == 14
    assert snapshot.segments[0].ref.first_seq == 11


def test_a_later_delete_never_brings_back_what_an_earlier_one_took() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 20))
    history.delete(20, before=14)
    history.delete(20, before=6)
    assert list(visible(snapshot_of(history))) == list(range(14, 21))
    assert snapshot_of(history).before_seq == 14


def test_a_delete_before_everything_does_not_reach_what_comes_later() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 20))
    history.delete(20, before=1_000)
    assert visible(snapshot_of(history)) == {}
    assert snapshot_of(history).before_seq == 21
    history.offload((21, 30))
    assert list(visible(snapshot_of(history))) == list(range(21, 31))


def test_a_delete_does_not_reach_records_appended_after_it_but_offloaded_before_its_commit() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 100))
    history.delete(50, before=1_000)
    assert list(visible(snapshot_of(history))) == list(range(51, 101))


def test_a_commit_that_begins_where_a_view_ends_shows_that_seq_once() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 11))
    history.offload((11, 20))
    assert ranges(snapshot_of(history)) == [(1, 10), (11, 20)]


def test_a_fork_begins_without_what_its_parents_commits_say_of_their_volume() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 20))
    parent = replace(snapshot_of(history), collected_before_ms=5, epoch=3, load_epoch=3)
    forked = fork(parent, FORK)
    assert (forked.vid, forked.lsn, forked.epoch, forked.collected_before_ms, forked.load_epoch) == (FORK, 0, 0, 0, 0)
    assert forked.segments == parent.segments


def test_a_cut_has_had_no_higher_seq() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 20))
    assert (cut(snapshot_of(history), 12).max_seq, cut(snapshot_of(history), 30).max_seq) == (12, 20)


def test_bitmaps_hide_single_records_and_add_up() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 10), (11, 20))
    history.delete(20, of=segment(11, 20), seqs=[12, 15])
    history.delete(20, of=segment(11, 20), seqs=[15, 20])
    snapshot = snapshot_of(history)
    assert set(range(1, 21)) - set(visible(snapshot)) == {12, 15, 20}
    assert snapshot.segments[0].deleted is None


def test_a_truncation_clamps_and_its_seqs_are_used_again() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 10), (11, 20))
    history.truncate(20, first_removed=8)
    assert ranges(snapshot_of(history)) == [(1, 7)]
    history.offload((8, 12))
    snapshot = snapshot_of(history)
    assert ranges(snapshot) == [(1, 7), (8, 12)]
    assert visible(snapshot)[8] == segment(8, 12).sid.raw


def test_deletions_of_truncated_records_do_not_reach_those_that_reuse_their_seqs() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 20))
    history.delete(20, before=15)
    history.delete(20, of=segment(1, 20), seqs=[17])
    history.truncate(20, first_removed=10)
    assert snapshot_of(history).before_seq == 10
    history.offload((10, 20))
    assert list(visible(snapshot_of(history))) == list(range(10, 21))


def test_what_a_compaction_takes_out_is_shown_no_more_where_nothing_comes_in_its_place() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 10), (11, 20))
    history.compact([segment(1, 10)], segment(1, 4))
    assert ranges(snapshot_of(history)) == [(1, 4), (11, 20)]


def test_the_newest_commit_wins_for_each_seq() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 30))
    history.compact([], segment(11, 20))
    snapshot = snapshot_of(history)
    assert ranges(snapshot) == [(1, 10), (11, 20), (21, 30)]
    assert snapshot.segments[0].ref == snapshot.segments[2].ref


def test_deletions_hold_on_both_sides_of_a_segment_that_was_split() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 30))
    history.compact([], segment(11, 20))
    history.delete(30, of=segment(1, 30), seqs=[3, 15, 25])
    assert set(range(1, 31)) - set(visible(snapshot_of(history))) == {3, 25}


def test_removed_segments_drop_and_what_was_added_stays() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 10), (11, 20), (21, 30))
    history.compact([segment(1, 10), segment(11, 20)], segment(1, 20))
    assert visible(snapshot_of(history)).keys() == set(range(1, 31))
    assert {view.ref.sid for view in snapshot_of(history).segments} == {segment(1, 20).sid, segment(21, 30).sid}


# ---------------------------------------------------------------- forks


def test_a_fork_shows_its_parent_as_it_was_cut() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 10), (11, 20), (21, 30))
    half = fork(cut(snapshot_of(history), 14), FORK)
    assert ranges(half) == [(1, 10), (11, 14)]
    assert (half.vid, half.lsn, half.bounds) == (FORK, 0, Bounds(1, 14))
    assert half.head_hash == history.stored[-1].hash
    assert {view.vid for view in half.segments} == {MAIN}


def test_a_snapshot_has_the_keys_of_its_loads_and_a_cut_those_whose_records_it_has() -> None:
    history = HistoryMaker(MAIN)
    history.load("one", 1, 10)
    history.load("", 11, 20)
    history.load("two", 21, 30)
    snapshot = snapshot_of(history)
    assert (snapshot.load_epoch, snapshot.epoch) == (2, 2)
    assert snapshot.loaded == (LoadedKey("one", 10), LoadedKey("two", 30))
    assert fork(cut(snapshot, 30), FORK).loaded == snapshot.loaded
    assert cut(snapshot, 29).loaded == (LoadedKey("one", 10),)
    history.configure("{}")
    after = snapshot_of(history)
    assert (after.load_epoch, after.epoch, after.loaded) == (2, 1, snapshot.loaded)


def test_a_snapshot_has_256_keys_at_most_and_a_checkpoint_has_them_all() -> None:
    history = HistoryMaker(MAIN)
    for number in range(1, 301):
        history.load(f"key {number}", number, number)
    snapshot = snapshot_of(history)
    assert snapshot.loaded == tuple(LoadedKey(f"key {number}", number) for number in range(45, 301))
    stored = history.stored[-1]
    again = from_checkpoint(stored, checkpoint_of(snapshot, now_ms=1), snapshot.segments)
    assert again == snapshot


def test_a_fork_goes_on_from_the_cut() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 20))
    base = fork(cut(snapshot_of(history), 14), FORK)
    branch = HistoryMaker(FORK, head_seq=14, parent_hash=base.head_hash)
    branch.offload((15, 18))
    snapshot = fold(base, branch.stored)
    assert [(view.first, view.last, view.vid) for view in snapshot.segments] == [(1, 14, MAIN), (15, 18, FORK)]
    assert (snapshot.vid, snapshot.lsn, snapshot.bounds) == (FORK, 1, Bounds(1, 18))


def test_a_fork_inherits_the_deletions_up_to_its_point_and_no_others() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 20))
    history.delete(20, before=4)
    history.delete(20, of=segment(1, 20), seqs=[6])
    at_the_point = fork(cut(snapshot_of(history), 15), FORK)
    history.delete(20, before=12)
    assert list(visible(at_the_point)) == [4, 5, *range(7, 16)]
    assert at_the_point.before_seq == 4


def test_what_a_fork_deletes_stays_its_own() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 20))
    history.delete(20, of=segment(1, 20), seqs=[6])
    main = snapshot_of(history)
    branch = HistoryMaker(FORK, head_seq=20, parent_hash=main.head_hash)
    branch.delete(20, of=segment(1, 20), seqs=[7])
    assert set(visible(main)) - set(visible(fold(fork(main, FORK), branch.stored))) == {7}
    assert 6 not in visible(fold(fork(main, FORK), branch.stored))


def test_inherited_deletions_do_not_reach_seqs_that_the_fork_uses_again() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 20))
    history.delete(20, before=18)
    base = fork(cut(snapshot_of(history), 10), FORK)
    assert (base.before_seq, base.bounds) == (11, Bounds(1, 10))
    branch = HistoryMaker(FORK, head_seq=10, parent_hash=base.head_hash)
    branch.offload((11, 20))
    assert list(visible(fold(base, branch.stored))) == list(range(11, 21))


def test_a_cut_lowers_bounds_that_lie_above_it() -> None:
    snapshot = Snapshot(MAIN, 3, Bounds(first_seq=15, head_seq=20, evict_floor=12), (), 15, bytes(32))
    assert cut(snapshot, 9).bounds == Bounds(10, 9, 10)
    assert cut(snapshot, 25) == snapshot


# ---------------------------------------------------------------- against a model

steps = st.lists(
    st.one_of(
        st.tuples(st.just("offload"), st.integers(1, 12), st.integers(1, 3)),
        st.tuples(st.just("delete"), st.integers(1, 60), st.integers(0, 8)),
        st.tuples(st.just("bitmap"), st.integers(0, 5), st.integers(1, 2**12 - 1)),
        st.tuples(st.just("truncate"), st.integers(1, 60), st.just(0)),
        st.tuples(st.just("fork"), st.integers(0, 60), st.just(0)),
    ),
    max_size=14,
)


@settings(max_examples=150, deadline=None)
@given(steps)
def test_a_snapshot_shows_what_a_plain_model_of_the_log_holds(plan: list[tuple[str, int, int]]) -> None:
    model: dict[int, bytes] = {}
    history = HistoryMaker(MAIN)
    base = empty(MAIN)
    head = forks = made = 0
    for step, size, extra in plan:
        snapshot = fold(base, history.stored)
        if step == "offload":
            for _ in range(extra):
                made += 1
                ref = segment(head + 1, head + size, number=made)
                history.head_seq = ref.last_seq
                history.compact([], ref)  # the fold uses the segments that a commit adds, not its kind
                model.update(dict.fromkeys(range(ref.first_seq, ref.last_seq + 1), ref.sid.raw))
                head += size
        elif step == "delete":
            at_seq = max(head - extra, 0)
            history.delete(at_seq, before=size)
            model = {seq: name for seq, name in model.items() if not (seq < size and seq <= at_seq)}
        elif step == "bitmap" and snapshot.segments:
            view = snapshot.segments[size % len(snapshot.segments)]
            seqs = [seq for seq in range(view.first, view.last + 1) if extra >> (seq - view.first) % 12 & 1]
            history.delete(head, of=view.ref, seqs=seqs)
            model = {seq: name for seq, name in model.items() if seq not in seqs}
        elif step == "truncate" and size <= head:
            history.truncate(head, first_removed=size)
            model = {seq: name for seq, name in model.items() if seq < size}
            head = size - 1
        elif step == "fork":
            forks += 1
            head = min(head, size)
            base = fork(cut(snapshot, head), vid(1 + forks))
            history = HistoryMaker(base.vid, head_seq=head, parent_hash=base.head_hash)
            model = {seq: name for seq, name in model.items() if seq <= head}
    result = fold(base, history.stored)
    assert visible(result) == model
    assert result.bounds.head_seq == head
