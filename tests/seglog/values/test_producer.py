"""The decision about a batch of a producer, without a log."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.errors import BatchForgotten, BatchReused, InvalidArgument, ProducerFenced, ProducerGap, SeglogError
from seglog.values.producer import Batch, Producer, ProducerBatch, check_producer, repeated, with_batch

FIVE = Producer(3, 1_000, tuple(Batch(number, 10 * number, 2) for number in range(4, 9)))


def given_batch(epoch: int, number: int, *, gaps: bool = False) -> ProducerBatch:
    return ProducerBatch("p", epoch, number, gaps)


def test_the_first_batch_of_an_epoch_has_the_number_0() -> None:
    assert repeated("t", None, given_batch(7, 0), 1) is None
    assert repeated("t", FIVE, given_batch(4, 0), 1) is None
    for known in (None, FIVE):
        with pytest.raises(ProducerGap) as caught:
            repeated("t", known, given_batch(4, 1), 1)
        assert (caught.value.number, caught.value.expected) == (1, 0)


def test_the_next_number_is_appended_and_a_higher_one_only_with_gaps() -> None:
    assert repeated("t", FIVE, given_batch(3, 9), 1) is None
    with pytest.raises(ProducerGap, match="at batch 9, not 10; nothing was appended") as caught:
        repeated("t", FIVE, given_batch(3, 10), 1)
    assert caught.value.expected == 9
    assert repeated("t", FIVE, given_batch(3, 10, gaps=True), 1) is None
    assert repeated("t", None, given_batch(0, 99, gaps=True), 1) is None


def test_a_topic_keeps_the_last_five_batches_of_an_epoch() -> None:
    known = None
    for number in range(9):
        known = with_batch(known, 3, Batch(number, 10 * number, 2), 1_000)
    assert known == FIVE
    assert with_batch(FIVE, 4, Batch(0, 90, 1), 2_000) == Producer(4, 2_000, (Batch(0, 90, 1),))


@pytest.mark.parametrize("gaps", [False, True])
def test_each_of_the_last_five_batches_is_known_and_an_older_one_is_never_appended(gaps: bool) -> None:
    for number in range(4, 9):
        assert repeated("t", FIVE, given_batch(3, number, gaps=gaps), 2) == range(10 * number, 10 * number + 2)
    for number in range(4):
        with pytest.raises(BatchForgotten) as caught:
            repeated("t", FIVE, given_batch(3, number, gaps=gaps), 2)
        assert (caught.value.number, caught.value.newest) == (number, 8)


def test_a_number_that_was_skipped_is_never_appended_later() -> None:
    known = with_batch(with_batch(None, 0, Batch(10, 1, 1), 1), 0, Batch(20, 2, 1), 2)
    with pytest.raises(BatchForgotten):
        repeated("t", known, given_batch(0, 15, gaps=True), 1)


def test_a_lower_epoch_is_fenced_whatever_its_number() -> None:
    for number in (0, 4, 8, 9):
        with pytest.raises(ProducerFenced) as caught:
            repeated("t", FIVE, given_batch(2, number), 2)
        assert (caught.value.epoch, caught.value.current) == (2, 3)


def test_a_batch_that_comes_back_with_another_number_of_records_is_no_repetition() -> None:
    with pytest.raises(BatchReused):
        repeated("t", FIVE, given_batch(3, 8), 3)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("id", ("", "x" * 257, "ü" * 129, 7, None, b"p", "\ud800")),
        ("epoch", (-1, 2**63, 1.0, "1", True, None)),
        ("number", (-1, 2**63, 1.0, "1", False, None)),
        ("gaps", (1, 0, None, "yes")),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_its_name(name: str, values: tuple[object, ...]) -> None:
    for value in values:
        fit: dict[str, Any] = {"id": "p", "epoch": 0, "number": 0, "gaps": False, name: value}
        with pytest.raises(InvalidArgument, match=name):
            ProducerBatch(**fit)
    assert ProducerBatch("ü" * 128, 2**63 - 1, 2**63 - 1).number == 2**63 - 1


@pytest.mark.parametrize(
    "batches", [(), [Batch(n, 1, 1) for n in range(6)], [Batch(2, 1, 1), Batch(1, 2, 1)], [Batch(1, 0, 1)],
                [Batch(1, 1, 1), Batch(1, 2, 1)], [Batch(1, 1, 0)]]
)  # fmt: skip
def test_batches_that_contradict_each_other_are_no_producer(batches: Any) -> None:
    with pytest.raises(ValueError, match="do not fit each other"):
        check_producer(Producer(0, 1, tuple(batches)))


class Table:
    """A plain table: every batch that was appended, by producer and epoch."""

    def __init__(self) -> None:
        self.appended: dict[tuple[int, int], range] = {}
        self.order: list[tuple[int, int]] = []
        self.head = 0

    def expect(self, epoch: int, number: int, count: int, *, gaps: bool) -> range | type[SeglogError]:
        top = max((each for each, _ in self.order), default=-1)
        own = [each for made, each in self.order if made == epoch]
        newest = own[-1] if own else -1
        if epoch < top:
            return ProducerFenced
        if number > newest:
            if number > newest + 1 and not gaps:
                return ProducerGap
            seqs = range(self.head + 1, self.head + 1 + count)
            self.head += count
            self.order.append((epoch, number))
            self.appended[epoch, number] = seqs
            return seqs
        if number not in own[-5:]:
            return BatchForgotten
        known = self.appended[epoch, number]
        return known if len(known) == count else BatchReused


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(1, 2), st.booleans()), max_size=60))
def test_the_decision_is_that_of_a_plain_table(calls: list[tuple[int, int, int, bool]]) -> None:
    table, known, head = Table(), None, 0
    for epoch, number, count, gaps in calls:
        expected = table.expect(epoch, number, count, gaps=gaps)
        if isinstance(expected, type):
            with pytest.raises(expected):
                repeated("t", known, given_batch(epoch, number, gaps=gaps), count)
            continue
        seqs = repeated("t", known, given_batch(epoch, number, gaps=gaps), count)
        if seqs is None:
            seqs = range(head + 1, head + 1 + count)
            known = check_producer(with_batch(known, epoch, Batch(number, seqs.start, count), 1))
            head += count
        assert seqs == expected
