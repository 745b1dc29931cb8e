"""The commands `seglog tenant credentials` and `seglog tenant check`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from catalog.tenants.names import prefix_of
from catalog.tenants.policies import TenantRole, check_bucket
from offload.cli.session import Session
from offload.commands.parameters import About
from offload.errors import InvalidParameters

__all__ = ["check", "credentials"]

_RUNS = "SEGLOG_CREDENTIALS_RUN"


def credentials(
    session: Session,
    name: Annotated[str, About("The tenant.")],
    role: Annotated[TenantRole, About("What the credentials may do at most.", "--role")],
    lasts: Annotated[str, About("How long they live: 15m to 12h.", "--for", metavar="DURATION")] = "1h",
    bucket: Annotated[str | None, About("The bucket. By default, the remote names it.")] = None,
    base: Annotated[str, About("With --bucket: the prefix that all tenants have in common.", metavar="PREFIX")] = "",
    kms_key: Annotated[str | None, About("The ARN of the tenant's KMS key, which they may then use.")] = None,
    role_arn: Annotated[str | None, About("The IAM role to take. By default tenant.role_arn.", metavar="ARN")] = None,
    external_id: Annotated[str | None, About("The external id that the role asks for.")] = None,
    profile: Annotated[str | None, About("The AWS profile that may take the role.")] = None,
) -> None:
    """Print credentials of a tenant from STS, in the form that `credential_process` of an AWS profile takes.

    STS gives the IAM role and, as a session policy, the policy that `seglog tenant policy` prints. So the credentials
    do what both allow. Every AWS tool and Spark can use them by a profile, and ask again before they end. The command
    needs no data directory. In one, its section [tenant] and its remote give the rest.
    Example: seglog tenant credentials acme --role reader --bucket archive --role-arn
    arn:aws:iam::111122223333:role/tenants
    """
    from offload.commands import tenant_credentials as use
    from offload.commands.units import parse_span_s

    settings = session.settings()
    url = session.remote or settings.url
    if bucket is not None:
        url = f"s3://{check_bucket(bucket)}/{prefix_of(name, base)}"
    asked = use.Asked(name, TenantRole(role), parse_span_s("--for", lasts), kms_key, role_arn, external_id, profile)
    with _alone(), session.one_command():
        made = use.credentials(asked, settings, url)
    session.output.show(made, json.dumps(made.process_output()))


@contextmanager
def _alone() -> Iterator[None]:
    """Refuse to run below this very command. A profile that names it would otherwise start it without end.

    Spark sets AWS_PROFILE for its executors, so the program that the profile names has this variable too.
    """
    if _RUNS in os.environ:
        raise InvalidParameters(
            "this command runs within itself, because it takes the role with a profile that names it",
            hint="give --profile, the name of a profile with credentials of its own",
        )
    os.environ[_RUNS] = "1"
    try:
        yield
    finally:
        del os.environ[_RUNS]


def check(
    session: Session,
    name: Annotated[str, About("The tenant.")],
) -> None:
    """Check that a tenant lists its own prefix and no other, with its own credentials.

    Two requests: a LIST of the tenant's prefix has to work, and a LIST of the bucket without a prefix has to be denied.
    If one of them does not, the exit code is 1. A daemon makes this check at its start and once an hour.
    The remote is that of the data directory, or --remote before the command.
    Example: seglog -C /srv/acme tenant check acme
    """
    from offload.commands import tenant_credentials as use
    from offload.errors import ChecksFailed

    settings = session.settings()
    url = session.remote or settings.url
    with session.one_command():
        found = use.check(name, settings, url)
    answers = f"own prefix: {found.own_prefix}, whole bucket: {found.whole_bucket}"
    session.output.show(found, "\n".join([answers, *found.failures]))
    if found.failures:
        raise ChecksFailed(len(found.failures), str(url), "see docs/security.md for what the bucket's policy needs")
