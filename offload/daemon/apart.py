"""The rules that keep the tenants of one daemon apart, besides IAM.

ALONE-1  No variable of the daemon's environment sets the identity, the encryption or the remote of a tenant: it would
    be the same for all of them.
ALONE-2  A remote in S3 has a role of its tenant's own. Without one, its tenant would use the daemon's own AWS
    credentials, which reach all tenants. `shared_credentials` in [serve] of the root allows that.
ALONE-3  Two remotes are compared as places, and not as texts: parsed URLs in S3, and resolved paths of files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from catalog.format.remotes import split_remote
from offload.settings_file import Settings
from offload.wiring import path_of
from seglog.errors import InvalidSetting

__all__ = ["are_apart", "check_credentials", "check_variables", "identity_of"]

_KEYS = {
    "SEGLOG_REMOTE": "remote.url",
    "SEGLOG_OFFLOAD_SSE": "offload.sse",
    "SEGLOG_OFFLOAD_SSE_KMS_KEY_ID": "offload.sse_kms_key_id",
    **{
        f"SEGLOG_TENANT_{key.upper()}": f"tenant.{key}"
        for key in ("name", "role_arn", "role", "external_id", "session_policy")
    },
}


def check_variables(variables: Mapping[str, str]) -> None:
    """Raise `InvalidSetting` if the environment sets for all tenants what each has for itself (ALONE-1)."""
    for variable, key in _KEYS.items():
        if variables.get(variable):  # an empty one counts as not set
            section, _, name = key.partition(".")
            reason = f"the variable {variable} would be that of all tenants: unset it, and set {name} in the section"
            raise InvalidSetting(key, f"{reason} [{section}] of each tenant's seglog.toml")


def check_credentials(settings: Settings, *, is_shared: bool) -> None:
    """Raise `InvalidSetting` if a tenant's remote would use the daemon's own AWS credentials (ALONE-2).

    Raises `InvalidRemote`.
    """
    if is_shared or settings.tenant.role_arn or split_remote(settings.url or "").scheme != "s3":
        return
    reason = "is empty, so this tenant would use the daemon's own AWS credentials: set it, or set shared_credentials"
    raise InvalidSetting("tenant.role_arn", f"{reason} = true in the section [serve] of the root's seglog.toml")


def identity_of(settings: Settings) -> tuple[Any, ...]:
    """Return the settings that bind an open tenant: its remote, and all that decides its credentials."""
    tenant = settings.tenant
    access = (tenant.role_arn, tenant.role, tenant.external_id, tenant.profile, tenant.session_policy)
    return (settings.url, tenant.name, *access)


def are_apart(one: str, other: str) -> bool:
    """Return whether neither remote lies in the other (ALONE-3). The text is empty without a remote.

    Raises `InvalidRemote`.
    """
    if not one or not other:
        return True
    first, second = _place_of(one), _place_of(other)
    shared = min(len(first), len(second))
    return first[:shared] != second[:shared]


def _place_of(url: str) -> tuple[str, ...]:
    """Return the parts of the place, from the scheme on."""
    parts = split_remote(url)
    if parts.scheme == "file":
        return ("file", *Path(path_of(parts.path)).resolve().parts)
    return (parts.scheme, parts.netloc.lower(), *filter(None, parts.path.split("/")))
