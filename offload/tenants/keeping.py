"""The newest credentials of one tenant, and the decisions about them: when to renew, and what a caller gets. No I/O.

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
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from catalog.errors import AccessDenied, CatalogError
from catalog.objects.s3_credentials import FoundCredentials
from offload.backoff import Backoff
from offload.tenants.access import GrantedCredentials

__all__ = ["RENEW_AGAIN_S", "Kept"]

RENEW_AGAIN_S = 5.0

_DUE_AT = 2 / 3
_JITTER = 1 / 10
_BACKOFF = Backoff(min_ms=1000, max_ms=60_000)


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
