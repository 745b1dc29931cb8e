"""The use cases of `seglog tenant credentials` and `seglog tenant check`. They ask AWS."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Any

from catalog.format.remotes import split_remote
from catalog.tenants.names import check_tenant
from catalog.tenants.policies import Partition, TenantRole, check_bucket
from offload.errors import InvalidParameters
from offload.settings import ROLE_ARN, ROLE_ARN_FORM
from offload.settings_file import Settings
from seglog.errors import NotInstalled

__all__ = ["Asked", "TenantCheck", "TenantGrant", "check", "credentials"]

_PLAIN = re.compile(r"[A-Za-z0-9+=,.@:/_-]{1,1224}")
_SHORTEST_S, _LONGEST_S = 900, 43_200  # of STS


@dataclass(frozen=True, slots=True)
class TenantGrant:
    """Credentials of a tenant, in the form of `credential_process`. The text of this value has no secret."""

    version: int
    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    session_token: str = field(repr=False)
    expiration: str

    def process_output(self) -> dict[str, Any]:
        """Return what a program prints to an AWS tool whose profile names it as `credential_process`."""
        return {
            "Version": self.version,
            "AccessKeyId": self.access_key_id,
            "SecretAccessKey": self.secret_access_key,
            "SessionToken": self.session_token,
            "Expiration": self.expiration,
        }


@dataclass(frozen=True, slots=True)
class TenantCheck:
    """The answers to a LIST of the tenant's prefix, and to one without a prefix: allowed, denied or unknown.

    `failures` says what is wrong.
    """

    tenant: str
    bucket: str
    own_prefix: str
    whole_bucket: str
    failures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of `seglog tenant credentials`. The section [tenant] gives what is None."""

    tenant: str
    role: TenantRole
    lasts_s: int
    kms_key: str | None = None
    role_arn: str | None = None
    external_id: str | None = None
    profile: str | None = None


def credentials(asked: Asked, settings: Settings, url: str | None) -> TenantGrant:
    """Ask STS for credentials of a tenant, which may do no more than its role does on the prefix behind `url`.

    Raises `InvalidParameters`, `InvalidTenant`, `InvalidArgument`, `AccessDenied` and `StoreUnreachable`.
    """
    from offload.tenants.access import TenantAccess, policy_text
    from offload.tenants.credentials import assume_role

    check_tenant(asked.tenant)
    of_file = settings.tenant
    arn = asked.role_arn or of_file.role_arn
    if not arn:
        raise InvalidParameters("STS needs an IAM role", hint="give --role-arn, or set tenant.role_arn")
    if not ROLE_ARN.fullmatch(arn):
        raise InvalidParameters(f"{arn!r} is not the ARN of a role", hint=f"its form is {ROLE_ARN_FORM}")
    for option, text in (("--external-id", asked.external_id), ("--profile", asked.profile)):
        if text is not None and not _PLAIN.fullmatch(text):
            raise InvalidParameters(
                f"{option} {text!r} is not plain text", hint="it has A-Z a-z 0-9 and + = , . @ : / _ -"
            )
    if not _SHORTEST_S <= asked.lasts_s <= _LONGEST_S:
        raise InvalidParameters("--for takes 15m to 12h", hint="the role has a maximum of its own, 1h by default")
    bucket, base = _place_of(asked.tenant, url)
    key = asked.kms_key or _key_of(settings)
    policy = policy_text(asked.tenant, asked.role, bucket, base, key, Partition.of(arn))
    external_id = of_file.external_id if asked.external_id is None else asked.external_id
    profile = of_file.profile if asked.profile is None else asked.profile
    access = TenantAccess(asked.tenant, arn, asked.lasts_s, policy, external_id, profile)
    found = assume_role(access).credentials
    ends = datetime.fromtimestamp((found.expires_at_ms or 0) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return TenantGrant(1, found.access_key, found.secret_key, found.session_token or "", ends)


def check(name: str, settings: Settings, url: str | None) -> TenantCheck:
    """Check the bucket of a tenant with its own credentials. Raises `InvalidParameters` and the errors of STS."""
    from offload.tenants.bucket_check import check_bucket
    from offload.tenants.source import source_of

    check_tenant(name)
    if settings.tenant.name not in {"", name}:
        raise InvalidParameters(f"the data directory is of another tenant than {name}", hint="name its own tenant")
    _place_of(name, url)
    if find_spec("aiobotocore") is None:
        raise NotInstalled("seglog tenant check", "aiobotocore", "tenants")
    source = source_of(settings, url)
    found = asyncio.run(check_bucket(str(url), None if source is None else source.current()))
    return TenantCheck(name, found.bucket, found.own_prefix, found.whole_bucket, tuple(found.failures))


def _place_of(name: str, url: str | None) -> tuple[str, str]:
    """Return the bucket and the base of the tenant's remote. Raises `InvalidParameters`."""
    parts = split_remote(url or "")
    base, _, last = parts.path.strip("/").rpartition("/")
    if parts.scheme != "s3" or not parts.netloc or last != name:
        given = f"{url} is not the remote of {name}" if url else f"the remote of {name} is not known"
        raise InvalidParameters(given, hint=f"give --bucket, or --remote s3://BUCKET/{name} before the command")
    return check_bucket(parts.netloc), base


def _key_of(settings: Settings) -> str | None:
    key = settings.offload.sse_kms_key_id
    return key if key.startswith("arn:") else None
