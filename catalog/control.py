"""What makes a volume and gives it a name: values only. `catalog.encoding` turns them into objects and back.

N1  A Control is written once, before anything else of its volume, and never changes.
N2  A Ref is the only place where a name becomes a vid.
N3  A Fork lies in the parent volume and is written before the fork's Ref, so that whoever looks at a volume
    sees every fork that may still need its commits.

Source: Graft RFC 0001 (Control, Fork); Ref is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.commit import ForkPoint
from catalog.gid import Vid

__all__ = ["MAIN", "Control", "Fork", "Ref"]

MAIN = "main"
"""The branch that a topic's own history is on."""


@dataclass(frozen=True, slots=True)
class Control:
    """`parent` is the fork point, if the volume is a fork. `created_at_ms` is in ms since the epoch."""

    vid: Vid
    parent: ForkPoint | None
    created_at_ms: int
    topic: str
    branch: str


@dataclass(frozen=True, slots=True)
class Fork:
    fork_vid: Vid
    parent: ForkPoint


@dataclass(frozen=True, slots=True)
class Ref:
    vid: Vid
    created_at_ms: int
