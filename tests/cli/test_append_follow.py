"""Test `append --follow` and `append --keep-times` as a user runs them."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import seglog
from offload.operations.growing_file import PlaceFile
from tests.daemons import ServedDirectory
from tests.forge import forged
from tests.waiting import wait_until
from tests.worlds.command import Run


@pytest.fixture
def started(run: Run, tmp_path: Path) -> Run:
    assert run("init").code == 0
    (tmp_path / "app.log").write_bytes(b"one\ntwo\n")
    return run


@contextmanager
def _following(root: Path, *words: str, number: int = signal.SIGTERM) -> Iterator[Callable[[int], list[bytes]]]:
    """Run a follower. Yield a function that waits for so many records, and returns them. Then send the signal."""
    data = root / "data"
    follower = forged(["-C", str(data), "append", "t", "--follow", *words], dict(os.environ))

    def records(count: int) -> list[bytes]:
        wait_until(lambda: follower.poll() is not None or _head(data) >= count)
        with seglog.open(data, read_only=True) as log:
            return [record.value for record in log.topic("t").read()]

    try:
        yield records
    finally:
        os.kill(follower.pid, number)
        code, told = follower.wait(60), follower.stderr.read()
        follower.stderr.close()
    assert code == 128 + number, told


def _head(data: Path) -> int:
    with seglog.open(data, read_only=True) as log:
        return log.topic("t").head_seq


def test_a_follower_goes_on_where_it_ended_and_waits_for_the_end_of_a_line(started: Run, tmp_path: Path) -> None:
    file, kept = tmp_path / "app.log", tmp_path / "place"
    with _following(tmp_path, str(file), "--state", str(kept), "--tag", "eu", number=signal.SIGINT) as records:
        assert records(2) == [b"one", b"two"]
        with file.open("ab") as stream:
            stream.write(b"three\nfo")
        assert records(3) == [b"one", b"two", b"three"]
    with file.open("ab") as stream:
        stream.write(b"ur\n")
    with _following(tmp_path, str(file), "--state", str(kept)) as records:
        assert records(4)[3:] == [b"four"]
        second = started("append", "t", "--follow", str(file), "--state", str(kept))
        assert (second.code, second.err.count("\n")) == (2, 1)
        assert "another process follows" in second.err
    assert [json.loads(line).get("tag") for line in started("--json", "read", "t").text.splitlines()] == [
        "eu", "eu", "eu", None,
    ]  # fmt: skip


def test_lines_of_json_keep_their_labels_and_times(started: Run, tmp_path: Path) -> None:
    file = tmp_path / "app.jsonl"
    lines = [{"value": "a", "tag": "x", "ts_ms": 5}, {"value": "b", "tag": "x", "ts_ms": 5}, {"value": "c", "ts_ms": 9}]
    file.write_text("\n" + "\n\n".join(map(json.dumps, lines)) + "\n")
    with _following(tmp_path, str(file), "--format", "jsonl", "--keep-times") as records:
        assert records(3) == [b"a", b"b", b"c"]
    with _following(tmp_path, str(file), "--format", "jsonl", "--keep-times") as records:
        with file.open("a") as stream:
            stream.write('{"value": "d", "ts_ms": 10}\n')
        assert records(4)[3:] == [b"d"]
    read = [json.loads(line) for line in started("--json", "read", "t").text.splitlines()]
    assert [(each["ts_ms"], each.get("tag")) for each in read] == [(5, "x"), (5, "x"), (9, None), (10, None)]


def test_what_cannot_be_followed_is_told_in_one_line(started: Run, tmp_path: Path) -> None:
    def refused(*words: str) -> tuple[int, str]:
        done = started("append", "t", "--follow", *words)
        assert done.err.count("\n") == 1
        return done.code, done.err

    assert refused("missing") == (3, "seglog: missing does not exist. Name a file that exists\n")
    assert not Path("missing.seglog").exists()
    assert refused("data")[0] == 3
    assert refused()[0] == refused("-")[0] == refused("app.log", "--skip-lines", "1")[0] == 2
    code, told = refused("app.log", "--state", "nowhere/place")
    assert (code, "--state" in told) == (2, True)
    Path("place").write_bytes(b"damaged")
    assert refused("app.log", "--state", "place")[0] == 5
    Path("long.log").write_bytes(b"x" * 3_000_000 + b"\n")
    Path("data/seglog.toml").write_text("[log]\nmax_record_bytes = 1000000\n")
    code, told = refused("long.log")
    assert (code, "over the limit" in told) == (2, True)
    Path("bad.log").write_text('{"value": "good"}\n{"val')
    with Path("bad.log").open("a") as stream:
        stream.write("ue: 1}\n")
    code, told = refused("bad.log", "--format", "jsonl")
    assert (code, "line 2" in told) == (2, True)


def test_a_place_is_of_one_topic_and_not_older_than_it(started: Run, tmp_path: Path) -> None:
    file, kept = tmp_path / "app.log", tmp_path / "app.log.seglog"
    with _following(tmp_path, str(file)) as records:
        assert records(2) == [b"one", b"two"]
        shutil.copy(kept, tmp_path / "copy")
        with file.open("ab") as stream:
            stream.write(b"three\n")
        assert len(records(3)) == 3
    other = started("append", "u", "--follow", str(file))
    assert (other.code, "has a place for the topic t, not u" in other.err) == (2, True)
    older = started("append", "t", "--follow", str(file), "--state", str(tmp_path / "copy"))
    assert (older.code, "older than the topic" in older.err) == (2, True)
    assert started("read", "t").out == b"one\ntwo\nthree\n"
    place = PlaceFile(tmp_path / "copy").load("t")
    assert place is not None
    with seglog.open(tmp_path / "data") as log:
        log.topic("t").append([b"x"], producer=seglog.ProducerBatch(place.producer, 1, 0))
    fenced = started("append", "t", "--follow", str(file))
    assert (fenced.code, "has epoch 1, not 0" in fenced.err) == (4, True)


def test_a_topic_that_was_made_again_gets_the_lines_from_there_on(started: Run, tmp_path: Path) -> None:
    file = tmp_path / "app.log"
    with _following(tmp_path, str(file)) as records:
        assert records(2) == [b"one", b"two"]
        with file.open("ab") as stream:
            stream.write(b"three\n")
        assert len(records(3)) == 3
    assert started("topic", "delete", "t", "--yes").code == 0
    started("append", "t", stdin=b"new\n")
    with file.open("ab") as stream:
        stream.write(b"four\n")
    with _following(tmp_path, str(file)) as records:
        assert records(3) == [b"new", b"three", b"four"]  # whether the old topic had `three` is unknown


def test_a_follower_waits_for_its_daemon(started: Run, tmp_path: Path) -> None:
    file = tmp_path / "app.log"
    daemon = ServedDirectory(tmp_path / "data", {})
    refused = started("append", "u", "--format", "jsonl", "--keep-times", stdin=b'{"value": "x", "ts_ms": 1}\n')
    assert (refused.code, "a daemon gives records its own times" in refused.err) == (2, True)
    with _following(tmp_path, str(file)) as records:
        assert records(2) == [b"one", b"two"]
        daemon.kill()
        with file.open("ab") as stream:
            stream.write(b"three\n")
        daemon = ServedDirectory(tmp_path / "data", {})
        assert records(3) == [b"one", b"two", b"three"]
    daemon.kill()


def test_times_are_kept_on_the_way_from_one_topic_to_another(started: Run, tmp_path: Path) -> None:
    started("append", "a", stdin=b"one\ntwo\n")
    exported = started("--json", "read", "a").out
    (tmp_path / "a.jsonl").write_bytes(exported)

    def times(topic: str) -> list[Any]:
        return [json.loads(line)["ts_ms"] for line in started("--json", "read", topic).text.splitlines()]

    assert started("append", "b", "a.jsonl", "--format", "jsonl", "--keep-times").err == ""
    assert times("b") == times("a")
    plain = started("append", "c", "a.jsonl", "--format", "jsonl")
    assert (plain.code, plain.err) == (0, "ts_ms was not used: --keep-times keeps it\n")
    assert started("append", "c", stdin=b'{"value": "x"}\n').err == ""


def test_a_time_that_does_not_fit_is_told_with_its_line(started: Run) -> None:
    def refused(*lines: str) -> str:
        done = started("append", "t", "--format", "jsonl", "--keep-times", stdin="\n".join(lines).encode())
        assert (done.code, done.err.count("\n")) == (2, 1)
        return done.err

    one = '{"value": "x", "ts_ms": 7}'
    assert "line 2 has the `ts_ms` 6, and a record before it has 7" in refused(one, '{"value": "x", "ts_ms": 6}')
    assert "line 3 has no `ts_ms` to keep" in refused(one, "", '{"value": "x"}')
    assert "line 1 has no `ts_ms` to keep" in refused('{"value": "x", "ts_ms": 7.5}')
    assert started("append", "t", stdin=b"now\n").code == 0
    assert "line 1 has the `ts_ms` 7" in refused(one)
    assert "five minutes" in refused('{"value": "x", "ts_ms": 9999999999999}')
    assert started("append", "t", "--keep-times", stdin=b"x\n").code == 2
    assert started("read", "t").out == b"now\n"
