"""The tenants of one daemon: each directory below a root is a tenant with a service of its own.

    state      what is true                                            step that follows
    opening    the daemon recovers the directory                       open, failed
    open       its service runs, its Unix socket listens               closed, by the end or by SIGHUP
    failed     the directory did not open; `error` says why            opening, by SIGHUP

The daemon D, an operator O, and a client C of the tenant T:

    1  D listens over TCP. It opens the directories, some at a time. C gets 503 until T is open.
    2  O makes a directory or removes one, and sends SIGHUP.
    3  D reads the settings of each open tenant again. It opens what is new or failed, and closes what is gone. C gets
       503 from a tenant that D closes and opens again.
    4  D gets SIGTERM. Every service stops at its next step, and every Unix socket ends as the listener of TCP does.

TENANTS-1  A tenant shares no service, pool of threads, upload process, client of a store or cache with another one. It
    shares the event loop, the listener of TCP, the process, the client of STS (REFRESH-3), and the slots of its
    followers, which go round the tenants (SLOT-2).
TENANTS-2  A tenant that does not open, whose log failed or whose remote is dead, stops no other.
TENANTS-3  A directory's name is the name of its tenant. If its seglog.toml has another one, the directory stays closed.
TENANTS-4  No tenant's remote is another one's, or lies in it. Otherwise the second tenant does not open.
TENANTS-5  A tenant has one upload process at most (POOL-4).
TENANTS-6  If a reload finds another identity or remote of an open tenant, it closes the tenant and opens it again.

The rules that keep the tenants apart, besides IAM:

ALONE-1  No variable of the daemon's environment sets the identity, the encryption or the remote of a tenant: it would
    be the same for all of them.
ALONE-2  A remote in S3 has a role of its tenant's own. Without one, its tenant would use the daemon's own AWS
    credentials, which reach all tenants. So a remote over HTTP would use the daemon's own token. `shared_credentials`
    in [serve] of the root allows both.
ALONE-3  Two remotes are compared as places, and not as texts: parsed URLs in S3, and resolved paths of files.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge

from catalog.format.remotes import split_remote
from catalog.tenants.names import check_tenant
from offload.daemon.asgi import App, tenant_id
from offload.daemon.http import direct, make_app
from offload.daemon.listeners import listening_over_unix
from offload.daemon.metrics import text_of, watch_process
from offload.daemon.request_limits import Guard
from offload.daemon.request_log import entrance
from offload.daemon.scheduler.slots import Slots
from offload.daemon.service import Service, open_service
from offload.daemon.serving import serve_unix
from offload.daemon.stopping import StopEvent
from offload.settings import ServeSettings, Settings, read_settings
from offload.tenants.directories import UnsafeDirectory, check_directory, claim, data_directories
from offload.wiring import path_of
from seglog import SETTINGS_FILE
from seglog.base.dataclasses import dataclass
from seglog.base.errors import Misuse
from seglog.errors import InvalidSetting

if TYPE_CHECKING:
    from offload.tenants.credentials import Refresher

_log = logging.getLogger("seglog.daemon")
_AT_ONCE = 8
_PATIENCE_S = 30
_OF_ONE_TENANT = {
    "SEGLOG_REMOTE": "remote.url",
    "SEGLOG_OFFLOAD_SSE": "offload.sse",
    "SEGLOG_OFFLOAD_SSE_KMS_KEY_ID": "offload.sse_kms_key_id",
    **{
        f"SEGLOG_TENANT_{key.upper()}": f"tenant.{key}"
        for key in ("name", "role_arn", "role", "external_id", "session_policy")
    },
}


@dataclass(slots=True, eq=False)
class Tenant:
    """One directory below the root. `app` takes its requests over TCP, once the client is known; None if not open."""

    name: str
    directory: Path
    state: str = "opening"
    service: Service | None = None
    app: App | None = None
    error: str = ""
    remote: str = ""
    identity: tuple[Any, ...] = ()
    end: Callable[[], None] = lambda: None
    serving: Awaitable[None] | None = None
    parts: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def is_failed(self) -> bool:
        """Return whether a new opening may help: the directory did not open, or its log failed."""
        return self.state == "failed" or (self.service is not None and self.service.sync.is_poisoned)


class Tenants:
    """All tenants below `root`, in one event loop. `settings` are the section [serve] of the root."""

    tenant = ""

    def __init__(self, root: Path, settings: ServeSettings, variables: Mapping[str, str]) -> None:
        self.root = root
        self.settings = settings
        self.stopping = StopEvent()
        self.slots = Slots(lambda: self.settings.delivery_slots)
        self.registry = CollectorRegistry()
        watch_process(self.registry)
        self._rejected = Counter(
            "seglog_http_rejected", "HTTP requests refused before any work was done.", ["reason"],
            registry=self.registry,
        )  # fmt: skip
        self._up = Gauge(
            "seglog_tenant_up", "1 while the tenant's directory is open, else 0.", ["tenant"], registry=self.registry
        )
        self._first_look = asyncio.Event()
        self._variables = variables
        self._known: dict[str, Tenant] = {}
        self._is_leaving = False
        self._reloads = 0
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._looking = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._refresher: Refresher | None = None
        self._left: list[Service] = []  # those that were closed while a thread hung
        self.stopping.listen(self._stop_all)

    def __iter__(self) -> Iterator[Tenant]:
        return iter([self._known[name] for name in sorted(self._known)])

    def find(self, name: str) -> Tenant | None:
        return self._known.get(name)

    @property
    def is_leaving(self) -> bool:
        """Return whether the daemon stops soon. Each service takes the value, too."""
        return self._is_leaving

    @is_leaving.setter
    def is_leaving(self, value: bool) -> None:
        self._is_leaving = value
        for service in self._services():
            service.is_leaving = value

    def count_rejected(self, reason: str) -> None:
        """Count a request that was refused before it reached a tenant."""
        self._rejected.labels(reason).inc()

    def start(self) -> None:
        """Open the directories below the root, in the background (TENANTS-2)."""
        self._later(self._look())
        asyncio.get_running_loop().call_later(_PATIENCE_S, self._first_look.set)

    def reload(self, variables: Mapping[str, str]) -> None:
        """Read all settings again, then look for directories that are new, failed or gone."""
        try:
            self.settings = read_settings(self.root / SETTINGS_FILE, variables).serve
        except Exception as error:
            _log.error("the settings of all tenants stay as they are: %s", error)
        self._reloads += 1
        for service in self._services():
            service.reload(variables)
        self._later(self._look())

    @property
    def has_opened(self) -> bool:
        """Return whether `opened` returns at once."""
        return self._first_look.is_set()

    async def opened(self) -> None:
        """Return when each directory that was there at the start is open or failed, but after 30 s at the latest.

        So a long recovery of one tenant does not hold the others back.
        """
        await self._first_look.wait()

    async def ended(self) -> None:
        """Return when no Unix socket of a tenant has a request under way."""
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(tenant.serving for tenant in self if tenant.serving is not None), return_exceptions=True)

    @property
    def has_work(self) -> bool:
        """Return whether a thread of a tenant that was closed still works (`Service.has_work`)."""
        return any(service.has_work for service in self._left)

    async def close(self) -> None:
        """Close all services, some at a time. Idempotent."""
        self.stopping.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(self._close(tenant) for tenant in self))
        if self._refresher is not None:
            await self._refresher.close()

    def text(self, shows: Callable[[str], bool] | None) -> bytes:
        """Return the metrics of the process and of all open tenants. May be called in any thread."""
        registries = {service.tenant: service.metrics.registry for service in self._services()}
        return text_of({"": self.registry, **registries}, shows)

    def _services(self) -> list[Service]:
        return [tenant.service for tenant in self if tenant.service is not None]

    def _later(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _stop_all(self) -> None:
        for tenant in self:
            self._stop(tenant)

    def _stop(self, tenant: Tenant) -> None:
        if tenant.service is not None:
            tenant.service.is_leaving = True
            tenant.service.stopping.set()
        tenant.end()

    async def _look(self) -> None:
        """Open the directories that are new or failed, and close those that are gone."""
        async with self._looking:
            try:
                directories = await asyncio.to_thread(data_directories, self.root)
            except OSError as error:
                _log.error("all tenants stay as they are: cannot list their directories: %s", error)
                return
            gone = {tenant.name for tenant in self if tenant.name not in directories}
            ended = [tenant for tenant in self if tenant.name in gone or tenant.is_failed or self._has_changed(tenant)]
            await asyncio.gather(*(self._remove(tenant, is_gone=tenant.name in gone) for tenant in ended))
            for name, directory in directories.items():
                if name not in self._known and not self.stopping.is_set():
                    self._known[name] = Tenant(name, directory)
            await asyncio.gather(*(self._open(tenant) for tenant in self if tenant.state == "opening"))
            self._first_look.set()

    def _has_changed(self, tenant: Tenant) -> bool:
        """Return whether an open tenant has another identity or remote by now (TENANTS-6)."""
        try:
            check_directory(tenant.directory)
            identity = identity_of(self._read(tenant))
        except UnsafeDirectory:
            return tenant.state == "open"
        except Exception:
            return False  # the reload of the service has logged it
        return tenant.state == "open" and identity != tenant.identity

    async def _remove(self, tenant: Tenant, *, is_gone: bool) -> None:
        if is_gone:
            del self._known[tenant.name]
            self._up.remove(tenant.name)
        else:
            self._known[tenant.name] = Tenant(tenant.name, tenant.directory)
            self._up.labels(tenant.name).set(0)
        self._stop(tenant)
        await self._close(tenant)
        _log.info("tenant %s is closed", tenant.name)

    async def _open(self, tenant: Tenant) -> None:
        tenant_id.set(tenant.name)
        async with self._at_once:
            if self.stopping.is_set():
                return
            try:
                await self._open_parts(tenant)
                tenant.state = "open"
            except Exception as error:
                tenant.state, tenant.error = "failed", str(error)
                _log.error("tenant %s does not open: %s", tenant.name, error)
                await self._close_parts(tenant)
        self._up.labels(tenant.name).set(tenant.state == "open")
        if self.stopping.is_set():
            self._stop(tenant)

    async def _open_parts(self, tenant: Tenant) -> None:
        settings, reloads = self._settings_of(tenant), self._reloads
        await asyncio.to_thread(claim, tenant.directory, tenant.name)
        service = await open_service(
            tenant.directory, settings, is_alone=False, refresher=self._shared_refresher, slots=self.slots
        )
        tenant.parts.push_async_callback(service.close)
        service.is_leaving = self._is_leaving
        guard = Guard(direct(make_app(service)), lambda: service.settings, service.metrics, service.quota)
        listener = tenant.parts.enter_context(listening_over_unix(tenant.directory))
        service.start()
        app = entrance(guard.over_unix, service)
        tenant.end, tenant.serving = serve_unix(app, listener, self.settings, service.stopping)
        tenant.service, tenant.app = service, guard.known
        if reloads != self._reloads:  # SIGHUP came meanwhile, and found no service
            service.reload(self._variables)

    def _shared_refresher(self) -> Refresher:
        from offload.tenants.credentials import Refresher  # only if a tenant has a role: it imports boto3

        self._refresher = self._refresher or Refresher()
        return self._refresher

    def _settings_of(self, tenant: Tenant) -> Settings:
        """Return the settings of a tenant.

        Raises `InvalidRemote`, `InvalidSetting`, `InvalidName`, `UnsafeDirectory`, and `Misuse` for a shared remote.
        """
        check_tenant(tenant.name)
        check_directory(tenant.directory)
        settings = self._read(tenant)
        if settings.tenant.name != tenant.name:
            reason = f"belongs to the tenant {settings.tenant.name}"
            hint = "a directory below the root of `seglog serve --tenants` has the name of its tenant"
            raise UnsafeDirectory(tenant.directory, reason, hint)
        check_credentials(settings, is_shared=self.settings.shared_credentials)
        tenant.remote, tenant.identity = settings.url or "", identity_of(settings)
        for other in self:
            if other is not tenant and other.state != "failed" and not are_apart(tenant.remote, other.remote):
                self._log_shared(tenant, other)
                # The log line has the name of the other tenant, which the message must not tell.
                text = f"the remote of {tenant.name} is not apart from another tenant's: {tenant.remote}"
                raise Misuse(text, hint="give each tenant a prefix of its own, and an IAM policy on it")
        return settings

    def _read(self, tenant: Tenant) -> Settings:
        return read_settings(tenant.directory / SETTINGS_FILE, self._variables).for_tenant(tenant.name)

    def _log_shared(self, one: Tenant, other: Tenant) -> None:
        """Log both names, in a line of the daemon: the lines of a tenant name no other one."""
        before = tenant_id.set("")
        _log.error("the remotes of %s and %s are not apart: %s and %s", one.name, other.name, one.remote, other.remote)
        tenant_id.reset(before)

    async def _close(self, tenant: Tenant) -> None:
        if tenant.serving is not None:
            await asyncio.gather(tenant.serving, return_exceptions=True)
        async with self._at_once:
            await self._close_parts(tenant)
        if tenant.service is not None and tenant.service.has_work:
            self._left.append(tenant.service)
        tenant.service = tenant.app = None

    async def _close_parts(self, tenant: Tenant) -> None:
        try:
            await tenant.parts.aclose()
        except Exception as error:
            _log.error("tenant %s was not closed well: %s", tenant.name, error)


def check_variables(variables: Mapping[str, str]) -> None:
    """Raise `InvalidSetting` if the environment sets for all tenants what each has for itself (ALONE-1)."""
    for variable, key in _OF_ONE_TENANT.items():
        if variables.get(variable):  # an empty one counts as not set
            section, _, name = key.partition(".")
            reason = f"the variable {variable} would be that of all tenants: unset it, and set {name} in the section"
            raise InvalidSetting(key, f"{reason} [{section}] of each tenant's seglog.toml")


def check_credentials(settings: Settings, *, is_shared: bool) -> None:
    """Raise `InvalidSetting` if a tenant's remote would use the daemon's own AWS credentials or token (ALONE-2).

    Raises `InvalidRemote`.
    """
    scheme = split_remote(settings.url or "").scheme
    if scheme in ("http", "https") and not is_shared:
        reason = "would be read with the daemon's own token, of SEGLOG_TOKEN_FILE: give the tenant its bucket"
        raise InvalidSetting("remote.url", f"{reason}, or set shared_credentials = true in [serve] of the root")
    if is_shared or settings.tenant.role_arn or scheme != "s3":
        return
    reason = "is empty, so this tenant would use the daemon's own AWS credentials: set it, or set shared_credentials"
    raise InvalidSetting("tenant.role_arn", f"{reason} = true in the section [serve] of the root's seglog.toml")


def identity_of(settings: Settings) -> tuple[Any, ...]:
    """Return the settings that bind an open tenant: its remote, and all that decides its credentials."""
    tenant = settings.tenant
    access = (tenant.role_arn, tenant.role, tenant.external_id, tenant.profile, tenant.session_policy)
    return (settings.url, tenant.name, *access)


def are_apart(one: str, other: str) -> bool:
    """Return whether neither remote lies in the other (ALONE-3). The text is empty without a remote.

    Raises `InvalidRemote`.
    """
    if not one or not other:
        return True
    first, second = _place_of(one), _place_of(other)
    shared = min(len(first), len(second))
    return first[:shared] != second[:shared]


def _place_of(url: str) -> tuple[str, ...]:
    """Return the parts of the place, from the scheme on."""
    parts = split_remote(url)
    if parts.scheme == "file":
        return ("file", *Path(path_of(parts.path)).resolve().parts)
    return (parts.scheme, parts.netloc.lower(), *filter(None, parts.path.split("/")))
