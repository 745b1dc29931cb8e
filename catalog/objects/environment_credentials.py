"""The AWS credentials of this process as a source, for a store that outlives them.

boto3 finds them: in the environment, in a profile, by a role, a single sign-on, or the program that a profile names as
`credential_process`.

AMBIENT-1  The source looks for credentials again when they end within five minutes, at most twice a minute, and when
    they have ended. So a program runs once in a life of its credentials, and not for each request.
AMBIENT-2  A failure to get newer credentials takes nothing away: the old ones stay until they expire.
AMBIENT-3  If the store refuses the newest access key, the source looks again, at most once in five seconds. So a store
    that refuses every key starts no storm of programs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from catalog.errors import AccessDenied
from catalog.objects.s3_credentials import CredentialFinder, FoundCredentials

__all__ = ["EnvironmentCredentials"]

_SPARE_MS = 5 * 60_000
_PATIENCE_MS = 30_000
_REFUSED_AGAIN_MS = 5_000
_log = logging.getLogger(__name__)


class EnvironmentCredentials:
    """A `CredentialSource`. It keeps what it found until shortly before that expires."""

    def __init__(
        self, find: Callable[[], FoundCredentials] | None = None, now_ms: Callable[[], float] | None = None
    ) -> None:
        """`find` takes the place of boto3's search in tests, and `now_ms` that of the clock."""
        self._find = find or _found_anew
        self._now_ms = now_ms or _now_ms
        self._lock = threading.Lock()
        self._held: FoundCredentials | None = None
        self._asked_ms = self._refused_ms = 0.0

    def current(self, refused: str = "") -> FoundCredentials:
        with self._lock:
            now_ms = self._now_ms()
            held = self._held
            if held is None or _left_ms(held, now_ms) <= 0:
                return self._ask(now_ms)
            is_ending = _left_ms(held, now_ms) < _SPARE_MS and now_ms - self._asked_ms > _PATIENCE_MS
            is_refused = refused == held.access_key and now_ms - self._refused_ms > _REFUSED_AGAIN_MS
            if is_refused:
                self._refused_ms = now_ms
            return self._ask_in_time(held, now_ms) if is_ending or is_refused else held

    def _ask(self, now_ms: float) -> FoundCredentials:
        self._asked_ms = now_ms
        self._held = self._find()
        return self._held

    def _ask_in_time(self, held: FoundCredentials, now_ms: float) -> FoundCredentials:
        try:
            return self._ask(now_ms)
        except AccessDenied as error:
            _log.warning("there are no newer AWS credentials yet: %s", error)
            return held  # the old ones stay until they expire (AMBIENT-2)


def _found_anew() -> FoundCredentials:
    """Return what a new session of boto3 finds. A session that exists would give its credentials again."""
    return CredentialFinder().find()


def _now_ms() -> float:
    return time.time() * 1000


def _left_ms(found: FoundCredentials, now_ms: float) -> float:
    return float("inf") if found.expires_at_ms is None else found.expires_at_ms - now_ms
