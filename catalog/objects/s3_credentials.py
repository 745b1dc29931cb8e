"""The AWS credentials of this process, for a program in another language.

boto3 finds them: in the environment, in a profile, by a role of the machine or of the container, a web identity, a
single sign-on, a program.

HAND-1  boto3 renews credentials that expire, when it is asked for them and they end soon. So each answer is worth at
    least some minutes.
HAND-2  Credentials that never expire are looked for again by each call, because a person may have replaced them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import boto3
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import BotoCoreError

from catalog.errors import AccessDenied
from catalog.objects.s3_client import new_session

__all__ = ["CredentialFinder", "FoundCredentials"]

_HINT = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile"


@dataclass(frozen=True, slots=True)
class FoundCredentials:
    """`expires_at_ms` is None if they do not expire. The text of this value has no secret."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str | None = field(repr=False)
    expires_at_ms: int | None


class CredentialFinder:
    """Finds the credentials of this process. It keeps the session whose credentials boto3 renews."""

    def __init__(self) -> None:
        self._renewing: boto3.Session | None = None

    def find(self) -> FoundCredentials:
        """Return the credentials. Raises `AccessDenied` if there are none, or if boto3 cannot get them."""
        session = self._renewing or new_session()
        try:
            found = session.get_credentials()
            frozen = None if found is None else found.get_frozen_credentials()
        except (BotoCoreError, OSError, ValueError) as trouble:  # a program that is absent, or gives no JSON
            raise AccessDenied("S3", f"boto3 gets no credentials here: {trouble}", _HINT) from trouble
        if frozen is None or not frozen.access_key or not frozen.secret_key:
            raise AccessDenied("S3", "boto3 finds no credentials here", _HINT)
        expires_at_ms: int | None = None
        if isinstance(found, RefreshableCredentials):
            self._renewing = session
            expires_at_ms = round(found._expiry_time.timestamp() * 1000)  # noqa: SLF001 - botocore tells it nowhere else
        return FoundCredentials(frozen.access_key, frozen.secret_key, frozen.token, expires_at_ms)
