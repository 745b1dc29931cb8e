"""Topics that are truncated, evicted, capped, configured and grow old, as lists of versions.

Each operation adds the versions that it may leave to its topic's list, before it starts. An append adds one for each of
its records. When the operation returns, its last version is acked. A crash leaves one version, from the acked one to
the newest one: the oracle compares all of it with what a recovery finds.

Of a version, each record is known with its time, and so are the epoch and the configuration. `evict_floor` has bounds:

    at least   what an eviction was acked for
    at most    what the caps leave over, and what was past the ttl at any time; or what an eviction was asked for

Everything else follows exactly: live records, `earliest_seq`, and the gap that readers are told.

Not seen: a time that goes back by a truncation; tags, nodes and ephemeral records (`workload.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from seglog import Log, SeglogError, TopicConfig, TopicFull
from tests.seglog.clocks import SetClock

if TYPE_CHECKING:
    from tests.seglog.workload import FoundTopic

__all__ = ["Version", "Versions"]


@dataclass(frozen=True, slots=True)
class Version:
    """`records` are time and value of each seq from 1 on. Below `deleted` all was deleted."""

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
        """With all that retention may take at that time."""
        most, config = self.lost_most, self.config
        if config.cap_records is not None and config.discard == "old":
            most = max(most, self.head + 1 - config.cap_records)
        if config.ttl_ms is not None:
            most = max(most, 1 + sum(ts_ms < now_ms - config.ttl_ms for ts_ms, _ in self.records))
        return replace(self, lost_most=most)

    def cut(self, seq: int) -> Version:
        """After a truncation."""
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
    """`known` are the versions of each topic, None for none; `acked` is the index of the last one that is durable."""

    known: dict[str, list[Version | None]] = field(default_factory=dict[str, "list[Version | None]"])
    acked: dict[str, int] = field(default_factory=dict[str, int])

    def create(self, log: Log, name: str, config: TopicConfig) -> None:
        self.known.setdefault(name, [None])
        self._do(log, name, lambda: log.create_topic(name, config), lambda _: [Version(1, config)])

    def append(self, log: Log, name: str, count: int, durability: str = "fsync") -> None:
        """A topic that is full refuses it, and no other topic does."""
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
        """Ahead, or back."""
        clock = _clock(log)
        for name, known in self.known.items():
            least = self.acked.get(name, 0)
            if not log.is_poisoned:  # Else only the next recovery knows which of them the log has.
                self._now(log, name)
                least = len(known) - 1
            known += [each and each.aged(clock.ms + ms) for each in known[least:]]
        clock.ms += ms

    def checkpoint(self, log: Log) -> None:
        """All is durable after it."""
        log.checkpoint()
        self.settle(log)

    def settle(self, log: Log | None = None) -> None:
        """All is durable: after a checkpoint, or after the log was closed."""
        for name, known in self.known.items():
            if log is not None:
                self._now(log, name)
            self.acked[name] = len(known) - 1

    def with_losses(self) -> set[str]:
        """Topics that an eviction was acked for."""
        return {name for name, known in self.known.items() if (now := known[-1]) is not None and now.lost_least > 1}

    def bounds(self) -> dict[str, tuple[int, int]]:
        return {name: (self.acked.get(name, 0), len(known) - 1) for name, known in self.known.items()}

    def lost(self, found: Mapping[str, FoundTopic], bounds: Mapping[str, tuple[int, int]]) -> str | None:
        """Which topic shows a version that is older than the acked one."""
        for name, (least, _) in bounds.items():
            is_bound = self._shown(name, found.get(name), *bounds[name]) is not None
            if not is_bound and self._shown(name, found.get(name), 0, least - 1) is not None:
                return f"{name} is {found.get(name)}, and {self.known[name][least]} was acked"
        return None

    def phantom(self, found: Mapping[str, FoundTopic], bounds: Mapping[str, tuple[int, int]]) -> str | None:
        """Which topic shows what it never was."""
        for name, (_, most) in bounds.items():
            if self._shown(name, found.get(name), 0, most) is None:
                return f"{name} is {found.get(name)}, and was {self.known[name][: most + 1]}"
        return None

    def resumed(self, found: Mapping[str, FoundTopic], bounds: Mapping[str, tuple[int, int]]) -> Versions:
        """What was found is durable from now on, and nothing else was ever tried."""
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
        """If the operation fails, its versions stay as far as the log may have them. A poisoned log has none."""
        if log.is_poisoned:
            act()
            return
        known = self.known[name]
        known += [each.aged(_clock(log).ms) for each in tried(self._now(log, name))]
        try:
            act()
        except SeglogError:
            if not log.is_poisoned:
                self._now(log, name)
            raise
        if is_durable:
            self.acked[name] = len(known) - 1

    def _now(self, log: Log, name: str) -> Version | None:
        """The newest version that fits the running log. It has no later one."""
        known, topic = self.known[name], log.topic(name)
        shown = (topic.epoch, topic.config, topic.head_seq) if topic.exists else None
        for index in range(len(known) - 1, self.acked.get(name, 0) - 1, -1):
            each = known[index]
            if (each and (each.epoch, each.config, each.head)) == shown:
                del known[index + 1 :]
                return each
        raise AssertionError(f"{name} shows {shown}, and was {known[self.acked.get(name, 0) :]}")

    def _evicted(self, log: Log, name: str) -> None:
        """What a cap or a ttl took on the way, without what is only known as expired."""
        self._raise(name, log._engine.state(name).floors.evict_floor)

    def _raise(self, name: str, floor: int) -> None:
        """An eviction is durable, with all that came before it."""
        known = self.known[name]
        if (now := known[-1]) is not None and floor > now.lost_least:
            assert floor <= now.lost_most
            known.append(replace(now, lost_least=floor))
            self.acked[name] = len(known) - 1


def _made(version: Version | None) -> Version:
    assert version is not None
    return version


def _clock(log: Log) -> SetClock:
    return cast("SetClock", log._engine.clock)
