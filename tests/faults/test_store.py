"""Test faults of calls that change several objects, or swap one."""

from __future__ import annotations

import pytest

from catalog.errors import KeyChanged, StoreUnreachable
from catalog.format.keys import Key
from catalog.objects import MemoryStore
from tests.faults.store import EFFECTS, Fault, FaultyStore, faults_of, lost, unreachable

KEYS = [Key(f"vol/log/{name}") for name in "abcd"]


def store_of(*plan: Fault) -> FaultyStore:
    store = FaultyStore(MemoryStore(), plan)
    for key in KEYS:
        store.inner.put_new(key, b"body")
    return store


def test_a_delete_of_many_may_get_half_of_them_done() -> None:
    store = store_of(Fault(1, "after", unreachable, "delete_many", answer="half"))
    with pytest.raises(StoreUnreachable):
        store.delete_many(KEYS)
    assert list(store.list("")) == KEYS[1::2]
    store.delete_many(KEYS)
    assert list(store.list("")) == []
    assert [fault.answer for fault in faults_of("delete_many", 1) if fault.answer == "half"] == ["half", "half"]


def test_a_swap_may_come_late_and_is_then_refused_by_what_came_meanwhile() -> None:
    store = store_of(Fault(1, "before", lost, "swap", is_late=True))
    tag = store.get_with_etag(KEYS[0]).etag
    with pytest.raises(lost(KEYS[0]).__class__):
        store.swap(KEYS[0], b"late", tag)
    store.swap(KEYS[0], b"meanwhile", tag)
    store.land()
    assert store.get(KEYS[0]) == b"meanwhile"
    with pytest.raises(KeyChanged):
        store.swap(KEYS[0], b"late", tag)


def test_what_is_read_with_its_tag_may_be_damaged_on_its_way() -> None:
    store = store_of(Fault(1, method="get_with_etag", answer="flipped"))
    found = store.get_with_etag(KEYS[0])
    assert found.body != b"body"
    assert len(found.body) == 4
    assert found.etag == store.get_with_etag(KEYS[0]).etag


def test_every_call_that_changes_a_store_has_faults_of_an_effect() -> None:
    for method in EFFECTS:
        assert any(fault.is_late for fault in faults_of(method, 1)), method
