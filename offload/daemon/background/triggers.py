"""The triggers decide from values when the daemon offloads a topic on its own. No I/O.

    trigger              a topic is due when
    age                  The newest record of a sealed segment is `offload_after_s` old.
    bytes                The sealed segments above a sealed segment hold `offload_hot_bytes` or more.
    tail                 `tail_interval_s` have passed since the daemon first saw an unsealed record. The daemon then
                         seals the tail and offloads everything, so a lost machine loses no more than that interval.
    unfinished           A commit, an attempt, a truncation or a delete waits that needs no new records.

TRIGGER-1  The oldest segments go first: an offload of a due segment takes every segment below it.
TRIGGER-2  A topic that is paused or has diverged is never due. After a failure a topic waits (`Backoff`).
TRIGGER-3  `never` is a word, not a number. No number of a bound has a special meaning.
TRIGGER-4  If the clock goes back, no task stalls: a task whose last run lies in the future is due again (`is_over`).
    Only the trigger `age` relies on the times of records.

Source: PIP-17 ("Triggering an offload").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from offload.settings import OffloadSettings, bound_of, trigger_overrides
from seglog import SegmentInfo
from seglog.base.dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """The bounds of one topic's triggers. With None the trigger never fires."""

    after_ms: int | None
    hot_bytes: int | None
    tail_interval_ms: int | None


def policy_of(settings: OffloadSettings, attributes: Mapping[str, str]) -> Policy:
    """Return the policy of the settings. The topic's attributes override them (offload.settings, TRIGGERS)."""
    overrides = trigger_overrides(attributes)
    own = replace(settings, **overrides) if overrides else settings
    after_s, hot_bytes, interval_s = own.offload_after_s, own.offload_hot_bytes, own.tail_interval_s
    return Policy(
        after_ms=after_s * 1000 if isinstance(after_s, int) else None,
        hot_bytes=bound_of(hot_bytes),
        tail_interval_ms=interval_s * 1000 if isinstance(interval_s, int) else None,
    )


@dataclass(frozen=True, slots=True)
class Backlog:
    """The part of a topic that the remote lacks. `sealed` are its sealed segments above `offloaded_seq`, ascending.

    `unsealed_since_ms` is the time when the daemon first saw an unsealed record. It is None if there is none.
    """

    sealed: Sequence[SegmentInfo]
    offloaded_seq: int
    head_seq: int
    unsealed_since_ms: int | None
    is_unfinished: bool


@dataclass(frozen=True, slots=True)
class Due:
    """An offload up to `up_to`. If `seal` is set, the daemon seals the tail first. `reason` is the trigger."""

    up_to: int
    reason: str
    seal: bool = False


def due(backlog: Backlog, policy: Policy, now_ms: int) -> Due | None:
    """Return the offload that is due now, or None."""
    since_ms, interval_ms = backlog.unsealed_since_ms, policy.tail_interval_ms
    if since_ms is not None and interval_ms is not None and is_over(since_ms, interval_ms, now_ms):
        return Due(backlog.head_seq, "tail", seal=True)
    offloads = [
        Due(up_to, reason)
        for up_to, reason in ((_by_age(backlog, policy, now_ms), "age"), (_by_bytes(backlog, policy), "bytes"))
        if up_to
    ]
    if offloads:
        return max(offloads, key=lambda offload: offload.up_to)
    return Due(backlog.offloaded_seq, "unfinished") if backlog.is_unfinished else None


def next_due_ms(backlog: Backlog, policy: Policy) -> int | None:
    """Return the time at which a topic that is not due is due next, if nothing changes; None: never."""
    times = []
    if backlog.unsealed_since_ms is not None and policy.tail_interval_ms is not None:
        times.append(backlog.unsealed_since_ms + policy.tail_interval_ms)
    if backlog.sealed and policy.after_ms is not None:
        times.append(min(segment.max_ts_ms for segment in backlog.sealed) + policy.after_ms)
    return min(times, default=None)


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
    """Return whether the interval has passed, or the clock has gone back to before `since_ms` (TRIGGER-4)."""
    return not 0 <= now_ms - since_ms < interval_ms
