"""A daemon in a process of its own, for a benchmark."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Daemon", "command", "running"]

_COMMAND = (sys.executable, "-c", "from offload.main import main; main()", "-C")


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon that runs. It takes HTTP at `port` on loopback."""

    port: int
    process: subprocess.Popen[str]


@contextmanager
def running(directory: Path, *, proxy: str | None = None, **variables: str) -> Iterator[Daemon]:
    """Run `seglog serve`, and stop it at the end. A new directory is made first. `variables` have no prefix SEGLOG_.

    With `proxy`, the daemon is a proxy of that remote.
    """
    if proxy is None and not directory.exists():
        subprocess.run([*_COMMAND, str(directory), "init"], check=True, stdout=subprocess.DEVNULL)
    given = {"SEGLOG_SERVE_PORT": "0", **{f"SEGLOG_{name}": text for name, text in variables.items()}}
    options = () if proxy is None else ("--proxy", proxy)
    process = subprocess.Popen(
        [*_COMMAND, str(directory), "serve", *options], env={**os.environ, **given}, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        yield Daemon(_port(process), process)
    finally:
        process.terminate()
        process.stderr.close()
        process.wait()


def command(port: int, path: str, **values: Any) -> list[dict[str, Any]]:
    """Run a command of the daemon, and return its results. Raise `RuntimeError` for a refusal."""
    with closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        connection.request("POST", f"/rpc/{path}", json.dumps(values), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {body[:300]!r}")
        return [json.loads(line) for line in body.splitlines()]


def _port(process: subprocess.Popen[str]) -> int:
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("seglog: serving ") and "http" in line:
            return int(line.strip().rpartition(":")[2])
    raise RuntimeError("the daemon did not start")
