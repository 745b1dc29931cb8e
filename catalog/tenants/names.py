"""The names of tenants, and the key prefix of each.

A tenant is a name, a key prefix that ends in `/`, and an IAM policy on that prefix. Nothing else registers it.

TENANT-1  A name is one path segment of ASCII, 1 to 63 characters: `[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?`. The whole
    text must match. Nothing decodes it, folds its case, or normalises it.
TENANT-2  A prefix ends in `/`. So within one base no prefix is the beginning of another: `acme/` does not begin
    `acme2/`. A bucket has one base: the tenant `prod` of the empty base would read the tenants of the base `prod/`.
TENANT-3  No name is the first segment of a key that seglog makes. So a store at the base has no keys in a tenant.
"""

from __future__ import annotations

import reprlib

from catalog.errors import InvalidArgument, InvalidName
from seglog.base.lazy import pattern

KEY_FOLDERS = frozenset({"cold", "doctor", "gc", "oplog", "pins", "refs", "tags"})
"""The first segments of the keys that seglog makes, except the ids of volumes."""

RESERVED = KEY_FOLDERS | {"tenants", "tmp"}

_TENANT = pattern(r"[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?")
# No character has a meaning in an IAM policy or in a URL, unlike in the prefixes that a remote may have.
_BASE = pattern(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*")
_BASE_MAX = 512  # S3 takes keys of 1,024 bytes, and the longest key of a store has less than 400


def check_tenant(name: str) -> str:
    """Return `name` if it is the name of a tenant (TENANT-1). Otherwise raise `InvalidName`."""
    if not _TENANT.fullmatch(name):
        raise _invalid(name, "not a tenant's name")
    if name in RESERVED:
        raise _invalid(name, "reserved: seglog's own keys begin with it")
    return name


def is_tenant(name: str) -> bool:
    """Return whether `name` is the name of a tenant (TENANT-1, TENANT-3)."""
    return bool(_TENANT.fullmatch(name)) and name not in RESERVED


def check_base(base: str) -> str:
    """Return the prefix that all tenants have in common: empty, or with a `/` at its end. Raises `InvalidArgument`."""
    if not base:
        return ""
    bare = base.removesuffix("/")
    if len(bare) > _BASE_MAX or not _BASE.fullmatch(bare):
        raise InvalidArgument("base", base, "a prefix such as prod/eu/, in which each segment is of A-Z a-z 0-9 . _ -")
    return f"{bare}/"


def prefix_of(tenant: str, base: str = "") -> str:
    """Return the prefix of the tenant's keys: `base/tenant/`. Raises `InvalidName` and `InvalidArgument`."""
    return f"{check_base(base)}{check_tenant(tenant)}/"


def _invalid(name: str, reason: str) -> InvalidName:
    hint = "1 to 63 characters of a-z 0-9 _ -, the first and the last a letter or digit; some names are reserved"
    return InvalidName.told(f"{reprlib.repr(name)} is {reason}", hint, {"kind": "tenant", "name": name})
