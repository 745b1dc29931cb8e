"""Test the end of followers whose token is gone or has fewer rights after a reload, on a real daemon."""

from __future__ import annotations

import http.client
import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import seglog
from offload.daemon.revocation import last_words
from offload.rights import Role, token_line
from tests.daemons import ServedDirectory, served, served_tenants
from tests.offload.daemon.open_answers import EventStream, LineStream, opened
from tests.waiting import wait_until

ALL = (
    ("boss", Role.ADMIN, "*"),
    ("stays", Role.READ, "t,u"),
    ("lines", Role.READ, "*"),
    ("events", Role.READ, "*"),
    ("daemon", Role.READ, "*"),
    ("waits", Role.READ, "*"),
    ("commands", Role.READ, "*"),
    ("less", Role.READ, "t,u"),
)


def write(path: Path, *lines: tuple[str, Role, str], tenant: str = "") -> None:
    path.write_text("".join(token_line(*each, f"secret-of-{each[0]}", tenant) + "\n" for each in lines))
    path.chmod(0o600)


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer secret-of-{name}"}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[ServedDirectory]:
    seglog.open(tmp_path / "d").close()
    write(tmp_path / "tokens", *ALL)
    with served(tmp_path / "d", (tmp_path / "remote").as_uri(), SERVE_TOKEN_FILE=str(tmp_path / "tokens")) as daemon:
        yield daemon


def append(daemon: ServedDirectory, value: bytes) -> None:
    headers = {"Content-Type": "application/octet-stream", **bearer("boss")}
    assert daemon.ask("POST", "/topics/t/records", value, headers)[0] == 201


def hang_up(daemon: ServedDirectory, line: str) -> None:
    before = sum(line in each for each in daemon.lines)
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: sum(line in each for each in daemon.lines) > before, pause_s=0.01)


FOLLOW = "/topics/t/records?follow=1&from=1"


def test_a_follower_ends_when_its_token_is_gone_or_has_fewer_rights(daemon: ServedDirectory, tmp_path: Path) -> None:
    append(daemon, b"first")
    sse = {"Accept": "text/event-stream"}
    with ExitStack() as stack:

        def follow(name: str, path: str = FOLLOW, **more: str) -> http.client.HTTPResponse:
            return stack.enter_context(opened(daemon.port, path, {**bearer(name), **more}))

        stays, lines, less = (LineStream(follow(name)) for name in ("stays", "lines", "less"))
        events = EventStream(follow("events", **sse))
        watch = EventStream(follow("daemon", "/daemon/events"))
        command = stack.enter_context(_FollowingCommand(daemon, "commands"))
        answer = command.getresponse()
        assert b"seq" in answer.readline()  # so the daemon has the request
        for each in (stays, lines, less):
            first = each.next()
            assert first is not None
            assert first["seq"] == 1, first
        assert [each.name for each in events.take(1)] == ["record"]
        write(
            tmp_path / "tokens",
            ALL[0], ("stays", Role.APPEND, "*"), ("less", Role.READ, "u"),
        )  # fmt: skip
        hang_up(daemon, "5 open answers end")
        append(daemon, b"second")
        second = stays.next()
        assert second is not None
        assert second["seq"] == 2, second
        for each in (lines, less):
            assert each.next() == {"end": "revoked"}
            assert each.next() is None
        for stream in (events, watch):
            found = list(iter(stream.next, None))
            assert [(each.name, json.loads(each.data)) for each in found[-1:]] == [("end", {"reason": "revoked"})]
            assert b"second" not in stream.raw
        assert b"second" not in _rest_of(answer)
        # The daemon forgot them: a later reload ends nobody.
        daemon.process.send_signal(signal.SIGHUP)
        append(daemon, b"third")
        assert stays.next() is not None
        assert sum("open answers end" in each for each in daemon.lines) == 1
        assert not any("Exception" in each or "without completing" in each for each in daemon.lines)


def _rest_of(answer: http.client.HTTPResponse) -> bytes:
    try:
        return answer.read()
    except http.client.IncompleteRead as broken:  # nothing follows half a line (REVOKE-3)
        return broken.partial


class _FollowingCommand(http.client.HTTPConnection):
    """A command that follows, over HTTP."""

    def __init__(self, daemon: ServedDirectory, name: str) -> None:
        super().__init__("127.0.0.1", daemon.port, timeout=60)
        headers = {"Content-Type": "application/json", **bearer(name)}
        self.request("POST", "/topics/t/rpc/read", json.dumps({"follow": True}), headers)

    def __enter__(self) -> _FollowingCommand:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def test_a_request_that_waits_for_a_record_gets_401(daemon: ServedDirectory, tmp_path: Path) -> None:
    append(daemon, b"first")
    waiting = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=60)
    waiting.request("GET", "/topics/t/records?from=2&wait_s=50", headers=bearer("waits"))
    wait_until(lambda: b"seglog_http_followers_running 1.0" in daemon.ask("GET", "/metrics", None, bearer("boss"))[1])
    write(tmp_path / "tokens", ALL[0])
    hang_up(daemon, "1 open answers end")
    answer = waiting.getresponse()
    assert answer.status == 401
    assert json.loads(answer.read())["title"] == "Refused"
    waiting.close()


def test_a_follower_of_a_tenant_ends_too(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    seglog.open(root / "acme").close()
    write(tmp_path / "tokens", ("app", Role.APPEND, "*"), ("boss", Role.ADMIN, "*"), tenant="acme")
    with served_tenants(root, SERVE_TOKEN_FILE=str(tmp_path / "tokens")) as daemon:
        append(daemon, b"first")
        with opened(daemon.port, FOLLOW, bearer("app")) as answer:
            follower = LineStream(answer)
            assert follower.next() is not None
            write(tmp_path / "tokens", ("app", Role.APPEND, "*"), tenant="globex")
            hang_up(daemon, "1 open answers end")
            assert follower.next() == {"end": "revoked"}
            assert follower.next() is None


@pytest.mark.parametrize(
    ("media_type", "end", "has_words"),
    [
        (b"text/event-stream; charset=utf-8", b"\n\n", True),
        (b"text/event-stream", b"", True),
        (b"text/event-stream", b"x\n", False),
        (b"application/x-ndjson", b"}\n", True),
        (b"application/x-ndjson", b"{}", False),
        (b"application/octet-stream", b"}\n", False),
        (b"", b"", False),
    ],
)
def test_nothing_follows_half_a_line_or_half_an_event(media_type: bytes, end: bytes, has_words: bool) -> None:
    assert (last_words(media_type, end) is not None) is has_words
