"""The end of a volume, which never meets a name: the states of its Boundary, each with a new nonce.

    state      what is true                                        who changes it, to what
    open       nothing but what `lsn` says; so too if absent       GC, when nobody holds the volume: closing
    closing    the same: commits, names and holders go on          GC, when the names were looked at since: dead;
                                                                   whoever gave it a name, or GC that sees one: open
    dead       `lsn` is the highest there is: no commit, and no    nobody
               name, is good any more

    whoever gives a name            GC
    1 puts the ref                  1 open -> closing, if it is not closing already
    2 `keep_open`:                  2 looks at all names
      open: done                    3 no name leads there: closing -> dead, if it is still the one of step 1
      closing -> open: done           else, or if a name does: open, or left as it is
      dead: takes the ref back

E1  No acked name leads to a dead volume. If GC does not see the ref in its step 2, that was put after step 1, and so
    `keep_open` finds what step 1 made or what came of it: with closing -> open first, step 3 fails, for no state comes
    back; with closing -> dead first, the name is not acked. If `keep_open` found an open boundary that was to be
    closed later, the ref was there before step 1.
E2  Whoever gives a name and stops before its step 2 acked nothing. GC takes the ref of a dead volume back, as it would
    have.
E3  A run of GC that stops leaves a volume closing, which changes nothing for anybody; another run goes on from there,
    with a look of its own.
E4  Forks, tags and pins need no part in this: GC looks at them after the volume is dead, too (G2 of
`catalog.gc.collector`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

from catalog.format.control import DEAD, Boundary
from catalog.format.gid import Vid
from catalog.format.keys import boundary_key
from catalog.format.small_objects import decode_boundary, encode_boundary
from catalog.objects.base import ObjectStore
from catalog.objects.change import change

__all__ = ["begin_closing", "close", "keep_open"]


def begin_closing(store: ObjectStore, vid: Vid) -> Boundary:
    """GC's step 1. What the boundary is now: closing, or dead."""

    def closing(now: Boundary) -> Boundary | None:
        return None if now.is_closing or now.lsn == DEAD else replace(now, is_closing=True)

    return _changed(store, vid, closing)


def close(store: ObjectStore, begun: Boundary) -> Boundary:
    """GC's step 3, if no name was seen since `begun`. What the boundary is now: dead, unless somebody kept it open."""
    return _changed(store, begun.vid, lambda now: Boundary(now.vid, DEAD) if now == begun else None)


def keep_open(store: ObjectStore, vid: Vid) -> bool:
    """For whoever has put a ref to `vid`, and for GC that sees one: False if the volume is dead. One GET if it is open.

    Raises what the store raises.
    """
    return _changed(store, vid, lambda now: replace(now, is_closing=False) if now.is_closing else None).lsn != DEAD


def _changed(store: ObjectStore, vid: Vid, make: Callable[[Boundary], Boundary | None]) -> Boundary:
    def made(body: bytes | None) -> bytes | None:
        wanted = make(_decoded(body, vid))
        return None if wanted is None else encode_boundary(replace(wanted, nonce=os.urandom(16)))

    return _decoded(change(store, boundary_key(vid), made), vid)


def _decoded(body: bytes | None, vid: Vid) -> Boundary:
    return Boundary(vid, 0) if body is None else decode_boundary(body, vid)
