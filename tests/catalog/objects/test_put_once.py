"""Put-if-absent when answers are lost: the verdict is never a guess, and the object never has other bytes."""

from __future__ import annotations

import itertools

import pytest

from catalog.errors import AccessDenied, NoSuchBucket, OutcomeUnknown, StoreUnreachable
from catalog.format.keys import Key
from catalog.objects import MemoryStore
from catalog.objects.settled_writes import TRIES, backoff_s, put_once
from tests.faults.store import CountingStore, Fault, FaultyStore, When, lost, unreachable

A = Key("vol/log/A")
WHENS: tuple[When, ...] = ("before", "after")


def no_pause(_: float) -> None:
    """Do not wait between tries."""


def test_an_absent_key_is_written_by_one_request() -> None:
    store = CountingStore(MemoryStore())
    assert put_once(store, A, b"ours", no_pause) == b"ours"
    assert store.counts == {"put_new": 1}


def test_a_taken_key_is_read_back() -> None:
    store = MemoryStore()
    store.put_new(A, b"theirs")
    assert put_once(store, A, b"ours", no_pause) == b"theirs"
    assert store.get(A) == b"theirs"


def test_a_lost_answer_to_a_write_that_happened_is_settled_by_reading_back() -> None:
    inner = CountingStore(MemoryStore())
    store = FaultyStore(inner, [Fault(1, "after", lost)])
    assert put_once(store, A, b"ours", no_pause) == b"ours"
    assert inner.counts == {"put_new": 1, "get": 1}


def test_a_write_that_never_arrived_is_sent_again_with_the_identical_bytes() -> None:
    store = FaultyStore(MemoryStore(), [Fault(1, "before", lost), Fault(2, "before", lost)])
    pauses: list[float] = []
    assert put_once(store, A, b"ours", pauses.append) == b"ours"
    assert store.get(A) == b"ours"
    assert len(pauses) == 2


def test_a_write_that_lands_late_is_found_to_be_ours() -> None:
    inner = MemoryStore()
    store = FaultyStore(inner, [Fault(1, "before", lost)])
    assert put_once(store, A, b"ours", lambda _: inner.put_new(A, b"ours")) == b"ours"


def test_another_who_comes_between_two_tries_is_found() -> None:
    inner = MemoryStore()
    store = FaultyStore(inner, [Fault(1, "before", lost)])
    assert put_once(store, A, b"ours", lambda _: inner.put_new(A, b"theirs")) == b"theirs"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_failed_read_back_is_unknown_and_nothing_is_sent_again(when: str) -> None:
    inner = CountingStore(MemoryStore())
    store = FaultyStore(inner, [Fault(1, when, lost), Fault(error=unreachable, method="get")])  # type: ignore[arg-type]
    with pytest.raises(OutcomeUnknown, match="reading it back"):
        put_once(store, A, b"ours", no_pause)
    assert inner.counts["put_new"] == (when == "after")


def test_tries_are_bounded() -> None:
    store = FaultyStore(MemoryStore(), [Fault(None, "before", lost)])
    with pytest.raises(OutcomeUnknown, match=f"absent after each of {TRIES} tries"):
        put_once(store, A, b"ours", no_pause)
    assert store.effects == TRIES


@pytest.mark.parametrize("error", [unreachable, lambda _: AccessDenied("s3://b", "no"), lambda _: NoSuchBucket("b")])
def test_a_refusal_of_the_first_try_is_certain_and_of_a_later_one_is_not(error: object) -> None:
    first = FaultyStore(MemoryStore(), [Fault(1, "before", error)])  # type: ignore[arg-type]
    with pytest.raises((StoreUnreachable, AccessDenied, NoSuchBucket)):
        put_once(first, A, b"ours", no_pause)
    later = FaultyStore(MemoryStore(), [Fault(1, "before", lost), Fault(2, "before", error)])  # type: ignore[arg-type]
    with pytest.raises(OutcomeUnknown):
        put_once(later, A, b"ours", no_pause)


@pytest.mark.parametrize("taken", [None, b"theirs"])
def test_no_pair_of_faults_leads_to_a_wrong_verdict(taken: bytes | None) -> None:
    """Try every pair of faults at the first three writes and reads. The verdict must be true."""
    singles = [
        Fault(nth, when, error, method)
        for nth, when, error, method in itertools.product((1, 2, 3), WHENS, (lost, unreachable), ("put_new", "get"))
    ]
    verdicts = set()
    for plan in itertools.combinations(singles, 2):
        inner = MemoryStore()
        if taken:
            inner.put_new(A, taken)
        store = FaultyStore(inner, plan)
        try:
            found: bytes | None = put_once(store, A, b"ours", no_pause)
        except OutcomeUnknown:
            found = None
        except StoreUnreachable:  # "certainly not written": true unless the fault itself lied
            found = None
            told_truth = any(f.when == "after" and f.error is unreachable and f.method == "put_new" for f in plan)
            assert told_truth or list(inner.list("")) == ([A] if taken else [])
        if found is not None:
            assert inner.get(A) == found == (taken or b"ours")
        verdicts.add(found)
    assert verdicts == {None, taken or b"ours"}


def test_pauses_grow_are_jittered_and_bounded() -> None:
    assert all(0 <= backoff_s(tries) <= 5 for tries in range(1, 40))
    assert len({backoff_s(5) for _ in range(10)}) > 1
