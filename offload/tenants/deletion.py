"""The deletion of a tenant: all objects and uploads below its prefix, and the proof by a LIST.

    1  The command takes the lock of the data directory, if there is one. So no daemon and no writer has it open.
    2  The command deletes the names: refs, tags, pins. From now on no reader finds a topic.
    3  It deletes the histories: everything else except segments.
    4  It deletes the segments.
    5  It aborts the uploads on record in the directory. With the owner's profile, it lists and aborts all others.
    6  It lists the prefix. If an object is there, a writer is still at work: `Conflict`.

TDEL-1  Steps 2 to 6 begin with a LIST. So a repetition completes a deletion that stopped anywhere.
TDEL-2  As long as a ref exists, all objects that it reaches exist: refs go before histories, histories before segments.
TDEL-3  Each key begins with the tenant's prefix, which ends in `/`. So no other tenant loses anything.
TDEL-4  Foreign keys below the prefix go too, because the tenant owns its prefix. The preview counts them.
TDEL-5  A LIST proves that no object is left. Only the bucket's owner may list uploads, so without the owner's profile
    the proof covers objects alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from catalog.errors import AccessDenied, NotOffered
from catalog.format import keys
from catalog.objects.prefix import Freed, Held, OldVersions, Upload, WholePrefix
from catalog.tenants.names import KEY_FOLDERS
from seglog.base.dataclasses import dataclass
from seglog.base.errors import Conflict

_BATCH = 1000
_SHOWN = 3
_NAMES = (keys.refs_prefix(), keys.tags_prefix(), keys.pins_prefix())


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a prefix. `foreign` counts the objects that seglog did not make, and `examples` has some of them.

    `uploads` is None if no client at hand may list them.
    """

    objects: int
    bytes: int
    foreign: int
    examples: tuple[str, ...]
    uploads: int | None


@dataclass(frozen=True, slots=True)
class Deletion:
    """A deletion that is proven. `versions` is None if the role may not list versions, or there are none.

    `lists_uploads` says that the owner listed the uploads, and that none is left.
    """

    objects: int
    freed: Freed
    versions: OldVersions | None
    aborted: int
    lists_uploads: bool


def contents_of(prefix: WholePrefix, owner: WholePrefix | None) -> Contents:
    """Look at the prefix, and change nothing."""
    objects = size = foreign = 0
    examples: list[str] = []
    for stored in prefix.held():
        objects += 1
        size += stored.size
        if not _is_ours(stored.key):
            foreign += 1
            examples += [stored.key] if len(examples) < _SHOWN else []
    uploads = None if owner is None else sum(1 for _ in owner.uploads())
    return Contents(objects, size, foreign, tuple(examples), uploads)


def delete_all(
    prefix: WholePrefix,
    owner: WholePrefix | None,
    on_record: Sequence[Upload] = (),
    on_deleted: Callable[[int], None] = lambda _: None,
) -> Deletion:
    """Do steps 2 to 6. `owner` is the same prefix with the rights of the bucket's owner, or None.

    `on_deleted` gets the number of objects deleted since the last call. Raises `Conflict`, and the errors of
    the store.
    """
    objects, freed = 0, Freed()
    for batch in _in_order(prefix):
        freed += prefix.take(batch)
        objects += len(batch)
        on_deleted(len(batch))
    aborted = _abort(prefix, on_record)
    if owner is not None:
        aborted += _abort(owner, [*owner.uploads()])
    remaining = [stored.key for stored in prefix.held()]
    uploads = [] if owner is None else [upload.key for upload in owner.uploads()]
    if remaining or uploads:
        counts = f"{len(remaining):,} objects and {len(uploads):,} uploads"
        hint = "take the credentials of the tenant's writers away, then repeat the command"
        raise Conflict(f"after the deletion a LIST of {prefix.url} shows {counts}", hint=hint)
    versions = _versions(owner or prefix)
    prefix.clear()
    return Deletion(objects, freed, versions, aborted, lists_uploads=owner is not None)


def lifecycle_rule(tenant: str, prefix: str) -> dict[str, Any]:
    """Return the rule for the bucket's lifecycle that ends old versions, delete markers and uploads of the tenant."""
    return {
        "ID": f"seglog-deleted-tenant-{tenant}",
        "Status": "Enabled",
        "Filter": {"Prefix": prefix},
        "NoncurrentVersionExpiration": {"NoncurrentDays": 1},
        "Expiration": {"ExpiredObjectDeleteMarker": True},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
    }


def _in_order(prefix: WholePrefix) -> Iterator[list[Held]]:
    """Yield the objects in batches: names, then histories, then segments (TDEL-2)."""
    for name in _NAMES:
        yield from _batches(prefix.held(name))
    yield from _batches(stored for stored in prefix.held() if not _is_of_segment(stored.key))
    yield from _batches(prefix.held())


def _batches(objects: Iterable[Held]) -> Iterator[list[Held]]:
    batch: list[Held] = []
    for stored in objects:
        batch.append(stored)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _is_of_segment(key: str) -> bool:
    return keys.sid_of(key.removesuffix(".index")) is not None


def _is_ours(key: str) -> bool:
    return key.partition("/")[0] in KEY_FOLDERS or keys.volume_of(key) is not None


def _abort(prefix: WholePrefix, uploads: Iterable[Upload]) -> int:
    """Abort the uploads, and return their number."""
    aborted = 0
    for upload in uploads:
        prefix.abort(upload)
        aborted += 1
    return aborted


def _versions(prefix: WholePrefix) -> OldVersions | None:
    with suppress(AccessDenied, NotOffered):
        versions = prefix.old_versions()
        return versions if versions.versions or versions.markers else None
    return None
