"""The conformance suite of Durable Streams, against a real daemon over `file://` and S3.

TESTS_STREAMS names the directory in which npm installed `@durable-streams/server-conformance-tests`
(`make test-streams SUITE=DIR`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import seglog
from tests.daemons import served

_SUITE = os.environ.get("TESTS_STREAMS", "")
_TESTS = 332
_TIMEOUT_S = 1500
_TEST_TIMEOUT_MS = 120_000  # a long poll takes 20 s
# One test compares 100,000 bytes and blocks Node, on a busy machine for more than 10 s. Then the daemon closes the idle
# connection, and the next `fetch` fails on it.
_IDLE_S = "600"
_ORIGIN = "https://example.com"  # the suite sends a preflight from there


@pytest.mark.soak(part=8)
@pytest.mark.skipif(not (_SUITE and shutil.which("node")), reason="TESTS_STREAMS names no suite, or node is absent")
def test_the_suite_passes_whole(tmp_path: Path, remote: str) -> None:
    modules = Path(_SUITE).absolute() / "node_modules"
    suite = modules / "@durable-streams" / "server-conformance-tests" / "dist" / "index.js"
    seglog.open(tmp_path / "d").close()
    with served(tmp_path / "d", remote, SERVE_ALLOWED_ORIGINS=_ORIGIN, SERVE_HEADER_TIMEOUT_S=_IDLE_S) as daemon:
        root = tmp_path / "suite"
        root.mkdir()
        url = f"http://127.0.0.1:{daemon.port}/streams"
        told = f'import {{ runConformanceTests }} from "{suite}"\nrunConformanceTests({{ baseUrl: "{url}" }})\n'
        (root / "suite.test.mjs").write_text(told)
        result = root / "result.json"
        command = ["node", str(modules / "vitest" / "vitest.mjs"), "run", "--root", str(root), "--reporter=json"]
        options = [f"--outputFile={result}", f"--testTimeout={_TEST_TIMEOUT_MS}"]
        done = subprocess.run([*command, *options], check=False, timeout=_TIMEOUT_S, capture_output=True, text=True)
        assert result.exists(), done.stderr[-2_000:]
        found = [each for file in json.loads(result.read_text())["testResults"] for each in file["assertionResults"]]
    failed = {each["fullName"]: each["failureMessages"] for each in found if each["status"] == "failed"}
    passed = sum(each["status"] == "passed" for each in found)
    print(f"{passed} passed, {len(failed)} failed")
    assert failed == {}, daemon.lines[-20:]
    assert passed >= _TESTS
    assert not any("Traceback" in line for line in daemon.lines)
