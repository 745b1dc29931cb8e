"""Test `seglog status`: the line of a topic, the troubles with what to do, and --watch."""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from offload.cli.session import Output
from offload.operations.command import Work
from offload.operations.status import ArchivedTopic, LocalTopic, status_text
from offload.operations.topic import TopicPlaces
from offload.reports import TopicStatus
from seglog import SystemClock
from tests.cli.terminals import Shown, on_terminal, without_styles
from tests.daemons import served
from tests.waiting import wait_until
from tests.worlds.command import Run

__all__ = ["on_terminal"]


def _topic(run: Run, name: str = "t") -> dict[str, Any]:
    done = run("--json", "status", name)
    assert done.code == 0, done.err
    [found] = [json.loads(line) for line in done.out.splitlines()]
    return found  # type: ignore[no-any-return]


def test_the_lag_and_the_next_step_follow_the_records(run: Run, tmp_path: Path) -> None:
    run("init", "--remote", (tmp_path / "remote").as_uri())
    run("append", "t", stdin=b"one\ntwo\n")
    told = []
    for words in (("seal", "t"), ("offload", "t"), None):
        found = _topic(run)
        told.append((found["lag_records"], found["next_step"]))
        assert (found["lag_bytes"] > 0, found["lag_s"] is not None) == (words is not None, words is not None)
        if words is not None:
            assert run(*words).code == 0
    assert told == [(2, "seglog seal t"), (2, "seglog offload t"), (0, None)]
    run("append", "t", stdin=b"three\n")
    assert _topic(run)["lag_records"] == 1
    run("seal", "t")
    run("offload", "t")
    run("pause", "t")
    assert _topic(run)["next_step"] == "seglog resume t"


def test_a_topic_says_how_far_back_a_restore_can_go(run: Run, tmp_path: Path) -> None:
    run("init", "--remote", (tmp_path / "remote").as_uri())
    before_ms = SystemClock().now_ms()
    run("append", "t", stdin=b"one\n")
    assert _topic(run)["kept_from"] is None
    run("seal", "t")
    run("offload", "t")
    run("branch", "create", "t", "b")
    run("append", "t@b", stdin=b"two\n")
    kept_ms = {name: _ms(_topic(run, name)["kept_from"]) for name in ("t", "t@b")}
    assert before_ms <= kept_ms["t"] <= SystemClock().now_ms()  # the topic is younger than its window
    assert kept_ms["t@b"] < before_ms  # a branch has the states of its parent


def test_one_is_not_written_as_many(run: Run, tmp_path: Path) -> None:
    run("init", "--remote", (tmp_path / "remote").as_uri())
    run("append", "t", stdin=b"one\n")
    assert run("status", "t").text.endswith("\nt: 1 record, only on this disk\n")
    run("append", "t", stdin=b"two\n")
    run("seal", "t")
    run("offload", "t")
    run("append", "t", stdin=b"three\nfour\nfive\n")
    run("delete", "t", "--before", "4", "--yes")
    assert "  1 delete waits for the records before it to be offloaded\n" in run("status", "t", "-v").text
    run("delete", "t", "--before", "5", "--yes")
    assert "  2 deletes wait for the records before them to be offloaded\n" in run("status", "t", "-v").text


def test_an_offload_that_stopped_on_its_way_is_told_without_a_daemon_which_takes_it_up_itself() -> None:
    state = TopicStatus(
        name="t", head_seq=2, hot_first_seq=1, sealed_seq=2, offloaded_seq=0, earliest_seq=1, evict_floor=1,
        state="0+2", unfinished_attempts=1,
    )  # fmt: skip
    alone = ArchivedTopic(state, None, None, "seglog offload t", None, None, None)
    assert status_text(Output(is_json=False), [alone]).splitlines() == [
        "t: 2 records, only on this disk",
        "t: UNFINISHED: an offload stopped on its way",
        "  to do: `seglog offload t` takes it up again",
    ]
    work = Work(is_offloading=True, failures=0, last_error=None, retry_in_s=None)
    served_one = replace(alone, work=work, next_step=None)
    assert "UNFINISHED" not in status_text(Output(is_json=False), [served_one])
    assert "  an offload runs" in status_text(Output(is_json=False, is_verbose=True), [served_one])


def test_records_of_a_volume_that_is_gone_are_not_called_safe() -> None:
    gone = TopicStatus(
        name="t@fix", head_seq=5, hot_first_seq=1, sealed_seq=5, offloaded_seq=4, earliest_seq=1, evict_floor=1,
        state="0+5", lsn=3, diverged_lsn=0, volume="x", committed_at_ms=1,
    )  # fmt: skip
    told = status_text(
        Output(is_json=False), [ArchivedTopic(gone, None, None, "seglog reset t@fix --as NAME", None, None, None)]
    )
    assert told.splitlines()[0] == "t@fix: 5 records, only on this disk"
    assert "t@fix: COLLECTED: it was deleted in the remote" in told
    assert told.endswith("\n  to do: `seglog reset t@fix --as NAME`")


def test_followers_that_wait_are_told_with_the_reason_and_what_to_do() -> None:
    paused = "its priority is -100, and the pressure is 0.93; it goes on below 0.6"
    places = TopicPlaces(1, 2, 1, 1, 1, 100, 0)
    told = status_text(Output(is_json=False), [LocalTopic("audit", places, None, delivery_paused=paused)])
    assert told.splitlines() == [
        "audit: 2 records, only on this disk",
        f"audit: FOLLOWERS WAIT: {paused}",
        "  to do: `seglog read audit` has its records; `seglog topic set audit --priority 0` ends the pause",
    ]
    replica = TopicStatus(
        name="audit", head_seq=2, hot_first_seq=3, sealed_seq=2, offloaded_seq=2, earliest_seq=1, evict_floor=1,
        state="1", lsn=1, diverged_lsn=0, volume="x", committed_at_ms=1, is_replica=True,
    )  # fmt: skip
    found = ArchivedTopic(replica, None, None, None, None, None, None, delivery_paused=paused)
    assert status_text(Output(is_json=False), [found]).splitlines()[-1] == (
        "  to do: `seglog read audit` has its records; its followers go on by themselves"
    )


@pytest.mark.long
def test_a_bucket_that_is_dead_is_one_trouble_of_all_topics_with_what_to_do(
    run: Run, tmp_path: Path, on_terminal: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens: each connection is refused
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{taken.getsockname()[1]}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "nobody")
        run("init", "--remote", "s3://bucket/acme")
        names = [f"topic-{number}" for number in range(5)]
        for name in names:
            run("append", name, stdin=b"a\nb\n")
            run("seal", name)
        waits = {"OFFLOAD_OFFLOAD_AFTER_S": "0", "OFFLOAD_RETRY_MIN_S": "600", "OFFLOAD_RETRY_MAX_S": "600"}
        run("topic", "create", "passing", "--durability", "ephemeral")
        with served(tmp_path / "data", "s3://bucket/acme", OFFLOAD_WORKER="thread", **waits) as daemon:
            daemon.append("passing", b"a")
            wait_until(lambda: all(each["failures"] for each in [_topic(run, name) for name in names]))
            head, passing, *lines, trouble, todo = run("status").text.splitlines()
            assert passing == "passing: 1 record, only in memory"
            assert head == f"{(tmp_path / 'data').resolve()}, remote s3://bucket/acme"
            assert lines == [f"{name}: 2 records, only on this disk" for name in names]
            told = (
                "topic-0, topic-1, topic-2 and 2 more: FAILED: the offload failed once: cannot reach s3://bucket/acme: "
            )
            assert trouble.startswith(told)
            assert re.fullmatch(
                r"  to do: .+\. Then `seglog retry topic-0` tries at once, the daemon in \d+ (s|min)( \d+ s)?", todo
            )
            monkeypatch.setenv("COLUMNS", "80")
            assert max(map(len, without_styles(on_terminal("status")).splitlines()[1:])) <= 80
            run("pause", "topic-3")
            assert run("status", "topic-3").text.splitlines()[-2:] == [
                "topic-3: PAUSED: the daemon does not offload it", "  to do: `seglog resume topic-3`",
            ]  # fmt: skip


@pytest.mark.long
def test_credentials_that_expired_are_named_with_what_to_do(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_scope: object) -> bytes:
        return b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"

    with _refusing(403, refuse(None)) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
            monkeypatch.setenv(name, "nobody")
        run("init", "--remote", "s3://bucket/acme")
        run("append", "t", stdin=b"a\n")
        run("seal", "t")
        with served(tmp_path / "data", "s3://bucket/acme", OFFLOAD_WORKER="thread", OFFLOAD_OFFLOAD_AFTER_S="0"):
            wait_until(lambda: _topic(run)["failures"] > 0)
            trouble, todo = run("status").text.splitlines()[-2:]
    assert "refuses access: " in trouble
    assert "expired" in trouble
    assert todo.startswith("  to do: check the AWS credentials and the policy on this prefix. Then `seglog retry t`")


@contextmanager
def _refusing(status: int, body: bytes) -> Iterator[str]:
    """Run an HTTP server that answers each request alike, and yield its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(status)
            self.send_header("content-type", "application/xml")
            self.send_header("content-length", str(0 if self.command == "HEAD" else len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _answer  # noqa: N815 - the names of http.server

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def _ms(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp() * 1000)


def test_a_terminal_gets_aligned_lines_with_relative_times(
    run: Run, tmp_path: Path, on_terminal: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = (tmp_path / "remote").as_uri()
    run("init", "--remote", remote)
    run("append", "t", stdin=b"1\n2\n3\n")
    run("seal", "t")
    run("offload", "t", "--drop-hot")
    run("append", "t", stdin=b"4\n5\n6\n")
    run("append", "access", stdin=b"x\n" * 1000)
    run("append", "a-topic-whose-name-is-longer-than-others", stdin=b"x\n")
    monkeypatch.setenv("COLUMNS", "300")
    _, *lines = without_styles(on_terminal("status")).splitlines()
    assert re.sub(r"\d+ (s|min) ago", "AGO", "\n".join(lines)) == (
        "a-topic-whose-name-is-longer-than-others\n"
        "            1 record,  only on this disk\n"
        "access  1,000 records, only on this disk\n"
        f"t           6 records, safe in {remote} up to 3 (AGO), 3 only on this disk"
    )
    monkeypatch.setenv("COLUMNS", "80")
    _, *narrow = without_styles(on_terminal("status")).splitlines()
    assert max(map(len, narrow)) <= 80
    assert re.fullmatch(r"t           6 records, safe in file://… up to 3 \(.+ ago\), 3 only on this disk", narrow[-1])
    shown = without_styles(on_terminal("status", "-v"))
    assert "  next: `seglog seal t`" in shown
    assert re.search(r"up to 3 \(20\S+Z\)", shown)
    assert on_terminal("status", "--plain") == run("status").text


def test_a_watch_asks_again_and_shows_the_status_in_its_place(
    run: Run, tmp_path: Path, on_terminal: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("init", "--remote", (tmp_path / "remote").as_uri())
    run("append", "t", stdin=b"1\n")
    looks: Iterator[None] = iter([None, None])

    def pause(_seconds: float) -> None:
        if next(looks, False) is False:
            raise KeyboardInterrupt

    monkeypatch.setattr("offload.cli.execution.time", SimpleNamespace(sleep=pause))
    done = run("status", "--watch")
    assert done.code == 130
    assert done.text.count("t: 1 record, only on this disk") == 3
    looks = iter([None])
    assert "t  1 record, only on this disk" in without_styles(on_terminal("status", "--watch", code=130))


def test_a_disk_that_gets_full_is_told_long_before_appends_end(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("init")
    run("append", "t", stdin=b"one\n")
    assert "DISK" not in run("status").text
    found = os.statvfs(".")
    free_bytes = found.f_bavail * found.f_frsize
    monkeypatch.setenv("SEGLOG_LOG_DISK_REJECT_BYTES", str(free_bytes // 2))
    disk, todo = run("status").text.splitlines()[-2:]
    assert disk.startswith("DISK: gets full, with ")
    assert todo.startswith("  to do: free some space: `seglog offload --all --drop-hot`")
    low, _ = [json.loads(line) for line in run("--json", "status").text.splitlines()]
    assert low["disk_reject_bytes"] == free_bytes // 2 < low["free_bytes"]
    monkeypatch.setenv("SEGLOG_LOG_DISK_REJECT_BYTES", str(1 << 60))
    assert "DISK: refuses appends, with " in run("status").text
    assert "free some space" in run("append", "t", stdin=b"two\n").err.lower()
    monkeypatch.undo()
