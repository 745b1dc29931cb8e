"""Publishing over a wire that loses answers: real requests, a real server, and a failing front between them.

A store may apply a PUT and then answer 500 or reset the connection. Then an SDK's own retry would report a lost race
against our own commit. These tests prove that publishing never does.
"""

from __future__ import annotations

import itertools

import pytest

from catalog.errors import Diverged, OutcomeUnknown
from catalog.format.control import Control
from catalog.format.keys import Key, commit_key
from catalog.objects import s3 as s3_module
from catalog.objects.s3 import S3Store
from catalog.objects.settled_writes import TRIES
from catalog.volume import Volumes
from tests.catalog.s3_stores import kept_open, wire
from tests.catalog.samples import START_MS
from tests.faults.front import Front, HttpFault, When
from tests.worlds.volumes import MAIN, OURS, THEIRS

__all__ = ["kept_open", "wire"]

Plan = tuple[HttpFault, ...]


@pytest.fixture
def front(s3_environment: str, wire: Front, monkeypatch: pytest.MonkeyPatch) -> Front:
    assert s3_environment
    monkeypatch.setenv("AWS_ENDPOINT_URL", wire.url)
    monkeypatch.setattr("catalog.objects.settled_writes.backoff_s", lambda _: 0.0)
    monkeypatch.setattr(s3_module, "ATTEMPTS", 2)
    wire.restart()
    return wire


@pytest.fixture
def store(request: pytest.FixtureRequest, front: Front, kept_open: dict[str, S3Store]) -> S3Store:
    """A store with a new volume. Tests share it, because making one costs more than their requests."""
    if not kept_open:
        kept_open[""] = S3Store(request.getfixturevalue("s3_remote"))
    found = kept_open[""]
    found.delete_many([*map(Key, found.list(""))])
    Volumes(found).create(Control(MAIN, None, START_MS, "orders", "main"))
    front.restart()
    return found


def at_commit(nth: int, way: str, when: When) -> HttpFault:
    return HttpFault(way, when, nth, "PUT commit")


FAULTS: list[tuple[str, When]] = list(itertools.product(("500", "reset"), ("before", "after")))
PLANS: list[Plan] = [
    *((at_commit(1, *fault),) for fault in FAULTS),
    *((at_commit(1, *first), at_commit(2, *second)) for first, second in itertools.product(FAULTS, FAULTS)),
]


def puts(front: Front) -> int:
    return front.kinds["PUT commit"]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: ", ".join(map(str, plan)))
def test_our_own_commit_is_never_taken_for_a_lost_race(store: S3Store, front: Front, plan: Plan) -> None:
    front.plan = plan
    Volumes(store).publish(MAIN, 1, OURS)
    assert store.get(commit_key(MAIN, 1)) == OURS
    landed = next((fault.nth for fault in plan if fault.when == "after"), len(plan) + 1)
    assert puts(front) == landed  # one request a try, and no try after the commit has landed


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_anothers_commit_is_never_taken_for_ours(store: S3Store, front: Front, fault: tuple[str, When]) -> None:
    Volumes(store).publish(MAIN, 1, THEIRS)
    front.plan = (at_commit(2, *fault),)
    with pytest.raises(Diverged):
        Volumes(store).publish(MAIN, 1, OURS)
    assert store.get(commit_key(MAIN, 1)) == THEIRS
    assert puts(front) == 2


def test_a_store_that_keeps_failing_leaves_it_open_and_a_later_run_settles_it(store: S3Store, front: Front) -> None:
    front.plan = tuple(at_commit(nth, "500", "before") for nth in range(1, TRIES + 1))
    with pytest.raises(OutcomeUnknown):
        Volumes(store).publish(MAIN, 1, OURS)
    assert puts(front) == TRIES
    Volumes(store).publish(MAIN, 1, OURS)
    assert store.get(commit_key(MAIN, 1)) == OURS
