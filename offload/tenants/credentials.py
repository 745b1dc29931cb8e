"""Credentials of tenants from STS: a source for one command, and one refresher for all tenants of a daemon.

Both send AssumeRole, and keep its answer as `Kept` decides. The refresher asks by aiobotocore in one event
loop. A command has no loop: its thread asks by boto3 when it needs credentials.

REFRESH-1  At most eight requests to STS are on their way.
REFRESH-2  A caller in a thread waits ten seconds at most: for the first credentials, and for newer ones after a
    refusal. A caller in the refresher's own loop never waits.
REFRESH-3  The tenants share the client of STS, because it has the identity of the daemon.

**The newest credentials** of one tenant, and the decisions about them, which do no I/O:

    state      what is true                                   a caller gets
    none       nothing came yet                               it waits, or the last error
    fresh      less than two thirds of the life have passed   the credentials
    due        a renewal runs, or waits after a failure       the credentials
    expired    their life is over                             the last error

NEWEST-1  A renewal is due at two thirds of the life. A chance brings it forward by up to a tenth of the life. So the
    tenants of a daemon do not all ask at once.
NEWEST-2  A failed renewal takes nothing away: the old credentials stay until they expire.
NEWEST-3  A store that refuses the newest access key brings the renewal forward, but not within five seconds of the last
    one. So a store that refuses every key makes no storm at STS.

**Clients of aiobotocore.** Only functions import it, because most processes need none. The first client of a process
parses the descriptions of the AWS services, which takes 80 ms of CPU. Later ones share them and take 5 to 8 ms. So
`warm` parses them in a thread, and the event loop of a daemon never waits that long.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NotConnected

from catalog.errors import AccessDenied, CatalogError, StoreUnreachable
from catalog.objects.s3_credentials import FoundCredentials
from catalog.objects.s3_timeout import SilentStore, be_patient
from catalog.objects.store_timeout import LIMIT_S
from offload.settings import Backoff
from offload.tenants.sts_request import GrantedCredentials, TenantAccess, granted_in, request_of
from seglog.base.dataclasses import dataclass
from seglog.errors import NotInstalled

RENEW_AGAIN_S = 5.0

_DUE_AT = 2 / 3
_JITTER = 1 / 10
_BACKOFF = Backoff(min_ms=1000, max_ms=60_000)
_AT_ONCE = 8
WAIT_S = 10.0
_ANSWER_S = 60
_TIMEOUTS = {"connect_timeout": 5, "read_timeout": 10}
_WARM = {"region_name": "us-east-1", "aws_access_key_id": "none", "aws_secret_access_key": "none"}
_warmed: set[str] = set()
_log = logging.getLogger(__name__)

Assume = Callable[[TenantAccess], Awaitable[GrantedCredentials]]
Watch = Callable[[CatalogError | None], None]


@dataclass(frozen=True, slots=True)
class Kept:
    """The state of one tenant. Times are seconds of a monotonic clock. `attempts` counts renewals that ended."""

    tenant: str
    credentials: FoundCredentials | None = None
    obtained_s: float = 0.0
    expires_s: float = 0.0
    due_s: float = 0.0
    failures: int = 0
    attempts: int = 0
    error: CatalogError | None = None

    def renewed(self, granted: GrantedCredentials, now_s: float, chance: float) -> Kept:
        due_s = now_s + granted.life_s * (_DUE_AT - _JITTER * chance)
        return Kept(self.tenant, granted.credentials, now_s, now_s + granted.life_s, due_s, attempts=self.attempts + 1)

    def failed(self, error: CatalogError, now_s: float, chance: float) -> Kept:
        """Return the state after a failed renewal (NEWEST-2). The next try follows a growing pause."""
        failures = self.failures + 1
        due_s = now_s + _BACKOFF.delay_ms(failures, chance) / 1000
        return replace(self, failures=failures, attempts=self.attempts + 1, due_s=due_s, error=error)

    def is_refused(self, refused: str, now_s: float) -> bool:
        """Return whether a renewal has to come before a caller whose access key `refused` failed gets an answer."""
        newest = self.credentials
        return bool(refused) and newest is not None and newest.access_key == refused and self._may_renew(now_s)

    def _may_renew(self, now_s: float) -> bool:
        """Return whether a renewal that is brought forward makes no storm at STS (NEWEST-3)."""
        return now_s >= self.obtained_s + RENEW_AGAIN_S and (self.failures == 0 or now_s >= self.due_s)

    def for_caller(self, now_s: float) -> FoundCredentials:
        """Return the credentials. Raises the last error if there are none, and `AccessDenied` after their end."""
        if self.credentials is not None and now_s < self.expires_s:
            return self.credentials
        if self.error is not None:
            # Each raise adds a frame to the error's traceback, and a frame holds the caller's data.
            raise self.error.with_traceback(None)
        gone = "have expired" if self.credentials else "have not come yet"
        raise AccessDenied("STS", f"the credentials of the tenant {self.tenant} {gone}", "look at the daemon's log")


class SingleTenant:
    """The credentials of one tenant, for a process without an event loop. The thread that needs them asks STS."""

    def __init__(
        self, access: TenantAccess, assume: Callable[[TenantAccess], GrantedCredentials] | None = None
    ) -> None:
        self._access = access
        self._assume = assume or assume_role
        self._lock = threading.Lock()
        self._kept = Kept(access.tenant)

    def current(self, refused: str = "") -> FoundCredentials:
        with self._lock:
            now_s = time.monotonic()
            if now_s >= self._kept.due_s or self._kept.is_refused(refused, now_s):
                self._renew(now_s)
            return self._kept.for_caller(time.monotonic())

    def _renew(self, now_s: float) -> None:
        try:
            self._kept = self._kept.renewed(self._assume(self._access), now_s, random.random())
        except CatalogError as error:
            self._kept = self._kept.failed(error, now_s, random.random())
            _warn(self._access.tenant, error)


class TenantCredentials:
    """The credentials of one tenant of a refresher. Any thread may ask for them."""

    def __init__(self, access: TenantAccess, watch: Watch, loop: asyncio.AbstractEventLoop) -> None:
        self.access = access
        self._watch = watch
        self._loop = loop
        self._loop_thread = threading.get_ident()
        self._is_changed = threading.Condition()
        self._kept = Kept(access.tenant)
        self._was_attempted = asyncio.Event()
        self.wanted = asyncio.Event()

    def current(self, refused: str = "") -> FoundCredentials:
        with self._is_changed:
            kept = self._kept
            is_refused = kept.is_refused(refused, time.monotonic())
            if (is_refused or kept.attempts == 0) and threading.get_ident() != self._loop_thread:
                if is_refused:
                    with suppress(RuntimeError):  # the loop is closed, so nothing newer comes
                        self._loop.call_soon_threadsafe(self.wanted.set)
                self._is_changed.wait_for(
                    lambda: self._kept.attempts > kept.attempts, WAIT_S
                )  # a thread waits ten seconds at most (REFRESH-2)
            return self._kept.for_caller(time.monotonic())

    async def first(self) -> FoundCredentials:
        """Return the newest credentials once STS has answered, or its time was over. Call this in the refresher's loop.

        Raises `AccessDenied` without any that are valid. The wait takes no thread.
        """
        await self._was_attempted.wait()
        return self.current()

    @property
    def due_s(self) -> float:
        """Return when the next renewal is due, on the monotonic clock."""
        return self._kept.due_s

    @property
    def expires_s(self) -> float:
        """Return when the credentials expire, on the monotonic clock; 0 without any."""
        return self._kept.expires_s

    def renewed(self, granted: GrantedCredentials) -> None:
        self._change(self._kept.renewed(granted, time.monotonic(), random.random()), None)

    def failed(self, error: CatalogError) -> None:
        self._change(self._kept.failed(error, time.monotonic(), random.random()), error)
        _warn(self.access.tenant, error)

    def _change(self, kept: Kept, error: CatalogError | None) -> None:
        with self._is_changed:
            self._kept = kept
            self._is_changed.notify_all()
        self._was_attempted.set()
        self._watch(error)


class Refresher:
    """Renews the credentials of many tenants in the running event loop.

    Call all methods in that loop. `assume` takes the place of STS in tests.
    """

    def __init__(self, assume: Assume | None = None) -> None:
        self._clients = _StsClients()
        self._assume = assume or self._clients.assume
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._tasks: dict[TenantCredentials, asyncio.Task[None]] = {}

    def add(self, access: TenantAccess, watch: Watch = lambda _: None) -> TenantCredentials:
        """Return the credentials of a tenant. The first ones come soon; `watch` hears of each renewal or its error.

        Raises `NotInstalled` without aiobotocore.
        """
        if find_spec("aiobotocore") is None:
            raise NotInstalled("tenant.role_arn", "aiobotocore", "tenants")
        source = TenantCredentials(access, watch, asyncio.get_running_loop())
        self._tasks[source] = asyncio.create_task(self._keep(source), name=f"seglog-credentials-{access.tenant}")
        return source

    async def remove(self, source: TenantCredentials) -> None:
        """Stop the renewals of a tenant. It keeps the credentials that it has. Idempotent."""
        task = self._tasks.pop(source, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        """Stop all renewals, and close the connections to STS. Idempotent."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._clients.close()

    async def _keep(self, source: TenantCredentials) -> None:
        while True:
            source.wanted.clear()
            async with self._places:
                try:
                    source.renewed(await self._assume(source.access))
                except CatalogError as error:
                    source.failed(error)
                except Exception as error:  # the renewals of a tenant must not end
                    _log.exception("tenant %s: cannot renew its credentials", source.access.tenant)
                    source.failed(StoreUnreachable("STS", type(error).__name__))
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, source.due_s - time.monotonic())):
                    await source.wanted.wait()


class _StsClients:
    """One client of STS for each profile of the AWS configuration (REFRESH-3)."""

    def __init__(self) -> None:
        self._open = AsyncExitStack()
        self._clients: dict[str, Any] = {}
        self._opening = asyncio.Lock()

    async def assume(self, access: TenantAccess) -> GrantedCredentials:
        """Ask STS. Raises `AccessDenied` and `StoreUnreachable`."""
        try:
            client = await self._client(access.profile)
            async with asyncio.timeout(_ANSWER_S):  # also of a server that sends a byte now and then
                return granted_in(access, await client.assume_role(**request_of(access)))
        except TimeoutError as late:
            raise StoreUnreachable("STS", f"no answer within {_ANSWER_S} s") from late
        except (ClientError, BotoCoreError, OSError, ValueError) as trouble:
            raise _error_of(access, trouble) from trouble

    async def close(self) -> None:
        self._clients.clear()
        await self._open.aclose()

    async def _client(self, profile: str) -> Any:
        async with self._opening:
            if profile not in self._clients:
                await warm("sts")
                opened = open_aio_client("sts", {**_TIMEOUTS, "max_pool_connections": _AT_ONCE}, profile)
                self._clients[profile] = await self._open.enter_async_context(opened)
            return self._clients[profile]


def assume_role(access: TenantAccess) -> GrantedCredentials:
    """Ask STS by boto3, in this thread. Raises `AccessDenied` and `StoreUnreachable`."""
    from botocore.config import Config

    from catalog.objects.s3_client import new_session

    try:
        session = new_session(profile=access.profile or None)
        client = session.client("sts", config=Config(**_TIMEOUTS))
        be_patient(client, LIMIT_S)
        try:
            return granted_in(access, client.assume_role(**request_of(access)))
        finally:
            client.close()
    except (ClientError, BotoCoreError, OSError, ValueError) as trouble:
        raise _error_of(access, trouble) from trouble


def _error_of(access: TenantAccess, trouble: Exception) -> CatalogError:
    """Return the error of a failed AssumeRole. Its text has the role and no secret."""
    text = str(trouble)
    if isinstance(trouble, ClientError):
        error = trouble.response.get("Error", {})
        status = trouble.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        text = f"{error.get('Code', status)}: {error.get('Message', '')}".rstrip(": ")
        if status >= 500:
            return StoreUnreachable("STS", text)
    elif isinstance(trouble, (NotConnected, HTTPClientError, SilentStore, OSError)):
        return StoreUnreachable("STS", text)
    hint = "check tenant.role_arn, the role's trust policy, and the credentials that take the role"
    return AccessDenied("STS", f"no credentials for {access.tenant} by {access.role_arn}: {text}", hint)


def _warn(tenant: str, error: CatalogError) -> None:
    _log.warning("tenant %s: cannot renew its credentials: %s", tenant, error)


@asynccontextmanager
async def open_aio_client(
    service: str, settings: Mapping[str, object], profile: str = "", credentials: Mapping[str, str | None] | None = None
) -> AsyncIterator[Any]:
    """Yield a client. `settings` are those of its AioConfig. Without `credentials`, the AWS environment gives them."""
    from aiobotocore.config import AioConfig
    from aiobotocore.session import AioSession

    session = AioSession(profile=profile or None)
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    async with session.create_client(service, config=AioConfig(**settings), **(credentials or {})) as client:
        yield client


async def warm(service: str) -> None:
    """Parse the descriptions of a service in a thread, unless this process has done so."""
    if service in _warmed:
        return

    async def open_and_close() -> None:
        async with open_aio_client(service, {}, "", _WARM):
            pass

    # A thread of its own: callers that wait for these very credentials may fill the default ones of the loop.
    with ThreadPoolExecutor(1, "seglog-warm") as pool:
        await asyncio.get_running_loop().run_in_executor(pool, lambda: asyncio.run(open_and_close()))
    _warmed.add(service)


@functools.cache
def _loader(data_path: str | None) -> Any:
    from botocore.loaders import create_loader

    return create_loader(data_path)
