"""Writes over a store whose answers may get lost: put-if-absent, and compare-and-swap of one object.

**Put-if-absent.** A refusal is not final: the object under the key may be ours, from a try whose answer got lost. So
after every answer except plain success, `put_once` reads the key back:

    put_new says      reading back gives      then
    done              (not asked)             ours
    taken, unknown    a body                  that body: the caller compares
    taken, unknown    absent                  send the identical bytes again, after a pause; `TRIES` times in all
    taken, unknown    no answer               `OutcomeUnknown`

PUT-1  All tries send the same bytes. So the object is the same whichever try lands, even a late one.
PUT-2  If a try got no definite answer, no later refusal (no connection, no access, no bucket) means "not written".
PUT-3  The caller can recognise its own body, because the body holds a fresh id or nonce.

**Compare-and-swap.** `make` takes the object's body, or None if the object is absent. It returns the body that the
object shall have. If `make` returns None or the body that it was given, `change` leaves the object alone. Otherwise
`change` sends the new body, by `put_new` or by `swap`. After every answer except plain success, `change` reads the
object back:

    sending says             reading back gives     then
    done                     (not asked)            what was sent
    taken, changed, unknown  what was sent          the same
    taken, changed, unknown  the state before       send the same again, after a pause; `TRIES` times in all
    taken, changed, unknown  another state          ask `make` again with that one, after a pause; `ROUNDS` times in all
    taken, changed, unknown  no answer              `OutcomeUnknown`

SWAP-1  `make` may get a state that contains its change already, below changes of other writers. That happens if our
    answer got lost and another writer built on our change. `make` must recognise its change and leave the object alone.
    A change that is made twice must be harmless.
SWAP-2  No state of an object ever returns: each state has something new in it (a nonce, a count that grows). So a
    request that lands late finds the state that it was for, or none. Removal ends an object: its key must not be
    created again.
SWAP-3  If a try got no definite answer and the state before is still there, no later refusal means "not written".
    Refusals are: no connection, no access, no bucket. If another state is there, `make` tells whether it contains the
    change.
SWAP-4  A body may be damaged on its way. `make` verifies it (catalog.format.envelope) before it builds on it.
SWAP-5  Lock-free: a writer loses a round only to a change of another writer. So one of all writers always makes
    progress.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

from catalog.errors import KeyChanged, KeyTaken, NoSuchBucket, NoSuchObject, OutcomeUnknown, Unavailable
from catalog.format.keys import Key
from catalog.objects.object_store import ObjectStore, WithETag

TRIES = 5
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_REFUSALS = (Unavailable, NoSuchBucket)
ROUNDS = 20


def backoff_s(tries: int) -> float:
    """Return the seconds to wait after `tries` tries: doubling, with full jitter."""
    import random

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


def change(
    store: ObjectStore,
    key: Key,
    make: Callable[[bytes | None], bytes | None],
    pause: Callable[[float], None] = time.sleep,
) -> bytes | None:
    """Change the object under `key` by `make`. Return its body in the end; None if it is absent and was left so.

    Raise `OutcomeUnknown` if the outcome cannot be found out. Raise `KeyChanged` if other writers were faster in every
    round. If the change was certainly not written, raise the error of `make` or of the store.
    """
    return change_from(store, key, read_current(store, key), make, pause)


def change_from(
    store: ObjectStore,
    key: Key,
    before: WithETag | None,
    make: Callable[[bytes | None], bytes | None],
    pause: Callable[[float], None] = time.sleep,
) -> bytes | None:
    """Do as `change`, beginning with the state `before`, which the caller has read. This saves one request.

    `before` may be out of date.
    """
    for rounds in itertools.count(1):
        body = None if before is None else before.body
        new_body = make(body)
        if new_body is None or new_body == body:
            return body
        if rounds > ROUNDS:
            raise KeyChanged(key)
        before = _send(store, key, before, new_body, pause)
        if before is not None and before.body == new_body:
            return new_body
        pause(backoff_s(rounds))
    raise AssertionError  # the count has no end


def _send(
    store: ObjectStore, key: Key, before: WithETag | None, new_body: bytes, pause: Callable[[float], None]
) -> WithETag | None:
    """Send `new_body` to replace `before`. Return the state after that: `new_body`, or one that is neither."""
    doubt = ""
    for tries in range(1, TRIES + 1):
        try:
            if before is None:
                store.put_new(key, new_body)
            else:
                store.swap(key, new_body, before.etag)
        except (KeyTaken, KeyChanged, OutcomeUnknown) as answer:
            doubt = str(answer)
        except _REFUSALS as trouble:
            if doubt:
                raise OutcomeUnknown(key, f"{doubt}; then {trouble}") from trouble
            raise
        else:
            return WithETag(new_body, "")
        try:
            current = read_current(store, key)
        except _REFUSALS as trouble:
            raise OutcomeUnknown(key, f"{doubt}; reading it back: {trouble}") from trouble
        if not _is_same(current, before):
            return current
        before = current
        if tries < TRIES:
            pause(backoff_s(tries))
    raise OutcomeUnknown(key, f"{doubt}; it was as before after each of {TRIES} tries")


def read_current(store: ObjectStore, key: Key) -> WithETag | None:
    """Return the object under `key`; None if it is absent."""
    try:
        return store.get_with_etag(key)
    except NoSuchObject:
        return None


def _is_same(one: WithETag | None, other: WithETag | None) -> bool:
    """Tell whether both have the same content. Their tags may differ, if a writer wrote the same bytes again."""
    if one is None or other is None:
        return one is other
    return one.body == other.body
