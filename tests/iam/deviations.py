"""The differences between MinIO and AWS that the matrix meets. Each one names its cells, and is a row of the page.

A cell is marked if MinIO allows a call that AWS denies for the lack of an action. All of them are in the tenant's own
prefix: no difference reaches another tenant.
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.tenants.policies import TenantRole
from tests.iam.matrix import Cell, Place

__all__ = ["DEVIATIONS", "Deviation", "deviation_of"]

_WRITERS = frozenset({TenantRole.WRITER, TenantRole.MAINTAINER, TenantRole.ADMIN})
_BELOW_ADMIN = frozenset({TenantRole.READER, TenantRole.WRITER, TenantRole.MAINTAINER})


@dataclass(frozen=True, slots=True)
class Deviation:
    calls: frozenset[str]
    roles: frozenset[TenantRole]
    reason: str
    effect: str


DEVIATIONS = (
    Deviation(
        frozenset({"ListObjectVersions"}),
        _BELOW_ADMIN,
        "MinIO takes `s3:ListBucket` as permission to list versions. AWS asks for `s3:ListBucketVersions`.",
        "Each role sees the versions and markers under its own prefix.",
    ),
    Deviation(
        frozenset({"GetObject of a version", "HeadObject of a version"}),
        _BELOW_ADMIN,
        "MinIO takes `s3:GetObject` for a read with a version id. AWS asks for `s3:GetObjectVersion`.",
        "Each role reads old versions under its own prefix.",
    ),
    Deviation(
        frozenset({"PutObject with tags"}),
        _WRITERS,
        "MinIO takes `s3:PutObject` for tags that come with an object. AWS asks for `s3:PutObjectTagging` too.",
        "A writer tags its own new objects. No policy of seglog looks at tags of objects.",
    ),
    Deviation(
        frozenset({"PutObject with an ACL"}),
        _WRITERS,
        "MinIO has no ACLs, and ignores the header. AWS asks for `s3:PutObjectAcl` too.",
        "None.",
    ),
)


def deviation_of(cell: Cell) -> Deviation | None:
    """Return the difference by which MinIO allows the cell, or None."""
    if cell.place is not Place.OWN:
        return None
    return next((each for each in DEVIATIONS if cell.call.name in each.calls and cell.role in each.roles), None)
