"""A store that makes no request.

It is for callers that want local data at once, and no answer rather than a late one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from catalog.errors import StoreUnreachable
from catalog.objects.wrapped import WrappedStore

__all__ = ["UnaskedStore"]

_T = TypeVar("_T")


class UnaskedStore(WrappedStore):
    """A store whose calls all raise `StoreUnreachable` at once."""

    def _call(self, method: str, key: str, act: Callable[[], _T]) -> _T:  # noqa: ARG002 - as the base has it
        raise StoreUnreachable(self.url, "it was not to be asked", "")
