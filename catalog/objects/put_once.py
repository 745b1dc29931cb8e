"""Put-if-absent over answers that may be lost.

A refusal is a question: what lies there may be ours, from a try whose answer got lost. So every answer but a plain
success is settled by reading the key back:

    put_new says      reading back gives      then
    done              (not asked)             ours
    taken, unknown    a body                  that body: the caller compares
    taken, unknown    absent                  send the identical bytes again, after a pause; so many times
    taken, unknown    no answer               `OutcomeUnknown`

W1  The bytes never differ between tries, so whichever of them lands, late ones too, it is the same object.
W2  Once a try had no definite answer, no later refusal (no connection, no access, no bucket) means "not written".
W3  The caller can tell its own body: it holds a fresh id or nonce.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from catalog.errors import KeyTaken, NoSuchBucket, NoSuchObject, OutcomeUnknown, Unavailable
from catalog.format.keys import Key
from catalog.objects.base import ObjectStore

__all__ = ["TRIES", "backoff_s", "put_once"]

TRIES = 5
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_REFUSALS = (Unavailable, NoSuchBucket)


def backoff_s(tries: int) -> float:
    """Seconds to wait after `tries` tries: doubling, with full jitter."""
    return random.uniform(0, min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**tries))


def put_once(store: ObjectStore, key: Key, body: bytes, pause: Callable[[float], None] = time.sleep) -> bytes:
    """What lies under `key` now, which was absent or not: `body` itself, or another's.

    Raises `OutcomeUnknown` if nobody can say, and what the store raised if `body` was certainly not written.
    """
    doubt = ""
    for tries in range(1, TRIES + 1):
        try:
            store.put_new(key, body)
        except (KeyTaken, OutcomeUnknown) as answer:
            doubt = str(answer)
        except _REFUSALS as trouble:
            if doubt:
                raise OutcomeUnknown(key, f"{doubt}; then {trouble}") from trouble
            raise
        else:
            return body
        try:
            return store.get(key)
        except NoSuchObject:
            if tries < TRIES:
                pause(backoff_s(tries))
        except _REFUSALS as trouble:
            raise OutcomeUnknown(key, f"{doubt}; reading it back: {trouble}") from trouble
    raise OutcomeUnknown(key, f"{doubt}; it was absent after each of {TRIES} tries")
