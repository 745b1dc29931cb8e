"""Faults of an object store, by wrapping one: each wrapper is an `ObjectStore` itself.

    FaultyStore(inner, plan)              raises before or after the nth call, as the plan says
    KillingStore(inner, effect, when)     kills the process before or after the nth effect
    CountingStore(inner)                  counts calls by method

An effect is a call that changes the store. A fault "after" lets the call happen and loses its answer.
"""

from __future__ import annotations

import os
import signal
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from catalog.errors import CatalogError, OutcomeUnknown, StoreUnreachable
from catalog.keys import Key
from catalog.objects import ObjectInfo, ObjectStore, PartTag

__all__ = [
    "EFFECTS",
    "CountingStore",
    "Fault",
    "FaultyStore",
    "KillingStore",
    "When",
    "WrappedStore",
    "lost",
    "unreachable",
]

When = Literal["before", "after"]
T = TypeVar("T")

EFFECTS = frozenset(
    {"put_new", "put", "delete", "create_upload", "put_part", "complete_upload", "abort_upload"},
)


class WrappedStore(ABC):
    """An `ObjectStore` that passes every call through `_call`, with the method's name and what it would do."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner

    @abstractmethod
    def _call(self, method: str, key: str, act: Callable[[], T]) -> T: ...

    @property
    def url(self) -> str:
        return self.inner.url

    def put_new(self, key: Key, body: bytes) -> None:
        self._call("put_new", key, lambda: self.inner.put_new(key, body))

    def put(self, key: Key, body: bytes, metadata: Mapping[str, str]) -> None:
        self._call("put", key, lambda: self.inner.put(key, body, metadata))

    def get(self, key: Key) -> bytes:
        return self._call("get", key, lambda: self.inner.get(key))

    def get_range(self, key: Key, start: int, length: int) -> bytes:
        return self._call("get_range", key, lambda: self.inner.get_range(key, start, length))

    def head(self, key: Key) -> ObjectInfo:
        return self._call("head", key, lambda: self.inner.head(key))

    def list(self, prefix: str, *, limit: int | None = None) -> Iterator[str]:
        # Taken whole: a lazy one would reach the store after the call.
        return self._call("list", prefix, lambda: iter([*self.inner.list(prefix, limit=limit)]))

    def delete(self, key: Key) -> None:
        self._call("delete", key, lambda: self.inner.delete(key))

    def create_upload(self, key: Key, metadata: Mapping[str, str]) -> str:
        return self._call("create_upload", key, lambda: self.inner.create_upload(key, metadata))

    def put_part(self, key: Key, upload_id: str, number: int, body: bytes) -> PartTag:
        return self._call("put_part", key, lambda: self.inner.put_part(key, upload_id, number, body))

    def complete_upload(self, key: Key, upload_id: str, parts: Sequence[PartTag]) -> None:
        self._call("complete_upload", key, lambda: self.inner.complete_upload(key, upload_id, parts))

    def abort_upload(self, key: Key, upload_id: str) -> None:
        self._call("abort_upload", key, lambda: self.inner.abort_upload(key, upload_id))

    def list_uploads(self, prefix: str) -> Iterator[tuple[Key, str]]:
        return self._call("list_uploads", prefix, lambda: iter([*self.inner.list_uploads(prefix)]))

    def close(self) -> None:
        self.inner.close()


def unreachable(key: str) -> CatalogError:
    return StoreUnreachable("faulty://", f"a fault at {key}")


def lost(key: str) -> CatalogError:
    return OutcomeUnknown(key, "a fault lost the answer")


@dataclass(frozen=True, slots=True)
class Fault:
    """At call `nth` (from 1) of `method`, or of all effects if `method` is None. `nth` None: at every one."""

    nth: int | None = None
    when: When = "before"
    error: Callable[[str], CatalogError] = lost
    method: str | None = None

    def hits(self, method: str, nth_of_method: int, nth_effect: int) -> bool:
        if self.method is None:
            return method in EFFECTS and self.nth in {None, nth_effect}
        return method == self.method and self.nth in {None, nth_of_method}


class FaultyStore(WrappedStore):
    """Raises as `plan` says. `effects` counts those that were tried."""

    def __init__(self, inner: ObjectStore, plan: Iterable[Fault]) -> None:
        super().__init__(inner)
        self._plan = tuple(plan)
        self._calls: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.effects = 0

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        with self._lock:
            self._calls[method] += 1
            self.effects += method in EFFECTS
            fault = next((f for f in self._plan if f.hits(method, self._calls[method], self.effects)), None)
        if fault is None:
            return act()
        if fault.when == "after":
            act()
        raise fault.error(key)


class KillingStore(WrappedStore):
    """SIGKILL to this very process at effect number `effect`, from 1: nothing gets to clean up."""

    def __init__(self, inner: ObjectStore, effect: int, when: When) -> None:
        super().__init__(inner)
        self._effect = effect
        self._when = when
        self._effects = 0
        self._lock = threading.Lock()

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        if method not in EFFECTS:
            return act()
        with self._lock:
            self._effects += 1
            fatal = self._effects == self._effect
        if fatal and self._when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = act()
        if fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return result


class CountingStore(WrappedStore):
    """`counts` maps a method to its number of calls."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        with self._lock:
            self.counts[method] += 1
        return act()
