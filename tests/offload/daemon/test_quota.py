"""Test the quotas of tenants: as values, and in a daemon in which one tenant is over its quota or has a dead bucket."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import seglog
from offload.daemon.quota import Account, Quota
from offload.errors import OverQuota, OverRate
from offload.settings import TenantSettings
from tests.daemons import served_tenants
from tests.offload.daemon.test_tenants import append, ask, make, settings
from tests.waiting import wait_until


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
        await quota.take_append(1_010)
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


def test_bytes_count_from_the_last_look_and_a_later_part_waits_for_the_rate() -> None:
    async def scenario() -> None:
        quota = Quota(TenantSettings(quota_bytes=100))
        quota.looked(40, quota.since_bytes)
        await quota.take_append(50)
        with pytest.raises(OverQuota, match="100 bytes"):
            await quota.take_append(11)
        since = quota.since_bytes
        await quota.take_append(10)
        quota.looked(20, since)  # a release made room; the look began before the last append
        await quota.take_append(70)
        with pytest.raises(OverQuota):
            await quota.take_append(1)

        now_s = iter([0.0, 0.1, 2.0])
        by_rate = Quota(TenantSettings(append_bytes_per_s=1_000), now_s=lambda: next(now_s))
        await by_rate.take_append(1_500)
        await by_rate.take_append(1, is_first=False)
        assert next(now_s, None) is None  # it looked, waited, and looked again

    asyncio.run(scenario())


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
