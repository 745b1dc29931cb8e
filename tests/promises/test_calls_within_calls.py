"""A signal handler, finalizer or logging handler calls the log within a call of the same thread. No thread ever hangs.

every point   The test makes a first call. At one point where the interpreter looks for signals, a handler makes a
              second call. The second call works or raises `CalledWithin`. The first call continues. Every record that
              either call acked is there.
not caught    The handler lets `CalledWithin` out. That stops the first call, as an interrupt does, and no other thread.

Not tested: handlers that run within the code of `offload` and `catalog`, and handlers of threads that the log made.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import seglog
from seglog import CalledWithin, Log, LogClosed, LogSettings, NoSuchTopic, TopicConfig
from seglog.journal.journal import Journal
from tests.faults.disk import SimulatedDisk
from tests.faults.interrupts import handled, points
from tests.seams.log import engine_of
from tests.work import amounts, tell

DIRECTORY = Path("/log")
SETTINGS = LogSettings(segment_max_events=5, wal_file_bytes=4096)
PARTS = """base.arguments log topic engine.engine engine.entries engine.state engine.tail engine.work_thread
    interrupts maintenance.absorb maintenance.checkpoint maintenance.eviction maintenance.checkpoint_plan
    maintenance.removal reading.read segments.segment values.deletes wal.group_commit
    wal.wal writing.append writing.changes"""
MODULES = tuple(f"seglog.{name}" for name in PARTS.split())
# The most points tried for each call, evenly spaced: with an append as the handler's call, and with any other.
MOST, MOST_OF_OTHERS = 6, 2
_HANGS_S = 60

CALLS: dict[str, Callable[[Log], object]] = {
    "append": lambda log: log.topic("t").append([b"x", b"y"]),
    "append that rotates": lambda log: log.topic("t").append([b"x" * 3000]),
    "append at disk": lambda log: log.topic("t").append([b"x"], durability="disk"),
    "append of ephemeral": lambda log: log.topic("t").append([b"x"], durability="ephemeral"),
    "append to a capped topic": lambda log: log.topic("capped").append([b"x"]),
    "first append": lambda log: log.topic("new").append([b"x"]),
    "delete": lambda log: log.topic("t").delete(before=2),
    "delete by tag": lambda log: log.topic("t").delete(tag="eu"),
    "truncate": lambda log: log.topic("u").truncate(3),
    "create": lambda log: log.create_topic("new"),
    "configure": lambda log: log.configure("t", TopicConfig(ttl_ms=10**15)),
    "delete topic": lambda log: log.delete_topic("u"),
    "seal": lambda log: log.topic("t").seal(),
    "read": lambda log: [record.seq for record in log.topic("t").read()],
    "retention": lambda log: log.enforce_retention(),
    "close": lambda log: log.close(),
}
HANDLERS: dict[str, Callable[[Log], object]] = {
    "append": lambda log: log.topic("t").append([b"from the handler"]),
    "read": lambda log: [record.value for record in log.topic("t").read()],
    "seal": lambda log: log.topic("t").seal(),
    "delete": lambda log: log.topic("u").delete(tag="eu"),
    "close": lambda log: log.close(),
}
OTHERS = ("append", "append to a capped topic", "delete by tag", "seal", "read", "close")


def _begin() -> Log:
    log = seglog.open(DIRECTORY, files=SimulatedDisk(), settings=SETTINGS)
    log.create_topic("capped", TopicConfig(cap_records=3))
    for number in range(7):
        log.topic("t").append([b"%d" % number], tag="eu" if number % 3 else None)
    log.topic("t").seal()
    log.topic("t").append([b"a" * 500], tag="eu")
    log.topic("u").append([b"u"] * 4, tag="eu")
    for _ in range(3):
        log.topic("capped").append([b"c"])
    return log


class _Handler:
    """Calls the log once, and keeps the result or the error."""

    def __init__(self, log: Log, call: Callable[[Log], object]) -> None:
        self._log = log
        self._call = call
        self.result: object = None
        self.error: BaseException | None = None

    def __call__(self) -> None:
        try:
            self.result = self._call(self._log)
        except BaseException as error:
            self.error = error


def _run(log: Log, outer: Callable[[Log], object], handler: Callable[[], object], at: int) -> list[object]:
    """Return the outer call's result, or its error, in a list. Both calls run in one new thread."""
    ended: list[object] = []

    def work() -> None:
        try:
            handled(lambda: ended.append(outer(log)), MODULES, at, handler)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(_HANGS_S)
    assert ended, "the thread waits for itself"
    return ended


def _check(log: Log, outer: object, inner: _Handler, what: str) -> None:
    assert not log.is_poisoned
    if isinstance(inner.error, CalledWithin) or what != "close":
        assert not isinstance(outer, BaseException), outer
    else:
        assert not isinstance(outer, BaseException) or isinstance(outer, LogClosed), outer
    assert inner.error is None or isinstance(inner.error, (CalledWithin, LogClosed, NoSuchTopic)), inner.error
    disk = engine_of(log).files
    if not engine_of(log).is_closed:
        before = log.topic("t").head_seq
        done: list[range] = []
        thread = threading.Thread(target=lambda: done.append(log.topic("t").append([b"after"])), daemon=True)
        thread.start()
        thread.join(_HANGS_S)
        assert done == [range(before + 1, before + 2)], "another thread waits for ever, or was refused"
        log.close()
    with seglog.open(DIRECTORY, files=disk, settings=SETTINGS) as again:
        found = [record for record in again.topic("t").read(gaps=True) if isinstance(record, seglog.Record)]
    values = {record.seq: record.value for record in found}
    assert len(values) == len(found)
    if isinstance(inner.result, range):
        assert values[inner.result[0]] == b"from the handler"
    assert sum(value == b"from the handler" for value in values.values()) == isinstance(inner.result, range)


@amounts(1, soak=100, part=8)
@pytest.mark.parametrize(
    ("what", "handler"),
    [(what, "append") for what in CALLS] + [(what, handler) for handler in [*HANDLERS][1:] for what in OTHERS],
)
def test_a_handler_that_calls_the_log_at_any_point_hangs_nobody(what: str, handler: str, amount: int) -> None:
    outer, inner = CALLS[what], HANDLERS[handler]
    log = _begin()
    count = points(lambda: outer(log), MODULES)
    log.close()
    assert count > 10
    most = MOST if handler == "append" else MOST_OF_OTHERS
    step = -(-count // (amount * (2 * MOST if what == handler == "append" else most)))
    refused = 0
    for at in range(1, count + 1, step):
        log = _begin()
        second = _Handler(log, inner)
        try:
            ended = _run(log, outer, second, at)
            _check(log, ended[0], second, handler)
        except BaseException as problem:
            problem.add_note(f"{handler} at point {at} of {count} of {what}")
            raise
        refused += isinstance(second.error, CalledWithin)
    tell(f"{handler} within {what}: {len(range(1, count + 1, step))} of {count} points, {refused} refused")


@pytest.mark.parametrize("what", ["append", "append that rotates", "delete", "create"])
def test_a_handler_that_lets_the_refusal_out_stops_its_own_call_only(what: str) -> None:
    outer, append = CALLS[what], HANDLERS["append"]
    log = _begin()
    count = points(lambda: outer(log), MODULES)
    log.close()
    stopped = 0
    for at in range(1, count + 1, -(-count // (2 * MOST))):
        log = _begin()
        disk = engine_of(log).files
        ended = _run(log, outer, lambda log=log: append(log), at)[0]  # type: ignore[misc]
        assert not isinstance(ended, BaseException) or isinstance(ended, CalledWithin), (at, ended)
        stopped += isinstance(ended, CalledWithin)
        assert not log.is_poisoned
        first = log.topic("t").head_seq + 1
        assert log.topic("t").append([b"after"]) == range(first, first + 1)
        records = [record for record in log.topic("t").read(gaps=True) if isinstance(record, seglog.Record)]
        log.close()
        with seglog.open(DIRECTORY, files=disk, settings=SETTINGS) as again:
            assert [*again.topic("t").read(gaps=True)][-len(records) :] == records
    assert stopped > MOST // 2


def test_a_handler_within_a_call_of_a_journal_hangs_nobody() -> None:
    modules = ("seglog.journal.journal", "seglog.journal.section", "seglog.interrupts")
    calls: dict[str, Callable[[Journal], object]] = {
        "append": lambda journal: journal.append(1, b"second"),
        "sync": lambda journal: journal.sync(1),
        "prune": lambda journal: journal.prune(1),
        "get": lambda journal: journal.get(1, 0),
    }
    refused = 0
    for name, call in calls.items():
        for at in range(1, 200):
            disk = SimulatedDisk()
            disk.make_dir(DIRECTORY)
            results: list[object] = []
            with Journal(DIRECTORY / "journal", files=disk) as journal:
                journal.append(1, b"first")

                def handler(journal: Journal = journal, results: list[object] = results) -> None:
                    for inner in (lambda: journal.append(1, b"inner"), journal.close):
                        try:
                            results.append(inner())
                        except CalledWithin as error:
                            results.append(error)

                try:
                    handled(lambda: call(journal), modules, at, handler)  # noqa: B023 - it is done at once
                except seglog.LogClosed:
                    assert results[-1] is None, (name, at)
            if not results:
                break
            with Journal(DIRECTORY / "journal", files=disk) as journal:
                found = [item.data for item in journal.replay()]
            assert (b"inner" in found) == isinstance(results[0], int), (name, at)
            assert found[0] == b"first"
            refused += any(isinstance(each, CalledWithin) for each in results)
    assert refused > 20
