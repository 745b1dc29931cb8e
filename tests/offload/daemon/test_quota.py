"""Test the quotas of tenants: as values, and in a daemon in which one tenant is over its quota or has a dead bucket."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import seglog
from catalog.objects.memory import MemoryStore
from offload.daemon import http
from offload.daemon.http import direct
from offload.daemon.quota import Account, OverQuota, OverRate, Quota, frame_bytes
from offload.settings import TenantSettings
from seglog.client.bodies import LINES_TYPE
from tests.daemons import served_tenants
from tests.waiting import wait_until
from tests.worlds.asgi import BYTES, asked
from tests.worlds.clock import HandClock
from tests.worlds.services import serving
from tests.worlds.tenant_roots import append, ask, make, settings


def test_an_account_holds_a_second_and_one_large_take_is_paid_off() -> None:
    account = Account(8.0)
    assert [account.take(1, 5.0) for _ in range(9)] == [0.0] * 8 + [0.125]
    assert account.take(1, 5.125) == 0.0
    assert account.take(33, 100.0) == 0.0  # it held 8, and owes 25
    assert account.take(1, 101.0) == 2.25
    assert account.take(1, 103.125) == 0.125
    assert account.take(1, 103.25) == 0.0
    assert [Account(None).take(10**9, 0.0) for _ in range(2)] == [0.0, 0.0]


def test_a_change_of_the_limits_holds_at_once_and_keeps_what_is_owed() -> None:
    now_s, refused = [0.0], list[str]()
    quota = Quota(TenantSettings(append_bytes_per_s=10, requests_per_s=1), refused.append, lambda: now_s[0])

    async def scenario() -> None:
        await appended(quota, 1_010)
        with pytest.raises(OverRate, match=r"tenant\.append_bytes_per_s") as over:
            await quota.take_append(1)
        assert over.value.retry_after_s == 101
        quota.change(TenantSettings(append_bytes_per_s=1_000, requests_per_s=1))
        with pytest.raises(OverRate) as over:
            await quota.take_append(1)
        assert over.value.retry_after_s == 2
        await quota.take_append(0)  # it has no bytes
        quota.change(TenantSettings())
        await quota.take_append(10**9)

    asyncio.run(scenario())
    quota.change(TenantSettings(requests_per_s=2))
    quota.take_request()
    quota.take_request()
    with pytest.raises(OverRate):
        quota.take_request()
    now_s[0] += 0.5
    quota.take_request()
    assert refused == ["rate"] * 3


async def appended(quota: Quota, size_bytes: int, *, is_first: bool = True) -> None:
    with await quota.take_append(size_bytes, is_first=is_first) as hold:
        hold.appended(size_bytes)


def test_bytes_count_from_the_last_look_and_a_later_part_waits_for_the_rate() -> None:
    async def scenario() -> None:
        quota = Quota(TenantSettings(quota_bytes=100))
        quota.looked(40, quota.since_bytes)
        await appended(quota, 50)
        with pytest.raises(OverQuota, match="100 bytes"):
            await appended(quota, 11)
        since = quota.since_bytes
        await appended(quota, 10)
        quota.looked(20, since)  # a release made room; the look began before the last append
        await appended(quota, 70)
        with pytest.raises(OverQuota):
            await appended(quota, 1)

        now_s = iter([0.0, 0.1, 2.0])
        by_rate = Quota(TenantSettings(append_bytes_per_s=1_000), now_s=lambda: next(now_s))
        await appended(by_rate, 1_500)
        await appended(by_rate, 1, is_first=False)
        assert next(now_s, None) is None  # it looked, waited, and looked again

    asyncio.run(scenario())


def test_an_append_under_way_holds_its_bytes_and_gives_back_what_the_log_did_not_take() -> None:
    async def scenario() -> None:
        quota = Quota(TenantSettings(quota_bytes=100))
        with await quota.take_append(60) as hold:
            quota.looked(0, quota.since_bytes)  # its records are not there yet
            with pytest.raises(OverQuota):
                await quota.take_append(41)
            hold.appended(20)
        assert quota.since_bytes == 20
        await appended(quota, 80)
        with pytest.raises(OverQuota):
            await quota.take_append(1)

    asyncio.run(scenario())


def test_parts_that_wait_for_the_rate_do_not_pass_the_quota_together() -> None:
    async def scenario() -> None:
        now_s = 0.0
        quota = Quota(TenantSettings(quota_bytes=3_000, append_bytes_per_s=1_000), now_s=lambda: now_s)
        await appended(quota, 2_000)  # 1,000 bytes of the quota are left, and the rate is in debt
        parts = [asyncio.create_task(appended(quota, 1_000, is_first=False)) for _ in range(8)]
        await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        refused, waiting = [each for each in parts if each.done()], [each for each in parts if not each.done()]
        assert [type(each.exception()) for each in refused] == [OverQuota] * 7
        waiting[0].cancel()  # its client is gone, so another one may take its place
        await asyncio.wait(waiting)
        now_s = 10.0
        await appended(quota, 1_000)
        assert quota.since_bytes == 3_000

    asyncio.run(scenario())


def test_the_bytes_of_an_append_are_those_of_its_frames(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "log") as log:
        topic, counted = log.topic("t"), 0
        for values, tag, node in (([b""], None, None), ([b"a", b"", b"ccc"] * 200, "\u00e4", None), ([b"b"], "t", "n")):
            topic.append(values, tag=tag, node=node)
            counted += frame_bytes(values, tag, node)
            assert topic.inner.bytes_hot == counted


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return make(tmp_path / "root", "acme", "globex")


def limit(root: Path, text: str) -> None:
    with (root / "acme" / "seglog.toml").open("a") as file:
        file.write(f"\n[tenant]\n{text}\n")


def test_a_tenant_over_its_rate_takes_no_seq_and_delays_no_other(root: Path) -> None:
    limit(root, "append_bytes_per_s = 1")
    with served_tenants(root, **settings(root)) as daemon:
        assert append(daemon, "acme-ci", b"x" * 5_000)[0] == 201
        for _ in range(10):
            status, problem, told = ask(daemon, "acme-ci", "POST", "/topics/t/records", b"more")
            assert (status, problem["title"]) == (429, "OverRate")
            assert int(told["retry-after"]) > 1_000
            assert append(daemon, "globex-ci", b"y" * 5_000)[0] == 201
        put = ask(daemon, "acme-ci", "PUT", "/streams/s", b"more")
        assert put[0] == 429
        assert ask(daemon, "acme-ci", "GET", "/topics/t/index_bounds")[1]["head_seq"] == 1
        assert ask(daemon, "globex-ci", "GET", "/topics/t/index_bounds")[1]["head_seq"] == 10
        text = ask(daemon, "scraper", "GET", "/metrics")[1].decode()
        assert 'seglog_http_rejected_total{reason="rate",tenant="acme"} 11.0' in text
        assert 'reason="rate",tenant="globex"' not in text


def test_a_tenant_at_its_bytes_gets_507_until_there_is_room(root: Path) -> None:
    limit(root, "quota_bytes = 4000")
    with served_tenants(root, **settings(root)) as daemon:
        assert append(daemon, "acme-ci", b"x" * 3_000)[0] == 201
        status, problem, _ = ask(daemon, "acme-ci", "POST", "/topics/t/records", b"x" * 3_000)
        assert (status, problem["title"]) == (507, "OverQuota")
        assert "quota_bytes" in problem["hint"]
        assert append(daemon, "globex-ci", b"x" * 3_000)[0] == append(daemon, "globex-ci", b"x" * 3_000)[0] == 201
        assert ask(daemon, "acme-ci", "GET", "/topics/t/index_bounds")[1]["head_seq"] == 1
        text = (root / "acme" / "seglog.toml").read_text()
        (root / "acme" / "seglog.toml").write_text(text.replace("quota_bytes = 4000", "quota_bytes = 40000"))
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: append(daemon, "acme-ci", b"x" * 3_000)[0] == 201)


def test_empty_values_count_for_the_quota_and_the_rate(root: Path) -> None:
    limit(root, "quota_bytes = 100000\nappend_bytes_per_s = 1000")
    with served_tenants(root, **settings(root)) as daemon:

        def post(count: int) -> tuple[int, str]:
            headers = {"Authorization": "Bearer secret-of-acme-ci", "Content-Type": LINES_TYPE}
            status, answer, _ = daemon.ask("POST", "/topics/t/records", b"\n" * count, headers)
            return status, json.loads(answer).get("title", "")

        assert [post(5_000), post(1_000), post(1)] == [(507, "OverQuota"), (201, ""), (429, "OverRate")]
        assert ask(daemon, "acme-ci", "GET", "/topics/t/index_bounds")[1]["head_seq"] == 1_000


def test_a_repetition_gets_its_seqs_over_the_quota_and_while_appends_are_held(tmp_path: Path) -> None:
    """It appends nothing. What was never appended is refused."""
    topic, stream = "/topics/t/records", "/streams/s"
    key, other = ((b"idempotency-key", name) for name in (b"one", b"two"))

    def batch(number: int) -> list[tuple[bytes, bytes]]:
        return [(b"producer-id", b"p"), (b"producer-epoch", b"0"), (b"producer-seq", b"%d" % number)]

    async def scenario() -> None:
        async with serving(tmp_path / "data", MemoryStore(), TENANT_QUOTA_BYTES="20000") as service:
            app = direct(http.make_app(service))
            assert (await asked(app, stream, BYTES, body=b"", method="PUT"))[0] == 201
            assert (await asked(app, topic, BYTES, *batch(0)))[0] == 201
            status, told, _ = await asked(app, topic, BYTES, key)
            assert status == 201
            incarnation = b"seglog-if-incarnation", told["incarnation"].encode()
            assert (await asked(app, stream, BYTES, *batch(0)))[0] == 200

            async def look(reason: str) -> None:
                large = bytes(300_000)  # the route asks the log before it takes such a body
                for headers, seq in ((batch(0), 1), ([*batch(0), incarnation], 1), ([key], 2), ([key, incarnation], 2)):
                    status, told, _ = await asked(app, topic, BYTES, *headers)
                    assert (status, told["first_seq"], told["duplicate"]) == (200, seq, True), reason
                assert (await asked(app, stream, BYTES, *batch(0)))[0] == 204
                for path, headers in ((topic, batch(1)), (topic, [other]), (topic, []), (stream, batch(1))):
                    assert (await asked(app, path, BYTES, *headers, body=large))[1]["title"] == reason
                assert (await asked(app, topic, BYTES, key, body=large))[1]["title"] == "KeyReused"
                assert service.sync.topic("t").head_seq == 2

            with await service.quota.take_append(19_000):
                await look("OverQuota")
            service.quota.change(TenantSettings())
            service.sync.hold_appends("the test holds them")
            await look("AppendsHeld")
            service.sync.hold_appends(None)
            assert (await asked(app, topic, BYTES, *batch(1)))[0] == 201

    asyncio.run(scenario())


def test_a_stream_is_deleted_while_appends_are_held(tmp_path: Path) -> None:
    """A deletion and an expiry free space, although each puts entries into `_streams`."""

    async def scenario() -> None:
        clock = HandClock()
        async with serving(tmp_path / "data", (tmp_path / "remote").as_uri(), clock) as service:
            app = direct(http.make_app(service))
            ttl, fork = (b"stream-ttl", b"60"), (b"stream-forked-from", b"/streams/source")
            for path, headers in {"old": [ttl], "plain": [], "source": [], "fork": [fork]}.items():
                assert (await asked(app, f"/streams/{path}", BYTES, *headers, method="PUT"))[0] == 201
            service.sync.hold_appends("the test holds them")
            assert (await asked(app, "/streams/new", BYTES, body=b"", method="PUT"))[1]["title"] == "AppendsHeld"
            for path in ("plain", "source", "fork"):
                assert (await asked(app, f"/streams/{path}", method="DELETE"))[0] == 204
            clock.ms += 61_000
            assert (await asked(app, "/streams/old", method="DELETE"))[0] == 404
            assert not {"plain", "old"} & {*service.sync.topics()}
        async with serving(tmp_path / "data", (tmp_path / "remote").as_uri(), clock) as service:
            app = direct(http.make_app(service))
            for path in ("old", "plain", "source", "fork"):
                assert (await asked(app, f"/streams/{path}", method="DELETE"))[0] == 404

    asyncio.run(scenario())


@pytest.mark.long
def test_a_dead_bucket_of_one_tenant_delays_no_other(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store of acme takes connections and never answers."""
    asked: list[socket.socket] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as dead, ExitStack() as undo:
        undo.callback(dead.shutdown, socket.SHUT_RDWR)

        def take() -> None:
            while True:
                try:
                    asked.append(dead.accept()[0])
                except OSError:
                    return

        taker = threading.Thread(target=take, daemon=True)  # it ends with the socket
        taker.start()
        for name, text in (("ENDPOINT_URL", f"http://127.0.0.1:{dead.getsockname()[1]}"), ("REGION", "us-east-1"),
                           ("ACCESS_KEY_ID", "x"), ("SECRET_ACCESS_KEY", "y")):  # fmt: skip
            monkeypatch.setenv(f"AWS_{name}", text)
        (root / "acme" / "seglog.toml").write_text('[remote]\nurl = "s3://bucket/acme"\n')
        with served_tenants(
            root, **settings(root), SERVE_SHARED_CREDENTIALS="true", OFFLOAD_OFFLOAD_AFTER_S="0"
        ) as daemon:
            assert append(daemon, "acme-ci", b"a")[0] == 201
            with pytest.raises(TimeoutError):
                ask_briefly(daemon.port)
            wait_until(lambda: len(asked) > 0)
            for _ in range(20):
                assert append(daemon, "acme-ci", b"a")[0] == 201
                assert append(daemon, "globex-ci", b"g")[0] == 201
            assert ask(daemon, "globex-ci", "POST", "/topics/t/rpc/seal", b"{}")[0] == 200
            answered = ask(daemon, "globex-ci", "POST", "/topics/t/rpc/offload", b"{}")
            assert answered[0] == 200, answered
            assert any(each.is_file() for each in (root.parent / "bucket" / "globex").rglob("*"))
            assert ask(daemon, "globex-ci", "GET", "/readyz")[0] == 200
    taker.join(60)
    for each in asked:
        each.close()
    with seglog.open(root / "acme") as log:
        assert log.topic("t").head_seq == 21


def ask_briefly(port: int) -> None:
    """Ask for the branches of acme, which are in the dead bucket, and leave after a second."""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=1)) as opened:
        head = b"POST /rpc/branch/list HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret-of-acme-ci\r\n"
        opened.sendall(head + b"Content-Type: application/json\r\nContent-Length: 14\r\n\r\n" + b'{"topic": "t"}')
        opened.recv(1)
