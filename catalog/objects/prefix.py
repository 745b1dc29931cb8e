"""The port to everything below a prefix: also keys that seglog did not make, old versions and uploads.

A store (`catalog.objects.base`) takes only keys that seglog makes. The deletion of a tenant takes all keys, because the
tenant owns its prefix. Implementations: `catalog.objects.local_prefix`, `catalog.objects.s3_prefix`.

PREFIX-1  An implementation adds the prefix to every key, as a store does. No request leaves the prefix.
PREFIX-2  `take` says which bytes a delete gave back. On a versioned bucket a delete only adds a marker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Freed", "Held", "OldVersions", "Upload", "WholePrefix"]


@dataclass(frozen=True, slots=True)
class Held:
    """An object: its key below the prefix, and its size in bytes."""

    key: str
    size: int


@dataclass(frozen=True, slots=True)
class Freed:
    """The bytes of deleted objects. The `unreferenced` ones stay in the bucket, behind delete markers."""

    reclaimed_bytes: int = 0
    unreferenced_bytes: int = 0

    def __add__(self, other: Freed) -> Freed:
        return Freed(self.reclaimed_bytes + other.reclaimed_bytes, self.unreferenced_bytes + other.unreferenced_bytes)


@dataclass(frozen=True, slots=True)
class OldVersions:
    """The versions and the delete markers below the prefix, and the bytes of the versions."""

    versions: int
    markers: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Upload:
    """A multipart upload that is neither completed nor aborted."""

    key: str
    upload_id: str


class WholePrefix(Protocol):
    """Methods raise `AccessDenied`, `NoSuchBucket` and `StoreUnreachable`."""

    @property
    def url(self) -> str: ...

    def held(self, prefix: str = "") -> Iterator[Held]:
        """Yield all objects whose keys begin with `prefix`, also while the caller deletes them."""
        ...

    def take(self, found: Sequence[Held]) -> Freed:
        """Delete the objects. An absent key is no error. After an error, any of them may still exist."""
        ...

    def old_versions(self) -> OldVersions:
        """Count the versions below the prefix. Raises `AccessDenied` for a role that may not list them."""
        ...

    def uploads(self) -> Iterator[Upload]:
        """Yield all uploads. Raises `AccessDenied` for a role that may not list them."""
        ...

    def abort(self, upload: Upload) -> None:
        """Abort an upload. One that is gone is no error."""
        ...

    def clear(self) -> None:
        """Remove the rest of an empty prefix, such as directories and locks."""
        ...

    def close(self) -> None: ...
