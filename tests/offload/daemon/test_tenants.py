"""Test a daemon of many tenants: real processes, real tokens, and a tenant that is dead beside one that is not."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

import seglog
from offload.daemon import tenants as tenants_module
from offload.daemon.service import Service, open_service
from offload.daemon.tenants import Tenants
from offload.settings import ServeSettings
from offload.token_rights import Role, token_line
from tests.daemons import ServedDirectory, served_tenants
from tests.waiting import wait_until
from tests.worlds.tenant_roots import BYTES, append, ask, make, settings


def values(directory: Path, topic: str = "t") -> list[bytes]:
    with seglog.open(directory) as log:
        return [record.value for record in log.topic(topic).read()]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return make(tmp_path / "root", "acme", "globex")


def test_a_token_or_a_path_names_the_tenant(root: Path) -> None:
    with served_tenants(root, **settings(root)) as daemon:
        assert append(daemon, "acme-ci", b"a")[0] == 201
        assert append(daemon, "globex-ci", b"g")[0] == 201
        assert append(daemon, "acme-ci", b"b", "/tenants/acme")[1]["first_seq"] == 2
        assert append(daemon, "boss", b"c", "/tenants/acme")[1]["first_seq"] == 3
        status, problem = append(daemon, "boss", b"lost")
        assert (status, problem["title"]) == (404, "Refused")
        assert "/tenants/NAME" in problem["hint"]
        status, _, headers = ask(daemon, "boss", "DELETE", "/tenants")
        assert (status, headers["allow"]) == (405, "GET, HEAD")
        status, _, headers = ask(daemon, "boss", "GET", "/tenants/")
        assert (status, "location" in headers) == (404, False)
        daemon.terminate()
        assert daemon.process.wait(120) == 0
    assert values(root / "acme") == [b"a", b"b", b"c"]
    assert values(root / "globex") == [b"g"]


#: What a bound token may try at another tenant: each route, and names that only look like its own.
TRIES = (
    ("GET", "/topics"), ("GET", "/topics/t/records"), ("GET", "/topics/t/index_bounds"), ("GET", "/metrics"),
    ("GET", "/daemon/events"), ("GET", "/readyz"), ("GET", "/healthz"), ("GET", "/nothing"), ("GET", ""),
    ("DELETE", "/streams/s"), ("HEAD", "/topics/t/records"), ("OPTIONS", "/topics"),
)  # fmt: skip


def test_a_foreign_tenant_and_a_missing_one_are_the_same(root: Path) -> None:
    def answer(daemon: ServedDirectory, name: str, method: str, path: str) -> tuple[int, bytes, dict[str, str]]:
        body = b"x" if method == "POST" else None
        headers = {"Authorization": "Bearer secret-of-acme-ci", "seglog-request-id": "same", **BYTES}
        status, said, told = daemon.ask(method, f"/tenants/{name}{path}", body, headers)
        return status, said, {name: text for name, text in told.items() if name != "date"}

    with served_tenants(root, **settings(root)) as daemon:
        assert append(daemon, "globex-ci", b"g")[0] == 201
        for method, path in (*TRIES, ("POST", "/topics/t/records"), ("POST", "/rpc/status")):
            found = {name: answer(daemon, name, method, path) for name in ("globex", "missng", "acme%20", "%61cme")}
            assert found["globex"][0] == 404
            assert len({repr(each) for each in found.values()}) == 1, found
        assert answer(daemon, "acme", "GET", "/topics")[0] == 200
        # A token of a tenant that does not exist learns no more.
        status, problem, _ = ask(daemon, "ghost-ci", "GET", "/topics")
        assert (status, problem["title"]) == (404, "NoSuchTenant")
        assert ask(daemon, "ghost-ci", "GET", "/tenants/ghost/topics")[1]["detail"] == problem["detail"]
        daemon.terminate()
        assert daemon.process.wait(120) == 0
    assert values(root / "globex") == [b"g"]


def test_only_an_unbound_admin_lists_the_tenants(root: Path) -> None:
    make(root, "Bad.Name")
    with served_tenants(root, **settings(root)) as daemon:
        status, told, _ = ask(daemon, "boss", "GET", "/tenants")
        assert status == 200
        assert [(each["name"], each["state"]) for each in told["tenants"]] == [
            ("Bad.Name", "failed"), ("acme", "open"), ("globex", "open"),
        ]  # fmt: skip
        assert "not a tenant's name" in told["tenants"][0]["error"]
        for token in ("scraper", "acme-ci"):
            status, problem, _ = ask(daemon, token, "GET", "/tenants")
            assert (status, problem["title"]) == (403, "NotAllowed")
            assert "globex" not in json.dumps(problem)


def test_metrics_have_the_tenant_and_a_bound_token_sees_its_own_only(root: Path) -> None:
    def series(token: str, path: str = "/metrics") -> set[str]:
        status, text, _ = ask(daemon, token, "GET", path)
        assert status == 200
        lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
        families = re.findall(r"^# TYPE (\S+) ", text.decode(), re.M)
        assert len(families) == len(set(families))
        return set(lines)

    def tenants(lines: set[str]) -> set[str]:
        return {"".join(re.findall(r'tenant="([^"]*)"', line)) for line in lines}

    with served_tenants(root, **settings(root)) as daemon:
        append(daemon, "acme-ci", b"a", topic="secret-of-acme")
        append(daemon, "globex-ci", b"g")
        own = series("acme-ci")
        assert tenants(own) == {"acme"}
        assert any(line.startswith("seglog_topic_head_seq{") and "secret-of-acme" in line for line in own)
        assert not any("globex" in line or line.startswith("process_") for line in own)
        everything = series("scraper")
        assert tenants(everything) == {"", "acme", "globex"}
        assert {'seglog_tenant_up{tenant="acme"} 1.0', 'seglog_tenant_up{tenant="globex"} 1.0'} <= everything
        assert any(line.startswith("process_cpu_seconds_total ") for line in everything)
        assert tenants(series("scraper", "/tenants/globex/metrics")) == {"globex"}


@pytest.mark.long
def test_the_events_of_a_bound_token_are_those_of_its_tenant(root: Path) -> None:
    def offload(token: str, topic: str) -> None:
        for path, body in (("seal", {"topic": topic}), ("offload", {"topic": topic})):
            headers = {"Authorization": f"Bearer secret-of-{token}", "Content-Type": "application/json"}
            status, told, _ = daemon.ask("POST", f"/rpc/{path}", json.dumps(body).encode(), headers)
            assert status == 200, told

    with served_tenants(root, **settings(root), OFFLOAD_OFFLOAD_AFTER_S="never") as daemon, ExitStack() as stack:
        streams = {}
        for name, path in (("acme", "/daemon/events"), ("globex", "/tenants/globex/daemon/events")):
            connection = stack.enter_context(closing(http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=60)))
            connection.request("GET", path, None, {"Authorization": f"Bearer secret-of-{name}-ci"})
            streams[name] = connection.getresponse()
            assert streams[name].readline().startswith(b":"), "the stream is open"
        for name in ("globex", "acme", "globex"):
            append(daemon, f"{name}-ci", b"x", topic=f"of-{name}")
            offload(f"{name}-ci", f"of-{name}")
        daemon.terminate()
        told = {name: stream.read().decode() for name, stream in streams.items()}
        assert daemon.process.wait(120) == 0
    topics = {name: re.findall(r'"topic": "([^"]*)"', text) for name, text in told.items()}
    assert topics == {"acme": ["of-acme"], "globex": ["of-globex", "of-globex"]}
    assert "globex" not in told["acme"]
    assert "acme" not in told["globex"]


def test_a_tenant_under_load_has_one_upload_process(root: Path) -> None:
    topics = [f"t{number}" for number in range(4)]
    names = ("acme", "globex")
    for name in names:
        with seglog.open(root / name) as log:
            for topic in topics:
                log.topic(topic).append([b"x" * 100_000])
                log.topic(topic).seal()
    seen: set[str] = set()

    def are_offloaded() -> bool:
        tasks = Path(f"/proc/{daemon.process.pid}/task").glob("*/children")
        seen.update(pid for path in tasks for pid in path.read_text().split())
        return all(len([*(root.parent / "bucket" / name).glob("*/log/*")]) == len(topics) for name in names)

    given = {"OFFLOAD_OFFLOAD_AFTER_S": "0", "OFFLOAD_TOPICS_AT_ONCE": "4"}
    with served_tenants(root, **settings(root), **given) as daemon:
        wait_until(are_offloaded)
        text = ask(daemon, "scraper", "GET", "/metrics")[1].decode()
    found = dict(re.findall(r'^seglog_worker_processes{.*tenant="(\w+)".*} (\S+)$', text, re.MULTILINE))
    assert found == {"acme": "1.0", "globex": "1.0"}
    assert len(seen) == 2, "the daemon has started more than one process for a tenant"


def test_the_log_and_the_access_log_name_the_tenant_and_the_token_but_never_the_token_itself(root: Path) -> None:
    with served_tenants(root, **settings(root), SERVE_ACCESS_LOG="true", SERVE_LOG_FORMAT="json") as daemon:
        append(daemon, "acme-ci", b"a")
        ask(daemon, "boss", "GET", "/tenants/globex/topics")
        ask(daemon, "boss", "GET", "/tenants")
        ask(daemon, "scraper", "GET", "/tenants/acme/topics")
        ask(daemon, "nobody", "GET", "/topics")
        ask(daemon, "acme-ci", "POST", "/topics/t/rpc/seal", b"")
        wait_until(lambda: sum('"request"' in line for line in daemon.lines) >= 6)
        found = [json.loads(line) for line in daemon.lines if line.startswith("{")]
        assert "secret-of" not in "".join(daemon.lines)
    told = [(each["path"], each["status"], each.get("tenant"), each.get("token")) for each in found if "path" in each]
    assert told[:5] == [
        ("/topics/t/records", 201, "acme", "acme-ci"),
        ("/tenants/globex/topics", 200, "globex", "boss"),
        ("/tenants", 200, None, "boss"),
        ("/tenants/acme/topics", 403, "acme", "scraper"),
        ("/topics", 401, None, None),
    ]


def test_a_tenant_that_does_not_open_stops_no_other_and_sighup_opens_and_closes(root: Path) -> None:
    (root / "globex" / "seglog.toml").write_text("[log]\nwal_shards = 'x'\n")
    (root / "wayne").mkdir()
    make(root, "wayne")
    (root / "wayne" / "seglog.toml").write_text('[tenant]\nname = "other"\n')
    make(root, "twin")
    shutil.copy(root / "acme" / "seglog.toml", root / "twin" / "seglog.toml")
    with served_tenants(root, **settings(root)) as daemon:
        states = {each["name"]: each for each in ask(daemon, "boss", "GET", "/tenants")[1]["tenants"]}
        assert {name: each["state"] for name, each in states.items() if name != "acme" and name != "twin"} == {
            "globex": "failed", "wayne": "failed",
        }  # fmt: skip
        assert sorted(states[name]["state"] for name in ("acme", "twin")) == ["failed", "open"]
        assert "belongs to the tenant other" in states["wayne"]["error"]
        shutil.rmtree(root / "twin")
        daemon.process.send_signal(signal.SIGHUP)
        assert append(daemon, "acme-ci", b"a")[0] == 201
        status, problem, told = ask(daemon, "globex-ci", "GET", "/topics")
        assert (status, problem["title"], told["retry-after"]) == (503, "TenantClosed", "1")
        assert "wal_shards" not in json.dumps(problem)
        assert any("tenant globex does not open" in line for line in daemon.lines)
        assert b'seglog_tenant_up{tenant="globex"} 0.0' in ask(daemon, "scraper", "GET", "/metrics")[1]

        (root / "globex" / "seglog.toml").write_text("")
        make(root, "ghost")
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: append(daemon, "globex-ci", b"g")[0] == 201)
        wait_until(lambda: append(daemon, "ghost-ci", b"h")[0] == 201)
        shutil.move(root / "acme", root.parent / "gone")
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: ask(daemon, "acme-ci", "GET", "/topics")[0] == 404)
        root.rename(root.parent / "away")
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: any("cannot list their directories" in line for line in daemon.lines))
        (root.parent / "away").rename(root)
        assert append(daemon, "globex-ci", b"g")[0] == 201
        daemon.terminate()
        assert daemon.process.wait(120) == 0
    assert values(root.parent / "gone") == [b"a"]
    assert values(root / "globex") == [b"g", b"g"]


def test_a_remote_within_another_tenants_remote_does_not_open(root: Path) -> None:
    make(root, "inner")
    own = (root / "acme" / "seglog.toml").read_text()
    (root / "inner" / "seglog.toml").write_text(own.replace("/acme", "/acme/inner"))
    make(root, "acme2")  # begins with the same letters, and is apart
    with served_tenants(root, **settings(root)) as daemon:
        states = {each["name"]: each for each in ask(daemon, "boss", "GET", "/tenants")[1]["tenants"]}
        assert sorted(states[name]["state"] for name in ("acme", "inner")) == ["failed", "open"]
        error = states["acme"].get("error", "") + states["inner"].get("error", "")
        assert "is not apart from another tenant's" in error
        # The error goes into a line of the one tenant, so it names no other. A line of the daemon names both.
        assert ("remote of acme " in error) != ("remote of inner " in error)
        [line] = [each for each in daemon.lines if "are not apart" in each]
        assert "acme" in line
        assert "inner" in line
        assert (states["acme2"]["state"], states["globex"]["state"]) == ("open", "open")
        daemon.terminate()
        assert daemon.process.wait(120) == 0


def test_a_link_and_a_moved_directory_give_no_tenant_another_ones_data(root: Path) -> None:
    make(root, "ghost")
    with served_tenants(root, **settings(root)) as daemon:
        assert append(daemon, "globex-ci", b"g")[0] == 201
        daemon.terminate()
        assert daemon.process.wait(120) == 0
    shutil.rmtree(root / "acme")
    (root / "acme").symlink_to(root / "globex")
    shutil.rmtree(root / "ghost")
    shutil.copytree(root / "globex", root / "ghost")
    (root / "ghost" / "seglog.toml").write_text("")
    with served_tenants(root, **settings(root)) as daemon:
        for name, reason in (("acme", "is a symbolic link"), ("ghost", "belongs to the tenant globex")):
            status, problem, _ = ask(daemon, f"{name}-ci", "GET", "/topics/t/records")
            assert (status, problem["title"]) == (503, "TenantClosed")
            assert any(f"tenant {name} does not open" in line and reason in line for line in daemon.lines)
        assert b"g" in ask(daemon, "globex-ci", "GET", "/topics/t/records/1")[1]
        (root / "ghost" / "tenant").unlink()
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: ask(daemon, "ghost-ci", "GET", "/topics")[0] == 200)


@pytest.mark.long
def test_the_daemon_does_not_start_if_its_environment_or_its_root_joins_the_tenants(root: Path) -> None:
    def refusal(**variables: str) -> tuple[int, str]:
        given = {**os.environ, **{f"SEGLOG_{name}": text for name, text in variables.items()}}
        words = [sys.executable, "-m", "offload", "-C", str(root), "serve", "--tenants"]
        done = subprocess.run(words, env=given, capture_output=True, text=True, check=False, timeout=120)
        return done.returncode, done.stderr

    key = "arn:aws:kms:eu-west-1:111122223333:key/0a1b2c3d-0000-4444-8888-0123456789ab"
    for name, value in (("OFFLOAD_SSE_KMS_KEY_ID", key), ("TENANT_SESSION_POLICY", "false")):
        code, said = refusal(**{name: value})
        assert code == 2
        assert f"SEGLOG_{name} would be that of all tenants" in said
    root.chmod(0o770)
    code, said = refusal()
    assert (code, "may be written by others" in said) == (2, True)


def test_a_remote_in_s3_without_a_role_does_not_open(root: Path) -> None:
    (root / "acme" / "seglog.toml").write_text('[remote]\nurl = "s3://archive/acme"\n')
    with served_tenants(root, **settings(root)) as daemon:
        status, problem, _ = ask(daemon, "acme-ci", "GET", "/topics")
        assert (status, problem["title"]) == (503, "TenantClosed")
        assert any("tenant acme does not open" in line and "shared_credentials" in line for line in daemon.lines)
        assert append(daemon, "globex-ci", b"g")[0] == 201


def test_sighup_opens_a_tenant_with_another_remote_or_identity_again(root: Path) -> None:
    own = (root / "acme" / "seglog.toml").read_text()
    with served_tenants(root, **settings(root)) as daemon:
        assert append(daemon, "acme-ci", b"a")[0] == 201
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: any("settings taken from" in line and "acme" in line for line in daemon.lines))
        (root / "acme" / "seglog.toml").write_text(own.replace("/acme", "/acme9"))
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: any("tenant acme is closed" in line for line in daemon.lines))
        wait_until(lambda: append(daemon, "acme-ci", b"b")[0] == 201)
        for command in ("seal", "offload"):
            assert ask(daemon, "acme-ci", "POST", f"/topics/t/rpc/{command}", b"{}")[0] == 200
        assert not [*(root.parent / "bucket" / "acme").iterdir()]
        assert [*(root.parent / "bucket" / "acme9").iterdir()]
        (root / "acme" / "seglog.toml").write_text(f'[tenant]\nname = "other"\n{own}')
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: ask(daemon, "acme-ci", "GET", "/topics")[1].get("title") == "TenantClosed")
        wait_until(lambda: any("belongs to the tenant other" in line for line in daemon.lines))
        assert sum("tenant acme is closed" in line for line in daemon.lines) == 2
        assert not any("tenant globex is closed" in line for line in daemon.lines)
        assert append(daemon, "globex-ci", b"g")[0] == 201


def test_the_metrics_of_all_tenants_are_for_a_token_of_all_topics(root: Path) -> None:
    with (root.parent / "tokens").open("a") as file:
        file.write("\n" + token_line("partner", Role.ADMIN, "app-*", "secret-of-partner"))
    with served_tenants(root, **settings(root)) as daemon:
        status, problem, _ = ask(daemon, "partner", "GET", "/metrics")
        assert (status, problem["title"]) == (403, "NotAllowed")
        assert "globex" not in json.dumps(problem)
        assert ask(daemon, "scraper", "GET", "/metrics")[0] == 200


def test_acked_records_of_both_tenants_survive_a_kill(root: Path) -> None:
    for turn in range(2):
        with served_tenants(root, **settings(root)) as daemon:
            for each in (b"1", b"2", b"3"):
                assert append(daemon, "acme-ci", b"a%d" % turn + each)[0] == 201
                assert append(daemon, "globex-ci", b"g%d" % turn + each)[0] == 201
            daemon.kill()
    assert values(root / "acme") == [b"a01", b"a02", b"a03", b"a11", b"a12", b"a13"]
    assert values(root / "globex") == [b"g01", b"g02", b"g03", b"g11", b"g12", b"g13"]


def test_each_tenant_has_a_unix_socket_and_a_request_that_has_begun_gets_its_answer_at_the_end(root: Path) -> None:
    with served_tenants(root, **settings(root), SERVE_PROBE_PORT="0") as daemon:
        half = b"POST /topics/t/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
        half += b"Content-Length: 10\r\n"
        over_unix = socket.socket(socket.AF_UNIX)
        over_unix.connect(str(root / "acme" / "seglog.sock"))
        over_tcp = socket.create_connection(("127.0.0.1", daemon.port))
        over_unix.sendall(half + b"\r\nhalf ")
        over_tcp.sendall(half + b"Authorization: Bearer secret-of-globex-ci\r\n\r\nhalf ")
        for _ in range(2):
            assert ask(daemon, "acme-ci", "GET", "/topics")[0] == 200
            assert ask(daemon, "globex-ci", "GET", "/topics")[0] == 200
        assert (root / "acme" / "seglog.sock").stat().st_mode & 0o777 == 0o600
        daemon.terminate()
        wait_until(lambda: _is_refused(daemon.port))
        with closing(http.client.HTTPConnection("127.0.0.1", daemon.port_of("probes"))) as probe:
            probe.request("GET", "/readyz")
            assert probe.getresponse().status == 503
        for begun in (over_unix, over_tcp):
            begun.sendall(b"whole")
            answer = http.client.HTTPResponse(begun)
            answer.begin()
            assert (answer.status, answer.getheader("Connection")) == (201, "close")
            answer.read()
            begun.close()
        assert daemon.process.wait(120) == 0
    assert values(root / "acme") == values(root / "globex") == [b"half whole"]


def _is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.long
def test_tenant_list_asks_the_daemon_or_the_directory(root: Path) -> None:
    def listed(*options: str) -> tuple[int, list[tuple[str, str]]]:
        words = [sys.executable, "-m", "offload", "--json", *options, "tenant", "list"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
        return done.returncode, [(each["name"], each["state"]) for each in map(json.loads, done.stdout.splitlines())]

    for name in ("boss", "acme-ci"):
        (root.parent / name).write_text(f"secret-of-{name}\n")
    assert listed("-C", str(root)) == (0, [("acme", "directory"), ("globex", "directory")])
    with served_tenants(root, **settings(root)) as daemon:
        address = ("--daemon", f"http://127.0.0.1:{daemon.port}", "--token-file")
        assert listed(*address, str(root.parent / "boss")) == (0, [("acme", "open"), ("globex", "open")])
        assert listed(*address, str(root.parent / "acme-ci")) == (2, [])


def test_a_tenant_that_opens_at_a_reload_takes_the_new_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, file = tmp_path / "root", tmp_path / "root" / "acme" / "seglog.toml"
    root.mkdir(mode=0o700)
    seglog.open(root / "acme").close()

    async def run() -> None:
        async def held(*given: Any, **named: Any) -> Service:
            service = await open_service(*given, **named)
            file.write_text("[tenant]\nquota_bytes = 5\n")
            tenants.reload({})  # as SIGHUP does, while the directory opens
            return service

        monkeypatch.setattr(tenants_module, "open_service", held)
        tenants = Tenants(root, ServeSettings(), {})
        tenants.start()
        try:
            await tenants.opened()
            tenant = tenants.find("acme")
            assert tenant is not None
            assert tenant.service is not None
            assert tenant.service.quota.most_bytes == 5
        finally:
            await tenants.close()

    asyncio.run(run())


def test_tenants_share_the_slots_and_no_ready_set(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir(mode=0o700)
    for name in ("acme", "other"):
        seglog.open(root / name).close()

    async def run() -> None:
        tenants = Tenants(root, ServeSettings(delivery_slots=1), {})
        tenants.start()
        try:
            await tenants.opened()
            services = [tenant.service for tenant in tenants]
            one, two = (service.feeds.ready for service in services if service is not None)
            await one.take("held")
            order: list[str] = []

            async def page(name: str, priority: int) -> None:
                ready = one if name == "acme" else two
                await ready.take(f"{name} {priority}", priority)
                order.append(name)
                ready.give_back()

            asked = [("acme", 1000), ("acme", 1000 - 1), ("acme", 1000 - 2), ("other", -250), ("other", -249)]
            pages = [asyncio.create_task(page(*each)) for each in asked]
            await asyncio.sleep(0)
            assert tenants.slots.taken == 1
            one.give_back()
            await asyncio.gather(*pages)
            assert order == ["acme", "other", "acme", "other", "acme"]
            assert tenants.slots.taken == 0
        finally:
            await tenants.close()

    asyncio.run(run())
