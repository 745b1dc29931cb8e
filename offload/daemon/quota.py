"""The quotas of a tenant: its requests and appended bytes a second, and the bytes of its hot data.

    quota                  counts                                        over it
    requests_per_s         requests over TCP; probes and metrics pass    429 OverRate, Retry-After
    append_bytes_per_s     bytes of appends, as the log gets them        429 OverRate, Retry-After
    quota_bytes            hot bytes at the last look, and those since   507 OverQuota

QUOTA-1  The daemon asks a quota before the log gets a record. So a refused append takes no seq.
QUOTA-2  An account holds the units of a second at most. A request passes while it holds any, and takes all of its own.
    So one large append passes, and later ones wait until the account is paid off.
QUOTA-3  A body that is taken by parts is refused before its first part. Its later parts wait for the rate. A later part
    that is over `quota_bytes` is refused, and the answer says which records are in.
QUOTA-4  Reads, deletes and offloads pass over `quota_bytes`, so a tenant can make room.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from offload.errors import OverQuota, OverRate
from offload.settings import TenantSettings, bound_of

__all__ = ["Account", "Quota"]


@dataclass(slots=True)
class Account:
    """A rate of `per_s` units, or None without a limit. Times are of a clock that never goes back."""

    per_s: float | None
    held: float = 0.0
    at_s: float = -math.inf

    def take(self, units: float, now_s: float) -> float:
        """Take the units, and return 0. If the account holds none, take nothing and return the seconds to wait."""
        if self.per_s is None:
            return 0.0
        self.held = min(max(self.per_s, 1.0), self.held + (now_s - self.at_s) * self.per_s)
        self.at_s = now_s
        if self.held < 1.0:
            return (1.0 - self.held) / self.per_s
        self.held -= units
        return 0.0


class Quota:
    """The quotas of one tenant, for one event loop. `count` counts each refusal by its reason."""

    def __init__(
        self,
        settings: TenantSettings,
        count: Callable[[str], None] = lambda _reason: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._count = count
        self._now_s = now_s
        self._requests, self._appends = Account(None), Account(None)
        self._hot_bytes = 0
        self._since_bytes = 0
        self.change(settings)

    def change(self, settings: TenantSettings) -> None:
        """Take new limits. What an account owes stays."""
        self._requests.per_s = bound_of(settings.requests_per_s)
        self._appends.per_s = bound_of(settings.append_bytes_per_s)
        self.most_bytes = bound_of(settings.quota_bytes)

    def take_request(self) -> None:
        """Count a request. Raises `OverRate`."""
        wait_s = self._requests.take(1, self._now_s())
        if wait_s:
            self._count("rate")
            raise OverRate("tenant.requests_per_s", math.ceil(wait_s))

    async def take_append(self, size_bytes: int, *, is_first: bool = True) -> None:
        """Count an append. If it is not the first part of its body, wait for the rate (QUOTA-3).

        Raises `OverRate` and `OverQuota` before anything changes (QUOTA-1).
        """
        if not size_bytes:
            return
        if self.most_bytes is not None and self._hot_bytes + self._since_bytes + size_bytes > self.most_bytes:
            self._count("quota")
            raise OverQuota(self.most_bytes)
        while wait_s := self._appends.take(size_bytes, self._now_s()):
            if is_first:
                self._count("rate")
                raise OverRate("tenant.append_bytes_per_s", math.ceil(wait_s))
            await asyncio.sleep(min(wait_s, 1.0))
        self._since_bytes += size_bytes

    @property
    def since_bytes(self) -> int:
        """Return the bytes appended since the last look, for `looked`."""
        return self._since_bytes

    def looked(self, hot_bytes: int, since_bytes: int) -> None:
        """Take the hot bytes of all topics. `since_bytes` were appended before the look began."""
        self._hot_bytes = hot_bytes
        self._since_bytes -= since_bytes
