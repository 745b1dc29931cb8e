"""The command `seglog tenant delete`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from offload.cli.progress import ToldBars
from offload.cli.session import Session
from offload.cli.streams import write_error
from offload.errors import NoRemote, NotConfirmed
from offload.operations.command import Command
from offload.operations.parameters import About, DryRun, Yes
from offload.operations.preview import check_meant
from offload.operations.units import counted, format_bytes
from offload.settings import NEVER
from seglog import SETTINGS_FILE

if TYPE_CHECKING:
    from catalog.objects.prefix import Upload, WholePrefix
    from offload.operations.tenant_delete import TenantDeleted, WouldDelete

__all__ = [
    "TENANT_DELETE",
    "delete",
]


def delete(
    session: Session,
    name: Annotated[str, About("The tenant: the last segment of its remote.")],
    owner_profile: Annotated[
        str | None, About("An AWS profile of the bucket's owner, which may list uploads and old versions.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete all objects and uploads of a tenant, and prove it by a LIST. There is no way back.

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
    from offload.operations import tenant_delete as use

    url = session.remote or session.settings().url
    if not url:
        raise NoRemote(session.directory)
    use.check_remote_of(name, url)
    if not (dry_run or yes or session.settings().cli.confirm == NEVER):
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            check_meant(f"this deletes all objects of the tenant {name}", yes=yes, dry_run=dry_run)
        with _opened(session, url, owner_profile) as (place, owner, on_record):
            found = use.preview(name, place, owner, on_record)
        _ask(found)  # nothing is open during the question
    with _opened(session, url, owner_profile) as (place, owner, on_record):
        if dry_run:
            found = use.preview(name, place, owner, on_record)
            session.output.show(found, _would_text(found))
            return
        with closing(ToldBars(is_shown=session.shows_progress)) as bars:
            objects = 0

            def told(count: int) -> None:
                nonlocal objects
                objects += count
                bars.tell(f"tenant delete {name}", None, objects, "objects")

            done = use.delete(name, place, owner, on_record, told)
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
    from offload.tenants.source import source_of
    from offload.wiring import open_prefix

    with ExitStack() as stack:
        stack.enter_context(session.one_command())
        on_record: list[Upload] = []
        directory = _own_directory(session, url)
        if directory is not None:
            stack.enter_context(session.log())
            on_record = _on_record(directory)
        place = stack.enter_context(closing(open_prefix(url, credentials=source_of(session.settings(), url))))
        owner = stack.enter_context(closing(open_prefix(url, owner_profile))) if owner_profile else None
        yield place, owner, on_record


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
            Upload(data_key(each.vid, each.sid), each.upload_id)
            for each in local.attempts()
            if each.upload_id is not None
        ]


def _ask(found: WouldDelete) -> None:
    write_error(_would_text(found) + f"\nThere is no way back. Type {found.tenant} to go on: ")
    if sys.stdin.readline().strip() != found.tenant:
        raise NotConfirmed(found.tenant)


def _would_text(found: WouldDelete) -> str:
    told = f"tenant delete would take {counted(found.objects, 'object')} of {found.tenant}, "
    told += f"{format_bytes(found.bytes)}: all below {found.remote}/"
    if found.foreign:
        told += f"\n  {found.foreign:,} of them are not seglog's, such as {', '.join(map(repr, found.examples))}"
    others = "the rest is for --owner-profile" if found.uploads is None else f"{found.uploads:,} that the owner lists"
    return f"{told}\n  uploads: {found.uploads_on_record:,} on record here, {others}"


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
