"""Each call of docs/http.md does what the page says, on a real daemon.

```sh            the calls. The address of the page becomes that of the daemon
```json, ```text the output of the block before. `…` stands for anything within a line, and a line with nothing else
                 for any lines
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import seglog
from offload.daemon.http.openapi import OPERATIONS
from tests.daemons import ServedDirectory, served, served_tenants
from tests.waiting import wait_until

PAGE = Path(__file__).resolve().parent.parent / "docs" / "http.md"
_PART = re.compile(r"^```(sh|json|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ADDRESS = "http://127.0.0.1:7373"


@pytest.mark.long
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_each_call_of_the_page_has_the_answer_that_it_shows(tmp_path: Path) -> None:
    seglog.open(tmp_path / "data").close()
    of_one, _, of_many = PAGE.read_text().partition("## Many tenants")
    of_writer, heading, of_proxy = of_one.partition("## Objects of a proxy")
    assert heading
    given, remote = {"OFFLOAD_OFFLOAD_AFTER_S": "never"}, (tmp_path / "remote").as_uri()
    with served(tmp_path / "data", remote, **given) as daemon:
        assert _run(of_writer, daemon, tmp_path) >= 12
    with served(tmp_path / "data", remote, **given, SERVE_PROXY="true", CATALOG_SYNC_INTERVAL_S="1") as daemon:
        wait_until(lambda: daemon.ask("GET", "/topics/orders/forward?since=99")[0] == 204)
        assert _run(of_proxy, daemon, tmp_path) >= 3
    for name in ("acme", "globex"):
        seglog.open(tmp_path / "root" / name).close()
    with served_tenants(tmp_path / "root") as daemon:
        assert _run(of_many, daemon, tmp_path) >= 2


@pytest.mark.long
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_each_call_of_the_page_of_queues_has_the_answer_that_it_shows(tmp_path: Path) -> None:
    seglog.open(tmp_path / "data").close()
    with served(tmp_path / "data", "") as daemon:
        assert _run((PAGE.parent / "queues.md").read_text(), daemon, tmp_path) == 1


def _run(page: str, daemon: ServedDirectory, directory: Path) -> int:
    """Run the calls of a page, and compare their output. Return how many blocks of them it has."""
    said, count = "", 0
    for kind, text in _PART.findall(page):
        if kind == "sh":
            calls = text.replace(_ADDRESS, f"http://127.0.0.1:{daemon.port}")
            assert "7373" not in calls
            done = subprocess.run(
                ["sh", "-e", "-c", calls], cwd=directory, capture_output=True, text=True, check=False, timeout=60
            )
            assert done.returncode == 0, (text, done.stderr)
            said, count = done.stdout.replace("\r\n", "\n"), count + 1
        else:
            assert re.fullmatch(_pattern(text), said), f"{text}\n---\n{said}"
    return count


def test_the_page_names_each_route() -> None:
    text = PAGE.read_text()
    calls = [(each.method, each.path) for each in OPERATIONS if each.method != "HEAD"]
    for method, path in (*calls, ("POST", "/rpc/{command}"), ("POST", "/topics/{topic}/rpc/{command}")):
        if not path.startswith("/streams/"):
            assert f"{method} {path}" in text, (method, path)


def _pattern(text: str) -> str:
    lines = ("(.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + "\n" for line in text.splitlines())
    return "".join(lines) + "?"
