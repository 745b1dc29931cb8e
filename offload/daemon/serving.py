"""The servers of a daemon from their start to their end, and the signals.

    signal             what the daemon does
    SIGTERM, SIGINT    It stops, as below, and ends with exit code 0.
    the same again     It ends at once, as a kill does. Attempts stay on record, and the next start runs recovery.
    SIGHUP             It reads its settings again (`Service.reload`), its tokens and its certificate (`Access.reload`).

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

STOP-1  A request that the daemon reads gets an answer (offload.daemon.entrance).
STOP-2  No connection that the kernel accepted before step 3 is reset: the daemon takes it and answers its request.
STOP-3  A thread whose call of the store hangs outlives the log, and ends with the process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import uvicorn

from offload.daemon.access import Access
from offload.daemon.asgi import App
from offload.daemon.connection import Connection
from offload.daemon.ending import Server
from offload.daemon.entrance import Host
from offload.daemon.listeners import BACKLOG, Kind, Listener
from offload.daemon.notify import Notifier
from offload.daemon.stopping import StopEvent
from offload.settings import ServeSettings

__all__ = ["RunningHost", "Serving", "serve_unix"]

_log = logging.getLogger("seglog.daemon")


class RunningHost(Host, Protocol):
    """The host behind the servers: a service, or all tenants."""

    def start(self) -> None: ...
    def reload(self, variables: Mapping[str, str]) -> None: ...
    async def opened(self) -> None:
        """Return when the host takes requests."""
        ...

    async def ended(self) -> None:
        """Return when the host has no request under way at sockets of its own."""
        ...


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
        self._servers = [(each, _server(app, each, host.settings, host.stopping)) for each, app in apps]
        self._stops: list[asyncio.Task[None]] = []

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Serve until a signal stops the daemon. Call `on_ready` once it takes requests."""
        self._handle_signals()
        self._host.start()
        tasks = [asyncio.create_task(server.serve(sockets=[each.socket])) for each, server in self._servers]
        try:
            await self._until_ready(tasks, on_ready)
            served = zip(tasks, self._servers, strict=True)
            await asyncio.gather(*(task for task, (each, _) in served if each.kind is not Kind.PROBES))
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
        for each, server in self._servers:
            if (each.kind is Kind.PROBES) is is_probes:
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

    class LimitedConnection(Connection):
        header_timeout_s = settings.header_timeout_s
        reader_timeout_s = settings.body_timeout_s

        def is_stopping(self) -> bool:
            return stopping.is_set() and not is_probes

    config = uvicorn.Config(
        app,
        http=LimitedConnection,
        ws="none",
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
    return Server(config)
