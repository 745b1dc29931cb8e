"""GETs from S3 through obstore, for `catalog.objects.s3`: a tenth of boto3's CPU time and no interpreter lock.

obstore uses the endpoint, region, certificates and credentials of the boto3 session. A refusal becomes the same error
as a refusal that boto3 gets. So a caller sees no difference between the two.

BGET-1  Absence is the code NoSuchKey and nothing else. A 404 of a proxy, or of a bucket that is gone, is not absence.
BGET-2  Every few minutes obstore asks the session for credentials, or the source once a minute. So it uses credentials
    that were refreshed. If the store refuses an access key and the source has a newer one, a new client of obstore
    sends the request again (CRED-2).
BGET-3  obstore repeats a request that fails (5xx, 429, a reset, a timeout, a body that breaks off), backing off with
    jitter.
BGET-4  Body and ETag come from one answer. If the body breaks off, the repeated request names that ETag.
BGET-5  A bucket in another region than the session's is `OtherRegion`. boto3 follows the store there, obstore does not.
BGET-6  No error has the body of an answer, nor a cause that has it: S3 sends a wrong token back in it. Only its code
    and its message go on.
BGET-7  obstore takes its time limits when a client is made. The usual client spends four fifths of a command's patience
    at most. A command that has less left gets a client of its own (catalog.objects.store_timeout).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import boto3
import obstore
from botocore.exceptions import BotoCoreError, NoCredentialsError
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from catalog.errors import AccessDenied
from catalog.objects.object_store import WithETag
from catalog.objects.s3_credentials import REFUSED_KEY_CODES, CredentialSource
from catalog.objects.s3_timeout import SilentStore
from catalog.objects.store_timeout import LIMIT_S, Call, waiting

CREDENTIALS_TTL = timedelta(minutes=10)  # obstore asks again when less than five are left
SOURCE_TTL = timedelta(minutes=6)

_USUAL = 0.8  # of the patience of a command: the most that the usual client spends
_ONE_TRY = 0.75  # of what a client may spend: the most for one try, so that a quick failure is repeated
_SPENT = 0.25  # of the patience: with less left, the error names the limit
_BACKOFF_FIRST = timedelta(milliseconds=100)
_BACKOFF_MOST = timedelta(seconds=20)
_CODE = re.compile(r"<Code>([^<]*)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_STATUS = re.compile(r"status code: (\d{3})")
_DEBUG = "\n\nDebug source:"
_ASKED = re.compile(r"uri: Some\(\s*([^\s,]+)")
_TRIED = re.compile(r"\bretries: (\d+)")
_ELAPSED = re.compile(r"elapsed: (\d+(?:\.\d)?)\d*((?:[mµn])?s)")
_TROUBLE = re.compile(r'(?:message|error): "([^"]*)"')
_BODY = re.compile(r"(status code: \d{3}[^:]*):.*", re.DOTALL)
_REGION_CODES = frozenset({"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect"})
_Read = TypeVar("_Read")
_BARE_REDIRECT = "Received redirect without LOCATION"


class Refusal(Exception):
    """A read that failed. `code` is the one in the store's XML, "" without one.

    `status` is 0 if there was no answer. `is_silent` says that its time was over.
    """

    def __init__(self, code: str, status: int, description: str, *, is_silent: bool = False) -> None:
        super().__init__(description)
        self.code = code
        self.status = status
        self.is_silent = is_silent


class OtherRegion(Exception):
    """The bucket is not in the region that the session names."""


class ObstoreReads:
    """Reads through obstore, with the endpoint and region of `client`, the session's boto3 client.

    The constructor makes no request. `get` and `get_range` raise `Refusal`, `OtherRegion`, and `BotoCoreError` or
    `AccessDenied` if there are no credentials.
    """

    def __init__(
        self,
        session: boto3.Session,
        client: Any,
        bucket: str,
        *,
        path_style: bool,
        connect_timeout_s: float,
        read_timeout_s: float,
        timeout_s: float,
        attempts: int,
        limit_s: float = LIMIT_S,
        credentials: CredentialSource | None = None,
    ) -> None:
        self._credentials = _Credentials(session, credentials)
        is_path_style = path_style or "." in bucket  # a wildcard certificate covers one label
        options: dict[str, Any] = {
            "allow_http": client.meta.endpoint_url.startswith("http://"),
            "connect_timeout": timedelta(seconds=connect_timeout_s),
            "read_timeout": timedelta(seconds=read_timeout_s),
        }
        bundle = session._session.get_config_variable("ca_bundle")  # noqa: SLF001 - boto3 shows it nowhere else
        if bundle:
            options["root_certificate"] = Path(bundle).read_bytes()
        self._open = functools.partial(
            S3Store,
            bucket,
            endpoint=_endpoint(client.meta.endpoint_url, "" if is_path_style else bucket),
            region=_region(client.meta.region_name),
            virtual_hosted_style_request=not is_path_style,
            credential_provider=self._credentials,
        )
        self._options = options
        self._timeout_s = timeout_s
        self._attempts = attempts
        self._limit_s = limit_s
        self._usual = (limit_s, self._opened(limit_s * _USUAL))

    def _opened(self, left_s: float) -> S3Store:
        """Return a client of obstore. A request takes no longer than `left_s`, with its repetitions (BGET-7)."""
        timeout_s = min(self._timeout_s, left_s * _ONE_TRY)
        return self._open(
            client_options={**self._options, "timeout": timedelta(seconds=timeout_s)},  # type: ignore[arg-type]
            retry_config={
                "max_retries": self._attempts - 1,
                "retry_timeout": timedelta(seconds=left_s - timeout_s),
                "backoff": {"init_backoff": _BACKOFF_FIRST, "max_backoff": _BACKOFF_MOST, "base": 2},
            },
        )

    def get(self, path: str) -> WithETag:
        def read(store: S3Store) -> WithETag:
            answer = obstore.get(store, path)
            etag = answer.meta["e_tag"] or ""  # before the body, which uses the answer up
            return WithETag(bytes(answer.bytes()), etag)

        return self._read(read, lambda tagged: len(tagged.body))

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Return the bytes of the range that exist."""
        return self._read(lambda store: bytes(obstore.get_range(store, path, start=start, length=length)), len)

    def _read(self, read: Callable[[S3Store], _Read], size_of: Callable[[_Read], int]) -> _Read:
        with waiting(self._limit_s) as call:
            used = self._credentials.access_key
            try:
                answer = self._read_once(read, call)
            except Refusal as refusal:
                if not self._credentials.has_newer(used, refusal):
                    raise
                self._usual = (call.limit_s, self._opened(call.limit_s * _USUAL))
                answer = self._read_once(read, call)
            call.answered()
            call.moved(size_of(answer))
            return answer

    def _read_once(self, read: Callable[[S3Store], _Read], call: Call) -> _Read:
        left_s = call.left_s()
        if left_s <= 0:
            raise SilentStore(call.limit_s, was_sent=False)
        if self._usual[0] != call.limit_s:
            self._usual = (call.limit_s, self._opened(call.limit_s * _USUAL))
        try:
            return read(self._usual[1] if left_s >= call.limit_s * _USUAL else self._opened(left_s))
        except (BaseError, OSError) as error:
            refusal = self._refusal(error)
        if isinstance(refusal, Refusal) and not refusal.status and call.left_s() < call.limit_s * _SPENT:
            raise SilentStore(call.limit_s, was_sent=True) from None
        if isinstance(refusal, Refusal) and 0 < refusal.status < 500 and refusal.status != 429:
            call.answered()
        raise refusal

    def _refusal(self, error: Exception) -> Exception:
        trouble = self._credentials.trouble
        if trouble is not None and isinstance(error, UnauthenticatedError):
            return trouble
        text, _, details = str(error).partition(_DEBUG)
        status = int(match[1]) if (match := _STATUS.search(text)) else 0
        code = match[1] if (match := _CODE.search(text)) else ""
        if code in _REGION_CODES or status == 301 or _BARE_REDIRECT in text:
            return OtherRegion(_BODY.sub(r"\1", text))
        if not status and isinstance(error, (PermissionDeniedError, UnauthenticatedError)):
            status = 403
        if not status and not code:
            text = _in_one_line(details) or text
        reason = match[1] if (match := _MESSAGE.search(text)) else ""
        message = f"{code}: {reason}".rstrip(": ") if code else _BODY.sub(r"\1", text)
        return Refusal(code, status, message, is_silent=not status and not code and "kind: Timeout" in details)


def _in_one_line(details: str) -> str:
    """Return what became of a GET without an answer, from obstore's description of many lines; "" if it has another."""
    asked, tried, elapsed = (pattern.search(details) for pattern in (_ASKED, _TRIED, _ELAPSED))
    if not (asked and elapsed):
        return ""
    tries = int(tried[1]) + 1 if tried else 1
    trouble = _TROUBLE.search(details)
    after = f"after {tries} {'try' if tries == 1 else 'tries'} in {elapsed[1]} {elapsed[2]}"
    return f"{trouble[1] if trouble else 'no answer'}, {after}: GET {asked[1]}"


class _Credentials:
    """The credential provider that obstore calls.

    It holds no reference to the store that holds it: Python's garbage collector cannot see obstore's side of such a
    cycle.
    """

    def __init__(self, session: boto3.Session, source: CredentialSource | None) -> None:
        self._session = session
        self._source = source
        self._ttl = SOURCE_TTL if source else CREDENTIALS_TTL
        self.access_key = ""
        self.trouble: Exception | None = None

    def has_newer(self, used: str, refusal: Exception) -> bool:
        """Return whether the store refused the access key `used`, and the source has a newer one."""
        if self._source is None or not isinstance(refusal, Refusal) or refusal.code not in REFUSED_KEY_CODES:
            return False
        refused = used or self.access_key  # without `used`, the read was the first
        return self._source.current(refused).access_key != refused

    def __call__(self) -> Any:
        """Return the credentials. obstore calls this in a thread of its own.

        obstore passes an error on as text only, so `trouble` keeps the exception.
        """
        try:
            credentials = self._session.get_credentials()
            if credentials is None:
                raise NoCredentialsError
            frozen = credentials.get_frozen_credentials()
        except (BotoCoreError, AccessDenied) as trouble:
            self.trouble = trouble
            raise
        self.trouble = None
        self.access_key = frozen.access_key
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + self._ttl,
        }


def _endpoint(url: str, bucket: str) -> str:
    """Return `url` with the bucket's name in front of the host, for the virtual-hosted style.

    Without `bucket`, return `url`.
    """
    parts = urlsplit(url)
    return f"{parts.scheme}://{bucket}.{parts.netloc}{parts.path}" if bucket else url


def _region(name: str | None) -> str:
    return "us-east-1" if name in {None, "aws-global"} else str(name)
