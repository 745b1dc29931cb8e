"""The commands `seglog tenant …`."""

from __future__ import annotations

import json
from typing import Annotated

from catalog.tenants.policies import Partition, TenantRole
from offload.cli.session import Session
from offload.commands.parameters import About

__all__ = ["bucket_policy", "list_tenants", "policy"]

OfBucket = Annotated[Partition, About("The partition of AWS that has the bucket.", "--partition")]


def policy(
    session: Session,
    role: Annotated[TenantRole, About("Each may do all that the one before it may.", "--role")],
    bucket: Annotated[str, About("The bucket.", "--bucket")],
    name: Annotated[str | None, About("The tenant. Leave it out with --session-tags.", is_argument=True)] = None,
    base: Annotated[
        str,
        About(
            "The prefix that all tenants of the bucket have in common, such as prod/. One for a bucket.",
            metavar="PREFIX",
        ),
    ] = "",
    kms_key: Annotated[str | None, About("The ARN of the tenant's KMS key, which the role may then use.")] = None,
    condition: Annotated[
        list | None,  # type: ignore[type-arg]
        About(
            "Allow only requests that meet OPERATOR:KEY=VALUE. May be given several times: all must be met.",
            metavar="CONDITION",
        ),
    ] = None,
    session_tags: Annotated[
        bool,
        About(
            "One policy for all tenants: the session tag `tenant` names the tenant. If a tenant may choose its tag, "
            "the policy isolates nothing."
        ),
    ] = False,
    partition: OfBucket = Partition.AWS,
) -> None:
    """Print the IAM policy of a role for one tenant of a bucket. Makes no request.

    The tenant's remote is s3://BUCKET/PREFIX/NAME. The policy allows the role's actions under that prefix, and nothing
    else. No role may delete old versions of objects. Two conditions of one operator and key are refused, because IAM
    would take either; `--condition OPERATOR:KEY=A,B` says so.
    Examples: seglog tenant policy acme --role writer --bucket archive --condition
    IpAddress:aws:SourceIp=10.0.0.0/8; seglog tenant policy --session-tags --role reader --bucket archive --base prod/
    """
    from offload.commands import tenant as use

    made = use.policy(
        name, TenantRole(role), bucket, base, kms_key, condition or (), session_tags, Partition(partition)
    )
    session.output.show(made, json.dumps(made.policy, indent=2))


def bucket_policy(
    session: Session,
    bucket: Annotated[str, About("The bucket.")],
    put_if_absent: Annotated[bool, About("Refuse a PUT of a commit without If-None-Match.")] = False,
    tls_only: Annotated[bool, About("Refuse requests over plain HTTP.")] = False,
    partition: OfBucket = Partition.AWS,
) -> None:
    """Print a policy for the bucket of the tenants, which denies some requests of everybody. Makes no request.

    Without options it denies all that the options name. A store other than AWS may not know the conditions.
    Example: seglog tenant bucket-policy archive
    """
    from offload.commands import tenant as use

    made = use.policy_of_bucket(bucket, put_if_absent, tls_only, Partition(partition))
    session.output.show(made, json.dumps(made.policy, indent=2))


def list_tenants(session: Session) -> None:
    """List the tenants of a daemon, or the data directories below DIR.

    With --daemon, the token has the role admin, and is not bound to a tenant. A tenant that is `failed` did not open.
    Examples: seglog --daemon https://logs:7373 --token-file boss tenant list; seglog -C /srv/seglog tenant list
    """
    from offload.commands import tenant as use

    client = session.daemon() if session.daemon_url is not None else None
    found = use.listed(session.directory) if client is None else (use.TenantListed(**each) for each in client.tenants())
    for each in found:
        session.output.show(each, f"{each.name:<24} {each.state}{f': {each.error}' if each.error else ''}")
