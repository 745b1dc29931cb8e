"""Test the state of a queue against a plain model: leases, late acks, clocks that jump, cuts, refusals, restarts."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from seglog.delivery.cursor import Cursor
from seglog.delivery.keyed_topic import UnreadableState
from seglog.delivery.queue import (
    HEADER,
    Event,
    Kind,
    Queue,
    QueueSettings,
    decode_events,
    encode_event,
    records_of,
)
from tests.seams.delivery import deadlines_of

KEY = "orders/billing"
LEASE_MS, MAX_DELIVER, HEAD = 100, 3, 30


def new_queue(**changes: Any) -> Queue:
    return Queue(Cursor("orders", "billing", "log-1", 1, 0), replace(QueueSettings(lease_ms=LEASE_MS), **changes), 5)


def claim(queue: Queue, lease_id: int, now_ms: int, most: int = 1, head: int = HEAD, client: str = "ada") -> list[int]:
    """Claim as the daemon does, of a topic in which each seq has a record. Return the seqs."""
    taken = queue.take(now_ms, min(most, queue.room))
    if taken.dead:
        queue.apply(Event(Kind.DEAD, sorted(taken.dead), queue.dead, now_ms))
        queue.apply(Event(Kind.ACKED, sorted(taken.dead)))
    count = min(most, queue.room) - len(taken.seqs)
    acked = queue.cursor.acked_above
    fresh = [seq for seq in range(queue.next_seq, head + 1) if seq not in acked][:count]
    seqs = sorted([*taken.seqs, *fresh])
    if seqs:
        queue.apply(Event(Kind.CLAIMED, seqs, lease_id, now_ms, now_ms + queue.settings.lease_ms, client))
    return seqs


def replayed(events: list[Event]) -> Queue:
    """Return the queue that a restart makes of the events, through their bytes."""
    queue = new_queue()
    for value in records_of(events):
        for event in decode_events(value, KEY):
            queue.apply(event)
    return queue


def state_of(queue: Queue) -> Any:
    leases = {seq: (lease.id, lease.deadline_ms, lease.client) for seq, lease in queue.jobs.items()}
    counts = {seq: count for seq, count in queue.deliveries.items() if count > 1}
    return (
        leases, queue.waiting, counts, queue.dying, queue.cursor, queue.next_seq, queue.dead, queue.lost,
        queue.lost_from, queue.lost_to, queue.paused, queue.redriven, queue.settings, queue.born_ms,
    )  # fmt: skip


@dataclass
class Plain:
    """A job as the model has it. `lease` is the id of the one that a worker may use."""

    state: str = "fresh"
    lease: int = 0
    end_ms: int = 0
    count: int = 0


class Machine(RuleBasedStateMachine):
    """A queue beside jobs in a dict. Events are kept, as the log keeps them."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = new_queue(max_deliver=MAX_DELIVER, max_dead_per_minute=10_000)
        self.events: list[Event] = []
        self.jobs = {seq: Plain() for seq in range(1, HEAD + 1)}
        self.now_ms = 10_000
        self.head = 10
        self.leases = 0
        self.used: list[tuple[int, int]] = []

    @initialize()
    def begin(self) -> None:
        apply = self.queue.apply

        def kept(event: Event) -> None:
            apply(event)
            self.events.append(event)

        self.events += self.queue.snapshot(self.queue.cursor)
        self.queue.apply = kept  # type: ignore[method-assign]

    def sweep(self) -> None:
        for job in self.jobs.values():
            if job.state == "leased" and job.end_ms <= self.now_ms:
                job.state, job.end_ms = "waiting", 0

    @rule(ms=st.integers(-150, 150))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule(count=st.integers(1, 5))
    def records_come(self, count: int) -> None:
        self.head = min(HEAD, self.head + count)

    @rule(most=st.integers(1, 4))
    def a_worker_claims(self, most: int) -> None:
        self.leases += 1
        self.sweep()
        due = [s for s, job in sorted(self.jobs.items()) if job.state == "waiting" and job.end_ms <= self.now_ms]
        expected = []
        for seq in due:
            if len(expected) == most:
                break
            if self.jobs[seq].count >= MAX_DELIVER:
                self.jobs[seq].state = "dead"
            else:
                expected.append(seq)
        fresh = [seq for seq, job in sorted(self.jobs.items()) if job.state == "fresh" and seq <= self.head]
        expected += fresh[: most - len(expected)]
        assert claim(self.queue, self.leases, self.now_ms, most, self.head) == sorted(expected)
        for seq in expected:
            job = self.jobs[seq]
            self.jobs[seq] = Plain("leased", self.leases, self.now_ms + LEASE_MS, job.count + 1)
            assert self.queue.deliveries.get(seq, 1) == job.count + 1
            self.used.append((seq, self.leases))

    def pick(self, place: int) -> tuple[int, int, bool] | None:
        if not self.used:
            return None
        seq, lease = self.used[place % len(self.used)]
        job = self.jobs[seq]
        is_mine = job.state == "leased" and job.lease == lease
        assert self.queue.has(seq, lease) == is_mine
        return seq, lease, is_mine

    @rule(place=st.integers(0, 1000))
    def a_worker_acks(self, place: int) -> None:
        picked = self.pick(place)
        if picked is not None and picked[2]:
            self.queue.apply(Event(Kind.ACKED, [picked[0]]))
            self.jobs[picked[0]].state = "done"
            assert self.queue.was_acked(picked[0], picked[1])

    @rule(place=st.integers(0, 1000), delay_ms=st.integers(0, 200))
    def a_worker_gives_a_job_back(self, place: int, delay_ms: int) -> None:
        picked = self.pick(place)
        if picked is not None and picked[2]:
            due_ms = self.now_ms + delay_ms
            self.queue.apply(Event(Kind.RELEASED, [picked[0]], until_ms=due_ms))
            self.jobs[picked[0]].state, self.jobs[picked[0]].end_ms = "waiting", due_ms

    @rule(place=st.integers(0, 1000))
    def a_worker_extends(self, place: int) -> None:
        picked = self.pick(place)
        if picked is not None and picked[2]:
            self.queue.apply(Event(Kind.EXTENDED, [picked[0]], until_ms=self.now_ms + LEASE_MS))
            self.jobs[picked[0]].end_ms = self.now_ms + LEASE_MS

    @rule(count=st.integers(1, 3), evicted=st.booleans())
    def retention_takes_records_that_nobody_had(self, count: int, evicted: bool) -> None:
        first = self.queue.next_seq
        seqs = range(first, min(first + count, self.head + 1))
        if seqs and all(self.jobs[seq].state == "fresh" for seq in seqs):
            lost = self.queue.lost
            self.queue.apply(Event(Kind.PASSED, seqs, int(evicted)))
            for seq in seqs:
                self.jobs[seq].state = "lost"
            assert self.queue.lost == lost + len(seqs) * evicted

    @rule(seq=st.integers(1, HEAD))
    def a_truncation(self, seq: int) -> None:
        if seq > self.head:
            return
        self.queue.cut(seq, self.queue.cursor.epoch + 1, "log-1")
        self.head = seq - 1
        for each in range(seq, HEAD + 1):
            self.jobs[each] = Plain()
        self.events = list(self.queue.snapshot(self.queue.cursor))
        self.queue.is_cut = False

    @rule(most=st.integers(1, 4))
    def the_log_refuses_a_claim(self, most: int) -> None:
        self.sweep()
        self.queue.sweep(self.now_ms)
        before, count = state_of(self.queue), len(self.events)
        before = (*map(_copy, before),)
        self.queue.begin()
        claim(self.queue, 10**6, self.now_ms, most, self.head)
        self.queue.rollback()
        del self.events[count:]
        assert state_of(self.queue) == before

    @rule()
    def a_restart(self) -> None:
        """The leases that were over and not swept are alive again until a claim: nobody else has the jobs."""
        queue = replayed(self.events)
        queue.sweep(self.now_ms)
        self.queue.sweep(self.now_ms)
        self.sweep()
        left, right = state_of(queue), state_of(self.queue)
        assert left[0] == right[0]
        assert {seq for seq, due in left[1].items() if due <= self.now_ms} >= {
            seq for seq, due in right[1].items() if 0 < due <= self.now_ms
        }
        assert left[2:] == right[2:]

    @rule()
    def a_snapshot(self) -> None:
        self.events = list(self.queue.snapshot(self.queue.cursor))

    @invariant()
    def each_job_is_one_thing(self) -> None:
        queue, acked = self.queue, self.queue.cursor.acked_above
        for seq in range(1, queue.next_seq):
            places = [seq in queue.jobs, seq in queue.waiting, seq in queue.dying]
            places.append(seq <= queue.cursor.floor or seq in acked)
            assert sum(places) == 1, (seq, places)
        for seq, job in self.jobs.items():
            is_acked = seq <= queue.cursor.floor or seq in acked
            assert is_acked == (job.state in {"done", "dead", "lost"})


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, dict) else value


def run_machine(runs: int, steps: int) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=runs, stateful_step_count=steps, deadline=None,
                                   suppress_health_check=checks),
    )  # fmt: skip


def test_a_queue_is_what_a_plain_model_says() -> None:
    run_machine(100, 50)


@pytest.mark.soak(part=2)
def test_a_queue_is_what_a_plain_model_says_in_many_runs() -> None:
    run_machine(int(os.environ.get("TESTS_QUEUE_RUNS", "20000")), 50)


def test_a_job_that_comes_again_goes_first_and_the_lowest_of_them() -> None:
    queue = new_queue()
    assert claim(queue, 1, 0, 4) == [1, 2, 3, 4]
    queue.apply(Event(Kind.RELEASED, [3]))
    queue.apply(Event(Kind.RELEASED, [2]))
    assert claim(queue, 2, 1, 3) == [2, 3, 5]


def test_a_late_ack_counts_until_a_claim_has_taken_the_lease_back() -> None:
    queue = new_queue()
    claim(queue, 1, 0, 2)
    assert queue.has(1, 1)
    assert claim(queue, 2, LEASE_MS, 1) == [1]
    assert not queue.has(1, 1)
    assert queue.has(1, 2)
    assert not queue.has(2, 1), "the claim has looked at all leases"


def test_a_nack_with_a_delay_is_due_at_its_time_and_not_before() -> None:
    queue = new_queue()
    claim(queue, 1, 0, 1, head=1)
    queue.apply(Event(Kind.RELEASED, [1], until_ms=500))
    assert claim(queue, 2, 499, 1, head=1) == []
    assert queue.reason(499, 1) == "nothing is due before 1970-01-01T00:00:00.500Z"
    assert queue.next_ms() == 500
    assert claim(queue, 3, 500, 1, head=1) == [1]
    assert queue.deliveries[1] == 2


def test_the_bound_of_jobs_in_flight_holds_and_the_reason_says_who_has_them() -> None:
    queue = new_queue(max_in_flight=2)
    assert claim(queue, 1, 1000, 5, client="ada") == [1, 2]
    assert claim(queue, 2, 1001, 5) == []
    reason = queue.reason(1001, HEAD)
    assert reason == "2 in flight, the oldest by ada since 1970-01-01T00:00:01.000Z, and max_in_flight is 2"
    queue.apply(Event(Kind.ACKED, [1]))
    assert queue.reason(1001, HEAD) is None
    assert claim(queue, 3, 1002, 5) == [3]


def test_an_empty_queue_says_so() -> None:
    assert new_queue().reason(0, 0) == "empty"
    assert new_queue().reason(0, 1) is None


def test_too_many_dead_jobs_in_a_minute_stop_the_taking() -> None:
    queue = new_queue(max_deliver=1, max_dead_per_minute=2)
    claim(queue, 1, 0, 4)
    taken = queue.take(LEASE_MS, 4)
    assert (taken.dead, taken.is_too_many) == ([1, 2], True)
    queue.apply(Event(Kind.DEAD, [1, 2], 0, LEASE_MS))
    assert queue.take(LEASE_MS + 59_999, 4).is_too_many
    assert queue.take(LEASE_MS + 60_000, 4).dead == [3, 4]


def test_the_heaps_forget_leases_that_are_gone() -> None:
    queue = new_queue()
    for seq in range(1, 5001):
        assert claim(queue, seq, 0, 1, head=seq) == [seq]
        queue.apply(Event(Kind.ACKED, [seq]))
    assert len(deadlines_of(queue)) < 1100


def test_events_survive_their_bytes_and_a_cut_or_another_version_is_refused() -> None:
    events = [
        Event(Kind.CLAIMED, [1, 2, 9], 2**64 - 1, 3, 4, "ada"),
        Event(Kind.ACKED, range(5, 8)),
        Event(Kind.DEAD, [7], 3, 9, text="max_deliver"),
        Event(Kind.PAUSED, text="grün"),
    ]
    value = b"".join(map(encode_event, events))
    decoded = decode_events(value, KEY)
    assert [(each.kind, list(each.seqs), *each[2:]) for each in decoded] == [
        (each.kind, list(each.seqs), *each[2:]) for each in events
    ]
    whole = {sum(len(encode_event(each)) for each in events[:count]) for count in range(len(events) + 1)}
    for size in range(len(value)):
        if size not in whole:
            with pytest.raises(UnreadableState):
                decode_events(value[:size], KEY)
    with pytest.raises(UnreadableState, match="version 7"):
        decode_events(value[:4] + b"\x07" + value[5:], KEY)
    with pytest.raises(UnreadableState):
        decode_events(value[:5] + b"\x63" + value[6:], KEY)
    assert struct.calcsize(HEADER.format) == 48


def test_a_large_snapshot_is_several_records_of_a_mebibyte() -> None:
    queue = new_queue()
    for seq in range(1, 30_001):
        queue.apply(Event(Kind.CLAIMED, range(seq, seq + 1), seq, 0, 100, "ada"))
    values = records_of(queue.snapshot(queue.cursor))
    assert 1 < len(values) < 4
    assert max(map(len, values)) <= 1024 * 1024
    again = new_queue()
    for value in values:
        for event in decode_events(value, KEY):
            again.apply(event)
    assert state_of(again) == state_of(queue)
