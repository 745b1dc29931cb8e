"""A producer's batches are there once and in order, whatever the network does, as a plain table of the daemon shows.

The machine drives the window (seglog.client.batches) as the senders do: it gives batches, sends those that are due, and
brings requests and answers in any order. A request is lost before or after its effect, comes twice, or is refused for
some time.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from seglog.client.batches import IN_FLIGHT, Window, added, answered, due, has_room, sent, wait_s, written
from seglog.client.connections import Answer, Lost, Outcome, Request
from seglog.client.requests import AppendLabels
from seglog.client.retries import Retries
from seglog.errors import AppendUnknown, BatchReused, DaemonGone, OtherIncarnation, ProducerFenced, ProducerGap
from tests.seglog.client.table_server import TableServer
from tests.work import amounts, tell

COUNTS: Counter[str] = Counter()
PLAIN = AppendLabels()


def opened(total_s: float = 1e9) -> Window:
    return Window("t", "p", 1, "test", Retries(total_s=total_s, least_s=1, most_s=4))


class Producing(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.server = TableServer()
        self.window = opened()
        self.given: list[bytes] = []
        self.on_their_way: list[tuple[int, Request]] = []
        self.answers: list[tuple[int, Outcome]] = []
        self.strays: list[Request] = []
        self.now_s = 0.0
        COUNTS["histories"] += 1

    @precondition(lambda self: has_room(self.window))
    @rule(count=st.integers(1, 3))
    def give(self, count: int) -> None:
        values = tuple(b"%d" % number for number in range(len(self.given), len(self.given) + count))
        self.given += values
        self.window = added(self.window, values, PLAIN)

    @precondition(lambda self: due(self.window, self.now_s) is not None)
    @rule()
    def send(self) -> None:
        batch = due(self.window, self.now_s)
        assert batch is not None
        self.window, request = sent(self.window, batch.number, self.now_s)
        self.window = written(self.window, batch.number)
        self.on_their_way.append((batch.number, request))
        COUNTS["requests"] += 1

    @precondition(lambda self: self.on_their_way)
    @rule(
        which=st.integers(0, IN_FLIGHT),
        fate=st.sampled_from(["answered", "answered", "lost before", "lost after", "twice", "stray", "refused"]),
    )
    def bring(self, which: int, fate: str) -> None:
        number, request = self.on_their_way.pop(which % len(self.on_their_way))
        COUNTS[fate] += 1
        if fate == "refused":
            self.answers.append((number, Answer(503, {"retry-after": "2"}, b"{}")))
            return
        if fate in ("lost before", "stray"):
            # A stray request comes to the daemon after its sender has taken it for lost.
            self.strays += [request] * (fate == "stray")
            self.answers.append((number, Lost("cut", is_sent=True)))
            return
        answer: Outcome = self.server.take(request)
        if fate == "twice":
            self.server.take(request)
        self.answers.append((number, Lost("cut", is_sent=True) if fate == "lost after" else answer))

    @precondition(lambda self: self.strays)
    @rule()
    def come_late(self) -> None:
        self.server.take(self.strays.pop(0))

    @precondition(lambda self: self.answers)
    @rule(which=st.integers(0, IN_FLIGHT))
    def answer(self, which: int) -> None:
        number, outcome = self.answers.pop(which % len(self.answers))
        self.window = answered(self.window, number, outcome, self.now_s, 0.0)

    @rule(seconds=st.sampled_from([0.5, 2.0, 8.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @invariant()
    def each_record_is_there_once_and_in_order(self) -> None:
        assert self.server.records == self.given[: len(self.server.records)]
        assert self.window.failed is None
        assert self.window.acked <= len(self.server.records)

    def teardown(self) -> None:
        """Let the network work from now on: each batch gets its answer."""
        for _ in range(200):
            while self.on_their_way:
                self.bring(0, "answered")
            while self.answers:
                self.answer(0)
            if due(self.window, self.now_s) is not None:
                self.send()
            elif self.window.is_settled:
                break
            else:
                waits = wait_s(self.window, self.now_s)
                assert waits is not None, "no batch is due, and none will be"
                self.now_s += waits
        while self.strays:
            self.come_late()
        assert self.server.records == self.given
        assert self.window.acked == len(self.given)
        assert self.window.last_seq == (len(self.given) or None)
        COUNTS["records"] += len(self.given)
        COUNTS["early"] += self.window.early


@amounts(60, soak=20_000, part=2)
def test_each_record_is_there_once_and_in_order(amount: int) -> None:
    COUNTS.clear()
    run_state_machine_as_test(
        Producing,
        settings=settings(
            max_examples=amount,
            stateful_step_count=60,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert min(COUNTS[each] for each in ("early", "lost after", "twice", "stray", "records")) > 0
    tell(", ".join(f"{count} {name}" for name, count in COUNTS.items()))


def drive(window: Window, server: TableServer, now_s: float = 0.0) -> Window:
    """Send each batch that is due, and bring its answer at once."""
    while (batch := due(window, now_s)) is not None:
        window, request = sent(window, batch.number, now_s)
        window = answered(window, batch.number, server.take(request), now_s, 0.0)
    return window


def filled(batches: int, window: Window | None = None) -> Window:
    window = window or opened()
    for number in range(batches):
        window = added(window, (b"%d" % number, b"x"), PLAIN)
    return window


def test_a_sixth_batch_waits_for_the_answer_to_the_first() -> None:
    window = filled(IN_FLIGHT)
    assert not has_room(window)
    server = TableServer()
    for number in range(1, IN_FLIGHT):
        window, _ = sent(window, number, 0.0)
    window, request = sent(window, 0, 0.0)
    answers = {0: server.take(request)}
    for each in window.batches[1:]:
        assert each.call is not None
        answers[each.number] = server.take(each.call.request)
    for number in range(1, IN_FLIGHT):
        window = answered(window, number, answers[number], 0.0, 0.0)
    assert [each.number for each in window.batches] == [0]
    assert not has_room(window)
    window = answered(window, 0, answers[0], 0.0, 0.0)
    assert has_room(window)


def test_one_batch_is_written_at_a_time() -> None:
    window, _ = sent(filled(2), 0, 0.0)
    assert due(window, 0.0) is None
    second = due(written(window, 0), 0.0)
    assert second is not None
    assert second.number == 1
    lost = answered(window, 0, Lost("cut", is_sent=True), 0.0, 0.0)
    assert due(lost, 0.0) is not None


def test_after_a_batch_that_came_too_early_batches_go_one_at_a_time_until_none_is_behind() -> None:
    server, window = TableServer(), filled(3)
    window, first = sent(window, 0, 0.0)
    for number in (1, 2):
        window, request = sent(window, number, 0.0)
        window = answered(window, number, server.take(request), 0.0, 0.0)
    assert window.early == 2
    assert due(window, 0.0) is None
    window = added(window, (b"more",), PLAIN)
    assert due(window, 0.0) is None
    window = answered(window, 0, server.take(first), 0.0, 0.0)
    window, request = sent(window, 1, 0.0)
    assert due(window, 0.0) is None
    window = drive(answered(window, 1, server.take(request), 0.0, 0.0), server)
    assert window.is_settled
    assert (server.gaps, window.acked) == (2, 7)


def test_a_refusal_from_before_the_lower_batch_came_is_no_error_after_its_answer() -> None:
    server, window = TableServer(), filled(2)
    window, first = sent(window, 0, 0.0)
    window, second = sent(window, 1, 0.0)
    refusal = server.take(second)
    window = answered(window, 0, server.take(first), 0.0, 0.0)
    window = drive(answered(window, 1, refusal, 0.0, 0.0), server)
    assert (window.error, window.acked) == (None, 4)


def test_a_batch_of_a_producer_that_the_log_forgot_is_refused() -> None:
    server = TableServer()
    window = drive(filled(2), server)
    server.producers.clear()
    window = drive(filled(1, window), server)
    assert isinstance(window.error, ProducerGap)
    assert window.is_settled
    assert not has_room(window)


def test_no_batch_is_sent_again_to_another_incarnation() -> None:
    server = TableServer()
    window = filled(1, drive(filled(1), server))
    window, request = sent(window, 1, 0.0)
    server.take(request)
    window = answered(window, 1, Lost("cut", is_sent=True), 0.0, 0.0)
    server.take_over()
    window = drive(window, server, now_s=100.0)
    assert isinstance(window.error, AppendUnknown)
    assert isinstance(window.error.__cause__, OtherIncarnation)
    assert (window.error.number, window.error.records) == (1, 2)
    assert len(server.records) == 4


def test_the_error_names_the_first_batch_whose_outcome_is_unknown_and_lower_ones_get_their_answers() -> None:
    server, window = TableServer(), filled(4, opened(total_s=10))
    requests = []
    for number in range(4):
        window, request = sent(window, number, 0.0)
        requests.append(request)
    window = answered(window, 2, Lost("cut", is_sent=True), 10.0, 0.0)
    assert isinstance(window.error, AppendUnknown)
    assert window.error.number == 2
    assert not window.is_settled
    window = answered(window, 0, server.take(requests[0]), 10.0, 0.0)
    window = answered(window, 1, Lost("cut", is_sent=True), 10.0, 0.0)
    assert isinstance(window.error, AppendUnknown)
    assert (window.error.number, window.error.records, window.error.after_seq) == (1, 2, 2)
    assert "the last one with seq 2" in str(window.error)
    assert window.is_settled
    assert due(window, 99.0) is None


def test_a_batch_that_the_log_had_before_its_first_try_is_of_another_program() -> None:
    """CLIENT-10: the values may be others, so the producer acks nothing."""
    server = TableServer()
    assert drive(filled(1), server).acked == 2
    refused = drive(added(opened(), (b"other", b"values"), PLAIN), server)
    assert (type(refused.error), refused.acked, server.duplicates) == (BatchReused, 0, 1)
    window, _ = sent(filled(1), 0, 0.0)
    window = answered(window, 0, Lost("no route", is_sent=False), 0.0, 0.0)  # the daemon got no byte of it
    assert isinstance(drive(window, server, now_s=9.0).error, BatchReused)


def test_a_batch_that_may_be_in_from_an_earlier_try_is_no_other_programs() -> None:
    """Also if the log then refused it as too early: a try that took long may come after the refusal."""
    server, window = TableServer(), filled(2)
    window, first = sent(window, 0, 0.0)
    window, late = sent(window, 1, 0.0)
    window = answered(window, 1, Lost("cut", is_sent=True), 0.0, 0.0)
    window, again = sent(window, 1, 9.0)
    window = answered(window, 1, server.take(again), 9.0, 0.0)
    assert window.early == 1
    window = answered(window, 0, server.take(first), 9.0, 0.0)
    server.take(late)
    window = drive(window, server, now_s=9.0)
    assert (window.error, window.acked, server.duplicates) == (None, 4, 1)


def test_the_error_has_the_last_seq_also_if_a_lower_batch_gets_its_answer_later() -> None:
    server, window = TableServer(), filled(2, opened(total_s=10))
    window, first = sent(window, 0, 0.0)
    window, _ = sent(window, 1, 0.0)
    window = answered(window, 1, Lost("cut", is_sent=True), 10.0, 0.0)
    assert isinstance(window.error, AppendUnknown)
    assert window.error.after_seq is None
    window = answered(window, 0, server.take(first), 10.0, 0.0)
    assert isinstance(window.error, AppendUnknown)
    assert (window.error.number, window.error.records, window.error.after_seq) == (1, 2, 2)


def test_the_error_has_no_seq_of_a_higher_batch() -> None:
    server, window = TableServer(), filled(3, opened(total_s=10))
    requests = []
    for number in range(3):
        window, request = sent(window, number, 0.0)
        requests.append(request)
    window = answered(window, 0, server.take(requests[0]), 0.0, 0.0)
    server.take(requests[1])
    window = answered(window, 2, server.take(requests[2]), 0.0, 0.0)
    window = answered(window, 1, Lost("cut", is_sent=True), 10.0, 0.0)
    assert isinstance(window.error, AppendUnknown)
    assert (window.error.number, window.error.after_seq, window.last_seq) == (1, 2, 6)


def test_a_producer_that_no_daemon_answered_yet_gives_up_to_connect_soon() -> None:
    unsent = Lost("refused", is_sent=False)
    window, _ = sent(filled(1), 0, 0.0)
    assert isinstance(answered(window, 0, unsent, 6.0, 0.0).error, DaemonGone)
    window = drive(filled(1), TableServer())
    window, _ = sent(filled(1, window), 1, 0.0)
    assert answered(window, 1, unsent, 6.0, 0.0).error is None


def test_a_fenced_producer_ends() -> None:
    server = TableServer(producers={"p": (9, [])})
    window = drive(filled(2), server)
    assert isinstance(window.error, ProducerFenced)
    assert window.acked == 0
