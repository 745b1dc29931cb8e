"""Faults of an object store, by wrapping one: each wrapper is an `ObjectStore` itself.

    FaultyStore(inner, plan)              fails at the nth call, in the way that the plan says
    KillingStore(inner, effect, when)     kills the process before or after the nth effect
    CountingStore(inner)                  counts calls by method
    StrayKeysStore(inner, strays)         lists keys that are not seglog's
    UnorderedStore()                      is no wrapper: a store in memory whose LISTs have no order, as a directory's

An effect is a call that changes the store. A fault "after" lets the call happen and loses its answer. A late fault
sends the call again some calls later, when no caller waits for it any more. `faults_of` returns every way in which a
call may fail.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, TypeVar

from catalog.errors import (
    AccessDenied,
    CatalogError,
    InvalidObject,
    KeyChanged,
    KeyTaken,
    NoSuchBucket,
    NoSuchObject,
    OutcomeUnknown,
    StoreUnreachable,
)
from catalog.format.keys import Key
from catalog.objects import MemoryStore, ObjectStore, PartTag, WithETag
from catalog.objects.wrapped import WrappedStore

__all__ = [
    "EFFECTS",
    "CountingStore",
    "Fault",
    "FaultyStore",
    "KillingStore",
    "StrayKeysStore",
    "UnorderedStore",
    "When",
    "WrappedStore",
    "faults_of",
    "lost",
    "unreachable",
]

When = Literal["before", "after"]
T = TypeVar("T")

_CALLS_LATE = 3
_SENT_ONCE = frozenset({"put_new", "swap", "complete_upload"})

EFFECTS = frozenset(
    {
        "put_new",
        "put",
        "swap",
        "delete",
        "delete_many",
        "create_upload",
        "put_part",
        "complete_upload",
        "abort_upload",
    },
)


def unreachable(key: str) -> CatalogError:
    return StoreUnreachable("faulty://", f"a fault at {key}")


def lost(key: str) -> CatalogError:
    return OutcomeUnknown(key, "a fault lost the answer")


def denied(key: str) -> CatalogError:
    return AccessDenied("faulty://", f"an old token at {key}")


def no_bucket(_: str) -> CatalogError:
    return NoSuchBucket("faulty")


def taken(key: str) -> CatalogError:
    return KeyTaken(key)


def changed(key: str) -> CatalogError:
    return KeyChanged(key)


def gone(key: str) -> CatalogError:
    return NoSuchObject(key)


def damaged(key: str) -> CatalogError:
    return InvalidObject(key, "a fault broke it on its way")


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at call `nth` (from 1) of `method`, or of all effects if `method` is None. `nth` None means every call.

    The fault raises `error`. Instead, "flipped" changes one bit of the answer, and "stale" lists nothing. "half"
    deletes every other key, and then raises. With `is_next` the fault meets the call after one that met a fault.
    """

    nth: int | None = None
    when: When = "before"
    error: Callable[[str], CatalogError] = lost
    method: str | None = None
    is_late: bool = False
    answer: Literal["error", "flipped", "half", "stale"] = "error"
    is_next: bool = False

    def hits(self, method: str, nth_of_method: int, nth_effect: int) -> bool:
        if self.method is None:
            return method in EFFECTS and self.nth in {None, nth_effect}
        return method == self.method and self.nth in {None, nth_of_method}

    @property
    def is_lie(self) -> bool:
        """Return True if the store reports a refusal of a call that it executed."""
        return self.answer == "error" and self.when == "after" and self.error not in {lost, taken, changed, gone}

    def __str__(self) -> str:
        kind = self.answer if self.answer in {"flipped", "stale"} else f"{self.error.__name__} {self.when}"
        where = "the next" if self.is_next else f"{self.method or 'effect'} {self.nth}"
        return f"{where}: {kind}{' and again later' if self.is_late else ''}"


def faults_of(method: str, nth: int) -> list[Fault]:
    """Return every way in which call `nth` of `method` may fail."""
    errors = [unreachable, denied]
    if method in _SENT_ONCE:
        errors += [lost]
    if method == "put_new":
        errors += [taken]
    if method == "swap":
        errors += [changed]
    if method in {"put_part", "complete_upload"}:
        errors += [gone]
    found = [Fault(nth, when, error, method) for error in errors for when in ("before", "after")]
    found.append(Fault(nth, "before", no_bucket, method))
    if method in EFFECTS:
        error = lost if method in _SENT_ONCE else unreachable
        found += [Fault(nth, when, error, method, is_late=True) for when in ("before", "after")]
    if method in {"complete_upload", "get_range"}:
        found.append(Fault(nth, "before", damaged, method))
    if method in {"get", "get_with_etag", "get_range"}:
        found.append(Fault(nth, method=method, answer="flipped"))
    if method == "delete_many":
        found += [Fault(nth, "after", error, method, answer="half") for error in (unreachable, denied)]
    if method in {"list", "list_uploads"}:
        found.append(Fault(nth, method=method, answer="stale"))
    return found


class FaultyStore(WrappedStore):
    """Fail as `plan` says. `effects` counts the effects that were tried, `calls` the calls by method.

    `struck` lists the faults that calls met. `struck_at` has the key of each.
    """

    def __init__(self, inner: ObjectStore, plan: Iterable[Fault]) -> None:
        super().__init__(inner)
        self.plan = tuple(plan)
        self._late: list[tuple[int, Callable[[], object]]] = []
        self._lock = threading.Lock()
        self.calls: Counter[str] = Counter()
        self.struck: list[Fault] = []
        self.struck_at: list[str] = []
        self.effects = 0

    # A late call sends the bytes of its first sending, even if the caller changes its buffer meanwhile.

    def put(self, key: Key, body: bytes | bytearray, metadata: Mapping[str, str]) -> None:
        super().put(key, bytes(body), metadata)

    def put_part(self, key: Key, upload_id: str, number: int, body: bytes | bytearray) -> PartTag:
        return super().put_part(key, upload_id, number, bytes(body))

    def fail(self, plan: Iterable[Fault]) -> None:
        """Replace the plan from now on."""
        self.plan = tuple(plan)

    def land(self, *, up_to: int | None = None) -> None:
        """Send the late calls again that are due at call `up_to` (None: all). No caller gets the answers."""
        with self._lock:
            due = [act for at, act in self._late if up_to is None or at <= up_to]
            self._late = [(at, act) for at, act in self._late if up_to is not None and at > up_to]
        for act in due:
            with contextlib.suppress(CatalogError):
                act()

    def delete_many(self, keys: Sequence[Key]) -> None:
        self._call(
            "delete_many",
            keys[0] if keys else "",
            lambda: self.inner.delete_many(keys),
            lambda: self.inner.delete_many(keys[::2]),
        )

    def _is_met(self, fault: Fault, method: str) -> bool:
        if fault.is_next:
            return bool(self.struck) and fault not in self.struck
        return fault.hits(method, self.calls[method], self.effects)

    def _call(self, method: str, key: str, act: Callable[[], T], half: Callable[[], T] | None = None) -> T:
        with self._lock:
            self.calls[method] += 1
            self.effects += method in EFFECTS
            number = self.calls.total()
            fault = next((f for f in self.plan if self._is_met(f, method)), None)
            if fault is not None:
                self.struck.append(fault)
                self.struck_at.append(key)
                if fault.is_late:
                    self._late.append((number + _CALLS_LATE, act))
        self.land(up_to=number)
        if fault is None:
            return act()
        if fault.answer in {"flipped", "stale"}:
            return _spoiled(act(), fault.answer)
        if fault.when == "after":
            (half if half and fault.answer == "half" else act)()
        raise fault.error(key)


def _spoiled(answer: T, how: str) -> T:
    if how == "stale":
        return iter(())  # type: ignore[return-value]
    if isinstance(answer, WithETag):
        return replace(answer, body=_flipped(answer.body))  # type: ignore[return-value]
    return _flipped(answer)  # type: ignore[return-value, arg-type]


def _flipped(answer: bytes) -> bytes:
    body = bytearray(answer)
    if body:
        body[len(body) // 2] ^= 1
    return bytes(body)


class KillingStore(WrappedStore):
    """Send SIGKILL to this very process at effect number `effect`, from 1, so that no cleanup runs."""

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


class StrayKeysStore(WrappedStore):
    """List `strays` too.

    A stray may be a key that no store accepts from seglog: a console's "folder" ends with a slash.
    """

    def __init__(self, inner: ObjectStore, strays: Iterable[str]) -> None:
        super().__init__(inner)
        self.strays = frozenset(strays)

    def list(self, prefix: str, *, limit: int | None = None, start_after: str = "") -> Iterator[str]:
        there = sorted({*self.inner.list(prefix, start_after=start_after), *self.strays})
        return islice((key for key in there if key.startswith(prefix) and key > start_after), limit)

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        return act()


class CountingStore(WrappedStore):
    """Count calls. `counts` maps a method to its number of calls."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        with self._lock:
            self.counts[method] += 1
        return act()


class UnorderedStore(MemoryStore):
    @property
    def is_ordered(self) -> bool:
        return False
