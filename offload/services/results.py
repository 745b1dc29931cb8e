"""The results of the calls that change a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from seglog.base.dataclasses import dataclass
from seglog.values.protocols import Removed

if TYPE_CHECKING:
    from catalog import Vid
    from offload.write.publisher import Published

__all__ = ["Copied", "OffloadResult", "Removed", "Restored", "TopicRemoved"]


@dataclass(frozen=True, slots=True)
class OffloadResult:
    """The result of `offload`. `released_seq` is the last seq whose hot copy was deleted; 0 if none was."""

    published: tuple[Published, ...]
    released_seq: int
    offloaded_seq: int
    unsealed_records: int


@dataclass(frozen=True, slots=True)
class Restored:
    """A new branch, and its contents. `last_seq` and `last_ts_ms` are 0 if the branch is empty."""

    vid: Vid
    records: int
    last_seq: int
    last_ts_ms: int


@dataclass(frozen=True, slots=True)
class Copied(Restored):
    """A new topic, and its contents. `moved_bytes` are those of its data objects, 0 if it shares the source's."""

    moved_bytes: int


@dataclass(frozen=True, slots=True)
class TopicRemoved:
    """The result of `delete_topic`: the topic was `deleted` for good, `detached` from this directory, or `unfollowed`.

    The remote has the topic up to `lsn`, or nothing of it if `lsn` is None. `records` and `deletes` count the local
    changes that were dropped without an offload.
    """

    outcome: Literal["deleted", "detached", "unfollowed"]
    lsn: int | None
    records: int = 0
    deletes: int = 0
