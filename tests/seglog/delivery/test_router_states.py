"""Test how a router finds its place in a log that was opened again, and that states are durable, and compacted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

import seglog
from seglog import Log, ProducerBatch
from seglog.base.errors import Conflict, Corrupt
from seglog.delivery.router import TOPIC, Router
from seglog.delivery.router_states import MOST_ROUTERS, RouterStates
from tests.faults.files import UnsyncedFiles
from tests.seams.delivery import outdate_routers


@contextmanager
def opened(directory: Path) -> Iterator[tuple[Log, RouterStates]]:
    with seglog.open(directory, files=UnsyncedFiles()) as log:
        states = RouterStates.of(log)
        states.load(lambda _: None, lambda _: lambda _: True, lambda *_: None, lambda *_: 0)
        yield log, states


def made(log: Log, states: RouterStates, name: str = "r", destination: str = "b", seq: int = 0) -> Router:
    source, copies = log.topic("a"), log.topic(destination)
    if not source.exists:
        source.append([b"1", b"2", b"3"])
    log.create_topic(destination)
    pair = replace(states.pair(source, copies, seq), to_epoch=0)
    states.create(Router(name, f"{name:0>16}", "a", destination, source.incarnation(), copies.incarnation(), (pair,)))
    return states.resume(name)[0]


def copied(log: Log, router: Router, *seqs: int) -> None:
    """Do as a worker does: copy single records."""
    for seq in seqs:
        [record] = log.topic(router.source).read(seq, seq)
        batch = ProducerBatch(router.producer, log.topic(router.source).epoch, seq, gaps=True)
        log.topic(router.destination).append([record.value], producer=batch)


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_crash_within_a_truncation_leaves_the_place_known(tmp_path: Path, *, is_cut: bool) -> None:
    """Step 5: the pair says what will be cut. The crash comes before the truncation, or right behind it."""
    with opened(tmp_path) as (log, states):
        router = made(log, states)
        copied(log, router, 1, 2, 3)
        pair = states.pair(log.topic("a"), log.topic("b"), 3)
        states.put(replace(router.at(pair), cut=(2, 0)))
        if is_cut:
            log.topic("a").truncate(2)
            log.topic("a").append([b"two", b"three"])
    with opened(tmp_path) as (log, states):
        router, seq = states.resume("r")
        assert (seq, router.cut) == (1 if is_cut else 3, None)


@pytest.mark.parametrize("says_so", [True, False])
def test_a_crash_within_a_truncation_of_the_destination_fills_it_with_nothing(tmp_path: Path, *, says_so: bool) -> None:
    """It does not know the producer any more, as if `producer_keep_s` had passed."""
    with opened(tmp_path) as (log, states):
        router = made(log, states)
        log.topic("b").append([b"1", b"2", b"3"])
        pair = states.pair(log.topic("a"), log.topic("b"), 3)
        states.put(replace(router.at(pair), cut=(0, 2) if says_so else None))
        log.topic("b").truncate(2)
    with opened(tmp_path) as (log, states):
        if says_so:
            assert states.resume("r")[1] == 3
        else:
            with pytest.raises(Conflict, match="was truncated since"):
                states.resume("r")


def test_a_truncation_that_is_refused_leaves_the_routers_as_they_were(tmp_path: Path) -> None:
    with opened(tmp_path) as (log, states):
        router = made(log, states)
        copied(log, router, 1, 2)
        with suppress(ZeroDivisionError), states.truncating("a", 2):
            assert states.find("r").cut == (2, 0)
            raise ZeroDivisionError
        assert (states.find("r").cut, states.place_of(states.find("r"))) == (None, 2)
        assert states.lock_of("r").acquire(blocking=False)


@pytest.mark.parametrize("seq", [0, 9])
def test_a_truncation_out_of_bounds_changes_no_state(tmp_path: Path, seq: int) -> None:
    with opened(tmp_path) as (log, states):
        made(log, states)
        before = log.topic(TOPIC).head_seq
        with suppress(ZeroDivisionError), states.truncating("a", seq):
            raise ZeroDivisionError
        assert log.topic(TOPIC).head_seq == before


def test_a_pair_counts_no_record_that_only_memory_has(tmp_path: Path) -> None:
    with opened(tmp_path) as (log, states):
        made(log, states)
        log.topic("a").append([b"4"], durability="ephemeral")
        assert states.pair(log.topic("a"), log.topic("b"), 4).seq == 3


def test_states_are_compacted_and_each_router_stays(tmp_path: Path) -> None:
    with opened(tmp_path) as (log, states):
        for name in ("r", "s"):
            copied(log, made(log, states, name, f"copies-{name}"), 1)
        states.put(replace(states.find("s"), is_paused=True))
        outdate_routers(states)
        states.keep_up(lambda seq: log.topic(TOPIC).delete(before=seq))
        assert len(list(log.topic(TOPIC).read())) == 2
        before = states.all()
    with opened(tmp_path) as (log, states):
        assert states.all() == before
        assert [states.place_of(router) for router in before] == [1, 1]


def test_a_log_takes_so_many_routers_and_no_more(tmp_path: Path) -> None:
    with opened(tmp_path) as (log, states):
        first = made(log, states)
        for number in range(1, MOST_ROUTERS):
            states.create(replace(first, name=f"r{number}", destination=f"b{number}"))
        with pytest.raises(Conflict, match="takes no more"):
            states.create(replace(first, name="more", destination="more"))


def test_the_state_of_a_later_version_is_told(tmp_path: Path) -> None:
    with opened(tmp_path) as (log, states):
        made(log, states)
        log.topic(TOPIC).append([b'{"version": 2}'], tag="r")
    with opened(tmp_path) as (log, states):
        with pytest.raises(Corrupt, match="the state of the router r is unknown"):
            states.find("r")
        assert states.has("r")
