"""`seglog serve` as a process: its sockets, its signals, its end.

    signal             what the daemon does
    SIGTERM, SIGINT    It takes no more connections, and lets running requests end (stop_timeout_s). It stops the
                       offload at its next step, makes everything durable, and ends with exit code 0.
    the same again     It ends at once, as a kill does. Attempts stay on record, and the next start runs recovery.
    SIGHUP             It reads its settings again (`Service.reload`), its tokens and its certificate (`Access.reload`).

SERVER-1  The Unix socket is DIR/seglog.sock, mode 0600. The file `offload.daemon.access` has the rules of TCP.
SERVER-2  A daemon removes the socket of an earlier one. It holds the lock on the directory, so the earlier one has
    ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from offload.daemon.access import Access
from offload.daemon.event_loop import event_loop
from offload.daemon.guard import BROKEN, Guard
from offload.daemon.http import make_app
from offload.daemon.service import Service, open_service
from offload.errors import InvalidAddress
from offload.settings import ServeSettings
from offload.settings_file import Settings
from seglog.client.unix_socket import SOCKET_FILE, address_in

__all__ = ["announce", "run"]

_BACKLOG = 512
_ABORT_AFTER_S = 1
_log = logging.getLogger("seglog.daemon")


def run(
    directory: Path,
    settings: Settings,
    *,
    remote: str | None,
    variables: Mapping[str, str],
    on_ready: Callable[[list[str], str], None],
) -> None:
    """Serve `directory` until a signal stops the daemon.

    Once the daemon takes requests, call `on_ready` with its addresses and the name of its event loop. `variables` is
    the environment, for a reload. Raises `InvalidAddress`, `InvalidSetting`, and the errors of opening the log.
    """
    loop = event_loop()
    with asyncio.Runner(loop_factory=loop.make) as runner:
        runner.run(_run(directory, settings, remote, variables, lambda addresses: on_ready(addresses, loop.name)))


async def _run(
    directory: Path,
    settings: Settings,
    remote: str | None,
    variables: Mapping[str, str],
    on_ready: Callable[[list[str]], None],
) -> None:
    serve = settings.serve
    access = Access(serve)
    service = await open_service(directory, settings, remote=remote)
    try:
        with _sockets(directory, serve) as (sockets, addresses):
            await _serve(service, sockets, serve, access, variables, lambda: on_ready(addresses))
    finally:
        await service.close()


async def _serve(
    service: Service,
    sockets: list[socket.socket],
    settings: ServeSettings,
    access: Access,
    variables: Mapping[str, str],
    on_ready: Callable[[], None],
) -> None:
    guard = Guard(make_app(service), lambda: service.settings, lambda: access.tokens, service.metrics)
    servers = [_server(guard, listening, settings) for listening in sockets]
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if service.stopping.is_set():
            os._exit(128 + signal.SIGTERM)
        _log.info("stopping")
        service.stopping.set()
        for server in servers:
            server.should_exit = True

    def reload() -> None:
        service.reload(variables)
        access.reload(service.settings, [server.config.ssl for server in servers if server.config.ssl])

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, reload)
    service.start()
    serving = [
        asyncio.create_task(server.serve(sockets=[listening]))
        for server, listening in zip(servers, sockets, strict=True)
    ]
    try:
        while not all(server.started for server in servers) and not any(task.done() for task in serving):
            await asyncio.sleep(0.005)
        if not any(task.done() for task in serving):  # else a server failed, for example on an unreadable certificate
            on_ready()
        await asyncio.gather(*serving)
    finally:
        for server in servers:
            _close(server)


def _close(server: uvicorn.Server) -> None:
    """Close all that a server has left open, after a failure or `stop_timeout_s`.

    The loop of uvloop ends only when each of its sockets is closed.
    """
    for listener in getattr(server, "servers", ()):
        listener.close()
    for connection in tuple(server.server_state.connections):
        connection.transport.abort()


def _server(guard: Guard, listening: socket.socket, settings: ServeSettings) -> uvicorn.Server:
    is_unix = listening.family == socket.AF_UNIX
    is_tls = bool(settings.tls_certificate) and not is_unix

    class TimedProtocol(_TimedProtocol):
        header_timeout_s = settings.header_timeout_s
        reader_timeout_s = settings.body_timeout_s

    config = uvicorn.Config(
        guard.over_unix if is_unix else guard.over_tcp,
        http=TimedProtocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        backlog=_BACKLOG,
        timeout_keep_alive=settings.header_timeout_s,
        timeout_graceful_shutdown=settings.stop_timeout_s,
        ssl_certfile=settings.tls_certificate if is_tls else None,
        ssl_keyfile=settings.tls_key or None if is_tls else None,
    )
    return _Server(config)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to `_serve`, where one signal ends both servers and the service."""
        yield


class _TimedProtocol(H11Protocol):
    """HTTP/1.1 with two timeouts: for a request to arrive up to its body, and for the client to take its answer.

    If a body breaks off, but the connection can still carry an answer, the guard gets to know (`BROKEN`). So the answer
    of an append says which records are in.

    If a request is late, it closes the connection. A close waits until the client takes the buffered bytes, so an abort
    follows. If the client takes no byte of its answer, only the abort comes.
    """

    header_timeout_s: float
    reader_timeout_s: float
    _reader_timer: asyncio.TimerHandle | None = None

    def eof_received(self) -> bool:  # type: ignore[override]  # as asyncio has it
        """Keep the connection open for the answer to a body that broke off."""
        return self._breaks_off()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP, unless the request that they break has an answer of its own."""
        if not self._breaks_off():
            super().send_400_response(msg)

    def _breaks_off(self) -> bool:
        """Return whether a request waits for the rest of its body. If so, its body ends here."""
        cycle = self.cycle
        if cycle is None or cycle.response_started or not (cycle.more_body or BROKEN in cycle.scope):
            return False
        cycle.scope[BROKEN] = True  # type: ignore[literal-required]
        cycle.more_body = cycle.keep_alive = False
        cycle.message_event.set()
        return True

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait_for_headers()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_headers()

    def _wait_for_headers(self) -> None:
        before = self.cycle
        self.loop.call_later(self.header_timeout_s, self._close_if_still, before)

    def _close_if_still(self, before: Any) -> None:
        is_idle = before is None or before.response_complete  # else a pipelined request is still at work
        if self.cycle is before and is_idle and not self.transport.is_closing():
            self.transport.close()
            self._abort_later()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._abort_later()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._abort_later()

    def resume_writing(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
        super().resume_writing()

    def _abort_later(self) -> None:
        # The guard's timeout comes first: the guard counts the slow client and ends the request.
        self._reader_timer = self.loop.call_later(self.reader_timeout_s + _ABORT_AFTER_S, self.transport.abort)


@contextmanager
def _sockets(directory: Path, settings: ServeSettings) -> Iterator[tuple[list[socket.socket], list[str]]]:
    """Yield the listening sockets and their addresses: the Unix socket, and a TCP socket if a host is set."""
    path = directory / SOCKET_FILE
    with contextlib.ExitStack() as stack:
        unix = stack.enter_context(_unix_socket(directory))
        found, addresses = [unix], [f"unix:{path.absolute()}"]
        if settings.host:
            tcp = stack.enter_context(_tcp_socket(settings))
            scheme = "https" if settings.tls_certificate else "http"
            host = f"[{settings.host}]" if ":" in settings.host else settings.host
            found.append(tcp)
            addresses.append(f"{scheme}://{host}:{tcp.getsockname()[1]}")
        yield found, addresses


@contextmanager
def _unix_socket(directory: Path) -> Iterator[socket.socket]:
    """Yield the listening Unix socket, and remove it at the end."""
    path = directory / SOCKET_FILE
    path.unlink(missing_ok=True)  # SERVER-2: this daemon holds the lock
    listening = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o177)
    try:
        with address_in(directory) as address:
            listening.bind(address)
    finally:
        os.umask(mask)
    try:
        with listening:
            listening.listen(_BACKLOG)
            yield listening
    finally:
        path.unlink(missing_ok=True)


def _tcp_socket(settings: ServeSettings) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        hint = "choose another serve.port, or 0 for any that is free"
        raise InvalidAddress(f"{settings.host}:{settings.port}", error.strerror or str(error), hint=hint) from error
    return listening


def announce(addresses: list[str], loop: str) -> None:
    """Write the addresses as one line on standard error, for people, and for scripts that wait for the daemon."""
    sys.stderr.write(f"seglog: serving with {loop} on {', '.join(addresses)}\n")
    sys.stderr.flush()
