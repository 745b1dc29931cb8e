"""Test `seglog serve --proxy` as a process: readers with a token alone, and a proxy that is killed."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

import offload
import seglog
from catalog.errors import StoreUnreachable
from catalog.format.keys import Key
from catalog.objects import LocalStore
from catalog.objects.http import HttpStore
from offload.token_rights import Role, token_line
from tests.answering import Answer, AnsweringServer, Asked
from tests.daemons import ServedDirectory, served_tenants
from tests.offload.replicas import opened, values
from tests.worlds.command import Run, run

__all__ = ["run"]

pytestmark = pytest.mark.long
TOKEN = "the-token-of-one-reader-0123"


@pytest.fixture
def remote(tmp_path: Path) -> str:
    """A remote with the topics `orders` and `web`."""
    url = (tmp_path / "remote").as_uri()
    write(tmp_path, url, b"one", b"two")
    return url


def write(tmp_path: Path, url: str, *given: bytes) -> None:
    with seglog.open(tmp_path / "writer") as log, offload.attach(log, url) as archive:
        for name in ("orders", "web"):
            log.topic(name).append(list(given))
            log.topic(name).seal()
            archive.offload(name)


@contextmanager
def proxy_of(directory: Path, url: str, **variables: str) -> Iterator[ServedDirectory]:
    given = {f"SEGLOG_{name}": text for name, text in variables.items()}
    daemon = ServedDirectory(directory, {"SEGLOG_CATALOG_SYNC_INTERVAL_S": "1", **given}, "--proxy", url)
    try:
        yield daemon
    finally:
        daemon.kill()


def test_readers_need_a_token_and_no_key_and_a_new_proxy_goes_on_with_an_empty_directory(
    tmp_path: Path, remote: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, token = tmp_path / "tokens", tmp_path / "token"
    tokens.write_text(token_line("reader", Role.READ, "orders", TOKEN))
    token.write_text(TOKEN)
    monkeypatch.setenv("SEGLOG_TOKEN_FILE", str(token))
    with proxy_of(tmp_path / "proxy", remote, SERVE_TOKEN_FILE=str(tokens)) as daemon:
        url = f"http://127.0.0.1:{daemon.port}"
        assert "orders" in run("follow", url, str(tmp_path / "mirror"), "--once").text
        assert run("-C", str(tmp_path / "mirror"), "read", "orders").out == b"one\ntwo\n"
        assert run("-C", str(tmp_path / "mirror"), "log", "orders").code == 0
        found = run("-C", str(tmp_path / "mirror"), "takeover", "orders")
        assert found.code == 1
        assert "this remote only reads" in found.err
        assert "web" not in run("-C", str(tmp_path / "mirror"), "status").text
        assert run("recover", url, str(tmp_path / "new")).code == 0
        assert run("-C", str(tmp_path / "made"), "init", "--from", url).code == 0
        monkeypatch.setenv("SEGLOG_TOKEN_FILE", str(tmp_path / "none"))
        assert run("follow", url, str(tmp_path / "other"), "--once").code == 1
        monkeypatch.setenv("SEGLOG_TOKEN_FILE", str(token))
    refused = run("-C", str(tmp_path / "mirror"), "sync", "orders")
    assert (refused.code, url in refused.err) == (1, True)
    shutil.rmtree(tmp_path / "proxy")
    write(tmp_path, remote, b"three")
    with proxy_of(tmp_path / "proxy", remote, SERVE_TOKEN_FILE=str(tokens), SERVE_PORT=url.rpartition(":")[2]):
        run("-C", str(tmp_path / "mirror"), "sync", "orders")
        assert run("-C", str(tmp_path / "mirror"), "read", "orders").out == b"one\ntwo\nthree\n"


def test_a_proxy_that_is_killed_at_any_request_leaves_the_replica_whole(tmp_path: Path, remote: str) -> None:
    kills = 0
    with opened(tmp_path / "mirror", HttpStore("http://127.0.0.1:9")) as (log, _):
        log.create_topic("own")
    for nth in range(1, 60):
        with proxy_of(tmp_path / "proxy", remote) as daemon:
            shutil.rmtree(tmp_path / "copy", ignore_errors=True)
            shutil.copytree(tmp_path / "mirror", tmp_path / "copy")
            with AnsweringServer(_killing(daemon, nth)) as server:
                store = HttpStore(server.url, attempts=1)
                with opened(tmp_path / "copy", store) as (_, reader):
                    try:
                        reader.replication.sync("orders")
                        assert values(reader, "orders") == [b"one", b"two"]
                    except StoreUnreachable:
                        kills += 1
                    else:
                        break
        with proxy_of(tmp_path / "proxy", remote) as daemon:
            store = HttpStore(f"http://127.0.0.1:{daemon.port}")
            with opened(tmp_path / "copy", store) as (_, reader):
                reader.replication.sync("orders")
                assert values(reader, "orders") == [b"one", b"two"]
    assert kills >= 4


def _killing(daemon: ServedDirectory, nth: int) -> Callable[[Asked], Answer | None]:
    """Return what passes requests on, and kills the daemon at the nth of them."""
    asked: list[Asked] = []

    def decide(each: Asked) -> Answer | None:
        asked.append(each)
        if len(asked) >= nth:
            if daemon.process.poll() is None:
                os.kill(daemon.process.pid, signal.SIGKILL)
            return None
        headers = {name: text for name, text in each.headers.items() if name.lower() != "host"}
        status, body, given = daemon.ask(each.method, each.target, None, headers)
        length = int(given["content-length"]) if each.method == "HEAD" else None
        return Answer(status, body, _without_length(given), length)

    return decide


def _without_length(headers: Mapping[str, str]) -> dict[str, str]:
    dropped = {"content-length", "transfer-encoding", "connection"}
    return {name: text for name, text in headers.items() if name not in dropped}


def test_a_reader_of_one_tenant_sees_no_other(tmp_path: Path, remote: str) -> None:
    tokens, lines = tmp_path / "tokens", []
    for tenant in ("acme", "globex"):
        directory = tmp_path / "root" / tenant
        seglog.open(directory).close()
        (directory / "seglog.toml").write_text(
            f'[remote]\nurl = "{(tmp_path / tenant).as_uri()}"\n[serve]\nproxy = {str(tenant == "acme").lower()}\n'
        )
        lines.append(token_line(tenant, Role.READ, "*", f"{TOKEN}-{tenant}", tenant))
        shutil.copytree(tmp_path / "remote", tmp_path / tenant)
    tokens.write_text("\n".join([*lines, token_line("operator", Role.READ, "*", TOKEN)]))
    with served_tenants(tmp_path / "root", SERVE_TOKEN_FILE=str(tokens)) as daemon:
        url = f"http://127.0.0.1:{daemon.port}"
        whole = sorted(LocalStore(tmp_path / "acme").list(""))
        for place, token in (
            (url, f"{TOKEN}-acme"),
            (f"{url}/tenants/acme", TOKEN),
            (f"{url}/tenants/acme", f"{TOKEN}-acme"),
        ):
            assert list(HttpStore(place, lambda token=token: token).list("")) == whole
        for place, token in (
            (f"{url}/tenants/acme", f"{TOKEN}-globex"),
            (url, TOKEN),
            (f"{url}/tenants/globex", TOKEN),
        ):
            store = HttpStore(place, lambda token=token: token, attempts=1)
            for read in (lambda store: [*store.list("")], lambda store: store.get(Key("refs/orders/main"))):
                with pytest.raises(StoreUnreachable):  # and not NoSuchObject: it is no empty remote
                    read(store)
