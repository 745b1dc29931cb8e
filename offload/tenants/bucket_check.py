"""The check that a bucket keeps tenants apart: two LIST requests with a tenant's credentials, by aiobotocore.

    request                   allowed      denied                      no answer
    LIST of the own prefix    fine         an error: nothing works     unknown
    LIST without a prefix     a warning    fine                        unknown

APART-1  The check never sends a HeadBucket. S3 decides on that as on a LIST without a prefix.
APART-2  A LIST without a prefix that is allowed is a warning. The tenant's own work continues, but it can see the
    keys of others: the operator has to mend the policy.
APART-3  No answer proves nothing. It is neither an allow nor a denial.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from catalog.format.remotes import split_remote
from catalog.objects.s3_client import is_aws
from catalog.objects.s3_credentials import FoundCredentials
from offload.tenants.credentials import open_aio_client, warm
from seglog.base.dataclasses import dataclass

_TIMEOUTS = {"connect_timeout": 5, "read_timeout": 15}
_ANSWER_S = 30
_DENIED = frozenset({"AccessDenied", "AllAccessDisabled"})


class Outcome(StrEnum):
    """The answer to one LIST."""

    ALLOWED = "allowed"
    DENIED = "denied"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class BucketCheck:
    """The answers to both requests. The reasons are the errors of the store, or empty."""

    bucket: str
    prefix: str
    own_prefix: Outcome
    whole_bucket: Outcome
    own_prefix_reason: str = ""
    whole_bucket_reason: str = ""

    @property
    def is_good(self) -> bool:
        return self.own_prefix is Outcome.ALLOWED and self.whole_bucket is Outcome.DENIED

    @property
    def failures(self) -> list[str]:
        """Return what is wrong, the error first."""
        return [failure for failure in (self.error, self.warning) if failure]

    @property
    def error(self) -> str:
        """Return why the tenant cannot work, or an empty text."""
        if self.own_prefix is Outcome.ALLOWED:
            return ""
        return f"a LIST of {self.prefix} in {self.bucket} is {_words(self.own_prefix, self.own_prefix_reason)}"

    @property
    def warning(self) -> str:
        """Return why the tenant may not be alone, or an empty text (APART-2)."""
        match self.whole_bucket:
            case Outcome.DENIED:
                return ""
            case Outcome.ALLOWED:
                return f"a LIST of {self.bucket} without a prefix is allowed: these credentials see all tenants' keys"
        return f"a LIST of {self.bucket} without a prefix is {_words(self.whole_bucket, self.whole_bucket_reason)}"


async def check_bucket(url: str, credentials: FoundCredentials | None) -> BucketCheck:
    """Check the bucket behind `s3://bucket/prefix`. Without credentials, the AWS environment gives them."""
    parts = split_remote(url)
    bucket, prefix = parts.netloc, f"{parts.path.strip('/')}/"
    keys = None
    if credentials is not None:
        keys = {
            "aws_access_key_id": credentials.access_key,
            "aws_secret_access_key": credentials.secret_key,
            "aws_session_token": credentials.session_token,
        }
    await warm("s3")
    settings: dict[str, Any] = {**_TIMEOUTS, "signature_version": "s3v4"}
    async with open_aio_client("s3", settings, credentials=keys) as client:
        is_virtual = is_aws(client.meta.endpoint_url)
    settings |= {"s3": {"addressing_style": "auto" if is_virtual else "path"}}
    async with open_aio_client("s3", settings, credentials=keys) as client:
        own = await _list(client, Bucket=bucket, Prefix=prefix, MaxKeys=1)
        bucket_list = await _list(client, Bucket=bucket, MaxKeys=1)
    return BucketCheck(bucket, prefix, own[0], bucket_list[0], own[1], bucket_list[1])


async def _list(client: Any, **request: object) -> tuple[Outcome, str]:
    try:
        async with asyncio.timeout(_ANSWER_S):  # also of a store that sends a byte now and then
            await client.list_objects_v2(**request)
    except ClientError as refusal:
        error = refusal.response.get("Error", {})
        reason = f"{error.get('Code', '')}: {error.get('Message', '')}".strip(": ")
        return (Outcome.DENIED if error.get("Code") in _DENIED else Outcome.UNKNOWN), reason
    except TimeoutError:
        return Outcome.UNKNOWN, f"no answer within {_ANSWER_S} s"
    except (BotoCoreError, OSError) as trouble:
        return Outcome.UNKNOWN, str(trouble)
    return Outcome.ALLOWED, ""


def _words(outcome: Outcome, reason: str) -> str:
    return f"{outcome.value} ({reason})" if reason else outcome.value
