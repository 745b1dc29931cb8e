"""Test streams where two requests meet."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import seglog
from offload.daemon.service import Service
from offload.daemon.streams import live as live_module
from offload.daemon.streams import store, stream_endpoint
from offload.daemon.streams.appends import append
from offload.daemon.streams.entries import Entry, State, decode_entry
from offload.daemon.streams.errors import NoSuchStream, StreamGone, StreamRefused
from offload.daemon.streams.live import Live
from offload.daemon.streams.reads import is_news, next_piece, read_piece
from offload.daemon.streams.registry import Registry
from offload.daemon.streams.requests import Fork, append_of, create_of
from offload.daemon.streams.store import Streams
from offload.daemon.threads import in_threads
from tests.seams.limits import Limit, set_limit
from tests.worlds.clock import HandClock
from tests.worlds.services import serving, until

_TEXT = create_of({"content-type": "text/plain"})


def test_a_sweep_never_deletes_a_stream_that_was_made_again_meanwhile(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "d") as log:
        log.topic("_streams").append([entry_of("old", ttl_s=1), entry_of("b", state="dying")])
        log.topic("b").append([b"former"])

    async def run() -> None:
        clock = HandClock()
        async with serving(tmp_path / "d", "", clock) as service:
            streams = Streams(service)
            old = await streams.find("old")
            async with old.turns.shared():  # as an append does that takes long
                clock.ms += 20_000
                sweeping = asyncio.create_task(streams.sweep())
                for _ in range(20):  # the sweep waits for the turn of `old`
                    await asyncio.sleep(0)
                assert (await streams.create("b", _TEXT, b"new"))[0]
            await sweeping
            live = await streams.find("b")
            assert (await read_piece(service, live, live.entry.base)).values == (b"new",)

    asyncio.run(run())


def test_a_source_that_is_deleted_while_a_fork_is_made_gives_no_fork_without_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with serving(tmp_path / "d", (tmp_path / "remote").as_uri()) as service:
            streams, divergence = Streams(service), store.divergence

            async def then_delete(service: Service, source: Live, fork: Fork) -> tuple[int, bytes]:
                found = await divergence(service, source, fork)
                await streams.delete("source")
                return found

            monkeypatch.setattr(store, "divergence", then_delete)
            await streams.create("source", _TEXT, b"inherited")
            wanted = create_of({"stream-forked-from": "/streams/source"})
            with pytest.raises(StreamRefused, match="its source source was deleted"):
                await streams.create("fork", wanted, b"")
            with pytest.raises(NoSuchStream):
                await streams.find("fork")

    asyncio.run(run())


def held_once(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """Hold the result of the next work that a module gives to threads. Return two events: it waits, and its release."""
    waits, release = asyncio.Event(), asyncio.Event()

    async def work(*given: Any) -> Any:
        is_first = not waits.is_set()
        found = await in_threads(*given)
        if is_first:
            waits.set()
            await release.wait()
        return found

    monkeypatch.setattr(module, "in_threads", work)
    return waits, release


def entry_of(path: str = "s", **more: object) -> bytes:
    """Return the entry of a stream that is there."""
    given = {"content_type": "text/plain", "base": 0, "own": 0, "path": path, "topic": path, "state": "live"}
    return json.dumps(given | more).encode()


def with_stream(directory: Path, *values: bytes, **more: object) -> None:
    """Make a directory with the stream `s`. Without values, its topic does not exist yet."""
    with seglog.open(directory) as log:
        log.topic("_streams").append([entry_of(**more)])
        if values:
            log.topic("s").append(values)


def test_a_reader_beside_the_closure_of_a_stream_does_not_open_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_stream(tmp_path / "d", b"first")

    async def run() -> None:
        async with serving(tmp_path / "d", "") as service:
            streams = Streams(service)
            waits, release = held_once(live_module, monkeypatch)
            reading = asyncio.create_task(streams.find("s"))  # has read the mark of `first`
            await waits.wait()
            await append(service, await streams.find("s"), append_of({"stream-closed": "true"}), b"")
            release.set()
            live = await reading
            assert live.mark.is_closed
            assert live.has_end
            with pytest.raises(StreamRefused, match="is closed"):
                await append(service, live, append_of({"content-type": "text/plain"}), b"after the end")

    asyncio.run(run())


def test_a_reader_beside_a_deletion_makes_no_topic_behind_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_stream(tmp_path / "d", ttl_s=1)

    async def run() -> None:
        clock = HandClock()
        async with serving(tmp_path / "d", (tmp_path / "remote").as_uri(), clock) as service:
            streams = Streams(service)
            waits, release = held_once(live_module, monkeypatch)
            reading = asyncio.create_task(streams.find("s"))  # is about to make the topic
            await waits.wait()
            clock.ms += 2_000
            deleting = asyncio.create_task(streams.find("s"))  # finds it expired
            await asyncio.wait({deleting}, timeout=0.1)  # a deletion that does not wait for the reader ends here
            release.set()
            await asyncio.wait({reading, deleting})
            with pytest.raises(NoSuchStream):
                deleting.result()
            assert not service.sync.has_topic("s")
            assert (await streams.create("s", _TEXT, b"anew"))[0]

    asyncio.run(run())


def test_a_truncation_between_a_read_and_the_wait_is_news(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path / "d", "") as service:
            _, live = await Streams(service).create("s", _TEXT, b"one")
            epoch = live.topic.epoch
            assert await next_piece(service, live, 1, epoch) is not None
            live.topic.truncate(1)
            assert await is_news(service, live, 1, 20)
            assert await next_piece(service, live, 1, epoch) is None

    asyncio.run(run())


def test_two_forks_beside_each_other_have_a_branch_each(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path / "d", (tmp_path / "remote").as_uri()) as service:
            streams = Streams(service)
            await streams.create("source", _TEXT, b"inherited ")
            wanted = create_of({"stream-forked-from": "/streams/source"})
            paths = ["n" * 100 + each for each in "ab"]  # the names of the branches begin alike
            await asyncio.gather(*(streams.create(path, wanted, path[-1:].encode()) for path in paths))
            for path in paths:
                live = await streams.find(path)
                assert (await read_piece(service, live, 0)).values == (b"inherited ", path[-1:].encode())

    asyncio.run(run())


def test_a_path_that_was_a_stream_and_then_a_fork_is_a_stream_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limit(monkeypatch, Limit.STREAM_ENTRIES_OUTDATED, 0)  # each start compacts the entries
    remote, fork = (tmp_path / "remote").as_uri(), create_of({"stream-forked-from": "/streams/b"})

    async def make() -> None:
        async with serving(tmp_path / "d", remote) as service:
            streams, archive = Streams(service), service.archive
            await streams.create("b", _TEXT, b"b")
            await streams.create("a", _TEXT, b"former")
            service.sync.seal(["a"])
            assert archive is not None
            archive.offload("a")
            await streams.delete("a")
            assert service.sync.has_topic("a")  # the remote has its records
            await streams.create("a", fork, b"")

    async def use() -> None:
        async with serving(tmp_path / "d", remote) as service:
            await Streams(service).find("b")
        async with serving(tmp_path / "d", remote) as service:
            streams = Streams(service)
            await streams.delete("a")
            assert (await streams.create("a", _TEXT, b"new"))[0]
            live = await streams.find("a")
            assert (await read_piece(service, live, live.entry.base)).values == (b"new",)
        async with serving(tmp_path / "d", remote) as service:
            live = await Streams(service).find("a")
            assert (await read_piece(service, live, live.entry.base)).values == (b"new",)
            entries = [decode_entry(each.value) for each in service.sync.topic("_streams").read()]
            assert sorted((each.path, each.state) for each in entries) == [("a", State.LIVE), ("b", State.LIVE)]

    asyncio.run(make())
    asyncio.run(use())


def test_without_room_for_its_compaction_the_registry_works_and_a_later_start_compacts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limit(monkeypatch, Limit.STREAM_ENTRIES_OUTDATED, 0)
    with_stream(tmp_path / "d", b"value")
    with seglog.open(tmp_path / "d") as log:
        log.topic("_streams").append([entry_of()] * 9)

    async def run(*, is_held: bool) -> int:
        async with serving(tmp_path / "d", "") as service:
            service.sync.hold_appends("the test holds them" if is_held else None)
            live = await Streams(service).find("s")
            assert (await read_piece(service, live, 0)).values == (b"value",)
            return len([*service.sync.topic("_streams").read()])

    assert asyncio.run(run(is_held=True)) == 10
    assert asyncio.run(run(is_held=False)) == 1


def test_a_crash_while_the_entries_are_compacted_takes_no_stream(tmp_path: Path) -> None:
    former = entry_of("a", state="gone")
    fork = entry_of("a", topic="b@a_g1", fork={"source": "b", "offset": "", "skip": 0})
    with seglog.open(tmp_path / "d") as log:
        log.topic("_streams").append([former, fork, former])  # the last one is a copy
        log.create_topic("b@a_g1").append([b"fork"])
        log.topic("a").append([b"former"])

    async def run() -> None:
        async with serving(tmp_path / "d", "") as service:
            live = await Streams(service).find("a")
            assert (await read_piece(service, live, 0)).values == (b"fork",)

    asyncio.run(run())


def test_a_source_that_is_deleted_beside_its_last_fork_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with serving(tmp_path / "d", (tmp_path / "remote").as_uri()) as service:
            streams, put = Streams(service), Registry.put
            await streams.create("source", _TEXT, b"inherited")
            await streams.create("fork", create_of({"stream-forked-from": "/streams/source"}), b"")
            begun = {State.GONE: asyncio.Event(), State.SOFT: asyncio.Event()}
            is_gone = asyncio.Event()

            async def held(registry: Registry, entry: Entry) -> Entry:
                if entry.state in begun:
                    begun[entry.state].set()
                    await begun[State.SOFT].wait()  # each knows of no deletion but its own
                if entry.state is State.SOFT:
                    await is_gone.wait()
                try:
                    return await put(registry, entry)
                finally:
                    if entry.state is State.GONE:
                        is_gone.set()

            monkeypatch.setattr(Registry, "put", held)
            deleting = asyncio.create_task(streams.delete("fork"))
            await begun[State.GONE].wait()
            await streams.delete("source")
            await deleting
            with pytest.raises(NoSuchStream):
                await streams.find("source")
            assert (await streams.create("source", _TEXT, b"anew"))[0]

    asyncio.run(run())


@pytest.mark.parametrize("is_left", [True, False], ids=["a fork half made", "no fork"])
def test_a_sweep_ends_a_deletion_that_a_crash_stopped(tmp_path: Path, is_left: bool) -> None:
    fork = {"source": "s", "offset": "", "skip": 0}
    made = entry_of("f", topic="s@f_g1", fork=fork, state="making", own=1)
    with seglog.open(tmp_path / "d") as log:
        log.topic("_streams").append([entry_of("s", state="soft"), *([made] if is_left else [])])
        log.topic("s").append([b"inherited"])

    async def run() -> None:
        clock = HandClock()
        async with serving(tmp_path / "d", (tmp_path / "remote").as_uri(), clock) as service:
            streams = Streams(service)
            with pytest.raises(StreamGone):
                await streams.find("s")
            clock.ms += 20_000
            await streams.sweep()
            assert (await streams.create("s", _TEXT, b"anew"))[0]

    asyncio.run(run())


def test_an_expired_stream_goes_without_a_request(tmp_path: Path) -> None:
    with_stream(tmp_path / "d", b"first", ttl_s=1)

    async def run() -> None:
        clock = HandClock()
        async with serving(tmp_path / "d", "", clock) as service:
            stream_endpoint(service)
            clock.ms += 20_000
            await until(lambda: not service.sync.has_topic("s"), "the topic is deleted")

    asyncio.run(run())


def test_a_use_puts_the_end_of_a_stream_off(tmp_path: Path) -> None:
    async def run() -> None:
        clock = HandClock()
        async with serving(tmp_path / "d", "", clock) as service:
            streams = Streams(service)
            clock.ms += 100_000  # a stream that is made now begins now
            await streams.create("s", create_of({"content-type": "text/plain", "stream-ttl": "15"}), b"one")
            for _ in range(3):
                clock.ms += 12_000
                await streams.sweep()
                await streams.find("s")
            clock.ms += 12_000
            await streams.sweep()
            assert service.sync.has_topic("s")
            clock.ms += 12_000
            await streams.sweep()
            assert not service.sync.has_topic("s")

    asyncio.run(run())


def _calls_of(work: Coroutine[Any, Any, object]) -> int:
    """Return the number of calls that the work makes, in Python and in C. It waits for nothing."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(note)
    try:
        work.send(None)
    except StopIteration:
        return count
    finally:
        sys.setprofile(None)
    raise AssertionError("the work waited")


def test_a_request_and_a_sweep_cost_the_same_beside_any_number_of_streams_with_a_time_to_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limit(monkeypatch, Limit.STREAMS_KEPT, 10)

    async def calls(directory: Path, number: int) -> tuple[int, int]:
        with seglog.open(directory) as log:
            log.topic("_streams").append([entry_of(f"s{each}", ttl_s=86_400) for each in range(number)])
        clock = HandClock()
        async with serving(directory, "", clock) as service:
            streams = Streams(service)
            await streams.find("s0")
            for each in range(number):
                await streams.find(f"s{each}")
            clock.ms += 20_000
            return _calls_of(streams.find(f"s{number - 1}")), _calls_of(streams.sweep())

    async def run() -> None:
        assert await calls(tmp_path / "few", 20) == await calls(tmp_path / "many", 40)

    asyncio.run(run())
