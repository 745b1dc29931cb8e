"""Objects in S3, or in a store that speaks its protocol.

Endpoint, region and credentials come from the AWS environment and configuration, as every AWS tool reads them.
Conditional, multipart and administrative requests go through boto3. `get` and `get_range` go through obstore, at a
tenth of the CPU time a request (catalog.objects.s3_reads).

BUCKET-1  `put_new`, `swap` and `complete_upload` are sent once. An SDK that resends them reports our own success as a
    lost race. The SDK repeats all other requests, and backs off. After a refused access key, each request is sent again
    with newer credentials: such a refusal has no effect (CRED-3).
BUCKET-2  If an answer leaves open whether a write happened, the store raises `OutcomeUnknown`. Such answers are 409,
    5xx, a reset, a timeout, and a 412 to a request without a condition. A 412 to If-None-Match is `KeyTaken`. A 412 to
    If-Match is `KeyChanged`, as is NoSuchKey. A request that cannot have been sent (no connection, no credentials) or
    was refused (4xx) is not `OutcomeUnknown`.
BUCKET-3  `list` always sends a prefix, because policies allow nothing else.
BUCKET-4  Every part carries a checksum. The completion sends back these checksums, and the checksum that they join to.
    So the store refuses a badly joined object. This module compares the store's checksum of the whole again
    (catalog.objects.s3_writes).
BUCKET-5  The answer to a delete of many keys is 200, with an error for each key that is still there. The first error is
    raised. The request carries the SDK's CRC32 and Content-MD5, because stores want the one or the other. A store
    without this request gets one request for each key.
BUCKET-6  No request names the bucket alone, because a tenant's policy refuses that. The SDK would send a HeadBucket
    after a HEAD that fails. Here, a GET finds the reason, and the bucket's region; then the HEAD is sent again.

Source: the S3 API reference.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import boto3
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    NoCredentialsError,
    PartialCredentialsError,
    ProxyConnectionError,
)
from botocore.parsers import ResponseParserError

from catalog.errors import (
    AccessDenied,
    CatalogError,
    InvalidKey,
    InvalidObject,
    InvalidRemote,
    KeyChanged,
    KeyTaken,
    NoSuchBucket,
    NoSuchObject,
    NotOffered,
    OutcomeUnknown,
    StoreUnreachable,
)
from catalog.format.checksum import Checksum, ChecksumKind
from catalog.format.keys import Key, check_key, check_prefix
from catalog.format.remotes import split_remote
from catalog.objects.object_store import ObjectInfo, PartTag, WithETag, checksum_of_parts
from catalog.objects.s3_client import is_aws, leave_bodies_unsigned, new_session, open_client
from catalog.objects.s3_credentials import CredentialSource, resend_with_newer, session_of
from catalog.objects.s3_reads import ObstoreReads, OtherRegion, Refusal
from catalog.objects.s3_timeout import SilentStore, be_patient, read_patiently
from catalog.objects.s3_writes import Scheme, Schemes, WriteSettings, checksum_in, completion_of, field_of, request_of
from catalog.objects.store_timeout import LIMIT_S, one_request
from seglog.base.dataclasses import dataclass

__all__ = ["ReadSettings", "S3Store", "WriteSettings"]

CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 30
ATTEMPTS = 4
SILENT_HINT = (
    "check the endpoint, the network and the store's health; "
    "--store-timeout SECONDS or cold.store_timeout_s lets a command wait longer"
)
_GET_HINT = f"{SILENT_HINT}, and cold.get_timeout_s one GET"
MOST_KEYS = 1000  # the limit of one request

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_NO_CREDENTIALS = (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError)
_NOT_SENT = (EndpointConnectionError, ConnectTimeoutError, ProxyConnectionError)
_TROUBLE = (BotoCoreError, ResponseParserError)
_ABSENT = frozenset({"NoSuchKey", "NoSuchUpload"})
_NOT_OFFERED = frozenset({"NotImplemented", "XNotImplemented", "InvalidStorageClass"})
_OTHER_REGION = frozenset({301, 400})
_UNKNOWN_REQUEST = frozenset({"MethodNotAllowed", "NotImplemented"})
_DENIED = frozenset({"AccessDenied", "ExpiredToken", "InvalidToken", "RequestTimeTooSkewed", "TokenRefreshRequired"})
_NOT_THE_PARTS = frozenset(
    {"BadDigest", "EntityTooSmall", "InvalidPart", "InvalidPartOrder", "XAmzContentChecksumMismatch"}
)


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """Settings of reads. `timeout_s` covers one GET from connecting to its last byte.

    A GET is tried `attempts` times.
    """

    timeout_s: float = 60
    attempts: int = ATTEMPTS


class S3Store:
    """An `ObjectStore`. `url` is `s3://bucket` or `s3://bucket/prefix`; any other URL raises `InvalidRemote`.

    `credentials` is the source of a tenant's credentials; without it they come from the environment. `session` is for
    other settings of AWS. A command waits `limit_s` at most for a store that does not answer, or too slowly
    (catalog.objects.store_timeout). The constructor makes no request.
    """

    def __init__(
        self,
        url: str,
        session: boto3.Session | None = None,
        *,
        credentials: CredentialSource | None = None,
        reads: ReadSettings | None = None,
        writes: WriteSettings | None = None,
        limit_s: float = LIMIT_S,
        reader: Literal["obstore", "boto3"] = "obstore",
    ) -> None:
        self._bucket, self._base = _parse_url(url)
        self._url = url.rstrip("/")
        self._writes = writes or WriteSettings()
        self._credentials = credentials
        self._limit_s = limit_s
        self._schemes = Schemes(self._url, self._writes.checksum)
        sums = "when_required" if self._writes.checksum == "none" else "when_supported"
        timeouts = {"connect_timeout": CONNECT_TIMEOUT_S, "read_timeout": READ_TIMEOUT_S}
        try:
            session = session or (session_of(credentials) if credentials else new_session())
            self._once = open_client(session, {"total_max_attempts": 1}, sums, timeouts)
            self._client = open_client(session, {"total_max_attempts": ATTEMPTS, "mode": "adaptive"}, sums, timeouts)
            leave_bodies_unsigned(self._client)
            be_patient(self._once, limit_s)
            be_patient(self._client, limit_s)
            if credentials is not None:
                resend_with_newer(self._once, credentials)
                resend_with_newer(self._client, credentials)
            self._reads = self._open_reads(session, reads or ReadSettings(attempts=ATTEMPTS), reader)
        except (BotoCoreError, ValueError, OSError) as cause:  # a profile, region, endpoint or file that cannot be
            raise InvalidRemote(url, f"the AWS environment does not fit: {cause}") from cause

    @property
    def url(self) -> str:
        return self._url

    @property
    def is_ordered(self) -> bool:
        return True

    def put_new(self, key: Key, body: bytes) -> None:
        with self._one_try(key, unmet=KeyTaken):
            self._once.put_object(**self._at(key), Body=body, IfNoneMatch="*", **self._writes.encryption())

    def put(self, key: Key, body: bytes | bytearray, metadata: Mapping[str, str]) -> None:
        request = {**self._at(key), "Body": body, "Metadata": dict(metadata), **self._writes.placement()}

        def send(scheme: Scheme) -> Mapping[str, Any]:
            checksum = _checksum(scheme.kind, body)
            answer: Mapping[str, Any] = self._client.put_object(**request, **request_of(checksum))
            _compare(key, checksum, answer)
            return answer

        with self._errors(key):
            self._schemes.send("put", send, lambda scheme, answer: checksum_in(answer, scheme.kinds) is not None)

    def get(self, key: Key) -> bytes:
        return self._read(key).body

    def get_with_etag(self, key: Key) -> WithETag:
        tagged = self._read(key)
        if not tagged.etag:
            raise StoreUnreachable(self._url, f"it gives no ETag with {key}", "use a store that has ETags")
        return tagged

    def swap(self, key: Key, body: bytes, etag: str) -> None:
        try:
            with self._one_try(key, unmet=KeyChanged):
                self._once.put_object(**self._at(key), Body=body, IfMatch=etag, **self._writes.encryption())
        except NoSuchObject as gone:
            raise KeyChanged(key) from gone

    def get_range(self, key: Key, start: int, length: int) -> bytes:
        if length == 0:
            return b""
        try:
            body = self._read(key, (start, length)).body
        except _RangeBeyondEnd:
            body = b""
        if len(body) != length:
            raise InvalidObject(key, f"bytes {start} to {start + length} were expected, it gave {len(body)}")
        return body

    def head(self, key: Key) -> ObjectInfo:
        key_before = self._access_key()
        try:
            answer = self._head(key)
        except ClientError as refusal:
            # The answer to a HEAD has no body that gives the reason (no key, no bucket, an old token). A GET's has.
            with contextlib.suppress(_RangeBeyondEnd):
                self._get(key, Range="bytes=0-0")
            if self._access_key() == key_before and _status(refusal) not in _OTHER_REGION:
                raise self._refused(key, refusal) from refusal
            with self._errors(key):  # the GET got newer credentials (CRED-2), or found the region
                answer = self._head(key)
        except _TROUBLE as trouble:
            raise self._trouble(trouble) from trouble
        metadata = {name.lower(): text for name, text in answer["Metadata"].items()}
        return ObjectInfo(answer["ContentLength"], metadata, checksum_in(answer))

    def _head(self, key: Key) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = self._client.head_object(**self._at(key), ChecksumMode="ENABLED")
        return answer

    def _access_key(self) -> str:
        return "" if self._credentials is None else self._credentials.current().access_key

    def list(self, prefix: str, *, limit: int | None = None, start_after: str = "") -> Iterator[str]:
        return (key for key, _ in self._listed(prefix, limit, start_after))

    def sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        return self._listed(prefix, None, "")

    def _listed(self, prefix: str, limit: int | None, start_after: str) -> Iterator[tuple[str, int]]:
        request: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._base + check_prefix(prefix)}
        if start_after:
            request["StartAfter"] = self._base + start_after
        if limit is not None:
            request["MaxKeys"] = limit
        with self._errors(prefix):
            while True:
                page = self._client.list_objects_v2(**request)
                for entry in page.get("Contents", ()):
                    yield entry["Key"].removeprefix(self._base), entry["Size"]
                if limit is not None or not page.get("IsTruncated"):
                    return
                request["ContinuationToken"] = page["NextContinuationToken"]

    def delete(self, key: Key) -> None:
        with self._errors(key):
            self._client.delete_object(**self._at(key))

    def delete_many(self, keys: Sequence[Key]) -> None:
        objects = [{"Key": self._at(key)["Key"]} for key in keys]
        for start in range(0, len(objects), MOST_KEYS):
            batch = slice(start, start + MOST_KEYS)
            try:
                self._delete_batch(objects[batch])
            except ClientError as refusal:
                if refusal.response["Error"].get("Code") not in _UNKNOWN_REQUEST:
                    raise self._refused(keys[start], refusal) from refusal
                for key in keys[batch]:
                    self.delete(key)
            except _TROUBLE as trouble:
                raise self._trouble(trouble) from trouble

    def create_upload(self, key: Key, metadata: Mapping[str, str]) -> str:
        request = {**self._at(key), "Metadata": dict(metadata), **self._writes.placement()}
        with self._errors(key):
            answer = self._schemes.send(
                "upload",
                lambda scheme: self._client.create_multipart_upload(**request, **scheme.of_upload()),
                lambda scheme, answer: scheme.of_upload().items() <= answer.items(),
                lambda answer: self.abort_upload(key, answer["UploadId"]),
            )
        return str(answer["UploadId"])

    def put_part(self, key: Key, upload_id: str, number: int, body: bytes | bytearray) -> PartTag:
        checksum = _checksum(self._schemes.in_use("upload").kind, body)
        fields = request_of(checksum)
        with self._errors(key):
            answer = self._client.upload_part(
                **self._at(key), UploadId=upload_id, PartNumber=number, Body=body, **fields
            )
        return PartTag(number, answer["ETag"], len(body), checksum)

    def complete_upload(self, key: Key, upload_id: str, parts: Sequence[PartTag]) -> None:
        checksum = checksum_of_parts(parts) if self._schemes.in_use("upload").is_whole else None
        part_fields = [_named(part) for part in parts]
        with self._one_try(key):
            answer = self._once.complete_multipart_upload(
                **self._at(key),
                UploadId=upload_id,
                MultipartUpload={"Parts": part_fields},
                **(completion_of(checksum) if checksum else {}),
            )
        _compare(key, checksum.checksum if checksum else None, answer)

    def abort_upload(self, key: Key, upload_id: str) -> None:
        with contextlib.suppress(NoSuchObject), self._errors(key):
            self._client.abort_multipart_upload(**self._at(key), UploadId=upload_id)

    def list_uploads(self, prefix: str) -> Iterator[tuple[Key, str]]:
        pages = self._client.get_paginator("list_multipart_uploads")
        with self._errors(prefix):
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._base + check_prefix(prefix)):
                for upload in page.get("Uploads", ()):
                    yield Key(upload["Key"].removeprefix(self._base)), upload["UploadId"]

    def time_ms(self) -> int | None:
        try:
            answer = self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._base, MaxKeys=1)
        except ClientError as refusal:
            answer = refusal.response  # the store may refuse the request because of the clock
        except _TROUBLE as trouble:
            raise self._trouble(trouble) from trouble
        date = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
        return None if date is None else int(parsedate_to_datetime(date).timestamp()) * 1000

    def close(self) -> None:
        self._once.close()
        self._client.close()

    def _at(self, key: Key) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._base + check_key(key)}

    def _open_reads(self, session: boto3.Session, settings: ReadSettings, reader: str) -> ObstoreReads | None:
        if reader == "boto3":
            return None
        return ObstoreReads(
            session,
            self._client,
            self._bucket,
            path_style=not is_aws(self._client.meta.endpoint_url),
            connect_timeout_s=CONNECT_TIMEOUT_S,
            read_timeout_s=READ_TIMEOUT_S,
            timeout_s=settings.timeout_s,
            attempts=settings.attempts,
            limit_s=self._limit_s,
            credentials=self._credentials,
        )

    def _read(self, key: Key, part: tuple[int, int] | None = None) -> WithETag:
        """Return the object, or the bytes of the range `part` (start, length) that exist.

        The tag of a range may be empty.
        """
        path = self._base + check_key(key)
        reads = self._reads
        if reads is not None:
            try:
                return reads.get(path) if part is None else WithETag(reads.get_range(path, *part), "")
            except OtherRegion:
                self._reads = None  # boto3 asks for the bucket's region and goes there
            except Refusal as refusal:
                if refusal.is_silent:
                    raise StoreUnreachable(self._url, str(refusal), _GET_HINT) from refusal
                raise self._error_of(key, refusal.code, refusal.status, str(refusal)) from refusal
            except BotoCoreError as trouble:
                raise self._trouble(trouble) from trouble
        if part is None:
            return self._get(key)
        return self._get(key, Range=f"bytes={part[0]}-{part[0] + part[1] - 1}")

    @one_request
    def _get(self, key: Key, **request: str) -> WithETag:
        # The SDK repeats a request that fails, but not the reading of a body that breaks off.
        for attempt in range(1, ATTEMPTS + 1):
            try:
                # Not `with body`: that hands out the bare stream, which checks neither length nor checksum.
                answer = self._client.get_object(**self._at(key), **request)
                with contextlib.closing(answer["Body"]) as body:
                    return WithETag(read_patiently(body, self._limit_s), answer.get("ETag", ""))
            except ClientError as refusal:
                raise self._refused(key, refusal) from refusal
            except _TROUBLE as trouble:
                if attempt == ATTEMPTS or isinstance(trouble, (*_NO_CREDENTIALS, *_NOT_SENT, SilentStore)):
                    raise self._trouble(trouble) from trouble
        raise AssertionError  # the last attempt returns or raises

    def _delete_batch(self, objects: Sequence[Mapping[str, str]]) -> None:
        answer = self._client.delete_objects(Bucket=self._bucket, Delete={"Objects": objects, "Quiet": True})
        for error in answer.get("Errors", ()):
            code, key = error.get("Code", ""), error.get("Key", "").removeprefix(self._base)
            if code not in _ABSENT:
                raise self._error_of(key, code, 0, f"{code}: {error.get('Message', '')} (deleting {key})")

    @contextlib.contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        try:
            yield
        except ClientError as refusal:
            raise self._refused(key, refusal) from refusal
        except _TROUBLE as trouble:
            raise self._trouble(trouble) from trouble

    @contextlib.contextmanager
    def _one_try(self, key: str, unmet: Callable[[str], CatalogError] | None = None) -> Iterator[None]:
        """Translate errors as `_errors` does, for a request that is sent once.

        Raise `OutcomeUnknown` if the outcome is open.

        `unmet` makes the error for a 412. Without `unmet` the request had no condition, and a 412 leaves the outcome
        open.
        """
        try:
            yield
        except ClientError as refusal:
            if unmet is not None and refusal.response["Error"].get("Code") == "PreconditionFailed":
                raise unmet(key) from refusal
            if _leaves_open(refusal):
                raise OutcomeUnknown(key, _describe(refusal)) from refusal
            raise self._refused(key, refusal) from refusal
        except _TROUBLE as trouble:
            is_unsent = isinstance(trouble, SilentStore) and not trouble.was_sent
            if is_unsent or isinstance(trouble, (*_NO_CREDENTIALS, *_NOT_SENT)):
                raise self._trouble(trouble) from trouble
            raise OutcomeUnknown(key, str(trouble)) from trouble

    def _refused(self, key: str, refusal: ClientError) -> CatalogError:
        return self._error_of(key, refusal.response["Error"].get("Code", ""), _status(refusal), _describe(refusal))

    def _error_of(self, key: str, code: str, status: int, description: str) -> CatalogError:
        match code:
            case "NoSuchBucket":
                return NoSuchBucket(self._bucket)
            case "InvalidRange":
                return _RangeBeyondEnd(key, "it is shorter than was expected")
            case "KeyTooLongError":
                return InvalidKey(key)
        if code in _ABSENT:
            return NoSuchObject(key)
        if code in _NOT_THE_PARTS:
            return InvalidObject(key, f"its parts do not join: {description}")
        if code in _DENIED or status in {401, 403}:
            return AccessDenied(self._url, description)
        if code in _NOT_OFFERED:
            return NotOffered(self._url, description)
        return StoreUnreachable(self._url, description)

    def _trouble(self, trouble: Exception) -> CatalogError:
        if isinstance(trouble, _NO_CREDENTIALS):
            return AccessDenied(
                self._url, "no AWS credentials found", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile"
            )
        if isinstance(trouble, SilentStore):
            return StoreUnreachable(self._url, str(trouble), SILENT_HINT)
        return StoreUnreachable(self._url, str(trouble))


class _RangeBeyondEnd(InvalidObject):
    """The range begins at or after the end of the object."""


def _parse_url(url: str) -> tuple[str, str]:
    """Return the bucket, and the prefix with its slash."""
    parts = split_remote(url)
    if parts.scheme != "s3":
        raise InvalidRemote(url, "it is not of the form s3://bucket/prefix")
    if not _BUCKET.fullmatch(parts.netloc):
        raise InvalidRemote(url, f"{parts.netloc!r} is not a bucket name")
    prefix = parts.path.strip("/")
    try:
        return parts.netloc, check_key(prefix) + "/" if prefix else ""
    except InvalidKey:
        raise InvalidRemote(url, f"{prefix!r} is not a prefix") from None


def _checksum(kind: ChecksumKind | None, body: bytes | bytearray) -> Checksum | None:
    return None if kind is None else Checksum.of(kind, body)


def _compare(key: Key, sent: Checksum | None, answer: Mapping[str, Any]) -> None:
    stored = checksum_in(answer, (sent.kind,)) if sent else None
    if stored is not None and stored != sent:
        raise InvalidObject(key, f"the store has it with {stored.kind} {stored}, {sent} was sent")


def _named(part: PartTag) -> dict[str, Any]:
    checksum = {} if part.checksum is None else {field_of(part.checksum.kind): str(part.checksum)}
    return {"PartNumber": part.number, "ETag": part.etag, **checksum}


def _leaves_open(refusal: ClientError) -> bool:
    code = refusal.response["Error"].get("Code", "")
    if code == "NotImplemented":
        return False
    return code == "RequestTimeout" or _status(refusal) in {409, 412} or _status(refusal) >= 500


def _status(refusal: ClientError) -> int:
    return int(refusal.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _describe(refusal: ClientError) -> str:
    error = refusal.response["Error"]
    return f"{error.get('Code', _status(refusal))}: {error.get('Message', '')}".rstrip(": ")
