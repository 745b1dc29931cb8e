"""An answer that no daemon gives is refused, whatever call it answers: a proxy or a captive portal may give it."""

from __future__ import annotations

import asyncio
import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.client import Client, aio
from seglog.client.answers import error_of, failure_of
from seglog.client.connections import Answer, Request
from seglog.errors import DaemonError

PAGE = b"<html><body>Welcome to the hotel. Please log in.</body></html>"


class _Portal(http.server.BaseHTTPRequestHandler):
    def _welcome(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(PAGE)

    do_GET = do_POST = do_HEAD = _welcome  # noqa: N815 - the names of http.server

    def log_message(self, *_said: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Portal) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


CALLS: dict[str, Callable[[Any], Any]] = {
    "topics": lambda client: client.topics(),
    "append": lambda client: client.topic("t").append([b"x"]),
    "bounds": lambda client: client.topic("t").bounds(),
    "read": lambda client: client.topic("t").read(),
    "follow": lambda client: client.topic("t").follow(timeout_s=9),
    "truncate": lambda client: client.topic("t").truncate(1),
    "delete": lambda client: client.topic("t").delete(before=2),
    "seal": lambda client: client.topic("t").seal(),
    "offload": lambda client: client.archive.offload("t"),
    "branches": lambda client: client.archive.branches.list("t"),
    "rename": lambda client: client.archive.branches.rename_branch("t", "a", "b"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_page_of_a_portal_is_no_answer_of_a_daemon(url: str, name: str) -> None:
    async def in_loop() -> None:
        async with aio.connect(url) as client:
            found = CALLS[name](client)
            with pytest.raises(seglog.DaemonError, match="is not of a daemon"):
                await (anext(found) if hasattr(found, "__anext__") else found)

    def call(client: Client) -> None:
        found = CALLS[name](client)
        if isinstance(found, Iterator):
            next(found)

    with seglog.connect(url) as client, pytest.raises(seglog.DaemonError, match="is not of a daemon"):
        call(client)
    asyncio.run(in_loop())


def test_an_error_comes_with_the_fields_that_the_daemon_tells() -> None:
    told = (
        b'{"class": "seglog.errors.DiskFull", "detail": "no space", "hint": "free some", '
        b'"fields": {"path": "/d", "operation": "a"}}'
    )
    error = error_of(Request("GET", "/"), Answer(507, {}, told), "there")
    assert isinstance(error, seglog.DiskFull)
    assert (str(error), error.hint, str(error.path), error.operation) == ("no space", "free some", "/d", "a")


def test_a_path_of_an_error_is_a_path_as_in_a_log() -> None:
    for error in (
        seglog.SameFile(Path("/hot"), Path("/warm")),
        seglog.SameFile(Path("/hot"), None),
        seglog.WarmDirectoryNotApart(Path("/warm"), Path("/data"), "why"),
        seglog.DirectoryInUse(Path("/data"), "a program"),
    ):
        report = {"class": f"seglog.errors.{type(error).__name__}", "detail": str(error), "fields": error.fields()}
        there = error_of(Request("GET", "/"), Answer(409, {}, json.dumps(report).encode()), "there")
        assert type(there) is type(error)
        assert {**vars(there), "hint": error.hint, "__notes__": error.__notes__} == vars(error)


@pytest.mark.parametrize("path", [b"7", b"[]", b'{"a": 1}', b"true"])
def test_a_path_that_is_no_text_is_an_error_of_the_daemon(path: bytes) -> None:
    body = b'{"class": "seglog.errors.DirectoryInUse", "detail": "why", "fields": {"path": %s, "holder": "a"}}' % path
    error = error_of(Request("GET", "/"), Answer(409, {}, body), "there")
    assert isinstance(error, seglog.DaemonError)
    assert str(error) == "why"


@pytest.mark.parametrize(
    ("given", "told"),
    [(1e300, 1e300), (float("nan"), "nan"), (float("-inf"), "-inf"), ("x" * 9999, "x" * 4096), (b"x", "b'x'")],
)
def test_the_fields_of_an_error_fit_into_an_answer(given: object, told: object) -> None:
    fields = seglog.InvalidArgument("seq", given, "a seq").fields()
    assert fields["given"] == told
    assert json.loads(json.dumps(fields, allow_nan=False)) == fields


def test_a_report_without_a_class_is_an_error_of_the_daemon() -> None:
    error = error_of(Request("GET", "/"), Answer(400, {}, b'{"title": "NoSuchTopic", "detail": "why"}'), "there")
    assert isinstance(error, seglog.DaemonError)
    assert (str(error), error.title, error.status) == ("why", "NoSuchTopic", 400)
    assert str(failure_of({"message": "why", "error": "NoSuchTopic"})) == "why"


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("seglog.errors.DaemonError", {}),
        ("seglog.errors.annotations", {}),
        ("seglog.errors.SeglogError", {"told": 1}),
        ("seglog.errors.SeglogError", {"__notes__": []}),
        ("os.path.join", {}),
    ],
)
def test_a_report_of_an_odd_class_is_an_error_of_the_daemon(name: str, fields: dict[str, object]) -> None:
    body = json.dumps({"title": "Odd", "detail": "why", "class": name, "fields": fields}).encode()
    error = error_of(Request("GET", "/"), Answer(404, {}, body), "there")
    assert (type(error), getattr(error, "title", None), str(error)) == (DaemonError, "Odd", "why")


def test_a_foreign_package_of_the_name_is_not_imported(tmp_path: Path) -> None:
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog" / "__init__.py").write_text("")
    (tmp_path / "catalog" / "errors.py").write_text("print('imported')\n")
    program = """if True:
        import warnings
        warnings.simplefilter("ignore")
        from seglog.client.answers import error_of
        from seglog.client.connections import Answer, Request
        body = b'{"title": "NoSuchPin", "detail": "why", "class": "catalog.errors.NoSuchPin", "fields": {"pin": "p"}}'
        print(type(error_of(Request("GET", "/"), Answer(404, {}, body), "there")).__name__)
    """
    told = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, check=True).stdout
    assert told == b"DaemonError\n"
