"""The store of a simulation: its true content (`Ground`), and the way there (`Way`), which loses, repeats and delays.

The sender of a request may crash or sleep. These faults may also happen to the request:

    any                          does not arrive, and the sender gets an error
    put_new, swap                arrives or does not arrive, and the sender cannot tell; arrives days later; arrives
                                 twice, the second time days later; arrives, and the sender hears that the key is taken
    put, delete, delete_many     arrives whole or half, and the sender gets an error
    put                          arrives a second time, days later
    list of commits, of the      objects of the last minute are missing
      oplog, of segments
    list of refs, tags, pins     objects of the last hours are missing, but never for GC

To all tasks but GC, a LIST of names is a hint. GC has to see each name that was put before its LIST began (STORE-2,
VDEL-1). The mutant "a LIST of names is late for gc" shows the damage of a late LIST.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from catalog.errors import CatalogError, KeyChanged, KeyTaken, OutcomeUnknown, StoreUnreachable
from catalog.format.keys import Key
from catalog.objects.memory import MemoryStore
from catalog.objects.object_store import PartTag
from catalog.objects.wrapped import WrappedStore
from tests.simulation.schedule import DAY_MS, Crashed, Schedule, Task

__all__ = ["Ground", "Way"]

T = TypeVar("T")

_ONCE = {"put_new": KeyTaken, "swap": KeyChanged}
_REPEATED = frozenset({"put", "delete", "delete_many", "create_upload", "put_part", "abort_upload"})
_STALE_MS = 60_000
_STALE_NAMES_MS = 6 * 3_600_000
_STALE_NAMES_RATE = 0.3
_CRITICAL = re.compile(r"^(pins|tags|refs)/|/(forks/|control$|log/)")
_PASSES = re.compile(r"/checkpoints$|/log/|/segments/")
_CLOSES = re.compile(r"/boundary$")
_ROUSE_RATE = 0.5  # at a change by GC, for tasks that sleep before they name the same state
_is_held = re.compile(r"^(pins|tags)/|/(forks/|control$)").search
_is_named = re.compile(r"^refs/").search
_NAMES = re.compile(r"^(refs|tags|pins)/")


class Ground(MemoryStore):
    """The true content of the store.

    It calls `on_body(key, body)` for each object that is created or changed, and `on_gone(key)` for each delete.
    """

    def __init__(self, clock: Callable[[], int], *, is_ordered: bool = True) -> None:
        super().__init__(clock)
        self._is_ordered = is_ordered
        self.on_body: Callable[[Key, bytes], None] = lambda _key, _body: None
        self.on_gone: Callable[[Key], None] = lambda _key: None
        self.came_ms: dict[str, int] = {}

    @property
    def is_ordered(self) -> bool:
        return self._is_ordered

    def put_new(self, key: Key, body: bytes) -> None:
        super().put_new(key, body)
        self.on_body(key, body)

    def put(self, key: Key, body: bytes, metadata: Mapping[str, str]) -> None:
        super().put(key, body, metadata)
        self.on_body(key, body)

    def swap(self, key: Key, body: bytes, etag: str) -> None:
        super().swap(key, body, etag)
        self.on_body(key, body)

    def delete(self, key: Key) -> None:
        super().delete(key)
        self.on_gone(key)

    def complete_upload(self, key: Key, upload_id: str, parts: Sequence[PartTag]) -> None:
        super().complete_upload(key, upload_id, parts)
        self.on_body(key, self.get(key))

    def has(self, key: Key) -> bool:
        return next(self.list(key, limit=1), None) == key


class Way(WrappedStore):
    """The connection of one task to the store, with faults."""

    def __init__(self, ground: Ground, schedule: Schedule, task: Task) -> None:
        super().__init__(ground)
        self._schedule = schedule
        self._task = task
        self.meanwhile: Callable[[], None] | None = None
        self.on_commit: Callable[[Key, bytes], None] = lambda _key, _body: None
        self.read_back: Counter[str] = Counter()

    def put_new(self, key: Key, body: bytes) -> None:
        if "/log/" in key:
            self.on_commit(key, body)
        super().put_new(key, body)

    def get_range(self, key: Key, start: int, length: int) -> bytes:
        body = super().get_range(key, start, length)
        self.read_back[key] += len(body)
        return body

    def delete_many(self, keys: Sequence[Key]) -> None:
        def half() -> None:
            self.inner.delete_many(keys[::2])

        self._call("delete_many", keys[0] if keys else "", lambda: self.inner.delete_many(keys), half)

    def _call(self, method: str, key: str, act: Callable[[], T], half: Callable[[], T] | None = None) -> T:
        schedule, task = self._schedule, self._task
        if task.is_dead:
            raise Crashed
        if self.meanwhile is not None:
            self.meanwhile()
        is_critical = method in _ONCE and _CRITICAL.search(key)
        schedule.reach(task, key if is_critical else "")
        if task.passes and method in {*_ONCE, "delete_many"} and schedule.chance(_ROUSE_RATE):
            if _CLOSES.search(key):
                schedule.rouse(_is_named)
            elif _PASSES.search(key):
                schedule.rouse(_is_held)
        how = "whole"
        try:
            if method == "list" and _NAMES.match(key) and not task.sees_names and schedule.chance(_STALE_NAMES_RATE):
                how = "stale names"
                answer = self._faulty(how, method, key, act, act)
            elif schedule.chance(schedule.fault_rate):
                how = schedule.random.choice(_faults(method, key))
                answer = self._faulty(how, method, key, act, half or act)
            else:
                answer = act()
        except CatalogError as error:
            schedule.note(task.name, method, key, how, type(error).__name__)
            raise
        schedule.note(task.name, method, key, how)
        schedule.perhaps_crash(task)
        return answer

    def close(self) -> None:
        """Do nothing: the next process uses the same connection."""

    def _faulty(self, how: str, method: str, key: str, act: Callable[[], T], half: Callable[[], T]) -> T:
        if how == "never":
            raise StoreUnreachable("simulated://", f"no way to {key}")
        if how == "perhaps never":
            raise OutcomeUnknown(key, "simulated")
        if how in {"stale", "stale names"}:
            came = self.inner.came_ms  # type: ignore[attr-defined]
            most_ms = _STALE_MS if how == "stale" else _STALE_NAMES_MS
            since = self._schedule.now_ms - self._schedule.random.randrange(most_ms)
            return iter([each for each in act() if came.get(each, 0) < since])  # type: ignore[attr-defined, return-value]
        if how in {"late", "twice"}:
            again = act

            def land() -> None:
                with contextlib.suppress(CatalogError):
                    again()
                self._schedule.note("late", method, key)

            delay = self._schedule.random.choice((2_000, 60_000, DAY_MS, 9 * DAY_MS))
            self._schedule.later(self._schedule.now_ms + self._schedule.random.randrange(delay), land)
        if how == "late":
            raise OutcomeUnknown(key, "simulated")
        answer = half() if how == "half" else act()
        if how == "taken":
            raise _ONCE[method](key)
        if how in {"lost", "half"}:
            is_once = method in _ONCE or method == "complete_upload"
            error = OutcomeUnknown(key, "simulated") if is_once else StoreUnreachable("simulated://", key)
            raise error
        return answer


def _faults(method: str, key: str) -> tuple[str, ...]:
    if method in _ONCE:
        return ("never", "perhaps never", "lost", "late", "twice", "taken")
    if method == "complete_upload":
        return ("never", "perhaps never", "lost")
    if method == "put":
        return ("never", "lost", "twice")
    if method in _REPEATED:
        return ("never", "lost", "half")
    if method == "list" and ("/log/" in key or "/segments/" in key or key.startswith("oplog/")):
        return ("never", "stale")
    return ("never",)
