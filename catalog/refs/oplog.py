"""The operations log (oplog): each change of a name, with its author, its time and the former value.

Each entry is one object. The numbers start at 1.

OPLOG-1  A writer puts the entry before it makes the change, so no change is missing from the log. After a crash or a
    lost race an entry may have no change. Its value shows that: the name never had this value, and the next entry
    starts from the same former value. If an operation changes several names, a crash may leave only the first changes.
    The values show for each name whether its change was made.
OPLOG-2  Entries never change. A writer puts the next entry under the first free number.
OPLOG-3  A reader passes over a key among the entries that is no entry's. The key stays.

An author is the client for whom a thread makes a change (`acting_for`), and the machine. Commits name it too. The
threads of a pool have no client, so `acting_for` covers the changes that its own thread makes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from catalog.errors import KeyChanged, Missing, NoSuchObject
from catalog.format.control import NameChange, OplogEntry
from catalog.format.keys import Key, number_of, oplog_key, oplog_prefix
from catalog.format.small_objects import decode_oplog_entry, encode_oplog_entry
from catalog.objects.object_store import ObjectStore, first_valid_key
from catalog.objects.settled_writes import put_once
from seglog.base.dataclasses import dataclass

_CLIENT: ContextVar[str] = ContextVar("client", default="")
_RACES = 1000


@contextmanager
def acting_for(client: str) -> Iterator[None]:
    """Let the changes within have `client` in their author's name. An empty name changes nothing."""
    token = _CLIENT.set(client)
    try:
        yield
    finally:
        _CLIENT.reset(token)


def author(machine: str) -> str:
    """Return the author of a change: `client@machine`, or the machine alone."""
    client = _CLIENT.get()
    return f"{client}@{machine}" if client else machine


@dataclass(frozen=True, slots=True)
class NumberedEntry:
    number: int
    entry: OplogEntry


class Oplog:
    """The log of one prefix. `writer_id` is the machine of the author of new entries. Safe to use from many threads."""

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
        """Put an entry: the object under `subject` becomes `value`, together with `others`. Return the entry's number.

        Raises the errors of the store. If it raises, do not make the change.
        """
        entry = OplogEntry(
            now_ms, author(self._writer_id), operation, subject, former, value, os.urandom(16), message, others
        )
        body = encode_oplog_entry(entry)
        newest = self._newest()
        for number in range(newest + 1, newest + 1 + _RACES):
            if put_once(self._store, oplog_key(number), body) == body:
                return number
        raise KeyChanged(oplog_prefix())

    def entries(self) -> Iterator[NumberedEntry]:
        """Yield the entries, newest first, and fetch each one when the caller asks for it."""
        for key in self._store.list(oplog_prefix()):
            number = number_of(key)
            if number is not None:
                yield NumberedEntry(number, decode_oplog_entry(self._store.get(Key(key)), key))

    def newest(self) -> int:
        """Return the number of the newest entry; 0 if there is none."""
        numbers = map(number_of, self._store.list(oplog_prefix()))
        return next(filter(None, numbers), 0)

    def entry(self, number: int) -> OplogEntry:
        """Return the entry. Raises `Missing`."""
        key = oplog_key(number)
        try:
            return decode_oplog_entry(self._store.get(key), key)
        except NoSuchObject:
            raise Missing(f"the oplog has no operation {number}", hint="`seglog oplog` lists the operations") from None

    def _newest(self) -> int:
        """Return the newest number that a LIST shows.

        The LIST is a hint: `note` finds out if a later number is taken.
        """
        return first_valid_key(self._store, oplog_prefix(), number_of) or 0
