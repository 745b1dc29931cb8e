"""All checks of `catalog.objects.conformance` over one store, under one fresh prefix. Nothing is left there.

    outcome   meaning
    kept      the store kept the promise
    broken    the store broke the promise, or raised an error: `reason` says what
    skipped   no result: the role lacks a permission, the store has nothing to check, or the store does not answer

EXAM-1  The examination removes objects by the names that the checks used. A listing may be broken, so none is asked.
EXAM-2  If the first check meets a store that cannot be reached or refuses it, the examination skips all later checks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, TypeVar

from catalog.errors import AccessDenied, CatalogError, NoSuchBucket, StoreUnreachable
from catalog.format.keys import Key
from catalog.objects.conformance import CHECKS, Check, NotKept, NotPermitted, PromiseBroken, Sandbox
from catalog.objects.object_store import ObjectStore
from catalog.objects.wrapped import WrappedStore
from seglog.base.dataclasses import dataclass

T = TypeVar("T")

_REFUSALS = (AccessDenied, NoSuchBucket, StoreUnreachable)
_CREATES = frozenset({"put_new", "put", "swap", "complete_upload"})


@dataclass(frozen=True, slots=True)
class Outcome:
    check: Check
    state: Literal["kept", "broken", "skipped"]
    reason: str = ""


class Examination:
    """An examination of one store. `outcomes` runs the checks, one at a time.

    `clean` removes the objects that they made.
    """

    def __init__(self, store: ObjectStore, prefix: str, checks: Sequence[Check] = CHECKS) -> None:
        self._store = _Remembering(store)
        self._prefix = prefix
        self._checks = checks

    def outcomes(self) -> Iterator[Outcome]:
        is_useless = False
        for number, check in enumerate(self._checks):
            if is_useless:
                yield Outcome(check, "skipped", "the first check did not get through")
                continue
            outcome, trouble = self._run(check)
            yield outcome
            is_useless = number == 0 and isinstance(trouble, _REFUSALS)

    def clean(self) -> str:
        """Remove everything that the checks made. Return why some of it had to stay; empty if all is gone."""
        reason = ""
        for upload_id, key in self._store.uploads.items():
            reason = _trouble_of(self._store.inner.abort_upload, key, upload_id) or reason
        if self._store.made:
            reason = _trouble_of(self._store.inner.delete_many, sorted(self._store.made)) or reason
        return reason

    def _run(self, check: Check) -> tuple[Outcome, CatalogError | None]:
        try:
            check.run(Sandbox(self._store, f"{self._prefix}{check.name}/"))
        except (NotPermitted, NotKept) as reason:
            return Outcome(check, "skipped", str(reason)), None
        except PromiseBroken as reason:
            return Outcome(check, "broken", str(reason)), None
        except CatalogError as trouble:
            return Outcome(check, "broken", str(trouble)), trouble
        return Outcome(check, "kept"), None


def _trouble_of(call: Callable[..., None], *arguments: object) -> str:
    try:
        call(*arguments)
    except CatalogError as trouble:
        return str(trouble)
    return ""


class _Remembering(WrappedStore):
    """A store that remembers writes.

    `made` has the keys that may have an object now. `uploads` maps upload ids to keys.
    """

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.made: set[Key] = set()
        self.uploads: dict[str, Key] = {}
        self._lock = threading.Lock()

    def create_upload(self, key: Key, metadata: Mapping[str, str]) -> str:
        upload_id = super().create_upload(key, metadata)
        with self._lock:
            self.uploads[upload_id] = key
        return upload_id

    def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
        is_made = method in _CREATES
        # The store repeats a put. An earlier try may have landed even if the last one failed.
        refusals = (AccessDenied, NoSuchBucket) if method == "put" else _REFUSALS
        try:
            return act()
        except refusals:
            is_made = False
            raise
        finally:
            if is_made:
                with self._lock:
                    self.made.add(Key(key))
