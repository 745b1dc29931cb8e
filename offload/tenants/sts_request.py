"""The request to STS for a tenant's credentials, and its answer, as values. No I/O.

GRANT-1  With a session policy, the credentials may do what both the role and the policy of the tenant's role allow. So
    one IAM role may serve several tenants.
GRANT-2  The life of credentials counts from the answer's own time to their end. So it does not depend on the clock of
    this machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from catalog.format.remotes import split_remote
from catalog.objects.s3_credentials import FoundCredentials
from catalog.tenants.names import check_tenant
from catalog.tenants.policies import Partition, TenantRole, compact, tenant_policy
from offload.settings import Settings
from seglog.base.dataclasses import dataclass
from seglog.errors import InvalidSetting

_SESSION_NAME_MAX = 64
_TAIL = 12


@dataclass(frozen=True, slots=True)
class TenantAccess:
    """How to get the credentials of a tenant. `policy` is the session policy; empty: none."""

    tenant: str
    role_arn: str
    duration_s: int
    policy: str = ""
    external_id: str = ""
    profile: str = ""


@dataclass(frozen=True, slots=True)
class GrantedCredentials:
    """Credentials from STS, which live for `life_s` from the answer on."""

    credentials: FoundCredentials
    life_s: float


def access_of(settings: Settings, url: str | None) -> TenantAccess | None:
    """Return the access of a data directory whose remote is `url`; None if it has no role, or no remote in S3.

    Raises `InvalidSetting`, `InvalidName`, `InvalidArgument` and `Misuse`.
    """
    tenant = settings.tenant
    parts = split_remote(url or "")
    if not tenant.role_arn or parts.scheme != "s3":
        return None
    if not tenant.name:
        raise InvalidSetting("tenant.role_arn", "needs tenant.name: the session policy is for that tenant")
    base, _, last = parts.path.strip("/").rpartition("/")
    if last != check_tenant(tenant.name):
        reason = f"{tenant.name!r} is not the last segment of the remote {url}, so its policy would not fit"
        raise InvalidSetting("tenant.name", reason)
    policy = ""
    if tenant.session_policy:
        offload = settings.offload
        if offload.sse == "aws:kms" and not offload.sse_kms_key_id.startswith("arn:"):
            raise InvalidSetting("offload.sse_kms_key_id", "is not the ARN of a key, which tenant.session_policy needs")
        key = offload.sse_kms_key_id or None
        partition = Partition.of(tenant.role_arn)
        policy = policy_text(tenant.name, TenantRole(tenant.role), parts.netloc, base, key, partition)
    return TenantAccess(tenant.name, tenant.role_arn, tenant.credential_s, policy, tenant.external_id, tenant.profile)


def policy_text(
    tenant: str, role: TenantRole, bucket: str, base: str, kms_key: str | None, partition: Partition = Partition.AWS
) -> str:
    """Return the session policy of a tenant's role.

    Raises `Misuse` beyond 2,048 characters, and the errors of `tenant_policy`.
    """
    return compact(tenant_policy(tenant, role, bucket, base, kms_key, partition=partition))


def request_of(access: TenantAccess) -> dict[str, Any]:
    """Return the parameters of AssumeRole. The session has the tenant's name, for CloudTrail."""
    request: dict[str, Any] = {
        "RoleArn": access.role_arn,
        "RoleSessionName": _session_name(access.tenant),
        "DurationSeconds": access.duration_s,
    }
    if access.policy:
        request["Policy"] = access.policy
    if access.external_id:
        request["ExternalId"] = access.external_id
    return request


def _session_name(tenant: str) -> str:
    """Return the name of a tenant's sessions. A long one ends in a hash, so no two tenants have the same."""
    name = f"seglog-{tenant}"
    if len(name) <= _SESSION_NAME_MAX:
        return name
    tail = hashlib.sha256(tenant.encode()).hexdigest()[:_TAIL]
    return f"{name[: _SESSION_NAME_MAX - _TAIL - 1]}-{tail}"


def granted_in(access: TenantAccess, answer: Mapping[str, Any]) -> GrantedCredentials:
    """Return the credentials in the answer of AssumeRole (GRANT-2)."""
    grant = answer["Credentials"]
    expires: datetime = grant["Expiration"]
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    life_s = float(access.duration_s) if date is None else (expires - parsedate_to_datetime(date)).total_seconds()
    credentials = FoundCredentials(
        grant["AccessKeyId"], grant["SecretAccessKey"], grant["SessionToken"], round(expires.timestamp() * 1000)
    )
    return GrantedCredentials(credentials, life_s)
