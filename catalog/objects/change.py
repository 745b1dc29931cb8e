"""Compare-and-swap over answers that may be lost: one object, changed from the state it is in.

`make` says what an object shall become, from what it is: a body, or None if it is absent. None leaves it as it is, and
so does the body that it has. Else that is sent, by `put_new` or by `swap`, and every answer but a plain success is
settled by reading back:

    sending says             reading back gives     then
    done                     (not asked)            what was sent
    taken, changed, unknown  what was sent          the same
    taken, changed, unknown  the state before       send the same again, after a pause; `TRIES` times in all
    taken, changed, unknown  another state          ask `make` again with that one, after a pause; `ROUNDS` times in all
    taken, changed, unknown  no answer              `OutcomeUnknown`

X1  `make` may be asked with a state that has its change in already, under others': our answer was lost and somebody
    went on from there. It must see that, and then leave the object as it is: a change that is made twice is harmless.
X2  No state comes back: each has something new in it (a nonce, a count that grows), so a request that lands late finds
    the state that it was for, or none. An object that is removed ends this, and is not to be made anew.
X3  Once a try had no definite answer, and the state before is still there, no later refusal (no connection, no access,
    no bucket) means "not written". Another state there says, through `make`, whether the change is in it.
X4  What is read may be damaged on its way: `make` checks it (catalog.format.envelope) before it builds on it.
X5  Whoever loses a round lost it to a change of somebody else, so of all who take part one always gets on.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

from catalog.errors import KeyChanged, KeyTaken, NoSuchBucket, NoSuchObject, OutcomeUnknown, Unavailable
from catalog.format.keys import Key
from catalog.objects.base import ObjectStore, Tagged
from catalog.objects.put_once import TRIES, backoff_s

__all__ = ["ROUNDS", "change", "change_from", "look"]

ROUNDS = 20
_REFUSALS = (Unavailable, NoSuchBucket)


def change(
    store: ObjectStore,
    key: Key,
    make: Callable[[bytes | None], bytes | None],
    pause: Callable[[float], None] = time.sleep,
) -> bytes | None:
    """What lies under `key` in the end; None if it is absent and was left so.

    Raises `OutcomeUnknown` if nobody can say, `KeyChanged` if others were faster in every round, and what `make` or the
    store raised if the change was certainly not written.
    """
    return change_from(store, key, look(store, key), make, pause)


def change_from(
    store: ObjectStore,
    key: Key,
    before: Tagged | None,
    make: Callable[[bytes | None], bytes | None],
    pause: Callable[[float], None] = time.sleep,
) -> bytes | None:
    """`change`, for who knows already what lies under `key`, or lay there a while ago: one request less."""
    for rounds in itertools.count(1):
        body = None if before is None else before.body
        made = make(body)
        if made is None or made == body:
            return body
        if rounds > ROUNDS:
            raise KeyChanged(key)
        before = _send(store, key, before, made, pause)
        if before is not None and before.body == made:
            return made
        pause(backoff_s(rounds))
    raise AssertionError  # the count has no end


def _send(
    store: ObjectStore, key: Key, before: Tagged | None, made: bytes, pause: Callable[[float], None]
) -> Tagged | None:
    """What lies there now: `made`, or a state that is neither that nor the one before."""
    doubt = ""
    for tries in range(1, TRIES + 1):
        try:
            if before is None:
                store.put_new(key, made)
            else:
                store.swap(key, made, before.etag)
        except (KeyTaken, KeyChanged, OutcomeUnknown) as answer:
            doubt = str(answer)
        except _REFUSALS as trouble:
            if doubt:
                raise OutcomeUnknown(key, f"{doubt}; then {trouble}") from trouble
            raise
        else:
            return Tagged(made, "")
        try:
            found = look(store, key)
        except _REFUSALS as trouble:
            raise OutcomeUnknown(key, f"{doubt}; reading it back: {trouble}") from trouble
        if not _is_same(found, before):
            return found
        before = found
        if tries < TRIES:
            pause(backoff_s(tries))
    raise OutcomeUnknown(key, f"{doubt}; it was as before after each of {TRIES} tries")


def look(store: ObjectStore, key: Key) -> Tagged | None:
    """What lies under `key` now; None if it is absent."""
    try:
        return store.get_tagged(key)
    except NoSuchObject:
        return None


def _is_same(one: Tagged | None, other: Tagged | None) -> bool:
    """Of one content: the tag may be another if somebody wrote the same again."""
    if one is None or other is None:
        return one is other
    return one.body == other.body
