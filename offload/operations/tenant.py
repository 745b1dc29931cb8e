"""Tenants: IAM policies and a list of them, credentials and checks of AWS, and the deletion of one.

None opens a data directory. `seglog tenant credentials` and `tenant check` ask AWS.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from catalog.format.remotes import split_remote
from catalog.objects.prefix import Upload, WholePrefix
from catalog.tenants.names import check_tenant
from catalog.tenants.policies import (
    Condition,
    Partition,
    TenantRole,
    bucket_policy,
    check_bucket,
    session_tag_policy,
    tenant_policy,
)
from offload.errors import Misuse, no_such_file
from offload.operations.result_json import OPTIONAL
from offload.settings import ROLE_ARN, ROLE_ARN_FORM, Settings
from offload.tenants.deletion import contents_of, delete_all, lifecycle_rule
from offload.tenants.directories import data_directories
from seglog.base.dataclasses import dataclass
from seglog.errors import NotInstalled


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

    Raises `Misuse`, `InvalidName` and `InvalidArgument`.
    """
    parsed = [Condition.parse(text) for text in conditions]
    if not session_tags:
        if name is None:
            raise Misuse("a policy needs the NAME of a tenant", hint="or give --session-tags")
        document = tenant_policy(name, role, bucket, base, kms_key, parsed, partition)
        return TenantPolicy(name, role, document)
    if name is not None:
        raise Misuse(f"--session-tags takes no tenant {name!r}", hint="leave one of the two out")
    if kms_key is not None:
        hint = "give each tenant's key a policy of its own, for the session tag"
        raise Misuse("--session-tags takes no --kms-key: a key belongs to one tenant", hint=hint)
    return TenantPolicy(None, role, session_tag_policy(role, bucket, base, parsed, partition))


def policy_of_bucket(
    bucket: str, put_if_absent: bool = False, tls_only: bool = False, partition: Partition = Partition.AWS
) -> BucketPolicy:
    """Return the bucket's policy with the statements that are asked for, or with all. Raises `InvalidArgument`."""
    is_all = not (put_if_absent or tls_only)
    document = bucket_policy(bucket, put_if_absent or is_all, tls_only or is_all, partition)
    return BucketPolicy(bucket, document)


@dataclass(frozen=True, slots=True)
class TenantListed:
    """A tenant: its name, and `open`, `opening` or `failed` in a daemon. Without one, `directory`."""

    name: str
    state: str
    error: str | None = field(default=None, metadata=OPTIONAL)


def listed(root: Path) -> Iterator[TenantListed]:
    """Yield the data directories below `root`, which `seglog serve --tenants` would serve. Raises `Missing`."""
    if not root.is_dir():
        raise no_such_file(root)
    for name in sorted(data_directories(root)):
        yield TenantListed(name, "directory")


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


def credentials(request: Asked, settings: Settings, url: str | None) -> TenantGrant:
    """Ask STS for credentials of a tenant, which may do no more than its role does on the prefix behind `url`.

    Raises `Misuse`, `InvalidName`, `InvalidArgument`, `AccessDenied` and `StoreUnreachable`.
    """
    from offload.tenants.credentials import assume_role
    from offload.tenants.sts_request import TenantAccess, policy_text

    check_tenant(request.tenant)
    of_file = settings.tenant
    arn = request.role_arn or of_file.role_arn
    if not arn:
        raise Misuse("STS needs an IAM role", hint="give --role-arn, or set tenant.role_arn")
    if not ROLE_ARN.fullmatch(arn):
        raise Misuse(f"{arn!r} is not the ARN of a role", hint=f"its form is {ROLE_ARN_FORM}")
    for option, text in (("--external-id", request.external_id), ("--profile", request.profile)):
        if text is not None and not _PLAIN.fullmatch(text):
            raise Misuse(f"{option} {text!r} is not plain text", hint="it has A-Z a-z 0-9 and + = , . @ : / _ -")
    if not _SHORTEST_S <= request.lasts_s <= _LONGEST_S:
        raise Misuse("--for takes 15m to 12h", hint="the role has a maximum of its own, 1h by default")
    bucket, base = _place_of(request.tenant, url)
    key = request.kms_key or _key_of(settings)
    policy = policy_text(request.tenant, request.role, bucket, base, key, Partition.of(arn))
    external_id = of_file.external_id if request.external_id is None else request.external_id
    profile = of_file.profile if request.profile is None else request.profile
    access = TenantAccess(request.tenant, arn, request.lasts_s, policy, external_id, profile)
    keys = assume_role(access).credentials
    ends = datetime.fromtimestamp((keys.expires_at_ms or 0) / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return TenantGrant(1, keys.access_key, keys.secret_key, keys.session_token or "", ends)


def check(name: str, settings: Settings, url: str | None) -> TenantCheck:
    """Check the bucket of a tenant with its own credentials. Raises `Misuse` and the errors of STS."""
    from offload.tenants.bucket_check import check_bucket
    from offload.wiring import source_of

    check_tenant(name)
    if settings.tenant.name not in {"", name}:
        raise Misuse(f"the data directory is of another tenant than {name}", hint="name its own tenant")
    _place_of(name, url)
    if find_spec("aiobotocore") is None:
        raise NotInstalled("seglog tenant check", "aiobotocore", "tenants")
    source = source_of(settings, url)
    checked = asyncio.run(check_bucket(str(url), None if source is None else source.current()))
    return TenantCheck(name, checked.bucket, checked.own_prefix, checked.whole_bucket, tuple(checked.failures))


def _place_of(name: str, url: str | None) -> tuple[str, str]:
    """Return the bucket and the base of the tenant's remote. Raises `Misuse`."""
    parts = split_remote(url or "")
    base, _, last = parts.path.strip("/").rpartition("/")
    if parts.scheme != "s3" or not parts.netloc or last != name:
        problem = f"{url} is not the remote of {name}" if url else f"the remote of {name} is not known"
        raise Misuse(problem, hint=f"give --bucket, or --remote s3://BUCKET/{name} before the command")
    return check_bucket(parts.netloc), base


def _key_of(settings: Settings) -> str | None:
    key = settings.offload.sse_kms_key_id
    return key if key.startswith("arn:") else None


@dataclass(frozen=True, slots=True)
class WouldDelete:
    """The objects that a deletion would take. `foreign` counts objects that seglog did not make.

    `examples` has some of their keys. The data directory knows `uploads_on_record`. `uploads`
    counts all, and is None without the owner's profile.
    """

    tenant: str
    remote: str
    objects: int
    bytes: int
    foreign: int
    examples: tuple[str, ...]
    uploads_on_record: int
    uploads: int | None


@dataclass(frozen=True, slots=True)
class TenantDeleted:
    """A deletion, which a LIST has proven for objects, and with `proves_uploads` for uploads.

    The `unreferenced_bytes` of this run stay in the bucket as old versions. `old_versions` and their bytes are None if
    there are none, or if the role may not list them. `lifecycle` is the rule that the bucket's owner has to set.
    """

    tenant: str
    remote: str
    objects: int
    reclaimed_bytes: int
    unreferenced_bytes: int
    old_versions: int | None
    old_version_bytes: int | None
    aborted_uploads: int
    proves_uploads: bool
    lifecycle: Mapping[str, Any] | None


def check_remote_of(name: str, url: str) -> None:
    """Raise `Misuse` unless the remote belongs to the tenant: its last segment is the name.

    Raises `InvalidName`.
    """
    path = split_remote(url).path.strip("/")
    if path.rpartition("/")[2] != check_tenant(name):
        text = f"{url} is not the remote of the tenant {name}: its last segment is another"
        raise Misuse(text, hint=f"give --remote s3://bucket/prefix/{name}")


def preview(name: str, prefix: WholePrefix, owner: WholePrefix | None, on_record: Sequence[Upload]) -> WouldDelete:
    """Return what would go. Changes nothing."""
    totals = contents_of(prefix, owner)
    return WouldDelete(
        name, prefix.url, totals.objects, totals.bytes, totals.foreign, totals.examples, len(on_record), totals.uploads
    )


def delete(
    name: str,
    prefix: WholePrefix,
    owner: WholePrefix | None,
    on_record: Sequence[Upload],
    on_deleted: Callable[[int], None],
) -> TenantDeleted:
    """Delete everything of the tenant, and prove it. Raises `Conflict`, and the errors of the store."""
    done = delete_all(prefix, owner, on_record, on_deleted)
    is_s3 = prefix.url.startswith("s3:")
    is_versioned = bool(done.freed.unreferenced_bytes or done.versions)
    needs_rule = is_s3 and (is_versioned or not done.lists_uploads)
    return TenantDeleted(
        tenant=name,
        remote=prefix.url,
        objects=done.objects,
        reclaimed_bytes=done.freed.reclaimed_bytes,
        unreferenced_bytes=done.freed.unreferenced_bytes,
        old_versions=done.versions.versions if done.versions else None,
        old_version_bytes=done.versions.bytes if done.versions else None,
        aborted_uploads=done.aborted,
        proves_uploads=done.lists_uploads or not is_s3,
        lifecycle=lifecycle_rule(name, f"{split_remote(prefix.url).path.strip('/')}/") if needs_rule else None,
    )
