"""The Unix socket of the daemon that serves a data directory: its address, and a connection to it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["SOCKET_FILE", "address_in", "connected"]

SOCKET_FILE: Final = "seglog.sock"


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


def connected(directory: Path, *, timeout_s: float | None = None) -> socket.socket:
    """Return a connection, which keeps the time limit.

    Without a daemon, raises `FileNotFoundError` or `ConnectionRefusedError`.
    """
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(timeout_s)
    try:
        with address_in(directory) as address:
            connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection
