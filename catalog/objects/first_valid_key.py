"""The first key of a listing that is one of ours.

Others may lie before it: a console leaves an empty object where somebody made a "folder", people leave notes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from catalog.objects.base import ObjectStore

__all__ = ["first_known"]

T = TypeVar("T")


def first_known(store: ObjectStore, prefix: str, parse: Callable[[str], T | None]) -> T | None:
    """What `parse` makes of the first key under `prefix` of which it makes anything; None if there is none.

    One LIST of one key, unless another's lies first: then one more, of all that follow.
    """
    first = next(store.list(prefix, limit=1), None)
    if first is None:
        return None
    found = parse(first)
    if found is not None:
        return found
    return next((known for key in store.list(prefix, start_after=first) if (known := parse(key)) is not None), None)
