"""The servers of a daemon from their start to their end, with the signals to it and its messages to systemd.

    signal             what the daemon does
    SIGTERM, SIGINT    It stops, as below, and ends with exit code 0.
    the same again     It ends at once, as a kill does. Attempts stay on record, and the next start runs recovery.
    SIGHUP             It reads its settings again (`Service.reload`), its tokens and its certificate (`Access.reload`).

    message            when a unit with `Type=notify` and `WatchdogSec` gets it
    READY=1            once the daemon takes requests
    WATCHDOG=1         twice in each `WATCHDOG_USEC`, from the event loop, while acked records are safe
    STOPPING=1         at the first SIGTERM

The stop, with a client C, a follower F and a load balancer L:

    1  The daemon gets SIGTERM. /readyz answers 503, and each answer says `Connection: close`.
    2  L sees /readyz and sends no more. The daemon takes requests as before for `stop_delay_s`.
    3  The daemon takes the connections that wait at its sockets, and closes the sockets. A later connection is refused.
    4  Offloads stop at their next step. F gets its last line.
    5  A request of C that the daemon had begun gets its answer. A new one on an open connection gets 503.
    6  Connections without a request close when they are quiet. After `stop_timeout_s` the daemon cuts the rest.
    7  The daemon closes the probe port and the log. All that it acked is durable.

If a store does not answer, no step waits for it longer than `stop_timeout_s` and some seconds. Its readers then get
503. What waits for an answer stays on record, as after a kill, and the next start continues it.

STOP-1  A request that the daemon reads gets an answer (offload.daemon.request_log).
STOP-2  No connection that the kernel accepted before step 3 is reset: the daemon takes it and answers its request. One
    whose handshake is under way at step 3 is refused. Where the kernel has no filter for sockets (macOS), and where the
    client's last packet of the handshake comes over a slow network after step 3, the client meets a reset.
STOP-3  A thread whose call of the store hangs outlives the log, and ends with the process.
NOTIFY-1  A loop that hangs or a log that failed sends no WATCHDOG=1. systemd then restarts the daemon.
NOTIFY-2  Without NOTIFY_SOCKET, the daemon sends nothing.

Source: sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
import re
import signal
import socket
import struct
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Protocol

import uvicorn

from offload.daemon.asgi import ABORT, App
from offload.daemon.connection import ANY_PATH, Connection, Limits
from offload.daemon.credential_files import Access
from offload.daemon.listeners import BACKLOG, Kind, Listener
from offload.daemon.request_log import LAST_ANSWER_S, Host
from offload.daemon.stopping import StopEvent
from offload.settings import ServeSettings

_SO_ATTACH_FILTER = 26  # in <asm-generic/socket.h>
_PING_S = 15
WEBSOCKET_PATH = re.compile(rb"(?:/tenants/[^/]+)?/ws")
"""The path of a WebSocket. Elsewhere `Upgrade` is ignored, as a client without WebSockets expects (CONNECTION-6)."""

_log = logging.getLogger("seglog.daemon")


class Server(uvicorn.Server):
    """A server of uvicorn whose end loses no connection that the kernel accepted (STOP-2).

    A client has `header_timeout_s` for its TLS handshake, and as much again for its first head. If the configuration
    has a protocol for WebSockets, `websocket_path` fits their paths.
    """

    def __init__(self, config: uvicorn.Config, limits: Limits, websocket_path: re.Pattern[bytes] = ANY_PATH) -> None:
        super().__init__(config)
        self._limits = limits
        self._websocket_path = websocket_path
        self._has_ended = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop, opened = asyncio.get_running_loop(), sockets or []
        config, limit_s = self.config, self._handshake_timeout_s
        self.servers = [
            await loop.create_server(
                self._connection, sock=sock, ssl=config.ssl, backlog=config.backlog, ssl_handshake_timeout=limit_s
            )
            for sock in opened
        ]
        self.started = True

    @property
    def _handshake_timeout_s(self) -> int | None:
        return self.config.timeout_keep_alive if self.config.ssl is not None else None

    def _connection(self) -> asyncio.Protocol:
        state, scheme = self.server_state, "http" if self.config.ssl is None else "https"
        return Connection(
            self.config.loaded_app,
            self._limits,
            state.connections,
            state.tasks,
            scheme=scheme,
            websocket=self._websocket if self.config.ws_protocol_class else None,
            websocket_path=self._websocket_path,
        )

    def _websocket(self, transport: asyncio.Transport) -> asyncio.Protocol:
        """Return uvicorn's protocol for a WebSocket. The configuration chooses it."""
        make: Any = self.config.ws_protocol_class
        found: asyncio.Protocol = make(self.config, self.server_state, {ABORT: transport.abort})
        return found

    def end(self) -> None:
        """Let `serve` end, now and not at the next of the base class's looks."""
        self.should_exit = True
        self._has_ended.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._has_ended.wait()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to `Serving`, where one signal ends all servers and the service."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take the connections that wait at the sockets (STOP-2), then end as the base class does.

        A copy keeps each socket open while the loop lets go of it, so that nothing but the close itself follows the
        last look at it.
        """
        copies = [opened.dup() for opened in sockets or ()]
        for server in self.servers:
            server.close()
        for opened in sockets or ():
            opened.close()
        waiting = [connection for copy in copies for connection in _accepted_last(copy)]
        await asyncio.gather(*map(self._attach, waiting))
        await super().shutdown(sockets)
        # After its time limit, the base class has cancelled the rest. Each of them gets an answer (STOP-1).
        if self.server_state.tasks:
            await asyncio.wait(set(self.server_state.tasks), timeout=LAST_ANSWER_S)

    async def _attach(self, opened: socket.socket) -> None:
        loop, limit_s = asyncio.get_running_loop(), self._handshake_timeout_s
        try:
            await loop.connect_accepted_socket(
                self._connection, opened, ssl=self.config.ssl, ssl_handshake_timeout=limit_s
            )
        except OSError as error:
            _log.info("a client that came at the end of the daemon was gone: %s", error)
            opened.close()


def _accepted_last(opened: socket.socket) -> list[socket.socket]:
    """Close a listening socket. Return the connections that waited at it."""
    connections = []
    opened.setblocking(False)
    # From here on no client comes between the last `accept` and the close, which would reset it.
    if opened.family == socket.AF_UNIX:
        opened.shutdown(socket.SHUT_RDWR)
    elif sys.platform == "linux":
        _drop_handshakes(opened)
    with opened, contextlib.suppress(BlockingIOError):
        while True:
            connection, _ = opened.accept()
            connection.setblocking(False)
            connections.append(connection)
    return connections


def _drop_handshakes(opened: socket.socket) -> None:
    """Let the kernel drop each SYN at a listening socket. The client's system sends it again, and is then refused.

    A shutdown would reset the connections that wait. Source: socket(7), SO_ATTACH_FILTER.
    """
    steps = (
        (0x30, 0, 0, 13),  # load the byte of the flags
        (0x54, 0, 0, 0x12),  # keep SYN and ACK
        (0x15, 0, 1, 0x02),  # is it SYN alone?
        (0x06, 0, 0, 0),  # yes: drop the packet
        (0x06, 0, 0, 0xFFFF_FFFF),  # no: take it whole
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = struct.pack("@HP", len(steps), ctypes.addressof(code))
    opened.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


class Notifier:
    """The messages to systemd."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        """Take the socket's address and the watchdog's time from the environment."""
        address = variables.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        time_us = variables.get("WATCHDOG_USEC", "")
        is_ours = variables.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
        self.interval_s = int(time_us) / 2_000_000 if is_ours and time_us.isascii() and time_us.isdigit() else 0.0

    def say(self, text: str) -> None:
        """Send one message. If systemd cannot take it, log that: the daemon serves on."""
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
                to.setblocking(False)
                to.sendto(text.encode(), self._address)
        except OSError as error:
            _log.warning("systemd did not take %s: %s", text, error)

    async def watch(self, is_healthy: Callable[[], bool]) -> None:
        """Send WATCHDOG=1 while `is_healthy` returns True, until the task is cancelled (NOTIFY-1)."""
        while self._address and self.interval_s:
            if is_healthy():
                self.say("WATCHDOG=1")
            await asyncio.sleep(self.interval_s)


class RunningHost(Host, Protocol):
    """The host behind the servers: a service, or all tenants."""

    def start(self) -> None: ...
    def reload(self, variables: Mapping[str, str]) -> None: ...
    async def opened(self) -> None:
        """Return when the host takes requests."""

    async def ended(self) -> None:
        """Return when the host has no request under way at sockets of its own."""


class Serving:
    """One daemon, with a server for each listener. `variables` is the environment, for a reload."""

    def __init__(
        self,
        host: RunningHost,
        apps: Sequence[tuple[Listener, App]],
        access: Access,
        notifier: Notifier,
        variables: Mapping[str, str],
    ) -> None:
        self._host = host
        self._access = access
        self._notifier = notifier
        self._variables = variables
        self._servers = [(listener, _server(app, listener, host.settings, host.stopping)) for listener, app in apps]
        self._stops: list[asyncio.Task[None]] = []

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Serve until a signal stops the daemon. Call `on_ready` once it takes requests."""
        self._handle_signals()
        self._host.start()
        tasks = [asyncio.create_task(server.serve(sockets=[listener.socket])) for listener, server in self._servers]
        try:
            await self._until_ready(tasks, on_ready)
            served = zip(tasks, self._servers, strict=True)
            await asyncio.gather(*(task for task, (listener, _) in served if listener.kind is not Kind.PROBES))
            await self._host.ended()
            self._end(is_probes=True)
            await asyncio.gather(*tasks)
        finally:
            for task in (*self._stops, *tasks):
                task.cancel()
            for _, server in self._servers:
                _close(server)

    async def _until_ready(self, tasks: Sequence[asyncio.Task[None]], on_ready: Callable[[], None]) -> None:
        while not all(server.started for _, server in self._servers) and not any(task.done() for task in tasks):
            await asyncio.sleep(0.005)
        if not any(task.done() for task in tasks):  # else a server failed, for example on an unreadable certificate
            await self._host.opened()
            on_ready()

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload)

    def _stop(self) -> None:
        if self._host.is_leaving:
            os._exit(128 + signal.SIGTERM)
        _log.info("stopping")
        self._host.is_leaving = True
        self._notifier.say("STOPPING=1")
        self._stops.append(asyncio.create_task(self._stop_soon()))

    async def _stop_soon(self) -> None:
        await asyncio.sleep(self._host.settings.stop_delay_s)
        self._host.stopping.set()
        self._end(is_probes=False)

    def _reload(self) -> None:
        self._host.reload(self._variables)
        contexts = [server.config.ssl for _, server in self._servers if server.config.ssl]
        self._access.reload(self._host.settings, contexts)

    def _end(self, *, is_probes: bool) -> None:
        """End the servers of the probes, or all others."""
        for listener, server in self._servers:
            if (listener.kind is Kind.PROBES) is is_probes:
                server.end()


def serve_unix(
    app: App, listener: Listener, settings: ServeSettings, stopping: StopEvent
) -> tuple[Callable[[], None], Awaitable[None]]:
    """Serve a tenant at its Unix socket. Return a function that begins the end, and the serving itself."""
    server = _server(app, listener, settings, stopping)

    async def serve() -> None:
        try:
            await server.serve(sockets=[listener.socket])
        finally:
            _close(server)

    return server.end, asyncio.create_task(serve())


def _close(server: uvicorn.Server) -> None:
    """Close all that a server has left open, after a failure or `stop_timeout_s`.

    The loop of uvloop ends only when each of its sockets is closed.
    """
    for listener in getattr(server, "servers", ()):
        listener.close()
    for connection in tuple(server.server_state.connections):
        connection.transport.abort()


def _server(app: App, listener: Listener, settings: ServeSettings, stopping: StopEvent) -> Server:
    is_probes = listener.kind is Kind.PROBES
    has_websockets = listener.kind in (Kind.TCP, Kind.UNIX) and find_spec("websockets") is not None
    protocol: Any = "none"
    if has_websockets:
        from offload.daemon.socket_protocol import SocketProtocol  # imported late: the package is an extra

        protocol = SocketProtocol
    limits = Limits(settings.header_timeout_s, settings.body_timeout_s, lambda: stopping.is_set() and not is_probes)
    config = uvicorn.Config(
        app,
        # No compression: it takes memory for each connection.
        ws=protocol,
        ws_max_size=settings.max_body_bytes,
        ws_per_message_deflate=False,
        ws_ping_interval=_PING_S,
        ws_ping_timeout=settings.body_timeout_s,
        lifespan="off",
        interface="asgi3",
        access_log=False,
        log_config=None,
        server_header=False,
        date_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=settings.header_timeout_s,
        timeout_graceful_shutdown=1 if is_probes else settings.stop_timeout_s,
        ssl_certfile=settings.tls_certificate if listener.is_tls else None,
        ssl_keyfile=settings.tls_key or None if listener.is_tls else None,
    )
    return Server(config, limits, WEBSOCKET_PATH)
