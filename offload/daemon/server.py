"""`seglog serve` as a process: its sockets, its signals, its end.

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

STOP-1  A request that the daemon reads gets an answer (offload.daemon.entrance).
STOP-2  No connection that the kernel accepted before step 3 is reset: the daemon takes it and answers its request.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Protocol

import uvicorn

from offload.daemon.access import Access
from offload.daemon.asgi import App
from offload.daemon.clients import for_checked_clients
from offload.daemon.connection import Connection
from offload.daemon.ending import Server
from offload.daemon.entrance import Host, entrance
from offload.daemon.event_loop import event_loop
from offload.daemon.guard import Guard
from offload.daemon.http import make_app
from offload.daemon.http.direct import direct
from offload.daemon.http.probes import make_probe_app
from offload.daemon.http.tenants import make_root_probe_app, router
from offload.daemon.laminarmq import make_laminarmq_app
from offload.daemon.listeners import BACKLOG, Kind, Listener, listening, listening_over_tcp
from offload.daemon.notify import Notifier
from offload.daemon.opening import open_service
from offload.daemon.service import Service
from offload.daemon.stopping import StopEvent
from offload.daemon.tenants import Tenants
from offload.settings import ServeSettings
from offload.settings_file import Settings
from seglog import InvalidSetting

__all__ = ["announce", "run", "run_tenants"]

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
    _run_in_loop(lambda ready: _run(directory, settings, remote, variables, ready), on_ready)


def run_tenants(
    root: Path, settings: Settings, *, variables: Mapping[str, str], on_ready: Callable[[list[str], str], None]
) -> None:
    """Serve every data directory below `root`, each as a tenant, until a signal stops the daemon.

    `settings` are those of the root, with the section [serve] for the whole daemon. Raises `InvalidAddress` and
    `InvalidSetting`. A tenant that does not open raises nothing: the log and the metrics tell it.
    """
    _run_in_loop(lambda ready: _run_tenants(root, settings, variables, ready), on_ready)


def _run_in_loop(
    serving: Callable[[Callable[[list[str]], None]], Coroutine[Any, Any, None]],
    on_ready: Callable[[list[str], str], None],
) -> None:
    _raise_open_files()
    loop = event_loop()
    with asyncio.Runner(loop_factory=loop.make) as runner:
        runner.run(serving(lambda addresses: on_ready(addresses, loop.name)))


def _raise_open_files() -> None:
    """Raise the limit of open files to the highest that the system allows: each follower holds a connection."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _run(
    directory: Path,
    settings: Settings,
    remote: str | None,
    variables: Mapping[str, str],
    on_ready: Callable[[list[str]], None],
) -> None:
    serve = settings.serve
    access = Access(serve, settings.tenant.name)
    notifier = Notifier(variables)
    service = await open_service(directory, settings, remote=remote)
    watching = asyncio.create_task(notifier.watch(lambda: not service.sync.is_poisoned))
    guard = Guard(direct(make_app(service)), lambda: service.settings, service.metrics, service.quota)
    try:
        with listening(directory, serve) as listeners:
            places = [(each, _app_of(each, guard, service, access)) for each in listeners]
            await _serve(
                service, places, access, variables, lambda: _say_ready(listeners, on_ready, notifier), notifier
            )
    finally:
        try:
            await service.close()
        finally:
            watching.cancel()


async def _run_tenants(
    root: Path, settings: Settings, variables: Mapping[str, str], on_ready: Callable[[list[str]], None]
) -> None:
    serve = settings.serve
    if serve.laminarmq:
        raise InvalidSetting("serve.laminarmq", "names a topic, and a daemon of many tenants has it several times")
    access, notifier = Access(serve), Notifier(variables)
    tenants = Tenants(root, serve, variables, lambda app, listener, of: _serve_unix(app, listener, serve, of))
    watching = asyncio.create_task(notifier.watch(lambda: True))  # a tenant whose log failed stops no other
    over_tcp = entrance(router(tenants, lambda: access.tokens), tenants)
    try:
        with listening_over_tcp(serve) as listeners:
            probes = make_root_probe_app(tenants, with_metrics=serve.probe_metrics)
            places: list[tuple[Listener, App]] = [
                (each, probes if each.kind is Kind.PROBES else over_tcp) for each in listeners
            ]

            def say_ready() -> None:
                _say_ready(listeners, lambda told: on_ready([_opened_text(tenants), *told]), notifier)

            await _serve(tenants, places, access, variables, say_ready, notifier)
    finally:
        try:
            await tenants.close()
        finally:
            watching.cancel()


def _opened_text(tenants: Tenants) -> str:
    states = [each.state for each in tenants]
    return f"unix sockets of {states.count('open')} of {len(states)} tenants below {tenants.root}"


def _say_ready(listeners: list[Listener], on_ready: Callable[[list[str]], None], notifier: Notifier) -> None:
    on_ready([each.address for each in listeners])
    notifier.say("READY=1")


class _Host(Host, Protocol):
    """What `_serve` runs: a service, or all tenants."""

    def start(self) -> None: ...
    def reload(self, variables: Mapping[str, str]) -> None: ...
    async def opened(self) -> None:
        """Return when the host takes requests."""
        ...

    async def ended(self) -> None:
        """Return when the host has no request under way at sockets of its own."""
        ...


async def _serve(
    host: _Host,
    places: list[tuple[Listener, App]],
    access: Access,
    variables: Mapping[str, str],
    on_ready: Callable[[], None],
    notifier: Notifier,
) -> None:
    servers = [_server(app, each, host.settings, host.stopping) for each, app in places]
    listeners = [each for each, _ in places]
    loop = asyncio.get_running_loop()
    stopping: list[asyncio.Task[None]] = []

    async def stop_soon() -> None:
        await asyncio.sleep(host.settings.stop_delay_s)
        host.stopping.set()
        for server, each in zip(servers, listeners, strict=True):
            if each.kind is not Kind.PROBES:
                server.end()

    def stop() -> None:
        if host.is_leaving:
            os._exit(128 + signal.SIGTERM)
        _log.info("stopping")
        host.is_leaving = True
        notifier.say("STOPPING=1")
        stopping.append(asyncio.create_task(stop_soon()))

    def reload() -> None:
        host.reload(variables)
        access.reload(host.settings, [server.config.ssl for server in servers if server.config.ssl])

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, reload)
    host.start()
    serving = [
        asyncio.create_task(server.serve(sockets=[each.socket]))
        for server, each in zip(servers, listeners, strict=True)
    ]
    try:
        while not all(server.started for server in servers) and not any(task.done() for task in serving):
            await asyncio.sleep(0.005)
        if not any(task.done() for task in serving):  # else a server failed, for example on an unreadable certificate
            await host.opened()
            on_ready()
        probes = [server for server, each in zip(servers, listeners, strict=True) if each.kind is Kind.PROBES]
        await asyncio.gather(*(task for task, server in zip(serving, servers, strict=True) if server not in probes))
        await host.ended()
        for server in probes:
            server.end()
        await asyncio.gather(*serving)
    finally:
        for task in (*stopping, *serving):
            task.cancel()
        for server in servers:
            _close(server)


def _serve_unix(
    app: App, listener: Listener, settings: ServeSettings, service: Service
) -> tuple[Callable[[], None], Awaitable[None]]:
    """Serve a tenant at its Unix socket. Return a function that begins the end, and the serving itself."""
    server = _server(app, listener, settings, service.stopping)

    async def serve() -> None:
        try:
            await server.serve(sockets=[listener.socket])
        finally:
            _close(server)

    return server.end, asyncio.create_task(serve())


def _app_of(listener: Listener, guard: Guard, service: Service, access: Access) -> App:
    """Return the application of a listener: the entrance, the checks of clients, the guard, and the routes."""
    if listener.kind is Kind.PROBES:
        return make_probe_app(service, with_metrics=service.settings.probe_metrics)
    if listener.kind is Kind.UNIX:
        return entrance(guard.over_unix, service)
    is_laminarmq = listener.kind is Kind.LAMINARMQ
    app = guard.before(make_laminarmq_app(service, listener.topic)) if is_laminarmq else guard.known
    settings, tokens = lambda: service.settings, lambda: access.tokens
    return entrance(for_checked_clients(app, settings, tokens, service.metrics.count_rejected), service)


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


def announce(addresses: list[str], loop: str, *, is_insecure: bool = False) -> None:
    """Write the addresses as one line on standard error, for people, and for scripts that wait for the daemon.

    `is_insecure` says that the line has to warn: the daemon trusts a proxy to end TLS.
    """
    how = "WITHOUT TLS (insecure_behind_proxy: only a proxy may reach this port) " if is_insecure else ""
    sys.stderr.write(f"seglog: serving {how}with {loop} on {', '.join(addresses)}\n")
    sys.stderr.flush()
