"""The port to object storage: what the catalog needs of a store, and nothing more.

Implementations: `catalog.objects.local` (a directory), `catalog.objects.memory`, `catalog.objects.s3`.
One suite of checks runs over all of them, and over a user's store: `catalog.objects.conformance`.

P1  `put_new` is atomic: of any number of racing callers one succeeds, and nobody ever sees half an object.
P2  What a call returned from is durable, and visible to every later `get`, `head` and `list` from anywhere.
P3  A key that is not there is `NoSuchObject`, and nothing else is: trouble is never taken for absence.
P4  A multipart object appears whole, at `complete_upload`, or never.
P5  Where a store keeps a checksum of the whole object, it was compared with that of the bytes that were sent before the
    object appeared; `head` gives it. Directories and memory keep one of what `put` and `complete_upload` made.
P6  `swap` is atomic, as `put_new` is: of any number of racing callers that saw one state of an object, one succeeds.
P7  A store adds the prefix it was opened with to every key; no request leaves that prefix.
P8  When a call returns, what it was given is the caller's again, who may change it.

Every method may raise `StoreUnreachable`, `AccessDenied` and `NoSuchBucket`. All are safe to call from many threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from catalog.format.checksum import Checksum, SizedChecksum, joined
from catalog.format.keys import Key

__all__ = ["ObjectInfo", "ObjectStore", "PartTag", "Tagged", "TellsTime", "whole_of"]


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a store knows of an object without reading it. Metadata keys are lower case.

    `checksum` is that of the whole object; None if the store keeps none, or one of the parts' checksums only.
    """

    size: int
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    checksum: Checksum | None = None


@dataclass(frozen=True, slots=True)
class PartTag:
    """A part as the store acknowledged it: its number, from 1, the store's tag for it, its length and its checksum.

    Callers give it back to `complete_upload`, so that a part that is not the one sent is refused.
    """

    number: int
    etag: str
    size: int = 0
    checksum: Checksum | None = None


@dataclass(frozen=True, slots=True)
class Tagged:
    """An object, with the store's tag for this state of it: what `swap` is given back."""

    body: bytes
    etag: str


def whole_of(parts: Sequence[PartTag]) -> SizedChecksum | None:
    """What the object of these parts, in order, must have; None if they carry no checksum."""
    sized = [SizedChecksum(part.checksum, part.size) for part in parts if part.checksum is not None]
    return joined(sized) if sized and len(sized) == len(parts) else None


@runtime_checkable
class TellsTime(Protocol):
    """A store that has a clock of its own."""

    def time_ms(self) -> int | None:
        """Its time, since the epoch, rounded down to a second; None if it does not say. One request.

        `catalog.objects.store_time` compares it with the machine's clock, before anything is deleted by age.
        """
        ...


class ObjectStore(Protocol):
    @property
    def url(self) -> str:
        """The remote as a user writes it: `s3://bucket/prefix` or `file:///path`."""
        ...

    @property
    def is_ordered(self) -> bool:
        """Whether keys are kept in order, so that a LIST with a limit costs by that, and not by all that lies there."""
        ...

    def put_new(self, key: Key, body: bytes) -> None:
        """Create `key`, once and without any retry.

        Raises `KeyTaken` if it exists (which may be our own lost answer), and `OutcomeUnknown` if the store's
        answer does not tell whether the object is there now (5xx, 409, reset, timeout).
        """
        ...

    def put(self, key: Key, body: bytes | bytearray, metadata: Mapping[str, str]) -> None:
        """Create or replace `key`. Only for keys that carry a fresh id, so that a repetition is harmless."""
        ...

    def get(self, key: Key) -> bytes:
        """The whole object. Raises `NoSuchObject`."""
        ...

    def get_tagged(self, key: Key) -> Tagged:
        """The whole object and its tag. Raises `NoSuchObject`."""
        ...

    def swap(self, key: Key, body: bytes, etag: str) -> None:
        """Replace `key` if it still is what it was when it had `etag`; once and without any retry.

        Raises `KeyChanged` if it is not, or is gone (which may be our own lost answer), and `OutcomeUnknown` as
        `put_new` does.
        """
        ...

    def get_range(self, key: Key, start: int, length: int) -> bytes:
        """Exactly `length` bytes from `start`; with none asked for, no request is made.

        Raises `NoSuchObject`, and `InvalidObject` if the object is shorter.
        """
        ...

    def head(self, key: Key) -> ObjectInfo:
        """Raises `NoSuchObject`."""
        ...

    def list(self, prefix: str, *, limit: int | None = None, start_after: str = "") -> Iterator[str]:
        """Keys that begin with `prefix` and come after `start_after`, ascending, taken from the store page by page.

        With `limit`, at most so many, in one request.
        """
        ...

    def delete(self, key: Key) -> None:
        """Idempotent."""
        ...

    def delete_many(self, keys: Sequence[Key]) -> None:
        """Idempotent. In requests of up to 1,000 keys where the store can; what it raises may leave any of them."""
        ...

    def create_upload(self, key: Key, metadata: Mapping[str, str]) -> str:
        """Begin a multipart upload; returns its id."""
        ...

    def put_part(self, key: Key, upload_id: str, number: int, body: bytes | bytearray) -> PartTag:
        """Store part `number` (from 1). A repetition replaces. Raises `NoSuchObject` if the upload is gone."""
        ...

    def complete_upload(self, key: Key, upload_id: str, parts: Sequence[PartTag]) -> None:
        """Make the object of the parts, in order, once and without any retry, and compare it with `whole_of` them.

        Raises `InvalidObject` if a part is not the one that was stored, or the whole not what the parts make,
        `NoSuchObject` if the upload is gone (which may be our own earlier completion: `head` tells), and
        `OutcomeUnknown`.
        """
        ...

    def abort_upload(self, key: Key, upload_id: str) -> None:
        """Idempotent: an upload that is gone is aborted."""
        ...

    def list_uploads(self, prefix: str) -> Iterator[tuple[Key, str]]:
        """(key, upload id) of every upload that is neither completed nor aborted."""
        ...

    def close(self) -> None: ...
