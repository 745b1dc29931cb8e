"""Real daemons, each a process of its own, that tests call over HTTP."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.forge import forged
from tests.waiting import wait_until

__all__ = ["ServedDirectory", "served", "served_tenants"]

_TIMEOUT_S = 120


class ServedDirectory:
    """A running daemon. `lines` are its lines on standard error."""

    start: Callable[[Sequence[str], Mapping[str, str]], Any] = staticmethod(forged)

    def __init__(self, directory: Path, variables: dict[str, str], *options: str) -> None:
        given = {"SEGLOG_SERVE_PORT": "0", "SEGLOG_SERVE_CHECK_INTERVAL_MS": "50", **variables}
        self.process = self.start(["-C", str(directory), "serve", *options], {**os.environ, **given})
        self.directory = directory
        self.lines: list[str] = []
        self._port = ""
        self._ready = threading.Event()
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()
        assert self._ready.wait(_TIMEOUT_S)
        assert self._port, "".join(self.lines)

    @property
    def port(self) -> int:
        return int(self._port)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """Send a request over TCP. Return the status, the body and the headers, whose names are in lower case."""
        connection = (
            http.client.HTTPSConnection("localhost", self.port, timeout=_TIMEOUT_S, context=tls)
            if tls
            else http.client.HTTPConnection("127.0.0.1", self.port, timeout=_TIMEOUT_S)
        )
        with closing(connection):
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read(), {name.lower(): text for name, text in answer.getheaders()}

    def port_of(self, name: str) -> int:
        """Return the port of another listener, by its name in the first line: `probes` or `laminarmq TOPIC`."""
        [found] = re.findall(rf":(\d+) \({re.escape(name)}\)", "".join(self.lines))
        return int(found)

    def terminate(self) -> None:
        """Send SIGTERM, and wait until the daemon has seen it."""
        self.process.terminate()
        wait_until(lambda: any("stopping" in line for line in self.lines))

    def append(self, topic: str, value: bytes) -> int:
        """Append a record and return its seq."""
        headers = {"Content-Type": "application/octet-stream"}
        return int(self._ask(f"/topics/{topic}/records", value, headers)[0]["first_seq"])

    def get(self, path: str) -> list[dict[str, Any]]:
        return self._ask(path, None, {})

    def call(self, command: str, **given: object) -> list[dict[str, Any]]:
        """Run a command and return its output, an object a line. An error is one object with a `title`."""
        return self._ask(f"/rpc/{command}", json.dumps(given).encode(), {"Content-Type": "application/json"})

    def call_over_socket(self, command: str, **given: object) -> list[dict[str, Any]]:
        """Run a command over the Unix socket, which asks for no token."""
        return self._post_over_socket(f"/rpc/{command}", json.dumps(given).encode(), "application/json")

    def append_over_socket(self, topic: str, value: bytes) -> int:
        """Append a record over the Unix socket, and return its seq."""
        found = self._post_over_socket(f"/topics/{topic}/records", value, "application/octet-stream")
        return int(found[0]["first_seq"])

    def _post_over_socket(self, path: str, body: bytes, media_type: str) -> list[dict[str, Any]]:
        with closing(http.client.HTTPConnection("localhost", timeout=_TIMEOUT_S)) as connection:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(str(self.directory / "seglog.sock"))
            connection.request("POST", path, body, {"Content-Type": media_type})
            return [json.loads(line) for line in connection.getresponse().read().splitlines()]

    def values(self, topic: str) -> list[str]:
        return [each["value"] for each in self.call("read", topic=topic)]

    def status(self, topic: str) -> dict[str, Any]:
        [found] = self.call("status", topic=topic)
        return found

    def kill(self) -> None:
        """Send SIGKILL, so that no cleanup runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(_TIMEOUT_S)
        self._listener.join(_TIMEOUT_S)
        self.process.stderr.close()

    def _ask(self, path: str, body: bytes | None, headers: dict[str, str]) -> list[dict[str, Any]]:
        request = urllib.request.Request(f"http://127.0.0.1:{self._port}{path}", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - our own daemon
                return [json.loads(line) for line in answer.read().splitlines()]
        except urllib.error.HTTPError as error:
            with error:
                return [json.loads(error.read())]

    def _listen(self) -> None:
        for line in self.process.stderr:
            self.lines.append(line)
            if line.startswith("seglog: serving ") and "http" in line:
                self._port = line.strip().rpartition(":")[2]
                self._ready.set()
        self._ready.set()


@contextmanager
def served_tenants(root: Path, **variables: str) -> Iterator[ServedDirectory]:
    """Run a daemon on all directories below `root`. `variables` is its environment, without the prefix SEGLOG_."""
    daemon = ServedDirectory(root, {f"SEGLOG_{name}": text for name, text in variables.items()}, "--tenants")
    try:
        yield daemon
    finally:
        daemon.kill()


@contextmanager
def served(directory: Path, remote: str, **variables: str) -> Iterator[ServedDirectory]:
    """Run a daemon on an existing directory. `variables` is its environment, without the prefix SEGLOG_."""
    given = {f"SEGLOG_{name}": text for name, text in variables.items()}
    daemon = ServedDirectory(directory, {"SEGLOG_REMOTE": remote, **given})
    try:
        yield daemon
    finally:
        daemon.kill()
