"""The topics that only the daemon writes: `_streams`, and those whose names begin with `_seglog.`.

    _streams           the entries of the streams (offload.daemon.streams.entries)
    _seglog.cursors    the states of the cursors (seglog.delivery.cursor)
    _seglog.queues     the events of the queues (seglog.delivery.queue)
    _seglog.routers    the states of the routers (seglog.delivery.router)
    _seglog.*          kept for later versions

RESERVED-1  No client appends to such a topic, removes its records, or makes or changes the topic. An entry of
    `_streams` says which topics the daemon deletes, and a lost entry loses its stream; a lost record of a cursor sends
    its reader back. So the rights of the client make no difference.
RESERVED-2  What a reader of an archive may do is open: reads, offload, seal, compaction, a branch, and repairs after
    two directories wrote the topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seglog.base.errors import Conflict

STREAMS_TOPIC = "_streams"
_OURS = "_seglog."
_CHANGES = frozenset({"branch/promote", "delete", "evict", "topic/create", "topic/delete", "topic/set", "truncate"})


def check_open(topic: str) -> None:
    """Raise `Conflict` if only the daemon writes the topic."""
    name = topic.removesuffix("@main")
    if name == STREAMS_TOPIC:
        text = f"topic {name} holds the streams of the daemon, and only the daemon writes it"
        raise Conflict(text, hint="make, write and delete streams with /streams/PATH")
    if name.startswith(_OURS):
        text = (
            f"topic {name[:150]} belongs to the daemon, and only the daemon writes it: names with {_OURS} are its own"
        )
        raise Conflict(text, hint="use `seglog cursor` and `seglog router`, and take another name for a topic of yours")


def check_command_on(path: str, values: Mapping[str, Any]) -> None:
    """Raise `Conflict` if a command, which more than reads, would change a topic that only the daemon writes."""
    if path in _CHANGES:
        check_open(values["topic"])
    if path == "copy":
        check_open(values["new"])
