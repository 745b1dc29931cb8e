"""When a topic is offloaded without anybody asking, decided from values. No I/O.

    trigger              a sealed segment is due when
    age                  its newest record is `offload_after_s` old
    bytes                newer sealed segments, counted from the newest, already hold `offload_hot_bytes`
    tail                 `tail_interval_s` have passed since something unsealed was first seen: the tail is sealed, and
                         everything goes. So a lost machine loses no more than that.
    unfinished           an earlier attempt left something to settle, or a delete waits that only needs a commit

T1  The oldest go first, always: what is due takes everything below with it.
T2  A topic that is paused, or has diverged, is never due. One that failed waits: `Backoff`.
T3  `never` is a word, not a number: no value of a bound means anything but itself.
T4  A clock that goes back holds up no task: what was done later than now is due again (`is_over`). Only the age of
    records counts by what they say.

Source: PIP-17 ("Triggering an offload").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from offload.settings import OffloadSettings, trigger_overrides
from seglog import SegmentInfo

__all__ = ["Backlog", "Backoff", "Due", "Policy", "due", "is_over", "policy_of"]


@dataclass(frozen=True, slots=True)
class Policy:
    """Of one topic. None: never."""

    after_ms: int | None
    hot_bytes: int | None
    tail_interval_ms: int | None


def policy_of(settings: OffloadSettings, attributes: Mapping[str, str]) -> Policy:
    """That of the settings, but for what the topic's own attributes say (offload.settings, TRIGGERS)."""
    own = replace(settings, **trigger_overrides(attributes))
    after_s, hot_bytes, interval_s = own.offload_after_s, own.offload_hot_bytes, own.tail_interval_s
    return Policy(
        after_ms=after_s * 1000 if isinstance(after_s, int) else None,
        hot_bytes=hot_bytes if isinstance(hot_bytes, int) else None,
        tail_interval_ms=interval_s * 1000 if isinstance(interval_s, int) else None,
    )


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a topic has that the remote does not. `sealed` are its sealed segments above `offloaded_seq`, ascending.

    `unsealed_since_ms` is when a record that is in no sealed segment was first seen; None if there is none.
    """

    sealed: Sequence[SegmentInfo]
    offloaded_seq: int
    head_seq: int
    unsealed_since_ms: int | None
    is_unfinished: bool


@dataclass(frozen=True, slots=True)
class Due:
    """Offload up to `up_to`, after sealing the tail if `seal` says so. `reason` is the trigger."""

    up_to: int
    reason: str
    seal: bool = False


def due(backlog: Backlog, policy: Policy, now_ms: int) -> Due | None:
    """What has to be done now, if anything."""
    since_ms, interval_ms = backlog.unsealed_since_ms, policy.tail_interval_ms
    if since_ms is not None and interval_ms is not None and is_over(since_ms, interval_ms, now_ms):
        return Due(backlog.head_seq, "tail", seal=True)
    found = [
        Due(up_to, reason)
        for up_to, reason in ((_by_age(backlog, policy, now_ms), "age"), (_by_bytes(backlog, policy), "bytes"))
        if up_to
    ]
    if found:
        return max(found, key=lambda each: each.up_to)
    return Due(backlog.offloaded_seq, "unfinished") if backlog.is_unfinished else None


def _by_age(backlog: Backlog, policy: Policy, now_ms: int) -> int:
    if policy.after_ms is None:
        return 0
    old = [segment.last_seq for segment in backlog.sealed if now_ms - segment.max_ts_ms >= policy.after_ms]
    return old[-1] if old else 0


def _by_bytes(backlog: Backlog, policy: Policy) -> int:
    if policy.hot_bytes is None:
        return 0
    newer = 0
    for segment in reversed(backlog.sealed):
        if newer >= policy.hot_bytes:
            return segment.last_seq
        newer += segment.data_bytes
    return 0


def is_over(since_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Whether so much time has passed; so it has, too, if the clock has gone back behind `since_ms` (T4)."""
    return not 0 <= now_ms - since_ms < interval_ms


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a topic waits after its n-th failure in a row: twice as long each time, less up to half by `chance`."""

    min_ms: int
    max_ms: int

    def delay_ms(self, failures: int, chance: float) -> int:
        """`chance` is from 0 to 1."""
        longest = min(self.max_ms, self.min_ms * 2 ** min(failures - 1, 40))
        return max(self.min_ms, int(longest * (1 - chance / 2)))
