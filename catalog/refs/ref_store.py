"""How a ref or a tag changes: the oplog entry first, then the change itself by compare-and-swap.

A ref or a tag is never removed. Each change has a new nonce, so a late request finds nothing to change. A deleted name
cannot come back by a late request.

A volume has one live name. A caller that gives it another name looks for others afterwards, and takes its own back.

    Anna: `branch undelete half`              Ben: `branch rename fix mended`, of the same volume
    1 puts the ref half                       1 puts the ref mended
    2 reads all refs of the topic             2 reads all refs of the topic except fix
      If another ref names the volume,          If another ref names the volume,
      she takes half back and is refused.       he takes mended back and is refused.
                                              3 takes fix away

NAME-1  Each caller puts its ref before it reads the others. So if two callers name one volume at the same time, at
    least one sees the other's ref. If both see the other's ref, both are refused, and the state is as before.
NAME-2  The names that the same operation takes away do not count. If another caller changes them, the operation fails.
NAME-3  A crash between steps 1 and 2, or 2 and 3, may leave two names. A rename or a delete of one of them ends that.
    Until then the volume gets no third name.
NAME-4  All names of a volume are names of one topic. So a look costs one LIST, and one GET for each branch of the
    topic.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from catalog.errors import KeyChanged, OutOfWindow, VolumeHasName
from catalog.format.control import NameChange, Ref, Tag
from catalog.format.ids import Vid
from catalog.format.keys import Key, branch_of, named_by, ref_key, refs_prefix, topic_of
from catalog.objects.object_store import ObjectStore, WithETag
from catalog.objects.settled_writes import change_from, read_current
from catalog.refs.oplog import Oplog
from seglog.base.dataclasses import dataclass

T = TypeVar("T", Ref, Tag)


@dataclass(frozen=True, slots=True)
class Found(Generic[T]):
    """The state of a name when it was read. Both fields are None if the name never existed."""

    tagged: WithETag | None
    value: T | None

    @property
    def body(self) -> bytes | None:
        return None if self.tagged is None else self.tagged.body

    @property
    def alive(self) -> T | None:
        return self.value if self.value is not None and self.value.deleted_at_ms is None else None


@dataclass(frozen=True, slots=True)
class Planned(Generic[T]):
    """One change of an operation on several names. `found` is the state now, `wanted` the new value.

    `former` is the value that undo puts back. It differs from `found` if an earlier try has made this change already.
    If the change `is_moved`, the name is alive before and after it. If it `is_optional`, and another caller has changed
    the name since, the name stays as it is.
    """

    key: Key
    found: Found[T]
    wanted: T
    former: bytes | None
    is_moved: bool = False
    is_optional: bool = False


class RefStore(Generic[T]):
    """All refs, or all tags. Safe to use from many threads."""

    def __init__(
        self, store: ObjectStore, oplog: Oplog, encode: Callable[[T], bytes], decode: Callable[[bytes, str], T]
    ) -> None:
        self._store = store
        self._oplog = oplog
        self._encode: Callable[[T], bytes] = encode
        self._decode: Callable[[bytes, str], T] = decode

    def read_current(self, key: Key) -> Found[T]:
        tagged = read_current(self._store, key)
        return Found(tagged, None if tagged is None else self._decode(tagged.body, key))

    def change(
        self,
        operation: str,
        key: Key,
        make: Callable[[T | None], T | None],
        *,
        now_ms: int,
        message: str = "",
        current: Found[T] | None = None,
    ) -> T | None:
        """Change one name and return its final value.

        `make` gets the current value and returns the wanted one. If it returns the current value or None, nothing
        changes. `current` is an earlier look at the name. Raises the errors of `make` and of the store, and
        `KeyChanged` for a lost race.
        """
        current = self.read_current(key) if current is None else current
        before = current.body
        new_body = self._changed(current.value, make)
        if new_body is not None:
            self._oplog.note(operation, key, before, new_body, now_ms=now_ms, message=message)

        def changed(body: bytes | None) -> bytes | None:
            if body == before:
                return new_body
            if body != new_body and self._changed(None if body is None else self._decode(body, key), make) is not None:
                raise KeyChanged(key)
            return None

        body = change_from(self._store, key, current.tagged, changed)
        return None if body is None else self._decode(body, key)

    def change_together(
        self,
        operation: str,
        planned: Sequence[Planned[T]],
        on_change: Callable[[Planned[T]], None],
        *,
        now_ms: int,
        message: str = "",
    ) -> None:
        """Change several names in one operation, in this order: all of them, or none.

        `on_change` is called after each change. If a name has changed since it was read, the changes are taken back,
        the last one first. The same happens if `on_change` raises `KeyChanged`, `OutOfWindow` or `VolumeHasName`. Then
        `on_change` itself takes back its change, unless the change `is_moved`. If another caller has changed one of the
        names since, the changes before it stay. A crash or another error may leave changes, too.

        Raises the errors of `on_change` and of the store, and `KeyChanged` for a lost race.
        """
        planned = [replace(plan, wanted=replace(plan.wanted, nonce=os.urandom(16))) for plan in planned]
        first, *others = [NameChange(plan.key, plan.former, self._encode(plan.wanted)) for plan in planned]
        number = self._oplog.note(
            operation, Key(first.subject), first.former, first.value, now_ms=now_ms, message=message,
            others=tuple(others),
        )  # fmt: skip
        done: list[Planned[T]] = []
        for plan in planned:
            try:
                self._exchange(plan)
                if plan.is_moved:
                    done.append(plan)
                on_change(plan)
                if not plan.is_moved:
                    done.append(plan)
            except (KeyChanged, OutOfWindow, VolumeHasName):
                if plan.is_optional:
                    continue
                message = f"of operation {number}, which lost to another change"
                while done and self._take_back(done.pop(), now_ms, message):
                    pass
                raise

    def _exchange(self, planned: Planned[T]) -> None:
        before, new_body = planned.found.body, self._encode(planned.wanted)

        def exchanged(body: bytes | None) -> bytes | None:
            if body not in (before, new_body):
                raise KeyChanged(planned.key)
            return new_body

        change_from(self._store, planned.key, planned.found.tagged, exchanged)

    def _take_back(self, planned: Planned[T], now_ms: int, message: str) -> bool:
        """Delete a name that was given, and give back a name that was taken or moved.

        Later changes by other callers stay. Return False if there was one.
        """
        is_given = planned.wanted.deleted_at_ms is None and not planned.is_moved
        restored = replace(planned.wanted, deleted_at_ms=now_ms) if is_given else planned.found.value

        def taken_back(value: T | None) -> T | None:
            return restored if value == planned.wanted else None

        current = self.change("undo", planned.key, taken_back, now_ms=now_ms, message=message)
        return restored is not None and is_same(current, restored)

    def _changed(self, value: T | None, make: Callable[[T | None], T | None]) -> bytes | None:
        """Return the encoded value that `make` wants, with a new nonce. None if `make` wants no change."""
        changed = make(value)
        return None if changed is None or changed == value else self._encode(replace(changed, nonce=os.urandom(16)))


def is_same(one: T | None, other: T) -> bool:
    """Return True if both are equal, apart from the nonce."""
    return one is not None and replace(one, nonce=b"") == replace(other, nonce=b"")


Look = Callable[[Sequence[Key]], Sequence[Found[Ref]]]


def check_only_name(store: ObjectStore, look: Look, key: Key, vid: Vid, freed: Collection[Key] = ()) -> None:
    """Raise `VolumeHasName` if a name besides `key` and `freed` leads to `vid`."""
    topic = topic_of(key)
    names = [name for listed in store.list(refs_prefix(topic)) if (name := named_by(listed))]
    others = [ref_key(*name) for name in names if ref_key(*name) not in {key, *freed}]
    for other, ref in zip(others, look(others), strict=True):
        if ref.alive is not None and ref.alive.vid == vid:
            raise VolumeHasName(topic, branch_of(key), branch_of(other))
