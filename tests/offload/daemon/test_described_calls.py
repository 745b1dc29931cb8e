"""Calls that the OpenAPI document describes, right ones and wrong ones, get no 5xx from a running daemon.

schemathesis makes the calls. TESTS_SCHEMATHESIS names its program (`make test-http`). Each operation gets as many
examples, so the work is bounded.

The document that schemathesis reads lacks the options that make a call wait, and the endless `/daemon/events`. Each
call with them would take until its time limit, and so the whole run ten times as long. Those of reads have calls of
their own here. The document also lacks the two forms of a body that schemathesis cannot write. Its names are few, so
that many calls are about a topic, a branch or a stream that exists.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import re
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import seglog
from seglog.client.bodies import LINES_TYPE, VALUES_TYPE
from tests.daemons import ServedDirectory, served
from tests.work import run_seed, tell

_PROGRAM = os.environ.get("TESTS_SCHEMATHESIS", "")
_EXAMPLES = 20
_WAITS = {"follow", "wait_s", "live"}
_WAITS_OF_COMMANDS = {"follow", "wait", "watch"}
_ENDLESS = "/daemon/events"
_NAMES = {
    "topic": ["orders", "orders@eu", "web", "no topic"],
    "branch": ["orders@eu", "eu", "us"],
    "path": ["a", "a/b"],
    "Stream-Forked-From": ["/streams/a", "/streams/no"],
}
_ODD = ("", "0", "1", "true", "-1", "61", "1.5", "nan", "1e3", "x", "\0", "é", "9" * 400, "long-poll", "sse")


@pytest.mark.soak(part=3)
@pytest.mark.skipif(not _PROGRAM, reason="TESTS_SCHEMATHESIS names no program: `make test-http` does it")
def test_no_described_call_ends_in_an_error_of_the_daemon(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "data") as log:
        log.topic("orders").append([b"one", b"two", b"three"])
    with served(tmp_path / "data", (tmp_path / "remote").as_uri(), SERVE_BODY_TIMEOUT_S="5") as daemon:
        document = json.loads(daemon.ask("GET", "/openapi.json")[1])
        (tmp_path / "openapi.json").write_text(json.dumps(_for_schemathesis(document)))
        done = subprocess.run(
            [
                _PROGRAM, "run", "openapi.json", "--url", f"http://127.0.0.1:{daemon.port}",
                "--checks", "not_a_server_error", "--seed", str(run_seed()), "--max-examples", str(_EXAMPLES),
                "--phases", "examples,coverage,fuzzing", "--request-timeout", "30", "--generation-database", "none",
                "--no-color", "--continue-on-failure",
            ],
            cwd=tmp_path, capture_output=True, text=True, check=False, timeout=2_400,
        )  # fmt: skip
        lines = list(daemon.lines)
    [generated] = re.findall(r"([\d,]+) generated", done.stdout) or [""]
    assert done.returncode == 0, done.stdout[-4_000:]
    assert int(generated.replace(",", "")) > 1_000, done.stdout[-4_000:]
    assert not [line for line in lines if "Traceback" in line], "".join(lines)[-4_000:]
    tell(f"{generated} calls that the OpenAPI document describes: no answer from 500 on, no traceback")


def _for_schemathesis(document: dict[str, Any]) -> dict[str, Any]:
    document["paths"].pop(_ENDLESS)
    for operation in [each for path in document["paths"].values() for each in path.values()]:
        operation["parameters"] = [each for each in operation["parameters"] if each["name"] not in _WAITS]
        for each in operation["parameters"]:
            _limit(each["name"], each["schema"])
        bodies = operation.get("requestBody", {}).get("content", {})
        for kind in (LINES_TYPE, VALUES_TYPE):
            bodies.pop(kind, None)
        options = bodies.get("application/json", {}).get("schema", {}).get("properties", {})
        for name in _WAITS_OF_COMMANDS:
            options.pop(name, None)
        for name, schema in options.items():
            _limit(name, schema)
    return document


def _limit(name: str, schema: dict[str, Any]) -> None:
    """Limit the texts with that name to some that may exist."""
    if name in _NAMES:
        schema |= {"enum": _NAMES[name]}
        schema.pop("pattern", None)


def test_parameters_that_wait_are_refused_or_answered_whatever_their_value(tmp_path: Path) -> None:
    """Read the head of each answer only, because the rest may not end."""
    with seglog.open(tmp_path / "data") as log:
        log.topic("orders").append([b"one"])
    with served(tmp_path / "data", (tmp_path / "remote").as_uri()) as daemon:
        daemon.ask("PUT", "/streams/s", b"x", {"Content-Type": "text/plain"})
        found = {
            (path, name, value): _status(daemon, f"{path}?{name}={quote(value)}")
            for path, name, value in itertools.product(
                ("/topics/orders/records", "/topics/nothing/records", "/streams/s?offset=-1&"), sorted(_WAITS), _ODD
            )
        }
        assert not [line for line in daemon.lines if "Traceback" in line], daemon.lines
    assert not {given: status for given, status in found.items() if status >= 500}
    assert {200, 400, 404} <= set(found.values())


def _status(daemon: ServedDirectory, path: str) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=120)) as connection:
        connection.request("GET", path.replace("&?", "&"))
        return connection.getresponse().status
