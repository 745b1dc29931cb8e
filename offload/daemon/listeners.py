"""The sockets of the daemon, the address of each, and the rules for addresses.

    kind        address                    answers
    unix        DIR/seglog.sock            the API, to clients that may open files of the directory
    tcp         serve.host, port           the API, behind the guard
    laminarmq   serve.host, a port each    the routes of laminarmq for one topic, behind the guard
    probes      serve.probe_host           /healthz and /readyz, and /metrics if `probe_metrics` is true. It shows no
                                           record, and names of topics only in metrics

SERVER-1  The Unix socket is DIR/seglog.sock, mode 0600. `offload.daemon.credential_files` has the rules of TCP.
SERVER-2  A daemon removes the socket of an earlier one. It holds the lock on the directory, so the earlier one has
    ended.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

from offload.settings import ServeSettings
from seglog.base.dataclasses import dataclass
from seglog.base.errors import Misuse
from seglog.client.address import SOCKET_FILE, address_in

BACKLOG = 512
_LOOPBACK = "127.0.0.1"


class Kind(Enum):
    UNIX = "unix"
    TCP = "tcp"
    LAMINARMQ = "laminarmq"
    PROBES = "probes"


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket, and its address as text. The routes of laminarmq serve `topic`."""

    kind: Kind
    socket: socket.socket
    address: str
    is_tls: bool = False
    topic: str = ""


@contextmanager
def listening(directory: Path, settings: ServeSettings) -> Iterator[list[Listener]]:
    """Yield the listeners: the Unix socket first, then those of TCP. Close their sockets at the end."""
    with listening_over_unix(directory) as unix, listening_over_tcp(settings) as over_tcp:
        yield [unix, *over_tcp]


@contextmanager
def listening_over_unix(directory: Path) -> Iterator[Listener]:
    """Yield the listener at the Unix socket of a data directory, and close the socket at the end."""
    with _unix_socket(directory) as opened:
        yield Listener(Kind.UNIX, opened, f"unix:{(directory / SOCKET_FILE).absolute()}")


@contextmanager
def listening_over_tcp(settings: ServeSettings) -> Iterator[list[Listener]]:
    """Yield the listeners of TCP, with the API as the last one. Close their sockets at the end."""
    with contextlib.ExitStack() as stack:
        listeners: list[Listener] = []

        def add(kind: Kind, host: str, port: int, *, key: str, is_tls: bool, topic: str = "") -> None:
            opened = stack.enter_context(_tcp_socket(host, port, key))
            name = f"[{host}]" if ":" in host else host
            address = f"{'https' if is_tls else 'http'}://{name}:{opened.getsockname()[1]}"
            address += {Kind.PROBES: " (probes)", Kind.LAMINARMQ: f" (laminarmq {topic})"}.get(kind, "")
            listeners.append(Listener(kind, opened, address, is_tls, topic))

        is_tls = bool(settings.tls_certificate)
        if settings.host:
            for topic, port in settings.laminarmq_ports().items():
                add(Kind.LAMINARMQ, settings.host, port, key="laminarmq", is_tls=is_tls, topic=topic)
        if isinstance(settings.probe_port, int):
            host = settings.probe_host or settings.host or _LOOPBACK
            add(Kind.PROBES, host, settings.probe_port, key="probe_port", is_tls=False)
        if settings.host:
            add(Kind.TCP, settings.host, settings.port, key="port", is_tls=is_tls)
        yield listeners


@contextmanager
def _unix_socket(directory: Path) -> Iterator[socket.socket]:
    """Yield the listening Unix socket, and remove it at the end."""
    path = directory / SOCKET_FILE
    path.unlink(missing_ok=True)  # SERVER-2: this daemon holds the lock
    opened = socket.socket(socket.AF_UNIX)
    try:
        with opened:
            with address_in(directory) as address:
                opened.bind(address)
            path.chmod(0o600)  # no client connects before `listen`. A umask would reach files of other tenants
            opened.listen(BACKLOG)
            opened.setblocking(False)
            yield opened
    finally:
        path.unlink(missing_ok=True)


def _tcp_socket(host: str, port: int, key: str) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        opened = socket.socket(family, kind, protocol)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind(address)
            opened.listen(BACKLOG)
            opened.setblocking(False)
        except BaseException:
            opened.close()
            raise
    except OSError as error:
        hint = f"choose another serve.{key}, or 0 for any that is free"
        raise Misuse(f"cannot listen on {host}:{port}: {error.strerror or error}", hint=hint) from error
    return opened
