"""The option `--role-arn` of the commands that make a data directory: the IAM role of its tenant."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

from offload.errors import Misuse
from offload.operations.command import About

if TYPE_CHECKING:
    from offload.settings import TenantSettings

RoleArn = Annotated[
    str | None,
    About("The IAM role for the remote, here and in [tenant] of the new seglog.toml.", "--role-arn", metavar="ARN"),
]


def tenant_of(url: str | None, role_arn: str | None) -> TenantSettings | None:
    """Return the section [tenant] for a new directory; None without a role.

    The tenant is the last segment of the remote. The environment gives the other keys, such as
    SEGLOG_TENANT_EXTERNAL_ID. Raises `Misuse`, `InvalidRemote` and `InvalidSetting`.
    """
    if role_arn is None:
        return None
    from catalog.format.remotes import split_remote
    from offload.settings import ROLE_ARN, ROLE_ARN_FORM, TenantSettings
    from seglog.values.config import from_section

    if not ROLE_ARN.fullmatch(role_arn):
        raise Misuse(f"{role_arn!r} is not the ARN of a role", hint=f"its form is {ROLE_ARN_FORM}")
    parts = split_remote(url or "")
    name = parts.path.rstrip("/").rpartition("/")[2]
    if parts.scheme != "s3" or not name:
        raise Misuse("--role-arn is for a remote of a tenant", hint="its form is s3://bucket/prefix/TENANT")
    own = {"SEGLOG_TENANT_NAME": name, "SEGLOG_TENANT_ROLE_ARN": role_arn}
    return from_section(TenantSettings, {}, {**os.environ, **own})
