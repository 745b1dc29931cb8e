"""Test the background of the daemon: due work is done, failed work waits, and no work delays other work."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import offload
import seglog
from catalog.objects import ObjectStore
from catalog.objects.memory import MemoryStore
from offload.daemon.background.disk import DiskState
from offload.daemon.metrics import Metrics
from seglog import AppendsHeld, TopicConfig
from tests.faults.store import CountingStore, Fault, FaultyStore, WrappedStore, unreachable
from tests.offload.replicas import opened, ship, values
from tests.worlds.clock import HandClock
from tests.worlds.services import serving, until


class TopicFails(WrappedStore):
    """Fail every PUT of a ref of the topic, and count the failures."""

    def __init__(self, inner: ObjectStore, topic: str) -> None:
        super().__init__(inner)
        self._topic = topic
        self.failed = 0

    def _call(self, method, key, act):  # type: ignore[no-untyped-def]
        if method in {"put_new", "put"} and key.startswith(f"refs/{self._topic}/"):
            self.failed += 1
            raise unreachable(key)
        return act()


class Stuck(WrappedStore):
    """Block every request until the test sets `release`."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.release = threading.Event()
        self.waiting = threading.Event()

    def _call(self, method, key, act):  # type: ignore[no-untyped-def]
        self.waiting.set()
        assert self.release.wait(60)
        return act()


def test_a_sealed_segment_goes_when_it_is_old_enough_and_its_hot_copy_after_the_lag(tmp_path: Path) -> None:
    async def run() -> None:
        clock = HandClock()
        async with serving(tmp_path / "d", MemoryStore(), clock, OFFLOAD_OFFLOAD_AFTER_S="60") as service:
            assert service.archive is not None
            await service.log.topic("t").append([b"one", b"two"])
            service.sync.topic("t").seal()
            await asyncio.sleep(0.1)
            assert service.archive.status.offloaded_seq("t") == 0
            clock.ms += 60_000
            await until(lambda: service.archive.status.offloaded_seq("t") == 2, "the offload")
            await asyncio.sleep(0.1)
            assert service.sync.topic("t").inner.hot_floor == 1
            clock.ms += 4 * 3600 * 1000
            await until(lambda: service.sync.topic("t").inner.hot_floor == 3, "the release")
            assert [record.value for record in service.sync.topic("t").read()] == [b"one", b"two"]
            assert [record.value for record in service.sync.topic("t").read()] == [b"one", b"two"]
            counts = {name: (hits, misses) for name, hits, misses in service.archive.cache_counts()}
            assert set(counts) == {"index", "chunk"}
            assert counts["index"][0] > 0 < counts["index"][1]
            assert sum(counts["chunk"]) == 2
            text = service.metrics.text().decode()
            assert 'seglog_cache_requests_total{cache="chunk",outcome="hit"}' in text
            assert 'seglog_topic_forgotten_producers_total{topic="t"} 0.0' in text
            assert 'seglog_topic_keys{topic="t"} 0.0' in text
            await service.log.topic("t").append([b"keyed"], key="k")
            assert 'seglog_topic_keys{topic="t"} 1.0' in service.metrics.text().decode()

    asyncio.run(run())


def test_the_unsealed_tail_goes_in_its_interval(tmp_path: Path) -> None:
    async def run() -> None:
        clock = HandClock()
        async with serving(tmp_path / "d", MemoryStore(), clock, OFFLOAD_TAIL_INTERVAL_S="30") as service:
            assert service.archive is not None
            await service.log.topic("t").append([b"one"])
            await until(lambda: service.works.of("t").unsealed_since_ms is not None, "the first look")
            clock.ms += 29_999
            await asyncio.sleep(0.1)
            assert service.archive.status.offloaded_seq("t") == 0
            clock.ms += 1
            await until(lambda: service.archive.status.offloaded_seq("t") == 1, "the tail")

    asyncio.run(run())


def test_the_daemon_looks_at_a_topic_only_after_a_change(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path / "d", MemoryStore(), HandClock()) as service:
            assert service.archive is not None
            await service.log.topic("t").append([b"one"])
            work = service.works.of("t")
            await until(lambda: work.unsealed_since_ms is not None, "the first look")
            work.unsealed_since_ms = None  # the next look sets it again
            await asyncio.sleep(0.1)
            assert work.unsealed_since_ms is None
            for change in (
                lambda: service.sync.topic("t").append([b"two"]),
                lambda: service.sync.configure(
                    "t", replace(service.sync.topic("t").config, attributes={"offload_after_s": "9"})
                ),
                service.sync.checkpoint,
                lambda: (service.archive.offload("t"), service.archive.offload("t")),  # type: ignore[union-attr]
                lambda: service.reload({"SEGLOG_OFFLOAD_OFFLOAD_AFTER_S": "7"}),
            ):
                await asyncio.to_thread(change)
                await until(lambda: work.unsealed_since_ms is not None, f"the look after {change}")
                work.unsealed_since_ms = None

    asyncio.run(run())


def test_tails_that_are_due_together_are_sealed_together(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(40)]
    clock = HandClock()

    async def run() -> None:
        async with serving(tmp_path / "d", MemoryStore(), clock, OFFLOAD_TAIL_INTERVAL_S="30") as service:
            archive = service.archive
            assert archive is not None
            for name in names:
                await service.log.topic(name).append([b"one"])
            for name in names:
                await until(lambda: service.works.of(name).unsealed_since_ms is not None, "the first look")  # noqa: B023
            before = manifest_number(tmp_path / "d")
            clock.ms += 30_000
            await until(lambda: all(archive.status.offloaded_seq(name) == 1 for name in names), "the tails")
            assert manifest_number(tmp_path / "d") - before < 10

    asyncio.run(run())


def manifest_number(directory: Path) -> int:
    return max(int(path.name.split(".")[1]) for path in (directory / "meta").glob("snapshot.*.json"))


def test_a_topic_that_fails_waits_and_holds_no_other_up(tmp_path: Path) -> None:
    async def run() -> None:
        clock = HandClock()
        store = TopicFails(MemoryStore(), "bad")
        async with serving(tmp_path / "d", store, clock, OFFLOAD_OFFLOAD_AFTER_S="0") as service:
            assert service.archive is not None
            for name in ("bad", "good"):
                await service.log.topic(name).append([b"x"])
                service.sync.topic(name).seal()
            await until(lambda: service.archive.status.offloaded_seq("good") == 1, "the good topic")
            await until(lambda: service.works.of("bad").failures == 1, "the first failure")
            await asyncio.sleep(0.1)
            assert service.works.of("bad").failures == 1, "it was tried again before its time"
            assert "a fault" in str(service.works.of("bad").last_error)
            clock.ms += 1_000
            await until(lambda: service.works.of("bad").failures == 2, "the second try")
            service.works.retry("bad")
            await until(lambda: service.works.of("bad").failures == 1, "the try that was asked for")
            text = service.metrics.text().decode()
            assert 'seglog_offload_runs_total{outcome="failed"} 3.0' in text
            assert 'seglog_offload_runs_total{outcome="published"} 1.0' in text

    asyncio.run(run())


def test_a_paused_topic_is_left_alone_also_after_a_restart(tmp_path: Path) -> None:
    store = MemoryStore()

    async def run(*, resume: bool) -> None:
        async with serving(tmp_path / "d", store, OFFLOAD_OFFLOAD_AFTER_S="0") as service:
            assert service.archive is not None
            if not service.sync.has_topic("t"):
                service.sync.create_topic("t")
                service.archive.upkeep.pause("t")
                await service.log.topic("t").append([b"x"])
                service.sync.topic("t").seal()
            await asyncio.sleep(0.2)
            assert service.archive.status.offloaded_seq("t") == 0
            if resume:
                service.archive.upkeep.pause("t", paused=False)
                await until(lambda: service.archive.status.offloaded_seq("t") == 1, "the resumed topic")

    asyncio.run(run(resume=False))
    asyncio.run(run(resume=True))


def test_a_store_that_hangs_delays_no_append_and_no_hot_read(tmp_path: Path) -> None:
    async def run() -> None:
        store = Stuck(MemoryStore())
        async with serving(tmp_path / "d", store, OFFLOAD_OFFLOAD_AFTER_S="0", OFFLOAD_TOPICS_AT_ONCE="1") as service:
            for name in ("a", "b"):
                await service.log.topic(name).append([b"x"])
                service.sync.topic(name).seal()
            await until(store.waiting.is_set, "the first request")
            for number in range(200):
                await service.log.topic("a").append([b"%d" % number])
            assert len([record async for record in service.log.topic("a").read()]) == 201
            assert service.is_ready
            store.release.set()

    asyncio.run(run())


def test_an_offload_ends_at_its_next_step_when_the_daemon_stops_and_goes_on_at_the_next_start(tmp_path: Path) -> None:
    store = CountingStore(MemoryStore())

    async def first() -> None:
        async with serving(tmp_path / "d", store, OFFLOAD_OFFLOAD_AFTER_S="never") as service:
            assert service.archive is not None
            await service.log.topic("t").append([bytes(1_000)] * 5_000)
            service.sync.topic("t").seal()
            service.stopping.set()
            with pytest.raises(offload.errors.Stopping):
                await asyncio.to_thread(service.archive.offload, "t", on_bytes=service.runs.count_bytes)

    async def second() -> None:
        async with serving(tmp_path / "d", store, OFFLOAD_OFFLOAD_AFTER_S="0") as service:
            assert service.archive is not None
            await until(lambda: service.archive.status.offloaded_seq("t") == 5_000, "the rest")
            assert service.archive.status.topic("t").unfinished_attempts == 0

    asyncio.run(first())
    with seglog.open(tmp_path / "d") as log, offload.attach(log, store=store) as archive:
        assert archive.status.topic("t").unfinished_attempts == 1
    asyncio.run(second())


def test_below_the_bounds_of_the_disk_it_alarms_then_refuses_appends_and_takes_them_again(tmp_path: Path) -> None:
    async def run() -> None:
        huge = str(2**60)
        path = tmp_path / "d"
        async with serving(
            path, MemoryStore(), SERVE_DISK_ALARM_BYTES=huge, OFFLOAD_OFFLOAD_AFTER_S="never"
        ) as service:
            assert service.archive is not None
            await service.log.topic("t").append([b"x"])
            service.sync.topic("t").seal()
            await until(lambda: service.sync.topic("t").inner.hot_floor == 2, "the release, without a lag")
            assert service.disk is DiskState.ALARM
            assert service.is_ready
            (path / "seglog.toml").write_text(f"[serve]\ndisk_alarm_bytes = {huge}\ndisk_reject_bytes = {huge}\n")
            service.reload({"SEGLOG_SERVE_CHECK_INTERVAL_MS": "10"})
            await until(lambda: service.disk is DiskState.FULL, "the second bound")
            assert not service.is_ready
            with pytest.raises(AppendsHeld, match="disk_reject_bytes"):
                await service.log.topic("t").append([b"y"])
            assert [record.value for record in service.sync.topic("t").read()] == [b"x"]
            (path / "seglog.toml").write_text("")
            service.reload({"SEGLOG_SERVE_CHECK_INTERVAL_MS": "10"})
            await until(lambda: service.disk is not DiskState.FULL, "room again")
            await service.log.topic("t").append([b"y"])
            service.sync.hold_appends("a backup runs")
            for reject, is_full in ((huge, True), ("0", False)):
                (path / "seglog.toml").write_text(f"[log]\ndisk_reject_bytes = {reject}\n")
                service.reload({"SEGLOG_SERVE_CHECK_INTERVAL_MS": "10"})
                await until(lambda is_full=is_full: (service.disk is DiskState.FULL) == is_full, "the bound")  # type: ignore[misc]
                with pytest.raises(AppendsHeld, match="a backup runs"):
                    await service.log.topic("t").append([b"z"])

    asyncio.run(run())


def test_settings_that_do_not_fit_change_nothing_at_a_reload(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path / "d", MemoryStore()) as service:
            before = service.settings
            (tmp_path / "d" / "seglog.toml").write_text("[serve]\nport = 'x'\n")
            service.reload({})
            assert service.settings is before

    asyncio.run(run())


def test_every_request_is_counted_by_operation_and_outcome(tmp_path: Path) -> None:
    async def run() -> None:
        counting = CountingStore(FaultyStore(MemoryStore(), [Fault(1, "before", unreachable, "put_new")]))
        async with serving(tmp_path / "d", counting, OFFLOAD_OFFLOAD_AFTER_S="0") as service:
            assert service.archive is not None
            await service.log.topic("t").append([b"x"])
            service.sync.topic("t").seal()
            await until(lambda: service.archive.status.offloaded_seq("t") == 1, "the offload")
            text = service.metrics.text().decode()
            assert 'seglog_store_requests_total{operation="put_new",outcome="StoreUnreachable"} 1.0' in text
            for operation, count in counting.counts.items():
                lines = [line for line in text.splitlines() if f'requests_total{{operation="{operation}"' in line]
                assert sum(float(line.split()[-1]) for line in lines) == count, operation

    asyncio.run(run())


def test_the_first_scrape_shows_the_bytes_of_the_wal_as_they_are(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path / "d", MemoryStore()) as service:
            await service.log.topic("t").append([b"x"])
            assert _sample(service.metrics, "seglog_wal_bytes") == service.sync.wal_bytes > 0

    asyncio.run(run())


def test_what_is_appended_between_the_look_and_the_seal_of_a_tail_goes_with_it(tmp_path: Path) -> None:
    async def run() -> None:
        clock = HandClock()
        variables = {"OFFLOAD_OFFLOAD_AFTER_S": "never", "OFFLOAD_TAIL_INTERVAL_S": "1"}
        async with serving(tmp_path / "d", MemoryStore(), clock, **variables) as service:
            assert service.archive is not None
            topic = service.sync.topic("t")
            topic.append([b"one"])
            looked = service.archive.status.is_unfinished

            def late(name: str) -> bool:  # a look makes this call last, after it reads the head
                if clock.ms > HandClock().ms and topic.head_seq == 1:
                    topic.append([b"two"])
                return looked(name)

            service.archive.status.is_unfinished = late  # type: ignore[method-assign]
            await until(lambda: service.works.of("t").unsealed_since_ms is not None, "the first look")
            clock.ms += 1_000
            await until(lambda: service.archive.status.offloaded_seq("t") > 0, "the offload")
            assert service.archive.status.offloaded_seq("t") == 2

    asyncio.run(run())


def test_a_topic_that_cannot_be_looked_at_holds_up_no_other(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path / "d", MemoryStore(), OFFLOAD_OFFLOAD_AFTER_S="0") as service:
            assert service.archive is not None
            service.sync.create_topic("a", TopicConfig(attributes={"tail_interval_s": "soon"}))
            await service.log.topic("b").append([b"x"])
            service.sync.topic("b").seal()
            await until(lambda: service.archive.status.offloaded_seq("b") == 1, "the offload")
            await until(lambda: service.works.of("a").failures > 0, "the failure")
            assert "tail_interval_s" in str(service.works.of("a").last_error)

    asyncio.run(run())


def test_garbage_is_collected_in_its_interval_and_a_store_that_refuses_is_counted(tmp_path: Path) -> None:
    async def run() -> None:
        clock, store = HandClock(), MemoryStore()
        faulty = FaultyStore(store, [])
        settings = {"CATALOG_PITR_WINDOW_S": "0", "CATALOG_GC_GRACE_S": "0", "CATALOG_GC_INTERVAL_S": "3600"}
        async with serving(tmp_path / "d", faulty, clock, OFFLOAD_OFFLOAD_AFTER_S="1", **settings) as service:
            archive = service.archive
            assert archive is not None
            for number in (1, 2):
                await service.log.topic("t").append([b"x"])
                service.sync.topic("t").seal()
                clock.ms += 2_000
                await until(lambda number=number: archive.status.offloaded_seq("t") == number, "the offload")
            assert sum("/log/" in key for key in store.list("5")) == 2
            for _ in range(2):
                clock.ms += 3_600_000
                runs = _sample(service.metrics, "seglog_gc_runs_total", outcome="done")
                done = runs + 1
                await until(
                    lambda done=done: _sample(service.metrics, "seglog_gc_runs_total", outcome="done") == done, "gc"
                )
            assert sum("/log/" in key for key in store.list("5")) == 1
            assert _sample(service.metrics, "seglog_gc_deleted_objects_total", kind="commits") == 1
            faulty.fail([Fault(error=unreachable, method="list")])
            clock.ms += 3_600_000
            await until(lambda: _sample(service.metrics, "seglog_gc_runs_total", outcome="failed") == 1, "a failure")
            faulty.fail([])
            assert [record.value for record in service.sync.topic("t").read()] == [b"x", b"x"]

    asyncio.run(run())


def test_objects_are_rid_of_deleted_records_in_their_interval(tmp_path: Path) -> None:
    async def run() -> None:
        clock, store = HandClock(), MemoryStore()
        settings = {"CATALOG_ERASE_INTERVAL_S": "60", "CATALOG_GC_INTERVAL_S": "never"}
        async with serving(tmp_path / "d", store, clock, OFFLOAD_OFFLOAD_AFTER_S="1", **settings) as service:
            archive = service.archive
            assert archive is not None
            await service.log.topic("t").append([b"x", b"y"])
            service.sync.topic("t").seal()
            clock.ms += 2_000
            await until(lambda: archive.status.offloaded_seq("t") == 2, "the offload")
            archive.delete("t", before=2)  # if the offload still has the topic's lock, a later offload publishes it
            await until(lambda: sum("/log/" in key for key in store.list("5")) == 2, "the delete")
            await until(lambda: not service.sync.topic("t").inner.delete_ops(), "the answer to the delete")
            clock.ms += 60_000
            await until(lambda: sum("/log/" in key for key in store.list("5")) == 3, "the compaction")
            assert [record.value for record in service.sync.topic("t").read()] == [b"y"]

    asyncio.run(run())


def test_a_clock_that_goes_back_by_a_month_holds_up_no_task_and_no_retry(tmp_path: Path) -> None:
    async def run() -> None:
        clock, store = HandClock(), MemoryStore()
        with opened(tmp_path / "writer", store, clock) as (log, archive):
            ship(archive, log, "followed", b"x")
        settings = {f"CATALOG_{task}_INTERVAL_S": "3600" for task in ("SYNC", "GC", "ERASE")}
        failing = TopicFails(store, "bad")
        async with serving(tmp_path / "d", failing, clock, OFFLOAD_OFFLOAD_HOT_BYTES="0", **settings) as service:
            archive = service.archive
            assert archive is not None
            calls: Counter[str] = Counter()
            _count(calls, archive.replication, "follow")
            _count(calls, archive.upkeep, "collect", "erase", "drop_copies")
            archive.replication.sync("followed")
            await service.log.topic("bad").append([b"x"])
            service.sync.topic("bad").seal()
            clock.ms += 3_600_000
            await until(lambda: len(calls) == 4 and service.works.of("bad").failures > 0, "every task")
            for step_ms in (-30 * 24 * 3_600_000, 3_600_000):
                before, failures = Counter(calls), service.works.of("bad").failures
                clock.ms += step_ms
                for task in before:
                    await until(lambda task=task, before=before: calls[task] > before[task], task)
                await until(lambda failures=failures: service.works.of("bad").failures > failures, "the next try")
                assert 0 < service.works.of("bad").wait_ms(clock.ms) <= service.works.of("bad").delay_ms

    asyncio.run(run())


def _count(calls: Counter[str], service: object, *methods: str) -> None:
    def count(method: str) -> None:
        inner = getattr(service, method)

        def counted(*arguments: object, **options: object) -> object:
            calls[method] += 1
            return inner(*arguments, **options)

        setattr(service, method, counted)

    for method in methods:
        count(method)


def _sample(metrics: Metrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(name, labels) or 0


def test_a_daemon_follows_a_promotion_and_a_daemon_that_writes_main_is_stopped(tmp_path: Path) -> None:
    async def run() -> None:
        store = MemoryStore()
        with opened(tmp_path / "two", store) as (log, other):
            ship(other, log, "followed", b"a")
            async with serving(
                tmp_path / "one", store, CATALOG_SYNC_INTERVAL_S="1", OFFLOAD_OFFLOAD_AFTER_S="1"
            ) as service:
                archive = service.archive
                assert archive is not None
                archive.replication.sync("followed")
                ship(archive, service.sync, "written", b"a")
                for name in ("followed", "written"):
                    other.restore(name, to="head", name="fix")
                    ship(other, log, f"{name}@fix", b"x")
                    other.branches.promote_branch(name, "fix")
                await until(lambda: values(archive, "followed") == [b"a", b"x"], "the new main")
                await service.log.topic("written").append([b"late"])
                service.sync.topic("written").seal()
                await until(lambda: archive.status.topic("written").fenced_epoch is not None, "the fence")
                assert values(archive, "written") == [b"a", b"late"]

    asyncio.run(run())
