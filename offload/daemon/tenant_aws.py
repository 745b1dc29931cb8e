"""AWS for the tenant of one service: its credentials, and the check of its bucket at the start and once an hour.

BUCKETS-1  A failed check stops nothing. If the tenant cannot list its own prefix, that is an error: its uploads fail
    too. If it can list the whole bucket, that is a warning: its policy lets it see other tenants' keys.
BUCKETS-2  A line in the log and an event follow a check whose result differs from the one before. The first check
    counts as a change only if it is bad.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from catalog.errors import CatalogError
from catalog.format.remotes import split_remote
from offload.daemon.events import Events
from offload.daemon.metrics import Metrics
from offload.settings import Settings

if TYPE_CHECKING:
    from offload.tenants.bucket_check import BucketCheck
    from offload.tenants.credentials import Refresher, TenantCredentials
    from offload.tenants.sts_request import TenantAccess

_CHECK_INTERVAL_S = 3600.0
_log = logging.getLogger("seglog.daemon")


def open_aws(
    settings: Settings, url: str | None, metrics: Metrics, refresher: Callable[[], Refresher] | None = None
) -> TenantAws | None:
    """Return the work of the directory's tenant; None without a tenant, or if its remote is not in S3.

    All services of a process may share what `refresher` returns, which the caller then closes. Call this in the loop.
    Raises `NotInstalled` and the errors of `offload.tenants.sts_request.access_of`.
    """
    tenant = settings.tenant
    if not tenant.name or split_remote(url or "").scheme != "s3":
        return None
    aws = TenantAws(tenant.name, url or "", metrics)
    if tenant.role_arn:
        from offload.tenants.credentials import Refresher
        from offload.tenants.sts_request import access_of

        access = access_of(settings, url)
        if access is not None:
            aws.take_role(access, (refresher or Refresher)(), is_shared=refresher is not None)
    return aws


class TenantAws:
    """The work of one tenant. `credentials` is None if they come from the AWS environment.

    `checked` is the result of the last check of the bucket.
    """

    def __init__(self, tenant: str, url: str, metrics: Metrics) -> None:
        self.tenant = tenant
        self.url = url
        self.credentials: TenantCredentials | None = None
        self.checked: BucketCheck | None = None
        self._metrics = metrics
        self._refresher: Refresher | None = None
        self._is_shared = False
        self._task: asyncio.Task[None] | None = None
        self._was: tuple[str, str] = ("", "")

    def take_role(self, access: TenantAccess, refresher: Refresher, *, is_shared: bool) -> None:
        """Let the refresher keep the credentials of the tenant's role. `is_shared`: other services use it too."""
        self._refresher, self._is_shared = refresher, is_shared
        self.credentials = refresher.add(access, self._count_renewal)

    def _count_renewal(self, error: CatalogError | None) -> None:
        self._metrics.tenant_renewals.labels("ok" if error is None else "failed").inc()
        if error is None and self.credentials is not None:
            left_s = self.credentials.expires_s - time.monotonic()
            self._metrics.tenant_credentials_end_s.set(time.time() + left_s)

    def start(self, events: Events) -> None:
        """Start the checks of the bucket, if aiobotocore is installed."""
        if find_spec("aiobotocore") is None:
            _log.info("no checks of the bucket: they need `pip install 'seglog[tenants]'`")
            return
        self._task = asyncio.create_task(self._check(events), name="seglog-bucket-check")

    async def close(self) -> None:
        """Stop the checks and the renewals. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._refresher is not None and self.credentials is not None:
            await self._refresher.remove(self.credentials)
            if not self._is_shared:
                await self._refresher.close()

    async def _check(self, events: Events) -> None:
        from offload.tenants.bucket_check import check_bucket

        while True:
            try:
                credentials = None if self.credentials is None else await self.credentials.first()
                self._take(await check_bucket(self.url, credentials), events)
            except CatalogError as error:  # no credentials: the renewal logs it, too
                _log.error("tenant %s: cannot check its bucket: %s", self.tenant, error)
            except Exception:
                _log.exception("tenant %s: cannot check its bucket", self.tenant)
            await asyncio.sleep(_CHECK_INTERVAL_S)

    def _take(self, bucket_check: BucketCheck, events: Events) -> None:
        self.checked = bucket_check
        self._metrics.tenant_bucket.labels("own_prefix").set(not bucket_check.error)
        self._metrics.tenant_bucket.labels("whole_bucket").set(not bucket_check.warning)
        if (bucket_check.error, bucket_check.warning) == self._was:
            return
        self._was = (bucket_check.error, bucket_check.warning)
        events.publish("bucket", own_prefix=bucket_check.own_prefix.value, whole_bucket=bucket_check.whole_bucket.value)
        if bucket_check.error:
            _log.error("tenant %s: %s", self.tenant, bucket_check.error)
        if bucket_check.warning:
            _log.warning("tenant %s: %s", self.tenant, bucket_check.warning)
        if bucket_check.is_good:
            _log.info("tenant %s: its bucket keeps it apart again", self.tenant)
