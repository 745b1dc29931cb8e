"""Worker processes whose store fails as a test plans. PLAN names the environment variable that has the plan.

fail FILE          FILE has "METHOD ERROR". The next call of METHOD raises ERROR, once for each text of FILE
kill EFFECT WHEN   SIGKILL to the child before or after its nth effect
hang METHOD        the call never ends
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from catalog.errors import AccessDenied, InvalidObject, NoSuchBucket, NoSuchObject, OutcomeUnknown, StoreUnreachable
from catalog.format.keys import Key
from catalog.objects.object_store import ObjectStore
from catalog.objects.wrapped import WrappedStore
from offload.wiring import open_store
from offload.worker import child
from offload.worker.child import Begin
from tests.faults.store import Fault, FaultyStore, KillingStore

__all__ = ["ERRORS", "MODULE", "PLAN", "main"]

MODULE = __name__
PLAN = "SEGLOG_TEST_PLAN"
_T = TypeVar("_T")


def _nobodys(key: str) -> Exception:
    class Local(Exception):
        pass

    return Local(key)


ERRORS: dict[str, Callable[[str], Exception]] = {
    "denied": lambda key: AccessDenied("s3://there", f"a fault at {key}", "ask somebody"),
    "unreachable": lambda key: StoreUnreachable("s3://there", f"a fault at {key}"),
    "no_bucket": lambda _: NoSuchBucket("there"),
    "absent": lambda key: NoSuchObject(Key(key)),
    "damaged": lambda key: InvalidObject(Key(key), "a fault"),
    "unknown": lambda key: OutcomeUnknown(Key(key), "a fault"),
    "os": lambda key: PermissionError(13, "a fault", key),
    "nobodys": _nobodys,
}


class _FailsAsTold(FaultyStore):
    """Fail once for each new text in `file`, so that one process takes many plans."""

    def __init__(self, inner: ObjectStore, file: Path) -> None:
        super().__init__(inner, ())
        self._file = file
        self._told = ""
        self._plans = threading.Lock()

    def _call(self, method: str, key: str, act: Callable[[], _T], half: Callable[[], _T] | None = None) -> _T:
        with self._plans:
            told = self._file.read_text()
            if told != self._told:
                self._told = told
                failing, kind = told.split()
                self.calls.clear()
                self.fail([Fault(nth=1, error=ERRORS[kind], method=failing)])
        return super()._call(method, key, act, half)


class _Hanging(WrappedStore):
    def __init__(self, inner: ObjectStore, method: str) -> None:
        super().__init__(inner)
        self._method = method

    def _call(self, method: str, key: str, act: Callable[[], _T]) -> _T:
        if method == self._method:
            threading.Event().wait()
        return act()


def _store(begin: Begin) -> ObjectStore:
    store = open_store(begin.url, begin.cold, begin.offload)
    match os.environ.get(PLAN, "").split():
        case ["fail", file]:
            return _FailsAsTold(store, Path(file))
        case ["kill", effect, when]:
            return KillingStore(store, int(effect), "before" if when == "before" else "after")
        case ["hang", method]:
            return _Hanging(store, method)
    return store


def main(descriptor: int) -> None:
    child.main(descriptor, _store)
