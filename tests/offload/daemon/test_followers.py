"""Test followers over HTTP, of a daemon in a process of its own: JSON lines, and events that resume."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import seglog
from seglog import LogSettings
from tests.daemons import ServedDirectory, served
from tests.offload.daemon.events_of import Event
from tests.offload.daemon.open_answers import EventStream, LineStream, opened
from tests.waiting import wait_until

EVENTS = {"Accept": "text/event-stream"}
BYTES = {"Content-Type": "application/octet-stream"}


def fill(directory: Path, *names: str) -> None:
    """Make topics with the records `value 1` to `value 10`: tags a, b in turn, nodes n0 to n2."""
    with seglog.open(directory, settings=LogSettings(segment_max_events=5)) as log:
        for name in names:
            for seq in range(1, 11):
                log.topic(name).append([b"value %d" % seq], tag="ab"[seq % 2], node=f"n{seq % 3}")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDirectory]:
    place = tmp_path_factory.mktemp("followers")
    fill(place / "data", "kept", *(f"t{number}" for number in range(14)))
    with served(place / "data", (place / "remote").as_uri()) as running:
        yield running


@pytest.fixture(scope="module")
def names() -> Iterator[str]:
    return (f"t{number}" for number in range(14))


@pytest.fixture
def topic(names: Iterator[str]) -> str:
    """Return a topic of the shared daemon that no other test has."""
    return next(names)


def path(topic: str, query: str = "") -> str:
    return f"/topics/{topic}/records?follow=1&{query}"


def ids(events: list[Event]) -> list[str]:
    return [each.id for each in events]


def value(event: Event | None) -> str:
    assert event is not None
    assert event.name == "record"
    return str(json.loads(event.data)["value"])


def truncate(daemon: ServedDirectory, topic: str, seq: int) -> None:
    [found] = daemon.call("truncate", topic=topic, start=seq, yes=True)
    assert "title" not in found


def test_events_have_the_epoch_and_seq_as_id_and_the_json_line_as_data(daemon: ServedDirectory, topic: str) -> None:
    with opened(daemon.port, path(topic, "from=9"), EVENTS) as answer:
        assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        assert answer.headers["cache-control"] == "no-cache"
        stream = EventStream(answer)
        assert [(each.name, each.id) for each in stream.take(2)] == [("record", "1-9"), ("record", "1-10")]
        daemon.append(topic, b"new")
        event = stream.next()
        assert event is not None
        assert (event.name, event.id) == ("record", "1-11")
        with opened(daemon.port, path(topic, "from=11")) as lines:
            assert json.loads(event.data) == LineStream(lines).next()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("tail=2", ["1-9", "1-10"]),
        ("tag=a&from=7", ["1-8", "1-10"]),
        ("exclude_node=n0&exclude_node=n1&from=4", ["1-5", "1-8"]),
        ("limit=3", ["1-1", "1-2", "1-3"]),
    ],
)
def test_followers_take_the_parameters_of_a_read(daemon: ServedDirectory, query: str, expected: list[str]) -> None:
    with opened(daemon.port, path("kept", query), EVENTS) as answer:
        stream = EventStream(answer)
        assert ids(stream.take(len(expected))) == expected
        if "limit" in query:
            end = stream.next()
            assert end == Event("end", '{"reason": "limit"}', expected[-1])
            assert stream.next() is None


def test_a_filter_and_a_limit_hold_for_records_that_come_later(daemon: ServedDirectory, topic: str) -> None:
    with opened(daemon.port, path(topic, "tail=0&tag=x&exclude_node=me&limit=2")) as answer:
        for tag, node in (("y", "you"), ("x", "me"), ("x", "you"), ("y", "you"), ("x", "they"), ("x", "late")):
            sent = f"/topics/{topic}/records?tag={tag}&node={node}"
            assert daemon.ask("POST", sent, b"v", BYTES)[0] == 201
        assert [json.loads(line)["seq"] for line in answer.read().splitlines()] == [13, 15]


@pytest.mark.parametrize("last", ["1-7", "1-10", "1-0"])
def test_a_stream_resumes_after_the_last_id_whatever_from_says(daemon: ServedDirectory, topic: str, last: str) -> None:
    with opened(daemon.port, path(topic, "from=2"), {**EVENTS, "Last-Event-ID": last}) as answer:
        daemon.append(topic, b"new")
        seq = int(last[2:])
        assert ids(EventStream(answer).take(11 - seq)) == [f"1-{number}" for number in range(seq + 1, 12)]


@pytest.mark.parametrize("last", ["x", "1", "1-", "1-2-3", "1-99999999999999999999", "-1-2", "1-2 "])
def test_an_id_of_another_stream_is_refused(daemon: ServedDirectory, last: str) -> None:
    with opened(daemon.port, path("kept"), {**EVENTS, "Last-Event-ID": last.replace(" ", "\u00a0")}) as answer:
        assert answer.status == 400
        assert "Last-Event-ID" in json.loads(answer.read())["detail"]


def test_a_truncation_below_a_follower_is_an_event_and_the_stream_continues_there(
    daemon: ServedDirectory, topic: str
) -> None:
    with ExitStack() as stack:
        first = EventStream(stack.enter_context(opened(daemon.port, path(topic), EVENTS)))
        lines = LineStream(stack.enter_context(opened(daemon.port, path(topic))))
        assert len(first.take(10)) == 10
        assert [lines.next() for _ in range(10)][-1] is not None
        truncate(daemon, topic, 6)
        for number in range(3):
            daemon.append(topic, b"other %d" % number)
        assert first.next() == Event("truncated", '{"from": 6}', "2-5")
        assert [value(first.next()) for _ in range(3)] == ["other 0", "other 1", "other 2"]
        last = lines.next()
        assert last is not None
        error = last["error"]
        assert (error["error"], error["seq"], error["epoch"]) == ("Truncated", 6, 2)
        assert lines.next() is None
    status, body, headers = daemon.ask("GET", path(topic), headers={"Last-Event-ID": "1-10"})
    told = json.loads(body)
    assert (status, told["title"], told["seq"], told["epoch"]) == (409, "Truncated", 6, 2)
    assert headers["seglog-epoch"] == "2"
    for last_id, expected in (
        ("1-10", [("truncated", "2-5"), ("record", "2-6")]),
        ("1-6", [("truncated", "2-5"), ("record", "2-6")]),
        ("1-5", [("record", "2-6"), ("record", "2-7")]),
        ("1-3", [("record", "2-4"), ("record", "2-5"), ("record", "2-6")]),
        ("2-5", [("record", "2-6")]),
        ("2-7", [("record", "2-8")]),
    ):
        with opened(daemon.port, path(topic), {**EVENTS, "Last-Event-ID": last_id}) as answer:
            events = EventStream(answer).take(len(expected))
            assert [(each.name, each.id) for each in events] == expected


def test_a_lagging_follower_gets_no_record_of_the_new_epoch_under_an_old_id(
    daemon: ServedDirectory, topic: str
) -> None:
    large = bytes(200_000)
    for _ in range(20):
        daemon.append(topic, large)
    with opened(daemon.port, path(topic), EVENTS) as answer:
        stream = EventStream(answer)
        found = stream.take(5)  # the rest of 4 MB waits for this reader
        truncate(daemon, topic, 28)
        for number in range(5):
            daemon.append(topic, b"other %d" % number)
        while not found or found[-1].id != "2-32":
            found += stream.take(1)
    shown: dict[str, str] = {}
    for each in found:
        if each.name == "truncated":
            continue
        seq, is_other = int(each.id[2:]), "other" in each.data
        assert is_other == (each.id.startswith("2-") and seq >= 28)
        assert shown.setdefault(each.id, each.data) == each.data


def test_gaps_are_events_with_the_last_lost_seq(daemon: ServedDirectory, topic: str) -> None:
    [found] = daemon.call("evict", topic=topic, before=6, yes=True)
    assert "title" not in found
    with opened(daemon.port, path(topic, "from=1&gaps=1"), EVENTS) as answer:
        events = EventStream(answer).take(2)
        assert [(each.name, each.id) for each in events] == [("gap", "1-5"), ("record", "1-6")]
        assert json.loads(events[0].data)["gap_to"] == 5
    with opened(daemon.port, path(topic, "from=1"), EVENTS) as answer:
        assert answer.status == 410


def test_a_follower_of_a_deleted_topic_ends_with_the_error(daemon: ServedDirectory, topic: str) -> None:
    with opened(daemon.port, path(topic, "tail=0"), EVENTS) as answer:
        [found] = daemon.call("topic/delete", topic=topic, yes=True)
        assert "title" not in found
        end = EventStream(answer).next()
        assert end is not None
        assert (end.name, json.loads(end.data)["error"]["error"]) == ("end", "NoSuchTopic")
    assert daemon.ask("GET", path("absent"), None, EVENTS)[0] == 404


@pytest.mark.soak(part=2)
def test_each_record_comes_once_over_kills_of_the_daemon(tmp_path: Path) -> None:
    fill(tmp_path / "data", "t")
    found: list[Event] = []
    last, head = "", 0
    for round_ in range(3):
        with served(tmp_path / "data", (tmp_path / "remote").as_uri()) as running:
            appender = threading.Thread(target=_append, args=(running, 30))
            appender.start()
            headers = {**EVENTS, **({"Last-Event-ID": last} if last else {})}
            with opened(running.port, path("t"), headers) as answer:
                if round_ == 2:
                    appender.join()
                    head = int(running.ask("HEAD", "/topics/t/records")[2]["seglog-head"])
                found += EventStream(answer).take(20 if round_ < 2 else head - len(found))
            last = found[-1].id
            running.kill()
            appender.join()
    assert ids(found) == [f"1-{seq}" for seq in range(1, head + 1)]
    with seglog.open(tmp_path / "data") as log:
        assert [value(each) for each in found] == [record.value.decode() for record in log.topic("t").read()]


def _append(running: ServedDirectory, count: int) -> None:
    """Append until the daemon is killed."""
    try:
        for number in range(count):
            running.append("t", b"more %d" % number)
    except OSError:
        pass


def test_after_a_restart_a_client_of_a_former_epoch_gets_all_records_again(tmp_path: Path) -> None:
    fill(tmp_path / "data", "t")
    with seglog.open(tmp_path / "data") as log:
        log.topic("t").truncate(9)
        log.topic("t").append([b"other"])
    with (
        served(tmp_path / "data", (tmp_path / "remote").as_uri()) as running,
        opened(running.port, path("t"), {**EVENTS, "Last-Event-ID": "1-9"}) as answer,
    ):
        stream = EventStream(answer)
        assert stream.next() == Event("truncated", '{"from": 1}', "2-0")
        assert ids(stream.take(9)) == [f"2-{seq}" for seq in range(1, 10)]
        running.process.terminate()
        assert stream.next() == Event("end", '{"reason": "stopping"}', "2-9")
        assert stream.next() is None
        assert running.process.wait(60) == 0


def test_followers_have_a_limit_of_their_own_and_leave_the_places_of_requests(tmp_path: Path) -> None:
    fill(tmp_path / "data", "t")
    limits = {"SERVE_MAX_FOLLOWERS": "3", "SERVE_MAX_REQUESTS": "2"}
    with served(tmp_path / "data", (tmp_path / "remote").as_uri(), **limits) as running, ExitStack() as stack:
        for query in ("tail=0", "tail=0&tag=x", "from=1"):
            answer = stack.enter_context(opened(running.port, path("t", query)))
            assert answer.status == 200
        for refused in (path("t"), "/topics/t/records?from=11&wait_s=60"):
            status, body, headers = running.ask("GET", refused)
            assert (status, json.loads(body)["title"], headers["retry-after"]) == (429, "Busy", "1")
            assert json.loads(body)["detail"] == "the daemon has reached its limit serve.max_followers"
        assert running.ask("GET", "/topics/t/records")[0] == 200
        assert running.ask("GET", "/topics/t/records?from=5&wait_s=60")[0] == 200, "it does not wait"
        assert b'seglog_http_rejected_total{reason="busy"} 2.0' in running.ask("GET", "/metrics")[1]
        stack.close()
        wait_until(lambda: b"followers_running 0.0" in running.ask("GET", "/metrics")[1], pause_s=0.01)
        with opened(running.port, path("t")) as answer:
            assert answer.status == 200


@pytest.mark.parametrize("query", ["follow=1", "from=11&wait_s=60"])
def test_a_client_that_leaves_at_once_is_no_error_of_the_daemon(
    daemon: ServedDirectory, topic: str, query: str
) -> None:
    before = len(daemon.lines)
    daemon.process.send_signal(signal.SIGSTOP)  # so that it finds each request together with the end of its client
    for _ in range(100):
        with closing(socket.create_connection(("127.0.0.1", daemon.port))) as client:
            client.sendall(f"GET /topics/{topic}/records?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    daemon.process.send_signal(signal.SIGCONT)
    wait_until(lambda: b"requests_running 0.0" in daemon.ask("GET", "/metrics")[1], pause_s=0.01)
    wait_until(lambda: b"followers_running 0.0" in daemon.ask("GET", "/metrics")[1], pause_s=0.01)
    assert not [line for line in daemon.lines[before:] if "Traceback" in line or "Exception" in line]


@pytest.mark.long
def test_followers_that_read_nothing_hold_neither_others_nor_memory(tmp_path: Path) -> None:
    fill(tmp_path / "data", "t")
    with served(tmp_path / "data", (tmp_path / "remote").as_uri()) as running, ExitStack() as stack:
        for _ in range(30):
            slow = stack.enter_context(socket.socket())
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", running.port))
            slow.sendall(f"GET {path('t')} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert slow.recv(1) == b"H"
        with opened(running.port, path("t", "tail=0")) as answer:
            lines = LineStream(answer)
            before = _memory_kib(running)
            for number in range(30):
                running.append("t", bytes(500_000))
                line = lines.next()
                assert line is not None
                assert line["seq"] == 11 + number
        grown_mib = (_memory_kib(running) - before) / 1024
    assert grown_mib < 200, "30 readers times 15 MB, as JSON 90 MB each, would be more"


def _memory_kib(running: ServedDirectory) -> int:
    lines = Path(f"/proc/{running.process.pid}/status").read_text().splitlines()
    [line] = [each for each in lines if each.startswith("VmRSS:")]
    return int(line.split()[1])
