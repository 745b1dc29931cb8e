"""Stores that each break one promise of the port, by the check that tells."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence

from catalog.errors import KeyChanged, KeyTaken, NoSuchObject
from catalog.format.checksum import Checksum, ChecksumKind
from catalog.format.keys import Key
from catalog.objects import MemoryStore, ObjectInfo, PartTag, WithETag
from tests.faults.store import WrappedStore, denied, lost, unreachable

__all__ = ["CASES", "Broken", "ListsLate", "Writer"]

RACERS = 8


class Broken(WrappedStore):
    """A store that keeps every promise. Each subclass breaks one."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.turns = threading.Barrier(RACERS)

    def _call(self, method, key, act):  # type: ignore[no-untyped-def]
        return act()

    def wait_for_all(self, check: str, key: Key) -> None:
        """Wait until every racer is here, if the key belongs to `check`."""
        if f"/{check}/" in key:
            self.turns.wait(10)

    def is_there(self, key: Key) -> bool:
        return key in self.inner.list(key)


class ListsLate(Broken):
    listed: tuple[str, ...] = ()

    def list(self, prefix: str, *, limit: int | None = None, start_after: str = "") -> Iterator[str]:
        found, self.listed = self.listed, tuple(self.inner.list(""))
        return iter([key for key in found if key.startswith(prefix) and key > start_after][:limit])


class RemembersAbsence(Broken):
    """A store behind a cache that also remembers absent keys."""

    def __init__(self) -> None:
        super().__init__()
        self.absent: set[Key] = set()

    def get(self, key: Key) -> bytes:
        if key in self.absent:
            raise NoSuchObject(key)
        try:
            return self.inner.get(key)
        except NoSuchObject:
            self.absent.add(key)
            raise


class Overwrites(Broken):
    def put_new(self, key: Key, body: bytes) -> None:
        self.inner.put(key, body, {})


class OverwritesAndRefuses(Broken):
    def put_new(self, key: Key, body: bytes) -> None:
        was_there = self.is_there(key)
        self.inner.put(key, body, {})
        if was_there:
            raise KeyTaken(key)


class NeverDecides(Broken):
    def put_new(self, key: Key, body: bytes) -> None:
        if self.is_there(key):
            raise lost(key)
        super().put_new(key, body)


class CreatesInTwoSteps(Broken):
    def put_new(self, key: Key, body: bytes) -> None:
        if self.is_there(key):
            raise KeyTaken(key)
        self.wait_for_all("create-race", key)
        self.inner.put(key, body, {})


class RefusesAllRacers(Broken):
    def put_new(self, key: Key, body: bytes) -> None:
        if "create-race/" in key:
            raise KeyTaken(key)
        super().put_new(key, body)


class KeepsAnotherRacersObject(Broken):
    def put_new(self, key: Key, body: bytes) -> None:
        super().put_new(key, b"another's" if "create-race/" in key else body)


class IgnoresIfMatch(Broken):
    def swap(self, key: Key, body: bytes, etag: str) -> None:
        if not self.is_there(key):
            raise KeyChanged(key)
        self.inner.put(key, body, {})


class HasOneTag(Broken):
    def get_with_etag(self, key: Key) -> WithETag:
        return WithETag(self.inner.get(key), "tag")

    def swap(self, key: Key, body: bytes, etag: str) -> None:
        self.inner.put(key, body, {})


class SwapsNothing(Broken):
    def swap(self, key: Key, body: bytes, etag: str) -> None:
        if self.inner.get_with_etag(key).etag != etag:
            raise KeyChanged(key)


class SwapsWhatIsGone(Broken):
    def swap(self, key: Key, body: bytes, etag: str) -> None:
        if self.is_there(key):
            super().swap(key, body, etag)
        else:
            self.inner.put_new(key, body)


class SwapsInTwoSteps(Broken):
    def swap(self, key: Key, body: bytes, etag: str) -> None:
        if self.inner.get_with_etag(key).etag != etag:
            raise KeyChanged(key)
        self.wait_for_all("swap-race", key)
        self.inner.put(key, body, {})


class SwapKeepsMetadata(Broken):
    def swap(self, key: Key, body: bytes, etag: str) -> None:
        metadata = self.inner.head(key).metadata
        super().swap(key, body, etag)
        self.inner.put(key, body, metadata)


class SwapKeepsChecksum(Broken):
    old: Checksum | None = None

    def swap(self, key: Key, body: bytes, etag: str) -> None:
        self.old = self.inner.head(key).checksum
        super().swap(key, body, etag)

    def head(self, key: Key) -> ObjectInfo:
        found = self.inner.head(key)
        return ObjectInfo(found.size, found.metadata, self.old or found.checksum)


class AbsentIsEmpty(Broken):
    def get_range(self, key: Key, start: int, length: int) -> bytes:
        return self.inner.get_range(key, start, length) if self.is_there(key) else b""


class AbsentHasASize(Broken):
    def head(self, key: Key) -> ObjectInfo:
        return self.inner.head(key) if self.is_there(key) else ObjectInfo(0)


class AbsentIsDenied(Broken):
    """A store that denies a GET of an absent key, as S3 does for a role that may not list."""

    def get(self, key: Key) -> bytes:
        if not self.is_there(key):
            raise denied(key)
        return self.inner.get(key)


class RangesEndEarly(Broken):
    def get_range(self, key: Key, start: int, length: int) -> bytes:
        return self.inner.get(key)[start : start + length]


class IgnoresRanges(Broken):
    def get_range(self, key: Key, start: int, length: int) -> bytes:
        return self.inner.get(key)


class ListsInItsOwnWay(Broken):
    """A store with its own order or limits of listings. A subclass overrides `own`."""

    def own(self, keys: list[str], limit: int | None) -> list[str]:
        return keys[:limit]

    def list(self, prefix: str, *, limit: int | None = None, start_after: str = "") -> Iterator[str]:
        return iter(self.own([*self.inner.list(prefix, start_after=start_after)], limit))


class ListsUnsorted(ListsInItsOwnWay):
    def own(self, keys: list[str], limit: int | None) -> list[str]:
        return keys[::-1][:limit]


class ListsByDirectory(ListsInItsOwnWay):
    def own(self, keys: list[str], limit: int | None) -> list[str]:
        return sorted(keys, key=lambda key: key.split("/"))[:limit]


class IgnoresLimits(ListsInItsOwnWay):
    def own(self, keys: list[str], limit: int | None) -> list[str]:
        return keys


class ListsOneLess(ListsInItsOwnWay):
    def own(self, keys: list[str], limit: int | None) -> list[str]:
        return keys if limit is None else keys[: limit - 1]


class ListsDirectoriesOnly(Broken):
    def list(self, prefix: str, *, limit: int | None = None, start_after: str = "") -> Iterator[str]:
        if not prefix.endswith("/"):
            return iter(())
        return self.inner.list(prefix, limit=limit, start_after=start_after)


class IgnoresStartAfter(Broken):
    def list(self, prefix: str, *, limit: int | None = None, start_after: str = "") -> Iterator[str]:
        return self.inner.list(prefix, limit=limit)


class StartsAtStartAfter(Broken):
    def list(self, prefix: str, *, limit: int | None = None, start_after: str = "") -> Iterator[str]:
        return iter([key for key in self.inner.list(prefix) if key >= start_after][:limit])


class StartsAfterKeysOnly(Broken):
    def list(self, prefix: str, *, limit: int | None = None, start_after: str = "") -> Iterator[str]:
        known = start_after if self.is_there(Key(start_after)) else ""
        return self.inner.list(prefix, limit=limit, start_after=known)


class PutsOnce(Broken):
    def put(self, key: Key, body: bytes, metadata: Mapping[str, str]) -> None:
        if not self.is_there(key):
            super().put(key, body, metadata)


class MergesMetadata(Broken):
    def put(self, key: Key, body: bytes, metadata: Mapping[str, str]) -> None:
        before = self.inner.head(key).metadata if self.is_there(key) else {}
        super().put(key, body, {**before, **metadata})


class ForgetsMetadata(Broken):
    def put(self, key: Key, body: bytes, metadata: Mapping[str, str]) -> None:
        super().put(key, body, {})

    def create_upload(self, key: Key, metadata: Mapping[str, str]) -> str:
        return super().create_upload(key, {})


class TellsAnotherChecksum(Broken):
    def head(self, key: Key) -> ObjectInfo:
        found = self.inner.head(key)
        return ObjectInfo(found.size, found.metadata, Checksum(ChecksumKind.CRC32C, 1))


class ShowsParts(Broken):
    def put_part(self, key: Key, upload_id: str, number: int, body: bytes) -> PartTag:
        self.inner.put(key, body, {})
        return super().put_part(key, upload_id, number, body)


class AbortsWhatIsCompleted(Broken):
    def abort_upload(self, key: Key, upload_id: str) -> None:
        super().abort_upload(key, upload_id)
        self.inner.delete(key)


class KeepsTheFirstOfEachPart(Broken):
    def __init__(self) -> None:
        super().__init__()
        self.tags: dict[tuple[str, int], PartTag] = {}

    def put_part(self, key: Key, upload_id: str, number: int, body: bytes) -> PartTag:
        if (upload_id, number) not in self.tags:
            self.tags[upload_id, number] = super().put_part(key, upload_id, number, body)
        return self.tags[upload_id, number]


class JoinsAnything(Broken):
    """A store that completes an upload from the parts it has. It ignores the checksums in the request."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: dict[tuple[str, int], PartTag] = {}

    def put_part(self, key: Key, upload_id: str, number: int, body: bytes) -> PartTag:
        self.tags[upload_id, number] = super().put_part(key, upload_id, number, body)
        return self.tags[upload_id, number]

    def complete_upload(self, key: Key, upload_id: str, parts: Sequence[PartTag]) -> None:
        super().complete_upload(key, upload_id, [self.tags[upload_id, part.number] for part in parts])


class AbortsNothing(Broken):
    def abort_upload(self, key: Key, upload_id: str) -> None:
        pass


class CompletesAfterAbort(Broken):
    def complete_upload(self, key: Key, upload_id: str, parts: Sequence[PartTag]) -> None:
        try:
            super().complete_upload(key, upload_id, parts)
        except NoSuchObject:
            self.inner.put(key, b"", {})


class ListsNoUploads(Broken):
    def list_uploads(self, prefix: str) -> Iterator[tuple[Key, str]]:
        return iter(())


class ListsAllUploads(Broken):
    def list_uploads(self, prefix: str) -> Iterator[tuple[Key, str]]:
        return self.inner.list_uploads("")


class DeletesNothing(Broken):
    def delete(self, key: Key) -> None:
        pass

    def delete_many(self, keys: Sequence[Key]) -> None:
        pass


class DeletesOnce(Broken):
    def delete(self, key: Key) -> None:
        if not self.is_there(key):
            raise unreachable(key)
        self.inner.delete(key)

    def delete_many(self, keys: Sequence[Key]) -> None:
        for key in keys:
            self.delete(key)


class DeletesTheFirst(Broken):
    def delete_many(self, keys: Sequence[Key]) -> None:
        super().delete_many(keys[:1])


class DeletesWhatBeginsSo(Broken):
    def delete_many(self, keys: Sequence[Key]) -> None:
        for key in keys:
            super().delete_many([Key(found) for found in self.inner.list(key.rpartition("/")[0])])


CASES: list[tuple[str, type[Broken]]] = [
    ("read-after-write", ListsLate),
    ("read-after-write", RemembersAbsence),
    ("create-once", Overwrites),
    ("create-once", OverwritesAndRefuses),
    ("create-once", NeverDecides),
    ("create-race", CreatesInTwoSteps),
    ("create-race", Overwrites),
    ("create-race", RefusesAllRacers),
    ("create-race", KeepsAnotherRacersObject),
    ("swap", IgnoresIfMatch),
    ("swap", HasOneTag),
    ("swap", SwapsNothing),
    ("swap-of-an-absent-key", SwapsWhatIsGone),
    ("swap-race", SwapsInTwoSteps),
    ("swap-race", IgnoresIfMatch),
    ("swap-leaves-nothing-behind", SwapKeepsMetadata),
    ("swap-leaves-nothing-behind", SwapKeepsChecksum),
    ("absence", AbsentIsEmpty),
    ("absence", AbsentHasASize),
    ("absence", AbsentIsDenied),
    ("range", RangesEndEarly),
    ("range", IgnoresRanges),
    ("list", ListsUnsorted),
    ("list", ListsByDirectory),
    ("list", ListsDirectoriesOnly),
    ("list-start-after", IgnoresStartAfter),
    ("list-start-after", StartsAtStartAfter),
    ("list-start-after", StartsAfterKeysOnly),
    ("list-limit", IgnoresLimits),
    ("list-limit", ListsOneLess),
    ("replace", PutsOnce),
    ("replace", MergesMetadata),
    ("replace", ForgetsMetadata),
    ("checksum", TellsAnotherChecksum),
    ("multipart", ShowsParts),
    ("multipart", ForgetsMetadata),
    ("multipart", AbortsWhatIsCompleted),
    ("parts-in-any-order", KeepsTheFirstOfEachPart),
    ("wrong-part", JoinsAnything),
    ("wrong-whole", JoinsAnything),
    ("abort", AbortsNothing),
    ("abort", CompletesAfterAbort),
    ("list-uploads", ListsNoUploads),
    ("list-uploads", ListsAllUploads),
    ("list-uploads", AbortsNothing),
    ("delete", DeletesNothing),
    ("delete", DeletesOnce),
    ("delete-many", DeletesNothing),
    ("delete-many", DeletesOnce),
    ("delete-many", DeletesTheFirst),
    ("delete-many", DeletesWhatBeginsSo),
]


class Writer(Broken):
    """A role that may neither delete nor list uploads."""

    def _call(self, method, key, act):  # type: ignore[no-untyped-def]
        if method in {"delete", "delete_many", "list_uploads"}:
            raise denied(key)
        return act()
