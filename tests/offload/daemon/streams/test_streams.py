"""Test streams through a real daemon: each rule of docs/streams.md, SIGKILL, and streams without a remote."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest

import seglog
from tests.daemons import ServedDirectory, served

TEXT = {"Content-Type": "text/plain"}
JSON = {"Content-Type": "application/json"}
CLOSED = {"Stream-Closed": "true"}
Answer = tuple[int, bytes, Mapping[str, str]]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedDirectory]:
    base = tmp_path_factory.mktemp("streams")
    seglog.open(base / "d").close()
    with served(base / "d", (base / "remote").as_uri()) as daemon:
        yield daemon


@pytest.fixture
def path(request: pytest.FixtureRequest) -> str:
    return "/streams/" + str(request.node.name).replace("[", "/").replace("]", "")


def put(daemon: ServedDirectory, path: str, body: bytes = b"", headers: Mapping[str, str] = TEXT) -> Answer:
    return daemon.ask("PUT", path, body, headers)


def post(daemon: ServedDirectory, path: str, body: bytes = b"", **headers: str) -> Answer:
    given = {**TEXT, **{name.replace("_", "-"): text for name, text in headers.items()}}
    return daemon.ask("POST", path, body, given)


def batch(
    daemon: ServedDirectory, path: str, number: int, body: bytes, more: Mapping[str, str] | None = None, epoch: int = 0
) -> Answer:
    given = {"Producer-Id": "p", "Producer-Epoch": str(epoch), "Producer-Seq": str(number), **(more or {})}
    return daemon.ask("POST", path, body, {**TEXT, **given})


def value(daemon: ServedDirectory, path: str) -> bytes:
    status, body, _ = daemon.ask("GET", path)
    assert status == 200, body
    return body


def test_a_stream_is_made_appended_to_read_and_deleted(daemon: ServedDirectory, path: str) -> None:
    status, _, headers = put(daemon, path, b"one ")
    assert (status, headers["content-type"]) == (201, "text/plain")
    assert headers["location"].endswith(path)
    first = headers["stream-next-offset"]
    assert post(daemon, path, b"two")[0] == 204
    status, body, headers = daemon.ask("GET", path)
    assert (status, body, headers["stream-up-to-date"]) == (200, b"one two", "true")
    assert headers["x-content-type-options"] == "nosniff"
    assert daemon.ask("GET", f"{path}?offset={first}")[1] == b"two"
    assert daemon.ask("HEAD", path)[2]["stream-next-offset"] == headers["stream-next-offset"] > first
    assert daemon.ask("DELETE", path)[0] == 204
    for method in ("GET", "HEAD", "POST", "DELETE"):
        assert daemon.ask(method, path, b"x" if method == "POST" else None, TEXT)[0] == 404


def test_a_put_of_the_same_configuration_is_answered_again_and_another_one_refused(
    daemon: ServedDirectory, path: str
) -> None:
    assert put(daemon, path, b"x", {**TEXT, "Stream-TTL": "60"})[0] == 201
    assert put(daemon, path, b"y", {"Content-Type": "TEXT/plain; a=b", "Stream-TTL": "60"})[0] == 200
    assert value(daemon, path) == b"x"
    for headers in (JSON, TEXT, {**TEXT, "Stream-TTL": "61"}, {**TEXT, "Stream-TTL": "60", **CLOSED}):
        assert put(daemon, path, b"", headers)[0] == 409


def test_a_path_that_is_made_again_begins_empty_and_its_offsets_go_on(daemon: ServedDirectory, path: str) -> None:
    before = put(daemon, path, b"old")[2]["stream-next-offset"]
    assert batch(daemon, path, 0, b"old")[0] == 200
    assert daemon.ask("DELETE", path)[0] == 204
    assert put(daemon, path, b"new")[2]["stream-next-offset"] > before
    assert value(daemon, path) == b"new"
    assert batch(daemon, path, 0, b"!")[0] == 200  # the producers of the former stream are gone
    assert value(daemon, path) == b"new!"


def test_a_topic_that_is_no_stream_never_becomes_one(daemon: ServedDirectory) -> None:
    daemon.append("mine", b"record")
    assert daemon.ask("GET", "/streams/mine")[0] == 404
    status, body, _ = put(daemon, "/streams/mine")
    assert (status, json.loads(body)["title"]) == (409, "StreamRefused")
    assert daemon.ask("DELETE", "/streams/mine")[0] == 404
    assert daemon.values("mine") == ["record"]


def test_a_stream_is_a_topic(daemon: ServedDirectory, path: str) -> None:
    put(daemon, path, b'[{"a": 1}, 2]', JSON)
    topic = path.removeprefix("/streams/").replace("_", "__")
    assert daemon.values(topic) == ['{"a": 1}', "2"]
    assert json.loads(value(daemon, path)) == [{"a": 1}, 2]


def test_json_is_checked_before_the_stream_exists(daemon: ServedDirectory, path: str) -> None:
    assert put(daemon, path, b"{", JSON)[0] == 400
    assert daemon.ask("HEAD", path)[0] == 404
    assert put(daemon, path, b"[]", JSON)[0] == 201
    assert daemon.ask("POST", path, b"[]", JSON)[0] == 400
    assert value(daemon, path) == b"[]"


def test_appends_that_a_stream_does_not_take(daemon: ServedDirectory, path: str) -> None:
    put(daemon, path)
    assert post(daemon, path)[0] == 400
    assert daemon.ask("POST", path, b"x", {})[0] == 400
    assert daemon.ask("POST", path, b"x", JSON)[0] == 409
    assert value(daemon, path) == b""


def test_stream_seq_ascends_byte_by_byte_and_outlives_plain_appends(daemon: ServedDirectory, path: str) -> None:
    put(daemon, path)
    assert post(daemon, path, b"a", Stream_Seq="09")[0] == 204
    assert post(daemon, path, b"b")[0] == 204
    assert post(daemon, path, b"-", Stream_Seq="09")[0] == 409
    assert post(daemon, path, b"c", Stream_Seq="10")[0] == 204
    assert post(daemon, path, b"-", Stream_Seq="1")[0] == 409
    assert value(daemon, path) == b"abc"


def test_each_record_carries_the_last_stream_seq_also_one_that_closes(daemon: ServedDirectory, path: str) -> None:
    """SMARK-1. After a closure nobody appends, so only the tags show it."""
    put(daemon, path)
    post(daemon, path, b"a", Stream_Seq="5")
    post(daemon, path, b"b")
    assert post(daemon, path, b"c", Stream_Closed="true")[0] == 204
    topic = path.removeprefix("/streams/").replace("_", "__")
    lines = daemon.ask("GET", f"/topics/{topic}/records", None, {"Accept": "application/x-ndjson"})[1].splitlines()
    assert [json.loads(line)["tag"] for line in lines] == ["stream;seq=5"] * 2 + ["stream;closed;seq=5"]


def test_a_producer_appends_each_batch_once(daemon: ServedDirectory, path: str) -> None:
    put(daemon, path)
    assert batch(daemon, path, 0, b"a")[0] == 200
    status, _, headers = batch(daemon, path, 0, b"other")
    assert (status, headers["producer-seq"]) == (204, "0")
    status, _, headers = batch(daemon, path, 2, b"c")
    assert status == 409
    assert (headers["producer-expected-seq"], headers["producer-received-seq"]) == ("1", "2")
    for number in range(1, 9):
        assert batch(daemon, path, number, b"b")[0] == 200
    status, _, headers = batch(daemon, path, 1, b"b")  # older than the batches that the log keeps
    assert (status, headers["producer-seq"]) == (204, "8")
    assert batch(daemon, path, 1, b"x", epoch=1)[0] == 400
    assert batch(daemon, path, 0, b"z", epoch=1)[0] == 200
    status, _, headers = batch(daemon, path, 9, b"x")
    assert (status, headers["producer-epoch"]) == (403, "1")
    assert value(daemon, path) == b"abbbbbbbbz"


def test_a_batch_of_messages_counts_as_one_whatever_their_number(daemon: ServedDirectory, path: str) -> None:
    put(daemon, path, b"", JSON)
    given = {**JSON, "Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    assert daemon.ask("POST", path, b"[1, 2]", given)[0] == 200
    assert daemon.ask("POST", path, b"[1, 2, 3]", given)[0] == 204
    assert value(daemon, path) == b"[1,2]"


def test_concurrent_appends_are_all_there_once(daemon: ServedDirectory, path: str) -> None:
    put(daemon, path, b"", JSON)
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda at: daemon.ask("POST", path, f"[{at}, {at}]".encode(), JSON)[0], range(64))
        assert set(found) == {204}
    values = json.loads(value(daemon, path))
    assert sorted(values[::2]) == list(range(64))
    assert values[::2] == values[1::2]  # no batch has another one within


def test_a_closed_stream_takes_nothing_more(daemon: ServedDirectory, path: str) -> None:
    put(daemon, path, b"a")
    status, _, headers = post(daemon, path, b"b", Stream_Closed="true")
    tail = headers["stream-next-offset"]
    assert (status, headers["stream-closed"]) == (204, "true")
    assert daemon.ask("POST", path, b"", CLOSED)[0] == 204
    for body, closes in ((b"c", "false"), (b"c", "true")):
        status, _, headers = post(daemon, path, body, Stream_Closed=closes)
        assert (status, headers["stream-closed"], headers["stream-next-offset"]) == (409, "true", tail)
    _, body, headers = daemon.ask("GET", path)
    assert (body, headers["stream-closed"]) == (b"ab", "true")
    _, body, headers = daemon.ask("GET", f"{path}?offset={tail}")
    assert (body, headers["stream-closed"]) == (b"", "true")


def test_a_stream_that_is_closed_without_data_keeps_its_tail(daemon: ServedDirectory, path: str) -> None:
    before = put(daemon, path, b"a")[2]["stream-next-offset"]
    etag = daemon.ask("GET", path)[2]["etag"]
    assert daemon.ask("POST", path, b"", CLOSED)[2]["stream-next-offset"] == before
    status, body, headers = daemon.ask("GET", path, None, {"If-None-Match": etag})
    assert (status, body, headers["stream-next-offset"]) == (200, b"a", before)
    status, _, headers = daemon.ask("GET", f"{path}?offset=now&live=long-poll")
    assert (status, headers["stream-closed"], headers["stream-next-offset"]) == (204, "true", before)


def test_a_batch_that_closed_may_be_repeated(daemon: ServedDirectory, path: str) -> None:
    put(daemon, path)
    assert batch(daemon, path, 0, b"end", CLOSED)[0] == 200
    status, _, headers = batch(daemon, path, 0, b"end", CLOSED)
    assert (status, headers["stream-closed"]) == (204, "true")
    assert batch(daemon, path, 1, b"more")[0] == 409
    assert value(daemon, path) == b"end"


def test_reads_are_revalidated(daemon: ServedDirectory, path: str) -> None:
    put(daemon, path, b"a")
    etag = daemon.ask("GET", path)[2]["etag"]
    status, body, _ = daemon.ask("GET", path, None, {"If-None-Match": f'"x", W/{etag}'})
    assert (status, body) == (304, b"")
    post(daemon, path, b"b")
    assert daemon.ask("GET", path, None, {"If-None-Match": etag})[:2] == (200, b"ab")
    assert "etag" not in daemon.ask("GET", f"{path}?offset=now")[2]


def test_a_long_stream_comes_in_pieces(daemon: ServedDirectory, path: str) -> None:
    parts = [bytes([at]) * 700_000 for at in range(4)]
    put(daemon, path, parts[0], {})
    for part in parts[1:]:
        daemon.ask("POST", path, part, {"Content-Type": "application/octet-stream"})
    offset, found, answers = "-1", b"", 0
    while True:
        _, body, headers = daemon.ask("GET", f"{path}?offset={offset}")
        found, offset, answers = found + body, headers["stream-next-offset"], answers + 1
        if "stream-up-to-date" in headers:
            break
    assert (found, answers) == (b"".join(parts), 2)


@pytest.mark.parametrize("query", ["offset=", "offset=a,b", "offset=-1&offset=-1", "live=sse", "live=x&offset=-1"])
def test_a_query_that_is_wrong_is_refused(daemon: ServedDirectory, path: str, query: str) -> None:
    put(daemon, path)
    assert daemon.ask("GET", f"{path}?{query}")[0] == 400
    assert daemon.ask("GET", f"{path}?other=1")[0] == 200


def test_an_offset_beyond_the_end_is_refused(daemon: ServedDirectory, path: str) -> None:
    put(daemon, path, b"a")
    assert daemon.ask("GET", f"{path}?offset=9999999999999999_9999999999999999")[0] == 400


def test_a_long_poll_gets_what_comes(daemon: ServedDirectory, path: str) -> None:
    end = put(daemon, path, b"a")[2]["stream-next-offset"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(daemon.ask, "GET", f"{path}?offset={end}&live=long-poll")
        post(daemon, path, b"b")
        status, body, headers = waiting.result(60)
    assert (status, body) == (200, b"b")
    assert int(headers["stream-cursor"]) > 0


def test_a_waiting_reader_learns_of_a_deletion(daemon: ServedDirectory, path: str) -> None:
    put(daemon, path)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(daemon.ask, "GET", f"{path}?offset=-1&live=long-poll")
        daemon.ask("DELETE", path)
        assert waiting.result(60)[0] == 404


def test_server_sent_events_end_with_the_stream(daemon: ServedDirectory, path: str) -> None:
    put(daemon, path, b"a")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(daemon.ask, "GET", f"{path}?offset=-1&live=sse")
        post(daemon, path, b"b", Stream_Closed="true")
        status, body, headers = waiting.result(60)
    assert (status, headers["content-type"]) == (200, "text/event-stream")
    data = [line.removeprefix(b"data:") for line in body.split(b"\n") if line.startswith(b"data:")]
    assert b"".join(each for each in data if not each.startswith(b"{")) == b"ab"
    assert json.loads(data[-1])["streamClosed"] is True
    assert body.count(b"event: data\n") <= body.count(b"event: control\n")


@pytest.mark.parametrize("way", ["delete", "truncate"])
@pytest.mark.parametrize("live", ["sse", "long-poll"])
def test_an_answer_ends_in_order_if_its_stream_is_deleted_or_its_place_truncated(
    daemon: ServedDirectory, path: str, way: str, live: str
) -> None:
    put(daemon, path, b"a")
    offset = put(daemon, path)[2]["stream-next-offset"]
    topic = path.removeprefix("/streams/").replace("_", "__").replace("/", ".")
    with closing(http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=30)) as connection:
        connection.request("GET", f"{path}?offset={offset}&live={live}")
        answer = connection.getresponse() if live == "sse" else None
        begin = b"" if answer is None else answer.read1()
        if way == "delete":
            daemon.ask("DELETE", path)
        else:
            daemon.ask("POST", f"/topics/{topic}/rpc/truncate", b'{"seq": 1}', JSON)
        answer = answer or connection.getresponse()
        rest = answer.read()  # raises IncompleteRead if the daemon cuts the answer
    status = 404 if way == "delete" else 410
    if live == "sse":
        assert (answer.status, b"upToDate" in begin, b"data" in rest) == (200, True, False)
    else:
        assert answer.status == status
    assert daemon.ask("GET", f"{path}?offset={offset}")[0] == status


def test_an_offset_whose_record_was_truncated_is_gone_also_when_others_have_its_seq(
    daemon: ServedDirectory, path: str
) -> None:
    empty = put(daemon, path)[2]["stream-next-offset"]
    for each in (b"a", b"b"):
        offset = post(daemon, path, each)[2]["stream-next-offset"]
    topic = path.removeprefix("/streams/").replace("_", "__")
    assert daemon.ask("POST", f"/topics/{topic}/rpc/truncate", b'{"seq": 1}', JSON)[0] == 200
    for each in (b"c", b"d", b"e"):
        post(daemon, path, each)
    assert daemon.ask("GET", f"{path}?offset={offset}")[0] == 410
    assert daemon.ask("GET", f"{path}?offset={empty}")[1] == b"cde"


def test_a_truncation_that_takes_the_closure_opens_the_stream(daemon: ServedDirectory, path: str) -> None:
    put(daemon, path, b"a")
    post(daemon, path, b"b", Stream_Closed="true")
    assert post(daemon, path, b"c")[0] == 409
    topic = path.removeprefix("/streams/").replace("_", "__")
    assert daemon.ask("POST", f"/topics/{topic}/rpc/truncate", b'{"seq": 2}', JSON)[0] == 200
    assert post(daemon, path, b"c")[0] == 204
    assert value(daemon, path) == b"ac"


def test_an_expired_stream_is_gone_and_its_path_free(daemon: ServedDirectory, path: str) -> None:
    past = {**TEXT, "Stream-Expires-At": "2020-01-01T00:00:00Z"}
    assert put(daemon, path, b"old", past)[0] in {201, 404}
    assert daemon.ask("GET", path)[0] == 404
    assert put(daemon, path, b"new")[0] == 201
    assert value(daemon, path) == b"new"


def fork(daemon: ServedDirectory, path: str, source: str, body: bytes = b"", **headers: str) -> Answer:
    more = {name.replace("_", "-"): text for name, text in headers.items()}
    return daemon.ask("PUT", path, body, {"Stream-Forked-From": source, **more})


def test_a_fork_has_the_records_before_its_offset_and_then_its_own(daemon: ServedDirectory, path: str) -> None:
    middle = put(daemon, path, b"one ")[2]["stream-next-offset"]
    post(daemon, path, b"two ")
    assert fork(daemon, f"{path}/f", path, b"2 ", Stream_Fork_Offset=middle)[0] == 201
    post(daemon, path, b"three")
    post(daemon, f"{path}/f", b"3")
    assert value(daemon, path) == b"one two three"
    assert value(daemon, f"{path}/f") == b"one 2 3"
    assert fork(daemon, f"{path}/f", path, Stream_Fork_Offset=middle)[0] == 200
    assert fork(daemon, f"{path}/f", path)[0] == 409
    assert fork(daemon, f"{path}/g", f"{path}/f", Stream_Fork_Offset=middle, Stream_Fork_Sub_Offset="1")[0] == 201
    assert value(daemon, f"{path}/g") == b"one 2"


def test_a_fork_is_a_branch(daemon: ServedDirectory, path: str) -> None:
    put(daemon, path, b"one")
    fork(daemon, f"{path}/f", path)
    topic = path.removeprefix("/streams/").replace("_", "__")
    found = daemon.call("branch/list", topic=topic)
    assert [each["branch"].rpartition("_g")[0] for each in found if each["branch"] != "main"] == [f"{topic}.f"]


def test_a_branch_of_the_same_name_is_never_taken_nor_deleted(daemon: ServedDirectory, path: str) -> None:
    put(daemon, path, b"one")
    topic = path.removeprefix("/streams/").replace("_", "__")
    daemon.call("branch/create", topic=topic, name=f"{topic}.f")
    before = daemon.call("branch/list", topic=topic)
    assert fork(daemon, f"{path}/f", path)[0] == 201
    assert daemon.ask("DELETE", f"{path}/f")[0] == 204
    found = daemon.call("branch/list", topic=topic)
    assert [each["branch"] for each in found] == [each["branch"] for each in before]
    assert f"{topic}.f" in [each["branch"] for each in found]


def test_a_deleted_source_stays_for_its_forks(daemon: ServedDirectory, path: str) -> None:
    put(daemon, path)
    batch(daemon, path, 0, b"one")
    fork(daemon, f"{path}/f", path)
    assert daemon.ask("DELETE", path)[0] == 204
    for method in ("GET", "HEAD", "POST", "DELETE"):
        assert daemon.ask(method, path, b"x" if method == "POST" else None, TEXT)[0] == 410
    assert put(daemon, path)[0] == 409
    assert fork(daemon, f"{path}/g", path)[0] == 409
    assert value(daemon, f"{path}/f") == b"one"
    assert daemon.ask("DELETE", f"{path}/f")[0] == 204
    assert daemon.ask("GET", path)[0] == 404
    assert put(daemon, path)[0] == 201
    assert batch(daemon, path, 0, b"new")[0] == 200  # the topic stayed, and its producers do not count
    assert fork(daemon, f"{path}/f", path)[0] == 201
    assert value(daemon, f"{path}/f") == b"new"


def test_a_fork_that_cannot_be_made_leaves_nothing(daemon: ServedDirectory, path: str) -> None:
    assert fork(daemon, f"{path}/f", path)[0] == 404
    put(daemon, path, b"one")
    assert fork(daemon, f"{path}/f", path, Content_Type="application/json")[0] == 409
    beyond = "9999999999999999_9999999999999999"
    assert fork(daemon, f"{path}/f", path, Stream_Fork_Offset=beyond)[0] == 400
    assert fork(daemon, f"{path}/f", path, Stream_Fork_Offset="-1", Stream_Fork_Sub_Offset="4")[0] == 400
    assert daemon.ask("HEAD", f"{path}/f")[0] == 404
    assert daemon.ask("DELETE", path)[0] == 204
    assert daemon.ask("GET", path)[0] == 404


@pytest.mark.parametrize("raw", ["%ff", "a" * 1024, "__ds/x", ""])
def test_a_path_that_is_none_is_400(daemon: ServedDirectory, raw: str) -> None:
    assert daemon.ask("PUT", f"/streams/{raw}", b"", TEXT)[0] == 400


def test_odd_paths_are_streams_of_their_own(daemon: ServedDirectory) -> None:
    odd = ["..%2f..%2fseglog.toml", "a%00b", "%C3%A4", "a_b", "a__b", "a.b"]
    for each in odd:
        status, _, headers = put(daemon, f"/streams/{each}", each.encode())
        assert status == 201
        assert headers["location"].isascii()
    assert [value(daemon, f"/streams/{each}") for each in odd] == [each.encode() for each in odd]


def test_a_line_end_in_a_path_makes_no_header(daemon: ServedDirectory) -> None:
    status, _, headers = put(daemon, "/streams/a%0d%0ax:y")
    assert status == 404
    assert "x" not in headers


def test_huge_headers_are_refused(daemon: ServedDirectory, path: str) -> None:
    put(daemon, path)
    assert post(daemon, path, b"x", Stream_Seq="9" * 2000)[0] == 400
    assert batch(daemon, path, 0, b"x", {"Producer-Id": "p" * 2000})[0] == 400
    assert value(daemon, path) == b""


def test_streams_are_there_after_sigkill_with_all_that_was_answered(tmp_path: Path) -> None:
    seglog.open(tmp_path / "d").close()
    remote = (tmp_path / "remote").as_uri()
    with served(tmp_path / "d", remote) as daemon:
        put(daemon, "/streams/a", b"[1, 2]", {**JSON, "Stream-TTL": "3600"})
        put(daemon, "/streams/b", b"one")
        post(daemon, "/streams/b", b" two", Stream_Seq="5")
        batch(daemon, "/streams/b", 0, b" three", CLOSED)
        fork(daemon, "/streams/f", "/streams/b")
        put(daemon, "/streams/c")
        post(daemon, "/streams/c", b"x", Stream_Seq="5")
        put(daemon, "/streams/d", b"y")
        daemon.ask("POST", "/streams/d", b"", CLOSED)
        put(daemon, "/streams/gone")
        daemon.ask("DELETE", "/streams/gone")
        daemon.ask("DELETE", "/streams/b")
    with served(tmp_path / "d", remote) as daemon:
        assert json.loads(value(daemon, "/streams/a")) == [1, 2]
        assert daemon.ask("HEAD", "/streams/a")[2]["stream-ttl"] == "3600"
        assert daemon.ask("GET", "/streams/b")[0] == 410
        assert daemon.ask("GET", "/streams/gone")[0] == 404
        assert value(daemon, "/streams/f") == b"one two three"
        assert post(daemon, "/streams/f", b"!", Stream_Seq="4")[0] == 204
        assert value(daemon, "/streams/f") == b"one two three!"
        assert post(daemon, "/streams/c", b"x", Stream_Seq="5")[0] == 409
        assert post(daemon, "/streams/d", b"z")[0] == 409
        assert value(daemon, "/streams/d") == b"y"


def test_batches_and_the_end_are_there_once_whenever_the_daemon_dies(tmp_path: Path) -> None:
    """Kill the daemon under a producer of pairs, which repeats the batch without an answer, and at last closes."""
    seglog.open(tmp_path / "d").close()
    number, last = 0, 40
    for is_last in (False, True):
        with served(tmp_path / "d", "") as daemon:
            put(daemon, "/streams/a", b"", JSON)
            killer = threading.Timer(0.0, daemon.process.kill)
            while number <= last:
                if not is_last and number == 20:
                    killer.start()
                pair = json.dumps([number, number]).encode()
                more = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": str(number)}
                more |= {"Stream-Seq": f"{number:04}", **(CLOSED if number == last else {})}
                try:
                    status = daemon.ask("POST", "/streams/a", pair, {**JSON, **more})[0]
                except (OSError, http.client.HTTPException):
                    break
                assert status in {200, 204}
                number += 1
            if is_last:
                assert json.loads(value(daemon, "/streams/a")) == [each for at in range(last + 1) for each in (at, at)]
                assert daemon.ask("HEAD", "/streams/a")[2]["stream-closed"] == "true"
    assert number == last + 1


def test_a_read_after_a_delete_has_another_tag(daemon: ServedDirectory, path: str) -> None:
    put(daemon, path, b"a")
    post(daemon, path, b"b")
    etag = daemon.ask("GET", path)[2]["etag"]
    topic = path.removeprefix("/streams/").replace("_", "__")
    daemon.call("delete", topic=topic, before=2, yes=True)
    status, body, _ = daemon.ask("GET", path, None, {"If-None-Match": etag})
    assert (status, body) == (200, b"b")


def test_a_token_has_its_rights_on_the_topic_of_the_stream(tmp_path: Path) -> None:
    seglog.open(tmp_path / "d").close()
    lines = [f"{name}:{role}:orders.*:{sha256(name.encode()).hexdigest()}" for name, role in _ROLES.items()]
    (tmp_path / "tokens").write_text("\n".join(lines) + "\n")
    (tmp_path / "tokens").chmod(0o600)
    with served(tmp_path / "d", "", SERVE_TOKEN_FILE=str(tmp_path / "tokens")) as daemon:

        def status(name: str, method: str, path: str, **headers: str) -> int:
            more = {each.replace("_", "-"): text for each, text in headers.items()}
            body = b"x" if method == "POST" else None
            return daemon.ask(method, path, body, {**TEXT, "Authorization": f"Bearer {name}", **more})[0]

        assert status("writer", "PUT", "/streams/orders/eu") == 201
        assert status("writer", "PUT", "/streams/others/eu") == 403
        assert status("writer", "PUT", "/streams/orders/f", Stream_Forked_From="/streams/others/eu") == 403
        assert status("writer", "POST", "/streams/orders/eu") == 204
        assert status("reader", "POST", "/streams/orders/eu") == 403
        assert status("reader", "GET", "/streams/orders%2feu") == 200
        assert status("reader", "GET", "/streams/others/eu") == 403
        assert status("writer", "DELETE", "/streams/orders/eu") == 403
        refused = daemon.ask("DELETE", "/streams/orders/eu", None, {"Authorization": "Bearer writer"})
        assert json.loads(refused[1])["detail"] == "the token writer lacks the role admin on /streams/orders/eu"
        assert status("owner", "DELETE", "/streams/orders/eu") == 204


_ROLES = {"reader": "read", "writer": "append", "owner": "admin"}


def test_a_token_that_appends_to_all_topics_writes_no_entry_of_a_stream(tmp_path: Path) -> None:
    seglog.open(tmp_path / "d").close()
    (tmp_path / "tokens").write_text(f"writer:append:*:{sha256(b'writer').hexdigest()}\n" * 2)
    (tmp_path / "tokens").chmod(0o600)
    # A sweep would delete the topic of this entry.
    entry = {"path": "x", "topic": "victim", "content_type": "text/plain", "base": 0, "own": 0, "state": "dying"}
    with served(tmp_path / "d", "", SERVE_TOKEN_FILE=str(tmp_path / "tokens")) as daemon:
        for topic, expected in (("_streams", 409), ("%5fstreams", 409), ("_streams@main", 409), ("victim", 201)):
            headers = {"Content-Type": "application/octet-stream", "Authorization": "Bearer writer"}
            path = f"/topics/{topic}/records"
            assert daemon.ask("POST", path, json.dumps(entry).encode(), headers)[0] == expected


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/topics/_streams/records", None),
        ("/topics/_streams/rpc/truncate", {"seq": 1}),
        ("/rpc/truncate", {"topic": "_streams", "from": 1, "yes": True}),
        ("/rpc/delete", {"topic": "_streams@main", "before": 2, "yes": True}),
        ("/rpc/evict", {"topic": "_streams", "before": 2, "yes": True}),
        ("/rpc/topic/delete", {"topic": "_streams", "yes": True}),
        ("/rpc/topic/set", {"topic": "_streams", "ttl": "1h"}),
    ],
)
def test_no_client_writes_the_topic_of_streams(
    daemon: ServedDirectory, path: str, body: dict[str, object] | None
) -> None:
    """RESERVED-1: an entry that a client wrote or removed would break or delete the streams of others."""
    put(daemon, "/streams/kept", b"x")
    given = b"z" if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/octet-stream"} if body is None else {}
    status, answer, _ = daemon.ask("POST", path, given, headers)
    assert (status, json.loads(answer)["title"]) == (409, "Conflict")
    assert value(daemon, "/streams/kept") == b"x"


def test_neither_laminarmq_nor_the_command_line_writes_the_topic_of_streams(tmp_path: Path) -> None:
    seglog.open(tmp_path / "d").close()
    with served(tmp_path / "d", "", SERVE_LAMINARMQ="_streams:0") as daemon:
        put(daemon, "/streams/kept", b"x")
        for path, body in (("/records", b"z"), ("/rpc/truncate", b'{"truncate_index": 0}')):
            with closing(
                http.client.HTTPConnection("127.0.0.1", daemon.port_of("laminarmq _streams"), timeout=60)
            ) as connection:
                connection.request("POST", path, body, JSON)
                answer = connection.getresponse()
                assert (answer.status, b"Conflict" in answer.read()) == (409, True)
        command = [sys.executable, "-m", "offload", "-C", str(tmp_path / "d"), "append", "_streams"]
        done = subprocess.run(command, input=b"z\n", capture_output=True, timeout=60, check=False)
        assert (done.returncode, b"only the daemon writes it" in b" ".join(done.stderr.split())) == (4, True)
        assert daemon.get("/topics/_streams/index_bounds")[0]["head_seq"] == 2, "the entries `making` and `live`"
        assert value(daemon, "/streams/kept") == b"x"


def test_a_record_that_is_no_entry_costs_no_other_stream(tmp_path: Path) -> None:
    """The last of them names its path. The earlier entry of that stream does not hold again (DENTRY-1)."""
    entry = {"path": "old", "topic": "old", "content_type": "text/plain", "base": 0, "own": 0, "state": "dying"}
    wrong = (b"z", b"\xff", b"[" * 100_000, b"7", b'{"path": ["x"]}', json.dumps({**entry, "path": "x", "base": "0"}))
    with seglog.open(tmp_path / "d") as log:
        log.topic("old").append([b"needed"])
        entries = [json.dumps(entry), *wrong, json.dumps({**entry, "state": "of a later version"})]
        log.topic("_streams").append([each if isinstance(each, bytes) else each.encode() for each in entries])
        log.topic("live").append([b"value"])
        live = {**entry, "path": "live", "topic": "live", "content_type": "text/plain", "state": "live"}
        log.topic("_streams").append([json.dumps(live).encode()])
    with served(tmp_path / "d", "") as daemon:
        assert value(daemon, "/streams/live") == b"value"
        assert put(daemon, "/streams/new", b"new")[0] == 201
        for method in ("GET", "PUT", "DELETE"):
            status, answer, _ = daemon.ask(method, "/streams/old", b"" if method == "PUT" else None, TEXT)
            assert (status, json.loads(answer)["title"]) == (500, "StreamRefused")
            assert "record 8 of _streams" in json.loads(answer)["detail"]
        assert daemon.ask("GET", "/streams/x")[0] == 500
        assert daemon.get("/topics/old/index_bounds")[0]["head_seq"] == 1
    told = [line for line in daemon.lines if "is no entry" in line]
    assert len(told) == len(wrong) + 1
    assert all(f"record {seq} of _streams" in line for seq, line in enumerate(told, 2))


def test_a_long_poll_ends_when_its_client_leaves(daemon: ServedDirectory, path: str) -> None:
    put(daemon, path)
    with closing(socket.create_connection(("127.0.0.1", daemon.port))) as client:
        client.sendall(f"GET {path}?offset=now&live=long-poll HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        while b"seglog_http_followers_running 1.0" not in daemon.ask("GET", "/metrics")[1]:
            assert daemon.process.poll() is None
    while b"seglog_http_followers_running 0.0" not in daemon.ask("GET", "/metrics")[1]:
        assert daemon.process.poll() is None
    assert b'status="499"' in daemon.ask("GET", "/metrics")[1]  # not the 204 of a wait that took its whole time


def test_waiting_readers_have_places_of_their_own_and_end_with_the_daemon(tmp_path: Path) -> None:
    seglog.open(tmp_path / "d").close()
    with (
        served(tmp_path / "d", "", SERVE_MAX_FOLLOWERS="2", SERVE_STOP_TIMEOUT_S="8") as daemon,
        ThreadPoolExecutor(2) as pool,
    ):
        put(daemon, "/streams/a", b"one")
        waiting = [
            pool.submit(daemon.ask, "GET", f"/streams/a?offset=now&live={live}") for live in ("sse", "long-poll")
        ]
        while b"seglog_http_followers_running 2.0" not in daemon.ask("GET", "/metrics")[1]:
            assert daemon.process.poll() is None
        status, _, headers = daemon.ask("GET", "/streams/a?offset=now&live=sse")
        assert status == 429
        assert int(headers["retry-after"]) > 0
        assert value(daemon, "/streams/a") == b"one"
        daemon.process.terminate()
        (sse, body, _), (long_poll, _, _) = (each.result(60) for each in waiting)
        assert (sse, long_poll) == (200, 204)
        assert body.endswith(b"}\n\n")
        assert daemon.process.wait(60) == 0


def test_a_stream_that_a_crash_left_in_the_making_is_none(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "d") as log:
        entry = {"path": "a", "topic": "a", "content_type": "text/plain", "base": 0, "own": 0, "state": "making"}
        log.topic("_streams").append([json.dumps(entry).encode()])
        log.topic("a").append([b"half"])
    with served(tmp_path / "d", (tmp_path / "remote").as_uri()) as daemon:
        assert daemon.ask("GET", "/streams/a")[0] == 404
        assert put(daemon, "/streams/a", b"whole")[0] == 201
        assert value(daemon, "/streams/a") == b"whole"


def test_without_a_remote_all_but_forks_works(tmp_path: Path) -> None:
    seglog.open(tmp_path / "d").close()
    with served(tmp_path / "d", "") as daemon:
        put(daemon, "/streams/a", b"one")
        status, body, _ = fork(daemon, "/streams/f", "/streams/a")
        assert (status, json.loads(body)["title"]) == (501, "StreamRefused")
        assert daemon.ask("HEAD", "/streams/f")[0] == 404
        assert daemon.ask("DELETE", "/streams/a")[0] == 204
        assert "a" not in daemon.get("/topics")[0]["topics"]
        assert put(daemon, "/streams/a", b"two")[0] == 201
        assert value(daemon, "/streams/a") == b"two"
