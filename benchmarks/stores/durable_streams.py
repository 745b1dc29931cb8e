"""The reference server of Durable Streams, on Node, with its files on the disk to measure. It syncs each append.

`scripts/yardsticks.sh` installs it where there is npm.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.slices import Unavailable

__all__ = ["STREAM", "running", "served"]

STREAM = "/bench"
_BEGIN = "serving "
_JSON = {"Content-Type": "application/json"}
_SERVER = """
const { DurableStreamTestServer } = require("@durable-streams/server");
const server = new DurableStreamTestServer({ port: 0, host: "127.0.0.1", dataDir: process.argv[1] });
server.start().then((url) => console.log("serving " + (url ?? server.baseUrl)));
process.stdin.on("end", () => server.stop().then(() => process.exit(0))).resume();
"""


@contextmanager
def running(directory: Path) -> Iterator[int]:
    """Yield the port of a separate server that has an empty JSON stream. Raises `Unavailable`."""
    with served(directory) as (port, _):
        url = f"http://127.0.0.1:{port}{STREAM}"
        make = urllib.request.Request(url, method="PUT", headers=_JSON)
        urllib.request.urlopen(make).close()  # noqa: S310 - the same
        yield port


@contextmanager
def served(directory: Path) -> Iterator[tuple[int, int]]:
    """Yield the port and the process id of a separate server on the streams of the directory. Raises `Unavailable`."""
    node = shutil.which("node")
    modules = Path(sys.prefix) / "durable-streams"
    if node is None or not (modules / "node_modules").is_dir():
        raise Unavailable("the reference server of Durable Streams is not installed")
    server = subprocess.Popen(
        [node, "-e", _SERVER, str(directory.resolve())],
        cwd=modules, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        address = next((line[len(_BEGIN) :].strip() for line in server.stdout if line.startswith(_BEGIN)), None)
        if address is None:
            raise Unavailable("the reference server of Durable Streams did not start")
        yield int(address.rpartition(":")[2]), server.pid
    finally:
        server.stdin.close()
        server.stdout.close()
        server.wait()
