"""Publishing over a wire that loses answers: real requests, a real server, and a front between them that fails.

A store that applies a PUT and then answers 500, or resets, makes an SDK's own retry report a lost race for our own
commit. These tests hold that it never comes to that.
"""

from __future__ import annotations

import http.client
import http.server
import itertools
import socket
import threading
from collections.abc import Iterator
from typing import Literal
from urllib.parse import urlsplit

import pytest

from catalog.control import Control
from catalog.errors import Diverged, OutcomeUnknown
from catalog.keys import commit_key
from catalog.objects import s3 as s3_module
from catalog.objects.s3 import S3Store
from catalog.put_once import TRIES
from catalog.volume import Volumes
from tests.catalog.samples import START_MS
from tests.catalog.test_volume import MAIN, OURS, THEIRS

When = Literal["before", "after"]
How = Literal["500", "reset"]
Plan = dict[int, tuple[When, How]]


class FailingFront:
    """Passes requests on to `endpoint`. `plan` fails the nth PUT of a commit, before or after the server has it."""

    def __init__(self, endpoint: str) -> None:
        self.plan: Plan = {}
        self.puts = 0
        front, inner = self, urlsplit(endpoint)

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                fault = front.fault_of(self.command, self.path)
                if fault is None or fault[0] == "after":
                    connection = http.client.HTTPConnection(inner.hostname or "", inner.port)
                    connection.request(self.command, self.path, body, dict(self.headers))
                    answer = connection.getresponse()
                    status, headers, content = answer.status, answer.getheaders(), answer.read()
                    connection.close()
                if fault is not None and fault[1] == "reset":
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                if fault is not None:
                    status, headers = 500, []
                    content = b"<Error><Code>InternalError</Code><Message>We lost it</Message></Error>"
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in {"connection", "content-length", "transfer-encoding"}:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_HEAD = pass_on  # noqa: N815 - names of the base class

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def fault_of(self, method: str, path: str) -> tuple[When, How] | None:
        if method != "PUT" or "/log/" not in path:
            return None
        self.puts += 1
        return self.plan.get(self.puts)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def front(s3_remote: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FailingFront]:
    opened = FailingFront(s3_endpoint)
    monkeypatch.setenv("AWS_ENDPOINT_URL", opened.url)
    monkeypatch.setattr("catalog.put_once.backoff_s", lambda _: 0.0)
    monkeypatch.setattr(s3_module, "ATTEMPTS", 2)
    yield opened
    opened.close()


@pytest.fixture
def store(s3_remote: str, front: FailingFront) -> Iterator[S3Store]:
    opened = S3Store(s3_remote)
    Volumes(opened).create(Control(MAIN, None, START_MS, "orders", "main"))
    yield opened
    opened.close()


FAULTS: list[tuple[When, How]] = [(when, how) for when in ("before", "after") for how in ("500", "reset")]
PLANS: list[Plan] = [
    *({1: fault} for fault in FAULTS),
    *({1: first, 2: second} for first, second in itertools.product(FAULTS, FAULTS)),
]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_our_own_commit_is_never_taken_for_a_lost_race(store: S3Store, front: FailingFront, plan: Plan) -> None:
    front.plan = plan
    Volumes(store).publish(MAIN, 1, OURS)
    assert store.get(commit_key(MAIN, 1)) == OURS
    landed = next((nth for nth in (1, 2) if plan.get(nth, ("after", ""))[0] == "after"), 3)
    assert front.puts == landed  # one request a try, and no try after it is there


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_anothers_commit_is_never_taken_for_ours(store: S3Store, front: FailingFront, fault: tuple[When, How]) -> None:
    Volumes(store).publish(MAIN, 1, THEIRS)
    front.plan = {2: fault}
    with pytest.raises(Diverged):
        Volumes(store).publish(MAIN, 1, OURS)
    assert store.get(commit_key(MAIN, 1)) == THEIRS
    assert front.puts == 2


def test_a_store_that_keeps_failing_leaves_it_open_and_a_later_run_settles_it(
    store: S3Store, front: FailingFront
) -> None:
    front.plan = dict.fromkeys(range(1, TRIES + 1), ("before", "500"))
    with pytest.raises(OutcomeUnknown):
        Volumes(store).publish(MAIN, 1, OURS)
    assert front.puts == TRIES
    Volumes(store).publish(MAIN, 1, OURS)
    assert store.get(commit_key(MAIN, 1)) == OURS
