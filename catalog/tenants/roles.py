"""The one table of roles and actions: which IAM role of a tenant may do what.

The policies, the templates in localstack/ and the tables in the documents come from `RIGHTS`. A role may do all that
the roles before it may. These are IAM roles, and not the roles of the daemon's tokens.

ROLE-1  Each action is named, without a wildcard.
ROLE-2  No role has `s3:DeleteObjectVersion`. On a versioned bucket, a delete leaves a marker and the old version.
ROLE-3  No role has `s3:ListBucketMultipartUploads`. S3 has no prefix condition for it, so it shows all tenants' keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["RIGHTS", "Right", "Target", "TenantRole", "actions_of"]


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
    return tuple(sorted(each.action for each in RIGHTS if each.target is target and role.includes(each.least)))
