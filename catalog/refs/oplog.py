"""The operations log: who changed which name, when, and what it was before. One object an entry, numbered from 1.

O1  An entry is put down before its change is made, so no change is missing from it. One whose change did not come to
    be (a crash, a lost race) is told by its value: the object never was that, and the entry after it starts from what
    this one started from.
    Of an operation on several names a crash may leave the first changes only: each is told in the same way.
O2  Entries are never changed. Whoever puts the next one takes the first number that is free.
O3  A key among them that is no entry's is passed by, and stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from catalog.errors import KeyChanged
from catalog.format.control import NameChange, OplogEntry
from catalog.format.keys import Key, number_of, oplog_key, oplog_prefix
from catalog.format.small_objects import decode_oplog_entry, encode_oplog_entry
from catalog.objects.base import ObjectStore
from catalog.objects.first_valid_key import first_known
from catalog.objects.put_once import put_once

__all__ = ["NumberedEntry", "Oplog"]

_RACES = 1000


@dataclass(frozen=True, slots=True)
class NumberedEntry:
    number: int
    entry: OplogEntry


class Oplog:
    """That of one prefix, written to by `writer_id`. Safe to use from many threads."""

    def __init__(self, store: ObjectStore, writer_id: str = "") -> None:
        self._store = store
        self._writer_id = writer_id

    def note(
        self,
        operation: str,
        subject: Key,
        former: bytes | None,
        value: bytes | None,
        *,
        now_ms: int,
        message: str = "",
        others: tuple[NameChange, ...] = (),
    ) -> int:
        """Put down that the object under `subject` becomes `value`, with `others`; returns the entry's number.

        Raises what the store raises: then do not make the change.
        """
        entry = OplogEntry(now_ms, self._writer_id, operation, subject, former, value, os.urandom(16), message, others)
        body = encode_oplog_entry(entry)
        newest = self._newest()
        for number in range(newest + 1, newest + 1 + _RACES):
            if put_once(self._store, oplog_key(number), body) == body:
                return number
        raise KeyChanged(oplog_prefix())

    def entries(self) -> Iterator[NumberedEntry]:
        """Newest first, fetched as they are looked at."""
        for key in self._store.list(oplog_prefix()):
            number = number_of(key)
            if number is not None:
                yield NumberedEntry(number, decode_oplog_entry(self._store.get(Key(key)), key))

    def entry(self, number: int) -> OplogEntry:
        """Raises `NoSuchObject`."""
        key = oplog_key(number)
        return decode_oplog_entry(self._store.get(key), key)

    def _newest(self) -> int:
        """By a LIST, which is a hint: a number that is taken after all is found to be when it is tried."""
        return first_known(self._store, oplog_prefix(), number_of) or 0
