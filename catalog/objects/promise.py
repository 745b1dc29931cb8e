"""A check of one promise of a store, and the helpers of checks. `catalog.objects.conformance` has all checks.

CHECK-1  A check works under a prefix of its own, which is empty at first. The caller removes the objects that the check
    makes.
CHECK-2  A check returns if it saw the promise kept. It raises `PromiseBroken`, with what it saw instead, if the store
    broke the promise. It raises `NotPermitted` if the role may not make the requests that the check needs. It raises
    `NotKept` if the store has nothing to check. Otherwise it raises the store's error.
CHECK-3  A race without a wrong winner is evidence, and no proof. The store's manual says what the store promises.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from catalog.errors import AccessDenied, CatalogError, KeyChanged, KeyTaken, NoSuchObject, OutcomeUnknown
from catalog.format.keys import Key
from catalog.objects.base import ObjectStore, PartTag

__all__ = [
    "METADATA",
    "Check",
    "NotKept",
    "NotPermitted",
    "Place",
    "PromiseBroken",
    "absent",
    "expect",
    "permitted",
    "proves",
    "race",
    "refused",
]

METADATA = {"role": "check", "software": "seglog (doctor)"}


class PromiseBroken(Exception):
    """The store broke the promise. The message tells what the check saw."""


class NotPermitted(Exception):
    """The role may not make the requests that the check needs."""


class NotKept(Exception):
    """The store lacks the feature that the check is about, and need not have it."""


@dataclass(frozen=True, slots=True)
class Place:
    """A store, and the prefix in it that one check has for itself. The prefix ends in a slash."""

    store: ObjectStore
    prefix: str

    def key(self, name: str) -> Key:
        return Key(self.prefix + name)

    def upload(self, key: Key, *bodies: bytes) -> tuple[str, list[PartTag]]:
        upload_id = self.store.create_upload(key, METADATA)
        return upload_id, [self.store.put_part(key, upload_id, number, body) for number, body in enumerate(bodies, 1)]


@dataclass(frozen=True, slots=True)
class Check:
    """A check of one promise. `proves` states the promise, as a sentence about the store."""

    name: str
    proves: str
    run: Callable[[Place], None]


def proves(sentence: str) -> Callable[[Callable[[Place], None]], Check]:
    """Return a decorator that makes a `Check` of a function. The check gets the function's name."""
    return lambda run: Check(run.__name__.strip("_").replace("_", "-"), sentence, run)


def expect(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise PromiseBroken(f"{what}: {_short(found)}, and not {_short(expected)}")


def _short(value: object) -> str:
    if isinstance(value, bytes) and len(value) > 32:
        return f"{len(value)} bytes from {value[:16]!r}"
    return repr(value)


def refused(what: str, error: type[CatalogError], call: Callable[..., object], *arguments: object) -> None:
    try:
        answer = call(*arguments)
    except error:
        return
    except (AccessDenied, OutcomeUnknown) as answered:
        raise PromiseBroken(f"{what} got no definite refusal: {answered}") from answered
    raise PromiseBroken(f"{what} was not refused" + ("" if answer is None else f", and gave {_short(answer)}"))


def absent(place: Place, key: Key, when: str) -> None:
    refused(f"reading a key {when}", NoSuchObject, place.store.get, key)


@contextlib.contextmanager
def permitted(what: str) -> Iterator[None]:
    try:
        yield
    except AccessDenied as refusal:
        raise NotPermitted(f"this role may not {what}") from refusal


def race(place: Place, key: Key, bodies: Sequence[bytes], write: Callable[[bytes], None]) -> None:
    """Write all `bodies` at once. Expect that one write succeeds, and that the object has its body.

    If some writes got no definite answer, expect that at most one succeeds.
    """
    start = threading.Barrier(len(bodies))

    def run(body: bytes) -> bool | None:
        start.wait()
        try:
            write(body)
        except (KeyTaken, KeyChanged):
            return False
        except OutcomeUnknown:
            return None
        return True

    with ThreadPoolExecutor(len(bodies)) as pool:
        outcomes = dict(zip(bodies, pool.map(run, bodies), strict=True))
    winners = [body for body, won in outcomes.items() if won]
    unknown = [body for body, won in outcomes.items() if won is None]
    if len(winners) > 1 or not (winners or unknown):
        raise PromiseBroken(f"of {len(bodies)} that wrote at once {len(winners)} succeeded, and not 1")
    found = place.store.get(key)
    if found not in (winners or unknown):
        raise PromiseBroken(f"after the race there is {_short(found)}, and not what {_short(winners)} wrote")
