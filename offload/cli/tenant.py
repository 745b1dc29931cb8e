"""The commands `seglog tenant …`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from catalog.tenants.names import prefix_of
from catalog.tenants.policies import Partition, TenantRole, check_bucket
from offload.cli.execution import ToldBars
from offload.cli.session import Session
from offload.cli.stdio import write_error
from offload.errors import Misuse, NoRemote, NotConfirmed
from offload.operations.command import About, Command, DryRun, Yes
from offload.operations.printing import check_meant, counted, format_bytes
from offload.settings import NEVER
from seglog import SETTINGS_FILE
from seglog.base.lazy import LazyModule

if TYPE_CHECKING:
    import offload.operations.tenant as use
    from catalog.objects.prefix import Upload, WholePrefix
    from offload.operations.tenant import TenantDeleted, WouldDelete
else:
    use = LazyModule("offload.operations.tenant")

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
    """Print the IAM policy of a role for one tenant. Makes no request.

    The tenant's remote is s3://BUCKET/PREFIX/NAME. The policy allows the role's actions under that prefix, and nothing
    else. No role may delete old versions of objects. Two conditions of one operator and key are refused, because IAM
    would take either; `--condition OPERATOR:KEY=A,B` says so.
    Examples: seglog tenant policy acme --role writer --bucket archive --condition
    IpAddress:aws:SourceIp=10.0.0.0/8; seglog tenant policy --session-tags --role reader --bucket archive --base prod/
    """
    document = use.policy(
        name, TenantRole(role), bucket, base, kms_key, condition or (), session_tags, Partition(partition)
    )
    session.output.show(document, json.dumps(document.policy, indent=2))


def bucket_policy(
    session: Session,
    bucket: Annotated[str, About("The bucket.")],
    put_if_absent: Annotated[bool, About("Refuse a PUT of a commit without If-None-Match.")] = False,
    tls_only: Annotated[bool, About("Refuse requests over plain HTTP.")] = False,
    partition: OfBucket = Partition.AWS,
) -> None:
    """Print a policy for the bucket of the tenants. It denies some requests of everybody. Makes no request.

    Without options it denies all that the options name. A store other than AWS may not know the conditions.
    Example: seglog tenant bucket-policy archive
    """
    document = use.policy_of_bucket(bucket, put_if_absent, tls_only, Partition(partition))
    session.output.show(document, json.dumps(document.policy, indent=2))


def list_tenants(session: Session) -> None:
    """List the tenants of a daemon. Without one, list the data directories below DIR.

    With --daemon, the token has the role admin, and is not bound to a tenant. A tenant that is `failed` did not open.
    Examples: seglog --daemon https://logs:7373 --token-file boss tenant list; seglog -C /srv/seglog tenant list
    """
    client = session.daemon() if session.daemon_url is not None else None
    tenants = use.listed(session.directory) if client is None else (use.TenantListed(**row) for row in client.tenants())
    for tenant in tenants:
        session.output.show(tenant, f"{tenant.name:<24} {tenant.state}{f': {tenant.error}' if tenant.error else ''}")


TENANT_LIST = Command("tenant/list", list_tenants)
TENANT_POLICY = Command("tenant/policy", policy)
TENANT_BUCKET_POLICY = Command("tenant/bucket-policy", bucket_policy)


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
    """Print credentials of a tenant from STS. They have the form that `credential_process` of an AWS profile takes.

    STS gives the IAM role and, as a session policy, the policy that `seglog tenant policy` prints. So the credentials
    do what both allow. Every AWS tool and Spark can use them by a profile, and ask again before they end. The command
    needs no data directory. In one, its section [tenant] and its remote give the rest.
    Example: seglog tenant credentials acme --role reader --bucket archive --role-arn
    arn:aws:iam::111122223333:role/tenants
    """
    from offload.operations.printing import parse_span_s

    settings = session.settings()
    url = session.remote or settings.url
    if bucket is not None:
        url = f"s3://{check_bucket(bucket)}/{prefix_of(name, base)}"
    request = use.Asked(name, TenantRole(role), parse_span_s("--for", lasts), kms_key, role_arn, external_id, profile)
    with _alone(), session.one_command():
        grant = use.credentials(request, settings, url)
    session.output.show(grant, json.dumps(grant.process_output()))


@contextmanager
def _alone() -> Iterator[None]:
    """Refuse to run below this very command. A profile that names it would otherwise start it without end.

    Spark sets AWS_PROFILE for its executors, so the program that the profile names has this variable too.
    """
    if _RUNS in os.environ:
        raise Misuse(
            "this command runs within itself, because it takes the role with a profile that names it",
            hint="give --profile, the name of a profile with credentials of its own",
        )
    os.environ[_RUNS] = "1"
    try:
        yield
    finally:
        del os.environ[_RUNS]


def check(session: Session, name: Annotated[str, About("The tenant.")]) -> None:
    """Check that a tenant lists its own prefix and no other. It asks with the tenant's own credentials.

    Two requests: a LIST of the tenant's prefix has to work, and a LIST of the bucket without a prefix has to be denied.
    If one of them does not, the exit code is 1. A daemon makes this check at its start and once an hour.
    The remote is that of the data directory, or --remote before the command.
    Example: seglog -C /srv/acme tenant check acme
    """
    from offload.errors import ChecksFailed

    settings = session.settings()
    url = session.remote or settings.url
    with session.one_command():
        checked = use.check(name, settings, url)
    answers = f"own prefix: {checked.own_prefix}, whole bucket: {checked.whole_bucket}"
    session.output.show(checked, "\n".join([answers, *checked.failures]))
    if checked.failures:
        raise ChecksFailed(len(checked.failures), str(url), "see docs/security.md for what the bucket's policy needs")


TENANT_CHECK = Command("tenant/check", check)
TENANT_CREDENTIALS = Command("tenant/credentials", credentials)


def delete(
    session: Session,
    name: Annotated[str, About("The tenant: the last segment of its remote.")],
    owner_profile: Annotated[
        str | None, About("An AWS profile of the bucket's owner, which may list uploads and old versions.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete all objects and uploads of a tenant. A LIST proves it. There is no way back.

    The remote is that of --remote or of the data directory, and ends in /NAME. The command takes every key below it,
    also keys that seglog did not make. It needs the role maintainer or admin. Before that, take the credentials of
    the tenant's writers away. If the data directory is this tenant's, no other process may have it open. The
    directory itself stays.

    First the names go, then the histories, then the segments. So no reader finds half a state, and after a failure the
    command can be repeated. No role of a tenant may list uploads: the command aborts those on record in the
    directory, and with --owner-profile all others too. On a versioned bucket, old versions stay until the lifecycle
    rule ends them that the command prints.
    Example: seglog --remote s3://archive/acme tenant delete acme --owner-profile bucket-owner
    """
    url = session.remote or session.settings().url
    if not url:
        raise NoRemote(session.directory)
    use.check_remote_of(name, url)
    if not (dry_run or yes or session.settings().cli.confirm == NEVER):
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            check_meant(f"this deletes all objects of the tenant {name}", yes=yes, dry_run=dry_run)
        with _opened(session, url, owner_profile) as (prefix, owner, on_record):
            preview = use.preview(name, prefix, owner, on_record)
        _ask(preview)  # nothing is open during the question
    with _opened(session, url, owner_profile) as (prefix, owner, on_record):
        if dry_run:
            preview = use.preview(name, prefix, owner, on_record)
            session.output.show(preview, _would_text(preview))
            return
        with closing(ToldBars(is_shown=session.shows_progress)) as bars:
            objects = 0

            def told(count: int) -> None:
                nonlocal objects
                objects += count
                bars.tell(f"tenant delete {name}", None, objects, "objects")

            done = use.delete(name, prefix, owner, on_record, told)
    session.output.show(done, _done_text(done))
    if not session.as_json and _own_directory(session, url):
        session.output.note(
            f"{session.directory} still has records of {name}: remove it, or its next offload writes them again"
        )


@contextmanager
def _opened(
    session: Session, url: str, owner_profile: str | None
) -> Iterator[tuple[WholePrefix, WholePrefix | None, list[Upload]]]:
    """Yield the prefix, the same with the owner's rights, and the uploads on record. The directory is locked."""
    from offload.wiring import open_prefix, source_of

    with ExitStack() as stack:
        stack.enter_context(session.one_command())
        on_record: list[Upload] = []
        directory = _own_directory(session, url)
        if directory is not None:
            stack.enter_context(session.log())
            on_record = _on_record(directory)
        prefix = stack.enter_context(closing(open_prefix(url, credentials=source_of(session.settings(), url))))
        owner = stack.enter_context(closing(open_prefix(url, owner_profile))) if owner_profile else None
        yield prefix, owner, on_record


def _own_directory(session: Session, url: str) -> Path | None:
    """Return the data directory, if it is of this remote."""
    directory = session.directory
    if not ((directory / SETTINGS_FILE).is_file() and (directory / "wal").is_dir()):
        return None
    own = session.settings().url
    return directory if own is None or own.rstrip("/") == url.rstrip("/") else None


def _on_record(directory: Path) -> list[Upload]:
    from catalog import LocalCatalog
    from catalog.format.keys import data_key
    from catalog.objects.prefix import Upload

    if not (directory / "catalog.db").is_file():
        return []
    with LocalCatalog(directory / "catalog.db", read_only=True) as local:
        return [
            Upload(data_key(attempt.vid, attempt.sid), attempt.upload_id)
            for attempt in local.attempts()
            if attempt.upload_id is not None
        ]


def _ask(preview: WouldDelete) -> None:
    write_error(_would_text(preview) + f"\nThere is no way back. Type {preview.tenant} to go on: ")
    if sys.stdin.readline().strip() != preview.tenant:
        raise NotConfirmed(preview.tenant)


def _would_text(plan: WouldDelete) -> str:
    text = f"tenant delete would take {counted(plan.objects, 'object')} of {plan.tenant}, "
    text += f"{format_bytes(plan.bytes)}: all below {plan.remote}/"
    if plan.foreign:
        text += f"\n  {plan.foreign:,} of them are not seglog's, such as {', '.join(map(repr, plan.examples))}"
    uploads = "the rest is for --owner-profile" if plan.uploads is None else f"{plan.uploads:,} that the owner lists"
    return f"{text}\n  uploads: {plan.uploads_on_record:,} on record here, {uploads}"


def _done_text(done: TenantDeleted) -> str:
    lines = [
        f"deleted {counted(done.objects, 'object')} of {done.tenant}: {done.reclaimed_bytes:,} bytes reclaimed, "
        f"{done.unreferenced_bytes:,} bytes unreferenced",
        f"a LIST of {done.remote}/ shows no object" + (" and no upload" if done.proves_uploads else ""),
        f"aborted {counted(done.aborted_uploads, 'upload')}",
    ]
    if done.old_versions is not None:
        lines.append(f"{counted(done.old_versions, 'old version')} stay, {done.old_version_bytes:,} bytes")
    if not done.proves_uploads:
        lines.append("The proof covers objects only: other uploads end by the lifecycle rule, or with --owner-profile.")
    if done.lifecycle is not None:
        lines.append(f"The bucket's owner adds this rule to its lifecycle: {json.dumps(done.lifecycle)}")
    return "\n".join(lines)


TENANT_DELETE = Command("tenant/delete", delete)
