"""A load whose driver or task is killed, or whose store fails, at each effect. Then the job runs again with its key.

Each record is there once at the end, in every case. What a failed run leaves is invisible.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from catalog import Volumes
from catalog.errors import CatalogError, Missing, OutcomeUnknown
from catalog.objects import LocalStore, MemoryStore, ObjectStore
from offload.errors import OffloadError
from offload.load import LoadRequest
from tests.children import quiet_fork
from tests.faults.store import Fault, FaultyStore, KillingStore, When, WrappedStore, faults_of, lost
from tests.faults.stride import every
from tests.offload.load.loads import begin, finish, load, part, values

BEFORE, ROWS = [b"before"], [[b"a1", b"a2"], [b"b1"]]
ALL = [b"before", b"a1", b"a2", b"b1"]
REQUEST = LoadRequest("orders", key="day-1")
T = TypeVar("T")


class UnansweredStore(WrappedStore):
    """Answer no put-if-absent. `late` has the calls, which may land later."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.late: list[Callable[[], object]] = []

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        if method != "put_new":
            return act()
        self.late.append(act)
        raise lost(key)


def shown(store: ObjectStore) -> list[bytes]:
    try:
        return values(store)
    except Missing:
        return []


def killed(store: ObjectStore, effect: int, when: When) -> bool:
    """Run the load in a child that is killed at an effect. Return whether it was."""

    pid = quiet_fork()
    if not pid:
        try:
            load(KillingStore(store, effect, when), ROWS, REQUEST)
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


@pytest.mark.long
@pytest.mark.parametrize(
    ("has_topic", "when"),
    [
        (False, "after"),
        (True, "before"),
        pytest.param(False, "before", marks=pytest.mark.soak(part=8)),
        pytest.param(True, "after", marks=pytest.mark.soak(part=8)),
    ],
)
def test_a_job_that_is_killed_anywhere_and_runs_again_writes_each_record_once(
    tmp_path: Path, when: When, *, has_topic: bool
) -> None:
    expected = ALL if has_topic else ALL[1:]
    effect = seen = 0
    was_killed = True
    while was_killed:
        effect += 1
        store = LocalStore(tmp_path / f"{effect}")
        if has_topic:
            load(store, [BEFORE])
        was_killed = killed(store, effect, when)
        first = shown(store)
        assert first in (expected[:-3], expected)
        seen += first == expected
        assert load(store, ROWS, REQUEST).lsn == (None if first == expected else 1 + has_topic)
        assert values(store) == expected
    assert effect > 5
    assert seen == (2 if when == "after" else 1)  # killed after the commit's PUT, and not killed at all


def _plans() -> list[Fault]:
    store = FaultyStore(MemoryStore(), [])
    load(store, ROWS, REQUEST)
    return [fault for method, calls in sorted(store.calls.items()) for nth in range(1, calls + 1)
            for fault in faults_of(method, nth)]  # fmt: skip


@every(7, part=8)
@pytest.mark.parametrize("has_topic", [True, False])
def test_a_store_that_fails_in_any_way_costs_no_record_and_doubles_none(
    *, has_topic: bool, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    expected = ALL if has_topic else ALL[1:]
    failed = 0
    for fault in _plans()[has_topic % every :: every]:
        inner = MemoryStore()
        if has_topic:
            load(inner, [BEFORE])
        store = FaultyStore(inner, [fault])
        try:
            load(store, ROWS, REQUEST)
        except (CatalogError, OffloadError):
            failed += 1
        store.fail([])
        store.land()
        load(store, ROWS, REQUEST)
        assert values(inner) == expected, fault
    assert failed * every > 20


def test_a_lost_answer_of_the_commit_is_read_back() -> None:
    store = FaultyStore(MemoryStore(), [])
    load(store, [BEFORE])
    begun = begin(store, ROWS, REQUEST)
    parts = [part(store, begun, number, found) for number, found in enumerate(ROWS)]
    store.fail([Fault(store.calls["put_new"] + 1, "after", lost, "put_new")])
    assert finish(store, begun, parts).lsn == 2
    assert store.struck
    assert values(store) == ALL


@pytest.mark.long
def test_an_unknown_outcome_deletes_nothing_and_the_commit_may_land_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    store = MemoryStore()
    load(store, [BEFORE])
    begun = begin(store, ROWS, REQUEST)
    parts = [part(store, begun, number, found) for number, found in enumerate(ROWS)]
    unanswered = UnansweredStore(store)
    with pytest.raises(OutcomeUnknown):
        finish(unanswered, begun, parts)
    assert values(store) == BEFORE
    unanswered.late[-1]()
    assert values(store) == ALL
    assert begin(store, ROWS, REQUEST).is_done
    assert Volumes(store).newest_lsn(begun.vid) == 2
