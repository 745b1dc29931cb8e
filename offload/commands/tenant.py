"""The use cases of `seglog tenant`: IAM policies, and a list of tenants. They open no data directory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from catalog.tenants.policies import Condition, Partition, TenantRole, bucket_policy, session_tag_policy, tenant_policy
from offload.commands.results import OPTIONAL
from offload.errors import InvalidParameters, NoSuchFile
from offload.tenants.directories import data_directories

__all__ = ["BucketPolicy", "TenantListed", "TenantPolicy", "listed", "policy", "policy_of_bucket"]


@dataclass(frozen=True, slots=True)
class TenantPolicy:
    """The IAM policy of a role. `tenant` is None if the session tag `tenant` names the tenant."""

    tenant: str | None
    role: TenantRole
    policy: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BucketPolicy:
    """The policy of a bucket."""

    bucket: str
    policy: Mapping[str, Any]


def policy(
    name: str | None,
    role: TenantRole,
    bucket: str,
    base: str = "",
    kms_key: str | None = None,
    conditions: Sequence[str] = (),
    session_tags: bool = False,
    partition: Partition = Partition.AWS,
) -> TenantPolicy:
    """Return the policy of a tenant's role, or with `session_tags` the policy that all tenants share.

    Raises `InvalidParameters`, `InvalidTenant` and `InvalidArgument`.
    """
    parsed = [Condition.parse(each) for each in conditions]
    if not session_tags:
        if name is None:
            raise InvalidParameters("a policy needs the NAME of a tenant", hint="or give --session-tags")
        made = tenant_policy(name, role, bucket, base, kms_key, parsed, partition)
        return TenantPolicy(name, role, made)
    if name is not None:
        raise InvalidParameters(f"--session-tags takes no tenant {name!r}", hint="leave one of the two out")
    if kms_key is not None:
        hint = "give each tenant's key a policy of its own, for the session tag"
        raise InvalidParameters("--session-tags takes no --kms-key: a key belongs to one tenant", hint=hint)
    return TenantPolicy(None, role, session_tag_policy(role, bucket, base, parsed, partition))


def policy_of_bucket(
    bucket: str, put_if_absent: bool = False, tls_only: bool = False, partition: Partition = Partition.AWS
) -> BucketPolicy:
    """Return the bucket's policy with the statements that are asked for, or with all. Raises `InvalidArgument`."""
    is_all = not (put_if_absent or tls_only)
    made = bucket_policy(bucket, put_if_absent or is_all, tls_only or is_all, partition)
    return BucketPolicy(bucket, made)


@dataclass(frozen=True, slots=True)
class TenantListed:
    """A tenant: its name, and `open`, `opening` or `failed` in a daemon. Without one, `directory`."""

    name: str
    state: str
    error: str | None = field(default=None, metadata=OPTIONAL)


def listed(root: Path) -> Iterator[TenantListed]:
    """Yield the data directories below `root`, which `seglog serve --tenants` would serve. Raises `NoSuchFile`."""
    if not root.is_dir():
        raise NoSuchFile(root)
    for name in sorted(data_directories(root)):
        yield TenantListed(name, "directory")
