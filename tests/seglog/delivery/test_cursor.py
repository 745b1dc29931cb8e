"""Test the record of a cursor, and its state without a log: acks, truncations, against a plain set."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from seglog.base.errors import Conflict
from seglog.delivery.cursor import ABOVE_MAX, HEADER, RECORD_MAX_BYTES, Cursor, decode_cursor, encode_cursor
from seglog.delivery.keyed_topic import UnreadableState

_LOG = "0123456789abcdef0123456789abcdef-00000002"
GOLDEN = (
    "01 01 0600 0700 2900 0300000000000000 0700000000000000 0500000000000000"  # live, sizes, epoch 3, floor 7, 5 ms
    + b"ordersbilling".hex()
    + _LOG.encode().hex()
    + "3a300000 01000000 0000 0100 10000000 0100 0200"  # Roaring: one container with 1 and 2, so seqs 9 and 10
)

seqs = st.integers(1, 40)
changes = st.lists(
    st.tuples(st.just("ack"), st.lists(seqs, max_size=6))
    | st.tuples(st.just("up_to"), seqs)
    | st.tuples(st.just("cut"), seqs),
    max_size=20,
)


def cursor(floor: int = 0, *above: int, epoch: int = 1) -> Cursor:
    return Cursor("orders", "billing", _LOG, epoch, floor, BitMap([seq - floor - 1 for seq in above]))


def acked(state: Cursor) -> set[int]:
    return {*range(1, state.floor + 1), *state.acked_above}


def test_the_bytes_of_a_record_are_these() -> None:
    value = bytes.fromhex(GOLDEN.replace(" ", ""))
    assert encode_cursor(replace(cursor(7, 9, 10, epoch=3), ts_ms=5)) == value
    assert decode_cursor(value, "orders/billing").ts_ms == 5
    assert decode_cursor(value, "orders/billing") == cursor(7, 9, 10, epoch=3)
    assert len(encode_cursor(cursor(7))) == HEADER.size + len("ordersbilling") + len(_LOG)


@given(st.integers(0, 2**62), st.sets(st.integers(2, 2**31)), st.booleans())
def test_a_record_is_read_as_it_was_written(floor: int, places: set[int], is_deleted: bool) -> None:
    state = Cursor("orders@eu", "a.b-c", "", 2**62, floor, BitMap(places), is_deleted)
    assert decode_cursor(encode_cursor(state), "orders@eu/a.b-c") == state


@pytest.mark.parametrize("tag", ["orders/other", "orders", None])
def test_a_record_with_another_tag_is_no_cursor(tag: str | None) -> None:
    with pytest.raises(UnreadableState) as caught:
        decode_cursor(encode_cursor(cursor(7)), tag)
    assert caught.value.key == tag


def test_a_record_of_another_version_or_cut_is_no_cursor() -> None:
    value = encode_cursor(cursor(7, 9))
    for wrong in (b"\x02" + value[1:], value[:1] + b"\x02" + value[2:], b"", *(value[:at] for at in range(1, 70))):
        with pytest.raises(UnreadableState) as caught:
            decode_cursor(wrong, "orders/billing")
        assert caught.value.key == "orders/billing"


@given(changes)
def test_a_cursor_has_exactly_what_a_set_has(steps: list[tuple[str, object]]) -> None:
    state, model = cursor(), set[int]()
    for kind, value in steps:
        if kind == "ack":
            assert isinstance(value, list)
            state, model = state.acked(value), model | {*value}
        elif kind == "up_to":
            assert isinstance(value, int)
            state, model = state.acked(range(1, value + 1)), model | {*range(1, value + 1)}
        else:
            assert isinstance(value, int)
            state, model = state.cut(value, state.epoch + 1), {seq for seq in model if seq < value}
        assert acked(state) == model
        assert state.floor + 1 not in state.acked_above  # it passed over the run (ACKED-3)
        missing = next(seq for seq in range(1, 99) if seq not in model)
        assert state.acked_above.next_missing(state.floor + 1) == missing
        assert [state.acked_above.count_from(seq) for seq in (0, 7, 99)] == [
            sum(1 for each in state.acked_above if each >= seq) for seq in (0, 7, 99)
        ]
        assert decode_cursor(encode_cursor(state), state.key) == state


@given(st.integers(1, 60), st.integers(1, 60), st.sets(st.integers(1, 60)))
def test_a_range_acks_what_its_seqs_ack(first: int, end: int, before: set[int]) -> None:
    state = cursor().acked(sorted(before))
    assert acked(state.acked(range(first, end))) == acked(state.acked([*range(first, end)]))


def test_an_ack_too_far_above_the_floor_is_refused() -> None:
    assert len(cursor(5).acked([5 + ABOVE_MAX]).acked_above) == 1
    with pytest.raises(Conflict, match="too far above the ack floor 5"):
        cursor(5).acked([6 + ABOVE_MAX])
    assert cursor(5).acked(range(1, 2**60)).floor == 2**60 - 1


def test_a_state_with_too_many_holes_is_refused() -> None:
    """Each ack writes the whole state (ACKED-4)."""
    assert len(encode_cursor(cursor().acked(range(2, 2**20, 2)))) < RECORD_MAX_BYTES
    holes = replace(cursor(), above=BitMap(range(1, 2**24, 2)))
    with pytest.raises(Conflict, match="too many acked seqs between others"):
        encode_cursor(holes)
    assert len(encode_cursor(cursor().acked(range(2, 2**30)))) < RECORD_MAX_BYTES
