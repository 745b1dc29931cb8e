"""Test a daemon that is a proxy: who may read which object, what it caches, and how damage and trouble end."""

from __future__ import annotations

import asyncio
import errno
import json
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

import offload
import seglog
from catalog import Vid
from catalog.errors import AccessDenied, InvalidObject, NoSuchObject, StoreUnreachable
from catalog.format.keys import Key, pin_key
from catalog.objects import LocalStore, MemoryStore, ObjectStore
from catalog.objects.http import HttpStore
from offload.token_rights import Role, token_line
from seglog.files.file_system import OsFiles
from tests.answering import Answer, Asked
from tests.faults.store import CountingStore, Fault, FaultyStore, WrappedStore, unreachable
from tests.offload.replicas import opened, ship, values
from tests.seams.proxy import search_soon
from tests.worlds.proxies import QUIET, Proxied, proxied
from tests.worlds.services import serving

MIB = 1024 * 1024
CANARY = Random(7).randbytes(300)  # it does not compress
TOKENS = {
    "all": ("read", "*"), "web": ("read", "web"), "orders": ("read", "ord*"), "metrics": ("metrics", "*"),
    "append": ("append", "web"),
}  # fmt: skip


def token_of(name: str) -> str:
    return f"token-of-{name}-0123456789"


LINES = "\n".join(
    token_line(name, Role[role.upper()], topics, token_of(name)) for name, (role, topics) in TOKENS.items()
)


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    """A remote with two topics, a branch and a tag."""
    store = MemoryStore()
    with opened(tmp_path / "writer", store) as (log, archive):
        ship(archive, log, "orders", b"one", b"two")
        ship(archive, log, "web", CANARY)
        archive.restore("web", to="head", name="try")
        ship(archive, log, "web@try", b"three")
        archive.tags.tag("web", "v1")
        store.put_new(pin_key(archive.history.snapshot("web").vid, "lease"), b"a pin")
    return store


@pytest.fixture
def proxy(tmp_path: Path, store: MemoryStore) -> Iterator[Proxied]:
    with proxied(tmp_path / "proxy", store, LINES.encode()) as found:
        yield found


def is_of_web(store: ObjectStore, key: str) -> bool:
    if key.startswith(("refs/", "tags/")):
        return key.split("/")[1] == "web"
    with pytest.MonkeyPatch.context():
        try:
            return b"web" in store.get(Key(key.split("/")[0] + "/control"))
        except NoSuchObject:
            return False


# ---------------------------------------------------------------- rights


def test_a_token_reads_and_lists_what_its_topics_have_and_nothing_else(proxy: Proxied, store: MemoryStore) -> None:
    keys = list(store.list(""))
    web = [key for key in keys if is_of_web(store, key)]
    orders = [key for key in keys if key not in web and not key.startswith(("oplog/", "pins/"))]
    assert any(key.startswith("pins/") for key in keys)
    assert any("/segments/" in key for key in orders)
    shown = {"all": keys, "web": web, "append": web, "orders": orders}
    for name, expected in shown.items():
        reader = proxy.store(token_of(name))
        assert list(reader.list("")) == expected, name
        for prefix in ("refs/", "refs/web/", "tags/", "oplog/", "pins/", "5", web[0].partition("/")[0]):
            assert list(reader.list(prefix)) == [key for key in expected if key.startswith(prefix)], (name, prefix)
        for key in map(Key, keys):
            for read in (reader.get, reader.head):
                if key in expected:
                    assert read(key)
                    continue
                with pytest.raises(NoSuchObject):
                    read(key)
    for token in (token_of("metrics"), "wrong-token-0123456789", None):
        for read in (lambda store: store.get(Key("refs/web/main")), lambda store: [*store.list("")]):
            with pytest.raises(AccessDenied):
                read(proxy.store(token))


def test_a_foreign_key_and_an_absent_one_get_the_same_bytes(proxy: Proxied, store: MemoryStore) -> None:
    def answer(key: str) -> tuple[Any, ...]:
        seen: list[Answer | None] = []
        proxy.spoil = lambda _, answer: seen.append(answer) or answer
        with pytest.raises(NoSuchObject):
            proxy.store(token_of("orders")).get(Key(key))
        [found] = seen
        assert found is not None
        report = json.loads(found.body)
        report.pop("request_id", None)
        return found.status, dict(found.headers), json.dumps(report).replace(key, "KEY")

    foreign = next(key for key in store.list("5") if is_of_web(store, key) and "/segments/" in key)
    absent = foreign.replace(foreign.partition("/")[0], str(Vid.new(0)))
    assert answer(foreign) == answer(absent)
    assert answer("refs/web/main") == answer("refs/absent/main")
    assert answer("oplog/FFFFFFFFFFFFFFFE") == answer("oplog/0000000000000000")


def test_a_canary_reaches_no_other_token_also_not_from_the_cache(proxy: Proxied, store: MemoryStore) -> None:
    bodies: list[bytes] = []
    proxy.spoil = lambda _, answer: bodies.append(answer.body if answer else b"") or answer
    keys = [Key(key) for key in store.list("")]
    for name in ("web", "orders", "web", "orders", "metrics"):
        bodies.clear()
        for key in keys:
            for read in (lambda store, key=key: store.get(key), lambda store, key=key: store.get_range(key, 0, 40)):
                try:
                    read(proxy.store(token_of(name)))
                except (NoSuchObject, AccessDenied, InvalidObject):
                    continue
        assert any(CANARY in body for body in bodies) is (name == "web"), name


def test_a_hostile_key_is_absent_before_any_request_to_the_store(tmp_path: Path, store: MemoryStore) -> None:
    counting = CountingStore(store)
    with proxied(tmp_path / "proxy", counting, LINES.encode(), **QUIET) as proxy:
        proxy.run(_still(counting))
        for target in (
            "../x", "refs/../refs/web/main", "refs%2fweb/main", "refs/web%2Fmain", "refs/web/main%00", "%2e%2e/refs",
            "/refs/web/main", "refs/web/main/", ".multipart/x", "refs//main", "é",
        ):  # fmt: skip
            status, headers, _ = proxy.ask(f"/objects/{target}", token_of("all"))
            assert (status, headers.get("seglog-error")) == (404, "NoSuchObject"), target
        for target in ("tenants/other/objects/refs/web/main", "oplog/1", "pins/x/y", "refs/orders/main"):
            assert proxy.ask(f"/objects/{target}", token_of("web"))[0] == 404
        for query in ("prefix=../", "prefix=%2F", "limit=0", "limit=1001", "start_after=%00", "other=1"):
            assert proxy.ask(f"/objects?{query}", token_of("all"))[0] == 400, query
    assert counting.counts.total() == 0


async def _still(counting: CountingStore) -> None:
    counting.counts.clear()


def test_a_listing_reads_no_more_of_the_store_than_it_needs(tmp_path: Path, store: MemoryStore) -> None:
    class Counted(WrappedStore):
        keys = 0

        def _call(self, _method: str, _key: str, act: Any) -> Any:
            return act()

        def list(self, prefix: str, *, limit: int | None = None, start_after: str = "") -> Iterator[str]:
            found = [*super().list(prefix, limit=limit, start_after=start_after)]
            self.keys += len(found)
            return iter(found)

    foreign = next(key.partition("/")[0] for key in store.list("5") if not is_of_web(store, key))
    for number in range(2500):
        store.put(Key(f"{foreign}/segments/{number:05}"), b"", {})
        store.put(Key(f"oplog/{number:016X}"), b"", {})
    counted = Counted(store)
    with proxied(tmp_path / "proxy", counted, LINES.encode(), **QUIET) as proxy:
        reader, web = proxy.store(token_of("web")), [key for key in store.list("") if is_of_web(store, key)]
        for prefix, most in (("oplog/", 0), ("p", 0), ("refs/web/", 2), ("5", 1100), ("", 1200)):
            counted.keys = 0
            assert list(reader.list(prefix)) == [key for key in web if key.startswith(prefix)], prefix
            assert counted.keys <= most, prefix
        found: list[str] = []
        is_more = True
        while is_more:
            after = found[-1] if found else ""
            page = json.loads(proxy.ask(f"/objects?limit=3&start_after={after}", token_of("web"))[2])
            found, is_more = found + page["keys"], page["more"]
        assert found == web


def test_a_damaged_control_hides_its_volume_and_no_other(
    tmp_path: Path, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    control = next(Key(key) for key in store.list("5") if key.endswith("/control") and not is_of_web(store, key))
    body = bytearray(store.get(control))
    body[-1] ^= 1
    store.put(control, bytes(body), {})
    with proxied(tmp_path / "proxy", store, LINES.encode(), **QUIET) as proxy:
        web = [key for key in store.list("") if is_of_web(store, key)]
        assert list(proxy.store(token_of("web")).list("")) == web
        for name in ("web", "orders"):
            status, _, report = proxy.ask(f"/objects/{control}", token_of(name))
            assert (status, json.loads(report)["title"]) == (404, "NoSuchObject")
        assert proxy.ask(f"/objects/{control}", token_of("all"))[:1] == (200,)
        assert "only to tokens for all topics" in caplog.text


# ---------------------------------------------------------------- bytes, ranges, cache


def large(tmp_path: Path, size: int = 3 * MIB + 777) -> tuple[LocalStore, Key, bytes]:
    """Return a remote with one segment of incompressible bytes."""
    store = LocalStore(tmp_path / "remote")
    with opened(tmp_path / "writer", store) as (log, archive):
        ship(archive, log, "t", b"one")
        key = next(Key(key) for key in store.list("") if "/segments/" in key and not key.endswith(".index"))
    body = Random(1).randbytes(size)
    store.put(key, body, {})
    return store, key, body


def outcomes(proxy: Proxied) -> dict[str, float]:
    [metric] = proxy.service.metrics.proxy_requests.collect()
    return {sample.labels["outcome"]: sample.value for sample in metric.samples if sample.name.endswith("_total")}


def test_ranges_come_from_slices_that_are_fetched_once(tmp_path: Path) -> None:
    inner, key, body = large(tmp_path)
    counting = CountingStore(inner)
    with proxied(tmp_path / "proxy", counting, **QUIET) as proxy:
        reader = proxy.store()
        reader.head(key)  # the proxy learns the topic of its volume
        counting.counts.clear()
        assert reader.get_range(key, 100, 50) == body[100:150]
        assert reader.get_range(key, MIB - 10, 20) == body[MIB - 10 : MIB + 10]
        assert counting.counts == {"head": 1, "get_range": 2}
        assert reader.get(key) == body
        assert counting.counts == {"head": 1, "get_range": 3}  # the missing neighbours come with one GET
        assert reader.get_range(key, 5, len(body) - 5) == body[5:]
        assert counting.counts == {"head": 1, "get_range": 3}
        assert outcomes(proxy) == {"passed": 1, "fetched": 3, "cached": 1}
        for start, length in ((0, len(body) + 1), (len(body), 1), (len(body) + MIB, 5)):
            with pytest.raises(InvalidObject):
                reader.get_range(key, start, length)
        for given, status, content_range, size in (
            (f"bytes={len(body)}-", 416, None, None),
            ("bytes=-100", 206, f"bytes {len(body) - 100}-{len(body) - 1}/{len(body)}", 100),
            (f"bytes={MIB}-", 206, f"bytes {MIB}-{len(body) - 1}/{len(body)}", len(body) - MIB),
            ("bytes=7-3", 200, None, len(body)),
            ("bytes=0-1,5-6", 200, None, len(body)),
            ("lines=0-1", 200, None, len(body)),
        ):
            found_status, headers, found = proxy.ask(f"/objects/{key}", None, Range=given)
            assert (found_status, headers.get("content-range")) == (status, content_range), given
            assert size is None or len(found) == size


def test_what_may_change_goes_through_each_time(tmp_path: Path, store: MemoryStore) -> None:
    counting = CountingStore(store)
    with proxied(tmp_path / "proxy", counting, **QUIET) as proxy:
        reader = proxy.store()
        for key in (Key("refs/web/main"), *(Key(key) for key in store.list("") if "/log/" in key)):
            counting.counts.clear()
            assert [reader.get(key) for _ in range(2)] == [store.get(key)] * 2
            assert counting.counts["get_with_etag"] == 2
            assert reader.get_range(key, 1, 4) == store.get(key)[1:5]
            with pytest.raises(InvalidObject):
                reader.get_range(key, 1, 100_000)
        assert set(outcomes(proxy)) == {"passed"}


def test_readers_of_one_range_share_its_get_and_leave_the_threads_to_others(tmp_path: Path) -> None:
    inner, key, body = large(tmp_path)
    [ref] = [Key(key) for key in inner.list("refs/")]
    starts = (0, 10, MIB - 5) * 8  # more than the daemon has threads for
    begun, may_end = threading.Semaphore(0), threading.Event()

    class Slow(WrappedStore):
        gets = 0

        def _call(self, _method: str, _key: str, act: Any) -> Any:
            return act()

        def get_range(self, key: Key, start: int, length: int) -> bytes:
            if "/segments/" in key:
                self.gets += 1
                begun.release()
                assert may_end.wait(30)
            return super().get_range(key, start, length)

    slow = Slow(inner)
    with proxied(tmp_path / "proxy", slow) as proxy, ThreadPoolExecutor(32) as pool:
        proxy.store().head(key)
        first = pool.submit(proxy.store().get_range, key, 0, 2 * MIB)
        assert begun.acquire(timeout=30)
        others = [pool.submit(proxy.store().get_range, key, start, MIB) for start in starts]
        while len(proxy.asked) < 2 + len(starts):
            threading.Event().wait(0.01)
        threading.Event().wait(0.05)
        assert pool.submit(proxy.store().get, ref).result(30) == inner.get(ref)
        may_end.set()
        assert first.result(30) == body[: 2 * MIB]
        assert [other.result(30) for other in others] == [body[at : at + MIB] for at in starts]
        assert slow.gets == 1
        assert outcomes(proxy)["fetched"] == 1


def test_a_restart_with_a_full_an_empty_and_a_damaged_cache(tmp_path: Path) -> None:
    inner, key, body = large(tmp_path)
    counting, place = CountingStore(inner), tmp_path / "proxy" / "cache" / "proxy" / "seglog-chunks"

    def gets() -> int:
        with proxied(tmp_path / "proxy", counting, **QUIET) as proxy:
            proxy.store().head(key)
            counting.counts.clear()
            assert proxy.store().get(key) == body
            return counting.counts["get_range"]

    assert (gets(), gets()) == (1, 0)
    entries = sorted(path for path in place.iterdir() if path.name != "LOCK")
    assert len(entries) == 4
    damaged = bytearray(entries[1].read_bytes())
    damaged[5] ^= 1
    entries[1].write_bytes(damaged)
    entries[2].write_bytes(entries[2].read_bytes()[:-3])
    assert 1 <= gets() <= 2
    assert gets() == 0
    shutil.rmtree(place.parent)
    assert (gets(), gets()) == (1, 0)
    shutil.rmtree(place.parent)
    place.parent.write_bytes(b"no directory can be here")  # as on a disk that fails, it goes without a cache
    assert (gets(), gets()) == (1, 1)


def test_a_flip_on_the_way_is_found_and_read_again_past_the_cache(tmp_path: Path) -> None:
    class Flips(WrappedStore):
        is_bad = True

        def _call(self, _method: str, _key: str, act: Any) -> Any:
            return act()

        def get_range(self, key: Key, start: int, length: int) -> bytes:
            body = super().get_range(key, start, length)
            if "/segments/" not in key or not self.is_bad:
                return body
            return body[: len(body) // 2] + bytes([body[len(body) // 2] ^ 1]) + body[len(body) // 2 + 1 :]

    memory = MemoryStore()
    with opened(tmp_path / "writer", memory) as (log, archive):
        ship(archive, log, "t", *(b"%d" % number * 40 for number in range(500)))
        expected = values(archive, "t")
    flips = Flips(memory)
    with proxied(tmp_path / "proxy", flips) as proxy:

        def heal(asked: Asked, answer: Answer | None) -> Answer | None:
            if asked.headers.get("Cache-Control") == "no-cache":
                fresh.append(asked.target)
            elif "/segments/" in asked.target:
                flips.is_bad = False  # from the next GET of the store on
            return answer

        fresh: list[str] = []
        proxy.spoil = heal
        with opened(tmp_path / "reader", proxy.store()) as (_, reader):
            reader.replication.sync("t")
            flips.is_bad = True
            assert values(reader, "t") == expected
        assert fresh
        assert not any("/log/" in target for target in fresh)
        with opened(tmp_path / "other", proxy.store()) as (_, reader):
            fresh.clear()
            reader.replication.sync("t")
            assert values(reader, "t") == expected
            assert fresh == []  # the cache has the new bytes


def test_without_a_cache_a_range_costs_its_own_bytes_and_a_reload_opens_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counted(WrappedStore):
        received = 0

        def _call(self, _method: str, _key: str, act: Any) -> Any:
            return act()

        def get_range(self, key: Key, start: int, length: int) -> bytes:
            self.received += length if "/segments/" in key else 0
            return super().get_range(key, start, length)

    inner, key, body = large(tmp_path)
    counted = Counted(inner)
    with proxied(tmp_path / "none", counted, COLD_CACHE_BYTES="0", **QUIET) as proxy:
        assert proxy.store().get_range(key, MIB - 10, 20) == body[MIB - 10 : MIB + 10]
        assert counted.received == 20
    with proxied(tmp_path / "full", counted, **QUIET) as proxy:
        counted.received = 0
        with monkeypatch.context() as patched:
            patched.setattr(OsFiles, "pwrite", _full)
            for _ in range(3):
                assert proxy.store().get_range(key, 5, 20) == body[5:25]
        assert counted.received == MIB + 40  # the first one finds out
    (tmp_path / "late").mkdir()
    toml = tmp_path / "late" / "seglog.toml"
    with proxied(tmp_path / "late", counted, **{**QUIET, "SERVE_PROXY": "false"}) as proxy:
        toml.write_text("[serve]\nproxy = true\n")
        proxy.service.reload({})
        counted.received = 0
        for _ in range(2):
            assert proxy.store().get_range(key, 5, 20) == body[5:25]
        assert counted.received == MIB


def _full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "no room")


# ---------------------------------------------------------------- trouble


def test_a_store_that_is_away_is_503_and_the_reader_says_so(tmp_path: Path, store: MemoryStore) -> None:
    faulty = FaultyStore(store, [])
    with proxied(tmp_path / "proxy", faulty, **QUIET) as proxy:
        faulty.fail([Fault(method="get_with_etag", error=unreachable)])
        status, headers, report = proxy.ask("/objects/refs/web/main", None)
        assert status == 503
        assert store.url not in report.decode()
        assert int(headers["retry-after"]) >= 1
        with pytest.raises(StoreUnreachable, match="503"):
            proxy.store().get(Key("refs/web/main"))
        faulty.fail([])
        assert proxy.store().get(Key("refs/web/main")) == store.get(Key("refs/web/main"))


def test_a_daemon_that_is_no_proxy_shows_no_object(tmp_path: Path, store: MemoryStore) -> None:
    with proxied(tmp_path / "proxy", store) as proxy:
        toml = tmp_path / "proxy" / "seglog.toml"
        toml.write_text("[serve]\nproxy = false\n")
        proxy.service.reload({})
        assert proxy.ask("/objects/refs/web/main", None)[0] == 404
        with pytest.raises(StoreUnreachable, match="this daemon is no proxy"):
            proxy.store().get(Key("refs/web/main"))
        toml.write_text("[serve]\nproxy = true\n")
        proxy.service.reload({})
        assert proxy.store().get(Key("refs/web/main"))


def test_a_proxy_follows_all_names_and_takes_none_over(tmp_path: Path, store: MemoryStore) -> None:
    with proxied(tmp_path / "proxy", store, CATALOG_SYNC_INTERVAL_S="1") as proxy:
        _until_topics(proxy, ["orders", "web", "web@try"])
        headers = {"Content_Type": "application/octet-stream"}
        status, _, body = proxy.ask("/topics/orders/records", None, b"mine", method="POST", **headers)
        report = json.loads(body)
        assert (status, report["title"]) == (409, "WrittenElsewhere")
        assert "proxy" in report["detail"]
        assert "ask the daemon that writes it" in report["hint"]
        status, _, body = proxy.ask("/topics/orders/records/2", None)
        assert (status, body) == (200, b"two")
    with opened(tmp_path / "writer", store) as (log, archive):
        ship(archive, log, "orders", b"three")  # its writer was not fenced


def test_a_proxy_begins_no_topic_by_an_append_and_makes_none_that_the_remote_has(
    tmp_path: Path, store: MemoryStore
) -> None:
    def tell(target: str, body: bytes = b"{}") -> tuple[int, str]:
        status, _, found = proxy.ask(target, None, body, method="POST", Content_Type=kind)
        return status, found.decode()

    kind = "application/octet-stream"
    with proxied(tmp_path / "proxy", store, **QUIET) as proxy:  # it knows no name of the remote yet
        for name in ("orders", "new"):
            status, report = tell(f"/topics/{name}/records", b"mine")
            assert (status, json.loads(report)["title"]) == (409, "WrittenElsewhere")
            assert f"seglog topic create {name}" in report
        status, report = tell("/topics/orders/rpc/topic/create")
        assert (status, json.loads(report)["title"]) == (409, "Conflict")
        assert "seglog append" not in report  # no append takes it over here
        assert json.loads(proxy.ask("/topics", None)[2])["topics"] == []
        assert tell("/topics/new/rpc/topic/create")[0] == 200
        assert tell("/topics/new/records", b"mine")[0] == 201


def test_a_proxy_that_never_looks_at_its_remote_is_refused(tmp_path: Path, store: MemoryStore) -> None:
    with pytest.raises(seglog.InvalidSetting, match="sync_interval_s"):
        asyncio.run(_start(tmp_path / "proxy", store))
    with proxied(tmp_path / "proxy", store) as proxy:
        toml = tmp_path / "proxy" / "seglog.toml"
        toml.write_text('[serve]\nproxy = true\n[catalog]\nsync_interval_s = "never"\n')
        proxy.service.reload({})
        assert proxy.service.looks_within_ms > 0  # the settings stayed


async def _start(directory: Path, store: ObjectStore) -> None:
    async with serving(directory, store, SERVE_PROXY="true", CATALOG_SYNC_INTERVAL_S="never"):
        pass


def test_the_search_for_names_holds_up_no_sync(tmp_path: Path) -> None:
    class Held(WrappedStore):
        def _call(self, method: str, key: str, act: Any) -> Any:
            if key.startswith("refs/new") and method != "list":
                begun.set()
                assert may_end.wait(30)
            return act()

    begun, may_end, memory = threading.Event(), threading.Event(), MemoryStore()
    with opened(tmp_path / "writer", memory) as (log, archive):
        ship(archive, log, "t", b"one")
        with proxied(tmp_path / "proxy", Held(memory), CATALOG_SYNC_INTERVAL_S="1") as proxy:
            _until_topics(proxy, ["t"])
            ship(archive, log, "new", b"one")
            search_soon(proxy.service)
            assert begun.wait(30)
            ship(archive, log, "t", b"two")
            try:
                status, _, _ = proxy.ask("/topics/t/forward?since=1&wait_s=20", None)
            finally:
                may_end.set()
            assert status == 200


def _until_topics(proxy: Proxied, names: list[str]) -> None:
    for _ in range(1000):
        if json.loads(proxy.ask("/topics", None)[2])["topics"] == names:
            return
        threading.Event().wait(0.01)
    raise AssertionError(names)


def test_a_directory_made_over_http_has_no_writer(tmp_path: Path, proxy: Proxied) -> None:
    reader = proxy.store(token_of("web"))
    assert [each.topic for each in offload.recover(tmp_path / "new", proxy.url, store=reader)] == ["web", "web@try"]
    with opened(tmp_path / "new", proxy.store(token_of("web"))) as (log, archive):
        assert values(archive, "web") == [CANARY]
        assert values(archive, "web@try") == [CANARY, b"three"]
        assert len(archive.history.commits("web@try")) == 2
        for act in (
            lambda: archive.open_for_append("web"),
            lambda: archive.replication.take_over("web"),
            lambda: archive.restore("web", to="head", name="other"),
            lambda: archive.tags.tag("web", "v2"),
        ):
            with pytest.raises(AccessDenied, match="this remote only reads"):
                act()
        log.topic("own").append([b"mine"])
        log.topic("own").seal()
        with pytest.raises((AccessDenied, seglog.SeglogError)):
            archive.offload("own")
    assert isinstance(reader, HttpStore)


# ---------------------------------------------------------------- many readers


def test_eight_cold_scans_at_once_fetch_each_byte_once(tmp_path: Path) -> None:
    class Counted(WrappedStore):
        received = 0

        def _call(self, _method: str, _key: str, act: Any) -> Any:
            return act()

        def get_range(self, key: Key, start: int, length: int) -> bytes:
            with lock:
                self.received += length
            return super().get_range(key, start, length)

    lock, random = threading.Lock(), Random(3)
    expected = [random.randbytes(40_000) for _ in range(100)]
    memory = MemoryStore()
    with opened(tmp_path / "writer", memory) as (log, archive):
        ship(archive, log, "t", *expected)
    counted = Counted(memory)
    with proxied(tmp_path / "proxy", counted) as proxy, ThreadPoolExecutor(8) as pool:

        def scan(number: int) -> list[bytes]:
            with opened(tmp_path / f"reader-{number}", proxy.store()) as (_, reader):
                reader.replication.sync("t")
                return values(reader, "t")

        for found in pool.map(scan, range(8)):
            assert found == expected
        assert counted.received <= 1.02 * sum(map(len, expected))


def test_each_past_state_is_the_same_over_http(tmp_path: Path) -> None:
    memory = MemoryStore()
    with opened(tmp_path / "writer", memory) as (log, archive):
        ship(archive, log, "t", b"1", b"2")
        archive.delete("t", seqs=[1])
        ship(archive, log, "t", b"3")
        archive.tags.tag("t", "v")
        archive.truncate("t", 3)
        ship(archive, log, "t", b"4")
        targets = ["lsn:1", "lsn:2", "head~1", "head", "seq:2", "tag:v"]
        expected = {at: values(archive, "t", at) for at in targets}
    assert len({str(found) for found in expected.values()}) > 3
    with proxied(tmp_path / "proxy", memory) as proxy, opened(tmp_path / "reader", proxy.store()) as (_, reader):
        reader.replication.sync("t")
        assert {at: values(reader, "t", at) for at in targets} == expected
