"""Test how followers of a proxy learn of new commits: one answer, without a request to the store."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest
from blake3 import blake3
from prometheus_client import Gauge

from catalog import LocalCatalog, Vid, Volumes, make_checkpoint
from catalog.errors import AccessDenied, BranchCollected, CatalogError, InvalidObject, NoSuchTopic, StoreUnreachable
from catalog.format.control import Boundary
from catalog.format.encoding import decode_commit, decode_views, encode_views, with_checkpoint
from catalog.format.keys import Key, boundary_key, commit_key
from catalog.format.small_objects import encode_boundary
from catalog.objects import MemoryStore
from catalog.objects.http import HttpStore
from catalog.objects.object_store import Forward, WithETag
from catalog.objects.wrapped import T, WrappedStore
from catalog.snapshot import checkpoint_of
from offload.archive import Archive
from offload.errors import NameDeleted
from offload.operations.standby import FollowOptions, Looked, TopicFollowed, follow
from offload.recovery import Recovered
from offload.token_rights import Role, token_line
from tests.answering import Answer, Asked
from tests.faults.store import CountingStore, Fault, FaultyStore, unreachable
from tests.offload.replicas import opened, ship, values
from tests.seams.limits import Limit, set_limit
from tests.seams.proxy import look_at_remote
from tests.waiting import wait_until
from tests.worlds.clock import HandClock
from tests.worlds.proxies import QUIET, FreshStore, Proxied, proxied
from tests.worlds.services import serving, until


def targets(proxy: Proxied) -> list[str]:
    found = [asked.target for asked in proxy.asked]
    proxy.asked.clear()
    return found


def world(tmp_path: Path, commits: int, store: MemoryStore) -> list[bytes]:
    """Offload so many segments of one record each. Return the values."""
    given = [b"value %d" % number for number in range(commits)]
    with opened(tmp_path / "writer", store) as (log, archive):
        for value in given:
            ship(archive, log, "t", value)
    return given


class Synced(NamedTuple):
    """A proxy of a store where `t` has two commits, which the directory `reader` has synced through the proxy."""

    store: MemoryStore
    counting: CountingStore
    proxy: Proxied
    given: list[bytes]


@pytest.fixture
def synced(tmp_path: Path) -> Iterator[Synced]:
    store = MemoryStore()
    counting = CountingStore(store)
    given = world(tmp_path, 2, store)
    with proxied(tmp_path / "proxy", counting, **QUIET) as proxy:
        look_at_remote(proxy.service)
        with opened(tmp_path / "reader", proxy.store()) as (_, reader):
            reader.replication.sync("t")
        yield Synced(store, counting, proxy, given)
        if _waits(proxy):  # the application does not hear that their clients have left
            world(tmp_path, 1, store)
            look_at_remote(proxy.service)
            wait_until(lambda: not _waits(proxy))


@pytest.mark.long
def test_a_replica_far_behind_makes_one_request_and_the_store_gets_none(tmp_path: Path, synced: Synced) -> None:
    store, counting, proxy, given = synced
    given += world(tmp_path, 100, store)
    look_at_remote(proxy.service)
    with opened(tmp_path / "reader", proxy.store()) as (_, reader):
        targets(proxy)
        counting.counts.clear()
        assert reader.replication.sync("t").commits == 100
        [target] = targets(proxy)
        assert target == "/topics/t/forward?since=2"
        assert counting.counts.total() == 0
        reader.replication.sync("t")  # no news
        assert targets(proxy) == ["/topics/t/forward?since=102"]
        assert counting.counts.total() == 0
        assert values(reader, "t") == given
        assert values(reader, "t", at="lsn:70") == given[:70]
        assert len(reader.history.commits("t")) == 102
    with opened(tmp_path / "reader", proxy.store()) as (_, reader):  # from the local copy
        targets(proxy)
        assert reader.history.snapshot("t").lsn == 102
        assert targets(proxy) == []
    bodies = sum(len(store.get(commit_key(_volume(tmp_path, store), lsn))) for lsn in range(3, 103))
    status, _, body = proxy.ask("/topics/t/forward?since=2", None)
    assert status == 200
    assert len(body) <= 0.8 * bodies
    # A directory that leaves the proxy for the bucket goes on there, and may write.
    with opened(tmp_path / "reader", store) as (log, reader):
        world(tmp_path, 1, store)
        assert reader.replication.sync("t").commits == 1
        reader.replication.take_over("t")
        ship(reader, log, "t", b"mine")
        assert values(reader, "t") == [*given, b"value 0", b"mine"]


def _volume(tmp_path: Path, store: MemoryStore):  # type: ignore[no-untyped-def]
    with opened(tmp_path / "writer", store) as (_, archive):
        return archive.history.snapshot("t").vid


def test_a_few_commits_come_as_they_are_and_stay_the_buckets_own(tmp_path: Path) -> None:
    store = MemoryStore()
    world(tmp_path, 30, store)
    with proxied(tmp_path / "proxy", store, **QUIET) as proxy:
        fresh = FreshStore(proxy)
        with opened(tmp_path / "reader", fresh) as (_, reader):
            reader.replication.sync("t")
            world(tmp_path, 2, store)
            targets(proxy)
            synced = reader.replication.sync("t")
            assert (synced.commits, synced.lsn) == (2, 32)
            assert targets(proxy) == ["/topics/t/forward?since=30"]
            assert synced.brought is not None
            assert synced.brought.first_commit_ms is not None
        _, _, body = proxy.ask("/topics/t/forward?since=30", None)
        own = [store.get(commit_key(_volume(tmp_path, store), lsn)) for lsn in (31, 32)]
        assert body == b"".join(len(each).to_bytes(4, "little") + each for each in own)


def test_a_first_sync_reads_objects_and_the_next_one_asks_once_also_of_a_branch(tmp_path: Path) -> None:
    store = MemoryStore()
    given = world(tmp_path, 5, store)
    with opened(tmp_path / "writer", store) as (log, archive):
        archive.restore("t", to="seq:2", name="half")
        ship(archive, log, "t@half", b"other")
    with proxied(tmp_path / "proxy", store, **QUIET) as proxy:
        look_at_remote(proxy.service)
        for name, expected in (("t", given), ("t@half", [*given[:2], b"other"])):
            with opened(tmp_path / "reader", proxy.store()) as (_, reader):
                reader.replication.sync(name)
                targets(proxy)
                reader.replication.sync(name)
                assert len(targets(proxy)) == 1
                assert values(reader, name) == expected
        with opened(tmp_path / "reader", proxy.store()) as (_, reader), pytest.raises(NoSuchTopic):
            reader.replication.sync("absent")


@pytest.mark.parametrize("commits", [1, 40])
def test_a_flip_of_any_byte_of_an_answer_is_found(tmp_path: Path, synced: Synced, commits: int) -> None:
    proxy = synced.proxy
    world(tmp_path, commits, synced.store)
    look_at_remote(proxy.service)
    with opened(tmp_path / "reader", proxy.store()) as (_, reader):
        size = len(proxy.ask("/topics/t/forward?since=2", None)[2])
        for at in range(0, size, max(1, size // 60)):
            proxy.spoil = _flipping(at)
            with pytest.raises(CatalogError):
                reader.replication.sync("t")
            assert reader.status.topic("t").lsn == 2
        for change in (
            lambda text: text.replace("5", "6", 1), lambda text: text.replace(" ", " 1", 1),
            lambda text: text + "0", lambda _: "", lambda text: text.partition(" ")[2],
        ):  # fmt: skip
            proxy.spoil = _with_facts(change)
            with pytest.raises(CatalogError):
                reader.replication.sync("t")
            assert reader.status.topic("t").lsn == 2
        proxy.spoil = lambda _, answer: Answer(200, answer.body[:-9], answer.headers) if answer else None
        with pytest.raises(CatalogError):
            reader.replication.sync("t")
        assert reader.status.topic("t").lsn == 2
        proxy.spoil = None
        assert reader.replication.sync("t").commits == commits


def _flipping(at: int) -> Callable[[Asked, Answer | None], Answer | None]:
    def spoil(_: Asked, answer: Answer | None) -> Answer | None:
        if answer is None or not answer.body:
            return answer
        body = bytearray(answer.body)
        body[at] ^= 1 << at % 8
        return Answer(answer.status, bytes(body), answer.headers)

    return spoil


def _with_facts(change: Callable[[str], str]) -> Callable[[Asked, Answer | None], Answer | None]:
    def spoil(_: Asked, answer: Answer | None) -> Answer | None:
        if answer is None:
            return answer
        return Answer(
            answer.status, answer.body, {**answer.headers, "seglog-forward": change(answer.headers["seglog-forward"])}
        )

    return spoil


def test_an_older_answer_and_a_boundary_that_falls_leave_the_replica_where_it_is(tmp_path: Path) -> None:
    store = MemoryStore()
    world(tmp_path, 3, store)
    with proxied(tmp_path / "old", store, **QUIET) as old, proxied(tmp_path / "new", store, **QUIET) as new:
        look_at_remote(old.service)
        world(tmp_path, 20, store)
        vid = _volume(tmp_path, store)
        make_checkpoint(Volumes(store), vid, 21, now_ms=0)
        store.put(boundary_key(vid), encode_boundary(Boundary(vid, 20)), {})
        look_at_remote(new.service)
        with opened(tmp_path / "reader", new.store()) as (_, reader):
            assert reader.replication.sync("t").lsn == 23
            before = values(reader, "t")
        with opened(tmp_path / "reader", old.store()) as (_, reader):  # another proxy, which is behind
            assert reader.replication.sync("t").commits == 0
            assert reader.status.topic("t").lsn == 23
            assert values(reader, "t") == before
        with opened(tmp_path / "reader", FreshStore(new)) as (_, reader):
            reader.replication.sync("t")
            world(tmp_path, 1, store)
            store.put(boundary_key(vid), encode_boundary(Boundary(vid, 2)), {})  # as no store does
            assert reader.replication.sync("t").commits == 0
            store.put(boundary_key(vid), encode_boundary(Boundary(vid, 20)), {})
            world(tmp_path, 1, store)
            assert reader.replication.sync("t").commits == 2


def test_below_the_boundary_the_whole_state_comes_and_a_collected_volume_is_told(tmp_path: Path) -> None:
    store = MemoryStore()
    given = world(tmp_path, 50, store)
    with proxied(tmp_path / "proxy", store, **QUIET) as proxy, opened(tmp_path / "reader", FreshStore(proxy)) as each:
        reader = each[1]
        reader.replication.sync("t")
        given += world(tmp_path, 4, store)
        look_at_remote(proxy.service)  # it has each of them, from before the collection
        vid = _volume(tmp_path, store)
        make_checkpoint(Volumes(store), vid, 53, now_ms=0)
        store.put(boundary_key(vid), encode_boundary(Boundary(vid, 53)), {})
        for lsn in range(1, 53):
            store.delete(commit_key(vid, lsn))
        look_at_remote(proxy.service)
        _, _, body = proxy.ask("/topics/t/forward?since=50", None)
        assert len(body) == 4 + int.from_bytes(body[:4], "little")  # one commit, and not the collected ones
        assert reader.replication.sync("t").lsn == 54
        assert values(reader, "t") == given
    with opened(tmp_path / "writer", store) as (_, archive):
        archive.restore("t", to="head", name="gone")
    with proxied(tmp_path / "other", store, **QUIET) as proxy, opened(tmp_path / "reader", FreshStore(proxy)) as each:
        reader = each[1]
        reader.replication.sync("t@gone")
        dead = reader.history.snapshot("t@gone").vid
        store.put(boundary_key(dead), encode_boundary(Boundary(dead, 2**63 - 1)), {})
        with pytest.raises((BranchCollected, CatalogError)):
            reader.replication.sync("t@gone")


def test_while_the_store_is_away_the_replica_hears_of_it_and_stays(tmp_path: Path) -> None:
    store = MemoryStore()
    given = world(tmp_path, 2, store)
    faulty = FaultyStore(store, [])
    with proxied(tmp_path / "proxy", faulty, **QUIET) as proxy, opened(tmp_path / "reader", FreshStore(proxy)) as each:
        reader = each[1]
        reader.replication.sync("t")
        faulty.fail([Fault(method="get_with_etag", error=unreachable)])
        assert values(reader, "t") == given
        with pytest.raises(StoreUnreachable, match="503"):
            reader.replication.sync("t")
        status, headers, _ = proxy.ask("/topics/t/forward?since=2", None)
        assert (status, "retry-after" in headers) == (503, True)
        faulty.fail([])
        assert reader.replication.sync("t").commits == 0
        assert values(reader, "t") == given


@pytest.mark.long
def test_a_hundred_looks_of_many_replicas_cost_the_store_what_one_proxy_does(tmp_path: Path) -> None:
    store = MemoryStore()
    world(tmp_path, 3, store)
    counting = CountingStore(store)
    with proxied(tmp_path / "proxy", counting, **QUIET) as proxy:
        look_at_remote(proxy.service)
        counting.counts.clear()
        look_at_remote(proxy.service)
        of_one_look = counting.counts.total()
        assert of_one_look <= 4  # the ref, the next commit, the boundary; a LIST for names, at each twelfth look
        readers: list[Archive] = []
        for number in range(4):
            with opened(tmp_path / f"reader-{number}", proxy.store()) as (_, reader):
                reader.replication.sync("t")
                readers.append(reader)
                counting.counts.clear()
                for _ in range(25):
                    reader.replication.sync("t")
                assert counting.counts.total() == 0


# ---------------------------------------------------------------- news


def test_a_client_that_waits_hears_of_a_commit_and_holds_no_thread(tmp_path: Path) -> None:
    store = MemoryStore()
    world(tmp_path, 1, store)
    tokens = "\n".join(token_line(name, Role.READ, name, f"token-of-{name}-0123456789") for name in ("t", "other"))
    with proxied(tmp_path / "proxy", store, tokens.encode(), **QUIET) as proxy, ThreadPoolExecutor(20) as pool:
        look_at_remote(proxy.service)
        token = "token-of-t-0123456789"
        assert proxy.ask("/topics/t/forward?since=1&wait_s=0", token)[0] == 204
        begin = time.monotonic()
        assert proxy.ask("/topics/t/forward?since=9&wait_s=1", token)[0] == 204
        assert time.monotonic() - begin >= 0.9
        assert proxy.ask("/topics/t/forward?since=0&wait_s=60", token)[0] == 200
        assert proxy.ask("/topics/t/forward?since=0", "token-of-other-0123456789")[0] == 403
        assert proxy.ask("/topics/absent/forward", token)[0] == 403
        waiting = [pool.submit(proxy.ask, "/topics/t/forward?since=1&wait_s=60", token) for _ in range(12)]
        wait_until(lambda: _value(proxy.service.metrics.http_followers) == 12)
        assert _value(proxy.service.metrics.http_running) == 0
        assert not any(each.done() for each in waiting)
        threads = [each.name for each in threading.enumerate() if each.name.startswith(("seglog-cold", "seglog-read"))]
        assert proxy.ask("/topics/t/records", token)[0] == 200  # the threads are free
        assert len(threads) <= 16
        world(tmp_path, 1, store)
        look_at_remote(proxy.service)
        assert {each.result(10)[0] for each in waiting} == {200}


def _value(gauge: Gauge) -> float:
    [metric] = gauge.collect()
    return metric.samples[0].value


def make_topic(proxy: Proxied, name: str) -> None:
    assert proxy.ask(f"/topics/{name}/rpc/topic/create", None, b"{}", method="POST")[0] == 200


def test_a_daemon_that_writes_answers_at_its_own_commit(tmp_path: Path) -> None:
    with proxied(tmp_path / "proxy", MemoryStore(), **QUIET) as proxy, ThreadPoolExecutor(1) as pool:
        make_topic(proxy, "t")
        headers = {"Content_Type": "application/octet-stream"}
        for value in (b"one", b"two"):
            proxy.ask("/topics/t/records", None, value, method="POST", **headers)
            for command in ("seal", "offload"):
                status, _, body = proxy.ask(f"/topics/t/rpc/{command}", None, b"{}", method="POST")
                assert status == 200, body
            if value == b"one":
                waiting = pool.submit(proxy.ask, "/topics/t/forward?since=1&wait_s=60", None)
                time.sleep(0.05)
        assert waiting.result(10)[0] == 200
        with opened(tmp_path / "reader", proxy.store()) as (_, reader):
            reader.replication.sync("t")
            assert values(reader, "t") == [b"one", b"two"]
        report = json.loads(proxy.ask("/topics/t/forward?since=-1", None)[2])
        assert (report["status"], report["title"]) == (400, "InvalidOption")


def test_a_follower_asks_the_proxy_for_new_names_and_the_store_gets_no_request(tmp_path: Path) -> None:
    store = MemoryStore()
    world(tmp_path, 1, store)
    counting = CountingStore(store)
    with proxied(tmp_path / "proxy", counting, **QUIET) as proxy:
        look_at_remote(proxy.service)
        options = FollowOptions(wait=lambda _: None)
        looks = follow(tmp_path / "reader", proxy.url, options, store=proxy.store())
        assert isinstance(next(looks), Recovered)
        counting.counts.clear()
        for _ in range(13):  # up to the second search
            while not isinstance(found := next(looks), Looked):
                assert isinstance(found, Recovered | TopicFollowed)
        assert counting.counts.total() == 0
        with opened(tmp_path / "writer", store) as (log, archive):
            ship(archive, log, "new", b"one")
        look_at_remote(proxy.service)
        named = [next(looks) for _ in range(30)]
        assert [found.topic for found in named if isinstance(found, Recovered)] == ["new"]


def test_a_name_that_failed_and_that_the_proxy_does_not_know_is_tried_again(tmp_path: Path, synced: Synced) -> None:
    class Unripe(HttpStore):
        is_broken = True

        def get_with_etag(self, key: Key) -> WithETag:
            if self.is_broken and key in damaged:
                raise InvalidObject(key, "it is damaged")
            return super().get_with_etag(key)

    with opened(tmp_path / "writer", synced.store) as (log, archive):
        ship(archive, log, "new", b"one")
        damaged = {commit_key(archive.history.snapshot("new").vid, 1)}
    store = Unripe(synced.proxy.url, attempts=1)
    found = follow(tmp_path / "standby", synced.proxy.url, FollowOptions(wait=lambda _: None), store=store)
    looks = list[object]()
    while len(looks) < 14:  # up to the second search
        each = next(found)
        assert not isinstance(each, Recovered | TopicFollowed) or each.topic == "t"
        looks += [each] if isinstance(each, Looked) else []
    store.is_broken = False
    begin = time.monotonic()
    while time.monotonic() - begin < 5 and not isinstance(each, Recovered):
        each = next(found)
    assert isinstance(each, Recovered)
    assert each.topic == "new"
    found.close()  # type: ignore[attr-defined]


# ---------------------------------------------------------------- what a proxy says, and what the bucket has


class LyingStore(HttpStore):
    """A remote over HTTP whose proxy leaves segments out of its lists, as one with a fault may."""

    def forward(self, name: str, since: int) -> Forward | None:
        told = super().forward(name, since)
        if told is None or not told.bodies:
            return told
        [body] = told.bodies
        checkpoint = decode_commit(body, Key("x")).checkpoint
        assert checkpoint is not None
        assert checkpoint.views is not None
        views = encode_views(decode_views(checkpoint.views, Key("x"))[:-3])
        short = replace(checkpoint, views=views, views_hash=blake3(views).digest(), views_length=len(views))
        return replace(told, bodies=(with_checkpoint(body, short, Key("x")),))


def test_a_directory_that_leaves_the_proxy_takes_no_list_of_it_along(tmp_path: Path, synced: Synced) -> None:
    store, _, proxy, given = synced
    given += world(tmp_path, 40, store)
    look_at_remote(proxy.service)
    with opened(tmp_path / "reader", LyingStore(proxy.url, attempts=1)) as (_, reader):
        reader.replication.sync("t")
        assert len(values(reader, "t")) == len(given) - 3
    with opened(tmp_path / "reader", store) as (log, reader):
        reader.replication.sync("t")
        assert values(reader, "t") == given
        reader.replication.take_over("t")
        ship(reader, log, "t", b"mine")
        reader.upkeep.compact("t")
    with opened(tmp_path / "fresh", store) as (_, fresh):
        fresh.replication.sync("t")
        assert values(fresh, "t") == [*given, b"mine"]


def test_a_list_among_commits_is_refused(tmp_path: Path) -> None:
    store = MemoryStore()
    world(tmp_path, 30, store)
    with proxied(tmp_path / "proxy", store, **QUIET) as proxy:
        look_at_remote(proxy.service)
        vid = _volume(tmp_path, store)
        bodies = [store.get(commit_key(vid, lsn)) for lsn in (29, 30)]
        volumes = Volumes(store)
        bodies[0] = with_checkpoint(bodies[0], checkpoint_of(volumes.snapshot(vid, 29), now_ms=0), Key("x"))
        [before] = volumes.commits(vid, 28, 28)
        with pytest.raises(InvalidObject, match="among commits"):
            volumes.take_forward(vid, 28, before.hash, Forward(vid, 30, 0, tuple(bodies)))


def test_after_a_promotion_a_proxy_that_lags_moves_no_replica_back(tmp_path: Path) -> None:
    store = MemoryStore()
    with opened(tmp_path / "writer", store) as (log, archive):
        ship(archive, log, "t", b"one", b"two")
        archive.restore("t", to="seq:1", name="fix")
        ship(archive, log, "t@fix", b"other")
    with proxied(tmp_path / "old", store, **QUIET) as old, proxied(tmp_path / "new", store, **QUIET) as new:
        look_at_remote(old.service)
        with opened(tmp_path / "reader", old.store()) as (_, reader):
            reader.replication.sync("t")
        with opened(tmp_path / "writer", store) as (log, archive):
            archive.branches.promote_branch("t", "fix", keep="was", leave=True)
        look_at_remote(new.service)
        for proxy in (new, old, new):
            with opened(tmp_path / "reader", proxy.store()) as (_, reader):
                reader.replication.sync("t")
                assert values(reader, "t") == [b"one", b"other"]
        with opened(tmp_path / "writer", store) as (log, archive):
            archive.replication.sync("t")
            archive.replication.take_over("t")
            ship(archive, log, "t", b"three")
        for proxy in (old, new):  # the objects are those of now, also through the proxy that lags
            with opened(tmp_path / "reader", proxy.store()) as (_, reader):
                reader.replication.sync("t")
                assert values(reader, "t") == [b"one", b"other", b"three"]


def test_an_answer_below_its_own_boundary_leaves_the_replica_where_it_is(tmp_path: Path, synced: Synced) -> None:
    proxy = synced.proxy
    world(tmp_path, 2, synced.store)
    look_at_remote(proxy.service)

    class Passed(HttpStore):
        def forward(self, name: str, since: int) -> Forward | None:
            told = super().forward(name, since)
            return told and replace(told, boundary=told.lsn + 1)

    with opened(tmp_path / "reader", Passed(proxy.url, attempts=1)) as (_, reader):
        assert reader.replication.sync("t").lsn == 2
    with opened(tmp_path / "reader", proxy.store()) as (_, reader):
        assert reader.replication.sync("t").lsn == 4


def test_a_list_that_came_damaged_is_read_past_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    given = world(tmp_path, 5, store)
    set_limit(monkeypatch, Limit.SEGMENTS_IN_CHECKPOINT_BYTES, 0)
    make_checkpoint(Volumes(store), _volume(tmp_path, store), 5, now_ms=0)
    [key] = [Key(key) for key in store.list("") if "/lists/" in key]

    class Spoiling(WrappedStore):
        is_spoiling = True

        def _call(self, method: str, key: str, act: Callable[[], T]) -> T:
            found = act()
            if "/lists/" in key and isinstance(found, bytes) and self.is_spoiling:
                self.is_spoiling = False
                return bytes([*found[:-1], found[-1] ^ 1])  # type: ignore[return-value]
            return found

    with proxied(tmp_path / "proxy", Spoiling(store), **QUIET) as proxy:
        assert proxy.store().get(key) != store.get(key)  # it is in the cache now
        with opened(tmp_path / "reader", proxy.store()) as (_, reader):
            reader.replication.sync("t")
            assert values(reader, "t") == given
        assert proxy.store().get(key) == store.get(key)


def test_a_write_through_a_proxy_leaves_no_commit_on_record(tmp_path: Path, synced: Synced) -> None:
    store, _, proxy, given = synced
    with opened(tmp_path / "reader", proxy.store()) as (_, reader):
        for write in (reader.open_for_append, reader.replication.take_over):
            with pytest.raises(AccessDenied, match="only reads"):
                write("t")
    with LocalCatalog(tmp_path / "reader" / "catalog.db", read_only=True) as local:
        handle = local.handle("t")
    assert handle is not None
    assert (handle.pending_lsn, handle.lsn) == (None, 2)
    given += world(tmp_path, 1, store)
    with opened(tmp_path / "reader", store) as (_, reader):
        assert reader.replication.sync("t").commits == 1
        assert values(reader, "t") == given


def test_a_name_that_is_gone_is_told_as_from_the_bucket(tmp_path: Path) -> None:
    store = MemoryStore()
    world(tmp_path, 2, store)
    with opened(tmp_path / "writer", store) as (_, archive):
        archive.restore("t", to="head", name="fix")
    with proxied(tmp_path / "proxy", store, **QUIET) as proxy:
        look_at_remote(proxy.service)
        with opened(tmp_path / "reader", proxy.store()) as (_, reader):
            reader.replication.sync("t@fix")
        with opened(tmp_path / "writer", store) as (_, archive):
            archive.branches.delete_branch("t", "fix")
        proxy.service.works.of("t@fix").sync_error = NameDeleted("t@fix", "memory:", "vid", is_writer=False)
        assert proxy.ask("/topics/t@fix/forward?since=1", None)[0] == 409
        with opened(tmp_path / "reader", proxy.store()) as (_, reader), pytest.raises(NameDeleted):
            reader.replication.sync("t@fix")


def test_a_daemon_that_lost_its_topic_lets_readers_read_the_objects(tmp_path: Path) -> None:
    store = MemoryStore()
    with proxied(tmp_path / "proxy", store, CATALOG_SYNC_INTERVAL_S="1") as proxy:
        make_topic(proxy, "t")
        proxy.ask("/topics/t/records", None, b"one", method="POST", Content_Type="application/octet-stream")
        for command in ("seal", "offload"):
            assert proxy.ask(f"/topics/t/rpc/{command}", None, b"{}", method="POST")[0] == 200
        wait_until(lambda: proxy.ask("/topics/t/forward?since=1", None)[0] == 204)
        with opened(tmp_path / "reader", proxy.store()) as (_, reader):
            reader.replication.sync("t")
            with opened(tmp_path / "other", store) as (log, other):
                other.replication.take_over("t")
                ship(other, log, "t", b"two")
            wait_until(lambda: proxy.ask("/topics/t/forward?since=1", None)[0] == 404)
            reader.replication.sync("t")
            assert values(reader, "t") == [b"one", b"two"]


def test_a_daemon_that_has_not_looked_at_its_topic_of_late_claims_no_news(tmp_path: Path) -> None:
    store = MemoryStore()
    world(tmp_path, 1, store)
    with proxied(tmp_path / "proxy", store, **QUIET) as proxy:
        look_at_remote(proxy.service)
        assert proxy.ask("/topics/t/rpc/takeover", None, b"{}", method="POST")[0] == 200
        work = proxy.service.works.of("t")
        work.sync_error = StoreUnreachable("s3://bucket", "of before the takeover", "")
        assert proxy.ask("/topics/t/forward?since=2", None)[0] == 204
        work.looked_at_ms = proxy.service.now_ms() + 1_000_000  # the clock went back since
        assert proxy.ask("/topics/t/forward?since=2", None)[0] == 404


def test_an_error_and_a_new_volume_end_a_wait_and_a_longer_one_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    world(tmp_path, 2, store)
    with proxied(tmp_path / "proxy", store, **QUIET) as proxy, ThreadPoolExecutor(2) as pool:
        look_at_remote(proxy.service)
        report = json.loads(proxy.ask("/topics/t/forward?wait_s=61", None)[2])
        assert (report["status"], report["title"]) == (400, "InvalidOption")
        waiting = pool.submit(proxy.ask, "/topics/t/forward?since=2&wait_s=60", None)
        wait_until(lambda: _value(proxy.service.metrics.http_followers) == 1)
        proxy.service.works.of("t").sync_error = StoreUnreachable("s3://bucket", "it is away", "")
        assert waiting.result(10)[0] == 503
        gc.collect()
        assert not [record for record in caplog.records if "never retrieved" in record.message]
        look_at_remote(proxy.service)
        waiting = pool.submit(proxy.ask, "/topics/t/forward?since=9&wait_s=60", None)
        wait_until(lambda: _value(proxy.service.metrics.http_followers) == 1)
        before = _volume(tmp_path, store)
        with opened(tmp_path / "writer", store) as (_, archive):
            archive.restore("t", to="seq:1", name="half")
            archive.branches.promote_branch("t", "half", keep="former", leave=True)
        look_at_remote(proxy.service)
        headers = waiting.result(10)[1]
        assert headers["seglog-forward"].split()[0] != str(before)


def test_a_wait_of_a_client_with_another_volume_is_answered_at_once(tmp_path: Path, synced: Synced) -> None:
    store, _, proxy, _ = synced
    before = _volume(tmp_path, store)
    report = json.loads(proxy.ask("/topics/t/forward?since=2&vid=t&wait_s=9", None)[2])
    assert (report["status"], report["title"]) == (400, "InvalidOption")
    with opened(tmp_path / "writer", store) as (log, archive):
        archive.restore("t", to="seq:1", name="half")
        ship(archive, log, "t@half", b"other")
        archive.branches.promote_branch("t", "half", keep="former", leave=True)
    look_at_remote(proxy.service)
    begin = time.monotonic()
    found = proxy.store().await_forward("t", before, 9, 9)
    assert found is not None
    assert found.lsn < 9
    assert found.vid != before
    with opened(tmp_path / "reader", proxy.store()) as (_, reader):
        assert reader.replication.await_news("t", 9) is True
    assert time.monotonic() - begin < 5


def test_a_follower_far_behind_costs_no_load_of_every_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, loaded = MemoryStore(), []
    world(tmp_path, 100, store)
    bodies = LocalCatalog.commit_bodies

    def counted(self: LocalCatalog, vid: Vid, first: int, last: int) -> dict[int, bytes]:
        found = bodies(self, vid, first, last)
        loaded.append(len(found))
        return found

    monkeypatch.setattr(LocalCatalog, "commit_bodies", counted)
    with opened(tmp_path / "writer", store) as (_, archive):
        for most in (64, 0):  # the first call reads back to the newest checkpoint
            found = archive.replication.followed_from("t", 0)
            assert found is not None
            assert len(found.bodies) == 1
            assert sum(loaded) <= most
            loaded.clear()
        found = archive.replication.followed_from("t", 98)
        assert found is not None
        assert (len(found.bodies), sum(loaded)) == (2, 2)
        assert archive.replication.followed_from("absent", 0) is None


# ---------------------------------------------------------------- replicas that wait


def _waits(proxy: Proxied) -> int:
    return int(_value(proxy.service.metrics.http_followers))


def test_a_daemon_behind_a_proxy_hears_of_a_commit_at_once_and_a_stop_ends_its_wait(
    tmp_path: Path, synced: Synced
) -> None:
    async def work() -> None:
        async with serving(tmp_path / "reader", proxy.store(), None, CATALOG_SYNC_INTERVAL_S="3600") as reader:
            archive = reader.archive
            assert archive is not None
            await until(lambda: _waits(proxy) == 1, "a wait")
            for _ in range(2):
                given.extend(world(tmp_path, 1, store))
                targets(proxy)
                await asyncio.to_thread(look_at_remote, proxy.service)
                await until(lambda: values(archive, "t") == given, "the record")
                await until(lambda: _waits(proxy) == 1, "the next wait")
                asked = [target.partition("?")[2] for target in targets(proxy) if "/forward?" in target]
                assert len(asked) == 2  # the sync, and the next wait
            assert [each for each in threading.enumerate() if each.name.startswith("seglog-wait")]
            begin = time.monotonic()
        assert time.monotonic() - begin < 1

    store, _, proxy, given = synced
    asyncio.run(work())


def test_a_daemon_that_waits_never_asks_beside_the_wait(tmp_path: Path, synced: Synced) -> None:
    async def work() -> None:
        clock, interval = HandClock(), {"CATALOG_SYNC_INTERVAL_S": "5"}
        async with serving(tmp_path / "reader", synced.proxy.store(), clock, **interval):
            await until(lambda: _waits(synced.proxy) == 1, "a wait")
            targets(synced.proxy)
            clock.ms += 60_000
            await asyncio.sleep(0.1)  # some looks of the background
            assert targets(synced.proxy) == []

    asyncio.run(work())


def test_follow_looks_at_once_after_a_wait_that_failed(tmp_path: Path, synced: Synced) -> None:
    class Deaf(HttpStore):
        def await_forward(self, name: str, vid: Vid, since: int, wait_s: int) -> Forward | None:
            raise StoreUnreachable(self.url, f"it tells nothing of {name} after {vid} {since} in {wait_s} s")

    store = Deaf(synced.proxy.url, attempts=1)
    found = follow(tmp_path / "standby", synced.proxy.url, FollowOptions(interval_s=15), store=store)
    begin = time.monotonic()
    assert [type(each) for each in islice(found, 4)] == [Recovered, Looked, TopicFollowed, Looked]
    assert time.monotonic() - begin < 10
    found.close()  # type: ignore[attr-defined]


def test_follow_hears_of_a_commit_at_once_and_looks_seldom_without_one(tmp_path: Path, synced: Synced) -> None:
    store, _, proxy, _ = synced
    options = FollowOptions(interval_s=15)
    found = follow(tmp_path / "standby", proxy.url, options, store=proxy.store())
    begin = time.monotonic()
    assert [type(each) for each in islice(found, 2)] == [Recovered, Looked]

    def commit() -> None:
        wait_until(lambda: _waits(proxy) == 1)
        world(tmp_path, 1, store)
        look_at_remote(proxy.service)

    for lsn in (3, 4):
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(commit)
            [look] = (each for each in islice(found, 2) if isinstance(each, TopicFollowed))
            assert (look.lsn, look.commits) == (lsn, 1)
            done.result()
    found.close()  # type: ignore[attr-defined]
    assert time.monotonic() - begin < 15


def test_follow_waits_again_after_each_wait_without_news(tmp_path: Path, synced: Synced) -> None:
    asked = list[int]()

    class Short(HttpStore):
        def await_forward(self, name: str, vid: Vid, since: int, wait_s: int) -> Forward | None:
            asked.append(wait_s)
            if len(asked) == 4:
                raise StoreUnreachable(self.url, f"it tells nothing of {name}")
            time.sleep(0.01)
            return Forward(vid, since, 0)

    store = Short(synced.proxy.url, attempts=1)
    found = follow(tmp_path / "standby", synced.proxy.url, FollowOptions(interval_s=2), store=store)
    begin = time.monotonic()
    assert [type(each) for each in islice(found, 4)] == [Recovered, Looked, TopicFollowed, Looked]
    assert time.monotonic() - begin < 5
    assert asked == [8, 8, 8, 8]
    found.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_lying", [False, True])
def test_a_wait_that_fails_and_news_that_move_nothing_leave_the_replica_to_its_interval(
    tmp_path: Path, synced: Synced, is_lying: bool
) -> None:
    store, _, proxy, given = synced
    waits = list[float]()

    class Odd(HttpStore):
        def await_forward(self, name: str, vid: Vid, since: int, wait_s: int) -> Forward | None:
            waits.append(time.monotonic())
            if is_lying:
                return Forward(vid, since + 9, 0)  # news that the sync does not find
            raise StoreUnreachable(self.url, f"it tells nothing of {name} in {wait_s} s")

    async def work() -> None:
        interval = {"CATALOG_SYNC_INTERVAL_S": "1"}
        async with serving(tmp_path / "reader", Odd(proxy.url, attempts=1), None, **interval) as reader:
            await until(lambda: bool(waits), "a wait")
            given.extend(world(tmp_path, 1, store))
            await asyncio.to_thread(look_at_remote, proxy.service)
            archive = reader.archive
            assert archive is not None
            await until(lambda: values(archive, "t") == given, "the record")
            await asyncio.sleep(0.2)
            assert len(waits) <= time.monotonic() - waits[0] + 2

    asyncio.run(work())
