"""The use case of `seglog tenant delete`: what would go, and the deletion (offload.tenants.deletion)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from catalog.format.remotes import split_remote
from catalog.objects.prefix import Upload, WholePrefix
from catalog.tenants.names import check_tenant
from offload.errors import NotTheTenant
from offload.tenants.deletion import contents_of, delete_all, lifecycle_rule

__all__ = ["TenantDeleted", "WouldDelete", "check_remote_of", "delete", "preview"]


@dataclass(frozen=True, slots=True)
class WouldDelete:
    """The objects that a deletion would take. `foreign` counts objects that seglog did not make.

    `examples` has some of their keys. The data directory knows `uploads_on_record`. `uploads`
    counts all, and is None without the owner's profile.
    """

    tenant: str
    remote: str
    objects: int
    bytes: int
    foreign: int
    examples: tuple[str, ...]
    uploads_on_record: int
    uploads: int | None


@dataclass(frozen=True, slots=True)
class TenantDeleted:
    """A deletion, which a LIST has proven for objects, and with `proves_uploads` for uploads.

    The `unreferenced_bytes` of this run stay in the bucket as old versions. `old_versions` and their bytes are None if
    there are none, or if the role may not list them. `lifecycle` is the rule that the bucket's owner has to set.
    """

    tenant: str
    remote: str
    objects: int
    reclaimed_bytes: int
    unreferenced_bytes: int
    old_versions: int | None
    old_version_bytes: int | None
    aborted_uploads: int
    proves_uploads: bool
    lifecycle: Mapping[str, Any] | None


def check_remote_of(name: str, url: str) -> None:
    """Raise `NotTheTenant` unless the remote belongs to the tenant: its last segment is the name.

    Raises `InvalidTenant`.
    """
    path = split_remote(url).path.strip("/")
    if path.rpartition("/")[2] != check_tenant(name):
        raise NotTheTenant(name, url)


def preview(name: str, place: WholePrefix, owner: WholePrefix | None, on_record: Sequence[Upload]) -> WouldDelete:
    """Return what would go. Changes nothing."""
    found = contents_of(place, owner)
    return WouldDelete(
        name, place.url, found.objects, found.bytes, found.foreign, found.examples, len(on_record), found.uploads
    )


def delete(
    name: str,
    place: WholePrefix,
    owner: WholePrefix | None,
    on_record: Sequence[Upload],
    on_deleted: Callable[[int], None],
) -> TenantDeleted:
    """Delete everything of the tenant, and prove it. Raises `TenantWritten`, and the errors of the store."""
    done = delete_all(place, owner, on_record, on_deleted)
    is_s3 = place.url.startswith("s3:")
    is_versioned = bool(done.freed.unreferenced_bytes or done.versions)
    needs_rule = is_s3 and (is_versioned or not done.lists_uploads)
    return TenantDeleted(
        tenant=name,
        remote=place.url,
        objects=done.objects,
        reclaimed_bytes=done.freed.reclaimed_bytes,
        unreferenced_bytes=done.freed.unreferenced_bytes,
        old_versions=done.versions.versions if done.versions else None,
        old_version_bytes=done.versions.bytes if done.versions else None,
        aborted_uploads=done.aborted,
        proves_uploads=done.lists_uploads or not is_s3,
        lifecycle=lifecycle_rule(name, f"{split_remote(place.url).path.strip('/')}/") if needs_rule else None,
    )
