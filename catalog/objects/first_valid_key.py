"""Search for the first key of a listing that belongs to the catalog.

Foreign keys may come before it. A console leaves an empty object where a user made a "folder", and people leave notes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from catalog.objects.base import ObjectStore

__all__ = ["first_valid_key"]

T = TypeVar("T")


def first_valid_key(store: ObjectStore, prefix: str, parse: Callable[[str], T | None]) -> T | None:
    """Return the result of `parse` for the first key under `prefix` that it accepts; None if it accepts none.

    This takes one LIST of one key. If that key is a foreign one, it takes a second LIST, of all keys that follow.
    """
    first = next(store.list(prefix, limit=1), None)
    if first is None:
        return None
    found = parse(first)
    if found is not None:
        return found
    return next((known for key in store.list(prefix, start_after=first) if (known := parse(key)) is not None), None)
