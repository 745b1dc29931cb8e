"""Credentials of tenants from STS: a source for one command, and one refresher for all tenants of a daemon.

Both send AssumeRole, and keep its answer as `offload.tenants.keeping` decides. The refresher asks by aiobotocore in one
event loop. A command has no loop: its thread asks by boto3 when it needs credentials.

REFRESH-1  At most eight requests to STS are on their way.
REFRESH-2  A caller in a thread waits ten seconds at most: for the first credentials, and for newer ones after a
    refusal. A caller in the refresher's own loop never waits.
REFRESH-3  The tenants share the client of STS, because it has the identity of the daemon.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from importlib.util import find_spec
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NotConnected

from catalog.errors import AccessDenied, CatalogError, StoreUnreachable
from catalog.objects.patience import LIMIT_S
from catalog.objects.s3_credentials import FoundCredentials
from catalog.objects.s3_patience import SilentStore, be_patient
from offload.tenants.access import GrantedCredentials, TenantAccess, granted_in, request_of
from offload.tenants.aio_clients import open_aio_client, warm
from offload.tenants.keeping import Kept
from seglog.errors import NotInstalled

__all__ = ["Refresher", "SingleTenant", "TenantCredentials", "assume_role"]

_AT_ONCE = 8
WAIT_S = 10.0
_ANSWER_S = 60
_TIMEOUTS = {"connect_timeout": 5, "read_timeout": 10}
_log = logging.getLogger(__name__)

Assume = Callable[[TenantAccess], Awaitable[GrantedCredentials]]
AssumeHere = Callable[[TenantAccess], GrantedCredentials]
Watch = Callable[[CatalogError | None], None]


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
