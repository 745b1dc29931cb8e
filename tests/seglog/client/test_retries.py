"""Test when the client sends a request again, without a daemon."""

from __future__ import annotations

import json

import pytest

from seglog.client.connections import Answer, Lost, Outcome, Request
from seglog.client.requests import (
    AppendLabels,
    Asked,
    append_request,
    bounds_request,
    read_request,
    truncate_request,
)
from seglog.client.retries import Again, Call, Retries, after
from seglog.errors import (
    AppendUnknown,
    DaemonError,
    DaemonGone,
    HeadMoved,
    NoSuchTopic,
    ProducerFenced,
    ProducerGap,
    SeglogError,
)
from seglog.values.producer import ProducerBatch

READ = read_request("t", Asked())
PLAIN = append_request("t", [b"x"], AppendLabels(), if_head=3)
KEYED = append_request("t", [b"x"], AppendLabels(), key="k")
BATCH = append_request("t", [b"x"], AppendLabels(), producer=ProducerBatch("p", 1, 7))
CUT = truncate_request("t", 3)
UNSENT = Lost("refused", is_sent=False)
LOST = Lost("reset", is_sent=True)


def answer(status: int, title: str = "", retry_after: str | None = None, **said: object) -> Answer:
    headers = {} if retry_after is None else {"retry-after": retry_after}
    report = {"title": title, "class": f"seglog.errors.{title}", "detail": "told", **said}
    return Answer(status, headers, json.dumps(report).encode())


def step(request: Request, outcome: Outcome, *, now_s: float = 0.0, is_unsure: bool = False) -> float | SeglogError:
    """Return the wait before the next try, or the error of the call, whose time ends at 60 s."""
    call = Call(request, "http://log:1", Retries(least_s=1, most_s=8), deadline_s=60.0, is_unsure=is_unsure)
    try:
        return after(call, outcome, now_s, chance=0.0).wait_s
    except SeglogError as error:
        return error


@pytest.mark.parametrize("request_", [READ, KEYED, BATCH])
@pytest.mark.parametrize("outcome", [UNSENT, LOST, *(answer(each) for each in (408, 429, 500, 502, 503, 504, 507))])
def test_a_repeatable_request_is_sent_again(request_: Request, outcome: Outcome) -> None:
    assert step(request_, outcome) == 1.0


@pytest.mark.parametrize("outcome", [UNSENT, answer(429), answer(503, "Stopping"), answer(507, "DiskFull")])
def test_another_request_is_sent_again_only_if_it_had_no_effect(outcome: Outcome) -> None:
    assert step(PLAIN, outcome) == 1.0
    assert step(CUT, outcome) == 1.0


@pytest.mark.parametrize("outcome", [LOST, answer(500), answer(502), answer(503, "WriterPoisoned")])
def test_a_plain_append_whose_outcome_is_unknown_says_so(outcome: Outcome) -> None:
    found = step(PLAIN, outcome)
    assert isinstance(found, AppendUnknown)
    assert isinstance(found.__cause__, DaemonGone | DaemonError)
    assert isinstance(step(CUT, outcome), DaemonGone | DaemonError)


def test_a_plain_append_of_which_a_part_is_in_is_not_sent_again() -> None:
    assert isinstance(step(PLAIN, answer(429, "Busy", appended=3)), AppendUnknown)


def test_chunks_are_sent_once() -> None:
    """The second try would send what is left of them."""
    chunks = append_request("t", (), AppendLabels(), key="k", chunks=iter([b"x"]))
    assert step(chunks, UNSENT) == 1.0
    assert isinstance(step(chunks, LOST), AppendUnknown)
    assert isinstance(step(chunks, answer(429)), DaemonError)


def test_retry_after_is_the_least_wait_and_ends_the_call_if_it_is_too_long() -> None:
    assert step(READ, answer(503, retry_after="20")) == 20.0
    assert step(READ, answer(503, retry_after="soon")) == 1.0
    assert isinstance(step(READ, answer(429, retry_after="61")), DaemonError)
    assert isinstance(step(READ, answer(429, retry_after="5"), now_s=56.0), DaemonError)
    assert step(READ, answer(429, retry_after="5"), now_s=55.0) == 5.0


def test_an_append_that_gives_up_is_unknown_only_if_a_try_may_have_been_it() -> None:
    assert isinstance(step(BATCH, UNSENT, now_s=60.0), DaemonGone)
    late = step(BATCH, LOST, now_s=60.0)
    assert isinstance(late, AppendUnknown)
    assert late.number == 7
    assert isinstance(step(BATCH, UNSENT, now_s=60.0, is_unsure=True), AppendUnknown)
    assert isinstance(step(BATCH, answer(507), now_s=60.0), DaemonError)


def test_a_definite_refusal_is_its_own_error_unless_an_earlier_try_may_be_in() -> None:
    fenced = answer(403, "ProducerFenced", fields={"epoch": 2})
    assert isinstance(step(BATCH, fenced), ProducerFenced)
    unknown = step(BATCH, fenced, is_unsure=True)
    assert isinstance(unknown, AppendUnknown)
    assert isinstance(unknown.__cause__, ProducerFenced)
    gap = answer(409, "ProducerGap", fields={"expected": 5, "number": 7})
    assert isinstance(step(BATCH, gap, is_unsure=True), ProducerGap)


def test_the_wait_doubles_up_to_its_bound_and_chance_halves_it_at_most() -> None:
    retries = Retries(least_s=1, most_s=8)
    assert [retries.wait_s(failures, 0.0) for failures in (1, 2, 3, 4, 5, 99)] == [1, 2, 4, 8, 8, 8]
    assert [retries.wait_s(failures, 1.0) for failures in (1, 2, 3, 4)] == [1, 1, 2, 4]


def test_errors_have_their_fields_and_a_problem_without_them_is_a_daemon_error() -> None:
    moved = step(PLAIN, answer(412, "HeadMoved", fields={"topic": "t", "if_head": 3, "head": 9}))
    assert isinstance(moved, HeadMoved)
    assert (moved.topic, moved.if_head, moved.head) == ("t", 3, 9)
    assert isinstance(step(PLAIN, answer(412, "HeadMoved")), DaemonError)
    assert isinstance(step(bounds_request("t"), Answer(404, {})), NoSuchTopic)
    assert isinstance(step(READ, Answer(400, {}, b"<html>")), DaemonError)


def test_a_lasting_failure_to_connect_is_no_reason_to_wait() -> None:
    assert isinstance(step(READ, Lost("certificate", is_sent=False, is_lasting=True)), DaemonGone)


def test_tries_to_connect_have_a_bound_of_their_own_until_a_daemon_is_reached() -> None:
    retries = Retries(least_s=1, most_s=8)
    call = Call.begun(READ, "http://log:1", retries, 0.0, is_reached=False)
    assert isinstance(after(call, UNSENT, 4.0, 0.0), Again)
    with pytest.raises(DaemonGone):
        after(call, UNSENT, 4.1, 0.0)
    for reaching in (LOST, answer(429)):
        again = after(call, reaching, 20.0, 0.0)
        assert isinstance(after(again.call, UNSENT, 40.0, 0.0), Again)
    assert isinstance(after(Call.begun(READ, "http://log:1", retries, 0.0, is_reached=True), UNSENT, 40.0, 0.0), Again)
