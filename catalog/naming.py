"""How an object that gives something a name changes: put down in the oplog first, and made by compare-and-swap then.

A name is never removed. Each change has a new nonce, so that a request which lands late finds nothing to change, and a
name that was deleted does not come back by one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from catalog.change import change_from, look
from catalog.control import Ref, Tag
from catalog.errors import KeyChanged
from catalog.keys import Key
from catalog.objects.base import ObjectStore, Tagged
from catalog.oplog import Oplog

__all__ = ["Found", "Naming", "is_same"]

T = TypeVar("T", Ref, Tag)


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """What lay under a name when it was looked at: None if nothing ever did."""

    tagged: Tagged | None
    value: T | None

    @property
    def alive(self) -> T | None:
        return self.value if self.value is not None and self.value.deleted_at_ms is None else None


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

    def _changed(self, value: T | None, make: Callable[[T | None], T | None]) -> bytes | None:
        """What `make` wants in the place of `value`, with a new nonce; None if it is as it wants it."""
        made = make(value)
        return None if made is None or made == value else self._encode(replace(made, nonce=os.urandom(16)))


def is_same(one: T | None, other: T) -> bool:
    """But for the nonce: nothing happened in between that matters."""
    return one is not None and replace(one, nonce=b"") == replace(other, nonce=b"")
