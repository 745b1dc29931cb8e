"""Promotion: a branch becomes main, and the former main gets another name. One operation changes three names.

    step                                               what a crash after it leaves
    1 `keep` leads to the volume of main               two names of that volume
    2 main leads to the volume of the branch           the same of the other volume
    3 the name of the branch goes                      the promotion, whole

PROMOTE-1  Step 2 is one compare-and-swap of main's ref. So of several promotions at the same time at most one wins.
PROMOTE-2  Each of the two volumes has a live name at every moment, so GC closes neither. Undo gives the branch its name
    back first, then main, and takes `keep` away last. A lost race is taken back in the opposite order of the steps. If
    main has changed again by then, `keep` stays. If another caller deletes `keep` before step 2, the caller finds that
    out after it, and takes the step back. A deleted name holds its volume for the PITR window, so nothing is lost.
PROMOTE-3  Step 3 refuses nothing. If another caller has changed the name of the branch meanwhile, it stays as it is.
    An undo in the middle of a promotion gives the branch's name a new nonce, so step 3 does not take it away.
PROMOTE-4  A second call after a crash makes the missing steps. Its entry in the oplog has all three changes again, so
    that one undo takes back the whole promotion.
PROMOTE-5  The caller compares, carries and fences two volumes, and then names them. If main or the branch leads to
    another volume by then, no name changes. Otherwise main would lose records that nobody compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from catalog.errors import VolumeHasName
from catalog.format.control import OplogEntry, Ref
from catalog.format.ids import Vid
from catalog.format.keys import Key, branch_of, topic_of
from catalog.format.small_objects import decode_ref, encode_ref
from catalog.refs.oplog import NumberedEntry
from catalog.refs.ref_store import Found, Planned
from seglog.base.dataclasses import dataclass

PROMOTE = "branch promote"


def plan_promotion(
    keep: tuple[Key, Found[Ref]], main: tuple[Key, Found[Ref]], branch: tuple[Key, Found[Ref]], former: Ref, now_ms: int
) -> list[Planned[Ref]]:
    """Return the changes of a promotion, in order. `former` is main's ref before it.

    After a crash, a change may be made already. Then only its nonce changes.
    """
    keep_key, keep_ref = keep
    main_key, now = main
    branch_key, source = branch
    assert source.alive is not None  # noqa: S101 - the caller has looked
    before = before_given(keep_ref, now_ms)
    return [
        # If another promotion relies on this name, a lost race of this one must not delete it.
        Planned(keep_key, keep_ref, Ref(former.vid, now_ms), before, is_moved=keep_ref.alive is not None),
        Planned(main_key, now, Ref(source.alive.vid, now_ms), encode_ref(former), is_moved=True),
        Planned(branch_key, source, replace(source.alive, deleted_at_ms=now_ms), source.body, is_optional=True),
    ]


def before_given(current: Found[Ref], now_ms: int) -> bytes | None:
    """Return the value that undo puts back for a name that an operation gives.

    If the name is alive, an earlier try of the operation has given it. Then undo deletes it.
    """
    if current.alive is None:
        return current.body
    return encode_ref(replace(current.alive, deleted_at_ms=now_ms, nonce=os.urandom(16)))


def earlier_promotion(entries: Iterable[NumberedEntry], main: tuple[Key, Found[Ref]], branch: Key) -> tuple[Key, Ref]:
    """Return the name that a promotion gave to the former main before it ended, and the former ref of main.

    Raises `VolumeHasName` if no promotion gave main its value.
    """
    key, current = main
    for operation in entries:
        first, *others = operation.entry.changes
        if operation.entry.operation == PROMOTE and others and others[0].subject == key:
            former = others[0].former
            if former is not None and current.body is not None and others[0].value == current.body:
                return Key(first.subject), decode_ref(former, key)
    raise VolumeHasName(topic_of(key), branch_of(key), branch_of(branch))


@dataclass(frozen=True, slots=True)
class MovedMain:
    """A promotion in the oplog: main of `topic` moved from the volume `former`, which is `keep` now, to `vid`."""

    topic: str
    keep: str
    former: Vid
    vid: Vid


def moved_main(entry: OplogEntry) -> MovedMain | None:
    """Return the promotion that an entry describes; None for another operation."""
    if entry.operation != PROMOTE:
        return None
    keep, main, *_ = entry.changes
    key = Key(main.subject)
    assert main.former is not None and main.value is not None  # noqa: S101, PT018 - as `plan_promotion` makes it
    former, value = decode_ref(main.former, key), decode_ref(main.value, key)
    return MovedMain(topic_of(key), branch_of(Key(keep.subject)), former.vid, value.vid)
