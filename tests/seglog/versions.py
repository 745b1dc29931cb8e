"""An oracle for topics that the tests truncate, evict, cap and configure: each topic is a list of versions.

Before an operation starts, it adds the versions that it may leave to its topic's list. An append adds one version for
each of its records. When the operation returns, its last version is acked. A crash leaves one of the versions from the
acked one to the newest one. The oracle compares that version with the state that recovery finds.

A version knows each record with its time, the epoch and the configuration. `evict_floor` has two bounds:

    at least   the floor that an eviction was acked for
    at most    the floor after the caps and after every expiry at any time so far; or the floor that an eviction names

The rest follows exactly from the version: live records, `earliest_seq`, and the gap that readers see.

The oracle does not check a time that a truncation sets back. `workload.py` checks tags, nodes and ephemeral records.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from seglog import Log, SeglogError, TopicConfig, TopicFull
from tests.seams.log import engine_of
from tests.worlds.clock import HandClock

if TYPE_CHECKING:
    from tests.seglog.workload import FoundTopic

__all__ = ["Version", "Versions"]


@dataclass(frozen=True, slots=True)
class Version:
    """A state of a topic. `records` holds time and value of each seq from 1. All seqs below `deleted` are deleted."""

    epoch: int
    config: TopicConfig
    records: tuple[tuple[int, bytes], ...] = ()
    deleted: int = 1
    lost_least: int = 1
    lost_most: int = 1

    @property
    def head(self) -> int:
        return len(self.records)

    def aged(self, now_ms: int) -> Version:
        """Return this version with `lost_most` raised to all that retention may evict at `now_ms`."""
        most, config = self.lost_most, self.config
        if config.cap_records is not None and config.discard == "old":
            most = max(most, self.head + 1 - config.cap_records)
        if config.ttl_ms is not None:
            most = max(most, 1 + sum(ts_ms < now_ms - config.ttl_ms for ts_ms, _ in self.records))
        return replace(self, lost_most=most)

    def cut(self, seq: int) -> Version:
        """Return the version after a truncation to `seq`."""
        return Version(
            self.epoch + 1,
            self.config,
            self.records[: seq - 1],
            min(self.deleted, seq),
            min(self.lost_least, seq),
            min(self.lost_most, seq),
        )

    def is_shown_by(self, found: FoundTopic) -> bool:
        if (found.kind, found.head) != ((self.epoch, self.config), self.head):
            return False
        if not self.lost_least <= found.evict_floor <= self.lost_most:
            return False
        first = max(self.deleted, found.evict_floor)
        told = {seq for gap in found.lost for seq in range(gap.gap_from, gap.gap_to + 1)}
        live = tuple((seq, value, None) for seq, (_, value) in enumerate(self.records, 1) if seq >= first)
        times = [ts_ms for ts_ms, _ in self.records[first - 1 :]]
        return (
            found.live == live
            and [ts_ms for _, (ts_ms, _, _) in found.details] == times
            and found.earliest_seq == first
            and {*range(self.deleted, found.evict_floor)} <= told <= {*range(1, found.evict_floor)}
        )


@dataclass
class Versions:
    """The versions of all topics.

    `known` lists the versions of each topic. A version is None while the topic does not exist.
    `acked` is the index of the topic's last durable version.
    """

    known: dict[str, list[Version | None]] = field(default_factory=dict[str, "list[Version | None]"])
    acked: dict[str, int] = field(default_factory=dict[str, int])

    def create(self, log: Log, name: str, config: TopicConfig) -> None:
        self.known.setdefault(name, [None])
        self._do(log, name, lambda: log.create_topic(name, config), lambda _: [Version(1, config)])

    def append(self, log: Log, name: str, count: int, durability: str = "fsync") -> None:
        """Append `count` records. Check that TopicFull is raised exactly if the topic is full."""
        topic, ts_ms = log.topic(name), max(_clock(log).ms, log.topic(name).last_ts_ms)
        values = [b"%s %d.%d " % (name.encode(), topic.epoch, topic.head_seq + 1 + i) * 5 for i in range(count)]
        config, wanted = topic.config, topic.head_seq + count + 1 - topic.earliest_seq
        is_full = config.discard == "reject" and config.cap_records is not None and wanted > config.cap_records

        def grown(now: Version | None) -> list[Version]:
            now = Version(1, log.topic_defaults) if now is None else now
            records = [(ts_ms, value) for value in values]
            return [replace(now, records=(*now.records, *records[:part])) for part in range(count + 1)]

        with contextlib.suppress(TopicFull):
            self._do(log, name, lambda: topic.append(values, durability=durability), grown, durability == "fsync")
            assert not is_full
            self._evicted(log, name)
            return
        assert is_full

    def truncate(self, log: Log, name: str, seq: int) -> None:
        self._do(log, name, lambda: log.topic(name).truncate(seq), lambda now: [_made(now).cut(seq)])

    def delete(self, log: Log, name: str, before: int) -> None:
        below = min(before, log.topic(name).head_seq + 1)
        self._do(
            log,
            name,
            lambda: log.topic(name).delete(before=before),
            lambda now: [replace(_made(now), deleted=max(_made(now).deleted, below))],
        )

    def evict(self, log: Log, name: str, before: int) -> None:
        below = min(before, log.topic(name).head_seq + 1)
        self._do(
            log,
            name,
            lambda: log.topic(name).evict(before),
            lambda now: [replace(_made(now), lost_most=max(_made(now).lost_most, below))],
        )
        if not log.is_poisoned and below > _made(self._now(log, name)).deleted:
            self._raise(name, below)

    def configure(self, log: Log, name: str, config: TopicConfig) -> None:
        self._do(log, name, lambda: log.configure(name, config), lambda now: [replace(_made(now), config=config)])

    def enforce(self, log: Log) -> None:
        for done in log.enforce_retention():
            self._raise(done.topic, done.evicted_seq + 1)

    def move_clock(self, log: Log, ms: int) -> None:
        """Move the clock ahead by `ms`, or back if `ms` is negative."""
        clock = _clock(log)
        for name, known in self.known.items():
            least = self.acked.get(name, 0)
            if not log.is_poisoned:  # Only the next recovery knows which version a poisoned log has.
                self._now(log, name)
                least = len(known) - 1
            known += [each and each.aged(clock.ms + ms) for each in known[least:]]
        clock.ms += ms

    def checkpoint(self, log: Log) -> None:
        """Run a checkpoint and mark every version as durable."""
        log.checkpoint()
        self.settle(log)

    def settle(self, log: Log | None = None) -> None:
        """Mark every version as durable. Call this after a checkpoint, or without `log` after a close."""
        for name, known in self.known.items():
            if log is not None:
                self._now(log, name)
            self.acked[name] = len(known) - 1

    def with_losses(self) -> set[str]:
        """Return the topics that have an acked eviction."""
        return {name for name, known in self.known.items() if (now := known[-1]) is not None and now.lost_least > 1}

    def bounds(self) -> dict[str, tuple[int, int]]:
        return {name: (self.acked.get(name, 0), len(known) - 1) for name, known in self.known.items()}

    def lost(self, found: Mapping[str, FoundTopic], bounds: Mapping[str, tuple[int, int]]) -> str | None:
        """Return an error text if a topic shows a version older than the acked one, else None."""
        for name, (least, _) in bounds.items():
            is_bound = self._shown(name, found.get(name), *bounds[name]) is not None
            if not is_bound and self._shown(name, found.get(name), 0, least - 1) is not None:
                return f"{name} is {found.get(name)}, and {self.known[name][least]} was acked"
        return None

    def phantom(self, found: Mapping[str, FoundTopic], bounds: Mapping[str, tuple[int, int]]) -> str | None:
        """Return an error text if a topic shows none of its versions, else None."""
        for name, (_, most) in bounds.items():
            if self._shown(name, found.get(name), 0, most) is None:
                return f"{name} is {found.get(name)}, and was {self.known[name][: most + 1]}"
        return None

    def resumed(self, found: Mapping[str, FoundTopic], bounds: Mapping[str, tuple[int, int]]) -> Versions:
        """Return the versions for the life after the crash: the state that recovery found is the only version."""
        again = Versions()
        for name, (least, most) in bounds.items():
            shown, topic = self._shown(name, found.get(name), least, most), found.get(name)
            assert shown is not None
            now = self.known[name][shown]
            again.known[name] = [now if now is None or topic is None else replace(now, lost_least=topic.evict_floor)]
        return again

    def _shown(self, name: str, found: FoundTopic | None, least: int, most: int) -> int | None:
        for index in range(most, least - 1, -1):
            known = self.known[name][index]
            if (known is None) == (found is None) and (known is None or found is None or known.is_shown_by(found)):
                return index
        return None

    def _do(
        self,
        log: Log,
        name: str,
        act: Callable[[], object],
        tried: Callable[[Version | None], list[Version]],
        is_durable: bool = True,
    ) -> None:
        """Add the versions that `tried` returns, then run `act`.

        If `act` fails, delete the versions that the log cannot have. If `act` poisons the log, keep all of them: only
        recovery shows which one is durable. If the log is poisoned before the call, add no version.
        """
        if log.is_poisoned:
            act()
            return
        now, known = self._now(log, name), self.known[name]
        before = len(known)
        known += [each.aged(_clock(log).ms) for each in tried(now)]
        try:
            act()
        except SeglogError:
            if not log.is_poisoned:
                if _fits(now, log, name):  # a refused delete or eviction changes neither epoch nor head
                    del known[before:]
                self._now(log, name)
            raise
        if is_durable:
            self.acked[name] = len(known) - 1

    def _now(self, log: Log, name: str) -> Version | None:
        """Return the newest version that fits the running log, and delete the later ones."""
        known = self.known[name]
        for index in range(len(known) - 1, self.acked.get(name, 0) - 1, -1):
            if _fits(known[index], log, name):
                del known[index + 1 :]
                return known[index]
        raise AssertionError(f"{name} shows {_shown(log, name)}, and was {known[self.acked.get(name, 0) :]}")

    def _evicted(self, log: Log, name: str) -> None:
        """Record the eviction that a cap or a ttl caused during an append. Expiry alone does not count."""
        self._raise(name, engine_of(log).state(name).floors.evict_floor)

    def _raise(self, name: str, floor: int) -> None:
        """Record a durable eviction below `floor`. All earlier versions are durable with it."""
        known = self.known[name]
        if (now := known[-1]) is not None and floor > now.lost_least:
            assert floor <= now.lost_most
            known.append(replace(now, lost_least=floor))
            self.acked[name] = len(known) - 1


def _shown(log: Log, name: str) -> tuple[int, TopicConfig, int] | None:
    topic = log.topic(name)
    return (topic.epoch, topic.config, topic.head_seq) if topic.exists else None


def _fits(version: Version | None, log: Log, name: str) -> bool:
    return (version and (version.epoch, version.config, version.head)) == _shown(log, name)


def _made(version: Version | None) -> Version:
    assert version is not None
    return version


def _clock(log: Log) -> HandClock:
    return cast("HandClock", engine_of(log).clock)
