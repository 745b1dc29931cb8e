"""Points in time: the grammar, the orders of commits that are easy to get wrong, the window, and a model."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errors import InvalidName, InvalidTarget, OutOfWindow
from catalog.format.commit import ForkPoint, SegmentRef
from catalog.format.control import Mark
from catalog.format.encoding import StoredCommit, commit_hash
from catalog.format.ids import Vid
from catalog.history import NO_HISTORY, BranchSpan, History
from catalog.snapshot import checkpoint_of, cut, empty, fold
from catalog.timeline import Head, Lsn, Named, Seq, Target, Time, parse_target, resolve, span, window
from tests.catalog.samples import START_MS, HistoryMaker, segment, ts_of, vid

MAIN, FORK = vid(1), vid(2)
NOW_MS = START_MS + 1_000_000_000


def past(history: HistoryMaker, cut_seq: int | None = None, lsn: int | None = None) -> History:
    return joined((history, cut_seq, lsn))


def joined(*spans: tuple[HistoryMaker, int | None, int | None]) -> History:
    """Return a history of several volumes, newest first. Each span is the commits up to an LSN, cut at a seq."""
    stored = {each.commit.vid: history.stored for history, _, _ in spans for each in history.stored}

    def load(volume: Vid, first: int, last: int) -> list[StoredCommit]:
        return stored[volume][first - 1 : last]

    return History(
        [BranchSpan(history.vid, 1, lsn or len(history.stored), cut_seq) for history, cut_seq, lsn in spans], load
    )


def last_seq_at(volume: Vid, ref: SegmentRef, ms: int) -> int:
    assert ref.min_ts_ms <= ms < ref.max_ts_ms  # the resolver asks only if the answer is inside the segment
    return min(ref.last_seq, (ms - START_MS) // 1_000)


def point(target: Target, history: History) -> tuple[Vid, int, int | None]:
    found = resolve(target, history, last_seq_at)
    return found.vid, found.lsn, found.seq


# ---------------------------------------------------------------- the grammar


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("head", Head(0)),
        ("head~0", Head(0)),
        ("head~12", Head(12)),
        ("seq:42", Seq(42)),
        ("lsn:7", Lsn(7)),
        (f"lsn:7@{FORK}", Lsn(7, FORK)),
        ("tag:v1.2", Named("v1.2")),
        ("15 minutes ago", Time(NOW_MS - 900_000)),
        ("1 minute ago", Time(NOW_MS - 60_000)),
        ("90s ago", Time(NOW_MS - 90_000)),
        ("3 hours ago", Time(NOW_MS - 10_800_000)),
        ("2d ago", Time(NOW_MS - 172_800_000)),
        ("1 week ago", Time(NOW_MS - 604_800_000)),
        ("seq:18446744073709551615", Seq(2**64 - 1)),
        ("2025-11-14T09:12:03Z", Time(START_MS)),
        ("2025-11-14T10:12:03+01:00", Time(START_MS)),
        ("2025-11-14T09:12:03.250Z", Time(START_MS + 250)),
        ("2025-11-14T09:12:03.250999Z", Time(START_MS + 250)),
        ("2025-11-14 09:12:03Z", Time(START_MS)),
        ("1969-12-31T23:59:59.999Z", Time(-1)),
    ],
)
def test_targets_are_read(text: str, target: Target) -> None:
    assert parse_target(text, now_ms=NOW_MS) == target


@pytest.mark.parametrize(
    "text",
    ["lsn:7@", "lsn:7@main", f"lsn:0@{FORK}", f"seq:7@{FORK}", "head~1@", "", "HEAD",
     "head~", "head~-1", "head~x", "seq:", "seq:0", "seq:-1", "seq:1.5", "seq: 1", "seq:1\n", "seq:\uff11",
     "seq:18446744073709551616", "lsn:0", "42", "1 ago", "ago", "-1 hour ago", "1 month ago",
     "1hour  ago", "yesterday", "2025-13-01T00:00:00Z"],
)  # fmt: skip
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(InvalidTarget):
        parse_target(text, now_ms=NOW_MS)


def test_a_tag_that_no_tag_can_have_is_refused() -> None:
    with pytest.raises(InvalidName):
        parse_target("tag:../x", now_ms=NOW_MS)


@pytest.mark.parametrize("text", ["2025-11-14", "2025-11-14T09:12:03"])
def test_a_time_without_its_zone_is_refused_and_the_message_says_so(text: str) -> None:
    with pytest.raises(InvalidTarget, match="zone"):
        parse_target(text, now_ms=NOW_MS)


@pytest.mark.parametrize(
    "text", ["head", "head~3", "seq:42", "lsn:7", f"lsn:7@{FORK}", "2025-11-14T09:12:03Z", "2025-11-14T09:12:03.250Z"]
)
def test_a_target_prints_as_it_is_read(text: str) -> None:
    assert str(parse_target(text, now_ms=NOW_MS)) == text


# ---------------------------------------------------------------- appends only


def plain() -> HistoryMaker:
    history = HistoryMaker(MAIN)
    history.offload((1, 10), (11, 20))
    history.offload((21, 30))
    history.offload((31, 40))
    return history


def test_head_counts_commits_back() -> None:
    history = past(plain())
    assert point(Head(), history) == (MAIN, 3, None)
    assert point(Head(2), history) == (MAIN, 1, None)


def test_an_lsn_is_the_whole_commit() -> None:
    assert point(Lsn(2), past(plain())) == (MAIN, 2, None)


@pytest.mark.parametrize(
    ("seq", "expected"),
    [(1, (1, 1)), (10, (1, 10)), (15, (1, 15)), (20, (1, None)), (21, (2, 21)), (30, (2, None)), (40, (3, None))],
)
def test_a_seq_is_the_commit_that_brought_it_cut_there(seq: int, expected: tuple[int, int | None]) -> None:
    assert point(Seq(seq), past(plain())) == (MAIN, *expected)


@pytest.mark.parametrize(
    ("ms", "expected"),
    [
        (ts_of(1), (1, 1)),
        (ts_of(15), (1, 15)),
        (ts_of(15) + 999, (1, 15)),
        (ts_of(16) - 1, (1, 15)),
        (ts_of(20), (1, None)),
        (ts_of(21) - 1, (1, None)),
        (ts_of(21), (2, 21)),
        (ts_of(40), (3, None)),
    ],
)
def test_a_time_is_inclusive_and_exact_to_the_record(ms: int, expected: tuple[int, int | None]) -> None:
    assert point(Time(ms), past(plain())) == (MAIN, *expected)


# ---------------------------------------------------------------- deletes


def test_a_delete_that_came_later_takes_no_part() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 20))
    history.delete(20, before=10)
    history.offload((21, 30))
    assert point(Seq(20), past(history)) == (MAIN, 1, None)
    assert point(Seq(15), past(history)) == (MAIN, 1, 15)
    assert point(Seq(21), past(history)) == (MAIN, 3, 21)


def test_a_delete_committed_after_an_offload_of_later_records_takes_part_and_they_are_cut_off() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 50), (51, 100))
    history.delete(50, before=10)  # made when 50 was the head, and committed after the offload of 100
    assert point(Seq(50), past(history)) == (MAIN, 1, 50)
    assert point(Seq(51), past(history)) == (MAIN, 2, 51)
    assert point(Seq(70), past(history)) == (MAIN, 2, 70)
    assert point(Seq(100), past(history)) == (MAIN, 2, None)
    assert point(Time(ts_of(50) - 1), past(history)) == (MAIN, 1, 49)
    assert point(Time(ts_of(50)), past(history)) == (MAIN, 2, 50)
    assert point(Time(ts_of(70)), past(history)) == (MAIN, 2, 70)


def test_several_deletes_take_part_up_to_the_first_that_came_later() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 100))
    for at_seq in (30, 60, 60, 90):
        history.delete(at_seq, before=at_seq // 10)
    expected = {30: 1, 31: 2, 60: 2, 61: 4, 90: 4, 91: 5}
    for seq, lsn in expected.items():
        assert point(Seq(seq), past(history)) == (MAIN, lsn, seq)


def test_a_delete_at_the_very_time_takes_part() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 20))
    history.delete(20, before=10)
    assert point(Time(ts_of(20) - 1), past(history)) == (MAIN, 1, 19)
    assert point(Time(ts_of(20)), past(history)) == (MAIN, 2, None)


def test_an_offload_that_only_brought_later_records_takes_no_part() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 10))
    history.offload((11, 20))
    history.delete(5, before=3)
    assert point(Seq(5), past(history)) == (MAIN, 1, 5)
    assert point(Seq(10), past(history)) == (MAIN, 3, 10)  # the delete takes part, and so does the offload before it
    assert fold(empty(MAIN), history.stored).before_seq == 3


def test_a_compaction_takes_no_part_in_the_past_of_what_it_compacted() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 10))
    history.offload((11, 20))
    history.compact([segment(1, 10), segment(11, 20)], segment(1, 20))
    assert point(Seq(15), past(history)) == (MAIN, 2, 15)
    history.offload((21, 30))
    assert point(Seq(25), past(history)) == (MAIN, 4, 25)


def test_after_a_truncation_a_seq_means_the_first_record_that_had_it_and_a_time_what_was_there_then() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 20))
    history.truncate(20, first_removed=11)
    assert point(Seq(15), past(history)) == (MAIN, 1, 15)
    assert point(Seq(5), past(history)) == (MAIN, 1, 5)
    assert point(Time(ts_of(20)), past(history)) == (MAIN, 2, None)
    assert point(Time(ts_of(20) - 1), past(history)) == (MAIN, 1, 19)


def test_a_delete_of_between_a_truncation_and_what_followed_it_shows_what_the_truncation_left() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 20))
    history.truncate(20, first_removed=11)
    late = history.offload((11, 15))
    [ref] = late.segments
    moved = replace(late, segments=(replace(ref, min_ts_ms=ts_of(30), max_ts_ms=ts_of(35)),), at_ts_ms=ts_of(35))
    history.stored[-1] = StoredCommit(moved, commit_hash(moved))
    history.delete(10, before=3)
    behind = replace(history.stored[-1].commit, at_ts_ms=ts_of(25))
    history.stored[-1] = StoredCommit(behind, commit_hash(behind))
    assert point(Time(ts_of(25)), past(history)) == (MAIN, 4, 10)


def test_a_checkpoint_that_has_the_seq_is_looked_at_from_the_one_before_it() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 10))
    history.offload((11, 20))
    history.delete(20, before=3)
    marks = tuple(Mark(lsn, ts_of(last), last) for lsn, last in ((1, 10), (3, 20)))
    left = History([BranchSpan(MAIN, 1, 3, marks=marks)], lambda _, first, last: history.stored[first - 1 : last])
    assert point(Seq(20), left) == (MAIN, 2, None)
    assert point(Seq(15), left) == (MAIN, 2, 15)


# ---------------------------------------------------------------- forks


def forked(seq: int | None = 14) -> History:
    main = plain()
    main.delete(40, before=3)
    branch = HistoryMaker(FORK, head_seq=14, parent_hash=main.stored[0].hash)
    branch.offload((15, 18))
    branch.offload((19, 25))
    return joined((branch, None, None), (main, seq, 1))


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (Seq(5), (MAIN, 1, 5)),
        (Seq(14), (MAIN, 1, 14)),
        (Seq(15), (FORK, 1, 15)),
        (Seq(18), (FORK, 1, None)),
        (Seq(25), (FORK, 2, None)),
        (Head(), (FORK, 2, None)),
        (Head(1), (FORK, 1, None)),
        (Head(2), (MAIN, 1, 14)),
        (Lsn(2), (FORK, 2, None)),
        (Time(ts_of(12)), (MAIN, 1, 12)),
        (Time(ts_of(16)), (FORK, 1, 16)),
    ],
)
def test_a_point_on_a_fork_names_the_volume_that_owns_the_commit(
    target: Target, expected: tuple[Vid, int, int | None]
) -> None:
    assert point(target, forked()) == expected


def test_a_fork_without_commits_of_its_own_has_its_parents_cut() -> None:
    history = past(plain(), cut_seq=25, lsn=2)
    assert point(Head(), history) == (MAIN, 2, 25)
    assert point(Head(1), history) == (MAIN, 1, None)
    assert point(Lsn(2), history) == (MAIN, 2, 25)
    assert point(Seq(25), history) == (MAIN, 2, 25)
    assert point(Seq(22), history) == (MAIN, 2, 22)
    with pytest.raises(OutOfWindow):
        point(Seq(26), history)
    assert point(Time(ts_of(28)), history) == (MAIN, 2, 25)


def truncated() -> HistoryMaker:
    """Return a history whose seqs 11 to 14 and 15 to 20 are lost, and had again by other records."""
    main = HistoryMaker(MAIN)
    main.offload((1, 14))
    main.offload((15, 20))
    main.truncate(20, first_removed=11)
    main.offload((11, 16))
    is_later(main)
    return main


def is_later(history: HistoryMaker) -> None:
    """Let the records of the newest commit be 20 s later than their seqs say."""
    commit = history.stored[-1].commit
    [ref] = commit.segments
    ref = replace(ref, min_ts_ms=ref.min_ts_ms + 20_000, max_ts_ms=ref.max_ts_ms + 20_000)
    later = replace(commit, segments=(ref,), at_ts_ms=commit.at_ts_ms + 20_000)
    history.stored[-1] = StoredCommit(later, commit_hash(later))


def test_a_fork_within_a_commit_has_the_whole_states_from_before_a_truncation() -> None:
    branch = HistoryMaker(FORK, head_seq=12)
    branch.offload((13, 18))
    is_later(branch)
    history = joined((branch, None, None), (truncated(), 12, None))
    assert point(Lsn(2), history) == point(Head(3), history) == (MAIN, 2, None)
    assert point(Time(ts_of(20) - 1), history) == (MAIN, 2, 19)
    assert point(Lsn(1, MAIN), history) == point(Head(4), history) == point(Time(ts_of(14)), history) == (MAIN, 1, None)
    assert point(Time(ts_of(13)), history) == (MAIN, 1, 13)
    assert point(Time(ts_of(16)), history) == (MAIN, 2, 16)
    assert point(Lsn(3), history) == (MAIN, 3, None)
    assert point(Lsn(4), history) == point(Head(1), history) == (MAIN, 4, 12)
    assert point(Seq(12), history) == (MAIN, 1, 12)
    assert point(Seq(14), history) == (FORK, 1, 14)


def test_a_look_at_an_inherited_state_reads_few_commits_of_the_parent() -> None:
    main, read = HistoryMaker(MAIN), list[int]()
    for first in range(1, 2000, 2):
        main.offload((first, first + 1))

    def load(_: Vid, first: int, last: int) -> list[StoredCommit]:
        read.extend(range(first, last + 1))
        return main.stored[first - 1 : last]

    assert point(Lsn(10), History([BranchSpan(MAIN, 1, 1000, 1999)], load)) == (MAIN, 10, None)
    assert max(read) < 20


def test_an_lsn_that_the_branch_lacks_is_its_parents_before_the_fork() -> None:
    main = plain()
    branch = HistoryMaker(FORK, head_seq=40)
    branch.offload((41, 50))
    history = joined((branch, None, None), (main, None, None))
    assert point(Lsn(1), history) == (FORK, 1, None)
    assert point(Lsn(3), history) == (MAIN, 3, None)


def test_an_lsn_with_its_volume_means_one_commit_whatever_the_branch_has() -> None:
    branch = HistoryMaker(FORK, head_seq=40)
    branch.offload((41, 50))
    history = joined((branch, None, None), (plain(), None, None))
    for each in history:
        target = parse_target(history.target_of(each.commit), now_ms=NOW_MS)
        assert point(target, history) == (each.commit.vid, each.commit.lsn, None)
    assert [history.target_of(each.commit) for each in history] == ["lsn:1", *(f"lsn:{n}@{MAIN}" for n in (3, 2, 1))]
    with pytest.raises(OutOfWindow):
        point(Lsn(2, FORK), history)


# ---------------------------------------------------------------- the window


WINDOW = r"Restorable: 2025-11-14T09:12:04Z \(lsn 1\) to 2025-11-14T09:12:43Z \(lsn 3\), seq 1 to 40$"


@pytest.mark.parametrize(
    "target",
    [Seq(41), Seq(2**64 - 1), Lsn(4), Head(3), Time(ts_of(1) - 1), Time(ts_of(40) + 1), Time(10**18), Time(-1)],
)
def test_a_target_outside_the_window_is_an_error_that_prints_it(target: Target) -> None:
    with pytest.raises(OutOfWindow, match=WINDOW) as raised:
        resolve(target, past(plain()), last_seq_at)
    assert str(raised.value).startswith(f"{target} is outside the kept history.")


def test_what_is_below_the_first_record_is_outside_too() -> None:
    history = HistoryMaker(MAIN)
    history.offload((11, 20))
    with pytest.raises(OutOfWindow, match="seq 11 to 20"):
        point(Seq(10), past(history))


@pytest.mark.parametrize("target", [Head(), Lsn(1), Seq(1), Time(START_MS)])
def test_nothing_is_restorable_before_the_first_commit(target: Target) -> None:
    with pytest.raises(OutOfWindow, match="nothing is committed yet"):
        resolve(target, NO_HISTORY, last_seq_at)


def test_both_ends_of_the_window_resolve_as_they_are_printed() -> None:
    history = HistoryMaker(MAIN)
    history.offload((1, 20))
    history.delete(20, before=3)
    entries = past(history)
    first, _, rest = window(entries).partition(" (lsn 1) to ")
    last = rest.partition(" ")[0]
    assert point(parse_target(first, now_ms=NOW_MS), entries) == (MAIN, 1, 1)
    assert point(parse_target(last, now_ms=NOW_MS), entries) == (MAIN, 2, None)


# ---------------------------------------------------------------- against a model


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(st.data())
def test_every_point_shows_exactly_what_the_topic_showed_then(data: st.DataObject) -> None:
    """A topic appends and deletes, and commits follow later. Each state must be found by seq and by time."""
    states: dict[int, set[int]] = {}  # the live seqs after record n was acked
    alive: set[int] = set()
    deletes: list[tuple[int, int]] = []
    head = 0
    for _ in range(data.draw(st.integers(1, 12))):
        for _ in range(data.draw(st.integers(1, 6))):
            head += 1
            alive.add(head)
            states[head] = set(alive)
        if data.draw(st.booleans()):
            before = data.draw(st.integers(1, head + 2))
            deletes.append((head, before))
            alive = {seq for seq in alive if seq >= before}
    history = HistoryMaker(MAIN)
    done = 0
    for at_seq, before in [*deletes, (head, 0)]:
        while done < at_seq:  # all records before the delete, maybe later ones (COMMIT-4)
            last = data.draw(st.integers(done + 1, head))
            history.offload((done + 1, last))
            done = last
        if before:
            history.delete(at_seq, before=before)
    entries = past(history)
    for seq, expected in states.items():
        found = resolve(Seq(seq), entries, last_seq_at)
        assert shown(history, found) == expected
        taken_since = [before for at_seq, before in deletes if at_seq == seq]  # deletes made at the time of that record
        then = {kept for kept in expected if all(kept >= before for before in taken_since)}
        assert shown(history, resolve(Time(ts_of(seq)), entries, last_seq_at)) == then


def shown(history: HistoryMaker, found: ForkPoint) -> set[int]:
    snapshot = fold(empty(MAIN), history.stored[: found.lsn])
    if found.seq is not None:
        assert found.seq < snapshot.bounds.head_seq
        snapshot = cut(snapshot, found.seq)
    return {seq for view in snapshot.segments for seq in range(view.first, view.last + 1)}


# ---------------------------------------------------------------- a history that GC has cut


def collected(history: HistoryMaker, first_lsn: int, cut_seq: int | None = None, *, is_listed: bool = True) -> History:
    """Return the history that GC leaves, from the checkpoint `first_lsn` on.

    If `is_listed` is False, the checkpoint's mark is missing: GC stopped before it listed the mark.
    """
    commits = [stored.commit for stored in history.stored[:first_lsn]]
    mark = Mark(first_lsn, max(c.at_ts_ms for c in commits), max(c.bounds.head_seq for c in commits))
    checkpoint = checkpoint_of(fold(empty(MAIN), history.stored[:first_lsn]), now_ms=START_MS)
    left = [replace(history.stored[first_lsn - 1], checkpoint=checkpoint), *history.stored[first_lsn:]]

    def load(_: Vid, first: int, last: int) -> list[StoredCommit]:
        assert first >= first_lsn
        return left[first - first_lsn : last - first_lsn + 1]

    marks = (mark,) if is_listed else ()
    return History([BranchSpan(history.vid, first_lsn, len(history.stored), cut_seq, marks, is_cut=True)], load)


def eventful() -> HistoryMaker:
    history = HistoryMaker(MAIN)
    history.offload((1, 10))
    history.offload((11, 20))
    history.delete(15, before=3)
    history.truncate(20, 18)
    history.offload((18, 30))
    history.compact([], segment(1, 17))
    history.delete(30, before=8)
    history.offload((31, 40))
    return history


@pytest.mark.parametrize("first_lsn", range(2, 9))
@pytest.mark.parametrize("cut_seq", [None, 17, 19, 25, 33])
@pytest.mark.parametrize("is_listed", [True, False])
def test_what_is_left_of_a_history_tells_the_same_or_nothing(
    first_lsn: int, cut_seq: int | None, is_listed: bool
) -> None:
    history = eventful()
    whole, left = past(history, cut_seq), collected(history, first_lsn, cut_seq, is_listed=is_listed)
    known = left.first_mark
    last = span(whole)
    assert known is not None
    assert last is not None
    assert last.last_ms is not None
    for seq in range(1, 42):
        try:
            found = point(Seq(seq), left)
        except OutOfWindow:
            assert seq <= known.max_seq or seq > (cut_seq or 40)
        else:
            assert found == point(Seq(seq), whole)
    for ms in range(ts_of(0), ts_of(42), 500):
        try:
            found = point(Time(ms), left)
        except OutOfWindow:
            assert not known.max_ts_ms <= ms <= last.last_ms
        else:
            assert ms >= known.max_ts_ms
            assert found[1] == first_lsn or found == point(Time(ms), whole)
    for lsn in range(1, 9):
        if lsn < first_lsn:
            with pytest.raises(OutOfWindow):
                point(Lsn(lsn), left)
        else:
            assert point(Lsn(lsn), left) == point(Lsn(lsn), whole)


def test_a_history_that_begins_with_no_checkpoint_tells_no_record_and_no_time() -> None:
    history = eventful()
    left = History([BranchSpan(MAIN, 4, 8, is_cut=True)], lambda _, first, last: history.stored[first - 1 : last])
    for target in (Seq(25), Time(ts_of(25))):
        with pytest.raises(OutOfWindow):
            resolve(target, left, last_seq_at)
    assert point(Head(0), left) == (MAIN, 8, None)


def test_a_delete_of_before_the_fork_counts_up_to_where_the_fork_cut() -> None:
    main, branch = HistoryMaker(MAIN), HistoryMaker(FORK, head_seq=7)
    main.offload((1, 10))
    main.delete(10, before=3)
    branch.offload((8, 20))
    history = joined((branch, None, None), (main, 7, None))
    assert point(Seq(8), history) == (FORK, 1, 8)
    assert point(Seq(7), history) == (MAIN, 1, 7)


def test_a_fork_at_the_first_commit_of_what_was_collected_below_begins_with_a_state_too() -> None:
    fork_of_fork = HistoryMaker(FORK, head_seq=3)
    fork_of_fork.truncate(3, 2)
    fork_of_fork.offload((2, 20))
    parent = HistoryMaker(MAIN, head_seq=9)
    parent.delete(9, before=2)
    stored = {MAIN: parent.stored, FORK: fork_of_fork.stored}
    spans = [BranchSpan(FORK, 1, 2), BranchSpan(MAIN, 1, 1, 3, (Mark(1, ts_of(9), 9),), is_cut=True)]
    history = History(spans, lambda vid, first, last: stored[vid][first - 1 : last])
    assert point(Seq(4), history) == (FORK, 2, 4)
    for seq in (2, 3):
        with pytest.raises(OutOfWindow):
            point(Seq(seq), history)
    found = span(history)
    assert found is not None
    assert found.seqs == (4, 20)
