"""A router: which records of a topic it copies to another one, and how far it has come. Its record is JSON.

    member       value
    version      1
    router, id   its name, and 16 hex digits that are new with each creation: its producer is `router:NAME/ID`
    state        "live", "paused" or "deleted"
    from, to     the names of the source and of the destination, and in `from_is` and `to_is` their incarnations
    tag, grep    what a record must have, or null
    drop_tag, drop_node
                 whether a copy has no tag, or no node
    passed_over  records that were gone from the source before the router came to them
    cut          null; or, while a truncation happens, the first seq that it takes of the source, and of the
                 destination: 0 for the one that it leaves. It counts with the newest pair
    pairs        places at which both topics stood together, oldest first, 16 at most. Each is a list: epoch, seq and
                 last time in ms of the source, epoch, head and last time in ms of the destination

The tag of the record is the name, so it names the router of a record that this version cannot read, too.

PAIR-1  A pair says: each match in the source up to its seq was copied before, and of the matches behind it none had
    been. The copies of these stand behind the head that the pair has, in the order of the source.
    The first pair has epoch 0 of the destination: no copy was made, and its head is not settled. The worker puts
    another one in its place.
PAIR-2  The pairs that are kept are dense at the end, and the first one stays. So an older state of a topic, as a
    recovery brings it, has a pair before it.
GRAPH-1  A topic is the destination of one router at most. So the way into a topic is a line, and not a tree.
GRAPH-2  No line returns to where it began: a record would go round for ever, or the first append would be refused.

No I/O: bytes in, bytes out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from seglog.base.arguments import WHOLE_MAX
from seglog.base.dataclasses import dataclass
from seglog.base.errors import Conflict
from seglog.delivery.keyed_topic import UnreadableState

TOPIC: Final = "_seglog.routers"
"""The topic that has the records of all routers of a log."""
PAIRS_MAX: Final = 16
_VERSION = 1
_STATES = ("live", "paused", "deleted")


@dataclass(frozen=True, slots=True)
class Pair:
    """A place in the source, and the head of the destination when the router was there (PAIR-1)."""

    epoch: int
    seq: int
    ts_ms: int
    to_epoch: int
    to_head: int
    to_ts_ms: int

    def is_at(self, other: Pair) -> bool:
        """Return whether both are the same place in the same epochs."""
        return (self.epoch, self.seq, self.to_epoch, self.to_head) == (
            other.epoch,
            other.seq,
            other.to_epoch,
            other.to_head,
        )


@dataclass(frozen=True, slots=True)
class Router:
    """The state of a router, with at least one pair."""

    name: str
    id: str
    source: str
    destination: str
    source_is: str
    destination_is: str
    pairs: tuple[Pair, ...]
    tag: str | None = None
    grep: str | None = None
    drop_tag: bool = False
    drop_node: bool = False
    passed_over: int = 0
    cut: tuple[int, int] | None = None
    is_paused: bool = False
    is_deleted: bool = False

    @property
    def producer(self) -> str:
        """Return the id of the producer of its copies. A router that is made anew has another one."""
        return f"router:{self.name}/{self.id}"

    @property
    def newest(self) -> Pair:
        return self.pairs[-1]

    def at(self, pair: Pair) -> Router:
        """Return the router with one more pair (PAIR-2)."""
        if self.newest.is_at(pair):
            return self
        pairs = (*self.pairs, pair) if self.newest.to_epoch else (pair,)
        if len(pairs) > PAIRS_MAX:
            half = PAIRS_MAX // 2
            pairs = (*pairs[:half:2], *pairs[half:])
        return replace(self, pairs=pairs, cut=None)


def check_graph(routers: Iterable[Router], source: str, destination: str) -> None:
    """Raise `Conflict` if a router from `source` to `destination` may not join these (GRAPH-1, GRAPH-2)."""
    into = {router.destination: router for router in routers}
    if (other := into.get(destination)) is not None:
        text = f"router_dest_fan_in: topic {destination} takes the records of router {other.name} alone"
        raise Conflict(text, hint=f"`seglog router delete {other.name}` frees it, or copy into another topic")
    line = [source]
    while line[-1] != destination and line[-1] in into:
        line.append(into[line[-1]].source)
    if line[-1] == destination:
        path = " -> ".join([*reversed(line), destination])
        raise Conflict(f"that would be a cycle, which no record could enter or leave: {path}")


def encode_router(router: Router) -> bytes:
    members = {
        "version": _VERSION,
        "router": router.name,
        "id": router.id,
        "state": "deleted" if router.is_deleted else "paused" if router.is_paused else "live",
        "from": router.source,
        "to": router.destination,
        "from_is": router.source_is,
        "to_is": router.destination_is,
        "tag": router.tag,
        "grep": router.grep,
        "drop_tag": router.drop_tag,
        "drop_node": router.drop_node,
        "passed_over": router.passed_over,
        "cut": router.cut,
        "pairs": [
            [pair.epoch, pair.seq, pair.ts_ms, pair.to_epoch, pair.to_head, pair.to_ts_ms] for pair in router.pairs
        ],
    }
    return json.dumps(members).encode()


def decode_router(value: bytes, tag: str | None) -> Router:
    """Return the router of a record. Raise `UnreadableState` for a record that is none of this version."""
    try:
        return _decoded(json.loads(value), tag)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableState(f"this is no router of this version: {value[:50]!r} ({error!r})", tag) from error


def _decoded(members: dict[str, Any], tag: str | None) -> Router:
    if members["version"] != _VERSION or members["state"] not in _STATES or members["router"] != tag:
        raise ValueError("its version, state or tag does not fit")
    name, key, source, destination, source_is, destination_is = texts = [
        members[name] for name in ("router", "id", "from", "to", "from_is", "to_is")
    ]
    cut = None if members["cut"] is None else (members["cut"][0], members["cut"][1])
    numbers = [members["passed_over"], *(cut or ()), *(number for pair in members["pairs"] for number in pair)]
    drops = [members["drop_tag"], members["drop_node"]]
    if not all(type(text) is str for text in texts) or not all(type(drop) is bool for drop in drops):
        raise ValueError("a member is of another type")
    if not all(members[name] is None or type(members[name]) is str for name in ("tag", "grep")):
        raise ValueError("its filter is none")
    if not all(type(number) is int and 0 <= number <= WHOLE_MAX for number in numbers) or not members["pairs"]:
        raise ValueError("its numbers do not fit")
    return Router(
        name,
        key,
        source,
        destination,
        source_is,
        destination_is,
        pairs=tuple(Pair(*pair) for pair in members["pairs"]),
        tag=members["tag"],
        grep=members["grep"],
        drop_tag=drops[0],
        drop_node=drops[1],
        passed_over=members["passed_over"],
        cut=cut,
        is_paused=members["state"] == "paused",
        is_deleted=members["state"] == "deleted",
    )
