"""The address of a daemon, as a user writes it, and the Unix socket of the daemon that serves a data directory.

    https://host:7373         TCP with TLS
    http://host:7373/prefix   TCP; a proxy in front of the daemon may need a prefix
    unix:DIR                  the Unix socket in a data directory of this machine

Only `connected` and `token_in` do I/O.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from seglog.errors import InvalidArgument

if TYPE_CHECKING:
    import socket

_WANTED = "an address as https://host:7373, http://host:7373 or unix:DIR"
_PORTS = {"http": 80, "https": 443}
SOCKET_FILE: Final = "seglog.sock"


class Address(NamedTuple):
    """The address of a daemon. `directory` is that of a Unix socket. Without it, host and port are those of TCP.

    `prefix` stands before each path. It begins with a slash, or is empty.
    """

    text: str
    host: str = "localhost"
    port: int = 0
    is_tls: bool = False
    prefix: str = ""
    directory: str | None = None

    @property
    def authority(self) -> str:
        """Return the host and the port, as a URL has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.port else host


def address_of(url: str) -> Address:
    """Return the address. Raise `InvalidArgument` for a text that is none."""
    if url.startswith("unix:"):
        directory = url.removeprefix("unix:")
        if not directory or "\0" in directory:
            raise InvalidArgument("url", url, _WANTED)
        return Address(url, directory=directory)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidArgument("url", url, f"{_WANTED}: {error}") from None
    is_plain = not (parts.query or parts.fragment or parts.username or parts.password)
    if parts.scheme not in _PORTS or not parts.hostname or not is_plain or not _is_printable(url):
        raise InvalidArgument("url", url, _WANTED)
    prefix = parts.path.rstrip("/")
    return Address(url, parts.hostname, port or _PORTS[parts.scheme], parts.scheme == "https", prefix)


def check_token(token: str | None) -> str | None:
    """Return the token. Raise `InvalidArgument` for a text that no header can carry. The error does not show it."""
    if token is not None and (not token or not _is_printable(token)):
        raise InvalidArgument("token", "...", "printable ASCII without spaces")
    return token


def token_in(file: Path) -> str:
    """Return the token in a file: its only line. Raise `InvalidArgument` as `check_token` does, and `OSError`."""
    token = file.read_bytes().strip().decode("latin-1")
    check_token(token)
    return token


def _is_printable(text: str) -> bool:
    return re.fullmatch(r"[!-~]+", text) is not None


@contextmanager
def address_in(directory: Path) -> Iterator[str]:
    """Yield the address of the socket, for a bind or a connect.

    An address has 108 bytes, and a path may be longer. So the address goes through the directory's descriptor.
    """
    inside = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{inside}/{SOCKET_FILE}"
    finally:
        os.close(inside)


def is_served(directory: Path) -> bool:
    """Return whether a daemon of this machine serves the data directory now."""
    if not os.path.exists(directory / SOCKET_FILE):
        return False
    try:
        connected(directory).close()
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        return False
    return True


def connected(directory: Path, *, timeout_s: float | None = None) -> socket.socket:
    """Return a connection, which keeps the time limit.

    Without a daemon, raises `FileNotFoundError` or `ConnectionRefusedError`.
    """
    import socket

    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(timeout_s)
    try:
        with address_in(directory) as address:
            connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection
