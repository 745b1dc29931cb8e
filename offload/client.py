"""A client of a daemon, for the command line: over DIR/seglog.sock, or over TCP to another machine.

Every command asks whether there is a daemon. `http.client` takes a tenth of the time of a command, so only a request
imports it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from offload.operations.codec import decode
from offload.operations.command import Command
from offload.wire import LINES_HEADER, LINES_TYPE, MESSAGE_HEAD, STREAM_TYPE, VALUES_TYPE, encode_values
from seglog.base.arguments import checked
from seglog.client.address import SOCKET_FILE, connected
from seglog.errors import DaemonError, DaemonGone
from seglog.format.lines import Lines

if TYPE_CHECKING:
    import http.client

    from seglog.client.address import Address

__all__ = ["DaemonClient", "RemoteTopic"]

_CONNECT_S = 10.0


class DaemonClient:
    """A client, made by `of` or `at`. Each call opens a connection of its own.

    `place` is the directory of the Unix socket, or the address of TCP.
    """

    def __init__(self, place: Path | Address, token: str | None = None) -> None:
        self._place = place
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    @classmethod
    @checked
    def of(cls, directory: Path) -> DaemonClient | None:
        """Return a client, or None if no daemon serves the directory now."""
        client = cls(directory)
        try:
            connected(directory).close()
        except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
            return None
        return client

    @classmethod
    @checked
    def at(cls, url: str, token: str | None = None) -> DaemonClient:
        """Return a client of the daemon at `https://host:7373`, `http://host:7373` or `unix:DIR`.

        Raises `InvalidArgument`. It connects with the first request.
        """
        from seglog.client.address import address_of, check_token

        address = address_of(url)
        return cls(address if address.directory is None else Path(address.directory), check_token(token))

    def results(
        self,
        command: Command,
        values: Mapping[str, Any],
        *,
        remote: str | None,
        takes_lines: bool = False,
        on_progress: Callable[[str, int | None, int, str], None] = lambda _title, _total, _done, _unit: None,
    ) -> Iterator[Any]:
        """Run a command in the daemon, and yield its results. Raises `DaemonError` for its error, and `DaemonGone`.

        `on_progress` gets the title of an operation or of a phase, the total or None, and the part done so far. It also
        gets the unit: `bytes`, or a noun. With `takes_lines`, records may come as lines alone.
        """
        headers = {"Accept": STREAM_TYPE, "Content-Type": "application/json"}
        if remote is not None:
            headers["Seglog-Remote"] = remote
        if takes_lines:
            headers[LINES_HEADER] = "1"
        with self._request("POST", f"/rpc/{command.path}", json.dumps(values).encode(), headers) as answer:
            while True:
                kind, body = self._message(answer)
                if kind == b"x":
                    _check_end(json.loads(body))
                    return
                if kind == b"p":
                    on_progress(*json.loads(body))
                    continue
                if kind != b"r":
                    raise self._gone(ValueError(f"a message of the kind {kind!r}, as of another version"))
                yield decode(body, command.results)

    def tenants(self) -> list[dict[str, str]]:
        """Return the tenants of a daemon of many, as GET /tenants does. Raises `DaemonError`, `DaemonGone`."""
        try:
            with self._request("GET", "/tenants", b"", {}) as answer:
                told: list[dict[str, str]] = json.loads(self._exactly(answer, None))["tenants"]
                return told
        except DaemonError as error:
            if error.status != 404:
                raise
            reason, hint = "this daemon serves one directory, and has no tenants", "`seglog serve --tenants` has some"
            raise DaemonError(reason, 3, hint=hint, title="NoTenants", status=404) from error

    @checked
    def topic(self, name: str) -> RemoteTopic:
        return RemoteTopic(self, name)

    def append(self, topic: str, values: Sequence[bytes], labels: Mapping[str, str]) -> range:
        """Append to a topic, all or none, and return the seqs. Raises `DaemonError`, `DaemonGone`."""
        path = f"/topics/{quote(topic, safe='')}/records?{urlencode({'whole': '1', **labels})}"
        if isinstance(values, Lines):
            kind, body = LINES_TYPE, values.text
        else:
            kind, body = VALUES_TYPE, encode_values(values)
        with self._request("POST", path, body, {"Content-Type": kind}) as answer:
            said = json.loads(self._exactly(answer, None))
        return range(said["first_seq"], said["last_seq"] + 1) if said["appended"] else range(0)

    @contextmanager
    def _request(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> Iterator[http.client.HTTPResponse]:
        import http.client

        with closing(self._connection()) as connection:
            try:
                if isinstance(self._place, Path):
                    connection.sock = connected(self._place)
                else:
                    _connect(connection)
                    path = self._place.prefix + path
                connection.request(method, path, body, {**self._headers, **headers})
                answer = connection.getresponse()
            except (http.client.HTTPException, OSError) as error:
                raise self._gone(error) from error
            with answer:
                if answer.status >= 400:
                    from seglog.client.answers import refusal_of

                    raise refusal_of(answer.status, self._exactly(answer, None))
                yield answer

    def _connection(self) -> http.client.HTTPConnection:
        """Return a connection that is not open yet."""
        import http.client

        if isinstance(self._place, Path):
            return http.client.HTTPConnection("localhost")
        host, port = self._place.host, self._place.port
        if not self._place.is_tls:
            return http.client.HTTPConnection(host, port, timeout=_CONNECT_S)
        import ssl

        return http.client.HTTPSConnection(host, port, timeout=_CONNECT_S, context=ssl.create_default_context())

    def _message(self, answer: http.client.HTTPResponse) -> tuple[bytes, bytes]:
        kind, length = MESSAGE_HEAD.unpack(self._exactly(answer, MESSAGE_HEAD.size))
        return kind, self._exactly(answer, length)

    def _exactly(self, answer: http.client.HTTPResponse, length: int | None) -> bytes:
        """Read `length` bytes, or all if it is None. If the daemon ends before that, raise `DaemonGone`."""
        import http.client

        try:
            body = answer.read(length)
        except (http.client.HTTPException, OSError) as error:
            raise self._gone(error) from error
        if length is not None and len(body) != length:
            raise self._gone(EOFError("it closed the connection"))
        return body

    def _gone(self, error: Exception) -> DaemonGone:
        place = self._place / SOCKET_FILE if isinstance(self._place, Path) else self._place.text
        return DaemonGone(str(place), str(error) or type(error).__name__)


class RemoteTopic:
    """A topic of the daemon's log, for appends."""

    def __init__(self, client: DaemonClient, name: str) -> None:
        self._client = client
        self._name = name

    @checked
    def append(
        self,
        values: Lines | Sequence[bytes],
        *,
        tag: str | None = None,
        node: str | None = None,
        unterminated: bool = False,
        durability: str | None = None,
    ) -> range:
        """Append as `Topic.append` does, and return the seqs. Without values, return an empty range from 0.

        Raises `InvalidArgument`, `DaemonError` and `DaemonGone`. After `DaemonGone`, the caller cannot know what was
        appended.
        """
        labels = {"tag": tag, "node": node, "durability": durability, "unterminated": "1" if unterminated else None}
        return self._client.append(self._name, values, {key: text for key, text in labels.items() if text is not None})


def _connect(connection: http.client.HTTPConnection) -> None:
    """Connect within a time limit. A command may then be silent for long, so the system looks for the other machine."""
    import socket

    connection.connect()
    connection.sock.settimeout(None)
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3)):
        connection.sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _check_end(said: dict[str, Any]) -> None:
    """Raise `DaemonError` if the command failed."""
    if "message" in said:
        raise DaemonError(said["message"], said["exit_code"], hint=said.get("hint"), title=said.get("error"))
