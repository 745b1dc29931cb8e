"""Put-if-absent over a store whose answers may get lost.

A refusal is not final: the object under the key may be ours, from a try whose answer got lost. So after every answer
except plain success, `put_once` reads the key back:

    put_new says      reading back gives      then
    done              (not asked)             ours
    taken, unknown    a body                  that body: the caller compares
    taken, unknown    absent                  send the identical bytes again, after a pause; `TRIES` times in all
    taken, unknown    no answer               `OutcomeUnknown`

PUT-1  All tries send the same bytes. So the object is the same whichever try lands, even a late one.
PUT-2  If a try got no definite answer, no later refusal (no connection, no access, no bucket) means "not written".
PUT-3  The caller can recognise its own body, because the body holds a fresh id or nonce.
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
    """Return the seconds to wait after `tries` tries: doubling, with full jitter."""
    return random.uniform(0, min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**tries))


def put_once(store: ObjectStore, key: Key, body: bytes, pause: Callable[[float], None] = time.sleep) -> bytes:
    """Put `body` under `key` if the key is absent. Return the body that is there then, which may be another writer's.

    Raise `OutcomeUnknown` if the outcome cannot be found out. If `body` was certainly not written, raise the store's
    error.
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
