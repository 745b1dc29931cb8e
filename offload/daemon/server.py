"""`seglog serve` as a process: its event loop, what it opens, and which application answers at which listener."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from offload.daemon.asgi import App
from offload.daemon.clients import for_checked_clients
from offload.daemon.credential_files import Access
from offload.daemon.http import direct, make_app
from offload.daemon.http.probes import make_probe_app
from offload.daemon.http.tenant_router import make_root_probe_app, router
from offload.daemon.laminarmq import make_laminarmq_app
from offload.daemon.listeners import Kind, Listener, listening, listening_over_tcp
from offload.daemon.request_limits import Guard
from offload.daemon.request_log import entrance
from offload.daemon.service import Service, open_service
from offload.daemon.serving import Notifier, Serving
from offload.daemon.tenants import Tenants, check_variables
from offload.settings import Settings
from offload.tenants.directories import check_root
from seglog import InvalidSetting
from seglog.interrupts import closing_after


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
    the environment, for a reload. Raises `Misuse`, `InvalidSetting`, and the errors of opening the log.
    """
    _run_in_loop(lambda ready: _run(directory, settings, remote, variables, ready), on_ready)


def run_tenants(
    root: Path, settings: Settings, *, variables: Mapping[str, str], on_ready: Callable[[list[str], str], None]
) -> None:
    """Serve every data directory below `root`, each as a tenant, until a signal stops the daemon.

    `settings` are those of the root, with the section [serve] for the whole daemon. Raises `Misuse`,
    `InvalidSetting` and `UnsafeDirectory`. A tenant that does not open raises nothing: the log and the metrics tell it.
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
    guard = Guard(direct(make_app(service)), lambda: service.settings, service.metrics, service.quota)
    async with _watched(service, notifier, lambda: not service.sync.is_poisoned):
        with listening(directory, serve) as listeners:
            apps = [(listener, _app_of(listener, guard, service, access)) for listener in listeners]
            serving = Serving(service, apps, access, notifier, variables)
            await serving.run(lambda: _say_ready(listeners, on_ready, notifier))


async def _run_tenants(
    root: Path, settings: Settings, variables: Mapping[str, str], on_ready: Callable[[list[str]], None]
) -> None:
    check_variables(variables)
    check_root(root)
    serve = settings.serve
    if serve.laminarmq:
        raise InvalidSetting("serve.laminarmq", "names a topic, and a daemon of many tenants has it several times")
    access, notifier = Access(serve), Notifier(variables)
    tenants = Tenants(root, serve, variables)
    over_tcp = entrance(router(tenants, lambda: access.tokens, access.open_answers, access.tickets), tenants)
    # A tenant whose log failed stops no other.
    async with _watched(tenants, notifier, lambda: True):
        with listening_over_tcp(serve) as listeners:
            probes = make_root_probe_app(tenants, with_metrics=serve.probe_metrics)
            apps: list[tuple[Listener, App]] = [
                (listener, probes if listener.kind is Kind.PROBES else over_tcp) for listener in listeners
            ]

            def say_ready() -> None:
                _say_ready(listeners, lambda texts: on_ready([_opened_text(tenants), *texts]), notifier)

            await Serving(tenants, apps, access, notifier, variables).run(say_ready)


@asynccontextmanager
async def _watched(host: Service | Tenants, notifier: Notifier, is_healthy: Callable[[], bool]) -> AsyncIterator[None]:
    """Tell systemd that the host is healthy, as long as it is. Close the host at the end, and leave it."""
    watching = asyncio.create_task(notifier.watch(is_healthy))
    try:
        yield
    finally:
        try:
            with closing_after(sys.exc_info()[1]):
                await host.close()
        finally:
            watching.cancel()
    _leave(host)


def _leave(host: Service | Tenants) -> None:
    """End the process at once if a thread hangs in a call. Python would wait for each thread (STOP-3)."""
    if host.has_work:
        sys.stderr.flush()
        os._exit(0)


def _opened_text(tenants: Tenants) -> str:
    states = [tenant.state for tenant in tenants]
    return f"unix sockets of {states.count('open')} of {len(states)} tenants below {tenants.root}"


def _say_ready(listeners: list[Listener], on_ready: Callable[[list[str]], None], notifier: Notifier) -> None:
    on_ready([listener.address for listener in listeners])
    notifier.say("READY=1")


def _app_of(listener: Listener, guard: Guard, service: Service, access: Access) -> App:
    """Return the application of a listener: the entrance, the checks of clients, the guard, and the routes."""
    if listener.kind is Kind.PROBES:
        return make_probe_app(service, with_metrics=service.settings.probe_metrics)
    if listener.kind is Kind.UNIX:
        return entrance(guard.over_unix, service)
    is_laminarmq = listener.kind is Kind.LAMINARMQ
    app = guard.before(make_laminarmq_app(service, listener.topic)) if is_laminarmq else guard.known
    settings, tokens = lambda: service.settings, lambda: access.tokens
    checked = for_checked_clients(
        app, settings, tokens, service.metrics.count_rejected, access.open_answers, access.tickets
    )
    return entrance(checked, service)


def announce(addresses: list[str], loop: str, *, is_insecure: bool = False) -> None:
    """Write the addresses as one line on standard error, for people, and for scripts that wait for the daemon.

    `is_insecure` says that the line has to warn: the daemon trusts a proxy to end TLS.
    """
    how = "WITHOUT TLS (insecure_behind_proxy: only a proxy may reach this port) " if is_insecure else ""
    sys.stderr.write(f"seglog: serving {how}with {loop} on {', '.join(addresses)}\n")
    sys.stderr.flush()


class _EventLoop(NamedTuple):
    """The name of a kind of loop, for people, and the call that makes one."""

    name: str
    make: Callable[[], asyncio.AbstractEventLoop]


def event_loop() -> _EventLoop:
    """Return the kind of loop for this machine. uvloop is an extra: `pip install 'seglog[uvloop]'`."""
    try:
        import uvloop
    except ImportError:
        return _EventLoop("asyncio", asyncio.new_event_loop)
    return _EventLoop("uvloop", uvloop.new_event_loop)
