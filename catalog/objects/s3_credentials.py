"""AWS credentials: those of a source, for a store, and those of this process.

A `CredentialSource` has the credentials of one tenant, and renews them. The boto3 session and obstore ask it for the
newest ones, so a client of either lives longer than any credentials.

CRED-1  boto3 asks the source at each signature. obstore asks it once a minute.
CRED-2  If the store refuses an access key as expired, the client asks the source for newer credentials. With newer ones
    it sends the same request again. So an upload of many parts continues.
CRED-3  Such a refusal comes before any effect. So also a request that is sent once may follow it (BUCKET-1).

Without a source, boto3 finds the credentials of the process: in the environment, in a profile, by a role of the machine
or of the container, a web identity, a single sign-on, a program.

HAND-1  boto3 renews credentials that expire, when it is asked for them and they end soon. So each answer is worth at
    least some minutes.
HAND-2  Credentials that never expire are looked for again by each call, because a person may have replaced them.

`EnvironmentCredentials` makes a source of those of the process, for a store that outlives them. `CredentialFinder`
hands them to a program in another language.

AMBIENT-1  The source looks for credentials again when they end within five minutes, at most twice a minute, and when
    they have ended. So a program runs once in a life of its credentials, and not for each request.
AMBIENT-2  A failure to get newer credentials takes nothing away: the old ones stay until they expire.
AMBIENT-3  If the store refuses the newest access key, the source looks again, at most once in five seconds. So a store
    that refuses every key starts no storm of programs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Protocol

import boto3
from botocore.credentials import Credentials, ReadOnlyCredentials, RefreshableCredentials
from botocore.exceptions import BotoCoreError

from catalog.errors import AccessDenied
from catalog.objects.s3_client import new_session
from seglog.base.dataclasses import dataclass
from seglog.base.lazy import logger

REFUSED_KEY_CODES = frozenset(
    {"ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "InvalidTokenId", "TokenRefreshRequired"}
)
"""The codes of a store that no longer takes a session's access key. MinIO forgets the key when it expires."""

_ERROR_HEADERS = ("x-amz-error-code", "x-minio-error-code")  # the answer to a HEAD has no body
_MAX_RESENDS = 2
_SIGNED_WITH = "seglog_access_key"
_HINT = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile"
_SPARE_MS = 5 * 60_000
_PATIENCE_MS = 30_000
_REFUSED_AGAIN_MS = 5_000
_log = logger(__name__)


@dataclass(frozen=True, slots=True)
class FoundCredentials:
    """`expires_at_ms` is None if they do not expire. The text of this value has no secret."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str | None = field(repr=False)
    expires_at_ms: int | None


class CredentialSource(Protocol):
    """Has the newest credentials of one tenant. Any thread may ask."""

    def current(self, refused: str = "") -> FoundCredentials:
        """Return the newest credentials.

        `refused` is an access key that a store refused as expired. If it is still the newest, the source tries to get
        newer ones first. If it cannot, it returns the old ones. Raises `AccessDenied` if it has none that are valid.
        """


class SourceCredentials(Credentials):  # type: ignore[misc]  # botocore has no types
    """The credentials of a source, as boto3 asks for them at each signature (CRED-1)."""

    def __init__(self, source: CredentialSource) -> None:
        self.source = source
        self.method = "seglog"
        self.account_id = None

    @property
    def access_key(self) -> str:
        return self.source.current().access_key

    @property
    def secret_key(self) -> str:
        return self.source.current().secret_key

    @property
    def token(self) -> str | None:
        return self.source.current().session_token

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        credentials = self.source.current()
        return ReadOnlyCredentials(credentials.access_key, credentials.secret_key, credentials.session_token, None)


def session_of(source: CredentialSource) -> boto3.Session:
    """Return a session with the credentials of `source`. It takes everything else from the environment."""
    return new_session(SourceCredentials(source))


def resend_with_newer(client: Any, source: CredentialSource) -> None:
    """Let a client send a request again if the store refuses its access key and `source` has a newer one (CRED-2)."""

    def remember(request: Any, **_: object) -> None:
        request.context[_SIGNED_WITH] = source.current().access_key

    def is_due(response: Any, attempts: int, request_dict: Mapping[str, Any], **_: object) -> int | None:
        if response is None or attempts > _MAX_RESENDS or _code_of(response) not in REFUSED_KEY_CODES:
            return None
        refused = request_dict["context"].get(_SIGNED_WITH, "")
        return None if source.current(refused).access_key == refused else 0

    client.meta.events.register("before-sign.s3", remember)
    client.meta.events.register("needs-retry.s3", is_due)


def _code_of(response: tuple[Any, Mapping[str, Any]]) -> str:
    answer, parsed = response
    code: str = parsed.get("Error", {}).get("Code", "")
    if code in REFUSED_KEY_CODES:
        return code
    return next((answer.headers[name] for name in _ERROR_HEADERS if name in answer.headers), code)


class CredentialFinder:
    """Finds the credentials of this process. It keeps the session whose credentials boto3 renews."""

    def __init__(self) -> None:
        self._renewing: boto3.Session | None = None

    def find(self) -> FoundCredentials:
        """Return the credentials. Raises `AccessDenied` if there are none, or if boto3 cannot get them."""
        session = self._renewing or new_session()
        try:
            credentials = session.get_credentials()
            frozen = None if credentials is None else credentials.get_frozen_credentials()
        except (BotoCoreError, OSError, ValueError) as trouble:  # a program that is absent, or gives no JSON
            raise AccessDenied("S3", f"boto3 gets no credentials here: {trouble}", _HINT) from trouble
        if frozen is None or not frozen.access_key or not frozen.secret_key:
            raise AccessDenied("S3", "boto3 finds no credentials here", _HINT)
        expires_at_ms: int | None = None
        if isinstance(credentials, RefreshableCredentials):
            self._renewing = session
            expires_at_ms = round(credentials._expiry_time.timestamp() * 1000)  # noqa: SLF001 - botocore tells it nowhere else
        return FoundCredentials(frozen.access_key, frozen.secret_key, frozen.token, expires_at_ms)


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
            credentials = self._held
            if credentials is None or _left_ms(credentials, now_ms) <= 0:
                return self._ask(now_ms)
            is_ending = _left_ms(credentials, now_ms) < _SPARE_MS and now_ms - self._asked_ms > _PATIENCE_MS
            is_refused = refused == credentials.access_key and now_ms - self._refused_ms > _REFUSED_AGAIN_MS
            if is_refused:
                self._refused_ms = now_ms
            return self._ask_in_time(credentials, now_ms) if is_ending or is_refused else credentials

    def _ask(self, now_ms: float) -> FoundCredentials:
        self._asked_ms = now_ms
        self._held = self._find()
        return self._held

    def _ask_in_time(self, credentials: FoundCredentials, now_ms: float) -> FoundCredentials:
        try:
            return self._ask(now_ms)
        except AccessDenied as error:
            _log.warning("there are no newer AWS credentials yet: %s", error)
            return credentials  # the old ones stay until they expire (AMBIENT-2)


def _found_anew() -> FoundCredentials:
    """Return what a new session of boto3 finds. A session that exists would give its credentials again."""
    return CredentialFinder().find()


def _now_ms() -> float:
    return time.time() * 1000


def _left_ms(credentials: FoundCredentials, now_ms: float) -> float:
    return float("inf") if credentials.expires_at_ms is None else credentials.expires_at_ms - now_ms
