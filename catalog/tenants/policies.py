"""The IAM roles of a tenant, and IAM policies as values: of a tenant, of all tenants by a session tag, of the bucket.

`RIGHTS` is the one table of roles and actions. The policies, the templates in localstack/ and the tables in the
documents come from it. A role may do all that the roles before it may. These are IAM roles, and not the roles of the
daemon's tokens.

ROLE-1  Each action is named, without a wildcard.
ROLE-2  No role has `s3:DeleteObjectVersion`. On a versioned bucket, a delete leaves a marker and the old version.
ROLE-3  No role has `s3:ListBucketMultipartUploads`. S3 has no prefix condition for it, so it shows all tenants' keys.

IAM-1  The resource of an action on objects ends in `prefix/*`. An action on the bucket has a condition on
    `s3:prefix`. The pattern `prefix/*` also matches `prefix/`, but nothing shorter, and no request without a prefix.
IAM-2  A session gets nothing if its tag is missing, empty or reserved. It also gets nothing if the tag has an ASCII
    character or a length that no name has. The guard is in each Allow. In a Deny it would do nothing: a variable
    without a value makes a statement vanish. IAM has no pattern for letters beyond ASCII. A tag of such letters, or of
    another name, gets the prefix of that text. So STS must not let a tenant choose its tag, and a base keeps other
    prefixes of the bucket out of reach.
IAM-3  A condition of the caller only narrows. So it may not be on a key that the policy itself uses, because IAM
    takes several values of one key as alternatives. For the same reason, two conditions may not have one operator and
    one key, in any case of its letters. One condition may have several values.
IAM-4  A condition of the caller is on the statements about S3. The KMS key is reached through S3 in its region alone,
    by `kms:ViaService`. S3 does not hand on the address and the other properties of the request.
IAM-5  A role that deletes also has a Deny of `s3:DeleteObjectVersion`. AWS needs none, because no statement allows it.
    MinIO takes `s3:DeleteObject` for a delete with a version id, unless a policy denies the other.

Source: the references of IAM policy elements, and of actions and condition keys of Amazon S3 and AWS KMS.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from string import ascii_uppercase
from typing import Any, TypeAlias

from catalog.errors import InvalidArgument, Misuse
from catalog.tenants.names import RESERVED, check_base, prefix_of
from seglog.base.dataclasses import dataclass
from seglog.base.lazy import pattern

Policy: TypeAlias = dict[str, Any]

SESSION_POLICY_MAX = 2048  # characters of a session policy that STS takes
TAG = "aws:PrincipalTag/tenant"
OPERATORS = frozenset(
    {"ArnEquals", "ArnLike", "ArnNotEquals", "ArnNotLike", "Bool", "IpAddress", "NotIpAddress", "Null"}
    | {"StringEquals", "StringEqualsIgnoreCase", "StringLike", "StringNotEquals", "StringNotLike"}
    | {"StringNotEqualsIgnoreCase", "DateEquals", "DateGreaterThan", "DateGreaterThanEquals", "DateLessThan"}
    | {"DateLessThanEquals", "NumericEquals", "NumericGreaterThan", "NumericGreaterThanEquals", "NumericLessThan"}
    | {"NumericLessThanEquals"}
)

_BUCKET = pattern(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_KMS_KEY = pattern(r"arn:[a-z0-9-]+:kms:[a-z0-9-]{1,32}:[0-9]{12}:key/[A-Za-z0-9-]{1,64}")
_CONDITION_KEY = pattern(r"[a-z0-9-]+:[A-Za-z0-9_./:@=+-]+")
# ASCII that a tag may have, and a name may not, and a text that is longer than a name.
_NO_NAMES = (
    *("*/*", "*.*", "*:*", "*=*", "*+*", "*@*", "* *", "_*", "-*", "*_", "*-", "?" * 64 + "*"),
    *(f"*{letter}*" for letter in ascii_uppercase),
)
_OWN_KEYS = frozenset({"s3:prefix", TAG.lower()})
# Hex digits of an LSN. So the pattern does not hit a topic or a warm store with the name `log`.
_COMMITS = "*5*/log/" + "?" * 16


class TenantRole(StrEnum):
    """The roles, the least one first."""

    READER = "reader"
    WRITER = "writer"
    MAINTAINER = "maintainer"
    ADMIN = "admin"

    def includes(self, other: TenantRole) -> bool:
        """Return whether this role may do all that `other` may."""
        order = list(TenantRole)
        return order.index(self) >= order.index(other)


class Target(StrEnum):
    """The resource of an action."""

    BUCKET = "bucket"  # only for requests whose prefix lies in the tenant's prefix
    OBJECTS = "objects"  # only those under the tenant's prefix
    KEY = "key"  # the tenant's KMS key, if it has one


@dataclass(frozen=True, slots=True)
class Right:
    """One action, and the least role that has it. `use` says which requests need the action."""

    action: str
    target: Target
    least: TenantRole
    use: str


RIGHTS = (
    Right("s3:ListBucket", Target.BUCKET, TenantRole.READER, "LIST, and 404 for an absent key"),
    Right("s3:ListBucketVersions", Target.BUCKET, TenantRole.ADMIN, "LIST of versions"),
    Right("s3:GetObject", Target.OBJECTS, TenantRole.READER, "GET, HEAD"),
    Right("s3:PutObject", Target.OBJECTS, TenantRole.WRITER, "PUT; creation, parts and completion of an upload"),
    Right("s3:AbortMultipartUpload", Target.OBJECTS, TenantRole.WRITER, "the abort of an upload"),
    Right("s3:ListMultipartUploadParts", Target.OBJECTS, TenantRole.WRITER, "LIST of an upload's parts"),
    Right("s3:DeleteObject", Target.OBJECTS, TenantRole.MAINTAINER, "DELETE, of one key or many"),
    Right("s3:GetObjectVersion", Target.OBJECTS, TenantRole.ADMIN, "GET of an old version"),
    Right("kms:Decrypt", Target.KEY, TenantRole.READER, "GET, HEAD; parts and completion of an upload"),
    Right("kms:GenerateDataKey", Target.KEY, TenantRole.WRITER, "PUT, and the creation of an upload"),
)


def actions_of(role: TenantRole, target: Target) -> tuple[str, ...]:
    """Return the actions of the role on the resource, sorted."""
    return tuple(sorted(right.action for right in RIGHTS if right.target is target and role.includes(right.least)))


class Partition(StrEnum):
    """The partitions of AWS. The ARNs in a policy name the partition of the bucket."""

    AWS = "aws"
    CHINA = "aws-cn"
    GOV_CLOUD = "aws-us-gov"

    @classmethod
    def of(cls, arn: str) -> Partition:
        """Return the partition that an ARN names. Raises `InvalidArgument`."""
        fields = arn.split(":")[1:2]
        if fields and fields[0] in set(cls):
            return cls(fields[0])
        raise InvalidArgument("arn", arn, f"an ARN of one of {', '.join(cls)}")


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of the caller, such as `Condition("IpAddress", "aws:SourceIp", ("10.0.0.0/8",))`."""

    operator: str
    key: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raise `InvalidArgument` for a condition that IAM does not know, or that would widen the policy (IAM-3)."""
        text = str(self)
        operator = self.operator if self.operator == "NullIfExists" else self.operator.removesuffix("IfExists")
        if operator not in OPERATORS or not _CONDITION_KEY.fullmatch(self.key):
            raise InvalidArgument("condition", text, "OPERATOR:KEY=VALUE, such as IpAddress:aws:SourceIp=10.0.0.0/8")
        if self.key.lower() in _OWN_KEYS:
            raise InvalidArgument("condition", text, f"on another key than {self.key}, which the policy uses itself")
        if not self.values or not all(value.strip() and value.isprintable() for value in self.values):
            raise InvalidArgument("condition", text, "one with a value of printable characters after the =")

    def __str__(self) -> str:
        return f"{self.operator}:{self.key}={','.join(self.values)}"

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Return the condition of `OPERATOR:KEY=VALUE` or `OPERATOR:KEY=VALUE,VALUE`. Raises `InvalidArgument`.

        A space is refused: two conditions in one text would be one value, which no request meets.
        """
        if " " in text:
            raise InvalidArgument("condition", text, "one condition without spaces; give the option once for each")
        test, _, values = text.partition("=")
        operator, _, key = test.partition(":")
        return cls(operator, key, tuple(values.split(",")))


def tenant_policy(
    tenant: str,
    role: TenantRole,
    bucket: str,
    base: str = "",
    kms_key: str | None = None,
    conditions: Sequence[Condition] = (),
    partition: Partition = Partition.AWS,
) -> Policy:
    """Return the policy of a tenant's role. It serves as a policy of an IAM role or user, and as a session policy.

    `base` is the prefix that all tenants have in common. `kms_key` is the ARN of the tenant's own key.
    Raises `InvalidName` and `InvalidArgument`.
    """
    key = None if kms_key is None else _check_kms_key(kms_key, partition)
    return _policy(_arn(bucket, partition), prefix_of(tenant, base), role, key, _block(conditions))


def session_tag_policy(
    role: TenantRole,
    bucket: str,
    base: str = "",
    conditions: Sequence[Condition] = (),
    partition: Partition = Partition.AWS,
) -> Policy:
    """Return the policy of a role that all tenants share. The session tag `tenant` names the tenant (IAM-2).

    Raises `InvalidArgument`.
    """
    guard = {
        "Null": {TAG: "false"},
        "StringNotEquals": {TAG: ["", *sorted(RESERVED)]},
        "StringNotLike": {TAG: list(_NO_NAMES)},
    }
    prefix = f"{check_base(base)}${{{TAG}}}/"
    return _policy(_arn(bucket, partition), prefix, role, None, _merged(guard, _block(conditions)))


def bucket_policy(
    bucket: str, is_put_if_absent: bool = True, is_tls_only: bool = True, partition: Partition = Partition.AWS
) -> Policy:
    """Return the policy of a bucket, which denies some requests of everybody.

    `is_put_if_absent` refuses a PUT of a commit without `If-None-Match`. `is_tls_only` refuses requests over plain
    HTTP. Raises `InvalidArgument`, also if both are off.
    """
    if not (is_put_if_absent or is_tls_only):
        raise InvalidArgument("is_tls_only", is_tls_only, "True, or is_put_if_absent: a policy needs a statement")
    arn = _arn(bucket, partition)
    statements = []
    if is_put_if_absent:
        conditional = {"Null": {"s3:if-none-match": "true"}}
        creation = {"Bool": {"s3:ObjectCreationOperation": "true"}}  # the parts of an upload carry no condition
        commits = [f"{arn}/{_COMMITS}"]
        statements.append(_deny("CommitsAreWrittenOnCondition", ["s3:PutObject"], commits, conditional | creation))
    if is_tls_only:
        plain = {"Bool": {"aws:SecureTransport": "false"}}
        statements.append(_deny("RequestsUseTls", ["s3:*"], [arn, f"{arn}/*"], plain))
    return {"Version": "2012-10-17", "Statement": statements}


def compact(policy: Policy) -> str:
    """Return the policy as a session policy, without the names of its statements, which only a person reads.

    Raises `Misuse` if it has more characters than STS takes.
    """
    bare = [{key: value for key, value in statement.items() if key != "Sid"} for statement in policy["Statement"]]
    text = json.dumps({**policy, "Statement": bare}, separators=(",", ":"))
    if len(text) > SESSION_POLICY_MAX:
        told = f"the session policy has {len(text)} characters, and STS takes {SESSION_POLICY_MAX}"
        raise Misuse(told, hint="use fewer conditions, or a shorter base prefix")
    return text


def check_bucket(bucket: str) -> str:
    if not _BUCKET.fullmatch(bucket):
        raise InvalidArgument("bucket", bucket, "the name of a bucket: 3 to 63 characters of a-z 0-9 . -")
    return bucket


def _check_kms_key(arn: str, partition: Partition = Partition.AWS) -> str:
    if not (_KMS_KEY.fullmatch(arn) and arn.startswith(f"arn:{partition}:")):
        accepted = f"the ARN of a key, arn:{partition}:kms:REGION:ACCOUNT:key/ID: IAM takes no alias for a key"
        raise InvalidArgument("kms_key", arn, accepted)
    return arn


def _arn(bucket: str, partition: Partition) -> str:
    return f"arn:{partition}:s3:::{check_bucket(bucket)}"


def _policy(arn: str, prefix: str, role: TenantRole, kms_key: str | None, block: Mapping[str, Any]) -> Policy:
    """Return the policy of a role on a prefix, which may have a variable."""
    listing = _merged({"StringLike": {"s3:prefix": [f"{prefix}*"]}}, block)
    statements = [
        _allow("ListOwnPrefix", actions_of(role, Target.BUCKET), arn, listing),
        _allow("OwnObjects", actions_of(role, Target.OBJECTS), f"{arn}/{prefix}*", block),
    ]
    if "s3:DeleteObject" in actions_of(role, Target.OBJECTS):
        keep = {"Sid": "OldVersionsStay", "Effect": "Deny", "Action": ["s3:DeleteObjectVersion"]}
        statements.append({**keep, "Resource": [f"{arn}/*"]})
    if kms_key is not None:
        through_s3 = {"StringEquals": {"kms:ViaService": _hosts_of_s3(kms_key)}}
        statements.append(_allow("OwnKey", actions_of(role, Target.KEY), kms_key, through_s3))
    return {"Version": "2012-10-17", "Statement": statements}


def _hosts_of_s3(kms_key: str) -> list[str]:
    """Return the names of S3 in the key's region, as KMS may know it. Each of them is S3 alone."""
    host = f"s3.{kms_key.split(':')[3]}.amazonaws.com"
    return [host, f"{host}.cn"] if Partition.of(kms_key) is Partition.CHINA else [host]


def _allow(sid: str, actions: Sequence[str], resource: str, condition: Mapping[str, Any]) -> dict[str, Any]:
    statement: dict[str, Any] = {"Sid": sid, "Effect": "Allow", "Action": list(actions), "Resource": [resource]}
    return {**statement, "Condition": dict(condition)} if condition else statement


def _deny(sid: str, actions: list[str], resources: list[str], condition: Mapping[str, Any]) -> dict[str, Any]:
    whom = {"Sid": sid, "Effect": "Deny", "Principal": "*"}
    return {**whom, "Action": actions, "Resource": resources, "Condition": dict(condition)}


def _block(conditions: Sequence[Condition]) -> dict[str, dict[str, list[str]]]:
    """Return the conditions as IAM writes them. Raises `InvalidArgument` for two of one operator and key (IAM-3)."""
    block: dict[str, dict[str, list[str]]] = {}
    for condition in conditions:
        keys, key = block.setdefault(condition.operator, {}), condition.key
        if key.lower() in {other.lower() for other in keys}:
            only = f"the only one of {condition.operator}:{key}; one condition takes several values with commas"
            raise InvalidArgument("condition", str(condition), only)
        keys[key] = list(condition.values)
    return block


def _merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return both blocks as one. No key is in both (IAM-3)."""
    return {name: {**first.get(name, {}), **second.get(name, {})} for name in (*first, *second)}
