"""How an object that gives something a name changes: put down in the oplog first, and made by compare-and-swap then.

A name is never removed. Each change has a new nonce, so that a request which lands late finds nothing to change, and a
name that was deleted does not come back by one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from catalog.errors import KeyChanged, OutOfWindow, VolumeHasName
from catalog.format.control import NameChange, Ref, Tag
from catalog.format.keys import Key
from catalog.objects.base import ObjectStore, Tagged
from catalog.objects.change import change_from, look
from catalog.refs.oplog import Oplog

__all__ = ["Found", "Naming", "Planned", "is_same"]

T = TypeVar("T", Ref, Tag)


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """What lay under a name when it was looked at: None if nothing ever did."""

    tagged: Tagged | None
    value: T | None

    @property
    def alive(self) -> T | None:
        return self.value if self.value is not None and self.value.deleted_at_ms is None else None


@dataclass(frozen=True, slots=True)
class Planned(Generic[T]):
    """A change of one name, of several that are made together. `found` is there now, `wanted` comes in its place.

    `former` is what undo puts back. It is another than `found` where a try before this one made the change already.
    """

    key: Key
    found: Found[T]
    wanted: T
    former: bytes | None


class Naming(Generic[T]):
    """Of refs or of tags. Safe to use from many threads."""

    def __init__(
        self, store: ObjectStore, oplog: Oplog, encode: Callable[[T], bytes], decode: Callable[[bytes, str], T]
    ) -> None:
        self._store = store
        self._oplog = oplog
        self._encode: Callable[[T], bytes] = encode
        self._decode: Callable[[bytes, str], T] = decode

    def look(self, key: Key) -> Found[T]:
        tagged = look(self._store, key)
        return Found(tagged, None if tagged is None else self._decode(tagged.body, key))

    def change(
        self,
        operation: str,
        key: Key,
        make: Callable[[T | None], T | None],
        *,
        now_ms: int,
        message: str = "",
        found: Found[T] | None = None,
    ) -> T | None:
        """What is there in the end. `make` gives what shall be there for what is; that itself, or None, leaves it.

        `found` is what was there a while ago. Raises what `make` raises, `KeyChanged` for a lost race, and what the
        store raises.
        """
        found = self.look(key) if found is None else found
        before = None if found.tagged is None else found.tagged.body
        wanted = self._changed(found.value, make)
        if wanted is not None:
            self._oplog.note(operation, key, before, wanted, now_ms=now_ms, message=message)

        def made(body: bytes | None) -> bytes | None:
            if body == before:
                return wanted
            if body != wanted and self._changed(None if body is None else self._decode(body, key), make) is not None:
                raise KeyChanged(key)
            return None

        body = change_from(self._store, key, found.tagged, made)
        return None if body is None else self._decode(body, key)

    def change_together(
        self,
        operation: str,
        planned: Sequence[Planned[T]],
        made: Callable[[Planned[T]], None],
        *,
        now_ms: int,
        message: str = "",
    ) -> None:
        """One operation on several names: all of them change, in this order, or none does.

        `made` is called after each change. If it raises, or a name is not as it was found, the changes before are taken
        back. A crash may leave these.

        Raises what `made` raises, `KeyChanged` for a lost race, and what the store raises.
        """
        planned = [replace(each, wanted=replace(each.wanted, nonce=os.urandom(16))) for each in planned]
        first, *others = [NameChange(each.key, each.former, self._encode(each.wanted)) for each in planned]
        number = self._oplog.note(
            operation, Key(first.subject), first.former, first.value, now_ms=now_ms, message=message,
            others=tuple(others),
        )  # fmt: skip
        for index, each in enumerate(planned):
            try:
                self._exchange(each)
                made(each)
            except (KeyChanged, OutOfWindow, VolumeHasName):
                for done in planned[:index]:
                    self._take_back(done, now_ms, f"of operation {number}, which lost to another change")
                raise

    def _exchange(self, planned: Planned[T]) -> None:
        before = None if planned.found.tagged is None else planned.found.tagged.body
        wanted = self._encode(planned.wanted)

        def made(body: bytes | None) -> bytes | None:
            if body not in (before, wanted):
                raise KeyChanged(planned.key)
            return wanted

        change_from(self._store, planned.key, planned.found.tagged, made)

    def _take_back(self, planned: Planned[T], now_ms: int, message: str) -> None:
        """A name that was given is deleted, one that was taken is given back; others' changes since stay."""
        is_given = planned.wanted.deleted_at_ms is None
        wanted = replace(planned.wanted, deleted_at_ms=now_ms) if is_given else planned.found.value

        def taken_back(value: T | None) -> T | None:
            return wanted if value == planned.wanted else None

        self.change("undo", planned.key, taken_back, now_ms=now_ms, message=message)

    def _changed(self, value: T | None, make: Callable[[T | None], T | None]) -> bytes | None:
        """What `make` wants in the place of `value`, with a new nonce; None if it is as it wants it."""
        made = make(value)
        return None if made is None or made == value else self._encode(replace(made, nonce=os.urandom(16)))


def is_same(one: T | None, other: T) -> bool:
    """But for the nonce: nothing happened in between that matters."""
    return one is not None and replace(one, nonce=b"") == replace(other, nonce=b"")
