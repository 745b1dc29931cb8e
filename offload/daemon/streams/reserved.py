"""The topic `_streams` has the entries of the streams, and only the daemon writes it.

STREAMS-1  No client appends to `_streams`, removes its records, or changes the topic. An entry says which topics the
    daemon deletes, and a lost entry loses its stream. So the rights of the client make no difference.
STREAMS-2  What a reader of an archive may do is open: reads, offload, seal, compaction, a branch, and repairs after two
    directories wrote the topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seglog.base.errors import Conflict

TOPIC = "_streams"
_CHANGES = frozenset({"branch/promote", "delete", "evict", "topic/create", "topic/delete", "topic/set", "truncate"})


def check_open(topic: str) -> None:
    """Raise `Conflict` if only the daemon writes the topic."""
    if topic.removesuffix("@main") == TOPIC:
        text = f"topic {TOPIC} holds the streams of the daemon, and only the daemon writes it"
        raise Conflict(text, hint="make, write and delete streams with /streams/PATH")


def check_command_on(path: str, values: Mapping[str, Any]) -> None:
    """Raise `Conflict` if a command, which more than reads, would change a topic that only the daemon writes."""
    if path in _CHANGES:
        check_open(values["topic"])
