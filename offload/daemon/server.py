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
from collections.abc import Callable, Mapping
from pathlib import Path

import uvicorn

from offload.daemon.access import Access
from offload.daemon.connection import Connection
from offload.daemon.ending import Server
from offload.daemon.entrance import entrance
from offload.daemon.event_loop import event_loop
from offload.daemon.guard import App, Guard
from offload.daemon.http import make_app
from offload.daemon.http.probes import make_probe_app
from offload.daemon.laminarmq import make_laminarmq_app
from offload.daemon.listeners import BACKLOG, Kind, Listener, listening
from offload.daemon.notify import Notifier
from offload.daemon.service import Service, open_service
from offload.settings import ServeSettings
from offload.settings_file import Settings

__all__ = ["announce", "run"]

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
    _raise_open_files()
    loop = event_loop()
    with asyncio.Runner(loop_factory=loop.make) as runner:
        runner.run(_run(directory, settings, remote, variables, lambda addresses: on_ready(addresses, loop.name)))


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
    try:
        with listening(directory, serve) as listeners:

            def ready() -> None:
                on_ready([each.address for each in listeners])
                notifier.say("READY=1")

            await _serve(service, listeners, serve, access, variables, ready, lambda: notifier.say("STOPPING=1"))
    finally:
        try:
            await service.close()
        finally:
            watching.cancel()


async def _serve(
    service: Service,
    listeners: list[Listener],
    settings: ServeSettings,
    access: Access,
    variables: Mapping[str, str],
    on_ready: Callable[[], None],
    on_stop: Callable[[], None],
) -> None:
    guard = Guard(make_app(service), lambda: service.settings, lambda: access.tokens, service.metrics)
    servers = [_server(_app_of(each, guard, service), each, settings, service) for each in listeners]
    loop = asyncio.get_running_loop()
    stopping: list[asyncio.Task[None]] = []

    async def stop_soon() -> None:
        await asyncio.sleep(service.settings.stop_delay_s)
        service.stopping.set()
        for server, each in zip(servers, listeners, strict=True):
            if each.kind is not Kind.PROBES:
                server.end()

    def stop() -> None:
        if service.is_leaving:
            os._exit(128 + signal.SIGTERM)
        _log.info("stopping")
        service.is_leaving = True
        on_stop()
        stopping.append(asyncio.create_task(stop_soon()))

    def reload() -> None:
        service.reload(variables)
        access.reload(service.settings, [server.config.ssl for server in servers if server.config.ssl])

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, reload)
    service.start()
    serving = [
        asyncio.create_task(server.serve(sockets=[each.socket]))
        for server, each in zip(servers, listeners, strict=True)
    ]
    try:
        while not all(server.started for server in servers) and not any(task.done() for task in serving):
            await asyncio.sleep(0.005)
        if not any(task.done() for task in serving):  # else a server failed, for example on an unreadable certificate
            on_ready()
        probes = [server for server, each in zip(servers, listeners, strict=True) if each.kind is Kind.PROBES]
        await asyncio.gather(*(task for task, server in zip(serving, servers, strict=True) if server not in probes))
        for server in probes:
            server.end()
        await asyncio.gather(*serving)
    finally:
        for task in (*stopping, *serving):
            task.cancel()
        for server in servers:
            _close(server)


def _app_of(listener: Listener, guard: Guard, service: Service) -> App:
    """Return the application of a listener: the entrance, the guard, and the routes."""
    if listener.kind is Kind.PROBES:
        return make_probe_app(service, with_metrics=service.settings.probe_metrics)
    if listener.kind is Kind.LAMINARMQ:
        return entrance(guard.before(make_laminarmq_app(service, listener.topic)), service)
    return entrance(guard.over_unix if listener.kind is Kind.UNIX else guard.over_tcp, service)


def _close(server: uvicorn.Server) -> None:
    """Close all that a server has left open, after a failure or `stop_timeout_s`.

    The loop of uvloop ends only when each of its sockets is closed.
    """
    for listener in getattr(server, "servers", ()):
        listener.close()
    for connection in tuple(server.server_state.connections):
        connection.transport.abort()


def _server(app: App, listener: Listener, settings: ServeSettings, service: Service) -> Server:
    is_probes = listener.kind is Kind.PROBES

    class LimitedConnection(Connection):
        header_timeout_s = settings.header_timeout_s
        reader_timeout_s = settings.body_timeout_s

        def is_stopping(self) -> bool:
            return service.stopping.is_set() and not is_probes

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
