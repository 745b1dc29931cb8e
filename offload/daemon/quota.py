"""The quotas of a tenant: its requests and appended bytes a second, and the bytes of its hot data.

    quota                  counts                                        over it
    requests_per_s         requests over TCP; probes and metrics pass    429 OverRate, Retry-After
    append_bytes_per_s     bytes of appends, as they lie on disk         429 OverRate, Retry-After
    quota_bytes            hot bytes at the last look, those appended    507 OverQuota
                           since, and those of appends under way

QUOTA-1  The daemon asks a quota before the log gets a record. So a refused append takes no seq.
QUOTA-2  An account holds the units of a second at most. A request passes while it holds any, and takes all of its own.
    So one large append passes, and later ones wait until the account is paid off.
QUOTA-3  A body that is taken by parts is refused before its first part. Its later parts wait for the rate. A later part
    that is over `quota_bytes` is refused, and the answer says which records are in.
QUOTA-4  Reads, deletes and offloads pass over `quota_bytes`, so a tenant can make room. So does the repetition of an
    append that is in, because it appends nothing. A repeated PUT is refused: it would need room in a spool.
QUOTA-5  A record counts its frame: its value, its labels, and 46 bytes. So an empty one counts, too.
QUOTA-6  An append holds its bytes from the question on, also while it waits for the rate. At its end it gives back
    those that the log did not take. So appends beside each other never pass `quota_bytes` together.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from offload.errors import Busy, OffloadError
from offload.settings import TenantSettings, bound_of
from seglog.base.dataclasses import dataclass
from seglog.base.errors import Unavailable
from seglog.format.frame import MIN_FRAME_BYTES
from seglog.format.lines import total_bytes


class OverQuota(Unavailable, OffloadError):
    """The hot data of the tenant has as many bytes as `tenant.quota_bytes` allows. Nothing was appended."""

    limit_bytes: int
    message = "the tenant's hot data is at its quota of {limit_bytes} bytes"
    hint = "offload and release segments, delete records, or ask the operator for a higher tenant.quota_bytes"


class OverRate(Busy):
    """The tenant sent more than its quota `setting` allows. Nothing was appended."""

    def __init__(self, setting: str, retry_after_s: int) -> None:
        self.retry_after_s = max(1, retry_after_s)
        self._tell(f"the tenant is over its quota {setting}", hint=f"send it again in {self.retry_after_s} s")
        self.setting = setting


def frame_bytes(values: Sequence[bytes], tag: str | None = None, node: str | None = None) -> int:
    """Return the bytes that the records take on disk (QUOTA-5)."""
    labels = sum(len(text.encode()) for text in (tag, node) if text)
    return total_bytes(values) + len(values) * (MIN_FRAME_BYTES + labels)


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
        self._held_bytes = 0  # of appends under way
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

    async def take_append(self, size_bytes: int, *, is_first: bool = True) -> Hold:
        """Hold bytes for an append (QUOTA-6). If it is not the first part of its body, wait for the rate (QUOTA-3).

        Raises `OverRate` and `OverQuota` before anything changes (QUOTA-1).
        """
        used_bytes = self._hot_bytes + self._since_bytes + self._held_bytes
        if self.most_bytes is not None and size_bytes and used_bytes + size_bytes > self.most_bytes:
            self._count("quota")
            raise OverQuota(self.most_bytes)
        hold = Hold(self, size_bytes)
        try:
            await self._take_rate(size_bytes, is_first=is_first)
        except BaseException:
            hold.end()
            raise
        return hold

    async def _take_rate(self, size_bytes: int, *, is_first: bool) -> None:
        while size_bytes and (wait_s := self._appends.take(size_bytes, self._now_s())):
            if is_first:
                self._count("rate")
                raise OverRate("tenant.append_bytes_per_s", math.ceil(wait_s))
            await asyncio.sleep(min(wait_s, 1.0))

    def change_held(self, size_bytes: int, *, appended_bytes: int = 0) -> None:
        """Change the bytes of appends under way, and add to those appended since the last look."""
        self._held_bytes += size_bytes
        self._since_bytes += appended_bytes

    @property
    def since_bytes(self) -> int:
        """Return the bytes appended since the last look, for `looked`."""
        return self._since_bytes

    def looked(self, hot_bytes: int, since_bytes: int) -> None:
        """Take the hot bytes of all topics. `since_bytes` were appended before the look began."""
        self._hot_bytes = hot_bytes
        self._since_bytes -= since_bytes


class Hold:
    """The bytes of one append under way, as a context manager. Its end gives back those that the log did not take."""

    __slots__ = ("_left_bytes", "_quota")

    def __init__(self, quota: Quota, size_bytes: int) -> None:
        self._quota = quota
        self._left_bytes = size_bytes
        quota.change_held(size_bytes)

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        self.end()

    def appended(self, size_bytes: int) -> None:
        """Take note that the log has so many of the bytes."""
        self._left_bytes -= size_bytes
        self._quota.change_held(-size_bytes, appended_bytes=size_bytes)

    def end(self) -> None:
        self._quota.change_held(-self._left_bytes)
        self._left_bytes = 0
