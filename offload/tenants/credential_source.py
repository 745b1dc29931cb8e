"""The source of credentials for a command on one data directory. It imports boto3 only if the directory needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offload.settings import Settings

if TYPE_CHECKING:
    from catalog.objects.s3_credentials import CredentialSource


def source_of(settings: Settings, url: str | None) -> CredentialSource | None:
    """Return the credentials of the directory's tenant for the remote `url`; None for those of the AWS environment.

    Makes no request. Raises the errors of `offload.tenants.sts_request.access_of`.
    """
    if not settings.tenant.role_arn:
        return None
    from offload.tenants.credentials import SingleTenant
    from offload.tenants.sts_request import access_of

    access = access_of(settings, url)
    return None if access is None else SingleTenant(access)
