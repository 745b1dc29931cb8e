"""A `MergedDeletes` of many deletes reaches the same records as each delete alone. A record needs one lookup."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from benchmarks.calls import count_calls
from seglog import DeleteOp, Record
from seglog.values.deletes import NO_DELETES, DeleteList, MergedDeletes
from seglog.values.seq_set import SeqSet

DELETES = st.lists(
    st.builds(
        DeleteOp,
        st.just(1),
        st.integers(1, 9),
        st.just(0),
        st.none() | st.integers(1, 9),
        st.none() | st.sampled_from(["a", "b", "ab", "a*", "ab*", "*"]),
        seqs=st.none() | st.sets(st.integers(1, 9)).map(lambda seqs: SeqSet.of_seqs(sorted(seqs))),
    ),
    max_size=6,
).map(lambda ops: [replace(op, op=number) for number, op in enumerate(sorted(ops, key=lambda op: op.at_seq), 1)])
TAGS = (None, "", "a", "ab", "abc", "b")
RECORDS = [Record(seq, 0, b"", tag) for seq in range(1, 12) for tag in TAGS]


def _reached(ops: list[DeleteOp], record: Record) -> bool:
    return any(op.matches(record) for op in ops)


@given(DELETES)
@example([DeleteOp(1, 9, 0, 3, "a"), DeleteOp(2, 9, 0, 6, "a")])  # the later one reaches further
@example([DeleteOp(1, 9, 0, 6, "a"), DeleteOp(2, 9, 0, 3, "a")])
def test_they_reach_what_each_of_them_does(ops: list[DeleteOp]) -> None:
    reach = MergedDeletes(ops)
    for record in RECORDS:
        reached = reach.reaches(record.seq, record.tag)
        assert reached == _reached(ops, record)
        assert not reached or reach.may_reach(record.seq)
    assert reach.has_tags == any(op.tag is not None for op in ops)


@given(DELETES)
def test_of_each_tag_one_delete_covers_the_others_and_one_has_the_seqs_of_all(ops: list[DeleteOp]) -> None:
    selective = [op for op in ops if not op.is_prefix]
    kept = MergedDeletes(ops).selective
    kinds = {(op.tag, op.seqs is None) for op in kept}
    assert kinds == {(op.tag, op.seqs is None) for op in selective}
    assert len(kinds) == len(kept)
    assert [op.op for op in kept] == sorted(op.op for op in kept)
    assert all(_reached([*kept], record) == _reached(selective, record) for record in RECORDS)


@given(DELETES, st.integers(1, 11))
def test_records_in_a_row_are_looked_up_together(ops: list[DeleteOp], first: int) -> None:
    reach = MergedDeletes(ops)
    for tags in (None, *([tag] * 4 for tag in TAGS), [*TAGS]):
        seqs = [*range(first, first + len(tags or "1234"))]
        expected = [not reach.reaches(seq, tag) for seq, tag in zip(seqs, tags or [None] * 4, strict=True)]
        assert (reach.kept(seqs, tags) or [True] * len(seqs)) == expected


@given(DELETES, st.integers(1, 10))
def test_a_list_of_them_is_merged_as_it_grows_and_ends_where_the_topic_was_cut(ops: list[DeleteOp], cut: int) -> None:
    listed = DeleteList()
    for count, op in enumerate(ops, 1):
        listed.add(op)
        listed.add(op)  # a repeated add, as after an interrupt
        assert (len(listed), tuple(listed)) == (count, (*ops[:count],))
        if op.op % 2:
            assert all(listed.reach.reaches(each.seq, each.tag) == _reached(ops[:count], each) for each in RECORDS)
    assert listed.since(3) == (*ops[2:],)
    assert listed.selective == sum(not op.is_prefix for op in ops)
    ended = listed.ended_below(cut)
    for record in RECORDS:
        assert ended.reach.reaches(record.seq, record.tag) == (record.seq < cut and _reached(ops, record))
        assert listed.reach.reaches(record.seq, record.tag) == _reached(ops, record)


@given(DELETES)
def test_the_json_of_a_delete_gives_it_again(ops: list[DeleteOp]) -> None:
    assert [DeleteOp.from_json(json.loads(json.dumps(op.to_json()))) for op in ops] == ops


def test_nothing_is_nothing() -> None:
    assert DeleteList().reach is NO_DELETES
    assert not NO_DELETES.may_reach(1)


def test_a_look_costs_the_same_whatever_the_number_of_deletes() -> None:
    seqs, tags = [*range(1, 1001)], [f"user-{seq % 7}" for seq in range(1000)]
    counts = []
    for number in (10, 10_000):
        ops = [DeleteOp(each, 500, 0, None, f"user-{each}") for each in range(1, number)]
        ops += [DeleteOp(number + each, 500, 0, None, f"group-{each:05}*") for each in range(number)]
        ops += [DeleteOp(2 * number + each, 500, 0, each, None) for each in range(1, number)]
        reach = MergedDeletes(ops)
        assert reach.kept(seqs, tags) == [seq > 500 or ((seq - 1) % 7 == 0 and seq >= number - 1) for seq in seqs]
        counts.append(count_calls(lambda reach=reach: reach.kept(seqs, tags)))  # type: ignore[misc]
    assert counts[0] == counts[1]
