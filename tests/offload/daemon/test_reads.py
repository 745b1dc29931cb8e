"""Test reads of ranges over HTTP, of a daemon in a process of its own."""

from __future__ import annotations

import http.client
import io
import json
import os
import shutil
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import seglog
from offload.daemon.http.read_request import Form
from seglog import LogSettings, TopicConfig
from tests.daemons import ServedDirectory, served
from tests.faults.front import Front, HttpFault
from tests.offload.daemon.open_answers import opened
from tests.waiting import wait_until

SEQS_TYPE = Form.SEQS.value
ARROW_TYPE = "application/vnd.apache.arrow.stream"
RECORDS = "/topics/t/records"
Answer = tuple[int, list[dict[str, Any]], dict[str, str]]


def fill(directory: Path, topics: int = 0) -> None:
    """Make topic `t` and others with 40 records each, and an empty one.

    Tags are a and b in turn, nodes n0 to n3, and values have 10 bytes. Records 31 to 40 are not sealed.
    """
    with seglog.open(directory, settings=LogSettings(segment_max_events=15)) as log:
        for topic in map(log.create_topic, ("t", *(f"t{number}" for number in range(topics)))):
            for seq in range(1, 41):
                topic.append([b"value %04d" % seq], tag="ab"[seq % 2], node=f"n{seq % 4}")
        log.create_topic("empty")
        log.checkpoint()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDirectory]:
    place = tmp_path_factory.mktemp("reads")
    fill(place / "data", 20)
    with served(place / "data", (place / "remote").as_uri()) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def names() -> Iterator[str]:
    return (f"t{number}" for number in range(20))


@pytest.fixture
def fresh(names: Iterator[str]) -> str:
    """Return a topic of the shared daemon that no other test has."""
    return next(names)


def done(daemon: ServedDirectory, command: str, **given: object) -> list[dict[str, Any]]:
    """Run a command. Raise AssertionError if it fails."""
    found = daemon.call(command, **given)
    assert not any("title" in each for each in found), found
    return found


def get(daemon: ServedDirectory, query: str = "", topic: str = "t", **headers: str) -> Answer:
    """Read JSON lines. Names of headers are given with underscores."""
    sent = {name.replace("_", "-"): text for name, text in headers.items()}
    status, body, found = daemon.ask("GET", f"/topics/{topic}/records?{query}", None, sent)
    return status, [json.loads(line) for line in body.splitlines()], dict(found)


def seqs(answer: Answer) -> list[int]:
    assert answer[0] == 200, answer
    return [each["seq"] for each in answer[1]]


@pytest.mark.parametrize(
    ("query", "expected", "next_seq"),
    [
        ("", range(1, 41), 41),
        ("from=5&to=8", range(5, 9), 9),
        ("from=41", [], 41),
        ("from=8&to=5", [], 6),
        ("from=39&to=1000", [39, 40], 41),
        ("tail=3", [38, 39, 40], 41),
        ("tail=0", [], 41),
        ("tail=1000", range(1, 41), 41),
        ("limit=3", [1, 2, 3], 4),
        ("limit=40", range(1, 41), 41),
        ("limit=41", range(1, 41), 41),
        ("tag=a", range(2, 41, 2), 41),
        ("tag=a*", range(2, 41, 2), 41),
        ("tag=*", range(1, 41), 41),
        ("tag=nothing", [], 41),
        ("tag=a&limit=2", [2, 4], 5),
        ("tag=nothing&limit=2", [], 41),
        ("exclude_node=n1", [seq for seq in range(1, 41) if seq % 4 != 1], 41),
        ("exclude_node=n1&exclude_node=n2&limit=2", [3, 4], 5),
        ("exclude_node=n3&tag=b&from=30&to=33", [33], 34),
        ("max_bytes=1", [1], 2),
        ("max_bytes=20", [1, 2], 3),
        ("max_bytes=29", [1, 2], 3),
        ("max_bytes=29&tag=b", [1, 3], 5),
        ("max_bytes=100000", range(1, 41), 41),
        ("max_bytes=100&limit=3&from=38", [38, 39, 40], 41),
        ("wait_s=1", range(1, 41), 41),
    ],
)
def test_each_range_and_where_the_next_read_begins(
    shared: ServedDirectory, query: str, expected: range | list[int], next_seq: int
) -> None:
    answer = get(shared, query)
    assert seqs(answer) == list(expected)
    assert int(answer[2]["seglog-next-seq"]) == next_seq
    assert answer[2]["seglog-head"] == "40"
    for kind in (SEQS_TYPE, ARROW_TYPE):
        status, body, headers = shared.ask("GET", f"{RECORDS}?{query}", None, {"Accept": kind})
        found = _seqs_in(body) if kind == SEQS_TYPE else pa.ipc.open_stream(body).read_all()["seq"].to_pylist()
        assert (status, headers["content-type"], found) == (200, kind, list(expected))
        assert int(headers["seglog-next-seq"]) == next_seq


def _seqs_in(body: bytes) -> list[int]:
    """Return the seqs of a body of seqs and values, whose last value has to be whole."""
    stream, found = io.BytesIO(body), []
    while head := stream.read(12):
        seq, length = struct.unpack("<QI", head)
        assert len(stream.read(length)) == length
        found.append(seq)
    return found


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("limit=0", "limit"),
        ("max_bytes=0", "max_bytes"),
        ("max_bytes=-1", "max_bytes"),
        ("wait_s=61", "wait_s"),
        ("wait_s=x", "wait_s"),
        ("tail=-1", "tail"),
        ("tail=1&from=2", "tail"),
        ("tail=1&to=2", "tail"),
        ("follow=1&to=2", "follow"),
        ("follow=1&wait_s=2", "follow"),
        ("follow=1&max_bytes=2", "follow"),
        ("follow=maybe", "follow"),
        ("exclude=n1", "exclude"),
    ],
)
def test_wrong_parameters_are_named(shared: ServedDirectory, query: str, named: str) -> None:
    status, [said], _ = get(shared, query)
    assert status == 400
    assert named in said["detail"]


@pytest.mark.parametrize(
    ("accept", "query", "expected"),
    [
        ("*/*", "", (200, "application/x-ndjson")),
        ("application/*", "", (200, "application/x-ndjson")),
        ("text/html, */*;q=0.1", "", (200, "application/x-ndjson")),
        (f"application/x-ndjson;q=0.5, {SEQS_TYPE}", "", (200, SEQS_TYPE)),
        (f"*/*, {ARROW_TYPE};q=0", "", (200, "application/x-ndjson")),
        (SEQS_TYPE.upper(), "", (200, SEQS_TYPE)),
        ("text/html", "", (406, "application/problem+json")),
        ("application/x-ndjson;q=0", "", (406, "application/problem+json")),
        ("text/event-stream", "", (400, "application/problem+json")),
        (SEQS_TYPE, "gaps=1", (400, "application/problem+json")),
        (SEQS_TYPE, "follow=1", (406, "application/problem+json")),
        (ARROW_TYPE, "follow=1", (406, "application/problem+json")),
    ],
)
def test_the_client_chooses_the_form(
    shared: ServedDirectory, accept: str, query: str, expected: tuple[int, str]
) -> None:
    status, _, headers = shared.ask("GET", f"{RECORDS}?{query}", None, {"Accept": accept})
    assert (status, headers["content-type"]) == expected


def test_head_gives_bounds_and_epoch_without_a_body(shared: ServedDirectory) -> None:
    status, body, headers = shared.ask("HEAD", RECORDS)
    assert (status, body) == (200, b"")
    names = ("seglog-earliest", "seglog-head", "seglog-sealed", "seglog-epoch")
    assert [headers[name] for name in names] == ["1", "40", "30", "1"]
    assert headers["seglog-incarnation"] == get(shared)[2]["seglog-incarnation"]
    assert shared.ask("HEAD", "/topics/absent/records")[0] == 404


def test_arrow_has_the_columns_of_read_arrow_also_without_a_record(shared: ServedDirectory) -> None:
    for query, count in (("from=3&to=4", 2), ("from=41", 0)):
        body = shared.ask("GET", f"{RECORDS}?{query}", None, {"Accept": ARROW_TYPE})[1]
        table = pa.ipc.open_stream(io.BytesIO(body)).read_all()
        assert table.schema == seglog.arrow_schema()
        assert len(table) == count
    assert table["value"].to_pylist() == []


@pytest.mark.soak(part=2)
def test_a_long_answer_with_a_limit_ends_exactly_there(shared: ServedDirectory) -> None:
    lines = b"".join(b"%d\n" % number for number in range(200_000))
    shared.ask("POST", "/topics/long/records", lines, {"Content-Type": "application/vnd.seglog.lines"})
    for query, count in (("limit=150000", 150_000), ("max_bytes=600000", None), ("tag=none&limit=1", 0)):
        answer = get(shared, query, "long")
        found = seqs(answer)
        assert found == list(range(1, len(found) + 1))
        assert count is None or len(found) == count
        size_bytes = sum(len(each["value"]) for each in answer[1])
        assert size_bytes <= 600_000 or count
        following = answer[2].get("seglog-next-seq")
        assert following in {None, str(found[-1] + 1 if found else 200_001)}


# ---------------------------------------------------------------- long poll


def polled(daemon: ServedDirectory, query: str, topic: str = "t") -> tuple[threading.Thread, list[Answer]]:
    """Begin a long poll in a thread, and return once the daemon counts it as a follower."""
    wait_until(lambda: followers(daemon) == 0, pause_s=0.01)
    found: list[Answer] = []
    thread = threading.Thread(target=lambda: found.append(get(daemon, query, topic)))
    thread.start()
    wait_until(lambda: followers(daemon) == 1, pause_s=0.01)
    return thread, found


def followers(daemon: ServedDirectory) -> int:
    lines = daemon.ask("GET", "/metrics")[1].decode().splitlines()
    [line] = [each for each in lines if each.startswith("seglog_http_followers_running ")]
    return int(float(line.split()[1]))


def test_a_long_poll_answers_with_the_first_record_that_comes(shared: ServedDirectory, fresh: str) -> None:
    for query, topic, seq in (
        ("from=41&wait_s=60", fresh, 41),
        ("wait_s=60", "empty", 1),
        ("tail=0&wait_s=60", fresh, 42),
    ):
        thread, found = polled(shared, query, topic)
        shared.append(topic, b"new")
        thread.join(60)
        [answer] = found
        assert seqs(answer) == [seq]
        assert (answer[2]["seglog-next-seq"], answer[2]["seglog-head"]) == (str(seq + 1), str(seq))
    wait_until(lambda: followers(shared) == 0, pause_s=0.01)


def test_a_long_poll_passes_over_records_that_its_filter_leaves_out(shared: ServedDirectory, fresh: str) -> None:
    thread, found = polled(shared, "from=41&wait_s=60&tag=x&exclude_node=me", fresh)
    for tag, node in (("y", "you"), ("x", "me"), ("x", "you")):
        path = f"/topics/{fresh}/records?tag={tag}&node={node}"
        assert shared.ask("POST", path, b"v", {"Content-Type": "application/octet-stream"})[0] == 201
    thread.join(60)
    assert seqs(found[0]) == [43]


def test_a_long_poll_without_news_answers_empty_and_continues_behind_what_it_passed(
    shared: ServedDirectory, fresh: str
) -> None:
    thread, found = polled(shared, "from=41&wait_s=2&tag=x", fresh)
    shared.append(fresh, b"without a tag")
    thread.join(60)
    [answer] = found
    assert seqs(answer) == []
    assert answer[2]["seglog-next-seq"] == "42"


def test_a_long_poll_ends_with_an_error_if_the_topic_is_truncated_below_it(shared: ServedDirectory, fresh: str) -> None:
    thread, found = polled(shared, "from=41&wait_s=60", fresh)
    done(shared, "truncate", topic=fresh, start=20, yes=True)
    thread.join(60)
    assert (found[0][0], found[0][1][0]["title"]) == (409, "Truncated")


def test_a_long_poll_ends_empty_when_the_daemon_stops(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    with served(tmp_path / "data", (tmp_path / "remote").as_uri()) as daemon:
        thread, found = polled(daemon, "from=41&wait_s=60")
        daemon.process.terminate()
        thread.join(60)
        assert seqs(found[0]) == []
        assert daemon.process.wait(60) == 0


# ---------------------------------------------------------------- conditions


def test_a_sealed_range_has_an_etag_of_its_own(shared: ServedDirectory) -> None:
    queries = (
        "to=30",
        "from=1&to=30",
        "to=29",
        "to=30&tag=a",
        "to=30&limit=5",
        "to=30&gaps=1",
        "to=30&exclude_node=n1",
    )
    found = [get(shared, query)[2]["etag"] for query in queries]
    found += [
        shared.ask("GET", f"{RECORDS}?to=30", None, {"Accept": kind})[2]["etag"] for kind in (SEQS_TYPE, ARROW_TYPE)
    ]
    assert len(set(found)) == len(found)
    assert get(shared, "tag=a&to=30")[2]["etag"] == found[3]
    for query in ("", "to=31", "to=1000", "tail=30", "from=41&wait_s=1"):
        assert "etag" not in get(shared, query)[2]


def test_a_condition_that_holds_is_answered_without_reading(shared: ServedDirectory) -> None:
    etag = get(shared, "to=30")[2]["etag"]
    for condition in (etag, f'"other", W/{etag}', "*"):
        status, lines, headers = get(shared, "to=30", if_none_match=condition)
        assert (status, lines, headers["etag"]) == (304, [], etag)
    for condition in ('"other"', etag.strip('"'), ""):
        assert get(shared, "to=30", if_none_match=condition)[0] == 200


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda daemon, topic: done(daemon, "delete", topic=topic, before=5, yes=True), range(5, 11)),
        (lambda daemon, topic: done(daemon, "delete", topic=topic, tag="a", yes=True), range(1, 11, 2)),
        (lambda daemon, topic: done(daemon, "evict", topic=topic, before=6, yes=True), range(6, 11)),
        (lambda daemon, topic: done(daemon, "truncate", topic=topic, start=35, yes=True), range(1, 11)),
        (lambda daemon, topic: done(daemon, "truncate", topic=topic, start=5, yes=True), range(1, 5)),
    ],
)
def test_a_change_of_the_records_ends_the_etag(
    shared: ServedDirectory, fresh: str, change: Callable[[ServedDirectory, str], object], expected: range
) -> None:
    etag = get(shared, "to=10", fresh)[2]["etag"]
    change(shared, fresh)
    answer = get(shared, "to=10", fresh, if_none_match=etag)
    assert answer[2].get("etag") != etag
    assert seqs(answer) == list(expected)


def test_after_a_truncation_the_same_seqs_have_another_etag(shared: ServedDirectory, fresh: str) -> None:
    etag = get(shared, "to=10", fresh)[2]["etag"]
    done(shared, "truncate", topic=fresh, start=1, yes=True)
    for number in range(10):
        shared.append(fresh, b"other %d" % number)
    done(shared, "seal", topic=fresh)
    answer = get(shared, "to=10", fresh, if_none_match=etag)
    assert answer[1][0]["value"] == "other 0"
    assert answer[2]["etag"] != etag
    assert get(shared, "to=10", fresh, if_none_match=answer[2]["etag"])[0] == 304


def test_an_undo_brings_no_outdated_etag_back(shared: ServedDirectory, fresh: str) -> None:
    done(shared, "seal", topic=fresh)
    done(shared, "offload", topic=fresh)
    former = get(shared, "to=10", fresh)[2]["etag"]
    [deleted] = done(shared, "delete", topic=fresh, before=5, yes=True)
    between = get(shared, "to=10", fresh)
    assert (seqs(between), between[2]["etag"] == former) == (list(range(5, 11)), False)
    done(shared, "undo", change=fresh, commit=f"lsn:{deleted['lsn']}")
    for _ in range(2):
        after = get(shared, "to=10", fresh, if_none_match=between[2]["etag"])
        assert seqs(after) == list(range(1, 11))
        assert after[2].get("etag") not in {former, between[2]["etag"]}
        shared.append(fresh, b"so this directory writes the topic again")


def test_an_etag_stays_the_same_over_a_kill_and_a_release(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    remote = (tmp_path / "remote").as_uri()
    with served(tmp_path / "data", remote) as daemon:
        etag = get(daemon, "to=10")[2]["etag"]
        daemon.call("offload", topic="t", drop_hot=True)
    with served(tmp_path / "data", remote) as daemon:
        assert int(daemon.get("/topics/t/index_bounds")[0]["hot_first_seq"]) > 10
        assert get(daemon, "to=10", if_none_match=etag)[0] == 304
        assert seqs(get(daemon, "to=10")) == list(range(1, 11))
        (tmp_path / "remote").rename(tmp_path / "away")
        shutil.rmtree(tmp_path / "data" / "cache")
        assert get(daemon, "from=21&to=30")[0] == 404, "the object is not there"
        other = get(daemon, "from=21&to=30&gaps=1", if_none_match="*")
        assert other[0] == 304, "no record was read"


def test_a_range_that_may_expire_has_no_etag(tmp_path: Path) -> None:
    fill(tmp_path / "data")
    with seglog.open(tmp_path / "data") as log:
        log.configure("t", TopicConfig(ttl_ms=3_600_000))
    with served(tmp_path / "data", (tmp_path / "remote").as_uri()) as daemon:
        assert "etag" not in get(daemon, "to=10")[2]


def test_an_answer_with_an_etag_that_fails_in_the_middle_breaks_off(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data") as log:
        topic = log.create_topic("t")
        topic.append([b"%0100000d" % number for number in range(50)])
        topic.seal()
        [data] = (tmp_path / "data" / "topics").rglob("*.data")
    damaged = bytearray(data.read_bytes())
    damaged[-1000] ^= 1
    data.write_bytes(damaged)
    with served(tmp_path / "data", (tmp_path / "remote").as_uri()) as daemon:
        lines = get(daemon, "from=1")[1]
        assert "error" in lines[-1]
        for query, kind in (("to=50", "*/*"), ("", SEQS_TYPE)):
            with opened(daemon.port, f"{RECORDS}?{query}", {"Accept": kind}) as answer:
                assert answer.status == 200
                with pytest.raises(http.client.IncompleteRead):
                    answer.read()
        assert not any("Traceback" in line for line in daemon.lines)


@pytest.mark.long
def test_cold_reads_of_a_failing_store_say_when_to_return_and_leave_hot_reads_alone(
    tmp_path: Path, s3_remote: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "data")
    with Front(os.environ["AWS_ENDPOINT_URL"]) as front:
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        impatient = {"COLD_GET_TIMEOUT_S": "3", "COLD_GET_ATTEMPTS": "1", "COLD_CACHE_BYTES": "0"}
        with served(tmp_path / "data", s3_remote, **impatient) as daemon:
            done(daemon, "offload", topic="t", drop_hot=True)
            front.restart([HttpFault("timeout", kind=f"GET {kind}", lasts=True) for kind in ("data", "index")])
            found: list[Answer] = []
            waiting = [threading.Thread(target=lambda: found.append(get(daemon, "to=5"))) for _ in range(16)]
            for each in waiting:
                each.start()
            wait_until(lambda: front.struck, pause_s=0.01)
            for _ in range(8):
                assert seqs(get(daemon, "from=35")) == list(range(35, 41))
            assert not found, "the cold reads still wait"
            for each in waiting:
                each.join(120)
            assert {answer[0] for answer in found} == {503}
            assert all(int(answer[2]["retry-after"]) >= 1 for answer in found)
            front.restart()
            assert seqs(get(daemon, "to=5")) == [1, 2, 3, 4, 5]
