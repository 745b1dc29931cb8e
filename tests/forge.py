"""Daemons that start in a tenth of the time: forks of one process that has imported the program already.

An import of the daemon takes most of a second of CPU time, and a run of the tests starts hundreds of daemons. A fork is
a process like any other: it has its own memory, environment and signals, and SIGKILL ends it. The stories, the demo and
tests/cli/test_secrets.py start the command itself.

The test T, the forge F, and the daemon D:

    1  T starts F with its first daemon. F imports the program, and waits at its standard input.
    2  T writes a line: the arguments, the environment and the path of a FIFO. F forks D, and answers with its pid.
    3  D opens the FIFO as its standard error, and runs `seglog` with the arguments.
    4  T waits for the end of D by a pidfd. Then T asks F for the exit code, and F reaps D.
    5  T ends, and with it the standard input of F. So F ends.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

from tests.costs import saw_start
from tests.seams.aws import load_descriptions, remember_pure_calls
from tests.seams.syncs import spare_pages

__all__ = ["Forged", "forged"]

_ROOT = Path(__file__).parent.parent
_MODULES = (
    "catalog.objects.local",
    "catalog.objects.s3",
    "offload.archive",
    "offload.cli.command_line",
    "offload.cli.execution",
    "offload.cli.start",
    "offload.cli.stdio",
    "offload.daemon.http.tenant_router",
    "offload.daemon.logs",
    "offload.daemon.server",
    "offload.main",
    "seglog.format.dtypes",
    "uvicorn.lifespan.off",
    "uvloop",
)


class Forged:
    """A daemon: the parts of `subprocess.Popen` that tests use. `stderr` is a stream of text."""

    def __init__(self, forge: _Forge, pid: int, stderr: IO[str]) -> None:
        self.pid = pid
        self.stderr = stderr
        self.returncode: int | None = None
        self._forge = forge
        self._handle = os.pidfd_open(pid)
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, or the negative number of the signal. Raises `subprocess.TimeoutExpired`."""
        code = self._ended(None if timeout is None else timeout * 1000)
        if code is None:
            raise subprocess.TimeoutExpired(f"daemon {self.pid}", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._handle, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, limit_ms: float | None) -> int | None:
        with self._lock:
            if self.returncode is None:
                poll = select.poll()
                poll.register(self._handle, select.POLLIN)
                if poll.poll(limit_ms):
                    self.returncode = self._forge.ask(["reap", self.pid])
                    os.close(self._handle)
            return self.returncode


class _Forge:
    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forge"],
            cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._lock = threading.Lock()

    def start(self, arguments: Sequence[str], environment: Mapping[str, str]) -> Forged:
        with tempfile.TemporaryDirectory() as place:
            fifo = f"{place}/stderr"
            os.mkfifo(fifo)
            pid = self.ask(["start", [*arguments], {**environment}, fifo])
            return Forged(self, pid, open(fifo, encoding="utf-8", errors="replace"))

    def ask(self, question: object) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline())


@cache
def _forge() -> _Forge:
    return _Forge()


def forged(arguments: Sequence[str], environment: Mapping[str, str]) -> Forged:
    """Start `seglog` with these arguments, in the project's directory."""
    saw_start("daemon")
    return _forge().start(arguments, environment)


def _serve() -> None:
    """Fork a process for each line of standard input. Return in each of these, with the arguments in place."""
    for name in _MODULES:
        __import__(name)
    spare_pages(setattr)
    remember_pure_calls(setattr)
    load_descriptions()
    gc.collect()
    gc.freeze()
    answers = os.dup(1)
    os.dup2(2, 1)
    for line in sys.stdin:
        kind, *given = json.loads(line)
        if kind == "reap":
            _, status = os.waitpid(given[0], 0)
            os.write(answers, f"{os.waitstatus_to_exitcode(status)}\n".encode())
            continue
        pid = os.fork()
        if not pid:
            os.close(answers)
            _become(*given)
            return
        os.write(answers, f"{pid}\n".encode())
    raise SystemExit


def _become(arguments: list[str], environment: dict[str, str], fifo: str) -> None:
    os.environ.clear()
    os.environ.update(environment)
    nothing, errors = os.open(os.devnull, os.O_RDONLY), os.open(fifo, os.O_WRONLY)
    os.dup2(nothing, 0)
    os.dup2(errors, 2)
    os.close(nothing)
    os.close(errors)
    sys.argv = ["seglog", *arguments]


if __name__ == "__main__":
    _serve()
    from offload.main import main

    main()
