"""Test the real planner process: its calls, and what a driver of another version or a broken one meets."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from offload.format.labels import software_version
from offload.spark.messages import decode_message, decode_task, encode_message, read_message
from offload.spark.options import parse_options
from offload.spark.scan import scan
from tests.offload.samples import Sample
from tests.offload.spark.archives import TopicArchive
from tests.offload.spark.queries import arrow_schema

HELLO = {"hello": {"protocol": 2, "seglog": "0.1.0"}}
SECRET = "a-secret-that-must-not-travel"
ENDS_WITHIN_S = 120


class Driver:
    """The driver's side of a planner process."""

    def __init__(self, **environment: str) -> None:

        self.process = subprocess.Popen(
            [sys.executable, "-m", "offload.spark.planner"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        self.hello = self.receive()

    def send(self, message: Mapping[str, Any]) -> None:
        self.write(encode_message(message))

    def write(self, body: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(body)
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        body = read_message(self.process.stdout)  # type: ignore[arg-type]
        assert body is not None, "the planner has ended"
        return decode_message(body)

    def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        self.send(message)
        return self.receive()

    def end(self) -> tuple[int, bytes, bytes]:
        """End the planner's input. Return its exit code, the rest of its messages, and its standard error."""
        out, err = self.process.communicate(timeout=ENDS_WITHIN_S)
        return self.process.returncode, out, err


@pytest.fixture
def start() -> Iterator[Callable[..., Driver]]:
    drivers: list[Driver] = []

    def started(*, greeted: bool = True, **environment: str) -> Driver:
        drivers.append(Driver(**environment))
        if greeted:
            drivers[-1].send(HELLO)
        return drivers[-1]

    yield started
    for driver in drivers:
        driver.process.kill()
        driver.process.communicate()


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = (tmp_path / "remote").as_uri()
    archive = TopicArchive(url)
    archive.add([Sample(b"%d" % n, "even" if n % 2 == 0 else None) for n in range(1, 101)])
    return url


def call(number: int, name: str, url: str, **more: Any) -> dict[str, Any]:
    return {"id": number, "call": name, "options": {"path": url, "topic": "orders"}} | more


def test_a_driver_pins_plans_and_counts(start: Callable[..., Driver], url: str):
    driver = start()
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert driver.hello == {"hello": {"protocol": 2, "python": python, "seglog": software_version()}}
    pinned = driver.ask(call(1, "pin", url))
    assert [column["name"] for column in pinned["columns"]] == [
        "topic",
        "seq",
        "timestamp",
        "node",
        "tag",
        "value",
        "lsn",
    ]
    pin, filters = pinned["pin"], [{"column": "tag", "op": "eq", "values": ["even"]}]

    wanted = call(2, "plan", url, pin=pin, columns=["seq", "value"], filters=filters, limit=None, parallelism=4)
    plan = driver.ask(wanted)
    assert (plan["id"], plan["plan"]["rows"], plan["plan"]["exact"], plan["plan"]["segments"]) == (2, 50, True, 1)
    answers = [driver.receive() for _ in range(plan["plan"]["tasks"])]
    assert {answer["id"] for answer in answers} == {2}
    schema = arrow_schema(parse_options({"path": url, "topic": "orders"}), ["seq", "value"])
    rows = [
        row for answer in answers for batch in scan(decode_task(answer["task"]), schema) for row in batch.to_pylist()
    ]
    assert rows == [{"seq": n, "value": b"%d" % n} for n in range(2, 101, 2)]

    aggregates = [{"op": "count"}, {"op": "min", "column": "seq"}, {"op": "max", "column": "seq"}]
    assert driver.ask(call(3, "aggregate", url, pin=pin, filters=filters, aggregates=aggregates)) == {
        "id": 3,
        "values": [50, 2, 100],
    }
    times = [{"column": "timestamp", "op": "ge", "values": [1_700_000_000_001_001]}]
    answer = driver.ask(call(4, "aggregate", url, pin=pin, filters=times, aggregates=aggregates))
    assert answer == {"id": 4, "values": [98, 3, 100]}
    answer = driver.ask(call(5, "groups", url, pin=pin, filters=[], by=["tag"], aggregates=aggregates))
    assert answer == {"id": 5, "rows": [[None, 50, 1, 99], ["even", 50, 2, 100]]}
    answer = driver.ask(call(6, "groups", url, pin=pin, filters=times, by=["tag"], aggregates=aggregates))
    assert answer == {"id": 6, "rows": [[None, 49, 3, 99], ["even", 49, 4, 100]]}
    assert driver.end()[:2] == (0, b"")


def test_the_planner_needs_no_pyspark(start: Callable[..., Driver], url: str, tmp_path: Path):
    (tmp_path / "pyspark.py").write_text("raise ImportError('this machine has no pyspark')\n")
    driver = start(PYTHONPATH=str(tmp_path))
    pin = driver.ask(call(1, "pin", url))["pin"]
    assert driver.ask(call(2, "plan", url, pin=pin, columns=["value"], filters=[]))["plan"]["rows"] == 100


def test_a_driver_follows_a_stream(start: Callable[..., Driver], url: str):
    driver = start()
    options = {"path": url, "topic": "orders", "maxoffsetspertrigger": "60", "startingseq": "21"}
    wanted = {"call": "stream_latest", "options": options, "target": None, "limited": True}
    first = driver.ask({**wanted, "id": 1, "start": "{}"})["offset"]
    second = driver.ask({**wanted, "id": 2, "start": first})["offset"]
    assert driver.ask({**wanted, "id": 3, "start": second}) == {"id": 3, "offset": second}
    plan = {"call": "stream_plan", "options": options, "columns": ["seq"], "filters": [], "limit": None}
    for number, (begin, end, rows) in enumerate([("{}", first, 60), (first, second, 20), (second, second, 0)], 4):
        answer = driver.ask({**plan, "id": number, "start": begin, "end": end})["plan"]
        assert (answer["rows"], answer["tasks"]) == (rows, 1 if rows else 0)
        assert [driver.receive()["id"] for _ in range(answer["tasks"])] == [number] * answer["tasks"]
    pinned = driver.ask({"id": 7, "call": "pin", "options": options})
    assert driver.ask({**wanted, "id": 8, "start": first, "target": pinned["pin"]})["offset"] == second
    for wrong, reason in (
        ({**wanted, "id": 9, "start": None}, "its start is None"),
        ({**wanted, "id": 10, "start": "7"}, "'7' is no offset of a stream"),
        ({**plan, "id": 11, "start": "{}", "end": first, "options": {**options, "endingseq": "5"}}, "only for read"),
        (call(12, "plan", url, pin=None, columns=["seq"], filters=[], options=options), "only for readStream"),
    ):
        assert reason in driver.ask(wrong)["error"]["message"]


def test_an_error_is_a_message_and_the_next_call_is_answered(start: Callable[..., Driver], url: str):
    driver = start()
    found = driver.ask({"id": 1, "call": "pin", "options": {"path": url, "topic": "nope"}})
    assert found["id"] == 1
    assert (found["error"]["type"], "no topic nope" in found["error"]["message"]) == ("NoSuchTopic", True)
    assert found["error"]["hint"]
    for wrong, reason in (
        ({"id": 2, "call": "pin"}, "its options is None"),
        ({"id": 3, "call": "drop", "options": {"path": url, "topic": "orders"}}, "there is no call 'drop'"),
        ({"id": 4, "call": "pin", "options": {"path": url, "topic": "orders", "x": "y"}}, "option x is unknown"),
        (call(5, "plan", url, pin={}, columns=["seq"], filters=[]), "its pin does not decode"),
        (call(6, "plan", url, pin=None, columns=["price"], filters=[]), "there is no column 'price'"),
        (call(7, "plan", url, pin=None, columns=["seq"], filters=[{}]), "is no filter"),
        (call(8, "plan", url, pin=None, columns=["seq"], filters=[], limit=0), "its limit is 0"),
        (call(9, "aggregate", url, pin=None, filters=[], aggregates=[{"op": "sum"}]), "is no aggregate"),
        (call(10, "groups", url, pin=None, filters=[], aggregates=[], by=["seq"]), "it groups by ['seq']"),
        (call(11, "groups", url, pin=None, filters=[], aggregates=[], by=[]), "it groups by []"),
        ({"id": [], "call": [], "options": {}}, "its call is []"),
        (call(13, "listing", url, of="files"), "there is no listing 'files'"),
        (call(14, "listing", url), "its of is None"),
        (call(15, "listing", url, of="tags", options={"path": url, "topic": "*"}), "tags is of one topic"),
        (call(16, "listing", url, of="tags", options={"path": url, "topic": "nope"}), "no topic nope"),
    ):
        answer = driver.ask(wrong)
        assert (answer["id"], reason in answer["error"]["message"]) == (wrong["id"], True), answer
    for garbage in (b"{", b"[]", b"\xff\xfe"):
        driver.write(len(garbage).to_bytes(4, "big") + garbage)
        answer = driver.receive()
        assert (answer["id"], answer["error"]["type"]) == (None, "InvalidMessage")
    assert driver.ask(call(12, "pin", url))["pin"]
    assert driver.end()[0] == 0


@pytest.mark.long
def test_damage_is_told_with_its_place(start: Callable[..., Driver], url: str, tmp_path: Path):
    driver = start()
    pin = driver.ask(call(1, "pin", url))["pin"]
    [path] = (tmp_path / "remote").glob("*/segments/*.index")
    body = bytearray(path.read_bytes())
    body[40] ^= 1
    path.write_bytes(body)
    found = driver.ask(call(2, "plan", url, pin=pin, columns=["seq"], filters=[]))
    assert found["error"]["type"] == "InvalidIndex"
    assert str(path.relative_to(tmp_path / "remote")) in found["error"]["message"]


@pytest.mark.parametrize("first", [{"hello": {"protocol": 3}}, {"hello": 1}, {"id": 1, "call": "pin", "options": {}}])
def test_a_driver_of_another_version_is_told_so_and_the_planner_ends(
    start: Callable[..., Driver], first: dict[str, Any]
):
    driver = start(greeted=False)
    found = driver.ask(first)
    assert (found["id"], found["error"]["type"]) == (None, "InvalidMessage")
    assert "this planner 2" in found["error"]["message"]
    assert "same seglog" in found["error"]["hint"]
    assert driver.end()[0] == 1


@pytest.mark.parametrize("cut", [b"\x00\x00", b"\x00\x00\x01\x00{", b"\xff\xff\xff\xff", b"garbage that is no message"])
def test_a_message_that_is_cut_or_too_long_ends_the_planner_with_an_error(start: Callable[..., Driver], cut: bytes):
    driver = start()
    driver.write(cut)
    code, out, _ = driver.end()
    body = read_message(io.BytesIO(out))
    assert body is not None
    assert decode_message(body)["error"]["type"] == "InvalidMessage"
    assert code == 1


@pytest.mark.long
def test_the_planner_ends_with_its_input_and_when_nobody_reads_its_answers(start: Callable[..., Driver], url: str):
    assert start(greeted=False).end()[:2] == (0, b"")
    assert start().end()[:2] == (0, b"")
    driver = start()
    assert driver.process.stdout is not None
    driver.process.stdout.close()
    driver.send(call(1, "pin", url))
    assert driver.process.wait(ENDS_WITHIN_S) == 0


@pytest.mark.long
def test_a_driver_sees_the_end_of_a_killed_planner(start: Callable[..., Driver]):
    driver = start()
    driver.process.send_signal(signal.SIGINT)  # meant for the driver: the planner ignores it
    assert driver.ask({"id": 1, "call": "x", "options": {"path": "p", "topic": "t"}})["error"]
    driver.process.kill()
    assert driver.process.stdout is not None
    assert read_message(driver.process.stdout) is None  # type: ignore[arg-type]


@pytest.mark.long
def test_only_the_answer_to_the_call_for_credentials_has_any(start: Callable[..., Driver]):
    """Every answer is searched: a wrong endpoint, a URL with a secret, an option's value of another option."""
    driver = start(
        AWS_ACCESS_KEY_ID="key-" + SECRET,
        AWS_SECRET_ACCESS_KEY=SECRET,
        AWS_SESSION_TOKEN=SECRET,
        AWS_ENDPOINT_URL="http://127.0.0.1:9",
        AWS_REGION="us-east-1",
        AWS_MAX_ATTEMPTS="1",
    )
    answers = [
        driver.ask({"id": 1, "call": "pin", "options": {"path": f"s3://user:{SECRET}@bucket/x", "topic": "t"}}),
        driver.ask({"id": 2, "call": "pin", "options": {"path": "s3://bucket/x", "topic": "t"}}),
        driver.ask(
            {"id": 3, "call": "pin", "options": {"path": "s3://bucket/x", "topic": "t", "fs.s3a.secret": SECRET}}
        ),
    ]
    assert [answer["error"]["type"] for answer in answers] == ["InvalidRemote", "StoreUnreachable", "InvalidOption"]
    assert SECRET not in str(answers)
    handed = driver.ask({"id": 4, "call": "credentials", "options": {}})["credentials"]
    assert handed == {
        "access_key": "key-" + SECRET,
        "expires_at_ms": None,
        "secret_key": SECRET,
        "session_token": SECRET,
    }
    assert SECRET not in driver.end()[2].decode()
